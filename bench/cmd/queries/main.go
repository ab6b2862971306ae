// Command queries measures SELECTs over several shards: through the router on four of them, beside the same on one plain PostgreSQL, by
// turns in one run on one machine.
//
// It starts all of it itself, on free ports and in a temporary folder, and ends it. The router is a process of its own. There are these parts:
//
//   - events: aggregates, groups and the first rows of a table with a million rows, sharded by its user;
//   - lookup: one row by an indexed column that is not the key, which all shards are asked for, beside one by the key, both through the router;
//   - stream: all rows in the order of an indexed column, and the router's memory meanwhile;
//   - join: 100,000 rows with 10,000 of another keyspace, on columns that are no keys;
//   - tiny: two tables of some rows in two keyspaces are joined. What it takes beyond getting the rows is what it costs to have a server finish;
//   - tpch: the 22 queries of TPC-H, on tables in three keyspaces.
//
// Sides take turns within a round, and medians of the rounds' ratios count; how far rounds differ is shown beside. Before anything is measured,
// both sides have to give the same answer. Start reading at run; cases.go says what is measured.
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
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "queries:", err)
		}
		os.Exit(1)
	}
}

func command(arguments []string) error {
	o, err := parseOptions(arguments)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return run(ctx, o)
}

// run measures all that is asked for.
func run(ctx context.Context, o options) (err error) {
	l, err := openLab(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.closers.Close()) }()
	return l.measure(ctx)
}

// measure measures the parts.
func (l *lab) measure(ctx context.Context) error {
	for _, part := range []struct {
		name    string
		measure func(context.Context) error
	}{
		{"events", l.measureEvents}, {"lookup", l.measureLookup}, {"stream", l.measureStream}, {"join", l.measureJoin}, {"tiny", l.measureTiny}, {"tpch", l.measureTPCH},
	} {
		if !slices.Contains(l.options.parts, part.name) {
			continue
		}
		if err := part.measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}
