package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/topology"
)

// inState is a world of three shards with a row on each, and a pinned key on the second one, which is in a state then. It returns a connection, and the keys.
func inState(t *testing.T, state topology.State) (w *world, conn *rawClient, keys []int64, pinned int64) {
	t.Helper()
	w = newWorld(t, worldConfig{shards: 3, noPlain: true, setUp: []string{"INSERT INTO countries VALUES ('de', 'Germany')"}})
	pinned = w.key(t, 1, 9)
	w.publish(must[*topology.Map](t)(w.m.Next(topology.SetPins("main", topology.PinSpec{Key: topology.Point{text(pinned)}, Shard: "s2"}))))
	conn = dialRaw(t, w.address, nil)
	for number := range 3 {
		keys = append(keys, w.key(t, number+1, 0))
		wantCodes(t, conn.query(fmt.Sprintf("INSERT INTO orders VALUES (%d, 'de')", keys[number])), "", "ready I")
	}
	w.publish(must[*topology.Map](t)(w.published.Load().Next(topology.UpdateShard("s2", func(s *topology.ShardSpec) { s.State = state }))))
	return w, conn, keys, pinned
}

// keyTexts puts keys into statements: $1 to $3 are those of the three rows, $p is the pinned one, and $a, $b and $c are new keys of the first to the third shard.
func (w *world) keyTexts(t *testing.T, keys []int64, pinned int64) *strings.Replacer {
	t.Helper()
	return strings.NewReplacer("$1", text(keys[0]), "$2", text(keys[1]), "$3", text(keys[2]), "$p", text(pinned),
		"$a", text(w.key(t, 1, 5)), "$b", text(w.key(t, 2, 5)), "$c", text(w.key(t, 3, 5)))
}

// bothWays runs statements, which semicolons separate, as one text and in a pipeline, and rolls back what they have left open.
func bothWays(conn *rawClient, sql string) [][]string {
	var parts []any
	for _, one := range strings.Split(sql, "; ") {
		parts = append(parts, unnamed(one))
	}
	said := [][]string{conn.query(sql)}
	conn.query("ROLLBACK")
	said = append(said, conn.ask(pipeline(append(parts, sync1)...)...))
	conn.query("ROLLBACK")
	return said
}

func refusedFor(t *testing.T, conn *rawClient, code, sql string) {
	t.Helper()
	for _, said := range bothWays(conn, sql) {
		wantCodes(t, said, code, "")
		if !strings.Contains(strings.Join(said, "\n"), `"s2"`) {
			t.Errorf("%s does not name the shard: %q", sql, said)
		}
	}
}

func answered(t *testing.T, conn *rawClient, sql string) {
	t.Helper()
	for _, said := range bothWays(conn, sql) {
		if strings.Contains(strings.Join(said, "\n"), "ERROR") {
			t.Errorf("%s is refused: %q", sql, said)
		}
	}
}

