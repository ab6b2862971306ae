package session

import (
	"slices"
	"testing"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestSavepointsBehindAStatementOnSeveralShards: by the extended protocol as by the simple one, when no shard is at work.
func TestSavepointsBehindAStatementOnSeveralShards(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
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

// TestRowsOfSeveralShardsInPortions: a client fetches rows of several shards so many at a time, whatever they are of, as from one server.
func TestRowsOfSeveralShardsInPortions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3})
	w.empty(t)
	here, there, far := text(w.key(t, 1, 0)), text(w.key(t, 2, 0)), text(w.key(t, 3, 0))
	insert := "INSERT INTO orders VALUES (" + here + ", 'x'), (" + there + ", 'x'), (" + far + ", 'x')"
	all := parse("", "SELECT note FROM orders")
	for name, steps := range map[string][]step{
		"one at a time":        {sent(all, bind("", ""), describePortal(""), runSome("", 1), runSome("", 1), runSome("", 1), runSome("", 1), runSome("", 1), sync1)},
		"more than there are":  {sent(all, bind("", ""), runSome("", 2), runSome("", 2), sync1), sent(all, bind("", ""), runSome("", 9), sync1)},
		"the rest at once":     {sent(all, bind("", ""), runSome("", 1), run(""), run(""), sync1)},
		"none left":            {sent(all, bind("", ""), run(""), runSome("", 1), sync1)},
		"flushed":              {flushed(4, all, bind("", ""), runSome("", 1), flush), flushed(2, runSome("", 1), flush), sent(runSome("", 5), sync1)},
		"in order":             {sent(parse("", "SELECT id FROM orders ORDER BY id DESC"), bind("", ""), describePortal(""), runSome("", 2), runSome("", 2), sync1)},
		"computed":             {sent(parse("", "SELECT count(*), max(note) FROM orders GROUP BY note"), bind("", ""), runSome("", 1), runSome("", 1), sync1)},
		"with a limit":         {sent(parse("", "SELECT note FROM orders LIMIT 2"), bind("", ""), runSome("", 1), runSome("", 1), runSome("", 1), sync1)},
		"of an INSERT":         {sent(parse("", insert+" ON CONFLICT DO NOTHING RETURNING id"), bind("", ""), runSome("", 1), run(""), sync1)},
		"of new rows":          {query("DELETE FROM orders"), sent(parse("", insert+" RETURNING id"), bind("", ""), describePortal(""), runSome("", 1), runSome("", 1), run(""), run(""), sync1)},
		"of an UPDATE":         {sent(parse("", "UPDATE orders SET note = 'y' RETURNING note"), bind("", ""), runSome("", 2), sync1), query("SELECT note FROM orders"), query("UPDATE orders SET note = 'x'")},
		"of a copied table":    {sent(parse("", "INSERT INTO countries VALUES ('a', 'b'), ('c', 'd') RETURNING name"), bind("", ""), runSome("", 1), runSome("", 2), sync1), query("DELETE FROM countries")},
		"no rows":              {sent(parse("", "UPDATE orders SET note = 'x'"), bind("", ""), runSome("", 1), sync1), sent(parse("", "COPY orders (note) TO STDOUT"), bind("", ""), runSome("", 1), sync1)},
		"by name, in a block":  {query("BEGIN"), sent(all, bind("p", ""), sync1), sent(runSome("p", 1), sync1), sent(describePortal("p"), runSome("p", 1), closePortal("p"), runSome("p", 1), sync1), query("COMMIT")},
		"ended by a commit":    {query("BEGIN"), sent(all, bind("p", ""), runSome("p", 1), sync1), query("COMMIT"), sent(runSome("p", 1), sync1)},
		"ended by a Sync":      {sent(all, bind("p", ""), runSome("p", 1), sync1), sent(runSome("p", 1), sync1)},
		"in a failed block":    {query("BEGIN"), sent(all, bind("p", ""), runSome("p", 1), sync1), query("SELECT 1/0"), sent(runSome("p", 1), sync1), sent(closePortal("p"), sync1), query("ROLLBACK")},
		"beside others":        {query("BEGIN"), sent(pipeline(all, bind("p", ""), runSome("p", 1), unnamed("SELECT 5"), runSome("p", 1), unnamed("SELECT note FROM orders WHERE id = "+there), run("p"), sync1)...), query("COMMIT")},
		"one name for two":     {query("BEGIN"), sent(all, bind("p", ""), runSome("p", 1), bind("p", ""), sync1), query("ROLLBACK")},
		"one name, in steps":   {query("BEGIN"), sent(parse("", "SELECT id FROM orders ORDER BY id"), bind("p", ""), runSome("p", 1), bind("p", ""), sync1), query("ROLLBACK")},
		"the unnamed anew":     {query("BEGIN"), sent(all, bind("", ""), runSome("", 1), bind("", ""), runSome("", 2), sync1), query("SELECT 1"), sent(runSome("", 1), sync1), query("ROLLBACK")},
		"what fails meanwhile": {sent(parse("", "SELECT 1 / (length(note) - 1) FROM orders"), bind("", ""), runSome("", 1), run(""), sync1), query("SELECT note FROM orders")},
	} {
		t.Run(name, func(t *testing.T) {
			for _, address := range []string{w.plain.Addr(), w.address} {
				c := dialRaw(t, address, nil)
				c.query("DELETE FROM orders")
				c.query(insert)
			}
			w.sameAsPlain(t, steps...)
		})
	}
	w.nothingPrepared(t)
}

// TestExplainInPortions: the router's own lines are among those that are kept.
func TestExplainInPortions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	for _, sql := range []string{"EXPLAIN SELECT note FROM orders", "EXPLAIN SELECT note FROM orders ORDER BY note"} {
		c := dialRaw(t, w.address, nil)
		whole := c.ask(pipeline(unnamed(sql), sync1)...)
		parts := c.ask(parse("", sql), bind("", ""), describePortal(""), runSome("", 1), runSome("", 2), run(""), sync1)
		parts = slices.DeleteFunc(parts, func(said string) bool { return said == "portalsuspended" })
		if !slices.Equal(whole, parts) || !slices.Contains(whole, "done EXPLAIN") {
			t.Errorf("%s: at once %q, in portions %q", sql, whole, parts)
		}
	}
	w.settled(t)
}
