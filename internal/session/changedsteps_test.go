package session

import (
	"slices"
	"testing"
)

// TestColumnsOfStepsStay: a client that was told the columns of a prepared statement in steps is not given others.
func TestColumnsOfStepsStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2, noPlain: true})
	conn, other := dialRaw(t, w.address, nil), dialRaw(t, w.address, nil)
	conn.ask(parse("s", "SELECT * FROM orders ORDER BY note"), describeStatement("s"), sync1)
	if said := conn.ask(bind("", "s"), run(""), sync1); !slices.Contains(said, "done SELECT 0") {
		t.Fatalf("at first: %q", said)
	}
	other.query("ALTER TABLE orders ADD COLUMN more int")
	wantCodes(t, conn.ask(bind("", "s"), run(""), sync1), "0A000", "ready I")
	conn.ask(parse("w", "UPDATE orders SET note = 'x' WHERE note IN (SELECT note FROM orders)"), sync1)
	if said := conn.ask(describeStatement("w"), sync1); !slices.Contains(said, "nodata") {
		t.Errorf("a write is described as %q", said)
	}
}
