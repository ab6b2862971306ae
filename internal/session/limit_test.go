package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestLimitsOverSeveralShards: any rows will do, but not more than asked for, and the tag counts what the client has got.
func TestLimitsOverSeveralShards(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{})
	for _, address := range []string{w.address, w.plain.Addr()} {
		c := dialRaw(t, address, nil)
		for number := 1; number <= 2; number++ {
			for n := range 4 {
				c.query(fmt.Sprintf("INSERT INTO orders VALUES (%d, 'x')", w.key(t, number, n)))
			}
		}
	}
	read := "SELECT note FROM orders WHERE note = 'x' LIMIT %s"
	for _, limit := range []string{"0", "1", "3", "4", "5", "7", "8", "9", "100", "'6'", "-1", "9223372036854775807"} {
		sql := fmt.Sprintf(read, limit)
		w.sameAsPlain(t, query(sql), query(sql+"; SELECT 1"), sent(pipeline(unnamed(sql), sync1)...), query("BEGIN"), query(sql), query("COMMIT"))
	}
	bound := fmt.Sprintf(read, "$1")
	for _, limit := range []string{"0", "3", "8", "20", "-1"} {
		w.sameAsPlain(t, sent(pipeline(unnamed(bound, limit), unnamed("SELECT note FROM orders"), unnamed(bound, "1"), sync1)...))
	}
	w.sameAsPlain(t, sent(parse("s", bound), bind("one", "s", "1"), bind("two", "s", "5"), run("two"), run("one"), sync1))
	w.sameAsPlain(t, texts("PREPARE p (bigint) AS "+bound, "EXECUTE p(3)", "EXECUTE p(0)", "PREPARE q AS "+fmt.Sprintf(read, "5"), "EXECUTE q", "EXECUTE p(NULL)")...)
	w.sameAsPlain(t, query("SELECT note FROM orders FETCH FIRST 5 ROWS ONLY"), query("SELECT o.note FROM orders o JOIN orders p ON p.id = o.id LIMIT 5"), query("SELECT note FROM orders LIMIT 3 OFFSET 1"))
	client := w.client(t)
	for _, n := range []any{int64(5), int32(5), int16(5)} {
		rows := must[[]string](t)(pgx.CollectRows(must[pgx.Rows](t)(client.Query(t.Context(), bound, n)), pgx.RowTo[string]))
		if len(rows) != 5 {
			t.Errorf("%T: %d rows", n, len(rows))
		}
	}
	c := dialRaw(t, w.address, nil)
	for _, sql := range []string{"SELECT note FROM orders LIMIT 2.5", "SELECT note FROM orders LIMIT 3 FOR UPDATE"} {
		if said := strings.Join(c.query(sql), "\n"); !strings.Contains(said, "0A000") {
			t.Errorf("%s: %s", sql, said)
		}
	}
	if said := strings.Join(c.query("EXPLAIN (COSTS OFF) SELECT note FROM orders LIMIT 1"), "\n"); strings.Contains(said, "ERROR") || strings.Count(said, "Limit") != 2 {
		t.Errorf("EXPLAIN: %s", said)
	}
}

// TestLimitsThatLeaveOutNothing: LIMIT ALL, LIMIT NULL and OFFSET 0 are as if they were not there, and any other OFFSET leaves out rows of all
// shards together, whoever has planned the statement before.
func TestLimitsThatLeaveOutNothing(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{})
	for _, address := range []string{w.address, w.plain.Addr()} {
		c := dialRaw(t, address, nil)
		for number := 1; number <= 2; number++ {
			for n := range 4 {
				c.query(fmt.Sprintf("INSERT INTO orders VALUES (%d, 'x')", w.key(t, number, n)))
			}
		}
	}
	const read = "SELECT note FROM orders WHERE note = 'x' "
	for _, rest := range []string{"LIMIT ALL", "LIMIT NULL", "OFFSET 0", "OFFSET NULL", "LIMIT ALL OFFSET 0", "LIMIT 3 OFFSET 0", "OFFSET 0 ROWS FETCH NEXT 5 ROWS ONLY", "OFFSET 0 FOR UPDATE", "OFFSET -1"} {
		sql := read + rest
		if rest == "OFFSET 0" {
			w.sameAsPlain(t, query(read+"OFFSET 3")) // of the same shape, and planned first
		}
		w.sameAsPlain(t, query(sql), query(sql+"; SELECT 1"), sent(pipeline(unnamed(sql), sync1)...), query("BEGIN"), query(sql), query("COMMIT"), query("PREPARE p AS "+sql), query("EXECUTE p"))
	}
	w.sameAsPlain(t, texts(read+"OFFSET 3", read+"LIMIT 3 OFFSET 1", read+"LIMIT 3 OFFSET 6", read+"OFFSET 9", read+"OFFSET 'x'")...)
	bound := read + "LIMIT $1 OFFSET $2"
	w.sameAsPlain(t, sent(pipeline(unnamed(bound, "3", "0"), unnamed(bound, "100", "0"), sync1)...), sent(pipeline(unnamed(bound, "3", "-1"), sync1)...))
	w.sameAsPlain(t, texts("PREPARE p (bigint, bigint) AS "+bound, "EXECUTE p(3, 0)", "EXECUTE p(NULL, NULL)")...)
	w.sameAsPlain(t, sent(pipeline(unnamed(bound, "3", "1"), unnamed(bound, "3", "7"), sync1)...))
	w.sameAsPlain(t, texts("PREPARE p (bigint, bigint) AS "+bound, "EXECUTE p(3, 1)", "EXECUTE p(1 + 2, 7)", "EXECUTE p(-1, 0)")...)
	one := fmt.Sprintf("SELECT note FROM orders WHERE id IN (%d, %d) OFFSET 1", w.key(t, 2, 0), w.key(t, 2, 1))
	w.sameAsPlain(t, query(one), sent(pipeline(unnamed(one), sync1)...))
	for _, sql := range []string{
		"SELECT note FROM (SELECT * FROM orders OFFSET 0) o WHERE note = 'x'",
		// Each is the second of its shard, so at least one is not among the first two of all.
		fmt.Sprintf("SELECT note FROM (SELECT * FROM orders ORDER BY id OFFSET 0) o WHERE id = %d", w.key(t, 1, 1)),
		fmt.Sprintf("SELECT note FROM (SELECT * FROM orders ORDER BY id OFFSET 0) o WHERE id = %d", w.key(t, 2, 1)),
	} {
		w.sameAsPlain(t, query(strings.Replace(sql, "OFFSET 0", "OFFSET 2", 1)), query(sql), query(strings.Replace(sql, "OFFSET 0", "OFFSET 2", 1)))
	}
	client := w.client(t)
	for skipped, want := range map[int64]int{0: 3, 2: 3, 6: 2} {
		rows := must[[]string](t)(pgx.CollectRows(must[pgx.Rows](t)(client.Query(t.Context(), bound, int64(3), skipped)), pgx.RowTo[string]))
		if len(rows) != want {
			t.Errorf("%d rows skipped: %d rows", skipped, len(rows))
		}
	}
	w.settled(t)
}
