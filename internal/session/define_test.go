package session

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// shapes is what a server's catalogue says of what users have made.
const shapes = `
	SELECT string_agg(line, E'\n' ORDER BY line) FROM (
		SELECT 'column ' || c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull AS line
		FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid WHERE c.relname IN ('orders', 'countries') AND a.attnum > 0 AND NOT a.attisdropped
		UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE tablename IN ('orders', 'countries')
		UNION ALL SELECT 'constraint ' || conname FROM pg_constraint WHERE conrelid IN (to_regclass('orders'), to_regclass('countries'))
		UNION ALL SELECT 'trigger ' || tgname FROM pg_trigger WHERE tgrelid = to_regclass('orders') AND NOT tgisinternal AND tgname NOT LIKE 'cleave%'
		UNION ALL SELECT 'policy ' || policyname FROM pg_policies
		UNION ALL SELECT 'grant ' || grantee || ' ' || privilege_type FROM information_schema.role_table_grants WHERE table_name = 'orders' AND grantee <> 'postgres'
		UNION ALL SELECT 'type ' || typname FROM pg_type WHERE typtype IN ('e', 'd') AND typnamespace = 'public'::regnamespace
		UNION ALL SELECT 'function ' || proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace
		UNION ALL SELECT 'role ' || rolname FROM pg_roles WHERE oid >= 16384
		UNION ALL SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\_%' AND nspname <> 'cleave'
		UNION ALL SELECT 'comment ' || description FROM pg_description WHERE objoid = to_regclass('orders')
		UNION ALL SELECT 'statistics ' || stxname || ' ' || stxstattarget || coalesce(obj_description(oid, 'pg_statistic_ext'), '') FROM pg_statistic_ext WHERE stxrelid = to_regclass('orders')
		UNION ALL SELECT 'setting ' || array_to_string(setconfig, ',') FROM pg_db_role_setting WHERE setrole <> 0
	) AS lines`

// sameShapes wants all shards to look like the plain server.
func (w *world) sameShapes(t *testing.T) {
	t.Helper()
	look := func(conn *pgx.Conn) []string { return strings.Split(one[string](t, conn, shapes), "\n") }
	want := look(connectTo(t, w.plain.Addr()))
	for i := range w.shards {
		if diff := cmp.Diff(want, look(w.onShard(t, i+1))); diff != "" {
			t.Errorf("shard %d (+) does not look like PostgreSQL (-):\n%s", i+1, diff)
		}
	}
}

