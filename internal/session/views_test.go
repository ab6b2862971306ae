package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"

	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// viewsSQL are views of all forms, made through the router on every shard.
var viewsSQL = []string{
	"CREATE VIEW late AS SELECT * FROM orders WHERE id > 4",
	"CREATE VIEW renamed (number, remark) AS SELECT id, note FROM orders",
	"CREATE VIEW lines_of AS SELECT o.id, o.note, l.n FROM orders o JOIN lines l ON l.id = o.id",
	"CREATE VIEW notes AS SELECT note, count(*) AS n, sum(id) AS total, avg(id) AS mean FROM orders GROUP BY note",
	"CREATE VIEW by_key AS SELECT id, count(*) AS n FROM lines GROUP BY id",
	"CREATE VIEW last_three AS SELECT id, note FROM orders ORDER BY id DESC LIMIT 3",
	"CREATE VIEW both_of AS SELECT id, 'order' AS kind FROM orders UNION ALL SELECT id, 'line' FROM lines",
	"CREATE VIEW kinds AS SELECT kind, count(*) AS n FROM both_of GROUP BY kind",
	"CREATE VIEW ranked AS SELECT id, note, rank() OVER (PARTITION BY note ORDER BY id) AS place FROM orders",
	"CREATE VIEW over AS SELECT number + 1 AS next, remark FROM renamed WHERE remark <> 'note 2'",
	"CREATE VIEW lands AS SELECT code, upper(name) AS name FROM countries",
	"CREATE VIEW named_lands AS SELECT o.id, c.name FROM orders o LEFT JOIN countries c ON c.code = o.note",
	"CREATE VIEW with_some AS WITH few AS (SELECT id FROM lines WHERE n > 2), many AS (SELECT id FROM orders) SELECT m.id FROM many m WHERE m.id IN (SELECT id FROM few)",
	"CREATE VIEW chosen AS SELECT DISTINCT ON (note) note, id FROM orders ORDER BY note, id DESC",
	"CREATE VIEW fixed AS SELECT id, note, '2020-01-02'::date AS day, -5 AS five, interval '-1 day 2 hours' AS span FROM orders WHERE note = 'note 1' OR id = -(3)",
	"CREATE VIEW timed AS SELECT id, now() - interval '1 day' < current_timestamp AS past FROM orders",
	"CREATE VIEW homely AS SELECT o.id, t.what FROM orders o JOIN things t ON t.id = o.id",
	"CREATE VIEW lands_at_home AS SELECT c.code, t.what FROM countries c JOIN things t ON t.what = c.name",
	"CREATE RECURSIVE VIEW upward (n) AS SELECT min(id) FROM orders UNION ALL SELECT n + 1 FROM upward WHERE n < 5",
	"CREATE VIEW \"Odd View\" AS SELECT id AS \"Odd Id\", note AS \"select\" FROM orders",
}

// viewWorld has orders, their lines and countries, views over them, and a plain table.
func viewWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, worldConfig{
		shards: 3, setUp: []string{"CREATE TABLE lines (id bigint, n int, PRIMARY KEY (id, n))", "CREATE ROLE reader", "CREATE ROLE stranger"},
		tables: []topology.TableSpec{{Name: "public.lines", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}}},
	})
	var orders, lines []string
	for id := range 20 {
		orders = append(orders, fmt.Sprintf("(%d, 'note %d')", id+1, id%4))
		for n := range id % 4 {
			lines = append(lines, fmt.Sprintf("(%d, %d)", id+1, n+1))
		}
	}
	sql := append([]string{
		"CREATE TABLE things (id bigint, what text)", "INSERT INTO things VALUES (1, 'one'), (2, 'two'), (7, 'Seven')",
		"INSERT INTO orders VALUES " + strings.Join(orders, ", "), "INSERT INTO lines VALUES " + strings.Join(lines, ", "),
		"INSERT INTO countries VALUES ('note 1', 'one'), ('xx', 'two'), ('nl', 'Netherlands')",
	}, viewsSQL...)
	w.sameAsPlain(t, texts(sql...)...)
	return w
}

