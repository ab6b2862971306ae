package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/bench/rig"
)

// idle opens clients that do nothing, and prints what each of them costs the proxy. The relay is left out: its
// clients have a server connection each, which no server has so many of.
func (l *lab) idle(ctx context.Context) error {
	count := l.options.idleClients
	rows := [][]string{{"target", "before MB", "with them MB", "kB a client"}}
	for _, t := range l.targets {
		if t.pid == 0 || t.name != "pgbouncer" && t.name != "router" {
			continue
		}
		fmt.Fprintf(os.Stderr, "%d idle clients of %s\n", count, t.name)
		before, after, err := memoryOfIdle(ctx, t, count)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "  %s: %v\n", t.name, err)
			rows = append(rows, []string{t.name, rig.None, rig.None, rig.None})
			continue
		}
		rows = append(rows, []string{
			t.name, fmt.Sprintf("%.1f", float64(before)/(1<<20)), fmt.Sprintf("%.1f", float64(after)/(1<<20)), fmt.Sprintf("%.1f", float64(after-before)/1024/float64(count)),
		})
	}
	if len(rows) > 1 {
		fmt.Printf("\nMemory with %d idle clients\n", count)
		rig.PrintTable(os.Stdout, rows)
	}
	return nil
}

// settling is how long the clients stay before the memory is read: for what the start of a client needed for a moment.
const settling = 3 * time.Second

func memoryOfIdle(ctx context.Context, t *target, count int) (before, after int64, err error) {
	if before, err = rig.ResidentMemory(t.pid); err != nil {
		return 0, 0, err
	}
	clients, err := connectIdle(ctx, t, count)
	defer func() {
		for _, c := range clients {
			_ = c.Close()
		}
	}()
	if err != nil {
		return 0, 0, err
	}
	select {
	case <-ctx.Done():
		return 0, 0, context.Cause(ctx)
	case <-time.After(settling):
	}
	after, err = rig.ResidentMemory(t.pid)
	return before, after, err
}

// connectIdle connects clients, some at a time, and returns those that it could.
func connectIdle(ctx context.Context, t *target, count int) ([]net.Conn, error) {
	const atATime = 32
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	config, err := t.config("simple")
	if err != nil {
		return nil, err
	}
	parts := make([][]net.Conn, atATime)
	var workers sync.WaitGroup
	for worker := range atATime {
		workers.Go(func() {
			for i := worker; i < count && ctx.Err() == nil; i += atATime {
				conn, err := connectOnce(ctx, config)
				if err != nil {
					cancel(fmt.Errorf("connect client %d: %w", i+1, err))
					return
				}
				parts[worker] = append(parts[worker], conn)
			}
		})
	}
	workers.Wait()
	return slices.Concat(parts...), context.Cause(ctx)
}

func connectOnce(ctx context.Context, config *pgconn.Config) (net.Conn, error) {
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	hijacked, err := conn.Hijack()
	if err != nil {
		return nil, err
	}
	return hijacked.Conn, nil
}
