package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/thorough"
)

// cursorWorld has rows of orders on all of three shards, and on the plain server: ids 1 to 20, one note in two.
func cursorWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, worldConfig{shards: 3})
	var rows []string
	for id := range 20 {
		rows = append(rows, fmt.Sprintf("(%d, 'note %d')", id+1, id/2))
	}
	for _, address := range []string{w.plain.Addr(), w.address} {
		dialRaw(t, address, nil).query("INSERT INTO orders VALUES " + strings.Join(rows, ", "))
	}
	return w
}

// TestCursorsOverSeveralShards: all ways to go, and what is said of them.
func TestCursorsOverSeveralShards(t *testing.T) {
	t.Parallel()
	w := cursorWorld(t)
	const declare = "DECLARE c SCROLL CURSOR FOR SELECT id, note FROM orders ORDER BY id"
	for name, queries := range map[string][]string{
		"forward": {
			"BEGIN", "DECLARE c CURSOR FOR SELECT * FROM orders ORDER BY id", "FETCH c", "FETCH 3 FROM c", "FETCH FORWARD 2 FROM c", "FETCH NEXT IN c", "MOVE 5 FROM c",
			"FETCH 2 c", "FETCH BACKWARD 1 FROM c", "FETCH ALL FROM c", "FETCH c", "FETCH PRIOR c", "CLOSE c", "FETCH c", "ROLLBACK",
		},
		"scroll": {
			"BEGIN", declare, "FETCH LAST c", "FETCH PRIOR c", "FETCH FIRST c", "FETCH ABSOLUTE 7 c", "FETCH RELATIVE -2 c", "FETCH RELATIVE 3 c", "FETCH BACKWARD ALL c", "FETCH PRIOR c", "FETCH 0 c", "MOVE 0 c",
			"MOVE ABSOLUTE 10 c", "FETCH 0 c", "MOVE 0 c", "FETCH RELATIVE 0 c", "MOVE ALL c", "FETCH 0 c", "MOVE BACKWARD ALL c", "FETCH ABSOLUTE -3 c", "FETCH ABSOLUTE 99 c", "FETCH PRIOR c", "FETCH ABSOLUTE -99 c",
			"FETCH NEXT c", "FETCH ABSOLUTE 0 c", "FETCH FORWARD -1 c", "FETCH BACKWARD -2 c", "FETCH -1 c", "MOVE 7 c", "MOVE BACKWARD 3 c", "FETCH c", "MOVE BACKWARD ALL c", "FETCH FORWARD ALL c", "FETCH BACKWARD 3 c", "COMMIT", "FETCH c",
		},
		"no scroll": {
			"BEGIN", "DECLARE c NO SCROLL CURSOR FOR SELECT id FROM orders ORDER BY id", "FETCH 2 c", "FETCH ABSOLUTE 5 c", "FETCH RELATIVE 2 c", "SAVEPOINT a", "FETCH BACKWARD 1 c", "ROLLBACK TO a", "FETCH c", "FETCH 0 c", "ROLLBACK TO a", "MOVE 0 c",
			"FETCH ABSOLUTE 1 c", "ROLLBACK TO a", "FETCH LAST c", "ROLLBACK TO a", "FETCH c", "ROLLBACK",
		},
		"of no rows": {
			"BEGIN", "DECLARE c CURSOR FOR SELECT id FROM orders WHERE note = 'none' ORDER BY id", "FETCH c", "FETCH PRIOR c", "FETCH ALL c", "MOVE BACKWARD ALL c", "FETCH LAST c", "FETCH 0 c", "COMMIT",
		},
		"in the wrong place": {
			"DECLARE c CURSOR FOR SELECT id FROM orders ORDER BY id", "FETCH c", "BEGIN", "DECLARE c CURSOR FOR SELECT nothing FROM orders ORDER BY id", "ROLLBACK", "CLOSE c",
			"BEGIN", "DECLARE c SCROLL NO SCROLL CURSOR FOR SELECT id FROM orders ORDER BY id", "ROLLBACK", "BEGIN", "DECLARE c CURSOR WITH HOLD FOR SELECT id FROM orders FOR UPDATE", "ROLLBACK",
			"BEGIN", "DECLARE c CURSOR FOR SELECT $1 FROM orders ORDER BY id", "ROLLBACK", "BEGIN", "SELECT 1/0", declare, "ROLLBACK",
		},
		"one name for two": {
			"BEGIN", declare, declare, "ROLLBACK", "BEGIN", declare, "DECLARE c CURSOR FOR SELECT 1", "ROLLBACK", "BEGIN", "DECLARE c CURSOR FOR SELECT 1", declare, "ROLLBACK",
			"BEGIN", "DECLARE c CURSOR FOR SELECT note FROM orders WHERE id = 1", declare, "ROLLBACK", "BEGIN", declare, "CLOSE c", declare, "FETCH c", "COMMIT",
			"DECLARE h CURSOR WITH HOLD FOR SELECT 1", "BEGIN", "DECLARE h CURSOR FOR SELECT id FROM orders ORDER BY id", "ROLLBACK", "FETCH h", "CLOSE h",
			"DECLARE h CURSOR WITH HOLD FOR SELECT id FROM orders ORDER BY id", "DECLARE h CURSOR WITH HOLD FOR SELECT 1", "DECLARE h CURSOR FOR SELECT 1", "FETCH h", "CLOSE h",
		},
		"with savepoints": {
			"BEGIN", "DECLARE x CURSOR FOR SELECT id FROM orders ORDER BY id", "SAVEPOINT s", "DECLARE y CURSOR FOR SELECT note FROM orders ORDER BY id", "FETCH x", "FETCH y", "ROLLBACK TO s", "FETCH x",
			"SAVEPOINT t", "DECLARE z CURSOR FOR SELECT id FROM orders ORDER BY id DESC", "RELEASE t", "FETCH z", "FETCH y", "ROLLBACK TO s", "FETCH z", "ROLLBACK TO s", "CLOSE x", "ROLLBACK TO s", "FETCH x", "ROLLBACK",
			"BEGIN", "SAVEPOINT a", declare, "RELEASE a", "FETCH c", "SELECT 1/0", "ROLLBACK",
		},
		"with hold": {
			"BEGIN", "DECLARE h CURSOR WITH HOLD FOR SELECT id FROM orders ORDER BY id", "FETCH 2 h", "COMMIT", "FETCH 2 h", "BEGIN", "FETCH 1 h", "ROLLBACK", "FETCH PRIOR h", "CLOSE h", "FETCH h",
			"BEGIN", "DECLARE h CURSOR WITH HOLD FOR SELECT id FROM orders ORDER BY id", "ROLLBACK", "FETCH h", "BEGIN", "DECLARE h CURSOR WITH HOLD FOR SELECT id FROM orders ORDER BY id", "SELECT 1/0", "COMMIT", "FETCH h",
			"DECLARE h CURSOR WITH HOLD FOR SELECT id FROM orders ORDER BY id", "FETCH h", "CLOSE ALL", "FETCH h", "DECLARE h CURSOR WITH HOLD FOR SELECT id FROM orders ORDER BY id", "DISCARD ALL", "FETCH h",
			"BEGIN", "SAVEPOINT a", "DECLARE h CURSOR WITH HOLD FOR SELECT id FROM orders ORDER BY id", "ROLLBACK TO a", "COMMIT", "FETCH h",
			"BEGIN", "SAVEPOINT a", "DECLARE h CURSOR WITH HOLD FOR SELECT id FROM orders ORDER BY id", "COMMIT", "BEGIN", "SAVEPOINT b", "ROLLBACK TO b", "FETCH h", "COMMIT", "CLOSE h",
			"BEGIN", "DECLARE h CURSOR WITH HOLD FOR SELECT id FROM orders ORDER BY id", "COMMIT AND CHAIN", "FETCH h", "ROLLBACK", "FETCH h", "CLOSE h",
		},
		"closed": {"BEGIN", declare, "DECLARE d CURSOR FOR SELECT 1", "CLOSE ALL", "FETCH c", "ROLLBACK", "BEGIN", declare, "CLOSE ALL", "FETCH c", "ROLLBACK", "CLOSE nothing"},
		"in one text": {
			"DECLARE c CURSOR FOR SELECT id FROM orders ORDER BY id; FETCH 2 c; MOVE c; FETCH c", "FETCH c", "BEGIN; " + declare + "; FETCH 2 c", "FETCH c; SELECT 1; FETCH c", "COMMIT; FETCH c", "BEGIN; " + declare + "; FETCH c; COMMIT",
			"SELECT 1; DECLARE c CURSOR FOR SELECT nothing FROM orders ORDER BY id",
		},
		"rows of the moment": {
			"BEGIN", declare, "UPDATE orders SET note = 'changed'", "DELETE FROM orders WHERE id = 2", "FETCH 2 c", "ROLLBACK", "BEGIN", "UPDATE orders SET note = 'changed' WHERE id < 3", declare, "FETCH 3 c", "ROLLBACK",
		},
		"read by parts":   {"BEGIN", "DECLARE c CURSOR FOR SELECT note FROM orders WHERE id IN (1, 2) AND note = 'note 0'", "FETCH 1 c", "DECLARE d CURSOR FOR SELECT 'x' FROM orders", "MOVE ALL d", "FETCH PRIOR d", "DECLARE e CURSOR FOR SELECT 'x' FROM orders LIMIT 7", "MOVE ALL e", "DECLARE f CURSOR FOR SELECT note FROM orders WHERE note = 'note 3' FOR UPDATE", "FETCH ALL f", "FETCH PRIOR f", "ROLLBACK"},
		"computed":        {"BEGIN", "DECLARE c CURSOR FOR SELECT note, count(*), sum(id), avg(id), array_agg(id ORDER BY id), now() - now() FROM orders GROUP BY note ORDER BY note", "FETCH 2 c", "FETCH ALL c", "COMMIT"},
		"without columns": {"BEGIN", "DECLARE c CURSOR FOR SELECT FROM orders", "FETCH 2 c", "MOVE ALL c", "COMMIT"},
		"binary":          {"BEGIN", "DECLARE c BINARY CURSOR FOR SELECT id, note, id::numeric, '2020-01-02'::date FROM orders ORDER BY id", "FETCH 2 c", "COMMIT"},
		"settings":        {"BEGIN", "DECLARE c CURSOR FOR SELECT id, '2020-01-02'::date, 1.5::float8, '\\x01'::bytea, interval '1 day 2 hours' FROM orders ORDER BY id", "FETCH 2 c", "SET LOCAL datestyle = 'German'", "SET LOCAL bytea_output = 'escape'", "SET LOCAL intervalstyle = 'iso_8601'", "FETCH 2 c"},
		"beside others":   {"BEGIN", "SELECT note FROM orders WHERE id = 1", declare, "FETCH c", "SELECT note FROM orders WHERE id = 2", "DECLARE d CURSOR FOR SELECT 5", "FETCH d", "FETCH c", "COMMIT"},
		"explained away":  {"BEGIN", "EXPLAIN (COSTS OFF) DECLARE c CURSOR FOR SELECT 1", "FETCH c", "ROLLBACK"},
		"with comments":   {"BEGIN", "/* FOR */ DECLARE \"for\" CURSOR -- FOR\nFOR SELECT id /* ; */ FROM orders ORDER BY id ; ", "FETCH \"for\"", "COMMIT"},
	} {
		t.Run(name, func(t *testing.T) { w.sameAsPlain(t, texts(queries...)...) })
	}
	w.nothingPrepared(t)
}

