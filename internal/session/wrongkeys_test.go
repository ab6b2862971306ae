package session

import "testing"

// TestAKeyOfAnotherType: what no cast makes a key of is PostgreSQL's error, at the place in the client's text.
func TestAKeyOfAnotherType(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2})
	w.empty(t)
	w.sameButOrder(t, texts(
		"INSERT INTO orders VALUES (true, 'x')", "INSERT INTO orders VALUES (1, 'x'), (false, 'y')",
		"INSERT INTO orders VALUES ('x', 'x')", "SELECT * FROM orders",
	)...)
	w.sameRows(t)
}