// TestDefinitionsReachEveryShard: what defines something on a table that several shards have defines it on all of them, or nowhere.
func TestDefinitionsReachEveryShard(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string][]string{
		"columns":          {"ALTER TABLE orders ADD COLUMN total int DEFAULT 7 NOT NULL, ADD COLUMN more text", "INSERT INTO orders (id, note) VALUES (1, 'x'), (2, 'y'), (3, 'z') RETURNING total", "ALTER TABLE orders DROP COLUMN more", "SELECT * FROM orders WHERE id = 1", "ALTER TABLE orders RENAME COLUMN total TO sum", "ALTER TABLE orders ALTER COLUMN sum TYPE bigint"},
		"indexes":          {"CREATE INDEX by_note ON orders (note)", "CREATE UNIQUE INDEX both ON orders (id, note)", "ALTER INDEX by_note RENAME TO notes", "REINDEX TABLE orders", "DROP INDEX both", "CREATE INDEX notes ON orders (id)", "CREATE INDEX IF NOT EXISTS notes ON orders (id)"},
		"constraints":      {"ALTER TABLE orders ADD CONSTRAINT long CHECK (length(note) > 1)", "INSERT INTO orders VALUES (1, 'x')", "ALTER TABLE orders DROP CONSTRAINT long", "INSERT INTO orders VALUES (1, 'x')", "ALTER TABLE orders ADD FOREIGN KEY (note) REFERENCES countries (code)"},
		"what fails":       {"INSERT INTO orders VALUES (1, 'x'), (2, 'y'), (3, NULL), (4, 'z')", "ALTER TABLE orders ALTER COLUMN note SET NOT NULL", "ALTER TABLE orders ADD COLUMN id int", "ALTER TABLE orders DROP COLUMN nosuch", "ALTER TABLE IF EXISTS nosuch ADD COLUMN x int"},
		"in a transaction": {"BEGIN", "ALTER TABLE orders ADD COLUMN total int", "INSERT INTO orders VALUES (1, 'x', 5)", "INSERT INTO orders VALUES (2, 'x', 6)", "SELECT total FROM orders WHERE id = 2", "COMMIT", "SELECT total FROM orders WHERE id = 1"},
		"statistics": {
			"CREATE STATISTICS a ON id, note FROM orders", "CREATE STATISTICS b ON id, note FROM orders", "CREATE STATISTICS c ON id, note FROM orders", "ALTER STATISTICS a SET STATISTICS 100", "COMMENT ON STATISTICS a IS 'x'",
			"ALTER STATISTICS b RENAME TO d", "DROP STATISTICS c", "DROP STATISTICS c", "CREATE STATISTICS e ON a, b FROM undeclared2", "CREATE TABLE undeclared2 (a int, b int)", "CREATE STATISTICS e ON a, b FROM undeclared2", "DROP STATISTICS e",
		},
		"rolled back":            {"BEGIN", "ALTER TABLE orders ADD COLUMN total int", "CREATE INDEX by_note ON orders (note)", "CREATE ROLE nobody1", "ROLLBACK"},
		"back to a savepoint":    {"BEGIN", "ALTER TABLE orders ADD COLUMN total int", "SAVEPOINT s", "ALTER TABLE orders ADD COLUMN more int", "ALTER TABLE orders ADD COLUMN more int", "ROLLBACK TO s", "COMMIT"},
		"in a text":              {"ALTER TABLE orders ADD COLUMN total int; CREATE INDEX by_total ON orders (total)"},
		"a failed text":          {"ALTER TABLE orders ADD COLUMN total int; ALTER TABLE orders ADD COLUMN total int"},
		"with the home shard":    {"BEGIN", "CREATE TABLE log (a text)", "ALTER TABLE orders ADD COLUMN total int", "INSERT INTO log VALUES ('done')", "COMMIT", "SELECT * FROM log"},
		"roles and rights":       {"CREATE ROLE reader", "GRANT SELECT ON orders TO reader", "ALTER ROLE reader SET work_mem = '1MB'", "GRANT pg_monitor TO reader", "REVOKE SELECT ON orders FROM reader", "GRANT UPDATE ON orders TO reader", "ALTER ROLE reader LOGIN"},
		"rights on all":          {"CREATE ROLE reader", "GRANT SELECT, DELETE ON ALL TABLES IN SCHEMA public TO reader", "REVOKE SELECT ON ALL TABLES IN SCHEMA public FROM reader", "GRANT USAGE ON SCHEMA public TO reader", "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO reader"},
		"constraints of indexes": {"CREATE UNIQUE INDEX both ON orders (id, note)", "ALTER TABLE orders ADD CONSTRAINT b UNIQUE USING INDEX both", "ALTER TABLE orders ADD CONSTRAINT c UNIQUE USING INDEX nosuch", "ALTER TABLE orders ADD CONSTRAINT d EXCLUDE USING btree (id WITH =, note WITH =)"},
		"code behind a policy": {
			"CREATE TABLE secrets (a int)", "CREATE FUNCTION sees() RETURNS boolean LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN true; END $$", "CREATE POLICY few ON secrets USING (sees())",
			"BEGIN", "LOCK TABLE secrets IN ACCESS SHARE MODE", "COMMIT", "GRANT SELECT ON secrets TO PUBLIC", "COMMENT ON TABLE secrets IS 'x'", "ALTER TABLE secrets ENABLE ROW LEVEL SECURITY", "VACUUM secrets",
			"ALTER TABLE secrets DISABLE ROW LEVEL SECURITY", "DROP POLICY few ON secrets", "CREATE POLICY few ON secrets USING (sees())", "DROP TABLE secrets", "DROP FUNCTION sees()",
		},
		"dropped roles":            {"CREATE ROLE reader", "CREATE USER other", "DROP ROLE reader", "DROP ROLE reader", "DROP ROLE IF EXISTS reader"},
		"types":                    {"CREATE TYPE mood AS ENUM ('fine', 'sad')", "CREATE DOMAIN short AS text CHECK (length(VALUE) < 9)", "ALTER TABLE orders ADD COLUMN how mood DEFAULT 'fine', ADD COLUMN why short", "ALTER TYPE mood ADD VALUE 'odd'", "INSERT INTO orders VALUES (1, 'x', 'odd', 'y')", "DROP TYPE mood", "DROP DOMAIN short CASCADE"},
		"functions":                {"CREATE FUNCTION upper_note() RETURNS trigger LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN NEW.note := upper(NEW.note); RETURN NEW; END $$", "CREATE TRIGGER up BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION upper_note()", "INSERT INTO orders VALUES (1, 'x'), (2, 'y') RETURNING note", "DROP TRIGGER up ON orders", "DROP FUNCTION upper_note()"},
		"a body of the home shard": {"CREATE FUNCTION home_only() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM undeclared'", "DROP FUNCTION home_only()"},
		"schemas":                  {"CREATE SCHEMA extra", "COMMENT ON SCHEMA extra IS 'x'", "GRANT USAGE ON SCHEMA extra TO PUBLIC", "DROP SCHEMA extra", "DROP SCHEMA extra"},
		"policies":                 {"CREATE POLICY mine ON orders USING (note = current_user)", "ALTER TABLE orders ENABLE ROW LEVEL SECURITY", "COMMENT ON TABLE orders IS 'what was bought'"},
		"reference tables":         {"ALTER TABLE countries ADD COLUMN continent text", "CREATE INDEX by_name ON countries (name)", "SELECT * FROM countries"},
		"truncated":                {"INSERT INTO orders VALUES (1, 'x'), (2, 'y'), (3, 'z')", "TRUNCATE orders", "SELECT * FROM orders WHERE id IN (1, 2, 3)", "BEGIN", "INSERT INTO orders VALUES (1, 'x'), (2, 'y')", "TRUNCATE orders", "ROLLBACK"},
		"locked":                   {"BEGIN", "LOCK TABLE orders IN SHARE MODE", "COMMIT", "LOCK TABLE orders"},
		"upkeep":                   {"ANALYZE orders", "VACUUM orders", "VACUUM", "ANALYZE", "VACUUM (ANALYZE) orders (note)", "BEGIN", "VACUUM orders", "ROLLBACK", "CHECKPOINT"},
	} {
		t.Run(name, func(t *testing.T) {
			thorough.Some(t, 3)
			w := newWorld(t, worldConfig{shards: 2})
			protocols := []func(string) step{query, func(sql string) step { return sent(pipeline(unnamed(sql), sync1)...) }}
			if raceDetector { // which makes it slow: each case by one of them
				protocols = protocols[len(name)%2:][:1]
			}
			for _, protocol := range protocols {
				steps := make([]step, 0, len(sql))
				for _, text := range sql {
					if strings.Contains(text, "; ") && !strings.Contains(text, "$$") {
						steps = append(steps, query(text))
					} else {
						steps = append(steps, protocol(text))
					}
				}
				w.sameButOrder(t, steps...)
				w.sameShapes(t)
				w.sameRowsOf(t, "id", "note")
				w.nothingPrepared(t)
			}
		})
	}
}

