package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/topology"
)

// newSteppingWorld has rows on all shards, in tables that statements in steps read.
func newSteppingWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, worldConfig{
		shards: 3,
		setUp: []string{
			`CREATE TABLE words (id bigint PRIMARY KEY, plain text, loose text COLLATE "und-x-icu", amount numeric(8, 3))`,
			"CREATE TYPE moment AS (at timestamp, weight float8)",
			"CREATE TABLE rates (id int PRIMARY KEY, day date, at timestamp, weight float8, span interval)",
			"CREATE TABLE marks (id int PRIMARY KEY, made moment)",
			"CREATE TABLE days (id int PRIMARY KEY, day date, weight float8)",
		},
		tables: []topology.TableSpec{
			{Name: "public.words", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}},
			{Name: "public.rates", Kind: topology.Reference},
			{Name: "public.marks", Kind: topology.Reference},
			{Name: "public.days", Kind: topology.Reference},
		},
	})
	w.sameButOrder(t, texts(
		"INSERT INTO words SELECT i, (ARRAY['b', 'A', 'a', 'B', 'abcdef'])[i % 5 + 1], (ARRAY['b', 'A', 'a', 'B', 'abcdef'])[i % 5 + 1], i / 7.0 FROM generate_series(1, 40) AS i",
		"INSERT INTO orders SELECT i, 'note ' || i % 3 FROM generate_series(1, 40) AS i",
		"INSERT INTO undeclared SELECT i, 'b' || i FROM generate_series(1, 12) AS i")...)
	return w
}

// TestTextsThatDifferInWhatShapesAPlan: literals that are no values (modifiers of types, numbers of outputs) are part of what a plan is kept under, so
// texts that differ in nothing else have plans of their own.
func TestTextsThatDifferInWhatShapesAPlan(t *testing.T) {
	t.Parallel()
	w := newSteppingWorld(t)
	var steps []step
	for _, sql := range []string{
		"SELECT plain::char(%d) AS c, count(*) FROM words GROUP BY 1 ORDER BY 1",
		"SELECT DISTINCT plain::varchar(%d) FROM words ORDER BY 1",
		"SELECT amount::numeric(8, %d) AS n, count(*) FROM words WHERE id < 9 GROUP BY 1 ORDER BY 1",
		"SELECT max('abcdef'::char(%d) || plain) FROM words",
		"SELECT max(plain || 'xyz'::varchar(%d)) FROM words w JOIN undeclared u ON u.a = w.id",
		"SELECT plain, loose COLLATE \"C\" AS l, id FROM words WHERE id < 12 ORDER BY %d, id",
		"SELECT plain, amount > 3 AS big, count(*) FROM words GROUP BY 1, 2 ORDER BY %d, 1, 2",
		"SELECT plain, max(id), count(*) FROM words GROUP BY %d, 1 HAVING count(*) > 1 ORDER BY plain",
		"SELECT DISTINCT ON (%d) plain, id %% 3 AS m FROM words ORDER BY 1, 2",
		"SELECT plain, id %% 2 AS m, id %% 5 AS n FROM words UNION SELECT b, a, a FROM undeclared ORDER BY %d, 1, 2, 3",
	} {
		for _, number := range []int{1, 2, 3} {
			text := fmt.Sprintf(sql, number)
			steps = append(steps, query(text), sent(pipeline(unnamed(text), sync1)...))
		}
	}
	w.sameAsPlain(t, steps...)
}

