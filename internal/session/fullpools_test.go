package session

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cleavedb/cleave/internal/pool"
)

// TestFullPools: statements over several shards, in however many steps, go on where shards have fewer backends than there are clients: none holds what another
// waits for, and waits for what that one holds.
func TestFullPools(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3, noPlain: true, pools: pool.Config{PerShard: 2}})
	setup := dialRaw(t, w.address, nil)
	for _, sql := range []string{
		"CREATE TABLE tags (n int, tag text)", "INSERT INTO tags SELECT i, 'Tag ' || i % 7 FROM generate_series(1, 40) AS i",
		"INSERT INTO orders (id, note) SELECT i, 'note ' || i % 60 FROM generate_series(1, 3000) AS i", "ANALYZE orders", "ANALYZE tags",
	} {
		wantCodes(t, setup.query(sql), "", "ready I")
	}
	statements := []string{
		"SELECT tag, count(*) FROM orders o JOIN tags t ON o.note = 'note ' || t.n GROUP BY tag",
		"SELECT count(*) FROM orders a JOIN orders b ON a.note = b.note AND b.id = a.id + 1",
		"SELECT note, count(*) FROM orders GROUP BY note ORDER BY note LIMIT 3",
		"SELECT id FROM orders ORDER BY id DESC LIMIT 3",
		"SELECT string_agg(note, ',' ORDER BY id) FROM orders WHERE id < 20",
		"SELECT count(*) FROM orders WHERE note IN (SELECT 'note ' || n FROM tags WHERE n < (SELECT count(*) FROM orders WHERE id < 9))",
		"WITH m AS (SELECT max(id) AS id FROM orders) SELECT note FROM orders o JOIN m ON m.id = o.id",
		"UPDATE orders SET note = t.tag FROM tags t WHERE t.n = 5 AND orders.id = %[1]d",
		"INSERT INTO orders (id, note) SELECT 100000 * %[1]d + id, note FROM orders WHERE id < 20",
		"DELETE FROM orders WHERE id > 100000 * %[1]d AND id < 100000 * %[1]d + 50000",
	}
	var clients sync.WaitGroup
	for number := range 6 {
		client := dialRaw(t, w.address, nil)
		clients.Go(func() {
			for round := range 4 * len(statements) {
				sql := statements[(round+number*3)%len(statements)]
				if strings.Contains(sql, "%") {
					sql = fmt.Sprintf(sql, number+1)
				}
				said := strings.Join(client.query(sql), "\n")
				if strings.Contains(said, "ERROR") && !strings.Contains(said, "23505") || !strings.HasSuffix(said, "ready I") {
					t.Errorf("%s: %s", sql, said)
				}
			}
		})
	}
	clients.Wait()
}

// TestNewTypesAreKnownWhereAPoolIsFull: a shard's own number of a type that was made since the numbers were learnt reaches no client, also if nobody else can be asked.
func TestNewTypesAreKnownWhereAPoolIsFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2, noPlain: true, pools: pool.Config{PerShard: 1}})
	other := w.onShard(t, 2)
	for i := range 20 {
		execute(t, other, fmt.Sprintf("CREATE TYPE gap%d AS ENUM ('x')", i))
	}
	c := dialRaw(t, w.address, nil)
	home, away := w.key(t, 1, 0), w.key(t, 2, 0)
	for _, sql := range []string{
		fmt.Sprintf("INSERT INTO orders VALUES (%d, 'a'), (%d, 'b')", home, away), "SELECT count(*) FROM orders", "CREATE TYPE mood AS ENUM ('a')", "ALTER TABLE orders ADD COLUMN m mood DEFAULT 'a'", "BEGIN",
	} {
		c.query(sql)
	}
	var columns [2]string
	for i, key := range []int64{home, away} {
		columns[i] = c.query(fmt.Sprintf("SELECT m FROM orders WHERE id = %d", key))[0]
	}
	if columns[0] != columns[1] || !strings.HasPrefix(columns[0], "columns m:") {
		t.Errorf("%q", columns)
	}
	c.query("ROLLBACK")
}
