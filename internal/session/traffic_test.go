package session

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

// TestStatementsAreCountedByRange, once for each of their keys however they come, and for no range if they go everywhere.
func TestStatementsAreCountedByRange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{
		noPlain: true, keyspaces: map[string]string{"dates": "100:integer"}, setUp: []string{"CREATE TABLE days (day integer PRIMARY KEY)"},
		tables: []topology.TableSpec{{Name: "public.days", Kind: topology.Sharded, Keyspace: "dates", Key: []string{"day"}}},
	})
	here, there := w.key(t, 1, 0), w.key(t, 2, 0)
	isSimple := pgx.QueryExecModeSimpleProtocol
	for _, c := range []struct {
		name, keyspace string
		run            func(t *testing.T, conn *pgx.Conn)
		// first and second are what the first shard's range counts and the second's, everywhere what none of them does.
		first, second, everywhere uint64
	}{
		{"by the simple protocol", "main", func(t *testing.T, conn *pgx.Conn) {
			execute(t, conn, fmt.Sprintf("SELECT note FROM orders WHERE id = %d", here), isSimple)
		}, 1, 0, 0},
		{"prepared, three times", "main", func(t *testing.T, conn *pgx.Conn) {
			for range 3 {
				execute(t, conn, "SELECT note FROM orders WHERE id = $1", there)
			}
		}, 0, 3, 0},
		{"several in one text", "main", func(t *testing.T, conn *pgx.Conn) {
			text := "UPDATE orders SET note = 'x' WHERE id = %d; SELECT now(), * FROM orders WHERE id = %d; SELECT 1 FROM orders WHERE id = %d"
			execute(t, conn, fmt.Sprintf(text, here, there, here), isSimple)
		}, 2, 1, 0},
		{"in a transaction", "main", func(t *testing.T, conn *pgx.Conn) {
			execute(t, conn, "BEGIN")
			execute(t, conn, "SELECT now(), note FROM orders WHERE id = $1", there)
			execute(t, conn, "SELECT now(), note FROM orders WHERE id = $1", here)
			execute(t, conn, "COMMIT")
		}, 1, 1, 0},
		{"rows of an INSERT", "main", func(t *testing.T, conn *pgx.Conn) {
			execute(t, conn, "INSERT INTO orders VALUES ($1, 'a'), ($2, 'b')", here, there)
		}, 1, 1, 0},
		{"a list of keys", "main", func(t *testing.T, conn *pgx.Conn) {
			execute(t, conn, "SELECT count(*) FROM orders WHERE id = ANY($1)", []int64{here, there})
		}, 1, 1, 0},
		{"everywhere", "main", func(t *testing.T, conn *pgx.Conn) { execute(t, conn, "DELETE FROM orders") }, 0, 0, 1},
		{"rows of COPY", "main", func(t *testing.T, conn *pgx.Conn) {
			if _, err := conn.PgConn().CopyFrom(t.Context(), strings.NewReader(fmt.Sprintf("%d\ta\n%d\tb\n", here, there)), "COPY orders FROM STDIN"); err != nil {
				t.Fatal(err)
			}
		}, 1, 1, 0},
		{"rows of INSERT ... SELECT", "main", func(t *testing.T, conn *pgx.Conn) {
			execute(t, conn, fmt.Sprintf("INSERT INTO orders SELECT a, b FROM (VALUES (%d::bigint, 'x'), (%d, 'y')) AS v (a, b) ON CONFLICT DO NOTHING", here, there), isSimple)
		}, 1, 1, 0},
		{"no rows of the keyspace", "main", func(t *testing.T, conn *pgx.Conn) { execute(t, conn, "SELECT * FROM countries") }, 0, 0, 0},
		{"raw keys", "dates", func(t *testing.T, conn *pgx.Conn) {
			execute(t, conn, "SELECT * FROM days WHERE day = 99")
			execute(t, conn, "SELECT * FROM days WHERE day = $1", 100)
			execute(t, conn, "SELECT * FROM days WHERE day = $1", 2000)
		}, 1, 2, 0},
		{"between raw keys", "dates", func(t *testing.T, conn *pgx.Conn) {
			execute(t, conn, "SELECT * FROM days WHERE day BETWEEN 50 AND 150")
		}, 0, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := w.server.config.Traffic.Totals(c.keyspace)
			c.run(t, w.client(t))
			after := w.server.config.Traffic.Totals(c.keyspace)
			first, second, everywhere := after.Ranges[0]-before.Ranges[0], after.Ranges[1]-before.Ranges[1], after.Unbound-before.Unbound
			if first != c.first || second != c.second || everywhere != c.everywhere || after.Somewhere > 0 {
				t.Errorf("%d and %d are counted, %d everywhere, and %d somewhere", first, second, everywhere, after.Somewhere)
			}
		})
	}
}

// TestCountsSurviveMaps: a range that is the same in the next map goes on with its number, whoever owns it, and keys count where the newest map has them.
func TestCountsSurviveMaps(t *testing.T) {
	t.Parallel()
	w, publish := announced(t)
	client, counter := w.client(t), w.server.config.Traffic
	const read = "SELECT count(*) FROM orders WHERE id = $1"
	here, there := w.key(t, 1, 0), w.key(t, 2, 0)
	execute(t, client, read, here)
	execute(t, client, read, there)

	ranges := w.m.Keyspace("main").Spec().Ranges
	ranges = append(ranges, topology.RangeSpec{From: topology.Point{"f000000000000000"}, Shard: "s2"}) // cuts the second one
	publish(ranges)
	counter.Follow(w.published.Load(), time.Now())
	execute(t, client, read, here)
	execute(t, client, read, there)
	got := counter.Totals("main").Ranges
	value := must[key.Value](t)(key.OfInt(key.Bigint, there))
	want := []uint64{2, 1, 0}
	if w.m.Keyspace("main").Hash(value) >= 0xf000000000000000 {
		want = []uint64{2, 0, 1}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v are counted, not %v", got, want)
	}

	// A key with a pin does not count for its range.
	pinned := must[*topology.Map](t)(w.published.Load().Next(topology.SetPins("main", topology.PinSpec{Key: topology.Point{strconv.FormatInt(here, 10)}, Shard: "s1"})))
	w.publish(pinned)
	counter.Follow(pinned, time.Now())
	execute(t, client, read, here)
	if totals := counter.Totals("main"); totals.Ranges[0] != 2 || len(totals.Pins) != 1 {
		t.Errorf("%+v are counted", totals)
	}
	for _, n := range counter.Totals("main").Pins {
		if n != 1 {
			t.Errorf("the pin counts %d", n)
		}
	}
}