// TestViewsAreAnsweredAsByOneServer in every form in which queries read them.
func TestViewsAreAnsweredAsByOneServer(t *testing.T) {
	t.Parallel()
	w := viewWorld(t)
	ext := func(sql string, values ...string) step { return sent(pipeline(unnamed(sql, values...), sync1)...) }
	for name, steps := range map[string][]step{
		"by key": texts("SELECT * FROM late WHERE id = 7", "SELECT * FROM late WHERE id = 2", "SELECT remark FROM renamed WHERE number = 3", "SELECT * FROM by_key WHERE id = 4", "SELECT * FROM over WHERE next = 5", "SELECT * FROM both_of WHERE id = 4 ORDER BY kind"),
		"in order": texts("SELECT * FROM late ORDER BY id", "SELECT * FROM late ORDER BY id DESC LIMIT 3 OFFSET 1", "SELECT * FROM last_three", "SELECT * FROM renamed ORDER BY 2, 1 LIMIT 4",
			"SELECT * FROM lines_of ORDER BY 1, 3", "SELECT * FROM chosen ORDER BY note", "TABLE notes ORDER BY note", "TABLE over ORDER BY next"),
		"aggregates": texts("SELECT count(*), max(id) FROM late", "SELECT note, count(*) FROM late GROUP BY note ORDER BY 1", "SELECT * FROM notes ORDER BY note", "SELECT sum(n), avg(mean) FROM notes", "SELECT note FROM notes WHERE n > 4 AND note <> 'note 3' ORDER BY 1",
			"SELECT count(*) FROM by_key WHERE n > 1", "SELECT * FROM kinds ORDER BY kind", "SELECT max(n) FROM kinds WHERE kind = 'line'", "SELECT count(DISTINCT place) FROM ranked", "SELECT sum(n) FROM upward"),
		"windows":   texts("SELECT * FROM ranked ORDER BY id", "SELECT * FROM ranked WHERE id = 9", "SELECT id, row_number() OVER (ORDER BY id) FROM late ORDER BY 1"),
		"recursive": texts("SELECT * FROM upward ORDER BY n", "WITH RECURSIVE r AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM r WHERE a < 3) SELECT r.a, l.note FROM r JOIN renamed ON number = a JOIN late l ON l.id = a + 4 ORDER BY 1"),
		"names": texts("SELECT x.a, x.note FROM late AS x (a) WHERE x.a = 7", "SELECT * FROM renamed r (x, y) WHERE x = 3", "SELECT public.late.id FROM public.late WHERE public.late.id = 7", "SELECT l.* FROM ONLY late l WHERE l.id = 7",
			`SELECT "Odd Id", "select" FROM "Odd View" WHERE "Odd Id" = 5`, `SELECT count("select") FROM "Odd View"`, "SELECT late::text FROM late WHERE id = 7", "SELECT row_to_json(notes) FROM notes ORDER BY note", "SELECT n.* FROM notes AS n (a, b) ORDER BY a"),
		"twice": texts("SELECT a.id, b.id FROM late a JOIN late b ON b.id = a.id + 1 ORDER BY 1", "SELECT count(*) FROM late a, late b WHERE a.id = b.id", "SELECT a.note, b.n FROM notes a JOIN notes b ON a.n = b.n ORDER BY 1, 2", "SELECT * FROM last_three UNION ALL SELECT * FROM last_three ORDER BY 1, 2"),
		"joins": texts("SELECT l.id, o.note FROM lines l JOIN late o ON o.id = l.id ORDER BY 1, l.n", "SELECT n.note, o.id FROM notes n JOIN orders o ON o.note = n.note WHERE o.id IN (3, 4) ORDER BY 2", "SELECT * FROM lands ORDER BY code", "SELECT * FROM named_lands ORDER BY id LIMIT 7",
			"SELECT l.name, count(*) FROM lands l JOIN late ON note = code GROUP BY l.name", "SELECT t.what, late.note FROM things t LEFT JOIN late ON late.id = t.id ORDER BY 1"),
		"inside": texts("SELECT id FROM orders WHERE id IN (SELECT id FROM last_three) ORDER BY 1", "SELECT id FROM orders o WHERE EXISTS (SELECT FROM by_key b WHERE b.id = o.id AND b.n = 3) ORDER BY 1", "SELECT (SELECT count(*) FROM late), (SELECT max(n) FROM notes)",
			"WITH x AS (SELECT * FROM late) SELECT * FROM x WHERE id = 7", "WITH x AS (SELECT * FROM notes) SELECT count(*) FROM x", "SELECT * FROM with_some ORDER BY id", "SELECT * FROM (SELECT note FROM late EXCEPT SELECT note FROM last_three) x ORDER BY 1",
			"SELECT o.id, x.n FROM orders o, LATERAL (SELECT count(*) AS n FROM late WHERE late.note = o.note AND late.id < o.id) x ORDER BY 1"),
		"constants": texts("SELECT * FROM fixed ORDER BY id", "SELECT * FROM fixed WHERE id = -7 OR id = 6 ORDER BY id", "SELECT sum(five), min(day), max(span) FROM fixed", "SELECT count(*) FROM fixed WHERE five = -5 AND note = 'note 1'", "SELECT count(*) FROM fixed WHERE five = -6 AND note = 'note 2'"),
		"moments":   texts("SELECT count(*), bool_and(past) FROM timed", "SELECT past FROM timed WHERE id = 1"),
		"at home":   texts("SELECT * FROM homely ORDER BY id", "SELECT * FROM homely WHERE id = 7", "SELECT count(*) FROM homely", "SELECT * FROM lands_at_home", "SELECT h.what, l.note FROM lands_at_home h, late l WHERE l.id = 7"),
		"written": texts("BEGIN", "INSERT INTO lines SELECT id, 90 FROM late WHERE id = 7", "INSERT INTO lines SELECT id, 91 FROM last_three", "INSERT INTO lines SELECT n, 92 FROM kinds", "UPDATE orders SET note = 'late' FROM last_three l WHERE l.id = orders.id",
			"DELETE FROM lines USING by_key b WHERE b.id = lines.id AND b.n = 1", "SELECT * FROM lines ORDER BY 1, 2", "SELECT * FROM notes ORDER BY note", "INSERT INTO countries SELECT note, 'x' FROM notes WHERE note = 'late'", "SELECT * FROM lands ORDER BY code", "INSERT INTO things SELECT id, note FROM last_three", "SELECT * FROM things ORDER BY id, what", "ROLLBACK"),
		"prepared": append(texts("PREPARE p (bigint) AS SELECT * FROM late WHERE id = $1", "EXECUTE p(7)", "EXECUTE p(8)", "PREPARE q (text) AS SELECT n FROM notes WHERE note = $1", "EXECUTE q('note 1')", "EXECUTE q('note 2')"),
			sent(parse("s", "SELECT note, n FROM notes WHERE n > $1 ORDER BY note LIMIT $2"), describeStatement("s"), sync1), sent(bind("", "s", "1", "2"), describePortal(""), run(""), sync1), ext("SELECT note FROM late WHERE id = $1", "7"), ext("SELECT number FROM renamed WHERE remark = $1 ORDER BY 1", "note 1")),
		"cursors":   texts("BEGIN", "DECLARE c SCROLL CURSOR FOR SELECT * FROM notes ORDER BY note", "FETCH 2 c", "FETCH PRIOR c", "DECLARE d CURSOR FOR SELECT * FROM late WHERE id = 7", "FETCH ALL d", "COMMIT"),
		"copied":    texts("COPY (SELECT * FROM notes ORDER BY note) TO STDOUT", "COPY (SELECT * FROM late WHERE id = 7) TO STDOUT CSV HEADER", "COPY (SELECT id FROM last_three) TO STDOUT"),
		"locked":    texts("BEGIN", "SELECT * FROM late WHERE id = 7 FOR UPDATE", "SELECT count(*) FROM late WHERE id = 7", "ROLLBACK"),
		"wrong":     texts("SELECT nothing FROM late", "SELECT id FROM notes", "SELECT * FROM late l WHERE late.id = 7", "SELECT * FROM nowhere", "SELECT 1 / (id - 7) FROM late WHERE id = 7"),
		"in a text": texts("SELECT note FROM late WHERE id = 7; SELECT count(*) FROM notes; SELECT n FROM notes WHERE note = 'note 1'"),
	} {
		t.Run(name, func(t *testing.T) { w.sameAsPlain(t, steps...) })
	}
	t.Run("settings", func(t *testing.T) {
		w.sameAsPlain(t, texts("SET intervalstyle = 'sql_standard'", "SELECT max(span), min(day), count(*) FROM fixed", "SET datestyle = 'SQL, DMY'", "SELECT max(span), min(day), count(*) FROM fixed", "SELECT * FROM fixed ORDER BY id LIMIT 2",
			"BEGIN", "CREATE VIEW passing AS SELECT max(id) AS m, interval '-1 day -2 hours' AS span, E'a\\\\b' AS slash, 'é' AS accent, '2020-02-01'::date AS day FROM orders", "SELECT * FROM passing", "ROLLBACK", "CREATE VIEW passing AS SELECT max(id) AS m, interval '-1 day -2 hours' AS span, E'a\\\\b' AS slash, '2020-02-01'::date AS day FROM orders",
			"SELECT * FROM passing", "SET standard_conforming_strings = off", "SELECT * FROM passing", "SET search_path = pg_catalog", "SELECT * FROM public.passing", "SELECT n FROM public.notes ORDER BY note", "SET client_encoding = 'LATIN1'", "SELECT * FROM public.passing", "RESET ALL", "DROP VIEW passing")...)
	})
	t.Run("in parts", func(t *testing.T) {
		w.sameButOrder(t, texts("SELECT * FROM late", "SELECT * FROM over WHERE remark = 'note 1'", "SELECT * FROM lines_of", "TABLE renamed", "SELECT * FROM late WHERE id IN (6, 7, 8)", "SELECT * FROM late WHERE note = 'note 1' AND id <> 7",
			"SELECT l.id, b.n FROM late l LEFT JOIN by_key b USING (id)")...)
	})
	w.nothingPrepared(t)
}

