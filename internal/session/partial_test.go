package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/thorough"
)

// partlyAnswered wants an answer without an error, with a warning that names the shard, and these rows in any order.
func partlyAnswered(t *testing.T, what string, said []string, shard string, rows ...string) {
	t.Helper()
	var got []string
	warned := 0
	for _, s := range said {
		if strings.HasPrefix(s, "row ") || strings.HasPrefix(s, "data ") {
			got = append(got, s)
		}
		if strings.HasPrefix(s, "WARNING 01000 ") && strings.HasSuffix(s, ": "+shard) {
			warned++
		}
	}
	slices.Sort(got)
	slices.Sort(rows)
	if warned != 1 || !slices.Equal(got, rows) || strings.Contains(strings.Join(said, "\n"), "ERROR") {
		t.Errorf("%s: %q, want a warning of %s and %q", what, said, shard, rows)
	}
}

// TestPartialResults: with cleave.partial_results a read is answered from the shards that are there, the client is told which are not, and nothing else is changed.
func TestPartialResults(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3, noPlain: true, setUp: []string{"INSERT INTO countries VALUES ('de', 'Germany')"}})
	conn := dialRaw(t, w.address, nil)
	keys := []int64{w.key(t, 1, 0), w.key(t, 2, 0), w.key(t, 3, 0)}
	for _, key := range keys {
		conn.query(fmt.Sprintf("INSERT INTO orders VALUES (%d, 'de')", key))
	}
	row := func(values ...any) string {
		texts := make([]string, len(values))
		for i, v := range values {
			texts[i] = fmt.Sprintf("%q", fmt.Sprint(v))
		}
		return "row " + strings.Join(texts, " ")
	}
	known := []string{ // what the home shard was asked about before
		"SELECT id FROM orders", "SELECT id FROM orders ORDER BY id LIMIT 10", "SELECT count(*) FROM orders",
	}
	for _, sql := range known {
		wantCodes(t, conn.query(sql), "", "ready I")
	}
	if err := w.shards[1].Crash(); err != nil {
		t.Fatal(err)
	}
	here, list := []string{row(keys[0]), row(keys[2])}, fmt.Sprintf("(%d, %d, %d)", keys[0], keys[1], keys[2])
	for _, sql := range known {
		lostCodes(t, conn.query(sql), "ready I")
	}
	missing := func() string { return strings.Join(conn.query("SHOW cleave.missing_shards"), "\n") }
	conn.query("SET cleave.partial_results = on")
	for sql, rows := range map[string][]string{
		"SELECT id FROM orders":                                                              here,
		"SELECT id FROM orders WHERE id IN " + list:                                          here,
		"SELECT id FROM orders LIMIT 5":                                                      here,
		"SELECT id FROM orders ORDER BY id LIMIT 10":                                         here,
		"SELECT count(*) FROM orders":                                                        {row(2)},
		"SELECT note, count(*) FROM orders GROUP BY note HAVING count(*) > 1":                {row("de", 2)},
		"SELECT a.id FROM orders a JOIN orders b ON a.note = b.note GROUP BY a.id":           here,
		"SELECT o.id, c.name FROM orders o JOIN countries c ON c.code = o.note ORDER BY id":  {row(keys[0], "Germany"), row(keys[2], "Germany")},
		"COPY (SELECT count(*) FROM orders) TO STDOUT":                                       {`data "2\n"`},
		"COPY orders (id) TO STDOUT":                                                         {fmt.Sprintf(`data "%d\n"`, keys[0]), fmt.Sprintf(`data "%d\n"`, keys[2])},
		"BEGIN; DECLARE c CURSOR FOR SELECT id FROM orders; FETCH ALL FROM c; COMMIT":        here,
		"BEGIN; DECLARE c CURSOR FOR SELECT count(*) FROM orders; FETCH ALL FROM c; COMMIT":  {row(2)},
		"BEGIN; SELECT id FROM orders; COMMIT":                                               here,
		"BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT id FROM orders ORDER BY id; ROLLBACK": here,
		fmt.Sprintf("SELECT count(*), (SELECT count(*) FROM countries) FROM orders a JOIN orders b ON a.note = b.note WHERE a.id IN (%[1]d, %[2]d) AND b.id IN (%[1]d, %[2]d)", keys[1], keys[2]): {row(1, 1)},
		fmt.Sprintf("SELECT count(*), count(c.code), min(c.name) FROM (SELECT note FROM orders WHERE id IN (%d, %d) LIMIT 9) o FULL JOIN countries c ON c.name = o.note", keys[1], keys[2]):       {row(2, 1, "Germany")},
	} {
		said := conn.query(sql)
		partlyAnswered(t, sql, said, "s2", rows...)
		if told := missing(); !strings.Contains(told, `row "s2"`) {
			t.Errorf("after %s: %s", sql, told)
		}
	}
	partlyAnswered(t, "by the protocol", conn.ask(pipeline(unnamed("SELECT id FROM orders"), sync1)...), "s2", here...)
	for _, write := range []string{"UPDATE orders SET note = 'x'", "INSERT INTO undeclared SELECT count(*) FROM orders", "CREATE TABLE kept AS SELECT id FROM orders"} {
		said := strings.Join(conn.ask(pipeline(unnamed("SELECT id FROM orders"), unnamed(write), sync1)...), "\n")
		if !strings.Contains(said, "ERROR 08") || !strings.Contains(said, "WARNING 01000") {
			t.Errorf("%s behind a partial answer: %s", write, said)
		}
		lostCodes(t, conn.query(write), "ready I")
	}
	partlyAnswered(t, "behind another in a pipeline", conn.ask(pipeline(unnamed("SELECT id FROM orders"), unnamed("SELECT 1"), sync1)...), "s2", append([]string{row(1)}, here...)...)
	partlyAnswered(t, "in steps by the protocol", conn.ask(pipeline(unnamed("SELECT count(*) FROM orders"), sync1)...), "s2", row(2))
	partlyAnswered(t, "asked for in the same pipeline", conn.ask(pipeline(unnamed("SELECT id FROM orders"), unnamed("SHOW cleave.missing_shards"), sync1)...), "s2", append([]string{row("s2")}, here...)...)
	partlyAnswered(t, "in portions", conn.ask(parse("", "SELECT id FROM orders"), bind("", ""), runSome("", 1), run(""), sync1), "s2", here...)
	wantCodes(t, conn.query(fmt.Sprintf("SELECT * FROM orders WHERE id = %d", keys[0])), "", "ready I")
	if told := missing(); !strings.Contains(told, `row ""`) {
		t.Errorf("after a whole answer: %s", told)
	}
	for _, sql := range []string{
		fmt.Sprintf("SELECT * FROM orders WHERE id = %d", keys[1]), "SELECT id FROM orders FOR UPDATE", "UPDATE orders SET note = note", "DELETE FROM orders",
		fmt.Sprintf("INSERT INTO orders SELECT id + 1000000, note FROM orders WHERE id IN (%d, %d)", keys[0], keys[1]), "EXPLAIN SELECT id FROM orders",
		"INSERT INTO undeclared SELECT id, note FROM orders", "UPDATE countries SET name = (SELECT min(note) FROM orders)", "EXPLAIN SELECT count(*) FROM orders",
		"SELECT id FROM orders ORDER BY id FOR UPDATE",
	} {
		lostCodes(t, conn.query(sql), "ready I")
	}
	conn.query("BEGIN")
	conn.query(fmt.Sprintf("UPDATE orders SET note = 'de' WHERE id = %d", keys[0]))
	lostCodes(t, conn.query("SELECT id FROM orders"), "ready E")
	conn.query("ROLLBACK")
	wantCodes(t, conn.query("SET cleave.missing_shards = 's1'"), "55P02", "ready I")
	wantCodes(t, conn.query("SET cleave.partial_results = maybe"), "22023", "ready I")
	conn.query("RESET cleave.partial_results")
	lostCodes(t, conn.query("SELECT id FROM orders"), "ready I")
	other := dialRaw(t, w.address, map[string]string{"options": "-c cleave.partial_results=on"})
	partlyAnswered(t, "by options", other.query("SELECT id FROM orders"), "s2", here...)

	if err := w.shards[2].Crash(); err != nil {
		t.Fatal(err)
	}
	lostCodes(t, other.query(fmt.Sprintf("SELECT id FROM orders WHERE id IN (%d, %d)", keys[1], keys[2])), "ready I")
	lostCodes(t, other.query(fmt.Sprintf("SELECT id FROM orders WHERE id IN (%d, %d) ORDER BY id", keys[1], keys[2])), "ready I")
	partlyAnswered(t, "of one shard", other.query("SELECT id FROM orders"), "s2, s3", row(keys[0]))
	w.settled(t)
}

