package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	return announcedIn(t, worldConfig{pools: append(pools, pool.Config{})[0]})
}

// announcedIn is one of another kind.
func announcedIn(t *testing.T, c worldConfig) (w *world, publish func(ranges []topology.RangeSpec)) {
	t.Helper()
	var changed atomic.Pointer[chan struct{}]
	first := make(chan struct{})
	changed.Store(&first)
	c.noPlain, c.config.HoldTimeout, c.config.MapChanged = true, patience, func() <-chan struct{} { return *changed.Load() }
	w = newWorld(t, c)
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
	const read = readOrder
	early, late, other, scattered, fresh := w.client(t), w.client(t), w.client(t), w.client(t), w.client(t)
	execute(t, early, "BEGIN")
	execute(t, early, read, here)
	execute(t, fresh, "BEGIN")
	execute(t, fresh, "SELECT 1")
	ranges := w.m.Keyspace("main").Spec().Ranges
	publish(w.held())
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
	publish(ranges)
	for range 3 {
		if err := <-waits; err != nil {
			t.Error(err)
		}
	}
	execute(t, fresh, "COMMIT")
}

// wantMoved wants the error of a transaction that may not read what has moved.
func wantMoved(t *testing.T, what string, err error) {
	t.Helper()
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != pgerr.SerializationFailure {
		t.Errorf("%s: an old snapshot reads what may have moved: %v", what, err)
	}
}

const readOrder = "SELECT count(*) FROM orders WHERE id = $1"

// swapped are the ranges of a keyspace, each with another owner than before.
func (w *world) swapped() []topology.RangeSpec {
	ranges := w.m.Keyspace("main").Spec().Ranges
	for i := range ranges {
		ranges[i].Shard = map[string]string{"s1": "s2", "s2": "s1"}[ranges[i].Shard]
	}
	return ranges
}

// held are the ranges of a keyspace as they are, those of the first shard held.
func (w *world) held() []topology.RangeSpec {
	ranges := w.m.Keyspace("main").Spec().Ranges
	for i := range ranges {
		ranges[i].Held = ranges[i].Shard == "s1"
	}
	return ranges
}