// TestAShardIsReadOnly: what would change something there is refused, whatever came before it in the transaction; all else is answered.
func TestAShardIsReadOnly(t *testing.T) {
	t.Parallel()
	w, conn, keys, pinned := inState(t, topology.ReadOnly)
	texts := w.keyTexts(t, keys, pinned)
	for _, sql := range []string{
		"INSERT INTO orders VALUES ($b, 'x')", "INSERT INTO orders VALUES ($a, 'x'), ($b, 'x')", "UPDATE orders SET note = 'x' WHERE id = $2", "DELETE FROM orders WHERE id = $2", "UPDATE orders SET note = 'x' WHERE id = $p",
		"INSERT INTO orders VALUES ($p, 'x')", "UPDATE orders SET note = 'x'", "DELETE FROM orders WHERE id IN ($1, $2)", "SELECT * FROM orders WHERE id = $2 FOR UPDATE", "SELECT * FROM orders FOR SHARE",
		"INSERT INTO countries VALUES ('fr', 'France')", "UPDATE countries SET name = 'x'", "DELETE FROM countries", "TRUNCATE orders", "ALTER TABLE orders ADD COLUMN more int", "CREATE INDEX ON orders (note)", "CREATE ROLE somebody",
		"WITH d AS (DELETE FROM orders WHERE id = $2 RETURNING *) SELECT * FROM d", "EXPLAIN ANALYZE UPDATE orders SET note = 'x' WHERE id = $2", "INSERT INTO orders SELECT id + 1, note FROM orders WHERE id = $b - 1 OR id = $2",
		"INSERT INTO orders SELECT $b, 'x'", "INSERT INTO orders SELECT CASE WHEN note = 'de' THEN $b END, note FROM orders LIMIT 1", "UPDATE countries SET name = (SELECT min(note) FROM orders)",
		"BEGIN; SELECT * FROM orders WHERE id = $2; UPDATE orders SET note = 'x' WHERE id = $2", "BEGIN; SELECT * FROM orders WHERE id = $2; SELECT * FROM orders WHERE id = $2 FOR UPDATE",
		"SELECT * FROM orders WHERE id = $2; DELETE FROM orders WHERE id = $2", "BEGIN; SELECT count(*) FROM orders; UPDATE orders SET note = 'x' WHERE id = $2", "BEGIN; SELECT id FROM orders; UPDATE orders SET note = 'x'",
		"BEGIN; UPDATE orders SET note = 'x' WHERE id = $1; UPDATE orders SET note = 'x' WHERE id = $2", "BEGIN; SELECT * FROM orders WHERE id = $2; INSERT INTO countries VALUES ('fr', 'France')",
		"BEGIN; DECLARE c CURSOR FOR SELECT * FROM orders WHERE id = $2; FETCH c; UPDATE orders SET note = 'x' WHERE id = $2", "PREPARE w AS UPDATE orders SET note = 'x' WHERE id = $2; EXECUTE w",
	} {
		refusedFor(t, conn, "25006", texts.Replace(sql))
		conn.query("DEALLOCATE ALL")
	}
	for _, sql := range []string{
		"SELECT * FROM orders WHERE id = $2", "SELECT * FROM orders WHERE id = $p", "SELECT count(*) FROM orders", "SELECT id FROM orders ORDER BY id", "SELECT * FROM orders WHERE id IN ($1, $2)", "SELECT a.id FROM orders a JOIN orders b ON a.note = b.note",
		"SELECT * FROM countries", "SELECT o.id FROM orders o JOIN countries c ON c.code = o.note WHERE o.id = $2", "EXPLAIN UPDATE orders SET note = 'x' WHERE id = $2", "EXPLAIN SELECT count(*) FROM orders",
		"BEGIN; SELECT * FROM orders WHERE id = $2; UPDATE orders SET note = 'x' WHERE id = $1; SELECT * FROM orders WHERE id = $2", "BEGIN; DECLARE c CURSOR FOR SELECT id FROM orders; FETCH ALL FROM c",
		"BEGIN; INSERT INTO orders VALUES ($a, 'x'), ($c, 'x')", "BEGIN; UPDATE orders SET note = 'x' WHERE id IN ($1, $3)", "BEGIN; SAVEPOINT a; SELECT * FROM orders WHERE id = $2; ROLLBACK TO a; DELETE FROM orders WHERE id = $3",
		"BEGIN; INSERT INTO undeclared SELECT id, note FROM orders", "BEGIN; INSERT INTO orders SELECT $a, note FROM orders WHERE id = $2",
		"SET work_mem = '5MB'; RESET work_mem", "SELECT 1",
	} {
		answered(t, conn, texts.Replace(sql))
	}
	wantCodes(t, conn.query("COPY orders FROM STDIN"), "25006", "ready I")
	if said := strings.Join(conn.query("COPY (SELECT id FROM orders) TO STDOUT"), "\n"); strings.Contains(said, "ERROR") || strings.Count(said, "data ") != 3 {
		t.Error(said)
	}
	for number := range 3 {
		if n := one[int](t, w.onShard(t, number+1), "SELECT count(*) FROM orders WHERE note = 'de'"); n != 1 {
			t.Errorf("shard %d has %d rows as they were", number+1, n)
		}
	}
	w.settled(t)
}

