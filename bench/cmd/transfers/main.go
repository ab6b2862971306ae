// Command transfers measures transactions over several shards: money goes from one account to another, and both are on one shard or on two.
//
// It starts all of it itself, on free ports and in a temporary folder, and ends it: one plain PostgreSQL behind a relay that only copies
// bytes (package relay), and a router of this tree before several shards, all servers alike and flushing their commits to disk.
// There are two parts:
//
//   - transfers: how many a second on one server, through the router on one shard, on two, on two shards without a router, the client itself
//     committing in two phases; and what one costs in processor time and flushes;
//   - reads: what it costs to read two shards as of one moment (SET cleave.consistent_reads = on), in time for those who read and in
//     throughput for those who write. A router that has no such setting is measured without it.
//
// Sides take turns within a round, and medians of the rounds count, so that a disturbance of the machine hits everybody alike; how far rounds differ
// is shown beside. Only ratios are meant to be compared with those of another machine. At the end no money may be missing.
// Start reading at run; the sides are in sides.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/cleavedb/cleave/bench/rig"
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "transfers:", err)
		}
		os.Exit(1)
	}
}

// command runs the program, or the child that the program starts of itself.
func command(arguments []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if len(arguments) == 3 && arguments[0] == rig.ChildFlag {
		return rig.RunChild(ctx, arguments[1], arguments[2])
	}
	o, err := parseOptions(arguments)
	if err != nil {
		return err
	}
	return run(ctx, o)
}

// run measures all that is asked for, part after part.
func run(ctx context.Context, o options) (err error) {
	l, err := openLab(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.closers.Close()) }()
	if slices.Contains(o.parts, "transfers") {
		if err := l.transfers(ctx); err != nil {
			return err
		}
	}
	if slices.Contains(o.parts, "reads") {
		if err := l.reads(ctx); err != nil {
			return err
		}
	}
	return l.count(ctx)
}
