package session

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// TestAShardIsDown: whatever needs a shard that is down fails with an error of a connection that names it, and the session goes on.
func TestAShardIsDown(t *testing.T) {
	t.Parallel()
	w, conn := timedWorld(t)
	list := fmt.Sprintf("(%d, %d)", w.key(t, 1, 0), w.key(t, 2, 0))
	statements := maps.Clone(stuckStatements)
	statements[fmt.Sprintf("SELECT * FROM orders WHERE id = %d", w.key(t, 2, 0))] = ""
	statements[fmt.Sprintf("UPDATE orders SET note = 'x' WHERE id = %d", w.key(t, 2, 0))] = ""
	statements[fmt.Sprintf("INSERT INTO orders VALUES (%d, 'x'), (%d, 'y')", w.key(t, 1, 5), w.key(t, 2, 5))] = ""
	statements["COPY orders FROM STDIN"] = ""
	statements["ALTER TABLE orders ADD COLUMN extra int"] = ""
	statements["EXPLAIN SELECT count(*) FROM orders"] = ""
	if err := w.shards[1].Crash(); err != nil {
		t.Fatal(err)
	}
	for sql := range statements {
		sql = strings.ReplaceAll(sql, "%s", list)
		for _, messages := range [][]pgproto3.FrontendMessage{{&pgproto3.Query{String: sql}}, pipeline(unnamed(sql), sync1)} {
			said := conn.ask(messages...)
			lostCodes(t, said, "ready I")
			if !strings.Contains(strings.Join(said, "\n"), `"s2"`) {
				t.Errorf("%s does not name the shard: %q", sql, said)
			}
		}
	}
	wantCodes(t, conn.query(fmt.Sprintf("SELECT * FROM orders WHERE id = %d", w.key(t, 3, 0))), "", "ready I")
	w.settled(t)
}
