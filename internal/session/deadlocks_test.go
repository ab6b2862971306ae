package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/deadlock"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
)

// watchedWorld is a world with an etcd, a leader and the router's watchdog.
type watchedWorld struct {
	*world
	broken atomic.Int64 // deadlocks across shards
	admins []*pgx.Conn  // one for each shard, past the router
	etcd   *store.Embedded
	// restartEtcd starts it again after it was closed.
	restartEtcd func()
	// deaf is how many verdicts are not carried out, besides those on one session.
	deaf   atomic.Int64
	deafTo atomic.Uint32
}

// deafSessions are the router's, who do not hear of some verdicts.
type deafSessions struct {
	*Server
	world *watchedWorld
}

// Sentence implements [deadlock.Sessions].
func (d deafSessions) Sentence(number uint32, of []deadlock.Backend, because *pgerr.Error, cancel func(byKey func(context.Context, deadlock.Backend) error) bool) {
	if d.world.deaf.Add(-1) < 0 && number != d.world.deafTo.Load() {
		d.Server.Sentence(number, of, because, cancel)
	}
}

// shardPatience is the shards' deadlock_timeout.
const shardPatience = 200 * time.Millisecond

// newWatchedWorld returns one with three shards that look for deadlocks soon.
func newWatchedWorld(t *testing.T) *watchedWorld {
	t.Helper()
	soon := fmt.Sprintf("ALTER SYSTEM SET deadlock_timeout = %d", shardPatience.Milliseconds())
	w := &watchedWorld{world: newWorld(t, worldConfig{noPlain: true, shards: 3, setUp: []string{soon, "SELECT pg_reload_conf()"}})}
	for number := range w.shards {
		w.admins = append(w.admins, w.onShard(t, number+1))
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	folder := t.TempDir()
	w.etcd = must[*store.Embedded](t)(store.StartEmbedded(t.Context(), store.EmbeddedConfig{Dir: folder, Fast: true}))
	t.Cleanup(func() { w.etcd.Close() })
	w.restartEtcd = func() {
		port := must[int](t)(strconv.Atoi(w.etcd.Endpoints()[0][strings.LastIndexByte(w.etcd.Endpoints()[0], ':')+1:]))
		w.etcd = must[*store.Embedded](t)(store.StartEmbedded(t.Context(), store.EmbeddedConfig{Dir: folder, Fast: true, ClientPort: port}))
	}
	s := must[*store.Store](t)(store.Open(store.Config{Endpoints: w.etcd.Endpoints(), Logger: quiet, LeaseTTL: 2 * time.Second}))
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
	loops.Go(func() {
		control.New(control.Config{Store: s, Follower: follower, Logger: quiet, Router: "this"}).Run(ctx)
	})
	loops.Go(func() {
		deadlock.NewWatchdog(deadlock.WatchdogConfig{
			Router: "this", Sessions: deafSessions{w.server, w}, Records: func() deadlock.Records { return record }, Map: w.published.Load, Access: shard.Access{},
			Broken: func() { w.broken.Add(1) }, Logger: quiet,
		}).Run(ctx)
	})
	return w
}

// TestDeadlocks: what waits in a circle over several shards is found and broken, and nothing else is.
func TestDeadlocks(t *testing.T) {
	t.Parallel()
	w := newWatchedWorld(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"circles", w.circles}, {"when something fails", w.failures}, {"queues", w.queues}, {"writers in any order", w.writers}, {"waits of no use", w.ofNoUse},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := w.client(t)
			execute(t, client, "DELETE FROM orders")
			_ = client.Close(context.Background())
			w.broken.Store(0)
			c.run(t)
			if !t.Failed() {
				w.settled(t)
			}
		})
	}
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
func write(key int64) string {
	return fmt.Sprintf("UPDATE orders SET note = note || '.' WHERE id = %d", key)
}

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

