package session

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cleavedb/cleave/internal/deadlock"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/pool"

	"github.com/cleavedb/cleave/internal/thorough"
)

// onlyWaiting returns the session that waits, when it does.
func onlyWaiting(t *testing.T, w *world) deadlock.Session {
	t.Helper()
	var waiting []deadlock.Session
	eventually(t, "one session waits", func() bool {
		waiting, _ = w.server.Waiting(0)
		return len(waiting) == 1 && one[int](t, w.onShard(t, 1), "SELECT count(*) FROM pg_locks WHERE NOT granted") == 1
	})
	return waiting[0]
}

// waitsWith waits until one session waits and its backends are these: the router sends to one shard after the other, and reads a moment later.
func waitsWith(t *testing.T, w *world, want []deadlock.Backend) (told deadlock.Session) {
	t.Helper()
	eventually(t, fmt.Sprintf("its backends are %+v", want), func() bool {
		told = onlyWaiting(t, w)
		return cmp.Equal(want, told.Backends, cmpopts.IgnoreFields(deadlock.Backend{}, "PID"))
	})
	return told
}

// TestWaitingSessions: what is told of a session that waits is what it does with each of its backends.
func TestWaitingSessions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, shards: 3})
	client, blocker := w.client(t), w.client(t)
	keys := []int64{w.key(t, 1, 0), w.key(t, 2, 0), w.key(t, 3, 0)}
	for _, key := range keys {
		execute(t, client, "INSERT INTO orders VALUES ($1, 'x')", key)
	}
	if waiting, some := w.server.Waiting(0); len(waiting) > 0 || some {
		t.Errorf("nobody is on several shards, and yet: %+v, %v", waiting, some)
	}
	for _, c := range []struct {
		name, statement string
		want            []deadlock.Backend
	}{
		{"a statement on one shard", write(keys[0]), []deadlock.Backend{{Shard: 1, Read: true}, {Shard: 3, Quiet: true}}},
		{
			"a statement on two of three", fmt.Sprintf("UPDATE orders SET note = 'y' WHERE id IN (%d, %d)", keys[0], keys[1]),
			[]deadlock.Backend{{Shard: 1, Read: true}, {Shard: 2, Owes: true}, {Shard: 3, Quiet: true}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			execute(t, blocker, "BEGIN")
			execute(t, blocker, write(keys[0]))
			execute(t, client, "BEGIN")
			execute(t, client, write(keys[2]))
			before := time.Now()
			ended := soon(t, client, c.statement)
			told := waitsWith(t, w, c.want)
			if told.Number != client.PgConn().PID() || told.Sent.Before(before) || !told.Began.Before(before) {
				t.Errorf("the session is %+v", told)
			}
			if waiting, some := w.server.Waiting(time.Hour); len(waiting) > 0 || !some {
				t.Errorf("nobody has waited for an hour, and yet: %+v, %v", waiting, some)
			}
			execute(t, blocker, "COMMIT")
			goesOn(t, ended)
			eventually(t, "nobody waits, and one is on several shards", func() bool {
				waiting, some := w.server.Waiting(0)
				return len(waiting) == 0 && some
			})
			execute(t, client, "COMMIT")
			eventually(t, "nobody is on several shards any more", func() bool {
				waiting, some := w.server.Waiting(0)
				return len(waiting) == 0 && !some
			})
		})
	}
}

