// Package virtual answers for the schema cleave as SQL clients of the router see it: its views, such as cleave.shards, and its
// functions, such as cleave.shard_table.
//
// It gathers what the other rooms know and turns it into rows, and hands functions to those who carry them out. How the
// rows get into a client's statement is package session's business; the same operations over HTTP are package admin's.
// Column names are a part of the interface: they are documented in docs/sql-interface.md and do not change.
//
// A [Schema] holds nothing itself and is safe for concurrent use. Start reading at views.go.
package virtual
