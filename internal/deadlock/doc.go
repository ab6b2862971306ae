// Package deadlock finds circles of waits that go over several shards, which no PostgreSQL server can see, and has them broken.
//
// [Watchdog] is the router's part: it knows which sessions have backends on several shards, asks the shards which of these wait for a lock,
// tells etcd of those that may be in a circle, and carries out verdicts. [Judge] is the leader's: it asks the shards who waits for whom, and names
// a victim for every circle that was there all the time between two looks. graph.go has what a circle is; it asks nobody.
//
// It does not know how a session works (package session lists them and cancels), nor how records are stored (package store), nor who leads
// (package control). It takes no part in what is on one shard alone: that is PostgreSQL's.
//
// What it guarantees: nobody is made a victim unless there was a circle. DESIGN.md has the argument, and what happens when somebody fails. A
// [Watchdog] and a [Judge] are run by one goroutine each; nothing else here has a state.
//
// Start reading at DESIGN.md, then record.go, graph.go, judge.go and watchdog.go.
package deadlock
