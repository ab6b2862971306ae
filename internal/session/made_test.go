package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// itemsSQL makes a table of many types, and items its declaration.
var (
	itemsSQL = []string{
		"CREATE TYPE mood AS ENUM ('fine', 'sad')", "CREATE DOMAIN short AS varchar(9) CHECK (VALUE <> 'no')", "CREATE TYPE pair AS (a int, b text)",
		`CREATE TABLE items (id bigint PRIMARY KEY, name varchar(10), code text COLLATE "C", price numeric(8, 2), how mood, why short, two pair, tags text[], body jsonb, at timestamptz, on_day date, raw bytea, ok boolean, at_home char(4))`,
	}
	items       = topology.TableSpec{Name: "public.items", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}}
	itemsFilled = `INSERT INTO items VALUES (1, 'one', 'a', 1.25, 'fine', 'x', '(1,"a b")', '{a,"b c"}', '{"a": 1}', '2020-02-03 04:05:06.789+01', '2020-02-03', '\x00ff', true, 'a'),
		(2, 'two', 'B', 2, 'sad', NULL, NULL, '{}', '[]', NULL, 'infinity', '', false, 'bb'), (3, 'three', 'b', NULL, NULL, 'y', '(,)', NULL, NULL, '-infinity', NULL, NULL, NULL, NULL),
		(4, NULL, NULL, 1e5, 'fine', 'z', '(4,)', '{NULL}', 'null', 'epoch', '4000-01-01', '\x61', true, ''), (5, 'five', 'c', -7.1, 'sad', 'y', NULL, NULL, '"x"', now(), '1999-12-31', NULL, false, 'cccc')`
)

// columnsSaid asks what the catalogue says of the columns of t.
const columnsSaid = "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attcollation::regcollation::text, a.attnotnull FROM pg_attribute a WHERE a.attrelid = 't'::regclass AND a.attnum > 0 ORDER BY a.attnum"

