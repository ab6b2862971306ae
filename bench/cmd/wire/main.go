// Command wire measures what stands between a client and PostgreSQL: the router beside pgbouncer, beside a relay that
// only copies bytes, and beside no proxy at all, in one run on one machine.
//
// It starts all of them itself, on free ports, with a PostgreSQL of its own, and ends them. There are three parts:
//
//   - throughput: pgbench at several numbers of clients, in several modes, and what a statement costs each proxy in
//     processor time; also before a stub that answers at once, so that the proxy is what limits (package stub);
//   - latency: a fixed rate of statements, each timed from when it should have been sent, so that a proxy that stalls
//     cannot hide those that it kept waiting;
//   - idle: the memory of clients that are connected and do nothing.
//
// Targets take turns within a round and the medians of the rounds count, so that a disturbance of the machine hits
// everybody alike. Only ratios are meant to be compared with those of another machine. What a target cannot do is said on
// the error output and shown as a dash. Start reading at run; the targets are in lab.go.
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
			fmt.Fprintln(os.Stderr, "wire:", err)
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
	if err := raiseFileLimit(); err != nil {
		return err
	}
	l, err := openLab(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.closers.Close()) }()
	if slices.Contains(o.parts, "throughput") {
		if err := l.throughput(ctx); err != nil {
			return err
		}
	}
	if slices.Contains(o.parts, "latency") {
		if err := l.latency(ctx); err != nil {
			return err
		}
	}
	if slices.Contains(o.parts, "idle") {
		return l.idle(ctx)
	}
	return nil
}

// raiseFileLimit allows as many connections as the system does, here and in what is started from here.
func raiseFileLimit() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("ask for the limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise the limit of open files: %w", err)
	}
	return nil
}
