package session

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestValuesAreHandedOnAsTheyAre, or not at all: where settings change what a text means, those of roles too.
func TestValuesAreHandedOnAsTheyAre(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{
		noPlain: true, setUp: []string{"CREATE TABLE lists (id bigint PRIMARY KEY, f float8[], s text[])", "CREATE ROLE brief LOGIN SUPERUSER", "ALTER ROLE brief SET extra_float_digits = 0"},
		tables: []topology.TableSpec{{Name: "public.lists", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}}},
	})
	c := dialRaw(t, w.address, nil)
	c.query("INSERT INTO lists SELECT n, ARRAY[1/3.0::float8], '{a,NULL,b}' FROM generate_series(1, 8) AS n")
	c.query("CREATE VIEW with_null AS SELECT s, count(*) AS n, '{NULL,1}'::text[] AS a FROM lists GROUP BY s")
	c.query("CREATE MATERIALIZED VIEW kept_null AS SELECT * FROM with_null") //nolint:misspell // it is SQL
	const move = "UPDATE lists SET id = id + 100"
	wantCodes(t, dialRaw(t, w.address, map[string]string{"user": "brief"}).query(move), "0A000", "ready I")
	c.query("SET array_nulls = off")
	for _, sql := range []string{move, "CREATE TABLE t AS SELECT a.s FROM lists a JOIN lists b ON a.id = b.id + 1", "SELECT a[1] IS NULL, max(n) FROM with_null GROUP BY a", "REFRESH MATERIALIZED VIEW kept_null"} { //nolint:misspell // it is SQL
		wantCodes(t, c.query(sql), "0A000", "ready I")
	}
	c.query("SET array_nulls = on")
	for _, sql := range []string{move, "REFRESH MATERIALIZED VIEW kept_null"} { //nolint:misspell // it is SQL
		wantCodes(t, c.query(sql), "", "ready I")
	}
	if said := strings.Join(c.query("SELECT count(*) FROM lists WHERE f = ARRAY[1/3.0::float8] AND s[2] IS NULL AND id > 100"), "\n"); !strings.Contains(said, `row "8"`) {
		t.Errorf("the rows have changed: %s", said)
	}
}

// TestMovedRowsAreUpdated: what an UPDATE would need and do is not lost where rows are deleted and inserted.
func TestMovedRowsAreUpdated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{
		noPlain: true, setUp: []string{
			"CREATE TABLE parents (id bigint PRIMARY KEY, v int)", "CREATE TABLE children (id bigint REFERENCES parents ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED, n int, PRIMARY KEY (id, n))",
			"CREATE ROLE changer", "GRANT SELECT, INSERT, DELETE ON orders TO changer", "GRANT UPDATE (note) ON orders TO changer",
		},
		tables: []topology.TableSpec{
			{Name: "public.parents", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}}, {Name: "public.children", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}},
		},
	})
	c := dialRaw(t, w.address, nil)
	c.query("INSERT INTO parents VALUES (1, 1), (2, 2); INSERT INTO children VALUES (1, 1), (2, 2); INSERT INTO orders VALUES (1, 'x'), (2, 'y'), (3, 'z')")
	wantCodes(t, c.query("UPDATE parents SET id = id + 100"), "0A000", "ready I")
	c.query("SET ROLE changer")
	for _, sql := range []string{"UPDATE orders SET id = id + 100", "UPDATE orders SET id = id + 100, note = 'x' RETURNING id", "PREPARE p AS UPDATE orders SET id = id + 100; EXECUTE p"} {
		wantCodes(t, c.query(sql), "42501", "ready I")
	}
	c.query("RESET ROLE")
	c.query("GRANT UPDATE (id) ON orders TO changer")
	c.query("SET ROLE changer")
	wantCodes(t, c.query("UPDATE orders SET id = id + 100, note = 'x'"), "", "ready I")
}

// TestCopiesStayTheSame where a row of a reference table gets another primary key.
func TestCopiesStayTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	c := dialRaw(t, w.address, nil)
	c.query("INSERT INTO countries VALUES ('a', 'A')")
	wantCodes(t, c.query("INSERT INTO countries VALUES ('a', random()::text) ON CONFLICT (code) DO UPDATE SET code = 'b', name = excluded.name"), "0A000", "ready I")
	wantCodes(t, c.query("INSERT INTO countries VALUES ('a', random()::text) ON CONFLICT (code) DO UPDATE SET name = excluded.name"), "", "ready I")
}

// TestLastStepsSeeDefinitions of their own transaction.
func TestLastStepsSeeDefinitions(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, setUp: []string{"CREATE FUNCTION told(bigint) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT ''old''||$1'"}})
	c := dialRaw(t, w.address, nil)
	c.query("INSERT INTO orders SELECT n, repeat('x', 20000) FROM generate_series(1, 200) AS n")
	c.query("BEGIN")
	c.query("CREATE OR REPLACE FUNCTION told(bigint) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT ''new''||$1'")
	if said := strings.Join(c.query("SELECT told(count(a.note || b.note)) FROM orders a JOIN orders b ON a.id = b.id + 1"), "\n"); !strings.Contains(said, "new199") {
		t.Errorf("it says %s", said)
	}
	wantCodes(t, c.query("COPY (SELECT told(count(*)) FROM orders a JOIN orders b ON a.id = b.id + 1) TO STDOUT"), "0A000", "ready E")
	c.query("ROLLBACK")
}

// TestPortalsThatNoServerHas: SQL about them is refused, and they show what there was when they were made, or nothing.
func TestPortalsThatNoServerHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	c := dialRaw(t, w.address, nil)
	c.query("INSERT INTO orders SELECT n, 'x' FROM generate_series(1, 9) AS n")
	bind := func(sql string) []pgproto3.FrontendMessage {
		return []pgproto3.FrontendMessage{&pgproto3.Parse{Query: sql}, &pgproto3.Bind{DestinationPortal: "p"}, &pgproto3.Sync{}}
	}
	const apart, inSteps = "SELECT 1 FROM orders WHERE id < 8", "SELECT a.id FROM orders a JOIN orders b ON a.id = b.id + 1 ORDER BY 1"
	for _, sql := range []string{apart, inSteps} {
		for _, about := range []string{"FETCH ALL p", "MOVE p", "CLOSE p"} {
			c.query("BEGIN")
			wantCodes(t, c.ask(bind(sql)...), "", "ready T")
			wantCodes(t, c.query(about), "0A000", "ready E")
			c.query("ROLLBACK")
		}
		c.query("BEGIN")
		c.ask(bind(sql)...)
		c.query("CLOSE ALL")
		wantCodes(t, c.ask(&pgproto3.Execute{Portal: "p"}, &pgproto3.Sync{}), "34000", "ready E")
		c.query("ROLLBACK")
	}
	c.query("BEGIN")
	c.ask(bind(inSteps)...)
	c.query("SELECT count(*) FROM orders")
	if said := c.ask(&pgproto3.Execute{Portal: "p"}, &pgproto3.Sync{}); !strings.Contains(strings.Join(said, "\n"), "SELECT 8") {
		t.Errorf("it says %q", said)
	}
	c.query("ROLLBACK; BEGIN")
	c.ask(bind(inSteps)...)
	c.query("DELETE FROM orders WHERE id = 3")
	wantCodes(t, c.ask(&pgproto3.Execute{Portal: "p"}, &pgproto3.Sync{}), "0A000", "ready E")
	c.query("ROLLBACK")
}