// sameRowsOf is sameRows for some columns.
func (w *world) sameRowsOf(t *testing.T, columns ...string) {
	t.Helper()
	sql := fmt.Sprintf("SELECT coalesce(string_agg(r, ' ' ORDER BY r), '') FROM (SELECT (%s)::text AS r FROM orders) AS rows", strings.Join(columns, ", "))
	var all []string
	for i := range w.shards {
		all = append(all, strings.Fields(one[string](t, w.onShard(t, i+1), sql))...)
	}
	want := strings.Fields(one[string](t, connectTo(t, w.plain.Addr()), sql))
	if diff := cmp.Diff(unordered(asRows(want)), unordered(asRows(all))); diff != "" {
		t.Errorf("PostgreSQL (-) and the shards (+) have other rows:\n%s", diff)
	}
}

func asRows(texts []string) []string {
	rows := make([]string, len(texts))
	for i, text := range texts {
		rows[i] = "row " + text
	}
	return rows
}

// TestPasswordsAreTheSameEverywhere: a client proves itself once, and with that logs in to every shard.
func TestPasswordsAreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	client := w.client(t)
	for i, sql := range []string{
		"CREATE ROLE a LOGIN PASSWORD 'se''cret'", "ALTER ROLE a PASSWORD 'other' VALID UNTIL 'infinity'", "CREATE USER b WITH ENCRYPTED PASSWORD 'x' CONNECTION LIMIT 3",
		"ALTER ROLE b PASSWORD NULL", "CREATE ROLE c PASSWORD 'SCRAM-SHA-256$4096:aaaaaaaaaaaaaaaaaaaaaA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA='",
	} {
		if _, err := client.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		const stored = "SELECT string_agg(rolname || coalesce(rolpassword, 'none'), ' ' ORDER BY rolname) FROM pg_authid WHERE oid >= 16384"
		first, second := one[string](t, w.onShard(t, 1), stored), one[string](t, w.onShard(t, 2), stored)
		if first != second || i == 0 && !strings.Contains(first, "SCRAM-SHA-256$") {
			t.Errorf("%s: shard 1 stores %s, shard 2 %s", sql, first, second)
		}
	}
}

