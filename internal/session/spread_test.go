package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/thorough"
)

// unordered sorts the rows between two other messages: the order of rows without ORDER BY is nobody's promise.
func unordered(said []string) []string {
	sorted := slices.Clone(said)
	for start := 0; start < len(sorted); start++ {
		end := start
		for end < len(sorted) && (strings.HasPrefix(sorted[end], "row ") || strings.HasPrefix(sorted[end], "data ")) {
			end++
		}
		slices.Sort(sorted[start:end])
		start = max(start, end-1)
	}
	return sorted
}

// TestStatementsOnSeveralShards: what a statement does in parts is what PostgreSQL does at once.
func TestStatementsOnSeveralShards(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3})
	var ids []string
	for number := range 3 {
		for n := range 3 {
			ids = append(ids, text(w.key(t, number+1, n)))
		}
	}
	all := strings.Join(ids, ", ")
	values := func(note string, ids ...string) string {
		rows := make([]string, len(ids))
		for i, id := range ids {
			rows[i] = fmt.Sprintf("(%s, '%s')", id, note)
		}
		return "INSERT INTO orders (id, note) VALUES " + strings.Join(rows, ", ")
	}
	mixed := []string{ids[0], ids[3], ids[6], ids[1], ids[4], ids[7]}
	described := func(sql string, parameters ...string) []pgproto3.FrontendMessage {
		return []pgproto3.FrontendMessage{parse("", sql), &pgproto3.Describe{ObjectType: 'S'}, bind("", "", parameters...), &pgproto3.Describe{ObjectType: 'P'}, run(""), sync1}
	}
	read := "SELECT * FROM orders WHERE id IN (" + all + ")"
	for name, steps := range map[string][]step{
		"rows":                    texts(values("x", mixed...), read),
		"rows returned in order":  texts(values("x", mixed...)+" RETURNING id, note, id * 2 AS twice", read),
		"one row that fails":      texts(values("x", ids[4]), values("y", mixed...), read),
		"a conflict is nothing":   texts(values("x", ids[4]), values("y", mixed...)+" ON CONFLICT DO NOTHING RETURNING id", read),
		"a conflict is an update": texts(values("x", ids[4]), values("y", mixed...)+" ON CONFLICT (id) DO UPDATE SET note = EXCLUDED.note || '!' RETURNING id, note", read),
		"a null key":              texts("INSERT INTO orders VALUES ("+ids[0]+", 'x'), (NULL, 'y'), ("+ids[3]+", 'z')", read),
		"a wrong value":           texts("INSERT INTO orders VALUES ("+ids[0]+", 'x'), ("+ids[3]+", 1/0), ("+ids[6]+", 'z')", read),
		"too few values":          texts("INSERT INTO orders VALUES ("+ids[0]+", 'x'), ("+ids[3]+")", read),
		"update and delete": texts(values("x", mixed...), "UPDATE orders SET note = note || id WHERE id IN ("+all+")", read,
			"UPDATE orders SET note = 'y' WHERE id IN ("+ids[0]+", "+ids[3]+") RETURNING id", "DELETE FROM orders WHERE id IN ("+ids[0]+", "+ids[4]+", 77777)", read, "DELETE FROM orders", read),
		"all rows":             texts(values("x", mixed...), "UPDATE orders SET note = 'z'", "SELECT note FROM orders", "SELECT id FROM orders WHERE note = 'z' AND id > 0"),
		"an error in one":      texts(values("1", mixed...), "UPDATE orders SET note = '0' WHERE id = "+ids[7], "SELECT id, 1/note::int FROM orders WHERE id IN ("+all+") AND note <> '1'", "UPDATE orders SET note = (1/note::int)::text", read),
		"in a transaction":     texts("BEGIN", values("x", mixed...), read, "SAVEPOINT a", "DELETE FROM orders WHERE id IN ("+all+")", read, "ROLLBACK TO a", read, "UPDATE orders SET note = 'y'", "COMMIT", read),
		"failed and undone":    texts("BEGIN", values("x", mixed...), values("y", mixed...), read, "ROLLBACK", read),
		"in a text":            texts(values("x", mixed...)+"; "+read+"; DELETE FROM orders WHERE id = "+ids[0], read),
		"after one shard":      texts("BEGIN", values("x", ids[0]), values("y", ids[1], ids[4]), "UPDATE orders SET note = 'z' WHERE id = "+ids[4], "COMMIT", read),
		"nothing named":        texts("SELECT * FROM orders WHERE id = ANY('{}')", "DELETE FROM orders WHERE id IN (NULL)", "UPDATE orders SET note = 'x' WHERE id = ANY(NULL)"),
		"no rows":              texts(read, "DELETE FROM orders WHERE id IN ("+all+")", "SELECT FROM orders WHERE id IN ("+ids[0]+","+ids[3]+")"),
		"by parameters":        {sent(pipeline(unnamed("INSERT INTO orders VALUES ($1, $2), ($3, $4), ($5, $2) RETURNING *", ids[0], "x", ids[3], "y", ids[6]), sync1)...), query(read)},
		"described":            {sent(described("INSERT INTO orders VALUES ($1, 'x'), ($2, 'y') RETURNING note, id", ids[0], ids[3])...), sent(described("SELECT note FROM orders WHERE id = ANY($1)", "{"+all+"}")...)},
		"an array":             {query(values("x", mixed...)), sent(pipeline(unnamed("SELECT id FROM orders WHERE id = ANY($1)", "{"+ids[0]+","+ids[3]+",NULL}"), sync1)...), query("SELECT id FROM orders WHERE id = ANY('{" + ids[0] + ", " + ids[4] + "}')")},
		"in a pipeline":        {sent(pipeline(unnamed("INSERT INTO orders VALUES ($1, 'x'), ($2, 'y')", ids[0], ids[3]), unnamed("UPDATE orders SET note = 'z' WHERE id = $1", ids[3]), unnamed(read), sync1)...), query(read)},
		"undone in one":        {sent(pipeline(unnamed("INSERT INTO orders VALUES ($1, 'x'), ($2, 'y')", ids[0], ids[3]), unnamed("INSERT INTO orders VALUES ($1, 'z')", ids[3]), sync1)...), query(read)},
		"kept in a portal":     {query(values("x", mixed...)), query("BEGIN"), sent(parse("", read), bind("p", ""), flush, sync1), sent(run("p"), sync1), query("COMMIT")},
		"a named statement":    {sent(parse("s", "INSERT INTO orders VALUES ($1, 'x'), ($2, 'y')"), sync1), sent(bind("", "s", ids[0], ids[3]), run(""), sync1), sent(bind("", "s", ids[1], ids[6]), run(""), sync1), query(read)},
		"by EXECUTE":           texts(values("x", mixed...), "PREPARE p AS "+read, "EXECUTE p", "PREPARE d AS DELETE FROM orders WHERE id IN ("+all+")", "EXECUTE d", "EXECUTE p"),
		"a comment among rows": texts("INSERT INTO orders VALUES /* ), ( */ ("+ids[0]+", 'x),(') -- )\n, ("+ids[3]+", $$a),($$) , ("+ids[6]+", (SELECT 'b'))", read),
		"VALUES elsewhere":     texts("INSERT INTO orders SELECT * FROM (VALUES ("+ids[0]+"::bigint, 'x')) AS v", "INSERT INTO orders VALUES ("+ids[1]+", (SELECT a FROM (VALUES ('y'), ('z')) AS v(a) LIMIT 1)), ("+ids[3]+", 'w')", read),
		"saved whole": append(texts(values("a", ids[0]), values("b", ids[4]), "UPDATE orders SET id = "+ids[0]+", note = 'c' WHERE note = 'a'",
			"UPDATE orders SET id = "+ids[4]+", note = 'd' WHERE note = 'b' RETURNING id, note", "UPDATE orders SET id = "+ids[4]+" WHERE note = 'nobody'", "UPDATE orders SET id = NULL WHERE note = 'c'", read),
			sent(pipeline(unnamed("UPDATE orders SET id = $1, note = $2 WHERE note = $3", ids[4], "e", "d"), sync1)...), query(read)),
		"reference tables": texts("INSERT INTO countries VALUES ('de', 'x'), ('fr', 'y') RETURNING code", "SELECT * FROM countries", "UPDATE countries SET name = 'z' WHERE code = 'de'", "SELECT * FROM countries", "DELETE FROM countries", "SELECT * FROM countries"),
	} {
		t.Run(name, func(t *testing.T) {
			thorough.Some(t, 3)
			w.empty(t)
			w.sameButOrder(t, steps...)
			w.sameRows(t)
			w.nothingPrepared(t)
		})
	}
}

