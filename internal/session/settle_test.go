package session

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/pool"
	"github.com/cleavedb/cleave/internal/topology"
)

// announced is a world whose router hears at once of every map.
func announced(t *testing.T, pools ...pool.Config) (w *world, publish func(ranges []topology.RangeSpec)) {
	t.Helper()
	var changed atomic.Pointer[chan struct{}]
	first := make(chan struct{})
	changed.Store(&first)
	w = newWorld(t, worldConfig{noPlain: true, pools: append(pools, pool.Config{})[0], config: Config{HoldTimeout: patience, MapChanged: func() <-chan struct{} { return *changed.Load() }}})
	return w, func(ranges []topology.RangeSpec) {
		now := w.published.Load()
		w.publish(must[*topology.Map](t)(now.Next(topology.ReplaceRanges("main", ranges, topology.Assignment{}))))
		next := make(chan struct{})
		close(*changed.Swap(&next))
	}
}

// TestStatementsAreHeld: those on keys whose owner is about to change, and those on no keys, wait for the next map; transactions that have used the keyspace before go on, and are waited for.
func TestStatementsAreHeld(t *testing.T) {
	t.Parallel()
	w, publish := announced(t)
	ctx := t.Context()
	here, there := w.key(t, 1, 1), w.key(t, 2, 1)
	const read = "SELECT count(*) FROM orders WHERE id = $1"
	early, late, other, scattered, fresh := w.client(t), w.client(t), w.client(t), w.client(t), w.client(t)
	execute(t, early, "BEGIN")
	execute(t, early, read, here)
	execute(t, fresh, "BEGIN")
	execute(t, fresh, "SELECT 1")
	ranges := w.m.Keyspace("main").Spec().Ranges
	for i := range ranges {
		ranges[i].Held = ranges[i].Shard == "s1"
	}
	publish(ranges)
	held := w.published.Load()
	execute(t, other, read, there)
	waits := make(chan error, 3)
	go func() { waits <- late.QueryRow(ctx, read, here).Scan(new(int)) }()
	go func() { waits <- scattered.QueryRow(ctx, "SELECT count(*) FROM orders").Scan(new(int)) }()
	go func() { waits <- fresh.QueryRow(ctx, read, here).Scan(new(int)) }() // its transaction has not used the keyspace yet
	execute(t, early, read, here)
	if w.server.isSettled(held, []string{"main"}) {
		t.Error("a transaction goes by the older map, and the router says that it has settled")
	}
	select {
	case err := <-waits:
		t.Errorf("a statement did not wait: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	execute(t, early, "COMMIT")
	eventually(t, "the router settles", func() bool { return w.server.isSettled(held, []string{"main"}) })
	for i := range ranges {
		ranges[i].Held = false
	}
	publish(ranges)
	for range 3 {
		if err := <-waits; err != nil {
			t.Error(err)
		}
	}
	execute(t, fresh, "COMMIT")
}

// TestSnapshotsOlderThanAMove: a transaction that keeps one snapshot does not use a keyspace that has changed since; one that takes a new one for each statement does.
func TestSnapshotsOlderThanAMove(t *testing.T) {
	t.Parallel()
	w, publish := announced(t)
	key := w.key(t, 1, 1)
	old, older, latest := w.client(t), w.client(t), w.client(t)
	execute(t, old, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	execute(t, older, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	execute(t, latest, "BEGIN")
	for _, conn := range []*pgx.Conn{old, older, latest} {
		execute(t, conn, "SELECT count(*) FROM pg_catalog.pg_class")
	}
	ranges := w.m.Keyspace("main").Spec().Ranges
	publish(append(ranges, topology.RangeSpec{From: topology.Point{"ffffffffffffff00"}, Shard: ranges[len(ranges)-1].Shard}))
	const read = "SELECT count(*) FROM orders WHERE id = $1"
	execute(t, older, "SELECT count(*) FROM undeclared") // by the newer map
	for _, conn := range []*pgx.Conn{old, older} {
		_, err := conn.Exec(t.Context(), read, key)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != pgerr.SerializationFailure {
			t.Errorf("an old snapshot reads what may have moved: %v", err)
		}
	}
	execute(t, latest, read, key)
}

// TestSnapshotsTakenWhileRowsAreHeld: a transaction that keeps its snapshots does not go on with rows that arrive after they were taken.
func TestSnapshotsTakenWhileRowsAreHeld(t *testing.T) {
	t.Parallel()
	w, publish := announced(t)
	here, there := w.key(t, 1, 1), w.key(t, 2, 1)
	const read = "SELECT count(*) FROM orders WHERE id = $1"
	ranges := w.m.Keyspace("main").Spec().Ranges
	for i := range ranges {
		ranges[i].Held = ranges[i].Shard == "s1"
	}
	publish(ranges)
	results := map[string]chan error{}
	for _, level := range []string{"REPEATABLE READ", "READ COMMITTED"} {
		conn, ended := w.client(t), make(chan error, 1)
		execute(t, conn, "BEGIN ISOLATION LEVEL "+level)
		execute(t, conn, read, there)
		go func() { ended <- conn.QueryRow(t.Context(), read, here).Scan(new(int)) }()
		results[level] = ended
	}
	time.Sleep(100 * time.Millisecond)
	for i := range ranges {
		ranges[i].Held = false
	}
	publish(ranges)
	var refused *pgconn.PgError
	if err := <-results["REPEATABLE READ"]; !errors.As(err, &refused) || refused.Code != pgerr.SerializationFailure {
		t.Errorf("an old snapshot reads what may have arrived since: %v", err)
	}
	if err := <-results["READ COMMITTED"]; err != nil {
		t.Error(err)
	}
}

// TestOldPlansGetNoNewBackends: a statement that waits for a backend while its rows go elsewhere, and while its router is given up for that, does not look where they were, though the router knows the newer map when it gets one; one whose rows stay goes on.
func TestOldPlansGetNoNewBackends(t *testing.T) {
	for name, moves := range map[string]bool{"its rows move": true, "its rows stay": false} {
		t.Run(name, func(t *testing.T) {
			w, publish := announced(t, pool.Config{PerShard: 1})
			first, waiting, key := w.client(t), w.client(t), w.key(t, 1, 1)
			read := "SELECT count(*) FROM orders WHERE id = $1"
			if !moves {
				read = "SELECT count(*) FROM countries WHERE code = $1::bigint::text" // every shard has it, and the home shard is as good as any
			}
			execute(t, waiting, read, key) // so that it has nothing to ask but for its rows
			execute(t, first, "BEGIN")
			execute(t, first, "SELECT count(*) FROM orders WHERE id = $1", key)
			ended := make(chan error, 1)
			go func() { ended <- waiting.QueryRow(t.Context(), read, key).Scan(new(int)) }()
			eventually(t, "the statement waits", func() bool { return w.waits(waiting.PgConn().PID()) })
			ranges := w.m.Keyspace("main").Spec().Ranges
			for i := range ranges {
				ranges[i].Shard = "s2"
			}
			publish(ranges)
			shard := w.onShard(t, 1)
			execute(t, shard, "UPDATE cleave.identity SET minimum_version = $1", w.published.Load().Version())
			execute(t, shard, "SELECT pg_terminate_backend(pid) FROM cleave.backends")
			_, _ = first.Exec(t.Context(), "ROLLBACK") // it hears of it, and gives the backend back
			var refused *pgconn.PgError
			switch err := <-ended; {
			case moves && (!errors.As(err, &refused) || refused.Code != pgerr.SerializationFailure):
				t.Errorf("it looked where its rows were: %v", err)
			case !moves && err != nil:
				t.Error(err)
			}
		})
	}
}

// TestAStatementWaitsForTheMapThatItsShardAsksFor: the router has slept, and hears of it in a moment.
func TestAStatementWaitsForTheMapThatItsShardAsksFor(t *testing.T) {
	w, publish := announced(t, pool.Config{PerShard: 1})
	conn, key := w.client(t), w.key(t, 1, 1)
	const read = "SELECT count(*) FROM orders WHERE id = $1"
	execute(t, conn, read, key)
	shard := w.onShard(t, 1)
	execute(t, shard, "UPDATE cleave.identity SET minimum_version = $1", w.published.Load().Version()+1)
	execute(t, shard, "SELECT pg_terminate_backend(pid) FROM cleave.backends")
	ended := make(chan error, 1)
	go func() {
		for {
			err := conn.QueryRow(t.Context(), read, key).Scan(new(int))
			var gone *pgconn.PgError
			if !errors.As(err, &gone) || gone.Code != pgerr.AdminShutdown { // it got a backend that was not quite gone
				ended <- err
				return
			}
		}
	}()
	eventually(t, "a backend was refused", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		var refused bool
		err := shard.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE state = 'idle in transaction (aborted)')").Scan(&refused)
		return err == nil && refused
	})
	publish(w.m.Keyspace("main").Spec().Ranges)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
