package session

import (
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestMaterialisedViews: one over several shards is like PostgreSQL's, whatever is done with it.
//
//nolint:misspell // it is SQL
func TestMaterialisedViews(t *testing.T) {
	t.Parallel()
	filled := []string{itemsFilled, "INSERT INTO orders VALUES (1, 'x'), (2, 'y'), (3, 'x'), (4, NULL), (5, 'z')", "INSERT INTO countries VALUES ('x', 'X-land'), ('y', 'Y-land')", "INSERT INTO undeclared VALUES (1, 'x'), (3, 'q')"}
	more := "INSERT INTO orders VALUES (11, 'new'), (12, 'x'), (13, 'new'), (14, 'new')"
	for name, sql := range map[string][]string{
		"of one table":        {"CREATE MATERIALIZED VIEW t AS SELECT * FROM orders", "SELECT * FROM t", columnsSaid, more, "SELECT count(*) FROM t", "REFRESH MATERIALIZED VIEW t", "SELECT * FROM t", "DELETE FROM orders", "REFRESH MATERIALIZED VIEW t", "SELECT * FROM t"},
		"all types":           {"CREATE MATERIALIZED VIEW t AS SELECT * FROM items", "SELECT id, name, code, price, how, why, two, tags, body, on_day, raw, ok, at_home FROM t", columnsSaid, "UPDATE items SET name = 'x', two = '(9,x)'", "REFRESH MATERIALIZED VIEW t", "SELECT id, name, two FROM t"},
		"computed":            {"CREATE MATERIALIZED VIEW t (how, n, total, l) AS SELECT how, count(*), sum(price), 'lit' FROM items GROUP BY 1 HAVING count(*) > 0 -- all", "SELECT * FROM t", columnsSaid, "UPDATE items SET how = 'sad'", "REFRESH MATERIALIZED VIEW t", "SELECT * FROM t"},
		"joined":              {"CREATE MATERIALIZED VIEW t AS SELECT o.id, i.name, u.b, c.name AS country FROM orders o JOIN items i ON o.id = i.id + 1 LEFT JOIN undeclared u ON u.a = o.id LEFT JOIN countries c ON c.code = o.note", "SELECT * FROM t", columnsSaid, "UPDATE undeclared SET b = 'new'", "UPDATE countries SET name = 'new'", "REFRESH MATERIALIZED VIEW t", "SELECT * FROM t"},
		"of references":       {"CREATE MATERIALIZED VIEW t AS SELECT * FROM countries, undeclared", "SELECT * FROM t", "INSERT INTO countries VALUES ('w', 'W-land')", "REFRESH MATERIALIZED VIEW t", "SELECT * FROM t"},
		"read with others":    {"CREATE MATERIALIZED VIEW t AS SELECT note, count(*) AS n FROM orders GROUP BY note", "SELECT o.id, t.n FROM orders o JOIN t ON t.note = o.note", "SELECT * FROM undeclared u JOIN t ON t.note = u.b", "INSERT INTO orders SELECT 100 + n, note FROM t WHERE note = 'z'", "CREATE VIEW over AS SELECT note FROM t", "SELECT * FROM over", "SELECT count(*) FROM orders WHERE note IN (SELECT note FROM t)"},
		"no data":             {"CREATE MATERIALIZED VIEW t AS SELECT * FROM orders WITH NO DATA", "SELECT * FROM t", "REFRESH MATERIALIZED VIEW CONCURRENTLY t", "REFRESH MATERIALIZED VIEW t", "SELECT * FROM t", "REFRESH MATERIALIZED VIEW t WITH NO DATA", "SELECT * FROM t", "REFRESH MATERIALIZED VIEW CONCURRENTLY t WITH NO DATA"},
		"concurrently":        {"CREATE MATERIALIZED VIEW t AS SELECT * FROM orders", "REFRESH MATERIALIZED VIEW CONCURRENTLY t", "CREATE UNIQUE INDEX by_id ON t (id)", more, "DELETE FROM orders WHERE id = 1", "REFRESH MATERIALIZED VIEW CONCURRENTLY t", "SELECT * FROM t", "DROP INDEX by_id", "CREATE INDEX ON t (note)", "REFRESH MATERIALIZED VIEW t", "SELECT * FROM t"},
		"if not there":        {"CREATE MATERIALIZED VIEW IF NOT EXISTS t AS SELECT * FROM orders", "CREATE MATERIALIZED VIEW IF NOT EXISTS t AS SELECT * FROM orders", "CREATE MATERIALIZED VIEW t AS SELECT * FROM orders", "SELECT * FROM t"},
		"renamed and dropped": {"CREATE MATERIALIZED VIEW s WITH (fillfactor = 50) AS SELECT * FROM orders", "ALTER MATERIALIZED VIEW s RENAME TO t", "ALTER MATERIALIZED VIEW t RENAME COLUMN note TO remark", "REFRESH MATERIALIZED VIEW t", "SELECT remark FROM t", "COMMENT ON MATERIALIZED VIEW t IS 'x'", "ANALYZE t", "DROP MATERIALIZED VIEW t", "REFRESH MATERIALIZED VIEW t", "SELECT * FROM t", "DROP MATERIALIZED VIEW IF EXISTS t"},
		"of what changes":     {"CREATE MATERIALIZED VIEW t AS SELECT * FROM orders", "ALTER TABLE orders RENAME COLUMN note TO remark", "ALTER TABLE orders ADD COLUMN total int DEFAULT 7", "INSERT INTO orders VALUES (21, 'new', 8)", "REFRESH MATERIALIZED VIEW t", "SELECT * FROM t", columnsSaid, "ALTER TABLE orders DROP COLUMN remark", "DROP TABLE orders"},
		"wrong":               {"CREATE MATERIALIZED VIEW t AS SELECT nosuch FROM orders", "CREATE MATERIALIZED VIEW t AS SELECT 1/(id - 3) FROM orders", "SELECT * FROM t", "CREATE MATERIALIZED VIEW nosuch.t AS SELECT * FROM orders", "CREATE MATERIALIZED VIEW t AS SELECT row(1, 2) FROM orders", "CREATE MATERIALIZED VIEW t AS SELECT id, id FROM orders", "CREATE TEMP TABLE mine (id int)", "CREATE MATERIALIZED VIEW t AS SELECT o.id FROM orders o JOIN mine ON o.id = mine.id", "CREATE MATERIALIZED VIEW t AS SELECT 1/(id - 3) AS one FROM orders WITH NO DATA", "REFRESH MATERIALIZED VIEW t", "DELETE FROM orders WHERE id = 3", "REFRESH MATERIALIZED VIEW t", "SELECT * FROM t", "REFRESH MATERIALIZED VIEW undeclared"},
		"in a transaction":    {"BEGIN", more, "CREATE MATERIALIZED VIEW t AS SELECT * FROM orders", "SELECT * FROM t", "INSERT INTO orders VALUES (31, 'a'), (32, 'b')", "REFRESH MATERIALIZED VIEW t", "CREATE UNIQUE INDEX ON t (id)", "DELETE FROM orders WHERE id < 3", "REFRESH MATERIALIZED VIEW CONCURRENTLY t", "COMMIT", "SELECT * FROM t", "SELECT * FROM orders", "BEGIN", "DELETE FROM orders", "REFRESH MATERIALIZED VIEW t", "SELECT * FROM t", "ROLLBACK", "SELECT * FROM t"},
		"in a text":           {"CREATE MATERIALIZED VIEW t AS SELECT * FROM orders; CREATE UNIQUE INDEX ON t (id); SELECT count(*) FROM t", "DELETE FROM orders WHERE id = 2; REFRESH MATERIALIZED VIEW CONCURRENTLY t; SELECT count(*) FROM t", "REFRESH MATERIALIZED VIEW t; SELECT 1/0", "SELECT * FROM t"},
		"schemas":             {"CREATE SCHEMA a", "CREATE MATERIALIZED VIEW a.orders AS SELECT * FROM orders WHERE id < 3", "SET search_path TO a, public", "INSERT INTO public.orders VALUES (0, 'zero')", "SELECT * FROM a.orders", "CREATE MATERIALIZED VIEW items AS SELECT count(*) FROM items", "SELECT * FROM items", "SET search_path TO ''", "REFRESH MATERIALIZED VIEW a.items", "SELECT * FROM a.items"},
		"many commons":        {"CREATE MATERIALIZED VIEW t AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT n.i, o.note, rank() OVER (ORDER BY o.note COLLATE \"C\", o.id) FROM n LEFT JOIN orders o ON o.id = n.i UNION ALL (SELECT id, name, 0 FROM items ORDER BY id LIMIT 2)", "SELECT * FROM t", columnsSaid, more, "REFRESH MATERIALIZED VIEW t", "SELECT * FROM t"},
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

// TestMaterialisedViewsByTheProtocol: without parameters, in pipelines.
//
//nolint:misspell // it is SQL
func TestMaterialisedViewsByTheProtocol(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2})
	w.sameButOrder(t, query("INSERT INTO orders VALUES (1, 'x'), (2, 'y'), (3, 'x'), (4, NULL), (5, 'z')"),
		sent(pipeline(unnamed("CREATE MATERIALIZED VIEW t AS SELECT * FROM orders"), sync1)...), query("SELECT * FROM t"),
		sent(pipeline(unnamed("DELETE FROM orders WHERE id = 1"), unnamed("REFRESH MATERIALIZED VIEW t"), unnamed("SELECT count(*) FROM t"), sync1)...), query("SELECT * FROM t"),
		sent(pipeline(unnamed("DELETE FROM orders"), unnamed("REFRESH MATERIALIZED VIEW t"), unnamed("SELECT 1/0"), sync1)...), query("SELECT * FROM t"),
		sent(pipeline(unnamed("CREATE MATERIALIZED VIEW t2 AS SELECT id + $1 FROM orders", "1"), sync1)...), query("SELECT * FROM t2"),
	)
	w.nothingPrepared(t)
}

// TestMaterialisedViewsAndRights: only owners refresh a view, and its query is run with the owner's rights; past the routers nobody does.
//
//nolint:misspell // it is SQL
func TestMaterialisedViewsAndRights(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2, setUp: []string{"CREATE ROLE maker", "CREATE ROLE other", "CREATE SCHEMA mine", "GRANT CREATE, USAGE ON SCHEMA mine TO maker, other", "GRANT SELECT (id) ON orders TO maker", "GRANT SELECT ON orders TO other"}})
	w.sameButOrder(t, query("INSERT INTO orders VALUES (1, 'x'), (2, 'y'), (3, 'x')"), query("SET ROLE maker"), query("CREATE MATERIALIZED VIEW mine.t AS SELECT * FROM orders"),
		query("CREATE MATERIALIZED VIEW public.t AS SELECT id FROM orders"), query("CREATE MATERIALIZED VIEW mine.t AS SELECT id FROM orders"), query("SELECT * FROM mine.t"), query("REFRESH MATERIALIZED VIEW mine.t"),
		query("SET ROLE other"), query("REFRESH MATERIALIZED VIEW mine.t"), query("SELECT * FROM mine.t"), query("RESET ROLE"), query("REVOKE SELECT (id) ON orders FROM maker"),
		query("SET ROLE maker"), query("REFRESH MATERIALIZED VIEW mine.t"), query("SELECT * FROM mine.t"))
	c := dialRaw(t, w.address, nil)
	c.query("DELETE FROM orders")
	if said := strings.Join(c.query("REFRESH MATERIALIZED VIEW mine.t"), " "); !strings.Contains(said, "0A000") {
		t.Errorf("somebody else's view: %s", said)
	}
	home := w.onShard(t, 1)
	execute(t, home, "GRANT SELECT ON orders TO maker")
	if _, err := home.Exec(t.Context(), "REFRESH MATERIALIZED VIEW mine.t"); err == nil || !strings.Contains(err.Error(), "by a router only") {
		t.Errorf("past the router: %v", err)
	}
	if n := one[int](t, home, "SELECT count(*) FROM mine.t"); n != 3 {
		t.Errorf("the view has %d rows", n)
	}
	w.nothingPrepared(t)
}

