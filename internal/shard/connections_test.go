package shard

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/topology"
)

// keep returns connections to the server, and the shard that it is.
func keep(t *testing.T, server *localpg.Server, idleFor time.Duration) (*Connections, *topology.Shard) {
	t.Helper()
	m := must[*topology.Map](t)(topology.New(clusterID))
	m = must[*topology.Map](t)(m.Next(topology.AddShard(specOf("s1", server))))
	c := Access{}.Keep(2, idleFor)
	t.Cleanup(c.Close)
	return c, m.Home()
}

// backend asks which backend answers.
func backend(ctx context.Context, c *Connections, to *topology.Shard) (pid int, err error) {
	err = c.Use(ctx, to, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid) })
	return pid, err
}

func TestConnectionsAreKept(t *testing.T) {
	c, home := keep(t, pgtest.Start(t), time.Hour)
	var mu sync.Mutex
	seen := map[int]bool{}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			pid, err := backend(t.Context(), c, home)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			seen[pid] = true
		})
	}
	all.Wait()
	if len(seen) > 2 {
		t.Errorf("two connections were %d backends", len(seen))
	}
}

// TestADeadConnectionIsReplaced: whoever asks does not notice.
func TestADeadConnectionIsReplaced(t *testing.T) {
	server := pgtest.Start(t)
	c, home := keep(t, server, time.Hour)
	other := connect(t, specOf("s1", server))
	last := 0
	for range 3 {
		pid, err := backend(t.Context(), c, home)
		if err != nil || pid == last {
			t.Fatalf("backend %d answered after %d: %v", pid, last, err)
		}
		if !one[bool](t, other, "SELECT pg_terminate_backend($1, 10000)", pid) {
			t.Fatal("it would not die")
		}
		last = pid
	}
}

// TestConnectionsThatNobodyUsesAreClosed, and made again when they are needed, until all is closed.
func TestConnectionsThatNobodyUsesAreClosed(t *testing.T) {
	server := pgtest.Start(t)
	c, home := keep(t, server, 10*time.Millisecond)
	other := connect(t, specOf("s1", server))
	for range 2 {
		pid, err := backend(t.Context(), c, home)
		if err != nil {
			t.Fatal(err)
		}
		for one[bool](t, other, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", pid) {
			time.Sleep(5 * time.Millisecond)
		}
	}
	c.Close()
	c.Close()
	if _, err := backend(t.Context(), c, home); !errors.Is(err, ErrClosed) {
		t.Errorf("when all is closed it says %v", err)
	}
}

// TestAConnectionInUseWhenAllIsClosed is closed when it is given back, and waited for.
func TestAConnectionInUseWhenAllIsClosed(t *testing.T) {
	c, home := keep(t, pgtest.Start(t), time.Hour)
	var used *pgx.Conn
	closed := make(chan struct{})
	err := c.Use(t.Context(), home, func(conn *pgx.Conn) error {
		used = conn
		go func() {
			c.Close()
			close(closed)
		}()
		for stopped := false; !stopped; time.Sleep(time.Millisecond) {
			c.mu.Lock()
			stopped = c.closed
			c.mu.Unlock()
		}
		return conn.Ping(t.Context())
	})
	<-closed
	if err != nil || !used.IsClosed() {
		t.Errorf("%v; closed: %v", err, used.IsClosed())
	}
}

// TestAShardThatIsAwayIsTriedNowAndThen: not by each who asks. What they are told is the same error, not one like it.
func TestAShardThatIsAwayIsTriedNowAndThen(t *testing.T) {
	server := pgtest.Start(t)
	c, home := keep(t, server, time.Hour)
	if err := server.Crash(); err != nil {
		t.Fatal(err)
	}
	failedAgo := func(d time.Duration) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.failedAt = time.Now().Add(-d)
	}
	_, first := backend(t.Context(), c, home)
	for range 10 {
		failedAgo(0)                                                             // however slow the machine is
		if _, err := backend(t.Context(), c, home); err == nil || err != first { //nolint:errorlint // the very same
			t.Errorf("first %v, then %v", first, err)
		}
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	failedAgo(2 * retryAfter)
	if _, err := backend(t.Context(), c, home); err != nil {
		t.Error(err)
	}
}

// TestWhoHasNoTimeSaysNothingOfTheShard: the next one tries.
func TestWhoHasNoTimeSaysNothingOfTheShard(t *testing.T) {
	c, home := keep(t, pgtest.Start(t), time.Hour)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	for _, over := range []context.Context{cancelled, late} {
		if _, _, err := c.take(over, home); err == nil {
			t.Error("it connected")
		}
		if _, err := backend(t.Context(), c, home); err != nil {
			t.Error(err)
		}
		c.idle[0].address = "elsewhere" // so that the next one has to connect
	}
}