// TestViewsChangeOnEveryShard: what is planned goes by what they show now, whoever asks.
func TestViewsChangeOnEveryShard(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := viewWorld(t)
	other := dialRaw(t, w.address, nil)
	other.query("SELECT count(*) FROM late")
	w.sameAsPlain(t, texts(
		"SELECT count(*) FROM late", "CREATE OR REPLACE VIEW late AS SELECT id, note FROM orders WHERE id > 10", "SELECT count(*) FROM late", "SELECT * FROM late WHERE id = 7",
		"CREATE OR REPLACE VIEW late AS SELECT max(id) AS id, min(note) AS note FROM orders", "SELECT * FROM late", "SELECT * FROM late WHERE id = 7",
		"BEGIN", "CREATE OR REPLACE VIEW late AS SELECT id, note FROM orders WHERE id < 3", "SELECT * FROM late ORDER BY id", "SELECT count(*) FROM late", "CREATE VIEW later AS SELECT count(*) AS n FROM late", "SELECT * FROM later", "ROLLBACK", "SELECT * FROM late", "SELECT * FROM later",
		"ALTER VIEW late RENAME COLUMN note TO remark", "SELECT remark FROM late", "ALTER VIEW late RENAME TO latest", "SELECT remark FROM latest", "SELECT remark FROM late",
		"ALTER TABLE orders RENAME COLUMN note TO text", "SELECT remark FROM latest", "SELECT number, remark FROM renamed ORDER BY 1 LIMIT 2", "SELECT * FROM notes ORDER BY note", "ALTER TABLE orders RENAME COLUMN text TO note",
		"ALTER VIEW latest SET (security_barrier)", "SELECT * FROM latest", "COMMENT ON VIEW latest IS 'the latest'", "DROP VIEW renamed", "DROP VIEW IF EXISTS nowhere", "DROP VIEW latest", "SELECT * FROM latest",
		"DROP VIEW renamed CASCADE", "SELECT * FROM over", "CREATE VIEW over AS SELECT 7 AS seven", "SELECT * FROM over", "DROP TABLE things", "DROP VIEW homely, lands_at_home",
	)...)
	if said := strings.Join(other.query("SELECT count(*) FROM late"), " "); !strings.Contains(said, "42P01") {
		t.Errorf("another session goes on with a view that was dropped: %s", said)
	}
	views := "SELECT string_agg(viewname, ' ' ORDER BY viewname) FROM pg_views WHERE schemaname = 'public'"
	want := one[string](t, connectTo(t, w.plain.Addr()), views)
	if got := one[string](t, w.onShard(t, 1), views); got != want {
		t.Errorf("the home shard has the views %s, not %s", got, want)
	}
	for i := range w.shards[1:] {
		if got, all := one[string](t, w.onShard(t, i+2), views), strings.ReplaceAll(want, " over", ""); got != all {
			t.Errorf("shard %d has the views %s, not %s", i+2, got, all)
		}
	}
}