// withSingle closes a ring of which one is on shard 2 alone and has the second of its rows.
func (w *watchedWorld) withSingle(t *testing.T, single *pgx.Conn, keys [3][]int64) {
	t.Helper()
	first, last := w.begin(t, write(keys[0][0])), w.begin(t, write(keys[1][0]))
	a := soon(t, first, write(keys[1][1]))
	w.waiting(t, 2, 1)
	b := soon(t, single, write(keys[1][0]))
	w.waiting(t, 2, 2)
	w.isVictim(t, soon(t, last, write(keys[0][0])), 3)
	goesOn(t, b)
	execute(t, single, "COMMIT")
	goesOn(t, a)
	execute(t, first, "COMMIT")
	execute(t, last, "ROLLBACK")
}

// circles: one of those who wait for each other is ended, and the others go on.
func (w *watchedWorld) circles(t *testing.T) {
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
		{"three in a ring", 1, func(t *testing.T) {
			first, second, third := w.begin(t, write(keys[0][0])), w.begin(t, write(keys[1][0])), w.begin(t, write(keys[2][0]))
			a := soon(t, first, write(keys[1][0]))
			w.waiting(t, 2, 1)
			b := soon(t, second, write(keys[2][0]))
			w.waiting(t, 3, 1)
			w.isVictim(t, soon(t, third, write(keys[0][0])), 3)
			goesOn(t, b)
			execute(t, second, "COMMIT")
			goesOn(t, a)
			execute(t, first, "COMMIT")
			execute(t, third, "ROLLBACK")
		}},
		{"one of the ring is on a single shard", 1, func(t *testing.T) {
			w.withSingle(t, w.begin(t, write(keys[1][1])), keys)
		}},
		{"one of the ring is past the router", 1, func(t *testing.T) {
			direct := w.onShard(t, 2)
			execute(t, direct, "BEGIN")
			execute(t, direct, write(keys[1][1]))
			w.withSingle(t, direct, keys)
		}},
		{"the victim is the youngest, not the last", 1, func(t *testing.T) {
			first := w.begin(t, write(keys[0][0]), write(keys[2][0]))
			second := w.begin(t, write(keys[1][0]))
			b := soon(t, second, write(keys[0][0]))
			w.waiting(t, 1, 1)
			a := soon(t, first, write(keys[1][0]))
			w.isVictim(t, b, 2)
			goesOn(t, a)
			execute(t, first, "COMMIT")
		}},
		{"transactions that nobody has begun", 1, func(t *testing.T) {
			blocker := w.begin(t, write(keys[1][1]))
			first, second := w.client(t), w.client(t)
			a := soon(t, first, strings.Join([]string{write(keys[0][0]), write(keys[1][1]), write(keys[1][0])}, "; "))
			w.waiting(t, 2, 1)
			b := soon(t, second, write(keys[1][0])+"; "+write(keys[0][0]))
			w.waiting(t, 1, 1)
			execute(t, blocker, "COMMIT")
			w.isVictim(t, b, 2)
			goesOn(t, a)
			execute(t, second, write(keys[1][0])+"; "+write(keys[0][0]))
		}},
		{"statements on all shards", 1, func(t *testing.T) {
			first, second := w.begin(t, write(keys[0][0])), w.begin(t, write(keys[1][0]))
			everywhere := fmt.Sprintf("UPDATE orders SET note = note || '.' WHERE id + 0 IN (%d, %d)", keys[0][0], keys[1][0])
			a := soon(t, first, everywhere)
			w.waiting(t, 2, 1)
			w.isVictim(t, soon(t, second, everywhere), 2)
			goesOn(t, a)
			execute(t, first, "COMMIT")
			execute(t, second, "ROLLBACK")
			execute(t, second, everywhere)
		}},
		{"on one shard alone it is PostgreSQL's own", 0, func(t *testing.T) {
			first, second := w.begin(t, write(keys[0][0]), write(keys[1][0])), w.begin(t, write(keys[0][1]), write(keys[1][1]))
			a := soon(t, first, write(keys[0][1]))
			w.waiting(t, 1, 1)
			b := soon(t, second, write(keys[0][0]))
			one := heard(t, a)
			if one == nil {
				execute(t, first, "COMMIT")
			}
			other := heard(t, b)
			if (one == nil) == (other == nil) {
				t.Fatalf("one is to be ended: %v, %v", one, other)
			}
			if victim := cmp.Or(one, other); victim.Code != pgerr.DeadlockDetected || strings.Contains(victim.Detail, "shard") {
				t.Errorf("the victim hears %v, %s", victim, victim.Detail)
			}
		}},
		{"a savepoint before it", 1, func(t *testing.T) {
			first, second := w.begin(t, write(keys[0][0])), w.begin(t, write(keys[1][0]), "SAVEPOINT here")
			a := soon(t, first, write(keys[1][0]))
			w.waiting(t, 2, 1)
			w.isVictim(t, soon(t, second, write(keys[0][0])), 2)
			execute(t, second, "ROLLBACK TO here")
			execute(t, second, write(keys[2][0]))
			execute(t, second, "COMMIT")
			goesOn(t, a)
			execute(t, first, "COMMIT")
		}},
		{"rows that were locked after a savepoint", 1, func(t *testing.T) {
			first, second := w.begin(t, "SAVEPOINT a", write(keys[0][0]), "SAVEPOINT b"), w.begin(t, "SAVEPOINT a", write(keys[1][0]))
			a := soon(t, first, write(keys[1][0]))
			w.waiting(t, 2, 1)
			w.isVictim(t, soon(t, second, write(keys[0][0])), 2)
			execute(t, second, "ROLLBACK")
			goesOn(t, a)
			execute(t, first, "COMMIT")
		}},
		{"the extended protocol", 1, func(t *testing.T) {
			first, second := w.begin(t), w.begin(t)
			const sql = "UPDATE orders SET note = $2 WHERE id = $1"
			execute(t, first, sql, keys[0][0], "y")
			execute(t, second, sql, keys[1][0], "y")
			a := make(chan error, 1)
			go func() {
				_, err := first.Exec(context.Background(), sql, keys[1][0], "z")
				a <- err
			}()
			w.waiting(t, 2, 1)
			b := make(chan error, 1)
			go func() {
				_, err := second.Exec(context.Background(), sql, keys[0][0], "z")
				b <- err
			}()
			w.isVictim(t, b, 2)
			goesOn(t, a)
			execute(t, first, "COMMIT")
			execute(t, second, "ROLLBACK")
		}},
		{"others wait for the same rows", 1, func(t *testing.T) {
			first, second := w.begin(t, write(keys[0][0])), w.begin(t, write(keys[1][0]))
			a := soon(t, first, write(keys[1][0]))
			w.waiting(t, 2, 1)
			var queue []<-chan error
			for range 3 { // younger than those in the circle, and on several shards too
				conn := w.begin(t, write(keys[2][len(queue)]))
				queue = append(queue, soon(t, conn, write(keys[1][0])+"; COMMIT"))
				w.waiting(t, 2, 1+len(queue))
			}
			w.isVictim(t, soon(t, second, write(keys[0][0])), 2)
			goesOn(t, a)
			execute(t, first, "COMMIT")
			for _, ended := range queue {
				goesOn(t, ended)
			}
			execute(t, second, "ROLLBACK")
		}},
		{"tables that are locked", 1, func(t *testing.T) {
			first := w.begin(t, write(keys[1][0]))
			second := w.begin(t, write(keys[2][0]))
			a := soon(t, first, "LOCK TABLE orders")
			w.waiting(t, 3, 1) // it has the others
			w.isVictim(t, soon(t, second, write(keys[0][0])), 2)
			goesOn(t, a)
			execute(t, first, "COMMIT")
			execute(t, second, "ROLLBACK")
		}},
		{"rows that nobody reads yet", 1, func(t *testing.T) {
			large := w.key(t, 2, 20)
			client := w.client(t)
			execute(t, client, "INSERT INTO orders VALUES ($1, repeat('x', 40000000))", large)
			direct := w.onShard(t, 1)
			execute(t, direct, "BEGIN")
			execute(t, direct, "LOCK TABLE orders")
			locker := w.begin(t)
			a := soon(t, locker, "LOCK TABLE orders")
			w.waiting(t, 1, 1)
			b := soon(t, client, "SELECT * FROM orders") // its part on the first shard waits for the locker, and is read first
			w.waiting(t, 1, 2)
			eventually(t, "the second shard waits for its rows to be read", func() bool {
				return one[bool](t, w.admins[1], "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'ClientWrite')")
			})
			execute(t, direct, "COMMIT")
			w.isVictim(t, b, 2)
			goesOn(t, a)
			execute(t, locker, "ROLLBACK")
			execute(t, client, "DELETE FROM orders WHERE id = $1", large)
		}},
		{"rows that are loaded", 1, func(t *testing.T) {
			first, second := w.begin(t, write(keys[0][0])), w.begin(t)
			loaded, new2 := w.key(t, 2, 10), w.key(t, 1, 10)
			execute(t, first, "INSERT INTO orders VALUES ($1, 'mine')", new2)
			ended := make(chan error, 1)
			go func() {
				_, err := second.PgConn().CopyFrom(context.Background(), strings.NewReader(fmt.Sprintf("%d\ty\n%d\ty\n", loaded, new2)), "COPY orders FROM STDIN")
				ended <- err
			}()
			w.waiting(t, 1, 1)
			eventually(t, "the second shard has its row", func() bool { // or it is the one that waits, and there is no circle
				return one[bool](t, w.admins[1], "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE 'COPY%' AND state = 'idle in transaction')")
			})
			a := soon(t, first, fmt.Sprintf("INSERT INTO orders VALUES (%d, 'mine')", loaded))
			w.isVictim(t, ended, 2)
			goesOn(t, a)
			execute(t, first, "ROLLBACK")
			execute(t, second, "ROLLBACK")
		}},
		{"locks of the session", 1, func(t *testing.T) {
			first, second := w.client(t), w.begin(t, write(keys[1][0]))
			execute(t, first, "SELECT pg_advisory_lock(7)")
			a := soon(t, first, write(keys[1][0]))
			w.waiting(t, 2, 1)
			b := soon(t, second, "SELECT pg_advisory_lock(7)")
			w.isVictim(t, a, 2)
			execute(t, first, "SELECT pg_advisory_unlock(7)")
			goesOn(t, b)
			execute(t, second, "COMMIT")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := w.broken.Load()
			c.run(t)
			eventually(t, "what was broken is counted", func() bool { return w.broken.Load()-before >= c.broken }) // the client hears of it first
			if broken := w.broken.Load() - before; broken != c.broken {
				t.Errorf("%d deadlocks across shards were broken, not %d", broken, c.broken)
			}
		})
	}
	_ = client.Close(context.Background())
}