// TestAnIndexIsCompletedLater: a CREATE INDEX CONCURRENTLY that failed on one shard goes on where it stopped.
func TestAnIndexIsCompletedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, shards: 3})
	client := dialRaw(t, w.address, nil)
	const create = "CREATE INDEX CONCURRENTLY by_note ON orders (note)"
	execute(t, w.onShard(t, 2), "CREATE TABLE by_note (a int)") // in the way
	wantCodes(t, client.query(create), "42P07", "ready I")
	execute(t, w.onShard(t, 2), "DROP TABLE by_note")
	execute(t, w.onShard(t, 3), "CREATE INDEX by_note ON orders (note)")
	execute(t, w.onShard(t, 3), "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'by_note'::regclass")
	said := strings.Join(client.query(create), "\n")
	if !strings.Contains(said, "done CREATE INDEX") || !strings.Contains(said, `shard "s3" is done, 3 of 3`) {
		t.Errorf("the second attempt said\n%s", said)
	}
	for number := 1; number <= 3; number++ {
		if !one[bool](t, w.onShard(t, number), "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('by_note')") {
			t.Errorf("shard %d has no valid index", number)
		}
	}
	wantCodes(t, client.query(create), "42P07", "ready I")
	for _, sql := range []string{"REINDEX INDEX CONCURRENTLY by_note", "DROP INDEX CONCURRENTLY by_note"} {
		if said := strings.Join(client.query(sql), "\n"); strings.Contains(said, "ERROR") {
			t.Errorf("%s said\n%s", sql, said)
		}
	}
	for number := 1; number <= 3; number++ {
		if one[bool](t, w.onShard(t, number), "SELECT to_regclass('by_note') IS NOT NULL") {
			t.Errorf("shard %d still has the index", number)
		}
	}
}

// TestAnIndexIsNotTakenForAnother: what only has the name of an index that is to be made is none that was left half-done.
func TestAnIndexIsNotTakenForAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	client := dialRaw(t, w.address, nil)
	for _, there := range []string{"CREATE INDEX by_note ON orders (id)", "CREATE INDEX by_note ON undeclared (b)", "CREATE UNIQUE INDEX by_note ON orders (lower(note)) WHERE id > 5"} {
		execute(t, w.onShard(t, 2), there)
		for _, sql := range []string{"CREATE INDEX CONCURRENTLY by_note ON orders (lower(note)) WHERE id > 5", "CREATE INDEX /* x */ CONCURRENTLY IF NOT EXISTS by_note ON ONLY orders USING btree (lower(note)) WHERE id > 6"} {
			wantCodes(t, client.query(sql), "42P07", "ready I")
			wantCodes(t, client.ask(pipeline(unnamed(sql), sync1)...), "42P07", "ready I")
		}
		if one[bool](t, w.onShard(t, 1), "SELECT to_regclass('by_note') IS NOT NULL") {
			t.Error("shard 1 has an index that shard 2 has not")
		}
		execute(t, w.onShard(t, 2), "DROP INDEX by_note")
	}
	execute(t, w.onShard(t, 2), "CREATE INDEX by_note ON orders (lower(note)) WHERE id > 5")
	said := client.query("CREATE INDEX /* as before */ CONCURRENTLY by_note ON public.orders (lower(note))\nWHERE id > 5 -- the end")
	wantCodes(t, said, "", "ready I")
	client.query("BEGIN")
	if said := strings.Join(client.query("DROP INDEX CONCURRENTLY by_note"), " "); !strings.Contains(said, "DROP INDEX CONCURRENTLY cannot run inside") {
		t.Error(said)
	}
	client.query("ROLLBACK")
	w.settled(t)
}