// TestAShardIsInMaintenance: no statement uses it, and those that need it say so; all else is answered.
func TestAShardIsInMaintenance(t *testing.T) {
	t.Parallel()
	w, conn, keys, pinned := inState(t, topology.Maintenance)
	texts := w.keyTexts(t, keys, pinned)
	if err := w.shards[1].Crash(); err != nil { // whoever asked it would fail otherwise
		t.Fatal(err)
	}
	for _, sql := range []string{
		"SELECT * FROM orders WHERE id = $2", "SELECT * FROM orders WHERE id = $p", "INSERT INTO orders VALUES ($b, 'x')", "UPDATE orders SET note = 'x' WHERE id = $2", "SELECT count(*) FROM orders", "SELECT id FROM orders ORDER BY id",
		"SELECT id FROM orders", "SELECT * FROM orders WHERE id IN ($1, $2)", "UPDATE orders SET note = 'x'", "DELETE FROM orders", "INSERT INTO countries VALUES ('fr', 'France')", "UPDATE countries SET name = 'x'", "TRUNCATE orders",
		"ALTER TABLE orders ADD COLUMN more int", "EXPLAIN SELECT count(*) FROM orders", "EXPLAIN SELECT * FROM orders WHERE id = $2", "INSERT INTO undeclared SELECT id, note FROM orders", "INSERT INTO orders SELECT id + 1, note FROM orders",
		"SELECT a.id FROM orders a JOIN orders b ON a.note = b.note", "BEGIN; SELECT * FROM orders WHERE id = $1; SELECT * FROM orders WHERE id = $2", "BEGIN; UPDATE orders SET note = 'x' WHERE id = $1; UPDATE orders SET note = 'x' WHERE id = $2",
		"BEGIN; DECLARE c CURSOR FOR SELECT id FROM orders; FETCH c",
	} {
		refusedFor(t, conn, "57P03", texts.Replace(sql))
	}
	for _, sql := range []string{
		"SELECT * FROM orders WHERE id = $1", "SELECT * FROM orders WHERE id IN ($1, $3)", "SELECT count(*) FROM orders WHERE id IN ($1, $3)", "BEGIN; INSERT INTO orders VALUES ($a, 'x'), ($c, 'x')", "BEGIN; UPDATE orders SET note = 'x' WHERE id IN ($1, $3)",
		"SELECT * FROM countries", "SELECT o.id FROM orders o JOIN countries c ON c.code = o.note WHERE o.id = $3", "BEGIN; INSERT INTO undeclared VALUES (1, 'x')", "SELECT 1", "SET work_mem = '5MB'; RESET work_mem",
	} {
		answered(t, conn, texts.Replace(sql))
	}
	wantCodes(t, conn.query("COPY orders FROM STDIN"), "57P03", "ready I")
	for range 6 { // reference tables are read from all shards in turn
		wantCodes(t, dialRaw(t, w.address, nil).query("SELECT * FROM countries"), "", "ready I")
	}
	conn.query("SET cleave.partial_results = on")
	partlyAnswered(t, "partial results", conn.query("SELECT id FROM orders"), "s2", fmt.Sprintf("row %q", text(keys[0])), fmt.Sprintf("row %q", text(keys[2])))
	wantCodes(t, conn.query(texts.Replace("SELECT * FROM orders WHERE id = $2")), "57P03", "ready I")
	w.settled(t)
}

// TestTheHomeShardIsInMaintenance: what it alone has is refused, and what any shard can answer another one does.
func TestTheHomeShardIsInMaintenance(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3, noPlain: true, setUp: []string{"INSERT INTO countries VALUES ('de', 'Germany')"}})
	conn := dialRaw(t, w.address, nil)
	second, third := w.key(t, 2, 0), w.key(t, 3, 0)
	maintain := func(names ...string) {
		t.Helper()
		m := w.m
		for _, name := range names {
			m = must[*topology.Map](t)(m.Next(topology.UpdateShard(name, func(s *topology.ShardSpec) { s.State = topology.Maintenance })))
		}
		w.publish(m)
	}
	maintain("s1")
	for _, sql := range []string{fmt.Sprintf("SELECT * FROM orders WHERE id = %d", w.key(t, 1, 0)), "SELECT * FROM undeclared", "INSERT INTO undeclared VALUES (1, 'x')", "SELECT count(*) FROM orders", "CREATE TABLE more (a int)", "INSERT INTO countries VALUES ('fr', 'France')"} {
		for _, said := range bothWays(conn, sql) {
			wantCodes(t, said, "57P03", "")
		}
	}
	others := []string{
		"SELECT 1", fmt.Sprintf("BEGIN; INSERT INTO orders VALUES (%d, 'x'), (%d, 'x')", second, third), fmt.Sprintf("SELECT * FROM orders WHERE id = %d", second), "SELECT * FROM countries",
		"BEGIN; SELECT 1; SAVEPOINT a; SELECT 2; ROLLBACK TO a",
	}
	for _, sql := range others {
		answered(t, conn, sql)
	}
	if err := w.shards[0].Crash(); err != nil { // what it was asked about before is known
		t.Fatal(err)
	}
	for _, sql := range others {
		answered(t, conn, sql)
	}
	maintain("s1", "s2", "s3")
	for _, said := range bothWays(conn, "SELECT 1") {
		wantCodes(t, said, "57P03", "")
	}
	w.settled(t)
}

// TestKeysAreMadeWhereRowsAreTaken: a row without a key goes to a shard that takes it, even if the transaction is on one that does not.
func TestKeysAreMadeWhereRowsAreTaken(t *testing.T) {
	t.Parallel()
	config := numbersConfig(3)
	config.noPlain = true
	w := newWorld(t, config)
	conn := dialRaw(t, w.address, nil)
	w.publish(must[*topology.Map](t)(w.m.Next(topology.UpdateShard("s2", func(s *topology.ShardSpec) { s.State = topology.ReadOnly }))))
	for range 10 {
		answered(t, conn, fmt.Sprintf("BEGIN; SELECT * FROM people WHERE id = %d; INSERT INTO people (name) VALUES ('x'); COMMIT", w.key(t, 2, 0)))
		answered(t, conn, "INSERT INTO people (name) VALUES ('x'), ('y')")
	}
	if n := one[int](t, w.onShard(t, 2), "SELECT count(*) FROM people"); n != 0 {
		t.Errorf("a shard that takes none has %d rows", n)
	}
	w.settled(t)
}
