package session

import (
	"slices"
	"testing"
)

// TestSavepointsBehindAStatementOnSeveralShards: by the extended protocol as by the simple one, when no shard is at work.
func TestSavepointsBehindAStatementOnSeveralShards(t *testing.T) {
	w := newWorld(t, worldConfig{shards: 3})
	w.empty(t)
	first, second := text(w.key(t, 1, 0)), text(w.key(t, 2, 0))
	var steps []step
	for _, sql := range []string{
		"BEGIN", "INSERT INTO orders VALUES (" + first + ", 'x'), (" + second + ", 'x')", "SAVEPOINT a", "UPDATE orders SET note = 'y'", "SAVEPOINT b",
		"UPDATE orders SET note = 'z'", "ROLLBACK TO b", "SAVEPOINT c", "RELEASE b", "RELEASE c", "ROLLBACK TO a", "RELEASE a", "ROLLBACK TO a", "COMMIT",
		"BEGIN", "INSERT INTO orders VALUES (" + first + ", 'x'), (" + second + ", 'x')", "SAVEPOINT a", "DELETE FROM orders", "ROLLBACK TO a", "RELEASE a", "COMMIT",
		"SELECT * FROM orders",
	} {
		steps = append(steps, sent(pipeline(unnamed(sql), sync1)...))
	}
	w.sameButOrder(t, steps...)
	w.sameRows(t)
	w.nothingPrepared(t)
}

// TestALimitOfRowsOnSeveralShardsIsRefused: the client hears why, and the shards are as they were.
func TestALimitOfRowsOnSeveralShardsIsRefused(t *testing.T) {
	w := newWorld(t, worldConfig{shards: 3})
	w.empty(t)
	here, there := text(w.key(t, 1, 0)), text(w.key(t, 2, 0))
	c := dialRaw(t, w.address, nil)
	c.query("INSERT INTO orders VALUES (" + here + ", 'x'), (" + there + ", 'x')")
	both := " WHERE id IN (" + here + ", " + there + ")"
	for _, sql := range []string{"SELECT id FROM orders" + both, "DELETE FROM orders" + both + " RETURNING id"} {
		said := c.ask(parse("", sql), bind("", ""), runSome("", 1), sync1)
		if !slices.Equal(said, []string{"parsecomplete", "bindcomplete", "ERROR 0A000 a limit of rows for a statement on several shards is not supported yet", "ready I"}) {
			t.Errorf("%s: %q", sql, said)
		}
	}
	if said := c.query("SELECT note FROM orders" + both); !slices.Contains(said, "done SELECT 2") {
		t.Errorf("%q", said)
	}
}
