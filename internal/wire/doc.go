// Package wire turns bytes of PostgreSQL's protocol, version 3, into messages and messages into bytes.
//
// # What it does
//
//   - [Frame] finds where a message ends; [StartupSize] does so for the packets before the login, which have no type.
//   - A Decode function per message that somebody has to look into, of clients and of servers.
//   - An Append function per message that the router says itself, in either direction.
//
// # What it does not do
//
// It has no sockets, no goroutines and no state: which message may come when is the session's business, and logging in to
// a shard is package pool's. Rows and data of COPY are relayed without being looked at, so the decoders here are for those
// who must. Function calls have a name for their message and nothing else.
//
// # Guarantees
//
//   - No input panics. What PostgreSQL would refuse is refused with PostgreSQL's words, as a [pgerr.Error].
//   - What a decoder returns as []byte lies inside the bytes it was given, with no room to append into what follows; it is
//     valid as long as those are. Strings are copies.
//   - A decoder looks at the whole message first, so the methods of what it returned cannot fail. An index that is out of
//     range panics as that of a slice does.
//   - Framing, the decoders of an extended query and the Append functions for it do not allocate, given a buffer that is
//     large enough.
//
// Append functions trust their caller. Strings end at a NUL on the wire, so they must have none, as those from a decoder
// never do; counts are limited to what 16 bits hold. A message that breaks this has a right length and a wrong body, which
// its receiver refuses. The startup packet is the exception, where a NUL would make a parameter of another: [AppendStartup]
// looks.
//
// # Concurrency
//
// Functions have no state. What they return may be read by many at a time, except [Bind], which remembers a position.
//
// # Where to start reading
//
// message.go has the names and the framing, reader.go what all decoders are made of, frontend.go what clients say.
package wire