// TestViewsKeepTheirRights: who may read a view reads it by its owner's rights, as far as it can be asked by its name.
func TestViewsKeepTheirRights(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := viewWorld(t)
	w.sameAsPlain(t, texts("GRANT SELECT ON late, notes, by_key, renamed TO reader", "GRANT SELECT ON lines TO reader", "SET ROLE reader", "SELECT * FROM late WHERE id = 7", "SELECT count(*) FROM late", "SELECT note, count(*) FROM late GROUP BY note ORDER BY 1",
		"SELECT a.id FROM late a JOIN late b ON b.id = a.id + 1 ORDER BY 1", "SELECT * FROM by_key ORDER BY id", "SELECT * FROM orders WHERE id = 7", "SELECT count(*) FROM last_three", "SET ROLE stranger", "SELECT * FROM late WHERE id = 7", "SELECT count(*) FROM late", "SELECT count(*) FROM by_key",
		"RESET ROLE", "GRANT SELECT ON lines, orders TO stranger", "SET ROLE stranger", "SELECT sum(n) FROM by_key", "SELECT * FROM notes", "RESET ROLE")...)
	c := dialRaw(t, w.address, nil)
	c.query("SET ROLE stranger")
	wantCodes(t, c.ask(pipeline(unnamed("SELECT sum(n) FROM by_key WHERE n > $1", "0"), sync1)...), "42501", "ready I")
	c.query("SET ROLE reader")
	wantCodes(t, c.query("SELECT * FROM notes"), "42501", "ready I")
	w.sameAsPlain(t, texts("ALTER TABLE orders ENABLE ROW LEVEL SECURITY", "CREATE POLICY some ON orders TO reader USING (id < 9)", "GRANT SELECT ON orders TO reader", "SET ROLE reader", "SELECT count(*) FROM orders", "SELECT count(*) FROM late", "SELECT * FROM late WHERE id = 12")...)
	wantCodes(t, c.query("SELECT * FROM notes"), "0A000", "ready I")
	w.sameAsPlain(t, texts("ALTER VIEW notes SET (security_invoker)", "SET ROLE reader", "SELECT * FROM notes ORDER BY note")...)
}

