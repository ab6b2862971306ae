// Package reshard carries rows from one shard to another while everybody writes: moves, and what they consist of. DESIGN.md says what must hold, whoever dies when, and has a line for each crash.
//
// A move is a job in etcd ([Move]), which anybody may ask for and the leader alone carries out, one phase after the other: it is announced in the shard map, its rows are copied from a snapshot,
// native logical replication catches up, both sides are compared, and then the owner changes while routers hold statements back for some milliseconds. Until it is cleaned up it can be rolled back.
// Tables that are on one shard alone move as a whole in the same phases (whole.go), with a switch of their own, since nobody sees their copy.
// Each step looks first at what is there, so that whoever takes over after a crash goes on.
//
// It does not decide what should move where, which is package rebalance's business, and does not serve clients: routers follow the map by themselves (package session).
//
// A [Mover] is run by the leader, and is safe for concurrent use. Start reading at DESIGN.md, move.go and mover.go; the switch is in switch.go.
package reshard
