// Package catalog is what the planner must know of tables, functions, operators and types: it reads it from the home shard's
// catalogue and keeps it until it may have changed.
//
// # What it does
//
//   - [Catalog.Look] says what the names in a text stand for, from memory or with one round trip to the home shard.
//   - [Catalog.LookOn] says it as a transaction sees it that has changed the catalogue and is still open.
//   - [Catalog.Epoch] is a number that grows whenever something may have changed, so that plans can be kept under it. Read
//     it before Look: what Look then says belongs to that epoch or to a later one, never to an earlier one.
//   - [Catalog.Forget] is for a router that has run a statement that changes the catalogue itself.
//   - [Home] says which shard is the home shard.
//
// # What it notices
//
// While it is in use it looks every two seconds ([Config.Poll]) whether the home shard's catalogue is another one, whoever
// changed it: relations that come, go, are renamed, moved to another schema, get or lose rules or row security; any change
// of a column; what views show, and who owns them; functions, operators, casts, types, schemas, rewrite rules, policies, triggers, defaults, constraints,
// inheritance and partitions. Temporary relations do not count, and neither does what leaves the meaning of statements as it
// is: VACUUM, TRUNCATE, rows. The look costs 20 ms of the server's time with 1,000 tables of 20 columns, a default, a check and
// a foreign key each. Where it takes longer, looks are further apart, so that they take a hundredth of one core at most: a
// change is noticed within two seconds, or within a hundred times as long as a look takes. When nobody has asked for a minute, everything is dropped, the epoch grows and the looks end, so nothing old is found
// after a pause either. While the home shard cannot be reached, what is known is kept: other shards can still be used.
//
// Not noticed are changes of a function's membership in an extension, of objects that PostgreSQL brought, and of collations.
//
// # What it follows
//
// [plan.Relation.ReachesDeclared] follows views, rules, row-security policies, inheritance and partitions, downwards and
// upwards, indexes, the functions and operators that views, rules and policies call, and the casts that users made for the
// types of its columns. [plan.Relation.WritesRun] follows, besides, what runs when rows are written: triggers, defaults, CHECK and
// EXCLUDE constraints, the checks of domains, and foreign keys that change the rows that refer to it. A table is reached if
// the map declares it as sharded or as a reference table, or if it lives on another shard than the home shard. A function
// whose body is text in a language that PostgreSQL does not look into reaches what nobody knows: unless it is immutable or the
// router's own, it counts as soon as the map has a sharded table. Declared tables are not looked behind: what they are made of was
// checked when they were declared.
//
// An operator or a type that a statement names stands for functions, which Look returns like those that are called by name:
// those that compute the operator; the input function of the type, those in its checks and casts, and those of its parts. With
// a function of users come those that run when it is called: in the defaults of its arguments, in casts and checks of users'
// types that it takes and returns.
//
// Not followed are materialised views, which have their rows themselves, foreign tables, operator classes, the functions behind a disabled trigger, and what PostgreSQL brought.
//
// # What it does not do
//
// It resolves a name as a role that may use every schema of the search path; a schema that the role may not use must
// not be in the path that it is given. Look sees what is committed; what an open transaction has changed, LookOn sees on that transaction's connection.
// Temporary relations belong to sessions, and schemas that the map places on other shards are not on the home shard. It plans
// nothing (package plan) and changes nothing.
//
// All methods are safe for concurrent use. What Look returns is shared and must not be changed. Start reading at catalog.go,
// then query.go and watch.go.
package catalog