// TestRowsAreNotMoved: an UPDATE that would give a row a key of another shard fails, and changes nothing, with and without the guards.
func TestRowsAreNotMoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3})
	for _, guards := range []string{"ENABLE", "DISABLE"} {
		t.Run(guards, func(t *testing.T) {
			w.empty(t)
			for i := range w.shards {
				execute(t, w.onShard(t, i+1), "ALTER TABLE orders "+guards+" TRIGGER ALL")
			}
			rowsAreNotMoved(t, w)
			w.nothingPrepared(t)
		})
	}
}

func rowsAreNotMoved(t *testing.T, w *world) {
	here, also, there := text(w.key(t, 1, 0)), text(w.key(t, 1, 1)), text(w.key(t, 2, 0))
	const save = "UPDATE orders SET id = $1 WHERE note = $2"
	c := dialRaw(t, w.address, nil)
	c.query("INSERT INTO orders VALUES (" + here + ", 'a')")
	c.ask(parse("save", save), sync1)
	refused := func(said []string) {
		t.Helper()
		if !slices.Contains(said, "ERROR 0A000 moving a row to another shard is not supported yet") {
			t.Errorf("%q", said)
		}
	}
	refused(c.query("UPDATE orders SET id = " + there + ", note = 'b' WHERE note = 'a'"))
	refused(c.ask(pipeline(unnamed(save, there, "a"), sync1)...))
	c.query("BEGIN")
	c.query("UPDATE orders SET note = 'b' WHERE id = " + here)
	refused(c.query("UPDATE orders SET id = " + there + " WHERE note = 'b'"))
	c.query("COMMIT")
	// Of two portals on the same shards each has a key of its own, whichever was made last.
	c.query("BEGIN")
	refused(c.ask(bind("goes", "save", there, "a"), bind("stays", "save", here, "nobody"), run("goes"), sync1))
	c.query("COMMIT")
	if note := one[string](t, w.onShard(t, 1), "SELECT note FROM orders WHERE id = "+here); note != "a" {
		t.Errorf("the row has the note %q", note)
	}
	if said := c.query("UPDATE orders SET id = " + also + " WHERE note = 'a'"); !slices.Contains(said, "done UPDATE 1") {
		t.Errorf("a row that stays on its shard: %q", said)
	}
}