// TestADroppedTableKeepsItsName: the shard map knows a table until the transaction that drops it is committed.
func TestADroppedTableKeepsItsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	client := dialRaw(t, w.address, nil)
	for _, sql := range []string{"CREATE TABLE orders (a int)", "CREATE VIEW public.orders AS SELECT 1", "ALTER TABLE undeclared RENAME TO orders"} {
		client.query("BEGIN")
		wantCodes(t, client.query("DROP TABLE orders"), "", "ready T")
		wantCodes(t, client.query(sql), "0A000", "ready E")
		client.query("ROLLBACK")
	}
	for _, before := range []string{"SELECT 1", "SELECT * FROM orders WHERE id = 1", "SELECT * FROM orders WHERE id IN (1, 2, 3, 4)"} {
		client.query("BEGIN; " + before)
		client.query("SAVEPOINT a")
		wantCodes(t, client.query("DROP TABLE orders"), "0A000", "ready E")
		client.query("ROLLBACK TO a")
		client.query("RELEASE a")
		wantCodes(t, client.query("DROP TABLE orders"), "", "ready T")
		client.query("ROLLBACK")
	}
	client.query("BEGIN")
	client.query("DROP TABLE orders")
	wantCodes(t, client.query("CREATE TABLE other (a int)"), "", "ready T")
	client.query("ROLLBACK")
	wantCodes(t, client.query("SELECT * FROM orders WHERE id = 1"), "", "ready I")
	w.settled(t)
}

// TestADroppedTableIsGone: the transaction that has dropped a table finds it no more, though the shard map has it until the commit.
func TestADroppedTableIsGone(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	statements := []string{
		"SELECT * FROM orders", "SELECT * FROM orders WHERE id = 1", "SELECT * FROM public.orders WHERE id IN (1, 2, 3)", "SELECT count(*) FROM orders", "INSERT INTO orders VALUES (1, 'x'), (2, 'y')",
		"UPDATE orders SET note = 'x' WHERE id = 1", "DELETE FROM orders", "SELECT * FROM late JOIN orders USING (id)", "SELECT * FROM late WHERE id IN (SELECT id FROM orders)",
		"INSERT INTO late SELECT id, 1 FROM orders", "INSERT INTO countries SELECT note, note FROM orders", "SELECT * FROM undeclared, orders", "EXPLAIN SELECT * FROM orders", "DECLARE c CURSOR FOR SELECT * FROM orders",
		"COPY orders FROM STDIN", "COPY orders TO STDOUT", "COPY (SELECT * FROM orders) TO STDOUT", "TRUNCATE orders", "LOCK TABLE orders", "ALTER TABLE orders ADD COLUMN more int", "CREATE INDEX ON orders (note)",
		"COMMENT ON TABLE orders IS 'x'", "GRANT SELECT ON orders TO PUBLIC", "CREATE TABLE copied (LIKE orders)", "CREATE TABLE kept AS SELECT * FROM orders", "CREATE VIEW seen AS SELECT * FROM orders",
		"DROP TABLE orders", "DROP INDEX orders_pkey", "WITH gone AS (DELETE FROM orders RETURNING id) SELECT * FROM gone", "SELECT * FROM orders WHERE id = 1 FOR UPDATE",
	}
	for which, shards := range []int{1, 3} {
		w := newWorld(t, worldConfig{
			shards: shards, setUp: []string{"CREATE TABLE late (id bigint NOT NULL, n int)"},
			tables: []topology.TableSpec{{Name: "public.late", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}}},
		})
		for i, sql := range statements {
			t.Run(fmt.Sprintf("%d shards, %s", shards, sql), func(t *testing.T) {
				thorough.Some(t, 3)
				// Each statement has one protocol with one shard and the other with three, which are not all four ways.
				steps := texts
				if i%2 == which {
					steps = extendedSteps
				}
				w.sameAsPlain(t, steps("BEGIN", "DROP TABLE orders", sql, "ROLLBACK", "SELECT * FROM orders WHERE id = 1")...)
				w.sameAsPlain(t, steps("BEGIN", "SELECT * FROM late WHERE id = 2", "DROP TABLE orders", "SAVEPOINT s", sql, "ROLLBACK TO s", sql, "ROLLBACK")...)
				w.sameAsPlain(t, texts("DROP TABLE orders; "+sql, "BEGIN; DROP TABLE orders; "+sql, "ROLLBACK")...)
				w.nothingPrepared(t)
			})
		}
		w.sameAsPlain(t, texts("BEGIN", "DROP TABLE countries", "SELECT * FROM countries", "ROLLBACK")...)
		w.sameAsPlain(t, texts("BEGIN", "DROP TABLE orders", "DROP TABLE IF EXISTS orders", "SELECT * FROM late WHERE id = 1", "SELECT * FROM orders", "ROLLBACK")...)
		w.sameAsPlain(t, sent(parse("s", "SELECT * FROM orders WHERE id = $1"), sync1), query("BEGIN"), query("DROP TABLE orders"), sent(bind("", "s", "1"), run(""), sync1), query("ROLLBACK"))
	}
}