// TestViewsMadeBeforeTablesWereDeclared: the home shard alone would refresh them with its own rows.
//
//nolint:misspell // it is SQL
func TestViewsMadeBeforeTablesWereDeclared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2, noPlain: true, onShards: func(number int) []string {
		if number == 1 {
			return []string{"CREATE MATERIALIZED VIEW t AS SELECT * FROM orders"}
		}
		return nil
	}})
	c := dialRaw(t, w.address, nil)
	c.query("INSERT INTO orders VALUES (1, 'x'), (2, 'y'), (3, 'x'), (4, NULL), (5, 'z')")
	if said := strings.Join(c.query("REFRESH MATERIALIZED VIEW t"), " "); !strings.Contains(said, "0A000") {
		t.Error(said)
	}
	if said := strings.Join(c.query("SELECT count(*) FROM t"), " "); !strings.Contains(said, `row "0"`) {
		t.Error(said)
	}
}

// TestNothingIsLeftOfARefresh: what ends half way leaves the view as it was.
//
//nolint:misspell // it is SQL
func TestNothingIsLeftOfARefresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2, noPlain: true})
	c := dialRaw(t, w.address, nil)
	c.query("INSERT INTO orders VALUES (1, 'x'), (2, 'y'), (3, 'x'), (4, NULL), (5, 'z')")
	c.query("CREATE MATERIALIZED VIEW t AS SELECT * FROM orders")
	for number := range w.shards {
		c := dialRaw(t, w.address, nil)
		c.query("BEGIN")
		c.query("DELETE FROM orders")
		c.query("REFRESH MATERIALIZED VIEW t")
		execute(t, w.onShard(t, number+1), "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE state = 'idle in transaction' AND pid <> pg_backend_pid()")
		if said := strings.Join(c.query("COMMIT"), " "); strings.Contains(said, "done COMMIT") {
			t.Errorf("without shard %d: %s", number+1, said)
		}
	}
	if said := strings.Join(c.query("SELECT count(*) FROM t"), " "); !strings.Contains(said, `row "5"`) {
		t.Error(said)
	}
	if n := one[int](t, w.onShard(t, 1), "SELECT count(*) FROM pg_class WHERE relname = 'cleave_staged_rows'"); n != 0 {
		t.Error("the rows are left")
	}
	w.nothingPrepared(t)
}

