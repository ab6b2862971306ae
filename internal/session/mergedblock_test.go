package session

import (
	"testing"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestMergedBehindADefinition: what the router itself says on the shards before a statement is none of its rows.
func TestMergedBehindADefinition(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := cursorWorld(t)
	w.sameAsPlain(t, texts("BEGIN", "CREATE INDEX orders_note ON orders (note)", "SELECT * FROM orders ORDER BY id LIMIT 2", "ALTER TABLE orders ADD COLUMN more int", "SELECT * FROM orders ORDER BY id DESC", "ROLLBACK")...)
}
