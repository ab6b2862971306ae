package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/deadlock"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
)

// watchedWorld is a world with an etcd, a leader and the router's watchdog.
type watchedWorld struct {
	*world
	t      *testing.T
	broken atomic.Int64 // deadlocks across shards
	admins []*pgx.Conn  // one for each shard, past the router
}

// newWatchedWorld returns one with three shards that look for deadlocks soon.
func newWatchedWorld(t *testing.T) *watchedWorld {
	t.Helper()
	w := &watchedWorld{t: t, world: newWorld(t, worldConfig{noPlain: true, shards: 3, setUp: []string{"ALTER SYSTEM SET deadlock_timeout = '200ms'", "SELECT pg_reload_conf()"}})}
	for number := range w.shards {
		w.admins = append(w.admins, w.onShard(t, number+1))
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	etcd := must[*store.Embedded](t)(store.StartEmbedded(t.Context(), store.EmbeddedConfig{Dir: t.TempDir(), Fast: true}))
	t.Cleanup(etcd.Close)
	s := must[*store.Store](t)(store.Open(store.Config{Endpoints: etcd.Endpoints(), Logger: quiet, LeaseTTL: 2 * time.Second}))
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Create(t.Context(), w.m); err != nil {
		t.Fatal(err)
	}
	follower := must[*store.Follower](t)(s.Follow(context.Background()))
	t.Cleanup(follower.Close)
	must[any](t)(follower.Wait(t.Context(), w.m.Version()))
	record := must[*store.Registration](t)(s.Register(t.Context(), store.Router{ID: "this", Name: "this"}))
	t.Cleanup(func() { _ = record.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	t.Cleanup(func() { cancel(); loops.Wait() })
	loops.Go(func() { control.New(control.Config{Store: s, Follower: follower, Logger: quiet, Router: "this"}).Run(ctx) })
	loops.Go(func() {
		deadlock.NewWatchdog(deadlock.WatchdogConfig{
			Router: "this", Sessions: w.server, Records: func() deadlock.Records { return record }, Map: w.published.Load, Access: shard.Access{},
			Broken: func() { w.broken.Add(1) }, Logger: quiet,
		}).Run(ctx)
	})
	return w
}

// begin connects a client and begins a transaction.
func (w *watchedWorld) begin(t *testing.T, statements ...string) *pgx.Conn {
	t.Helper()
	conn := w.client(t)
	for _, sql := range append([]string{"BEGIN"}, statements...) {
		execute(t, conn, sql)
	}
	return conn
}

// soon runs a statement and tells how it ended.
func soon(t *testing.T, conn *pgx.Conn, sql string) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), sql)
		ended <- err
	}()
	return ended
}

// waiting returns when so many backends of a shard wait for a lock.
func (w *watchedWorld) waiting(t *testing.T, number, count int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d wait on shard %d", count, number), func() bool {
		return one[int](t, w.admins[number-1], "SELECT count(*) FROM pg_locks WHERE NOT granted") == count
	})
}

// write is the statement that changes a row.
func write(key int64) string { return fmt.Sprintf("UPDATE orders SET note = note || '.' WHERE id = %d", key) }

// heard waits for the end of a statement.
func heard(t *testing.T, ended <-chan error) *pgconn.PgError {
	t.Helper()
	select {
	case err := <-ended:
		var failure *pgconn.PgError
		if err != nil && !errors.As(err, &failure) {
			t.Fatal(err)
		}
		return failure
	case <-time.After(patience):
		t.Fatal(errHangs)
		return nil
	}
}

// goesOn wants a statement to end well.
func goesOn(t *testing.T, ended <-chan error) {
	t.Helper()
	if failure := heard(t, ended); failure != nil {
		t.Fatalf("somebody else was ended: %v, %s", failure, failure.Detail)
	}
}

// isVictim wants a statement to be ended as the victim of a deadlock across shards, with so many waits.
func (w *watchedWorld) isVictim(t *testing.T, ended <-chan error, waits int) {
	t.Helper()
	formed := time.Now()
	failure := heard(t, ended)
	if failure == nil || failure.Code != pgerr.DeadlockDetected || failure.Message != "deadlock detected" || failure.Hint == "" {
		t.Fatalf("the victim hears %+v", failure)
	}
	t.Logf("broken %v after it was formed:\n%s", time.Since(formed).Round(time.Millisecond), failure.Detail)
	if lines := strings.Split(failure.Detail, "\n"); len(lines) != waits || strings.Count(failure.Detail, " on shard ") != waits {
		t.Errorf("the detail has not %d waits: %s", waits, failure.Detail)
	}
}

// TestDeadlocksAcrossShards: one of those who wait for each other is ended, and the others go on.
func TestDeadlocksAcrossShards(t *testing.T) {
	w := newWatchedWorld(t)
	var keys [3][]int64 // on each shard, three that nobody else uses
	client := w.client(t)
	for number := range keys {
		for n := range 3 {
			key := w.key(t, number+1, n)
			keys[number] = append(keys[number], key)
			execute(t, client, "INSERT INTO orders VALUES ($1, 'x')", key)
		}
	}
	for _, c := range []struct {
		name   string
		broken int64
		run    func(t *testing.T)
	}{
		{"two clients, two shards", 1, func(t *testing.T) {
			first, second := w.begin(t, write(keys[0][0])), w.begin(t, write(keys[1][0]))
			a := soon(t, first, write(keys[1][0]))
			w.waiting(t, 2, 1)
			w.isVictim(t, soon(t, second, write(keys[0][0])), 2)
			goesOn(t, a)
			execute(t, first, "COMMIT")
			execute(t, second, "ROLLBACK")
			for _, sql := range []string{"BEGIN", write(keys[1][0]), write(keys[0][0]), "COMMIT"} {
				execute(t, second, sql)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := w.broken.Load()
			c.run(t)
			if broken := w.broken.Load() - before; broken != c.broken {
				t.Errorf("%d deadlocks across shards were broken, not %d", broken, c.broken)
			}
		})
	}
	if t.Failed() {
		return
	}
	_ = client.Close(context.Background())
	w.settled(t)
}
