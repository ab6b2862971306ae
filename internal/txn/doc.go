// Package txn finishes what transactions over several shards leave behind, and says whether snapshots of several shards fit together.
//
// # What it does
//
//   - [Name] is the name under which such a transaction is prepared. It says where the decision is and who can make it.
//   - [Recovery] looks for prepared transactions on all shards and ends each as its decision says, and deletes what was noted of
//     transactions when nobody can need it any more. The leader of the control plane runs it.
//   - [Look] is one look at what is in doubt, for people; [Resolve] is how a person decides where recovery must not.
//   - [Opening] checks that the snapshots of a consistent read see all of every transaction, or nothing of it.
//
// # What it does not do
//
// The commit itself, step by step, is package session's, on the client's own backends, and so is opening snapshots. The tables and functions on the
// shards are made by package shard.
//
// # Guarantees
//
// A prepared transaction is committed if and only if its decision row says so. It is rolled back only after an abort row is durable on the
// shard that decides. What cannot be known is left alone and shown. Nothing here trusts a clock, except for how long to wait before being helpful, or
// depends on who else is at work: several may run all of this side by side.
//
// Functions take connections and use them alone until they return. Start reading at DESIGN.md, then name.go and recover.go.
package txn
