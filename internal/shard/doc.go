// Package shard is one shard's PostgreSQL as the control plane sees it: how to reach it, whether it can be used, and what
// it remembers of the cluster that it belongs to.
//
// # What it does
//
//   - [Access.Connect] logs in to a shard, and says in plain words why it could not; [Access.Keep] has [Connections] for those who ask
//     often.
//   - [Inspect] looks at a server; [Check] says what stands in the way of making it a shard; [Compare] says in which ways
//     the shards of a cluster differ so that answers could too.
//   - [Install] creates and upgrades the schema cleave, [Claim] notes there to which cluster and shard the database
//     belongs, [Release] drops it all again.
//   - [Record] keeps in that schema what the shard owns according to the map, [Read] reads it back, [Verify] compares it
//     with a map, and [Rebuild] puts the map together again from the records of all shards. [Prepare] splits a map once
//     for all of its shards.
//   - Guards stand on the tables and refuse rows that the shard does not own: Record makes them, [Plan.CheckGuards] looks
//     at them, [Plan.Mend] mends them. [HelloSQL] is how a router introduces itself, so that they let it write.
//   - While rows move between shards, [Fence] ends the backends of routers whose map is too old, [AwaitWriters] waits for who writes
//     past the routers, and [Plan.MakeOwnedViews] makes views of what the shard owns.
//   - [Describe] reads the definition of a table with all that it is made of, and [Definitions] makes tables on another shard, each
//     [Part] of the rows with its condition. [Note] is what the home shard keeps of a declaration while it is under way.
//   - [Comparison] compares the rows of a table on several shards by sums, and [CopyRepair] makes one shard's equal to another's.
//   - [RolloutOnShard] applies a change of the schema to this shard alone, and takes it back; the shard notes which it was.
//   - [Ping] is the cheap look of a monitor.
//
// # What it does not do
//
// It does not know etcd and decides nothing: package control does both, in the order that DESIGN.md gives. It never
// changes a map, which package topology defines. Of the user's tables it touches those that are declared, and of their rows
// it deletes what went to another shard, and repairs copies of reference tables. Statements of clients do not pass here.
//
// # Guarantees
//
//   - A record never goes back to an older version of the map, whoever writes side by side: see [NewerError].
//   - Record, Claim and Release do all of their work or none, and doing them again does no harm.
//   - What another cluster has claimed is left alone: see [ClaimedError].
//   - Nothing is dropped that Install did not make: see [ForeignObjectsError].
//   - What a shard has recorded is what its tables are guarded by: both change in one transaction.
//   - What Rebuild returns follows from the records, unless it was told to believe more: see [RebuildOptions].
//   - No password is part of an error, and nothing but [Access] and the shard's own description says how to log in: PG*
//     variables, password files and service files have no say.
//
// Functions take a connection and use it alone until they return; with connections of their own all of them are safe for
// concurrent use, in one process or in several. A Plan never changes. Access, Report and Recorded are plain values.
//
// Start reading at DESIGN.md, then record.go, guard.go and rebuild.go.
package shard