// TestTablesAreMadeOfQueries: a table that is made of rows of several shards is what PostgreSQL makes of them.
func TestTablesAreMadeOfQueries(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	filled := []string{itemsFilled, "INSERT INTO orders VALUES (1, 'x'), (2, 'y'), (3, 'x'), (4, NULL), (5, 'z')", "INSERT INTO countries VALUES ('x', 'X-land'), ('y', 'Y-land')", "INSERT INTO undeclared VALUES (1, 'x'), (3, 'q')"}
	for name, sql := range map[string][]string{
		"all types":      {"CREATE TABLE t AS SELECT * FROM items", "SELECT id, name, code, price, how, why, two, tags, body, on_day, raw, ok, at_home FROM t", columnsSaid, "INSERT INTO t (why) VALUES ('no')", "SELECT count(*), max(id) FROM t"},
		"computed":       {"CREATE TABLE t AS SELECT how, count(*) AS n, sum(price), avg(price) a, max(name) m, 'lit' AS l, NULL AS nothing FROM items GROUP BY how", "SELECT * FROM t", columnsSaid},
		"one shard":      {"CREATE TABLE t AS SELECT * FROM orders WHERE id = 3", "SELECT * FROM t", columnsSaid},
		"some keys":      {"CREATE TABLE t AS SELECT * FROM orders WHERE id IN (1, 2, 3)", "SELECT * FROM t"},
		"limited":        {"CREATE TABLE t AS SELECT id FROM orders ORDER BY id DESC LIMIT 2 OFFSET 1", "SELECT * FROM t"},
		"joined":         {"CREATE TABLE t AS SELECT o.id, i.name, u.b, c.name AS country FROM orders o JOIN items i ON o.id = i.id + 1 LEFT JOIN undeclared u ON u.a = o.id LEFT JOIN countries c ON c.code = o.note", "SELECT * FROM t", columnsSaid},
		"of references":  {"CREATE TABLE t AS SELECT * FROM countries", "SELECT * FROM t", columnsSaid, "SELECT * INTO t2 FROM countries WHERE code = 'x'", "SELECT * FROM t2"},
		"no data":        {"CREATE TABLE t AS SELECT * FROM orders WITH NO DATA", "SELECT * FROM t", columnsSaid, "CREATE TABLE t2 AS SELECT * FROM orders WITH DATA", "SELECT * FROM t2"},
		"columns":        {"CREATE TABLE t (a, b) AS SELECT * FROM orders", "SELECT a, b FROM t", "CREATE TABLE t2 (a, b, c) AS SELECT * FROM orders", "CREATE TABLE t3 (a) AS SELECT * FROM orders", "SELECT * FROM t3"},
		"if not there":   {"CREATE TABLE IF NOT EXISTS t AS SELECT * FROM orders", "CREATE TABLE IF NOT EXISTS t AS SELECT * FROM orders", "SELECT * FROM t", "CREATE TABLE t AS SELECT * FROM orders", "CREATE TABLE IF NOT EXISTS orders AS SELECT 1/0 FROM items"},
		"unlogged":       {"CREATE UNLOGGED TABLE t WITH (fillfactor = 50) AS SELECT * FROM orders", "SELECT * FROM t", "SELECT relpersistence, reloptions FROM pg_class WHERE relname = 't'"},
		"into":           {"SELECT id, note INTO t FROM orders WHERE id > 1", "SELECT * FROM t", columnsSaid, "SELECT note INTO UNLOGGED TABLE public.t2 FROM orders UNION SELECT code FROM items", "SELECT * FROM t2", "WITH x AS (SELECT * FROM orders) SELECT x.id into t4 FROM x, items i WHERE i.id = x.id + 1", "SELECT * FROM t4", `SELECT 1 AS a INTO "T 5" FROM orders`, `TABLE "T 5"`},
		"wrong":          {"CREATE TABLE t AS SELECT nosuch FROM orders", "CREATE TABLE t AS SELECT 1/(id - 3) FROM orders", "SELECT * FROM t", "SELECT nosuch INTO t FROM orders", "SELECT id/(id - 3) INTO t FROM orders", "SELECT * FROM t", "CREATE TABLE nosuch.t AS SELECT * FROM orders", "CREATE TABLE t AS SELECT row(1, 2) FROM orders", "CREATE TABLE t AS SELECT id, id FROM orders", "CREATE TABLE t AS SELECT id FROM nosuch", "CREATE TABLE orders AS SELECT * FROM orders", "CREATE TABLE t AS SELECT $1 FROM orders"},
		"no columns":     {"CREATE TABLE t AS SELECT FROM orders", "SELECT count(*) FROM t"},
		"comments":       {"CREATE TABLE t AS -- as\n SELECT id /* into */ FROM orders -- all", "SELECT * FROM t", "SELECT id INTO /* temp */ t2 FROM orders -- all", "SELECT * FROM t2"},
		"in parentheses": {"CREATE TABLE t AS (SELECT id FROM orders ORDER BY 1 LIMIT 3)", "SELECT * FROM t", "CREATE TABLE t2 AS TABLE orders", "SELECT * FROM t2", "CREATE TABLE t3 AS SELECT o.*, o AS whole FROM orders o", "SELECT id, (whole).note FROM t3"},
		"in a transaction": {
			"BEGIN", "INSERT INTO orders VALUES (11, 'new'), (12, 'new'), (13, 'new'), (14, 'new')", "UPDATE items SET name = 'x' WHERE id IN (1, 2)", "CREATE TABLE t AS SELECT * FROM orders", "SELECT * FROM t", "INSERT INTO t VALUES (99, 'more')", "DELETE FROM orders WHERE id = 1", "COMMIT",
			"SELECT * FROM t", "SELECT * FROM orders",
		},
		"rolled back":         {"BEGIN", "INSERT INTO orders VALUES (11, 'new')", "CREATE TABLE t AS SELECT * FROM orders", "SELECT count(*) FROM t", "ROLLBACK", "SELECT * FROM t", "SELECT * FROM orders"},
		"back to a savepoint": {"BEGIN", "SAVEPOINT s", "CREATE TABLE t AS SELECT * FROM orders", "ROLLBACK TO s", "SELECT count(*) FROM orders", "CREATE TABLE t AS SELECT id FROM orders", "SAVEPOINT s2", "CREATE TABLE t AS SELECT id FROM orders", "ROLLBACK TO s2", "COMMIT", "SELECT * FROM t"},
		"in a text":           {"CREATE TABLE t AS SELECT * FROM orders; INSERT INTO t VALUES (77, 'a'); SELECT count(*) FROM t", "SELECT * FROM t", "CREATE TABLE t2 AS SELECT * FROM orders; SELECT 1/0", "SELECT * FROM t2", "SELECT 1; SELECT nosuch INTO t5 FROM orders"},
		"prepared":            {"PREPARE p (bigint, text) AS SELECT id, note, $2 AS two FROM orders WHERE id > $1", "CREATE TABLE t AS EXECUTE p(1 + 1, 'x')", "SELECT * FROM t", columnsSaid, "CREATE TABLE t2 AS EXECUTE p(0, 'y') WITH NO DATA", "SELECT * FROM t2", "CREATE TABLE t3 AS EXECUTE nosuch", "PREPARE q AS SELECT * FROM orders WHERE id = 2", "CREATE TABLE t4 AS EXECUTE q", "SELECT * FROM t4", "CREATE TABLE t5 AS EXECUTE p(1)", "PREPARE h AS SELECT * FROM undeclared", "CREATE TABLE t6 AS EXECUTE h", "SELECT * FROM t6", "PREPARE i AS INSERT INTO undeclared VALUES (5)", "CREATE TABLE t7 AS EXECUTE i"},
		"under settings":      {"SET DateStyle TO German", "CREATE TABLE t AS SELECT on_day, at, price FROM items WHERE id < 5", "SELECT on_day, price FROM t", "SET client_encoding TO LATIN1", "CREATE TABLE t2 AS SELECT code || name FROM items", "SELECT * FROM t2", "SET default_transaction_read_only TO on", "CREATE TABLE t3 AS SELECT * FROM orders", "CREATE TEMP TABLE t4 AS SELECT id FROM orders", "RESET ALL", "SET search_path TO ''", "CREATE TABLE t5 AS SELECT * FROM public.orders", "BEGIN ISOLATION LEVEL REPEATABLE READ", "CREATE TABLE public.t6 AS SELECT * FROM public.orders", "INSERT INTO public.t6 VALUES (5)", "COMMIT", "SELECT * FROM public.t6"},
		"schemas":             {"CREATE SCHEMA a", "SET search_path TO a, public", "CREATE TABLE orders AS SELECT * FROM orders WHERE id < 3", "SELECT * FROM a.orders", "SELECT count(*) FROM public.orders"},
	} {
		t.Run(name, func(t *testing.T) {
			thorough.Some(t, 3)
			w := newWorld(t, worldConfig{shards: 2, setUp: itemsSQL, tables: []topology.TableSpec{items}})
			var steps []step
			for _, text := range slices.Concat(filled, sql) {
				steps = append(steps, query(text))
			}
			w.sameButOrder(t, steps...)
			w.nothingPrepared(t)
		})
	}
}