// TestCursorsOverSeveralShardsByTheProtocol: a cursor is a portal, whoever made it.
func TestCursorsOverSeveralShardsByTheProtocol(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := cursorWorld(t)
	const declare = "DECLARE c SCROLL CURSOR FOR SELECT id, note, id / 2.0 FROM orders ORDER BY id"
	ext := func(sql string, values ...string) step { return sent(pipeline(unnamed(sql, values...), sync1)...) }
	binary := func(sql string) step {
		b := bind("", "")
		b.ResultFormatCodes = []int16{1}
		return sent(parse("", sql), b, describePortal(""), run(""), sync1)
	}
	mixed := bind("", "f")
	mixed.ResultFormatCodes = []int16{1, 0, 1}
	wrong := bind("", "f")
	wrong.ResultFormatCodes = []int16{1, 0}
	for name, steps := range map[string][]step{
		"each by itself": {query("BEGIN"), ext(declare), ext("FETCH c"), ext("MOVE 3 FROM c"), ext("FETCH 2 FROM c"), ext("FETCH PRIOR c"), ext("CLOSE c"), ext("FETCH c"), query("ROLLBACK")},
		"in one go":      {sent(pipeline(unnamed("BEGIN"), unnamed(declare), unnamed("FETCH 2 c"), unnamed("MOVE c"), unnamed("FETCH c"), unnamed("COMMIT"), unnamed("FETCH c"), sync1)...)},
		"binary":         {query("BEGIN"), ext(declare), binary("FETCH 3 c"), query("FETCH 2 c"), binary("FETCH PRIOR c"), query("COMMIT")},
		"mixed formats":  {query("BEGIN"), ext(declare), sent(parse("f", "FETCH 2 c"), mixed, describePortal(""), run(""), sync1), sent(wrong, sync1), query("ROLLBACK")},
		"parameters":     {query("BEGIN"), ext("DECLARE c CURSOR FOR SELECT id, $2 || note FROM orders WHERE id > $1 AND note <> $2 ORDER BY id", "5", "x"), query("FETCH 2 c"), query("COMMIT")},
		"described": {
			query("BEGIN"), sent(parse("d", "DECLARE c CURSOR FOR SELECT id, $2 || note FROM orders WHERE id > $1 ORDER BY id"), describeStatement("d"), sync1), sent(bind("", "d", "5", "x"), describePortal(""), run(""), sync1),
			sent(parse("f", "FETCH c"), describeStatement("f"), parse("m", "MOVE c"), describeStatement("m"), sync1), sent(bind("", "f"), run(""), bind("", "m"), describePortal(""), run(""), bind("", "f"), run(""), sync1), query("COMMIT"),
		},
		"too few":           {query("BEGIN"), sent(parse("", "DECLARE c CURSOR FOR SELECT id FROM orders WHERE id > $1 ORDER BY id"), bind("", ""), run(""), sync1), query("ROLLBACK")},
		"as a portal":       {query("BEGIN"), query(declare), sent(describePortal("c"), runSome("c", 2), runSome("c", 2), sync1), query("FETCH c"), sent(run("c"), run("c"), sync1), query("FETCH PRIOR c"), sent(closePortal("c"), run("c"), sync1), query("ROLLBACK")},
		"in portions":       {query("BEGIN"), query(declare), sent(parse("", "FETCH 5 c"), bind("p", ""), runSome("p", 2), runSome("p", 2), runSome("p", 2), sync1), query("FETCH c"), sent(runSome("p", 2), sync1), query("COMMIT")},
		"twice":             {query("BEGIN"), sent(parse("", declare), bind("", ""), run(""), run(""), sync1), query("ROLLBACK"), query("BEGIN"), query(declare), sent(parse("", "CLOSE c"), bind("", ""), run(""), run(""), sync1), query("ROLLBACK")},
		"one name for two":  {query("BEGIN"), query(declare), sent(parse("", "SELECT 1"), bind("c", ""), sync1), query("ROLLBACK"), query("BEGIN"), sent(parse("", "SELECT 1"), bind("c", ""), sync1), query(declare), query("ROLLBACK")},
		"in no block":       {sent(pipeline(unnamed("SELECT 1"), unnamed(declare), sync1)...), sent(pipeline(unnamed("SELECT note FROM orders ORDER BY id LIMIT 1"), unnamed(declare), sync1)...)},
		"in a failed block": {query("BEGIN"), query(declare), sent(parse("f", "FETCH c"), sync1), query("SELECT 1/0"), sent(describePortal("c"), sync1), sent(describeStatement("f"), sync1), sent(bind("", "f"), sync1), sent(run("c"), sync1), sent(closePortal("c"), sync1), query("ROLLBACK")},
		"outside":           {ext(declare), ext("FETCH c"), ext("DECLARE h CURSOR WITH HOLD FOR SELECT id FROM orders ORDER BY id"), ext("FETCH h"), binary("FETCH h"), ext("CLOSE h"), ext("FETCH h")},
		"undone": {
			sent(pipeline(unnamed("DECLARE h CURSOR WITH HOLD FOR SELECT id FROM orders ORDER BY id"), unnamed("FETCH h"), unnamed("SELECT 1/0"), sync1)...), query("FETCH h"),
			sent(pipeline(unnamed("SELECT 1"), unnamed("DECLARE h CURSOR WITH HOLD FOR SELECT id FROM orders ORDER BY id"), sync1)...), query("FETCH h"), query("CLOSE h"),
		},
		"wrong":              {query("BEGIN"), sent(parse("", "DECLARE c CURSOR FOR SELECT nothing FROM orders ORDER BY id"), sync1), query("ROLLBACK")},
		"behind a savepoint": {query("BEGIN"), query("SAVEPOINT a"), sent(parse("", "SELECT id FROM orders ORDER BY id"), bind("p", ""), runSome("p", 1), sync1), query("ROLLBACK TO a"), sent(runSome("p", 1), sync1), query("ROLLBACK TO a"), sent(parse("", "SELECT id FROM orders ORDER BY id"), bind("p", ""), runSome("p", 1), sync1), query("ROLLBACK")},
	} {
		t.Run(name, func(t *testing.T) { w.sameAsPlain(t, steps...) })
	}
	w.nothingPrepared(t)
}

