// Package placement decides which key lives on which shard.
//
// Everything ends as a [Map]: an immutable sorted list of half-open ranges of a 64-bit hash space, each with one owner,
// covering the space exactly once. Looking a hash up allocates nothing and takes a few nanoseconds whatever made the map.
//
// What makes and changes maps are the assignment algorithms behind [Algorithm]: ring, rendezvous, jump, modulo,
// Fibonacci, even slots, doubling, weighted and bounded variants, and a planner that reaches balance with the least
// possible movement. [New] builds one by name, [Algorithms] lists them. Each works in two ways: key by key through a
// [Placer], for caches, queues and worker pools, and on ranges, where it gives the map that a cluster would use.
// [Info] says of each how it does both.
//
// Keys come in as hashes, so the hash function is the caller's choice; package placement/key has PostgreSQL's own and
// package placement/hash has others with evidence about them. [NewLocator] ties a placer, its shards and a hash
// together for programs that just want to know where a string belongs.
//
// Keyspaces ordered by the raw key use [KeyMap], the same list over encoded keys; single keys that go elsewhere are
// [Pins]. [Measure], [Map.Diff] and [Compare] give the figures: balance, skew, entropy, and the share that moves,
// exactly where ranges allow it.
//
// The result depends on the arguments alone: the same shards, in the same order, give the same placement in every
// process, on every platform. All values are immutable and safe for concurrent use, except [Balancer], which keeps live
// loads and is safe for concurrent use too. The package opens no sockets and depends on nothing of Cleave but its own
// subpackages.
//
// Start reading at map.go, then algorithm.go.
package placement