// TestTemporaryTablesAreMadeOfQueries: they are the session's, and may hide the table that they are made of.
func TestTemporaryTablesAreMadeOfQueries(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2})
	rows := "INSERT INTO orders VALUES (1, 'x'), (2, 'y'), (3, 'x'), (4, NULL), (5, 'z')"
	w.sameButOrder(t, query(rows), query("CREATE TEMP TABLE orders AS SELECT * FROM orders WHERE id > 1"), query("SELECT * FROM pg_temp.orders"), query("INSERT INTO pg_temp.orders VALUES (9, 'mine')"),
		query("SELECT * FROM public.orders"), query("SELECT * INTO LOCAL TEMPORARY TABLE t FROM public.orders o WHERE NOT EXISTS (SELECT FROM public.orders p WHERE p.id = o.id + 1)"), query("SELECT * FROM t, pg_temp.orders WHERE t.id < orders.id"),
		query("CREATE TABLE IF NOT EXISTS pg_temp.t AS SELECT 1 FROM public.orders"), query("CREATE TABLE tt AS SELECT o.id, t.note FROM public.orders o JOIN t ON t.id <> o.id"), query("SELECT * FROM tt"), query("DROP TABLE pg_temp.orders"), query("SELECT count(*) FROM orders"))
	w.sameButOrder(t, query("BEGIN"), query("CREATE TEMP TABLE u ON COMMIT DROP AS SELECT id FROM orders"), query("INSERT INTO orders SELECT id + 100, 'more' FROM u"), query("SELECT * FROM u"), query("COMMIT"), query("SELECT * FROM orders"))
	w.sameButOrder(t, query("SELECT * FROM t"), query("SET search_path TO pg_temp, public"), query("CREATE TABLE v AS SELECT * FROM orders"), query("SELECT * FROM pg_temp.v"))
	w.sameButOrder(t, query("CREATE TEMP TABLE w (id int)"), query("CREATE TABLE w AS SELECT id FROM orders"), query("SELECT * FROM pg_temp.w"), query("SELECT * FROM public.w"))
	w.nothingPrepared(t)
}

