// Package facts takes from a text of SQL what a planner needs to know of each statement: which tables it names and in what
// role, which functions it calls, which operators and types it uses, what queries it is made of and what they say of their rows,
// what it says about the session.
//
// PostgreSQL's own grammar reads the text (libpg_query, the grammar of PostgreSQL 17; beside this package only compose has it),
// and what comes out are plain values that hold nothing of the syntax tree. Queries are a tree of blocks ([Block]), which is the
// statement's own as far as it is simple: columns and values, comparisons, joins; what is not simple is left out, so a condition
// here is never more than what must be true. Names of common table expressions are told from
// names of tables here, because that is a matter of syntax alone; which table or column a name means, what a function does and where
// anything lives is not: package plan decides that with the catalogue and the shard map.
//
// It guarantees that no relation, no type and no call of a function that stands in a statement is missing from its facts, and no
// query from the tree of blocks: the syntax tree is walked by its own description, so a kind of node that nobody thought of is walked too. Operators are those that
// expressions name or words stand for; which ones sorting, grouping and set operations use, the types decide. Syntax that
// servers older than the grammar read as a call is a call here too. A text that is too
// long or nested too deeply for the grammar's C code is refused before that code sees it, so no text ends the process. What
// is taken from literals says so, since a plan is shared by all texts that differ in literals only.
//
// Everything is safe for concurrent use. Start reading at facts.go and block.go; the walk is in walk.go, query.go and from.go, conditions
// are read in condition.go.
package facts