// sameButOrder is sameAsPlain for statements whose rows come in no order, but for those of INSERT … RETURNING.
func (w *world) sameButOrder(t *testing.T, steps ...step) {
	t.Helper()
	want, got := play(t, w.plain.Addr(), steps), play(t, w.address, steps)
	for i := range steps {
		order := unordered
		if text := fmt.Sprint(steps[i].messages); strings.Contains(text, "RETURNING") && !strings.Contains(text, "CONFLICT") {
			order = slices.Clone[[]string]
		}
		if diff := cmp.Diff(order(inOrder(want[i])), order(inOrder(got[i]))); diff != "" {
			t.Errorf("step %d, %s: PostgreSQL (-) and the router (+) differ:\n%s", i+1, describe(steps[i].messages), diff)
		}
	}
	w.settled(t)
}

// TestWritersOfCopiesTakeTurns: they meet on the home shard, so none waits on one shard for who waits for it on another.
func TestWritersOfCopiesTakeTurns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3})
	const writers, rounds = 6, 25
	dialRaw(t, w.address, nil).query("INSERT INTO countries VALUES ('de', '0')")
	said := make(chan []string, writers)
	for i := range writers {
		c := dialRaw(t, w.address, nil)
		go func() {
			for range rounds - 1 {
				if i%2 == 0 {
					c.query("UPDATE countries SET name = (name::int + 1)::text WHERE code = 'de'")
				} else {
					c.ask(pipeline(unnamed("UPDATE countries SET name = (name::int + 1)::text WHERE code = $1", "de"), sync1)...)
				}
			}
			said <- c.query("UPDATE countries SET name = (name::int + 1)::text WHERE code = 'de'")
		}()
	}
	for range writers {
		if last := <-said; !slices.Equal(last, []string{"done UPDATE 1", "ready I"}) {
			t.Errorf("%q", last)
		}
	}
	for i := range w.shards {
		if sum := one[string](t, w.onShard(t, i+1), "SELECT name FROM countries WHERE code = 'de'"); sum != text(writers*rounds) {
			t.Errorf("shard %d has counted %s", i+1, sum)
		}
	}
	w.nothingPrepared(t)
}

// TestAnInsertFromAnotherShardBehindAStatement of the same text, whose keys turn out to be on two shards.
func TestAnInsertFromAnotherShardBehindAStatement(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{})
	here, there := w.key(t, 1, 0), w.key(t, 2, 0)
	insert := fmt.Sprintf("INSERT INTO orders SELECT %d, note FROM orders WHERE id = %d", there, here)
	w.sameAsPlain(t,
		query(fmt.Sprintf("INSERT INTO orders VALUES (%d, 'x')", here)), query("SELECT 1; "+insert), query("DELETE FROM orders WHERE id = "+text(there)), query("BEGIN; "+insert+"; COMMIT"),
		query("SELECT * FROM orders ORDER BY id"), query("SELECT 2; "+insert), query("SELECT 3"),
	)
}