// TestTablesAreMadeByTheProtocol: parameters count, and errors come where PostgreSQL has them.
func TestTablesAreMadeByTheProtocol(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2})
	rows := "INSERT INTO orders VALUES (1, 'x'), (2, 'y'), (3, 'x'), (4, NULL), (5, 'z')"
	w.sameButOrder(t, query(rows),
		sent(pipeline(unnamed("CREATE TABLE t AS SELECT id + $1 AS id, note, $2::text AS more FROM orders WHERE id > $1", "2", "m"), sync1)...), query("SELECT * FROM t"),
		sent(pipeline(unnamed("SELECT id, $1::text AS a INTO t2 FROM orders", "m"), unnamed("SELECT count(*) FROM orders"), sync1)...), query("SELECT * FROM t2"),
		sent(pipeline(unnamed("CREATE TABLE t3 AS SELECT id / (id - $1) FROM orders", "3"), sync1)...), query("SELECT * FROM t3"),
		sent(pipeline(unnamed("CREATE TABLE t3 AS SELECT nosuch FROM orders"), sync1)...),
		sent(pipeline(unnamed("CREATE TABLE t4 AS SELECT * FROM orders"), unnamed("SELECT 1/0"), sync1)...), query("SELECT * FROM t4"),
		sent(pipeline(unnamed("CREATE TABLE t5 AS SELECT * FROM orders"), unnamed("INSERT INTO t5 VALUES (7, 'x')"), sync1)...), query("SELECT * FROM t5"),
	)
	w.nothingPrepared(t)
}

// TestLargeTablesAreMadeInPortions: rows that are more than are sent at a time are all stored, once.
func TestLargeTablesAreMadeInPortions(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2})
	c := dialRaw(t, w.address, nil)
	c.query("INSERT INTO orders SELECT i, repeat('x', 2000) || i FROM generate_series(1, 9000) i")
	if said := c.query("CREATE TABLE t AS SELECT * FROM orders"); !slices.Contains(said, "done SELECT 9000") {
		t.Fatal(said)
	}
	if said := c.query("SELECT count(*), count(DISTINCT id), count(DISTINCT note), sum(length(note)) FROM t"); !slices.Contains(said, `row "9000" "9000" "9000" "18034893"`) {
		t.Error(said)
	}
}