// TestSnapshotsOlderThanAMove: a transaction that keeps one snapshot does not use a keyspace that has changed its owners since, wherever it was before and however often they have; one that takes a new one for each statement does.
func TestSnapshotsOlderThanAMove(t *testing.T) {
	t.Parallel()
	others := topology.TableSpec{Name: "public.others", Kind: topology.Sharded, Keyspace: "others", Key: []string{"id"}}
	w, publish := announcedIn(t, worldConfig{setUp: []string{"CREATE TABLE others (id bigint PRIMARY KEY)"}, tables: []topology.TableSpec{others}, keyspaces: map[string]string{"others": "bigint"}})
	key := w.key(t, 1, 1)
	firsts := map[string]string{
		"on one shard": "SELECT count(*) FROM pg_catalog.pg_class", "on all": "SELECT count(*) FROM others", "in steps": "SELECT count(*) FROM others a JOIN others b ON a.id = b.id + 1", "copies": "INSERT INTO countries VALUES ('%s')",
	}
	conns := map[string]*pgx.Conn{}
	for _, level := range []string{"REPEATABLE READ", "READ COMMITTED", "READ UNCOMMITTED"} {
		for where, sql := range firsts {
			name := level + ", first " + where
			conns[name] = w.client(t)
			execute(t, conns[name], "BEGIN ISOLATION LEVEL "+level)
			execute(t, conns[name], strings.ReplaceAll(sql, "%s", name))
		}
	}
	elsewhere := w.client(t) // goes along with each map
	execute(t, elsewhere, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	execute(t, elsewhere, "SELECT count(*) FROM others")
	ranges := w.m.Keyspace("main").Spec().Ranges
	divided := w.client(t)
	execute(t, divided, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	execute(t, divided, "SELECT count(*) FROM others")
	publish(append(slices.Clone(ranges), topology.RangeSpec{From: topology.Point{"ffffffffffffff00"}, Shard: ranges[len(ranges)-1].Shard}))
	execute(t, divided, readOrder, key) // nothing has changed its owner
	execute(t, divided, "COMMIT")
	publish(w.swapped())
	execute(t, elsewhere, "SELECT count(*) FROM undeclared")
	for name, conn := range conns {
		_, err := conn.Exec(t.Context(), readOrder, key)
		if strings.HasPrefix(name, "REPEATABLE READ") {
			wantMoved(t, name, err)
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	publish(ranges)
	_, err := elsewhere.Exec(t.Context(), readOrder, key)
	wantMoved(t, "moved away and back", err)
}

// TestSnapshotsInAPipeline: what has been sent is answered before it is asked at which level it runs.
func TestSnapshotsInAPipeline(t *testing.T) {
	t.Parallel()
	w, publish := announced(t)
	client := dialRaw(t, w.address, nil)
	client.send(pipeline(unnamed("BEGIN ISOLATION LEVEL REPEATABLE READ"), unnamed("SELECT count(*) FROM pg_catalog.pg_class"), flush)...)
	for summary(client.receive()) != "done SELECT 1" {
	}
	publish(w.swapped())
	if said := strings.Join(client.ask(pipeline(unnamed("SELECT count(*) FROM orders WHERE id = "+text(w.key(t, 1, 1))), sync1)...), "\n"); !strings.Contains(said, pgerr.SerializationFailure) {
		t.Errorf("an old snapshot reads what may have moved: %s", said)
	}
}

// TestSnapshotsTakenWhileRowsAreHeld: a transaction that keeps its snapshots does not go on with rows that arrive after they were taken, whether it has waited for them or not; nor is it refused anything if nobody else has them afterwards.
func TestSnapshotsTakenWhileRowsAreHeld(t *testing.T) {
	t.Parallel()
	w, publish := announced(t)
	here, there := w.key(t, 1, 1), w.key(t, 2, 1)
	const timed = "SELECT count(*) FROM orders WHERE id = $1 AND now() > '2000-01-01'"
	for name, becomes := range map[string]func() []topology.RangeSpec{"moved": w.swapped, "taken back": func() []topology.RangeSpec { return w.m.Keyspace("main").Spec().Ranges }} {
		publish(w.held())
		waits := map[string]chan error{}
		conns := map[string]*pgx.Conn{}
		for _, level := range []string{"REPEATABLE READ", "READ COMMITTED"} {
			for _, second := range []string{readOrder, timed, "later"} {
				conn, ended := w.client(t), make(chan error, 1)
				execute(t, conn, "BEGIN ISOLATION LEVEL "+level)
				execute(t, conn, readOrder, there)
				if second == "later" {
					conns[level] = conn
					continue
				}
				go func() { ended <- conn.QueryRow(t.Context(), second, here).Scan(new(int)) }()
				waits[level+" "+second] = ended
			}
		}
		time.Sleep(100 * time.Millisecond)
		publish(becomes())
		results := map[string]error{}
		for what, ended := range waits {
			results[what] = <-ended
		}
		for level, conn := range conns {
			_, results[level+" later"] = conn.Exec(t.Context(), readOrder, here)
		}
		for what, err := range results {
			if name == "moved" && strings.HasPrefix(what, "REPEATABLE READ") {
				wantMoved(t, name+": "+what, err)
			} else if err != nil {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
		publish(w.m.Keyspace("main").Spec().Ranges)
	}
}

// TestWhatIsBoundToNothingWaits: a statement that runs on a shard because the client says so, and one that foreign keys may carry on to rows that are held.
func TestWhatIsBoundToNothingWaits(t *testing.T) {
	t.Parallel()
	w, publish := announced(t)
	keyed := func(sql string) string {
		return fmt.Sprintf("SET cleave.shard_key = '%d'; %s; RESET cleave.shard_key", w.key(t, 1, 1), sql)
	}
	publish(w.held())
	held := w.published.Load()
	ended := make(chan error)
	statements := []string{
		"/* cleave: shard=s1 */ UPDATE orders SET note = 'x'", "/* cleave: shard=s2 */ SELECT count(*) FROM orders", keyed("UPDATE orders SET note = 'y'"), keyed("PREPARE p AS SELECT count(*) FROM orders; EXECUTE p"),
		// Each has rows of its own: they run at the same time in the end.
		"UPDATE countries SET name = 'x' WHERE code = 'u'", "DELETE FROM countries WHERE code = 'd'", "INSERT INTO countries VALUES ('a', 'b') ON CONFLICT (code) DO UPDATE SET name = excluded.name",
		"PREPARE p AS DELETE FROM countries WHERE code = 'p'; EXECUTE p",
	}
	for _, sql := range statements {
		conn := w.client(t)
		go func() {
			_, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
			if err != nil {
				err = fmt.Errorf("%s: %w", sql, err)
			}
			ended <- err
		}()
	}
	execute(t, w.client(t), "INSERT INTO countries VALUES ('c', 'd')")
	waiting := len(statements)
	for soon := time.After(300 * time.Millisecond); soon != nil; {
		select {
		case err := <-ended:
			t.Errorf("a statement did not wait: %v", err)
			waiting--
		case <-soon:
			soon = nil
		}
	}
	if !w.server.isSettled(held, []string{"main"}) {
		t.Error("who waits goes by the newer map, and the router does not say so")
	}
	publish(w.m.Keyspace("main").Spec().Ranges)
	for range waiting {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestWhatAClientLeftBehindIsWaitedFor: a session ends in the middle of a statement, which its server still commits. Until then the router does not say that it has settled.
func TestWhatAClientLeftBehindIsWaitedFor(t *testing.T) {
	t.Parallel()
	w, publish := announced(t)
	here := w.key(t, 1, 1)
	execute(t, w.client(t), "INSERT INTO orders VALUES ($1)", here)
	leaves, ended := w.client(t), make(chan error, 1)
	go func() {
		_, err := leaves.Exec(t.Context(), "UPDATE orders SET note = 'left' || pg_sleep(0.8)::text WHERE id = $1", here)
		ended <- err
	}()
	time.Sleep(200 * time.Millisecond)
	publish(w.held())
	sessions := func() (all []*session) {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		return slices.Collect(maps.Values(w.server.sessions))
	}
	for _, s := range sessions() {
		s.kill()
	}
	if err := <-ended; err == nil {
		t.Error("the client heard that it has written")
	}
	eventually(t, "the session is gone", func() bool { return len(sessions()) == 0 })
	if w.server.isSettled(w.published.Load(), []string{"main"}) {
		t.Error("the router says that it has settled, and what it has sent is still to be committed")
	}
	eventually(t, "the router settles", func() bool { return w.server.isSettled(w.published.Load(), []string{"main"}) })
	publish(w.m.Keyspace("main").Spec().Ranges)
	var note string
	if err := w.client(t).QueryRow(t.Context(), "SELECT note FROM orders WHERE id = $1", here).Scan(&note); err != nil || note != "left" {
		t.Errorf("by when it has settled the row has %q, %v", note, err)
	}
}

// TestWhatWasUsedUnseenIsWaitedFor: a transaction whose statements name what they use in another place is waited for as all others are.
func TestWhatWasUsedUnseenIsWaitedFor(t *testing.T) {
	t.Parallel()
	w, publish := announced(t)
	here := w.key(t, 1, 1)
	execute(t, w.client(t), "INSERT INTO orders VALUES ($1)", here)
	began := map[string]*pgx.Conn{}
	for _, sql := range []string{
		fmt.Sprintf("BEGIN; PREPARE p AS UPDATE orders SET note = 'x' WHERE id = %d; EXECUTE p", here),
		fmt.Sprintf("PREPARE p AS SELECT count(*) FROM orders WHERE id = %d AND now() > $1; BEGIN; SELECT count(*) FROM countries; EXECUTE p ('2000-01-01')", here),
		"BEGIN; DELETE FROM countries",
	} {
		began[sql] = w.client(t)
		if _, err := began[sql].PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		publish(w.held())
		if w.server.isSettled(w.published.Load(), []string{"main"}) {
			t.Errorf("%s: the router says that it has settled", sql)
		}
		execute(t, began[sql], "ROLLBACK")
		eventually(t, "the router settles", func() bool { return w.server.isSettled(w.published.Load(), []string{"main"}) })
		publish(w.m.Keyspace("main").Spec().Ranges)
	}
}

// TestAViewIsRefreshedByTheMapOfItsTurn: who has waited for another's turn reads where rows are by then.
//
//nolint:misspell // it is SQL
func TestAViewIsRefreshedByTheMapOfItsTurn(t *testing.T) {
	t.Parallel()
	w, publish := announced(t)
	first, second, home := w.client(t), w.client(t), w.onShard(t, 1)
	here, ranges := w.key(t, 1, 1), w.m.Keyspace("main").Spec().Ranges
	for i := range ranges {
		ranges[i].Shard = "s1"
	}
	publish(ranges) // so that the other shard is not asked
	execute(t, first, "INSERT INTO orders VALUES ($1, 'x')", here)
	execute(t, first, "CREATE MATERIALIZED VIEW notes AS SELECT id, note FROM orders")
	execute(t, home, "BEGIN")
	execute(t, home, "SELECT pg_advisory_xact_lock($1 + 'notes'::regclass::oid::bigint)", int64(refreshLocks)) // as who refreshes it has
	ended := make(chan error, 1)
	go func() {
		_, err := second.Exec(t.Context(), "REFRESH MATERIALIZED VIEW notes")
		ended <- err
	}()
	eventually(t, "the second waits for its turn", func() bool {
		return one[int](t, home, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") > 0
	})
	execute(t, w.onShard(t, 2), "SET session_replication_role = replica; INSERT INTO orders VALUES ("+text(here)+", 'x')")
	execute(t, w.onShard(t, 1), "SET session_replication_role = replica; DELETE FROM orders")
	for i := range ranges {
		ranges[i].Shard = "s2"
	}
	publish(ranges)
	execute(t, home, "COMMIT")
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := one[int](t, second, "SELECT count(*) FROM notes"); n != 1 {
		t.Errorf("the view has %d rows of one", n)
	}
}

// TestASessionSaysTheVersionThatItGoesBy, not that of a map which comes while it looks at the one before.
func TestASessionSaysTheVersionThatItGoesBy(t *testing.T) {
	t.Parallel()
	var looks atomic.Int64
	var now, next atomic.Pointer[topology.Map]
	w, _ := announcedIn(t, worldConfig{config: Config{Map: func() *topology.Map {
		m := now.Load()
		if looks.Add(-1) == 0 {
			now.Store(next.Load())
		}
		return m
	}}})
	here := w.key(t, 1, 1)
	newer := must[*topology.Map](t)(w.m.Next(topology.ReplaceRanges("main", w.swapped(), topology.Assignment{})))
	now.Store(w.m)
	shard := w.onShard(t, 1)
	execute(t, shard, "SET session_replication_role = replica; INSERT INTO orders VALUES ("+text(here)+")")
	next.Store(newer)
	conn := w.client(t)
	execute(t, conn, "UPDATE orders SET note = 'before' WHERE id = $1", here)
	execute(t, shard, "BEGIN; UPDATE orders SET note = 'x'")
	var settled atomic.Bool
	looked := make(chan struct{})
	looking, enough := context.WithCancel(t.Context())
	go func() {
		defer close(looked)
		for looking.Err() == nil && !settled.Load() {
			settled.Store(now.Load() == newer && w.server.isSettled(newer, []string{"main"})) // in this order: before it there is nothing to settle
		}
	}()
	ended := make(chan error, 1)
	looks.Store(1)
	go func() {
		_, err := conn.PgConn().Exec(t.Context(), "UPDATE orders SET note = 'y' WHERE id = "+text(here)+strings.Repeat(" AND (note IS NULL OR note <> 'z')", 2000)).ReadAll() // planning it takes its time
		ended <- err
	}()
	eventually(t, "it waits for a lock where the row was", func() bool {
		return one[int](t, w.onShard(t, 1), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") > 0
	})
	enough()
	<-looked
	if settled.Load() {
		t.Error("a statement goes by the older map, and the router says that it has settled")
	}
	execute(t, shard, "ROLLBACK")
	if err := <-ended; err != nil {
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