// mapForgets takes dropped tables out of the map that the router sees.
type mapForgets struct {
	neverHeld
	t testing.TB
	w *world
}

func (m *mapForgets) Hold(_ context.Context, tables []topology.TableName, _ string) (string, func(), *pgerr.Error) {
	return tables[0].Name, func() {}, nil
}

func (m *mapForgets) Dropped(_ context.Context, tables []topology.TableName) *pgerr.Error {
	for _, name := range tables {
		m.w.publish(must[*topology.Map](m.t)(m.w.published.Load().Next(topology.DropTable(name.String()))))
	}
	return nil
}

// TestADroppedTableLeavesTheMap with the commit, also where one shard has all of it.
func TestADroppedTableLeavesTheMap(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	for _, shards := range []int{1, 2} {
		for begin, how := range map[string]func(...string) []step{"BEGIN": texts, "BEGIN ISOLATION LEVEL REPEATABLE READ": extendedSteps} {
			definitions := &mapForgets{t: t}
			w := newWorld(t, worldConfig{shards: shards, config: Config{Definitions: definitions}})
			definitions.w = w
			w.sameAsPlain(t, how(begin, "DROP TABLE orders", "ROLLBACK", "SELECT * FROM orders", begin, "DROP TABLE orders", "COMMIT", "SELECT * FROM orders", "CREATE TABLE orders (a int)", "SELECT * FROM orders")...)
			w.sameAsPlain(t, how("DROP TABLE countries", "SELECT * FROM countries", "DROP TABLE orders", "DROP TABLE orders")...)
			if left := w.published.Load().TableCount(); left != 0 {
				t.Errorf("%d shards: the map still has %d tables", shards, left)
			}
		}
	}
	w := newWorld(t, worldConfig{shards: 1})
	w.sameAsPlain(t, texts("BEGIN ISOLATION LEVEL SERIALIZABLE", "DROP TABLE orders", "SELECT 1", "ROLLBACK")...)
}

// TestActivityOfAllShards: everybody sees of it what PostgreSQL lets them see.
func TestActivityOfAllShards(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	client := w.client(t)
	for number := 1; number <= 2; number++ {
		execute(t, w.onShard(t, number), fmt.Sprintf("SELECT 'seen on %d'", number))
	}
	const seen = "SELECT count(DISTINCT shard) FROM cleave.stat_activity WHERE query LIKE '%seen on%' AND backend_type = 'client backend'"
	if n := one[int](t, client, seen); n != 2 {
		t.Errorf("statements of %d shards are seen", n)
	}
	execute(t, client, "BEGIN")
	if n := one[int](t, client, seen); n != 2 {
		t.Errorf("in a transaction, statements of %d shards are seen", n)
	}
	execute(t, client, "ROLLBACK")
	execute(t, client, "CREATE ROLE nosy")
	execute(t, client, "SET ROLE nosy")
	if n := one[int](t, client, seen); n != 0 {
		t.Errorf("a role without rights sees statements of %d shards", n)
	}
}