// TestNamesAndCollationsOfGroups: a group's key is the output of that name, if only a table has the name too, and has the collation that is said, or
// that its column has.
func TestNamesAndCollationsOfGroups(t *testing.T) {
	t.Parallel()
	w := newSteppingWorld(t)
	w.sameAsPlain(t, texts(
		"SELECT plain AS words, count(*) FROM words GROUP BY words ORDER BY 1",
		"SELECT plain AS w, count(*) FROM words w GROUP BY w ORDER BY 1",
		`SELECT plain COLLATE "und-x-icu" AS k, count(*) FROM words GROUP BY k ORDER BY k`,
		`SELECT plain COLLATE "und-x-icu", count(*) FROM words GROUP BY plain COLLATE "und-x-icu" ORDER BY plain COLLATE "und-x-icu"`,
		`SELECT loose COLLATE "C", max(id) FROM words GROUP BY loose COLLATE "C" ORDER BY 1`,
		`SELECT (plain COLLATE "und-x-icu") || '' AS k, count(*) FROM words GROUP BY 1 ORDER BY 1`,
		`SELECT (plain COLLATE "und-x-icu") > 'B', count(*) FROM words GROUP BY 1 ORDER BY 1`,
		`SELECT (loose COLLATE "C") || max(loose), count(*) FROM words GROUP BY loose COLLATE "C" ORDER BY 1`,
		"SELECT loose, count(*) FROM words GROUP BY loose ORDER BY loose",
		"SELECT max(loose), min(loose), max(plain), min(plain) FROM words",
		"WITH x AS (SELECT loose AS l, plain AS p FROM words) SELECT l, count(*) FROM x GROUP BY l ORDER BY l",
		"WITH x AS (SELECT DISTINCT loose AS l FROM words) SELECT x.l, u.a FROM x LEFT JOIN undeclared u ON u.b = x.l ORDER BY x.l",
		"WITH x AS (SELECT loose || '' AS l FROM words WHERE id < 20) SELECT l, rank() OVER (ORDER BY l) FROM x JOIN undeclared u ON u.a = 3 ORDER BY l, 2",
		"WITH x AS (SELECT max(loose) AS l FROM words) SELECT l > 'B', l FROM x, undeclared WHERE a = 1",
		`WITH x AS (SELECT plain COLLATE "und-x-icu" AS l FROM words) SELECT DISTINCT l FROM x ORDER BY l`,
		"SELECT l FROM (SELECT loose AS l FROM words UNION ALL SELECT loose FROM words) x GROUP BY l ORDER BY l",
	)...)
}

// TestOneMomentForAllShards: the current time is the same in all rows of a statement in steps, also in a transaction that came to each shard at another
// time.
func TestOneMomentForAllShards(t *testing.T) {
	t.Parallel()
	w := newSteppingWorld(t)
	client := dialRaw(t, w.address, nil)
	client.query("BEGIN")
	for shard := 1; shard <= 3; shard++ {
		client.query(fmt.Sprintf("SELECT now(), pg_sleep(0.01) FROM orders WHERE id = %d", w.key(t, shard, 0)))
	}
	for _, sql := range []string{
		"SELECT count(DISTINCT t) FROM (SELECT now() AS t FROM orders) x",
		"SELECT count(DISTINCT t) FROM (SELECT CURRENT_TIMESTAMP AS t FROM orders UNION ALL SELECT transaction_timestamp() FROM words) x",
		"SELECT count(*) FROM (SELECT DISTINCT LOCALTIMESTAMP AS t FROM orders o JOIN undeclared u ON u.a = o.id) x",
		"WITH m AS (SELECT DISTINCT now() AS t FROM orders ORDER BY t) SELECT count(*) FROM m",
	} {
		if said := strings.Join(client.query(sql), "\n"); !strings.Contains(said, `row "1"`) {
			t.Errorf("%s: %s", sql, said)
		}
	}
	client.query("ROLLBACK")
}

