package session

import (
	"fmt"
	"strings"
	"testing"
)

// TestExecuteOverSeveralShards: what PREPARE made in SQL is divided as the statement itself is.
func TestExecuteOverSeveralShards(t *testing.T) {
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
