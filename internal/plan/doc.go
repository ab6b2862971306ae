// Package plan decides how a statement runs: on which shard, or by which key the shard is found, what the session has to do
// about it itself, what it leaves behind in a backend; or that it is refused, and why.
//
// It is pure. [Wants] says which names of tables, functions, operators and types it needs to know about; somebody who can
// reach a server (package catalog) looks them up; [Make] turns the facts of a text (package facts), that knowledge and the
// shard map into a [Plan]. A plan has no values of keys in it: binding them to a parameter or a literal and finding the shard is
// done each time it runs, by package binding and the session. So one plan serves all texts that differ in literals only,
// unless it says that it is Uncacheable.
//
// The law is: right or refused, never wrong. A statement that names sharded tables runs only if it is proven that one shard
// has every row that can matter to it, or that each shard's part of the answer can be computed alone, or that it can be answered in steps (package compose). If that depends on the values of its
// keys, the plan says what to do when they are on one shard, and what when they are not. A statement that writes to reference tables
// must do the same to every copy. Kinds of statements, roles of tables and functions that nobody thought of are refused.
// Code that no text names counts as well: behind views, rules and row security, behind tables that are written, operators, casts
// and types, and so does what definitions compute at once. All names of a text are looked up before any of it runs: behind a
// statement that may change what they mean, a statement is refused. What is taken on trust, because no catalogue tells it: that
// functions that users call IMMUTABLE, functions written in C, what extensions put behind operators and types, and operator
// classes read and write no sharded table.
//
// All functions are safe for concurrent use. Start reading at make.go; kinds.go lists what becomes of each kind of statement,
// query.go what the tables and functions of a query ask for, unsettled.go what the statements of one text leave open for each other. The
// proof is made in prove.go: proof.go, from.go and writes.go build what a statement is made of, scope.go says which columns its names mean,
// spread.go and recursion.go find out what values they have, tuples.go makes keys of them, ids.go does so with numbers that tell where their
// rows are, divide.go finds parts that are independent; views.go puts the queries of views in their places, views_write.go the tables behind those that are written; compose.go has what is answered in steps, made.go what is made of a query; numbers.go is for calls of functions of sequences,
// copies.go is for reference tables; everywhere.go and sequences.go say which definitions all shards can make together. The files under testdata show every rule at work, and one test runs plans of random statements
// beside a single server.
package plan