// TestCursorsKeepTypesOfUsers: of types whose numbers differ from shard to shard clients see the home shard's, in both formats.
func TestCursorsKeepTypesOfUsers(t *testing.T) {
	t.Parallel()
	w, _ := newCarriedWorld(t)
	all := "SELECT " + quotedColumns() + ", ROW(how, 1)::text FROM orders ORDER BY id"
	c := dialRaw(t, w.address, nil)
	c.query("BEGIN")
	if said := c.query("DECLARE c SCROLL CURSOR FOR " + all); !slices.Equal(said, []string{"done DECLARE CURSOR", "ready T"}) {
		t.Fatalf("%q", said)
	}
	binary := bind("", "")
	binary.ResultFormatCodes = []int16{1}
	for name, fetched := range map[string][]string{
		"as text": append(c.query("MOVE ABSOLUTE 0 c")[2:], c.query("FETCH ALL c")...),
		"binary":  append(c.query("MOVE ABSOLUTE 0 c")[2:], c.ask(parse("", "FETCH ALL c"), binary, describePortal(""), run(""), sync1)[2:]...),
	} {
		want := c.query(all)
		if name == "binary" {
			want = c.ask(parse("", all), binary, describePortal(""), run(""), sync1)[2:]
		}
		if diff := cmp.Diff(want[:len(want)-2], fetched[:len(fetched)-2]); diff != "" {
			t.Errorf("%s: the query (-) and the cursor (+) differ:\n%s", name, diff)
		}
	}
	c.query("COMMIT")
	w.settled(t)
}

