package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cleavedb/cleave/bench/rig"
)

// measureStream measures all rows of the table in order, and what the router keeps of them in its memory.
func (l *lab) measureStream(ctx context.Context) error {
	if err := l.makeEvents(ctx); err != nil {
		return err
	}
	clients, err := l.both(ctx)
	if err != nil {
		return err
	}
	const sql = "SELECT * FROM events ORDER BY id"
	all := func(c *client) func() error {
		return func() error {
			rows, err := c.query(sql)
			if err == nil && rows != l.options.rows {
				err = fmt.Errorf("%d rows of %d", rows, l.options.rows)
			}
			return err
		}
	}
	f, err := l.compare(ctx, comparison{name: "all rows in order", inverted: 0.6, sides: [2]func() error{all(clients[ours]), all(clients[theirs])}})
	if err != nil {
		return err
	}
	l.print(l.out, fmt.Sprintf("%d events, throughput", l.options.rows), "router / plain", f)
	return l.measureMemory(ctx, all)
}

// measureMemory has a router that has done nothing yet pass on all rows: one that has had much to do keeps some of what it needed for that.
func (l *lab) measureMemory(ctx context.Context, all func(*client) func() error) (err error) {
	router, err := l.startRouter(ctx, "fresh")
	if err != nil {
		return err
	}
	c, err := connect(ctx, url(router.Address), []string{"SELECT 1"})
	if err != nil {
		return err
	}
	defer c.close()
	const settling = 2 * time.Second // what it needed to start is given back
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(settling):
	}
	idle, err := rig.ResidentMemory(router.PID())
	if err != nil {
		return err
	}
	most, stop := watchMemory(router.PID())
	err = all(c)()
	if err = errors.Join(err, stop()); err != nil {
		return err
	}
	const megabyte, limit = 1 << 20, 64 << 20
	more := max(*most-idle, 0)
	fmt.Fprintf(l.out, "  memory of a fresh router: %.1f MiB idle, %.1f MiB more while it streams, %s\n", float64(idle)/megabyte, float64(more)/megabyte, verdict("< 64 MiB", more < limit))
	return nil
}

// watchMemory looks at a process's memory all the time until it is stopped; then most is what it has had at most.
func watchMemory(pid int) (most *int64, stop func() error) {
	most = new(int64)
	var failure error
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			now, err := rig.ResidentMemory(pid)
			if err != nil {
				failure = err
				return
			}
			*most = max(*most, now)
			select {
			case <-ended:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	return most, func() error {
		close(ended)
		watching.Wait()
		return failure
	}
}