// TestRightsToColumnsOfViews: who may read some columns of a view that is taken apart reads no others through it, with parameters too.
func TestRightsToColumnsOfViews(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := viewWorld(t)
	w.sameAsPlain(t, texts("GRANT SELECT ON orders, lines TO reader", "GRANT SELECT (note) ON notes TO reader", "GRANT SELECT (id) ON last_three TO reader", "SET ROLE reader",
		"SELECT note FROM notes ORDER BY 1", "SELECT * FROM notes ORDER BY 1", "SELECT id FROM last_three", "SELECT note FROM last_three", "SELECT id FROM last_three WHERE note = 'x'", "SELECT count(*) FROM last_three")...)
	c := dialRaw(t, w.address, nil)
	c.query("SET ROLE reader")
	for sql, code := range map[string]string{
		"SELECT id FROM last_three WHERE note <> $1": "42501", "SELECT note FROM last_three WHERE note <> $1": "42501", "SELECT id FROM last_three WHERE id::text <> $1": "",
		"SELECT note FROM notes WHERE note <> $1": "", "SELECT note FROM notes WHERE n::text <> $1": "42501",
		"SELECT note FROM last_three WHERE note <> (array_fill('zz'::text, ARRAY[$1::int + 1]))[1]": "42501", "SELECT note FROM notes WHERE n <> (array_fill(77::bigint, ARRAY[$1::int + 1]))[1]": "42501",
	} {
		wantCodes(t, c.ask(pipeline(unnamed(sql, "0"), sync1)...), code, "ready I")
		c.query("BEGIN")
		wantCodes(t, c.ask(pipeline(unnamed(sql, "0"), sync1)...), code, map[string]string{"": "ready T", "42501": "ready E"}[code])
		c.query("ROLLBACK")
	}
}