// TestSentences: a wait is ended with the error that is asked for, and nothing that the session does later is.
func TestSentences(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	client, blocker := w.client(t), w.client(t)
	keys := []int64{w.key(t, 1, 0), w.key(t, 2, 0)}
	for _, key := range keys {
		execute(t, client, "INSERT INTO orders VALUES ($1, 'x')", key)
	}
	because := pgerr.New(pgerr.DeadlockDetected, "deadlock detected").WithDetail("because")
	// wait has the client wait for a lock, and returns the backend that does.
	wait := func(t *testing.T) (ended <-chan error, backend deadlock.Backend) {
		t.Helper()
		execute(t, blocker, "BEGIN")
		execute(t, blocker, write(keys[0]))
		execute(t, client, "BEGIN")
		execute(t, client, write(keys[1]))
		ended = soon(t, client, write(keys[0]))
		first := onlyWaiting(t, w).Backends[0]
		return ended, deadlock.Backend{Shard: first.Shard, PID: first.PID}
	}
	number := client.PgConn().PID()
	ctx := context.Background()
	t.Run("with the backend's own key", func(t *testing.T) {
		ended, backend := wait(t)
		w.server.Sentence(number, []deadlock.Backend{backend}, because, func(byKey func(context.Context, deadlock.Backend) error) bool {
			if err := byKey(ctx, backend); err != nil {
				t.Error(err)
			}
			return true
		})
		if failure := heard(t, ended); failure == nil || failure.Code != pgerr.DeadlockDetected || failure.Detail != "because" {
			t.Errorf("the client hears %+v", failure)
		}
		execute(t, blocker, "ROLLBACK")
		execute(t, client, "ROLLBACK")
	})
	t.Run("it is another backend", func(t *testing.T) {
		ended, backend := wait(t)
		backend.PID++
		w.server.Sentence(number, []deadlock.Backend{backend}, because, func(func(context.Context, deadlock.Backend) error) bool {
			t.Error("it is carried out")
			return false
		})
		execute(t, blocker, "ROLLBACK")
		goesOn(t, ended)
		execute(t, client, "ROLLBACK")
	})
	t.Run("nothing was cancelled", func(t *testing.T) {
		ended, backend := wait(t)
		w.server.Sentence(number, []deadlock.Backend{backend}, because, func(func(context.Context, deadlock.Backend) error) bool { return false })
		if err := client.PgConn().CancelRequest(ctx); err != nil {
			t.Fatal(err)
		}
		if failure := heard(t, ended); failure == nil || failure.Code != pgerr.QueryCanceled {
			t.Errorf("the client hears %+v", failure)
		}
		execute(t, blocker, "ROLLBACK")
		execute(t, client, "ROLLBACK")
	})
	t.Run("the wait ends meanwhile", func(t *testing.T) {
		ended, backend := wait(t)
		var next <-chan error
		w.server.Sentence(number, []deadlock.Backend{backend}, because, func(byKey func(context.Context, deadlock.Backend) error) bool {
			execute(t, blocker, "ROLLBACK")
			goesOn(t, ended)
			next = soon(t, client, fmt.Sprintf("SELECT pg_sleep(0.2) FROM orders WHERE id = %d", keys[0]))
			select {
			case err := <-next:
				t.Errorf("the next statement does not wait: %v", err)
			case <-time.After(400 * time.Millisecond):
			}
			return byKey(ctx, backend) == nil
		})
		goesOn(t, next)
		execute(t, client, "COMMIT")
	})
	t.Run("the wait ends meanwhile, and the text goes on", func(t *testing.T) {
		execute(t, blocker, "BEGIN")
		execute(t, blocker, write(keys[0]))
		execute(t, client, "BEGIN")
		execute(t, client, write(keys[1]))
		ended := soon(t, client, fmt.Sprintf("%s; SELECT pg_sleep(0.3) FROM orders WHERE id = %d; %s", write(keys[0]), keys[0], write(keys[1])))
		backend := onlyWaiting(t, w).Backends[0]
		backend = deadlock.Backend{Shard: backend.Shard, PID: backend.PID}
		w.server.Sentence(number, []deadlock.Backend{backend}, because, func(byKey func(context.Context, deadlock.Backend) error) bool {
			execute(t, blocker, "ROLLBACK")
			time.Sleep(100 * time.Millisecond) // in which the next statement would have begun
			return byKey(ctx, backend) == nil
		})
		goesOn(t, ended)
		execute(t, client, "COMMIT")
	})
	_ = client.Close(ctx)
	_ = blocker.Close(ctx)
	w.settled(t)
}

// TestSentenceWhileTelling: a session that waits for a lock on one shard and for a backend of another, which the statement is to be told next, may be
// told to do anything by the ones that it has; its wait is ended as a whole.
func TestSentenceWhileTelling(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, shards: 3, pools: pool.Config{PerShard: 1, QueueTimeout: time.Hour}})
	client, other, blocker := w.client(t), w.client(t), w.onShard(t, 1)
	keys := []int64{w.key(t, 1, 0), w.key(t, 2, 0), w.key(t, 3, 0)}
	for _, key := range keys {
		execute(t, client, "INSERT INTO orders VALUES ($1, 'x')", key)
	}
	execute(t, blocker, "BEGIN")
	execute(t, blocker, write(keys[0]))
	execute(t, other, "BEGIN")
	execute(t, other, write(keys[1]))
	execute(t, client, "BEGIN")
	execute(t, client, write(keys[2]))
	ended := soon(t, client, fmt.Sprintf("UPDATE orders SET note = 'y' WHERE id IN (%d, %d)", keys[0], keys[1]))
	told := waitsWith(t, w, []deadlock.Backend{{Shard: 1, Owes: true}, {Shard: 3}})
	backend := deadlock.Backend{Shard: 1, PID: told.Backends[0].PID}
	because := pgerr.New(pgerr.DeadlockDetected, "deadlock detected")
	w.server.Sentence(told.Number, []deadlock.Backend{backend}, because, func(byKey func(context.Context, deadlock.Backend) error) bool {
		return byKey(context.Background(), backend) == nil
	})
	if failure := heard(t, ended); failure == nil || failure.Code != pgerr.DeadlockDetected {
		t.Errorf("the client hears %+v", failure)
	}
	execute(t, client, "ROLLBACK")
	execute(t, other, "COMMIT")
	execute(t, client, write(keys[1]))
	_ = client.Close(context.Background())
	_ = other.Close(context.Background())
	w.settled(t)
}
