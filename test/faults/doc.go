// Package faults proves the crash tables of DESIGN.md in package txn over the real binary: routers, servers, an etcd and clients, all of them real processes
// and connections, of which one after the other is killed, stopped, cut off or held at the worst moment.
//
// # What is here
//
//   - [Cluster]: shards that are PostgreSQL servers of their own, one of them with a streaming replica; routers that are built with failpoints (package failpoint)
//     and started as 'cleave serve'; a proxy that can fail between the routers and each shard. The routers know the proxies' addresses alone.
//   - [Client]: a connection that comes back, to any router, and tells what became of each transaction.
//   - [Workload]: clients that transfer money, count together on all shards, write registers and append to lists, and write a history of it.
//   - [Nemesis]: faults by chance, from a seed.
//   - The oracles: what must hold when all is over, whatever happened. See [Workload.Check].
//
// Histories and their checkers are in package history, below this one, and the proxy in package proxy.
//
// # The tests
//
// TestCommitLines and TestLeaderLines have a case for each line of the crash tables: it arranges the line, and checks what the client heard and what recovery made of
// it. TestRandomFaults is some dozens of faults by chance. TestSoak is that for as long as one likes: CLEAVE_SOAK says how many crashes it has to
// come to ('make soak': 1000). TestImpatientClients and TestAStoppedRouterStopsNobody look at two things that need many clients and few faults.
//
// CLEAVE_FAULTS_SEED repeats the choices of a run, though not its timing. When a test fails, or CLEAVE_FAULTS_KEEP is set, the history, the faults and all
// logs are kept in a folder whose name is printed. CLEAVE_FAULTS_RACE builds routers with the race detector, which makes them half as fast.
//
// Functions that take a test must be called from its own goroutine, as they may end it. Methods are safe for concurrent use where they say so.
package faults
