package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestExecuteOverSeveralShards: what PREPARE made in SQL is divided as the statement itself is.
func TestExecuteOverSeveralShards(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{setUp: []string{"CREATE TYPE mood AS ENUM ('fine', 'sad')", "ALTER TABLE orders ADD how mood, ADD amount numeric(6,2), ADD sure boolean"}})
	var keys []int64
	for n := range 3 {
		keys = append(keys, w.key(t, 1, n), w.key(t, 2, n))
	}
	first := fmt.Sprintf(`EXECUTE p(%d, 'it''s', %d, E'a\tb')`, keys[0], keys[1])
	w.sameAsPlain(t, texts(
		"PREPARE p AS INSERT INTO orders (id, note) VALUES ($1, $2), ($3, $4) RETURNING id, note", first, first, "SELECT 1",
		fmt.Sprintf("EXECUTE p(%d::bigint, 'x'::text, '%d'::bigint, NULL)", keys[2], keys[3]), "BEGIN", fmt.Sprintf("EXECUTE p(%d, 'x', %d, 'y'); SELECT 1", keys[4], keys[5]), "ROLLBACK",
		"PREPARE q (bigint, bigint, mood, numeric, boolean) AS INSERT INTO orders (id, how, amount, sure) VALUES ($1, $3, $4, $5), ($2, 'fine', -$4, NOT $5)",
		fmt.Sprintf("EXECUTE q(%d, %d, 'sad', 1.255, true)", keys[4], keys[5]), fmt.Sprintf("SELECT how::text, amount, sure FROM orders WHERE id = %d", keys[4]),
		fmt.Sprintf("SELECT how::text, amount, sure FROM orders WHERE id = %d", keys[5]), fmt.Sprintf("EXECUTE q(%d, %d, 'nosuch', 1, true)", keys[4], keys[5]),
		"PREPARE r AS UPDATE orders SET note = $1 WHERE id IN ($2, $3)", fmt.Sprintf("EXECUTE r('new', %d, %d)", keys[0], keys[1]), fmt.Sprintf("SELECT note FROM orders WHERE id = %d", keys[1]),
		"PREPARE e AS SELECT note FROM orders WHERE note = $1", "EXECUTE e('new')",
	)...)
	c := dialRaw(t, w.address, nil)
	c.query("PREPARE p AS INSERT INTO orders VALUES ($1, $2), ($3, $4)")
	for _, arguments := range []string{"EXECUTE p(%d, 1, %d, 2)", "EXECUTE p(%d, 'x' || 'y', %d, '')", "EXPLAIN EXECUTE p(%d, 'x', %d, '')"} {
		sql := fmt.Sprintf(arguments, keys[0], keys[1])
		if said := strings.Join(c.query(sql), "\n"); !strings.Contains(said, "0A000") {
			t.Errorf("%s: %s", sql, said)
		}
	}
}

// TestPreparedTimesAreNotCopied: every shard would read such a literal at another moment.
func TestPreparedTimesAreNotCopied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, setUp: []string{"ALTER TABLE countries ADD since timestamptz"}})
	c := dialRaw(t, w.address, nil)
	c.query("PREPARE p AS INSERT INTO countries (code, since) VALUES ('NZ', 'now')")
	if said := strings.Join(c.query("EXECUTE p"), "\n"); !strings.Contains(said, "0A000") {
		t.Errorf("copies differ: %s", said)
	}
	c.query("PREPARE q AS INSERT INTO countries (code, since) VALUES ('NZ', '2020-01-01')")
	if said := strings.Join(c.query("EXECUTE q"), "\n"); !strings.Contains(said, "INSERT 0 1") {
		t.Errorf("a plain time: %s", said)
	}
}

