package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/bench/rig"
)

// quantiles are those of one round.
type quantiles struct{ p50, p99, p999 time.Duration }

// latency sends a fixed rate of statements to the proxies in turn, and prints how long they took.
func (l *lab) latency(ctx context.Context) error {
	targets := slices.DeleteFunc(slices.Clone(l.targets), func(t *target) bool { return base(t.name) == "stub" })
	if len(targets) == 0 {
		return nil
	}
	rate, err := l.latencyRate(ctx, targets)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "latency at %d statements a second\n", rate)
	measured := map[string][]quantiles{}
	for round := range l.options.rounds {
		for i := range targets {
			t := targets[(i+round)%len(targets)]
			q, err := l.openLoop(ctx, t, rate)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				fmt.Fprintf(os.Stderr, "  %s: %v\n", t.name, err)
				continue
			}
			measured[t.name] = append(measured[t.name], q)
		}
	}
	fmt.Printf("\nLatency in ms from the intended time of sending; %d statements a second over %d connections, medians of %d rounds\n", rate, l.options.connections, l.options.rounds)
	rig.PrintTable(os.Stdout, latencyTable(targets, measured))
	return nil
}

func latencyTable(targets []*target, measured map[string][]quantiles) [][]string {
	rows := [][]string{{"target", "p50", "p99", "p99.9", "p50/relay", "p99/relay", "p99.9/relay"}}
	of := func(name string) []float64 {
		var values []float64
		for _, pick := range []func(quantiles) float64{
			func(q quantiles) float64 { return milliseconds(q.p50) },
			func(q quantiles) float64 { return milliseconds(q.p99) },
			func(q quantiles) float64 { return milliseconds(q.p999) },
		} {
			values = append(values, medianOf(measured[name], pick))
		}
		return values
	}
	relay := of("relay")
	for _, t := range targets {
		row := []string{t.name}
		values := of(t.name)
		for _, value := range values {
			row = append(row, rig.Number(value, "%.3f"))
		}
		for i, value := range values {
			row = append(row, rig.Ratio(value, relay[i]))
		}
		rows = append(rows, row)
	}
	return rows
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// latencyRate is half of what pgbouncer can do, or what stands first in its place, so that every target can keep up.
func (l *lab) latencyRate(ctx context.Context, targets []*target) (int, error) {
	if l.options.rate > 0 {
		return l.options.rate, nil
	}
	yardstick := targets[0]
	for _, t := range targets {
		if t.name == "pgbouncer" {
			yardstick = t
		}
	}
	w := workload{"select", "simple", l.options.connections}
	if l.results.rate(w, yardstick.name) == 0 {
		s, err := l.measure(ctx, yardstick, w)
		if err != nil {
			return 0, fmt.Errorf("find out what %s can do: %w", yardstick.name, err)
		}
		l.results.add(w, yardstick.name, s)
	}
	return max(1, int(l.results.rate(w, yardstick.name)/2)), nil
}

// openLoop sends statements when they are due, whether or not the earlier ones have been answered. With all connections
// busy the next statement waits, and its waiting counts.
func (l *lab) openLoop(ctx context.Context, t *target, rate int) (quantiles, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	connections, err := connectAll(ctx, t, l.options.connections)
	if err != nil {
		return quantiles{}, err
	}
	stop := context.AfterFunc(ctx, func() { hangUp(connections) })
	defer stop()
	idle := make(chan *connection, len(connections))
	var readers sync.WaitGroup
	for _, c := range connections {
		idle <- c
		readers.Go(func() {
			if err := c.readAnswers(idle); err != nil {
				cancel(err)
			}
		})
	}
	err = send(ctx, idle, rate, l.options.length, l.options.scale)
	for range connections { // all that was sent has been answered when all are idle
		if err == nil {
			_, err = take(ctx, idle)
		}
	}
	hangUp(connections)
	readers.Wait()
	if err != nil {
		return quantiles{}, err
	}
	return quantilesOf(connections), nil
}

func connectAll(ctx context.Context, t *target, count int) ([]*connection, error) {
	var all []*connection
	for range count {
		c, err := connect(ctx, t)
		if err != nil {
			hangUp(all)
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func hangUp(connections []*connection) {
	for _, c := range connections {
		_ = c.net.Close()
	}
}

// connection is one of the load generator's. It belongs to the sender while it is idle and to its reader otherwise.
type connection struct {
	net     net.Conn
	due     time.Time // when the statement under way should have been sent
	counts  bool      // whether it is measured
	took    []time.Duration
	message []byte
}

func connect(ctx context.Context, t *target) (*connection, error) {
	config, err := t.config("simple")
	if err != nil {
		return nil, err
	}
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", t.name, err)
	}
	hijacked, err := conn.Hijack()
	if err != nil {
		return nil, fmt.Errorf("take over the connection: %w", err)
	}
	return &connection{net: hijacked.Conn}, nil
}

// warmUp is how long statements are sent before they count: a server's process reads its catalogue at its first ones.
const warmUp = 500 * time.Millisecond

// send sends statements at the rate for as long as it is told, after the warm-up.
func send(ctx context.Context, idle <-chan *connection, rate int, length time.Duration, scale int) error {
	runtime.LockOSThread() // whose own sleep is finer than the runtime's timers
	defer runtime.UnlockOSThread()
	begin := time.Now()
	total := int(float64(rate) * (warmUp + length).Seconds())
	for i := range total {
		due := begin.Add(time.Duration(float64(i) / float64(rate) * float64(time.Second)))
		sleepUntil(due)
		c, err := take(ctx, idle)
		if err != nil {
			return err
		}
		c.due, c.counts = due, due.Sub(begin) >= warmUp
		if err := c.query(1 + rand.IntN(100_000*scale)); err != nil {
			return err
		}
	}
	return nil
}

func take(ctx context.Context, idle <-chan *connection) (*connection, error) {
	select {
	case c := <-idle:
		return c, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *connection) query(aid int) error {
	c.message = append(c.message[:0], 'Q', 0, 0, 0, 0)
	c.message = fmt.Appendf(c.message, "SELECT abalance FROM pgbench_accounts WHERE aid = %d;\x00", aid)
	binary.BigEndian.PutUint32(c.message[1:], uint32(len(c.message)-1))
	if _, err := c.net.Write(c.message); err != nil {
		return fmt.Errorf("send a statement: %w", err)
	}
	return nil
}

// readAnswers notes when each statement was answered, until the connection is closed.
func (c *connection) readAnswers(idle chan<- *connection) error {
	reader := bufio.NewReader(c.net)
	for {
		kind, err := skipMessage(reader)
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("read an answer: %w", err)
		case kind == 'E':
			return errors.New("a statement failed")
		case kind == 'Z':
			if c.counts {
				c.took = append(c.took, time.Since(c.due))
			}
			idle <- c
		}
	}
}

func skipMessage(reader *bufio.Reader) (kind byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(reader, head[:]); err != nil {
		return 0, err
	}
	_, err = reader.Discard(int(binary.BigEndian.Uint32(head[1:])) - 4)
	return head[0], err
}

func quantilesOf(connections []*connection) quantiles {
	var all []time.Duration
	for _, c := range connections {
		all = append(all, c.took...)
	}
	slices.Sort(all)
	return quantiles{quantile(all, 0.5), quantile(all, 0.99), quantile(all, 0.999)}
}

// quantile is the value that the share of the sorted values does not exceed; 0 of none.
func quantile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}
