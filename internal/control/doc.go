// Package control changes the cluster and keeps it in order: it adds, changes and removes shards, creates keyspaces, declares
// tables, imports and rebuilds the map, looks at the shards' health, and runs the loops of which there may be one per cluster.
//
// [Cluster] has the operations; each checks first, then changes the map by compare-and-swap in etcd, then tells the shards.
// What etcd has is the map, what a shard has recorded follows it, and the leader's loop ([Cluster.Run]) goes on telling until
// every shard has heard. Tables alone, with their rows, are prepared on all shards before the map says what they are, and committed
// after. internal/shard/DESIGN.md has the protocols and their crash tables. Roll-outs change the schema from shard to shard; what a shard
// has of one it notes itself, and DESIGN.md has the rest. Copies of reference tables are compared with the home shard's, and repaired from it. Whether
// rows are where they belong is asked of package verify.
//
// It does not route statements, does not speak HTTP (package admin does) and does not move ranges of keys (package reshard will). It
// holds no state that matters: any process can run any operation, and one that dies in the middle leaves a map that is
// valid, and shards that are told again. All of it is safe for concurrent use.
//
// Start reading at cluster.go, then shards.go, declare.go, declare_resolve.go and reconcile.go; for roll-outs at DESIGN.md and rollout.go, for copies there and at copies.go.
package control
