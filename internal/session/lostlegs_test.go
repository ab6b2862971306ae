package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// endIdle ends the backends of a shard that are in a transaction and have nothing to do.
func endIdle(t testing.TB, w *world, shard int) {
	t.Helper()
	if n := one[int](t, w.onShard(t, shard), "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"); n != 1 {
		t.Fatalf("%d backends are ended on shard %d", n, shard)
	}
}

// wantRows wants shards to have so many orders each.
func wantRows(t testing.TB, w *world, want ...int) {
	t.Helper()
	for i, n := range want {
		if got := one[int](t, w.onShard(t, i+1), "SELECT count(*) FROM orders"); got != n {
			t.Errorf("shard %d has %d rows, want %d", i+1, got, n)
		}
	}
}

func insertOrder(key int64) string { return fmt.Sprintf("INSERT INTO orders VALUES (%d, 'x')", key) }

// TestAWriterThatBeganUnseen: a shard that wrote before the router knew that it would be one of several is no reader when all are committed.
func TestAWriterThatBeganUnseen(t *testing.T) {
	for name, run := range map[string]func(c *rawClient, first, second string) func() []string{
		"BEGIN in a text": func(c *rawClient, first, second string) func() []string {
			c.query("BEGIN; " + first)
			c.query(second)
			return func() []string { return c.query("COMMIT") }
		},
		"a pipeline that is flushed": func(c *rawClient, first, second string) func() []string {
			for _, sql := range []string{first, second} {
				c.send(pipeline(unnamed(sql), &pgproto3.Flush{})...)
				c.replies(4)
			}
			return func() []string { return c.ask(sync1) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, worldConfig{noPlain: true})
			end := run(dialRaw(t, w.address, nil), insertOrder(w.key(t, 1, 0)), insertOrder(w.key(t, 2, 0)))
			endIdle(t, w, 1)
			if said := strings.Join(end(), " "); !strings.Contains(said, "08006") {
				t.Errorf("the end said %s", said)
			}
			wantRows(t, w, 0, 0)
			w.nothingPrepared(t)
		})
	}
}

// TestALegIsLostByAQuestion: a question of the router's own that finds a shard of the transaction lost ends it, whatever the question was for.
func TestALegIsLostByAQuestion(t *testing.T) {
	w := newWorld(t, worldConfig{noPlain: true, shards: 3})
	c := dialRaw(t, w.address, nil)
	c.send(pipeline(unnamed("INSERT INTO undeclared VALUES (1, 'x')"), unnamed(insertOrder(w.key(t, 2, 0))), &pgproto3.Flush{})...)
	c.replies(8)
	endIdle(t, w, 1)
	wantCodes(t, c.ask(pipeline(unnamed(insertOrder(w.key(t, 3, 0))), sync1)...), "08006", "ready I")
	wantRows(t, w, 0, 0, 0)
	w.nothingPrepared(t)
}