// TestCopiesGetWhatWasWritten: rows that the home shard has written to its copy of a reference table reach the other copies as they are, whatever the
// session's settings make of them as texts; or the statement is refused.
func TestCopiesGetWhatWasWritten(t *testing.T) {
	t.Parallel()
	w := newSteppingWorld(t)
	client := dialRaw(t, w.address, nil)
	for i, settings := range []string{"SET DateStyle = 'German'", "SET DateStyle = 'SQL, DMY'; SET extra_float_digits = -10", "SET IntervalStyle = 'sql_standard'; SET extra_float_digits = 0"} {
		client.query(settings)
		for j, sql := range []string{
			"INSERT INTO days SELECT %d, date '2020-02-03' + count(*)::int, 1.0 / 3 * count(*) FROM orders",
			"INSERT INTO days SELECT %d, date '2020-02-03' + u.a, random() FROM undeclared u WHERE u.a = 5",
			"INSERT INTO rates (id, day, at, weight, span) SELECT %d, '2021-04-05', timestamp '2021-04-05 06:07:08.123456', pi(), interval '1 mon -2 days 3.5 hours' FROM orders LIMIT 1",
		} {
			if said := strings.Join(client.query(fmt.Sprintf(sql, i*10+j)), "\n"); !strings.Contains(said, "INSERT 0 1") {
				t.Errorf("%s, %s: %s", settings, sql, said)
			}
		}
	}
	for i, settings := range []string{"SET DateStyle = 'German'; SET extra_float_digits = 1", "SET DateStyle = 'ISO'; SET extra_float_digits = 0", "SET extra_float_digits = 1", "SET IntervalStyle = 'postgres'"} {
		client.query(settings)
		said := strings.Join(client.query(fmt.Sprintf("INSERT INTO marks SELECT %d, ROW('2021-04-05', random())::moment FROM undeclared WHERE a = 1", i)), "\n")
		if want := []string{"0A000", "0A000", "0A000", "INSERT 0 1"}[i]; !strings.Contains(said, want) {
			t.Errorf("%s: a value that is handed on as a text: %s, want %s", settings, said, want)
		}
	}
	for _, table := range []string{"days", "rates", "marks"} {
		var want string
		for number := 1; number <= 3; number++ {
			var got string
			if err := w.onShard(t, number).QueryRow(t.Context(), "SELECT coalesce(string_agg(x::text, ';' ORDER BY id), '') FROM "+table+" x").Scan(&got); err != nil {
				t.Fatal(err)
			}
			if number == 1 {
				want = got
			}
			if got != want || got == "" {
				t.Errorf("%s: shard %d has\n%s\nand the first one\n%s", table, number, got, want)
			}
		}
	}
}

// TestExplainAnalyzeOfWritesInSteps: it is refused, since it would have to write; EXPLAIN is not.
func TestExplainAnalyzeOfWritesInSteps(t *testing.T) {
	t.Parallel()
	w := newSteppingWorld(t)
	client := dialRaw(t, w.address, nil)
	for _, sql := range []string{
		"INSERT INTO words (id) SELECT a + 1000 FROM undeclared",
		"UPDATE words SET plain = b FROM undeclared WHERE a = amount",
		"DELETE FROM words USING undeclared WHERE a = amount::int",
		"WITH gone AS (DELETE FROM words RETURNING id) SELECT count(*) FROM gone",
	} {
		if said := strings.Join(client.query("EXPLAIN (ANALYZE) "+sql), "\n"); !strings.Contains(said, "0A000") {
			t.Errorf("EXPLAIN ANALYZE %s: %s", sql, said)
		}
		if said := strings.Join(client.query("EXPLAIN "+sql), "\n"); !strings.Contains(said, "in steps") {
			t.Errorf("EXPLAIN %s: %s", sql, said)
		}
	}
	w.sameAsPlain(t, query("SELECT count(*), max(id), max(plain) FROM words"))
}

// TestOneRowIsNotWrittenTwiceByOnConflict: a row that an INSERT in steps meets twice is an error, also if its rows come in more than one portion.
func TestOneRowIsNotWrittenTwiceByOnConflict(t *testing.T) {
	t.Parallel()
	w := newSteppingWorld(t)
	w.sameAsPlain(t, texts(
		"INSERT INTO words (id, plain) SELECT a % 4, b FROM undeclared ON CONFLICT (id) DO UPDATE SET plain = excluded.plain",
		"INSERT INTO words (id, plain) SELECT a % 4 + 1, b FROM undeclared WHERE a < 5 ON CONFLICT (id) DO UPDATE SET plain = excluded.plain",
		"INSERT INTO words (id, plain) SELECT a % 4 + 100, b FROM undeclared ON CONFLICT DO NOTHING",
		"SELECT count(*), max(plain) FROM words",
		fmt.Sprintf("INSERT INTO words (id, plain) SELECT 7 + a %% 2, repeat('x', %d) FROM undeclared WHERE a < 4 ORDER BY a ON CONFLICT (id) DO UPDATE SET plain = left(excluded.plain, 3)", insertBatch/2+1000),
		"SELECT count(*), max(plain) FROM words",
	)...)
}