// TestPartialResultsOfARole: a role can have it for all its sessions.
func TestPartialResultsOfARole(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2, noPlain: true, onShards: func(int) []string {
		return []string{"CREATE ROLE web LOGIN SUPERUSER", "ALTER ROLE web SET cleave.partial_results = 'on'"}
	}})
	conn := dialRaw(t, w.address, map[string]string{"user": "web"})
	if said := strings.Join(conn.query("SHOW cleave.partial_results"), "\n"); !strings.Contains(said, `row "on"`) {
		t.Error(said)
	}
	conn.query("SET cleave.partial_results = off")
	if said := strings.Join(conn.query("SHOW cleave.partial_results"), "\n"); !strings.Contains(said, `row "off"`) {
		t.Error(said)
	}
}

// TestAShardEndsInTheMiddle: a shard of whose rows some were used fails the statement; one that had not said anything is left out.
func TestAShardEndsInTheMiddle(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3, noPlain: true})
	conn := dialRaw(t, w.address, map[string]string{"options": "-c cleave.partial_results=on"})
	keys := []int64{w.key(t, 1, 0), w.key(t, 2, 0), w.key(t, 2, 1), w.key(t, 3, 0)}
	for _, key := range keys {
		conn.query(fmt.Sprintf("INSERT INTO orders VALUES (%d, repeat('x', 100000))", key))
	}
	admin, locks := w.onShard(t, 2), w.onShard(t, 2)
	end := func(sql, waits string, messages []pgproto3.FrontendMessage) []string {
		conn.send(messages...)
		waiting := "FROM pg_stat_activity WHERE wait_event_type = '" + waits + "' AND wait_event <> 'ClientRead' AND backend_type = 'client backend'"
		eventually(t, sql+" waits", func() bool { // and not for a moment only
			for range 10 {
				if one[int](t, admin, "SELECT count(*) "+waiting) != 1 {
					return false
				}
				time.Sleep(10 * time.Millisecond)
			}
			return one[bool](t, admin, "SELECT coalesce(bool_and(pg_terminate_backend(pid, 10000)), false) "+waiting)
		})
		return conn.readyTimes(1)
	}
	others := []string{text(keys[0]), text(keys[3])}
	for sql, rows := range map[string][]string{
		"SELECT id FROM orders": others, "SELECT id FROM orders ORDER BY id": others, "SELECT count(*) FROM orders": {"2"},
		fmt.Sprintf("SELECT id FROM orders WHERE id IN (%d, %d)", keys[1], keys[3]): others[1:],
	} {
		for _, messages := range [][]pgproto3.FrontendMessage{{&pgproto3.Query{String: sql}}, pipeline(unnamed(sql), sync1)} {
			conn.query(sql) // so that what it has to know of the shard is known
			execute(t, locks, "BEGIN; LOCK TABLE orders")
			said := end(sql, "Lock", messages)
			execute(t, locks, "ROLLBACK")
			want := make([]string, len(rows))
			for i, r := range rows {
				want[i] = fmt.Sprintf("row %q", r)
			}
			partlyAnswered(t, sql, said, "s2", want...)
			if described := len(slices.DeleteFunc(slices.Clone(said), func(s string) bool { return !strings.HasPrefix(s, "columns") })); described != 1 {
				t.Errorf("%s is described %d times: %q", sql, described, said)
			}
		}
	}
	for n := range 40 {
		conn.query(fmt.Sprintf("INSERT INTO orders VALUES (%d, repeat('x', 3000000))", w.key(t, 2, n+2)))
	}
	for sql, waits := range map[string]string{
		fmt.Sprintf("SELECT id, note, CASE WHEN id = %d THEN pg_sleep(100)::text END FROM orders", keys[2]): "Timeout",
		"SELECT id, note FROM orders ORDER BY id":                                                           "Client", // more than fits into all buffers on its way
	} {
		for _, messages := range [][]pgproto3.FrontendMessage{{&pgproto3.Query{String: sql}}, pipeline(unnamed(sql), sync1)} {
			lostCodes(t, end(sql, waits, messages), "ready I")
		}
	}
	w.settled(t)
}
