// Package shardmap holds data in one process, split into shards so that many
// goroutines can work on it at once.
//
// It has three parts, and a fourth that keeps them honest:
//
//   - [Map] is a concurrent map for values in memory. Reads, and writes to a
//     key that is already there, take no lock; adding or removing a key takes
//     the lock of one shard.
//   - [Actors] gives each shard to one goroutine with a bounded mailbox. It is
//     for values whose operations do I/O, where a lock would be held too long.
//   - [Routed] keys and [Map.Across] keep work on one shard from straying into
//     another: a key is accepted only by the shard it was routed to, and an
//     operation over several shards is one visible call.
//   - [Shard] and [Key] do the same at compile time, where the shards are fixed
//     in the code.
//
// # What it does not do
//
// It knows nothing of servers, networks or PostgreSQL: which server owns a key
// is the business of package placement. It has no expiry, no eviction and no
// persistence. It orders nothing: a walk over a [Map] is in no useful order.
//
// # Guarantees
//
// Every operation on one key of a [Map] is linearizable: it happens at one
// moment between its call and its return, and all goroutines agree on the order
// of those moments. [Map.Across] is atomic over all the keys it names, for
// every observer. [Map.Range], [Map.Len] and [Map.Clear] go shard by shard and
// are not atomic over the whole map. A callback that panics leaves no lock held
// and no half-done change. Memory follows the number of entries: tables shrink
// after deletions and nothing is left behind for a deleted key.
//
// [Actors] runs the functions of one shard one at a time, in the order in which
// they entered its mailbox, and never runs a function after its caller has been
// told that it did not run.
//
// # Concurrent use
//
// [Map], [ShardView], [Shard] and [Actors] are safe for concurrent use.
// [Tx], [Cell] and [State] belong to the callback that was given them.
//
// # Where to start reading
//
// The examples show each part at work. In the source, map.go is the list of
// operations, entry.go the protocol that lets a value be overwritten without a
// lock, table.go the hash table, and DESIGN.md says why all of it is correct.
package shardmap
