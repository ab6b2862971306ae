// Package rebalance plans which ranges and pins of keyspaces go from which shard to which.
//
// [Balance] brings every shard within a tolerance of its share by weight, empties shards that are draining and moves what a
// rule does not allow where it is. [Drain] empties one shard and does no more. [AutoSplit] and [AutoMerge] propose which
// ranges to cut and which to join. All are functions of their arguments: a shard map, what was measured, and options.
//
// It moves nothing and measures nothing. A [Plan] says what to do; the caller asks shards for sizes, shows the plan, makes the
// splits that it names and carries out the moves. It does not look at single tables, which no range places.
//
// # How it balances
//
// What counts is bytes, rows or load ([Measure]), summed over all keyspaces that are looked at: a shard's share is what all of them together have,
// by weight. To balance keyspaces each by itself, plan them one by one. Shards that must not be touched are left out of the sum, so that they cause no move.
//
// First what must move is placed: what breaks a rule, then what is on draining shards. Then shards above their tolerance give until they are
// within, to those that lack most, and shards still below are filled from those that have most. Both stop at the edge of the tolerance, so what moves is the
// least that brings everybody there, but for the size of one range per shard. Where there is a choice, few pairs of shards exchange much: a move costs more than its bytes. A range that does not fit may be cut. Where ranges are too
// large and must not be cut, moves are made only while each lessens the worst of both shards by the tolerance or more.
//
// Any algorithm of package placement may decide about the ranges of the hash instead. It sees the space, not the sizes, and cuts ranges
// where its own begin and end.
//
// # What it guarantees
//
//   - The same arguments give the same plan, with the same ID, on every platform.
//   - Nothing goes to a shard that is not active, that the caller has excluded or that a rule forbids; nothing leaves one that is excluded, read-only or in maintenance.
//   - Ranges and pins with a move under way stay as they are, and count where they are going.
//   - Limits are kept, even if a draining shard is not empty then: a warning says so.
//
// Nothing here has a state: everything may be used from any number of goroutines.
//
// Start reading at plan.go, then planner.go and greedy.go.
package rebalance