// TestTemporaryViewsOverShardedTables are refused: they would show the home shard's rows.
func TestTemporaryViewsOverShardedTables(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := viewWorld(t)
	c := dialRaw(t, w.address, nil)
	for _, sql := range []string{"CREATE TEMP VIEW v AS SELECT * FROM orders", "CREATE TEMP VIEW v AS SELECT * FROM late", "CREATE VIEW pg_temp.v AS SELECT * FROM notes", "CREATE OR REPLACE VIEW late AS SELECT o.* FROM orders o, things"} {
		wantCodes(t, c.query(sql), "0A000", "ready I")
	}
	c.query("CREATE TEMP TABLE t AS SELECT 1 AS a")
	wantCodes(t, c.query("CREATE VIEW v AS SELECT * FROM t, late"), "0A000", "ready I")
	c.query("DISCARD ALL")
	w.settled(t)
}

// TestWritingThroughViews: to the table that they show, where its key says, with their checks and rights.
func TestWritingThroughViews(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := viewWorld(t)
	ext := func(sql string, values ...string) step { return sent(pipeline(unnamed(sql, values...), sync1)...) }
	w.sameButOrder(t, append(texts(
		"UPDATE late SET note = 'by key' WHERE id = 7", "UPDATE late SET note = 'not shown' WHERE id = 2", "UPDATE late l SET note = l.note || '!' WHERE note = 'note 1'", "UPDATE late SET note = 'several' WHERE id IN (8, 9, 2) RETURNING *",
		"INSERT INTO late VALUES (101, 'one'), (102, 'two'), (103, 'three')", "INSERT INTO late (note, id) VALUES ('four', 104) RETURNING id, note", "INSERT INTO late VALUES (101, 'again')", "INSERT INTO late VALUES (101, 'again') ON CONFLICT (id) DO UPDATE SET note = excluded.note || ' more' RETURNING note",
		"DELETE FROM late WHERE id = 103", "DELETE FROM late WHERE note = 'one'", "DELETE FROM ONLY late AS x WHERE x.id IN (102, 1) RETURNING x.note", "UPDATE late SET nothing = 1 WHERE id = 7", "INSERT INTO late (id, nothing) VALUES (1, 2)", "SELECT * FROM orders ORDER BY id",
		"CREATE VIEW checked AS SELECT * FROM orders WHERE note LIKE 'n%' WITH CHECK OPTION", "INSERT INTO checked VALUES (201, 'no'), (202, 'nothing')", "INSERT INTO checked VALUES (203, 'yes')", "UPDATE checked SET note = 'yes' WHERE id = 201", "UPDATE checked SET note = 'nono' WHERE id > 200",
		"BEGIN", "UPDATE checked SET note = 'n'", "SELECT count(*) FROM orders WHERE note = 'n'", "ROLLBACK", "SELECT * FROM checked ORDER BY id",
		"GRANT SELECT, UPDATE ON late TO reader", "SET ROLE reader", "UPDATE late SET note = 'reader' WHERE id = 7", "UPDATE late SET note = 'reader'", "DELETE FROM late WHERE id = 7", "UPDATE orders SET note = 'reader' WHERE id = 7", "RESET ROLE"),
		ext("UPDATE late SET note = $1 WHERE id = $2 RETURNING *", "bound", "11"), ext("INSERT INTO late VALUES ($1, $2)", "301", "bound"), ext("DELETE FROM late WHERE id = $1", "301"), query("SELECT * FROM orders ORDER BY id"))...)
	c := dialRaw(t, w.address, nil)
	for _, sql := range []string{"UPDATE late SET id = id + 1", "DELETE FROM renamed WHERE number = 3", "DELETE FROM notes", "INSERT INTO over VALUES (1, 'x')", "UPDATE homely SET what = 'x'", "COPY late FROM STDIN", "TRUNCATE late", "MERGE INTO late USING lines ON lines.id = late.id WHEN MATCHED THEN DELETE"} {
		wantCodes(t, c.query(sql), "0A000", "ready I")
	}
	w.settled(t)
}

