// Package bench compares Cleave's libraries with others that do the same job, in one run on one machine.
//
// It is a module of its own, so that the peers are no dependency of Cleave. Benchmarks are named by parts of the form
// key=value; the part impl= says whose code ran, and ours begins with cleave. Command ratios runs them, pass after pass,
// and prints how we stand to each peer. Command wire does the same for the router, beside pgbouncer and a bare relay; bulk
// and transfers for many rows and for transactions over several shards, beside one plain server; moves for what it takes to
// move rows, beside a pipe. Package rig is what they share. What was measured, and what it does and does not show, stands in docs/benchmarks.md.
package bench
