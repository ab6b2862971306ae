package session

import (
	"fmt"
	"strings"
	"testing"
)

// TestExplainShowsTheRoute: where a statement goes and why, and then what the shards say themselves.
func TestExplainShowsTheRoute(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2})
	a, b := w.key(t, 1, 0), w.key(t, 2, 0)
	client := dialRaw(t, w.address, nil)
	explained := func(said []string) string {
		var lines []string
		for _, s := range said {
			if line, ok := strings.CutPrefix(s, `row "`); ok {
				lines = append(lines, strings.TrimSuffix(line, `"`))
			}
		}
		return strings.Join(lines, "\n")
	}
	for _, c := range []struct {
		sql  string
		want []string
	}{
		{fmt.Sprintf("EXPLAIN SELECT * FROM orders WHERE id = %d", a), []string{"Route: one shard, s1", "Reason: orders.id", "Index"}},
		{fmt.Sprintf("EXPLAIN (COSTS off) DELETE FROM orders WHERE id = %d", b), []string{"Route: one shard, s2", "Delete on orders"}},
		{fmt.Sprintf("EXPLAIN SELECT * FROM orders WHERE id IN (%d, %d)", a, b), []string{"Route: in parts on s1, s2", "On s1:", "On s2:"}},
		{fmt.Sprintf("EXPLAIN ANALYZE INSERT INTO orders VALUES (%d, 'x'), (%d, 'y')", a, b), []string{"Route: in parts on s1, s2", "On s1:", "Insert on orders", "On s2:", "Execution Time"}},
		{fmt.Sprintf("EXPLAIN SELECT * FROM orders o JOIN orders p ON p.id = o.id WHERE p.id = %d", b), []string{"Route: one shard, s2", "Reason: o.id = p.id in ON, p.id = literal in WHERE\n"}},
		{"EXPLAIN INSERT INTO countries VALUES ('de', 'x')", []string{"Route: on every shard: s1, s2", "On s1:", "On s2:"}},
		{"EXPLAIN SELECT * FROM countries", []string{"Route: any shard, this time"}},
	} {
		for name, run := range map[string]func() []string{
			"simple": func() []string { return client.query(c.sql) }, "extended": func() []string { return client.ask(pipeline(unnamed(c.sql), sync1)...) },
		} {
			client.query("DELETE FROM orders")
			said := run()
			at := 0
			text := explained(said)
			for _, want := range c.want {
				found := strings.Index(text[at:], want)
				if found < 0 {
					t.Errorf("%s, %s: %q is not where it should be in\n%s\n%q", name, c.sql, want, text, said)
					break
				}
				at += found
			}
		}

	}
	w.sameAsPlain(t, texts("EXPLAIN (COSTS off) SELECT * FROM undeclared", "EXPLAIN (FORMAT json, COSTS off) SELECT * FROM orders WHERE id = 1", "EXPLAIN (COSTS off) SELECT 1")...)
}
