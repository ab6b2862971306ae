// Package moves proves that rows move between shards without anybody noticing: over real routers, servers and an etcd, with writers of many kinds and an oracle that knows every write that was acknowledged.
//
// [Load] is the writers and the oracle; each writer has keys of its own, so that it knows what a row must be, and rows that no writer has are counted, summed up and updated over all shards all the while: what is there
// must be what was acknowledged, at every moment of a move. A write whose answer was lost may have happened or not, and nothing else. Faults and processes are those of package faults. What is left on servers after a move
// is looked for by [Leftovers].
//
// Functions that take a test must be called from its own goroutine, as they may end it. Methods of [Load] are for that goroutine too, unless they say otherwise.
package moves