// TestRefreshesTakeTurns: who waits for another refresh of the same view reads when that one has ended, not before.
//
//nolint:misspell // it is SQL
func TestRefreshesTakeTurns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2, noPlain: true})
	first, second, third, home := dialRaw(t, w.address, nil), dialRaw(t, w.address, nil), dialRaw(t, w.address, nil), w.onShard(t, 1)
	third.query("INSERT INTO orders VALUES (1, 'x'), (2, 'y'), (3, 'x'), (4, NULL), (5, 'z')")
	third.query("CREATE MATERIALIZED VIEW t AS SELECT * FROM orders")
	third.query("CREATE UNIQUE INDEX ON t (id)")
	first.query("BEGIN")
	first.query("REFRESH MATERIALIZED VIEW CONCURRENTLY t")
	said := make(chan []string)
	go func() { said <- second.query("REFRESH MATERIALIZED VIEW CONCURRENTLY t") }()
	eventually(t, "the second waits", func() bool {
		return one[int](t, home, "SELECT count(*) FROM pg_locks WHERE NOT granted") > 0
	})
	third.query("INSERT INTO orders VALUES (11, 'new'), (12, 'new'), (13, 'new'), (14, 'new')")
	first.query("COMMIT")
	if said := strings.Join(<-said, " "); strings.Contains(said, "ERROR") {
		t.Fatal(said)
	}
	if n := one[int](t, home, "SELECT count(*) FROM t"); n != 9 {
		t.Errorf("the view has %d rows of 9", n)
	}
}

// TestRefreshUnderOtherSettings is refused where constants of the view's query would be written out, and read as something else.
//
//nolint:misspell // it is SQL
func TestRefreshUnderOtherSettings(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	c := dialRaw(t, w.address, nil)
	wantCodes(t, c.query("CREATE MATERIALIZED VIEW t AS SELECT id, interval '-1 mon 2 days 3.5 hours' AS span FROM orders"), "", "ready I")
	for _, setting := range []string{"DateStyle = 'German'", "IntervalStyle = 'sql_standard'", "extra_float_digits = 0"} {
		c.query("SET " + setting)
		wantCodes(t, c.query("REFRESH MATERIALIZED VIEW t"), "0A000", "ready I")
		c.query("RESET " + strings.Fields(setting)[0])
		wantCodes(t, c.query("REFRESH MATERIALIZED VIEW t"), "", "ready I")
	}
}
