// Package compose takes a statement apart that no shard can run alone: into pulls, which are queries of their own that shards can
// answer, and a statement that finishes the work over what was pulled, or writes it, in a session of the client's own role.
//
// The finishing statement is the client's own, with other names of tables. Everything that makes an answer right (types, collations,
// NULLs, the meaning of names and functions) is left to PostgreSQL, so what is proven here is small: a table may be replaced by a
// relation of the same name that has the same columns, as far as the statement names them, and the same rows, as far as its conditions
// let them through. What may be pulled, and from which shards, is for package plan to prove; where and how it is pulled, and where it is
// finished, is for the session.
//
// Texts are templates: a plan is shared by all texts that differ in literals only, so the places of literals stay open. Like package
// facts it reads and writes SQL by PostgreSQL's own grammar, and works on the syntax tree of one text; nothing of the tree is in what it returns.
//
// It also writes statements anew with one moment in the place of the current time, see [AtMoment].
//
// Everything is safe for concurrent use. Start reading at split.go; columns.go says which columns are needed, conditions.go which
// conditions can be asked of a table where it lives, text.go is about templates.
package compose