// failures has a case for lines of the table in package deadlock's DESIGN.md. Those about processes that die are in test/cluster.
func (w *watchedWorld) failures(t *testing.T) {
	client := w.client(t)
	keys := []int64{w.key(t, 1, 0), w.key(t, 2, 0)}
	for _, key := range keys {
		execute(t, client, "INSERT INTO orders VALUES ($1, 'x')", key)
	}
	// pair has two clients wait for each other; the second one is the younger, and may be one whose verdicts are not heard.
	pair := func(t *testing.T, deaf bool) (first, second *pgx.Conn, a, b <-chan error) {
		t.Helper()
		first, second = w.begin(t, write(keys[0])), w.begin(t, write(keys[1]))
		if deaf {
			w.deafTo.Store(second.PgConn().PID())
		}
		a = soon(t, first, write(keys[1]))
		w.waiting(t, 2, 1)
		b = soon(t, second, write(keys[0]))
		w.waiting(t, 1, 1)
		return first, second, a, b
	}
	t.Run("D3 nobody carries the verdict out", func(t *testing.T) {
		_, second, a, b := pair(t, true)
		w.isVictim(t, a, 2)
		w.deafTo.Store(0)
		goesOn(t, b)
		execute(t, second, "COMMIT")
	})
	t.Run("D7 etcd is away", func(t *testing.T) {
		w.etcd.Close()
		first, _, a, b := pair(t, false)
		select {
		case err := <-a:
			t.Fatalf("somebody was ended: %v", err)
		case err := <-b:
			t.Fatalf("somebody was ended: %v", err)
		case <-time.After(time.Second):
		}
		w.restartEtcd()
		w.isVictim(t, b, 2)
		goesOn(t, a)
		execute(t, first, "COMMIT")
	})
	t.Run("D10 the request to cancel is lost", func(t *testing.T) {
		w.deaf.Store(1)
		first, _, a, b := pair(t, false)
		w.isVictim(t, b, 2)
		goesOn(t, a)
		execute(t, first, "COMMIT")
	})
	t.Run("D12 the client cancels", func(t *testing.T) {
		w.deaf.Store(1_000_000)
		first, second, a, b := pair(t, false)
		eventually(t, "the verdict is heard of", func() bool { return w.deaf.Load() < 1_000_000 })
		if err := second.PgConn().CancelRequest(t.Context()); err != nil {
			t.Fatal(err)
		}
		if failure := heard(t, b); failure == nil || failure.Code != pgerr.QueryCanceled {
			t.Errorf("the client hears %v", failure)
		}
		w.deaf.Store(0)
		goesOn(t, a)
		execute(t, first, "COMMIT")
	})
	_ = client.Close(context.Background())
}