// TestCursorsAreFetchedUnderOtherSettings: what the session keeps as text it does not give where it would have to be another one.
func TestCursorsAreFetchedUnderOtherSettings(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, setUp: []string{"CREATE TYPE times AS (at timestamptz)"}})
	c := dialRaw(t, w.address, nil)
	for _, sql := range []string{"DECLARE c CURSOR WITH HOLD FOR SELECT ROW(now())::times FROM orders ORDER BY id", "DECLARE d CURSOR WITH HOLD FOR SELECT note FROM orders ORDER BY id", "SET timezone = 'Asia/Tokyo'"} {
		if said := c.query(sql); !strings.HasPrefix(said[0], "done ") {
			t.Fatalf("%q", said)
		}
	}
	refused := []string{"ERROR 0A000 the cursor was declared under other settings", "ready I"}
	if said := c.query("FETCH c"); !slices.Equal(said, refused) {
		t.Errorf("%q", said)
	}
	if said := c.query("FETCH d"); slices.Contains(said, refused[0]) {
		t.Errorf("%q", said)
	}
	c.query("SET client_encoding = 'LATIN1'")
	if said := c.query("FETCH d"); !slices.Equal(said, refused) {
		t.Errorf("%q", said)
	}
}

// TestNobodyWritesAtTheRowOfACursorOverSeveralShards.
func TestNobodyWritesAtTheRowOfACursorOverSeveralShards(t *testing.T) {
	t.Parallel()
	w := cursorWorld(t)
	c := dialRaw(t, w.address, nil)
	for _, sql := range []string{"UPDATE undeclared SET a = 1 WHERE CURRENT OF c", "DELETE FROM orders WHERE CURRENT OF c"} {
		for _, ask := range []func() []string{func() []string { return c.query(sql) }, func() []string { return c.ask(pipeline(unnamed(sql), sync1)...) }} {
			c.query("BEGIN")
			c.query("DECLARE c CURSOR FOR SELECT id FROM orders ORDER BY id")
			c.query("FETCH c")
			if said := ask(); !slices.ContainsFunc(said, func(said string) bool {
				return strings.HasPrefix(said, "ERROR 0A000 WHERE CURRENT OF is not supported")
			}) {
				t.Errorf("%s: %q", sql, said)
			}
			c.query("ROLLBACK")
		}
	}
	w.settled(t)
}