// TestNothingIsLeftOfATableHalfMade: whatever ends while a table is made, there is no table, and nothing else of the transaction.
func TestNothingIsLeftOfATableHalfMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2, noPlain: true})
	c := dialRaw(t, w.address, nil)
	c.query("INSERT INTO orders VALUES (1, 'x'), (2, 'y'), (3, 'x'), (4, NULL), (5, 'z')")
	for number := range w.shards {
		c := dialRaw(t, w.address, nil)
		c.query("BEGIN")
		c.query("INSERT INTO orders VALUES (11, 'x'), (12, 'y'), (13, 'x'), (14, NULL), (15, 'z')")
		c.query("CREATE TABLE t AS SELECT * FROM orders")
		execute(t, w.onShard(t, number+1), "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE state = 'idle in transaction' AND pid <> pg_backend_pid()")
		c.query("SELECT count(*) FROM t, orders")
		if said := strings.Join(c.query("COMMIT"), " "); strings.Contains(said, "COMMIT") {
			t.Errorf("without shard %d: %s", number+1, said)
		}
	}
	for number := range w.shards {
		if n := one[int](t, w.onShard(t, number+1), "SELECT count(*) FROM pg_class WHERE relname = 't'"); n != 0 {
			t.Errorf("shard %d has the table", number+1)
		}
	}
	if said := fmt.Sprint(dialRaw(t, w.address, nil).query("SELECT count(*) FROM orders")); !strings.Contains(said, `row "5"`) {
		t.Error(said)
	}
	w.nothingPrepared(t)
}

// TestTablesAreMadeWithRights: the query needs the client's rights, and the table is the client's.
func TestTablesAreMadeWithRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2, setUp: []string{"CREATE ROLE maker", "CREATE SCHEMA mine", "GRANT CREATE, USAGE ON SCHEMA mine TO maker", "GRANT SELECT (id) ON orders TO maker"}})
	w.sameButOrder(t, query("INSERT INTO orders VALUES (1, 'x'), (2, 'y'), (3, 'x')"), query("SET ROLE maker"), query("CREATE TABLE mine.t AS SELECT * FROM orders"), query("CREATE TABLE mine.t AS SELECT id FROM orders"),
		query("SELECT * FROM mine.t"), query("CREATE TABLE public.t AS SELECT id FROM orders"), query("SELECT tableowner FROM pg_tables WHERE tablename = 't'"))
	w.nothingPrepared(t)
}

// TestTablesAreMadeUnderRouterSettings: with cleave.consistent_reads, cleave.fanout and what the router keeps of prepared statements.
func TestTablesAreMadeUnderRouterSettings(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2, noPlain: true})
	c := dialRaw(t, w.address, nil)
	c.query("INSERT INTO orders VALUES (1, 'x'), (2, 'y'), (3, 'x'), (4, NULL), (5, 'z')")
	for _, text := range []string{
		"SET cleave.consistent_reads = on", "CREATE TABLE t AS SELECT * FROM orders", "BEGIN ISOLATION LEVEL REPEATABLE READ", "CREATE TABLE t2 AS SELECT count(*) FROM orders", "COMMIT",
		"CREATE TABLE t3 AS SELECT * FROM t2, orders",
	} {
		if said := fmt.Sprint(c.query(text)); strings.Contains(said, "ERROR") {
			t.Errorf("%s: %s", text, said)
		}
	}
	if said := fmt.Sprint(c.query("SELECT count(*) FROM t3")); !strings.Contains(said, `row "5"`) {
		t.Error(said)
	}
	c.query("PREPARE p AS SELECT * INTO t5 FROM orders")
	for _, text := range []string{"EXECUTE p", "EXPLAIN EXECUTE p", "CREATE TABLE t5 AS EXECUTE p"} {
		if said := fmt.Sprint(c.query(text), c.ask(pipeline(unnamed(text), sync1)...)); strings.Count(said, "0A000")+strings.Count(said, "42809") != 2 {
			t.Errorf("%s: %s", text, said)
		}
	}
	c.query("SET cleave.fanout = off")
	if said := fmt.Sprint(c.query("CREATE TABLE t4 AS SELECT * FROM orders")); !strings.Contains(said, "55000") {
		t.Error(said)
	}
	if said := fmt.Sprint(c.query("CREATE TABLE t4 AS SELECT * FROM orders WHERE id = 1"), c.query("SELECT count(*) FROM t4")); !strings.Contains(said, `row "1"`) {
		t.Error(said)
	}
}