// queues: many wait for the same rows on several shards, each for longer than deadlock_timeout, and lock them in the same order.
// Nobody is ended.
func (w *watchedWorld) queues(t *testing.T) {
	client := w.client(t)
	var keys []int64 // in the order in which they are locked
	for n := range 2 {
		for number := range w.shards {
			key := w.key(t, number+1, n)
			keys = append(keys, key)
			execute(t, client, "INSERT INTO orders VALUES ($1, '')", key)
		}
	}
	const clients = 12
	until := time.Now().Add(3 * time.Second)
	var queue sync.WaitGroup
	var done, longest atomic.Int64
	for i := range clients {
		conn := w.client(t)
		queue.Go(func() {
			for n := i; time.Now().Before(until); n++ {
				started := time.Now()
				if err := w.inOrder(conn, keys, n); err != nil {
					t.Error(err)
					return
				}
				done.Add(1)
				if took := int64(time.Since(started)); took > longest.Load() {
					longest.Store(took)
				}
			}
		})
	}
	queue.Wait()
	t.Logf("%d transactions, the longest took %v", done.Load(), time.Duration(longest.Load()).Round(time.Millisecond))
	if time.Duration(longest.Load()) < 2*shardPatience || done.Load() < clients {
		t.Error("nobody has waited for long: this shows nothing")
	}
	if w.broken.Load() != 0 {
		t.Errorf("%d deadlocks were broken, and there were none", w.broken.Load())
	}
	_ = client.Close(context.Background())
}

