package session

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestFewRowsAreSentToMany: if one side of a join has many rows and the other few, the few are sent to the many, and the answer is the same in all forms.
func TestFewRowsAreSentToMany(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3})
	w.sameButOrder(t, texts(
		"CREATE TABLE tags (n int, tag text COLLATE \"C\", price numeric(8, 2), lists int[])",
		"INSERT INTO tags SELECT i, CASE WHEN i % 5 > 0 THEN 'Tag ' || i % 7 END, i / 4.0 FROM generate_series(1, 40) AS i",
		"INSERT INTO orders (id, note) SELECT i, nullif('note ' || i % 60, 'note 9') FROM generate_series(1, 6000) AS i",
		"ANALYZE orders", "ANALYZE tags")...)
	const join = " FROM orders o JOIN tags t ON o.note = 'note ' || t.n"
	for _, sql := range []string{
		"SELECT tag, count(*), sum(price), avg(o.id)" + join + " GROUP BY tag",
		"SELECT tag, count(*)" + join + " GROUP BY tag HAVING count(*) > 100 ORDER BY count(*) DESC, tag LIMIT 3",
		"SELECT o.id, t.tag" + join + " WHERE t.n < 30 AND o.id % 10 = 3",
		"SELECT o.id, t.tag" + join + " ORDER BY t.tag, o.id LIMIT 10 OFFSET 5",
		"SELECT DISTINCT t.tag, o.note" + join,
		"SELECT count(DISTINCT (o.note, t.tag))" + join,
		"SELECT max(t.tag), min(o.note)" + strings.Replace(join, "JOIN", "LEFT JOIN", 1),
		"SELECT count(*), count(o.id), count(t.n)" + strings.Replace(join, "JOIN", "RIGHT JOIN", 1),
		"SELECT count(*), count(o.id), count(t.n)" + strings.Replace(join, "JOIN", "FULL JOIN", 1) + " AND o.id > 10",
		"SELECT count(*) FROM orders WHERE note IN (SELECT 'note ' || n FROM tags WHERE tag IS NOT NULL)",
		"SELECT count(*) FROM orders WHERE note NOT IN (SELECT 'note ' || n FROM tags)",
		"SELECT count(*) FROM orders o WHERE NOT EXISTS (SELECT FROM tags t WHERE o.note = 'note ' || t.n)",
		"SELECT o.id, (SELECT max(price) FROM tags t WHERE 'note ' || t.n = o.note) FROM orders o WHERE o.id < 40",
		"SELECT tag, row_number() OVER (PARTITION BY tag ORDER BY o.id DESC) FROM orders o JOIN tags t ON o.note = 'note ' || t.n WHERE o.id < 300",
		"SELECT t.tag, u.tag, count(*) FROM orders o JOIN tags t ON o.note = 'note ' || t.n JOIN tags u ON u.n = t.n + 1 GROUP BY 1, 2",
		"SELECT count(*)" + join + " WHERE lists IS NULL",
		"SELECT count(lists)" + join,
		"SELECT 1 / (count(*) - 4000)" + join + " WHERE t.n < 0",
	} {
		w.sameButOrder(t, query(sql), sent(parse("", sql), bind("", ""), describePortal(""), run(""), sync1))
	}
	said := strings.Join(dialRaw(t, w.address, nil).query("EXPLAIN SELECT tag, count(*)"+join+" GROUP BY tag"), "\n")
	for _, want := range []string{"Sent along: the rows of pull 2, in place of pulling those of pull 1", "Rest, pull 1, on s1, s2, s3: SELECT", "Rest, finish"} {
		if !strings.Contains(said, want) {
			t.Errorf("EXPLAIN does not say %q:\n%s", want, said)
		}
	}
}
