// Package merge puts rows that several PostgreSQL servers gave for one SELECT together, as one server would have given them.
//
// # What it does
//
//   - [HasOrder] says for which types Go knows PostgreSQL's order exactly; [Order] compares rows in it.
//   - [Merger] reads sources whose rows are sorted and gives all of them in order, with OFFSET, LIMIT, WITH TIES and DISTINCT.
//
// Rows are the bodies of DataRow messages. What is compared has to be in PostgreSQL's binary format; other columns are not
// looked at and may be in any.
//
// # What it does not do
//
// It has no sockets, no goroutines and no SQL: who asks the servers, and writes what they are asked, also sees to it that each of
// them sorts by the same keys, and is not asked for more once the Merger is done. It does not know an enum's order, which is not in
// the value, nor that of a text under a collation other than C. A text comes in the encoding of the connection and is ordered in that of the
// server, so a connection whose rows are compared here must have the server's own encoding as its client_encoding.
//
// # Guarantees
//
//   - Rows come in PostgreSQL's order; among equal ones those of a source with a lower number come first.
//   - No input panics: a row that is malformed as far as it was looked at is [ErrMalformed].
//   - A source whose rows do not come in the order is [ErrUnsorted], never a wrong result: nothing is given after the row where it shows.
//   - A Merger holds a row of each source, and a copy of the keys of one. It allocates nothing for a row once buffers have grown.
//
// # Concurrency
//
// An Order never changes and can be shared. A Merger belongs to one goroutine at a time, and so do its sources.
//
// # Where to start reading
//
// merger.go, then order.go; types.go has a line for each type.
package merge
