package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

func TestTimesOfSettings(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "300": 300 * time.Millisecond, "300ms": 300 * time.Millisecond, " 1.5 s ": 1500 * time.Millisecond, "2min": 2 * time.Minute, "1h": time.Hour, "1d": 24 * time.Hour,
		"": 0, "x": 0, "-1": 0, "5 apples": 0,
	} {
		if got := timeoutOf(text); got != want {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
}

// timedWorld has tables that are in two keyspaces, on three shards.
func timedWorld(t *testing.T) (*world, *rawClient) {
	t.Helper()
	w := newWorld(t, worldConfig{
		shards: 3, noPlain: true,
		setUp: []string{
			"CREATE TABLE items (sku text PRIMARY KEY, of bigint)",
			"CREATE ROLE hasty LOGIN SUPERUSER", "ALTER ROLE hasty SET statement_timeout = '600ms'",
		},
		keyspaces: map[string]string{"by_text": "text"},
		tables: []topology.TableSpec{
			{Name: "public.items", Kind: topology.Sharded, Keyspace: "by_text", Key: []string{"sku"}},
		},
	})
	conn := dialRaw(t, w.address, nil)
	for number := 1; number <= 3; number++ {
		conn.query(insertOrder(w.key(t, number, 0)))
	}
	conn.query("INSERT INTO items SELECT 'sku' || g, g FROM generate_series(1, 20) g")
	conn.query("INSERT INTO countries VALUES ('de', 'Germany')")
	return w, conn
}

// nothingRuns waits until no shard does anything for a client.
func (w *world) nothingRuns(t *testing.T, after string) {
	t.Helper()
	for number := range w.shards {
		admin := w.onShard(t, number+1)
		eventually(t, fmt.Sprintf("shard %d does nothing after %s", number+1, after), func() bool {
			return one[int](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND state <> 'idle' AND pid <> pg_backend_pid()") == 0
		})
	}
}

// stuckStatements wait on the second shard as long as somebody has the table there: in parts, merged, finished, in phases, writing in parts and in steps, to copies.
var stuckStatements = map[string]string{
	"SELECT * FROM orders":                                                 "orders",
	"SELECT * FROM orders ORDER BY id":                                     "orders",
	"SELECT count(*) FROM orders":                                          "orders",
	"SELECT id FROM orders WHERE id IN %s":                                 "orders",
	"COPY orders TO STDOUT":                                                "orders",
	"COPY (SELECT count(*) FROM orders) TO STDOUT":                         "orders",
	"SELECT o.id, i.sku FROM orders o JOIN items i ON i.of = o.id":         "items",
	"UPDATE orders SET note = 'y'":                                         "orders",
	"UPDATE orders SET note = i.sku FROM items i WHERE i.of = orders.id":   "orders",
	"UPDATE orders SET note = (SELECT min(sku) FROM items)":                "items",
	"INSERT INTO orders SELECT of + 1000, sku FROM items":                  "orders",
	"INSERT INTO orders SELECT of + 1000, min(sku) FROM items GROUP BY of": "items",
	"UPDATE countries SET name = 'x'":                                      "countries",
	"UPDATE countries SET name = random()::text":                           "countries",
	"DELETE FROM orders":                                                   "orders",
	"DECLARE c CURSOR WITH HOLD FOR SELECT count(*) FROM orders":           "orders",
	"UPDATE orders SET id = id + 1000":                                     "orders",
}

// whileLocked runs what is given with a table of the second shard in somebody else's hands.
func (w *world) whileLocked(t *testing.T, table string, run func()) {
	t.Helper()
	locks := w.onShard(t, 2)
	execute(t, locks, "BEGIN; LOCK TABLE "+table)
	run()
	execute(t, locks, "ROLLBACK")
}

// TestStatementTimeout: a statement over several shards ends when its time is over, with PostgreSQL's error, nothing of it goes on, and the session does.
func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	w, conn := timedWorld(t)
	list := fmt.Sprintf("(%d, %d)", w.key(t, 1, 0), w.key(t, 2, 0))
	for sql, table := range stuckStatements {
		sql = strings.ReplaceAll(sql, "%s", list)
		for _, messages := range [][]pgproto3.FrontendMessage{{&pgproto3.Query{String: sql}}, pipeline(unnamed(sql), sync1)} {
			conn.query("SET statement_timeout = '300ms'")
			w.whileLocked(t, table, func() {
				said := conn.ask(messages...)
				wantCodes(t, said, "57014", "ready I")
				if all := strings.Join(said, "\n"); !strings.Contains(all, "canceling statement due to statement timeout") {
					t.Errorf("%s: %s", sql, all)
				}
				conn.query("SET statement_timeout = 0")
				wantCodes(t, conn.query("SELECT 1"), "", "ready I")
			})
			w.nothingRuns(t, sql)
		}
	}
	w.settled(t)
}

// TestStatementTimeoutOfAllSteps: the time is that of the whole statement, however many steps that has.
func TestStatementTimeoutOfAllSteps(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w, conn := timedWorld(t)
	sql := "UPDATE orders SET note = i.sku FROM items i WHERE i.of = orders.id"
	first, second, admin := w.onShard(t, 2), w.onShard(t, 2), w.onShard(t, 2)
	for _, c := range []*rawClient{conn, dialRaw(t, w.address, map[string]string{"user": "hasty"})} {
		if c == conn {
			conn.query("SET statement_timeout = '0.6s'")
		}
		execute(t, first, "BEGIN; LOCK TABLE items")
		execute(t, second, "BEGIN; LOCK TABLE orders")
		c.send(&pgproto3.Query{String: sql})
		eventually(t, "the statement waits", func() bool {
			return one[int](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == 1
		})
		time.Sleep(300 * time.Millisecond) // neither step takes as long as the statement may, and both together take longer
		execute(t, first, "ROLLBACK")
		time.Sleep(500 * time.Millisecond)
		execute(t, second, "ROLLBACK")
		wantCodes(t, c.readyTimes(1), "57014", "ready I")
	}
	conn.query("RESET statement_timeout")
	wantCodes(t, conn.query(sql), "", "ready I")
	w.settled(t)
}

// TestLockTimeout: so does lock_timeout end a wait for a lock on any shard.
func TestLockTimeout(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w, conn := timedWorld(t)
	list := fmt.Sprintf("(%d, %d)", w.key(t, 1, 0), w.key(t, 2, 0))
	conn.query("SET lock_timeout = '100ms'")
	for sql, table := range stuckStatements {
		sql = strings.ReplaceAll(sql, "%s", list)
		w.whileLocked(t, table, func() { wantCodes(t, conn.query(sql), "55P03", "ready I") })
		w.nothingRuns(t, sql)
	}
	w.settled(t)
}

// TestCancelInSteps: a request to cancel ends a statement in whichever step it is.
func TestCancelInSteps(t *testing.T) {
	t.Parallel()
	w, conn := timedWorld(t)
	list := fmt.Sprintf("(%d, %d)", w.key(t, 1, 0), w.key(t, 2, 0))
	admin := w.onShard(t, 2)
	for sql, table := range stuckStatements {
		sql = strings.ReplaceAll(sql, "%s", list)
		w.whileLocked(t, table, func() {
			conn.send(&pgproto3.Query{String: sql})
			eventually(t, sql+" waits", func() bool {
				return one[int](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == 1
			})
			w.cancel(t, conn.pid, conn.secret)
			said := conn.readyTimes(1)
			wantCodes(t, said, "57014", "ready I")
			if all := strings.Join(said, "\n"); !strings.Contains(all, "canceling statement due to user request") {
				t.Errorf("%s: %s", sql, all)
			}
		})
		w.nothingRuns(t, sql)
	}
	w.settled(t)
}

// TestIdleInTransactionTimeout: a transaction over several shards that is idle for too long is over on all of them, and the client is told with its next statement.
func TestIdleInTransactionTimeout(t *testing.T) {
	t.Parallel()
	w, conn := timedWorld(t)
	conn.query("SET idle_in_transaction_session_timeout = '100ms'")
	conn.query("BEGIN")
	conn.query("UPDATE orders SET note = 'idle'")
	w.nothingRuns(t, "a transaction that was idle for too long")
	if said := strings.Join(conn.query("SELECT count(*) FROM orders"), "\n"); !strings.Contains(said, "ERROR 08006") && !strings.Contains(said, "ERROR 25P03") || !strings.HasSuffix(said, "ready E") {
		t.Error(said) // the server's word may be lost with its connection
	}
	wantCodes(t, conn.query("ROLLBACK"), "", "ready I")
	if said := strings.Join(conn.query("SELECT count(*) FROM orders WHERE note = 'idle'"), "\n"); !strings.Contains(said, `row "0"`) {
		t.Error(said)
	}
	w.settled(t)
}

// TestSleepingShards: statements that sleep end by the clock as well, wherever they sleep.
func TestSleepingShards(t *testing.T) {
	t.Parallel()
	w, conn := timedWorld(t)
	conn.query("SET statement_timeout = '300ms'")
	for _, sql := range []string{"SELECT pg_sleep(20), * FROM orders", "SELECT count(*) FROM orders, pg_sleep(20)", "SELECT pg_sleep(20), note, count(*) FROM orders GROUP BY note", "SELECT id FROM orders WHERE pg_sleep(20) IS NOT NULL ORDER BY id LIMIT 1"} {
		wantCodes(t, conn.query(sql), "57014", "ready I")
		w.nothingRuns(t, sql)
	}
	conn.query("RESET statement_timeout")
	w.settled(t)
}
