// Package rig is what the benchmark programs share: it starts and ends the processes that they measure, makes a cluster with a router of this
// tree before servers that are there, reads what processes have used, and prints tables of medians and ratios.
//
// It measures nothing itself, and chooses no workload: the programs under cmd do. It makes no PostgreSQL servers either, package localpg does.
// Whatever was started ends with its Stop or Close, or with the program, where the system can promise that. Nothing here is safe for
// concurrent use, but for what only reads. Start reading at router.go.
package rig
