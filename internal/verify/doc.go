// Package verify looks whether every row of the sharded tables is on a shard that may have it, and brings those home that are not.
//
// A row may be on the shard that owns its key, and on one that has a copy for a move. Any other is a stray: somebody wrote past the routers with triggers switched off, a shard was restored from an old
// backup, or there is a bug. [Run] goes through the tables shard by shard, with a statement for some pages at a time, and compares what it finds with what the owner has.
//
// It does not compare both sides of a move (package reshard does) nor copies of reference tables (package control). It guarantees that what is reported as a stray was one by the newest map while
// it was looked at; one that is written at that very moment may be missed until the next time. A repair never changes a row that counts: DESIGN.md has the steps and what a crash leaves of each.
//
// Several may run at once, in one process or in several; of repairs one on each shard.
//
// Start reading at DESIGN.md, then verify.go, look.go and repair.go.
package verify