// TestCursorsOfManyRows: more than stay in memory, forward and back, in both formats, as one server gives them.
func TestCursorsOfManyRows(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{})
	insert := "INSERT INTO orders SELECT i, repeat('x', i %% 3000) FROM generate_series(1, 6000) i WHERE %s"
	execute(t, connectTo(t, w.plain.Addr()), fmt.Sprintf(insert, "true"))
	var rows []string
	for i := range 6000 {
		rows = append(rows, fmt.Sprintf("(%d, repeat('x', %d))", i+1, (i+1)%3000))
	}
	for part := range slices.Chunk(rows, 1000) {
		execute(t, w.client(t), "INSERT INTO orders VALUES "+strings.Join(part, ", "))
	}
	binary := bind("", "f")
	binary.ResultFormatCodes = []int16{1}
	w.sameAsPlain(t,
		query("BEGIN"), query("DECLARE c SCROLL CURSOR FOR SELECT id, note, id::numeric FROM orders ORDER BY id"), query("FETCH 2500 c"), query("FETCH BACKWARD 700 c"), query("FETCH ABSOLUTE 5990 c"),
		sent(parse("f", "FETCH BACKWARD 4000 c"), binary, run(""), sync1), query("FETCH LAST c"), query("FETCH FIRST c"), query("FETCH ALL c"), query("COMMIT"))
}

