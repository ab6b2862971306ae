// Package copydata reads the bytes of COPY … FROM STDIN: where a row begins and ends, and what some of its columns hold, so
// that each row can go to the shard that owns its key.
//
// # What it does
//
//   - [NewFormat] reads COPY's options as PostgreSQL reads them.
//   - [Splitter] is fed the data in pieces of any size and gives it back in [Piece] values, byte for byte as they came: the
//     header, rows with the decoded values of the chosen columns, and the end. In text, CSV and binary.
//   - [Format.Extend] adds values to a row, behind its own.
//   - [Origins] remembers which row went where, so that "line 17" in the error of a server that was given a part of the data
//     becomes the line of the client's own data.
//
// # What it does not do
//
// A destination that gets no row may still have to hear of the COPY: with HEADER MATCH or in binary a server refuses data without a
// header, so the caller begins the COPY on at least one server and ends it there even if nothing came.
//
// It knows neither types nor keys nor shards: a value is the bytes that stand for it, as they are before a column's input
// function sees them. It does not look whether the data is valid in its encoding, which the server does that gets it. It has no
// sockets and reads no SQL.
//
// # Guarantees
//
//   - Pieces put together are the input, whatever the input is.
//   - A row's bounds and its chosen values are what PostgreSQL takes them for. Where servers of different versions disagree, or
//     a server that gets only a part of the data could not notice a fault, the Splitter refuses with an error.
//   - A row that is yielded as [Malformed] is refused by every server that gets it, as the first of its data or later.
//   - Nothing is allocated for a row once buffers have grown to its size, and no byte is looked at again when more data comes.
//
// A Format never changes and can be shared. A Splitter and an Origins belong to one goroutine at a time.
//
// Start reading at splitter.go, then text.go and csv.go; fields.go says what a column holds.
package copydata