// TestSamplesInViews: a sample that a view takes is taken, also where the view's rows are brought together.
func TestSamplesInViews(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := viewWorld(t)
	w.sameAsPlain(t, texts("CREATE VIEW nothing AS SELECT * FROM orders TABLESAMPLE BERNOULLI (0)", "CREATE VIEW everything AS SELECT * FROM orders TABLESAMPLE BERNOULLI (100)",
		"SELECT count(*) FROM nothing", "SELECT note, count(*) FROM nothing GROUP BY note", "SELECT count(*) FROM nothing n JOIN things t ON t.id = n.id", "SELECT * FROM nothing WHERE id = 7",
		"SELECT count(*) FROM everything", "SELECT note, count(*) FROM everything GROUP BY note ORDER BY 1", "SELECT count(*), max(t.what) FROM everything n JOIN things t ON t.id = n.id", "SELECT * FROM everything WHERE id = 7")...)
}

// TestTheOrderOfBytes: a database is known to order texts by their bytes by its provider too, whatever the name of its locale is.
func TestTheOrderOfBytes(t *testing.T) {
	t.Parallel()
	admin := connectTo(t, pgtest.StartWhole(t).Addr())
	execute(t, admin, "CREATE DATABASE by_bytes TEMPLATE template0 LOCALE_PROVIDER libc LOCALE 'C'")
	execute(t, admin, "CREATE DATABASE by_rules TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C'")
	for database, want := range map[string]bool{"by_bytes": true, "by_rules": false} {
		config := admin.Config().Copy()
		config.Database = database
		conn := must[*pgx.Conn](t)(pgx.ConnectConfig(t.Context(), config))
		if got := one[bool](t, conn, plainOrderSQL); got != want {
			t.Errorf("%s: %t", database, got)
		}
		_ = conn.Close(t.Context())
	}
}