// TestDriversFetchFromCursors: what drivers do, who ask for binary format.
func TestDriversFetchFromCursors(t *testing.T) {
	t.Parallel()
	w := cursorWorld(t)
	tx := must[pgx.Tx](t)(w.client(t).Begin(t.Context()))
	if _, err := tx.Exec(t.Context(), "DECLARE c CURSOR FOR SELECT id, note, id * 1.5, now() FROM orders WHERE id > $1 ORDER BY id DESC", 15); err != nil {
		t.Fatal(err)
	}
	var ids []int64
	for {
		rows := must[pgx.Rows](t)(tx.Query(t.Context(), "FETCH 2 FROM c"))
		before := len(ids)
		for rows.Next() {
			var id int64
			var note string
			var half float64
			var at time.Time
			if err := rows.Scan(&id, &note, &half, &at); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		if len(ids) == before {
			break
		}
	}
	if !slices.Equal(ids, []int64{20, 19, 18, 17, 16}) {
		t.Errorf("fetched are %v", ids)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	w.settled(t)
}

// TestCursorsReadConsistently: one that is declared outside of a transaction reads as a query would.
func TestCursorsReadConsistently(t *testing.T) {
	t.Parallel()
	w := cursorWorld(t)
	c := dialRaw(t, w.address, nil)
	c.query("SET cleave.consistent_reads = on")
	for _, sql := range []string{"DECLARE h CURSOR WITH HOLD FOR SELECT id FROM orders ORDER BY id", "FETCH LAST h", "CLOSE h"} {
		if said := c.query(sql); slices.ContainsFunc(said, func(said string) bool { return strings.HasPrefix(said, "ERROR") }) || said[len(said)-1] != "ready I" {
			t.Errorf("%s: %q", sql, said)
		}
	}
	for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "DECLARE c CURSOR FOR SELECT id FROM orders ORDER BY id", "FETCH LAST c", "COMMIT"} {
		if said := c.query(sql); slices.ContainsFunc(said, func(said string) bool { return strings.HasPrefix(said, "ERROR") }) {
			t.Errorf("%s: %q", sql, said)
		}
	}
	w.settled(t)
}
