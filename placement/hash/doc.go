// Package hash has hash functions for placing keys, side by side, with evidence about each.
//
// A hash keyspace of Cleave uses PostgreSQL's own functions (package placement/key), because then a server can compute
// what the router computed. The others are here to compare with, and for programs that bring their own: [Functions] lists
// them, [Named] finds one. [Avalanche] and [Uniformity] measure how well a function spreads keys, and [Function.Attack]
// says what it means if others choose the keys.
//
// All of it is stateless and safe for concurrent use. A 32-bit function returns its value twice, in both halves: some
// placements look at the upper bits first, some at the lower.
package hash