// TestExecuteInSteps: arguments of all kinds of a statement that no shard answers alone, and what is wrong with them.
func TestExecuteInSteps(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := cursorWorld(t)
	ext := func(sql string) step { return sent(pipeline(unnamed(sql), sync1)...) }
	binary := bind("", "")
	binary.ResultFormatCodes = []int16{1}
	const prepare = "PREPARE p (bigint, text) AS SELECT id, note || $2 AS note, $1 FROM orders WHERE id > $1 ORDER BY id"
	for name, steps := range map[string][]step{
		"literals":    texts(prepare, "EXECUTE p(17, 'x')", "EXECUTE p('17', '')", "EXECUTE p(17::int, 'x'::varchar)", "EXECUTE p(NULL, 'x')", "EXECUTE p(18, NULL)"),
		"expressions": texts(prepare, "EXECUTE p(10 + 8, upper('x') || 1)", "EXECUTE p(length(repeat('x', 18)), current_setting('server_version_num') || '')", "EXECUTE p(18.4, now()::date - now()::date)", "EXECUTE p((SELECT 1), 'x')"),
		"wrong":       texts(prepare, "EXECUTE p(17)", "EXECUTE p(17, 'x', 1)", "EXECUTE p('x', 'x')", "EXECUTE p('x' || 'y', 'x')", "EXECUTE p(1 / 0, 'x')", "EXECUTE p(nothing, 'x')", "EXECUTE p($1, 'x')", "EXECUTE q(1)", "SELECT 1; EXECUTE p('x' || 'y', 'x')"),
		"no types":    texts("PREPARE p AS SELECT count(*), sum(id), max(note) FROM orders WHERE id < $1 AND note <> $2", "EXECUTE p(5, 'note 0')", "EXECUTE p(5.6, 'x')", "DEALLOCATE p", "EXECUTE p(5, 'x')"),
		"of none":     texts("PREPARE p AS SELECT note FROM orders ORDER BY id LIMIT 2", "EXECUTE p", "EXECUTE p()", "EXECUTE p(1)"),
		"types":       texts("PREPARE p (date, float8, numeric, bytea, int[], boolean) AS SELECT $1, $2, $3, $4, $5, $6, count(*) FROM orders", "EXECUTE p('2020-01-02', 0.1, 1.50, '\\x01', '{1,NULL}', true)", "EXECUTE p(NULL, 'NaN', 1e30, '', ARRAY[1, 2], 'f')"),
		"in a block":  texts("BEGIN", prepare, "UPDATE orders SET note = 'changed' WHERE id = 20", "EXECUTE p(18, '!')", "SAVEPOINT a", "EXECUTE p('x', 'x')", "ROLLBACK TO a", "EXECUTE p(19, '!')", "ROLLBACK", "EXECUTE p(19, '!')"),
		"in one text": texts(prepare+"; EXECUTE p(18, 'x'); SELECT 1; EXECUTE p(19, 'y')", "EXECUTE p(19, 'z')"),
		"keys":        texts("PREPARE p AS SELECT note FROM orders WHERE id IN ($1, $2, $3) ORDER BY id", "EXECUTE p(1, 2, 3)", "EXECUTE p(7, 7, 7)", "EXECUTE p(NULL, 1, 2)"),
		"a write":     texts("BEGIN", "PREPARE p AS UPDATE orders SET note = (SELECT max(note) FROM orders WHERE id < $1) WHERE id < 3 RETURNING id < 3, note", "EXECUTE p(10)", "ROLLBACK"),
		"by the protocol": {
			query(prepare), ext("EXECUTE p(17, 'x')"), sent(parse("e", "EXECUTE p(16 + 1, 'x')"), describeStatement("e"), sync1), sent(bind("", "e"), describePortal(""), runSome("", 2), run(""), sync1),
			sent(parse("", "EXECUTE p(17, 'x')"), binary, describePortal(""), run(""), sync1), sent(parse("q", "SELECT note FROM orders WHERE id > $1 ORDER BY id"), sync1), query("EXECUTE q(18)"), ext("EXECUTE q('18')"), ext("EXECUTE q('x')"),
		},
		"under other settings": texts("PREPARE p (date) AS SELECT $1, count(*) FROM orders", "SET datestyle = 'German'", "EXECUTE p('03.02.2020')", "RESET datestyle", "EXECUTE p('2020-02-03')"),
	} {
		t.Run(name, func(t *testing.T) { w.sameAsPlain(t, steps...) })
	}
	c := dialRaw(t, w.address, nil)
	c.query(prepare)
	if said := strings.Join(c.query("EXPLAIN EXECUTE p(17, 'x')"), "\n"); !strings.Contains(said, "0A000 EXPLAIN of a prepared statement") {
		t.Errorf("%s", said)
	}
	w.nothingPrepared(t)
}