// inOrder is one transaction of a queue: it locks some of the rows, one by one, and keeps them for a while.
func (w *watchedWorld) inOrder(conn *pgx.Conn, keys []int64, n int) error {
	statements := []string{"BEGIN"}
	switch n % 4 {
	case 0: // on all shards, though only one has the row
		statements = append(statements, fmt.Sprintf("UPDATE orders SET note = note || '.' WHERE id + 0 = %d", keys[0]))
		fallthrough
	case 1:
		for _, key := range keys[1:] {
			statements = append(statements, write(key))
		}
	default:
		for _, key := range keys {
			statements = append(statements, fmt.Sprintf("SELECT note FROM orders WHERE id = %d FOR UPDATE", key))
		}
	}
	statements = append(statements, "SELECT pg_sleep(0.08)", "COMMIT")
	for _, sql := range statements {
		if _, err := conn.Exec(context.Background(), sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// writers: of those who lock the same rows in different orders some are ended, again and again. The others go on, who is ended and tries
// again gets through, and what is counted is what was committed.
func (w *watchedWorld) writers(t *testing.T) {
	client := w.client(t)
	var keys []int64
	for number := range w.shards {
		keys = append(keys, w.key(t, number+1, 0))
		execute(t, client, "INSERT INTO orders VALUES ($1, '0')", keys[number])
	}
	const clients, each = 3, 2
	var writers sync.WaitGroup
	var victims atomic.Int64
	for i := range clients {
		conn := w.client(t)
		writers.Go(func() {
			for done := 0; done < each; {
				err := countUp(conn, keys, i)
				var failure *pgconn.PgError
				switch {
				case err == nil:
					done++
				case errors.As(err, &failure) && failure.Code == pgerr.DeadlockDetected:
					victims.Add(1)
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	t.Logf("%d victims, %d of deadlocks across shards", victims.Load(), w.broken.Load())
	if w.broken.Load() == 0 {
		t.Error("there was no deadlock: this shows nothing")
	}
	for _, key := range keys {
		if note := one[string](t, client, "SELECT note FROM orders WHERE id = $1", key); note != strconv.Itoa(clients*each) {
			t.Errorf("row %d was counted to %s, not %d", key, note, clients*each)
		}
	}
	_ = client.Close(context.Background())
}

// countUp adds one to every row, in an order that depends on who does it, on all shards at once for some. It is rolled back if that fails.
func countUp(conn *pgx.Conn, keys []int64, who int) error {
	const add = "UPDATE orders SET note = (note::int + 1)::text"
	return pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
		if who%3 == 2 {
			_, err := tx.Exec(context.Background(), add)
			return err
		}
		for i := range keys {
			if who%3 == 1 {
				i = len(keys) - 1 - i
			}
			if _, err := tx.Exec(context.Background(), add+" WHERE id = $1", keys[i]); err != nil {
				return err
			}
			if _, err := tx.Exec(context.Background(), "SELECT pg_sleep(0.02)"); err != nil {
				return err
			}
		}
		return nil
	})
}

// ofNoUse: nobody goes on waiting for a lock for a statement that has failed on another shard, or for a client that is gone.
func (w *watchedWorld) ofNoUse(t *testing.T) {
	client := w.client(t)
	var keys [3]int64
	for number := range keys {
		keys[number] = w.key(t, number+1, 0)
		execute(t, client, "INSERT INTO orders VALUES ($1, 'x')", keys[number])
	}
	blocker := w.begin(t, write(keys[1]))
	own := fmt.Sprintf("BEGIN; INSERT INTO orders VALUES (%d, 'own')", w.key(t, 3, 1))
	for i, begin := range []string{"SELECT 1", own} { // on one shard, and on several
		gone := dialRaw(t, w.address, nil)
		gone.query(begin)
		gone.send(&pgproto3.Query{String: write(keys[1])})
		w.waiting(t, 2, i+1)
		gone.send(&pgproto3.Terminate{})
		_ = gone.conn.Close()
	}
	for _, c := range []struct {
		name            string
		failing, awaits int // shards
	}{
		{"the one that fails is heard first", 1, 3},
		{"the one that waits is heard first", 3, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			missing := w.key(t, c.awaits, 5)
			other := w.begin(t, fmt.Sprintf("INSERT INTO orders VALUES (%d, 'other')", missing))
			ended := soon(t, client, fmt.Sprintf("INSERT INTO orders VALUES (%d, 'twice'), (%d, 'waits')", keys[c.failing-1], missing))
			if failure := heard(t, ended); failure == nil || failure.Code != "23505" || !strings.Contains(failure.Detail, fmt.Sprintf("(%d)", keys[c.failing-1])) {
				t.Errorf("the client hears %v", failure)
			}
			execute(t, client, "SELECT 1")
			execute(t, other, "ROLLBACK")
		})
	}
	w.waiting(t, 2, 0)
	execute(t, blocker, "COMMIT")
	_ = client.Close(context.Background())
	_ = blocker.Close(context.Background())
}
