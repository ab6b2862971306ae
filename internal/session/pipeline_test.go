package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgproto3"
)

// TestPipelines sends what drivers send in one go to a plain server and to the router, and wants the same answers.
func TestPipelines(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{})
	k := w.key(t, 2, 0)
	insert := func(id int64, note string) []pgproto3.FrontendMessage {
		return unnamed("INSERT INTO orders VALUES ($1, $2)", text(id), note)
	}
	read := query(fmt.Sprintf("SELECT * FROM orders WHERE id = %d", k))
	empty := query(fmt.Sprintf("DELETE FROM orders WHERE id = %d", k))
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"one statement", []step{sent(pipeline(unnamed("SELECT 1 AS a, 'x'::text"), sync1)...)}},
		{"many before one Sync", []step{empty, sent(pipeline(insert(k, "a"), unnamed("UPDATE orders SET note = 'b' WHERE id = $1", text(k)),
			unnamed("SELECT note FROM orders WHERE id = $1", text(k)), sync1)...), read}},
		{"an error in the middle undoes all and passes over the rest", []step{empty, sent(pipeline(insert(k, "a"), unnamed("SELECT 1/0"),
			insert(k, "b"), parse("never", "SELECT 1"), closeStatement("never"), sync1)...), read, sent(bind("", "never"), run(""), sync1)}},
		{"an error in Parse", []step{empty, sent(pipeline(insert(k, "a"), unnamed("SELEKT 1"), insert(k, "b"), sync1)...), read}},
		{"an error in Parse that only the server finds", []step{empty, sent(pipeline(insert(k, "a"), unnamed("SELECT nothing FROM orders WHERE id = 1"), sync1)...), read}},
		{"an error in Bind", []step{sent(pipeline(parse("", "SELECT $1::int", 0), bind("", "", "x"), run(""), sync1)...)}},
		{"too few values", []step{sent(pipeline(parse("", "SELECT $1::int + $2::int"), bind("", "", "1"), run(""), sync1)...)}},
		{"several Syncs in one write", []step{empty, sent(pipeline(insert(k, "a"), sync1, unnamed("SELECT 1/0"), sync1, unnamed("SELECT 2"), sync1, sync1)...), read}},
		{"Flush before Sync", []step{flushed(5, pipeline(unnamed("SELECT 1"), flush)...), sent(sync1)}},
		{"Flush after each message", []step{
			flushed(1, parse("", "SELECT generate_series(1, 3)"), flush), flushed(1, bind("", ""), flush), flushed(1, describePortal(""), flush),
			flushed(4, run(""), flush), sent(sync1),
		}},
		{"an error before Flush", []step{flushed(1, parse("", "SELEKT 1"), flush), sent(bind("", ""), sync1), query("SELECT 1")}},
		{"an error of the router's own before Flush", []step{flushed(1, bind("", "nosuch"), flush), flushed(0, flush), sent(sync1), query("SELECT 1")}},
		{"a named statement across Syncs", []step{
			sent(parse("a", "SELECT $1::int + 1"), describeStatement("a"), sync1), sent(bind("", "a", "1"), run(""), sync1), sent(bind("", "a", "2"), run(""), sync1),
			sent(closeStatement("a"), sync1), sent(bind("", "a", "3"), run(""), sync1),
		}},
		{"the unnamed statement across Syncs", []step{
			sent(parse("", "SELECT $1::int + 1"), sync1), sent(bind("", "", "1"), run(""), sync1), sent(bind("", "", "2"), run(""), sync1),
			query("SELECT 'a simple query ends it'"), sent(bind("", "", "3"), run(""), sync1),
		}},
		{"the unnamed statement after a failed Parse", []step{
			sent(parse("", "SELECT 1"), sync1), sent(parse("", "SELECT nothing"), sync1), sent(bind("", ""), run(""), sync1),
			sent(parse("", "SELECT 1"), sync1), sent(parse("", "SELEKT 1"), sync1), sent(bind("", ""), run(""), sync1),
		}},
		{"a name twice", []step{sent(parse("a", "SELECT 1"), sync1), sent(parse("a", "SELECT 2"), sync1), sent(bind("", "a"), run(""), sync1)}},
		{"a name twice in one pipeline", []step{sent(parse("a", "SELECT 1"), closeStatement("a"), parse("a", "SELECT 2"), bind("", "a"), run(""), sync1)}},
		{"closing what is not there", []step{sent(closeStatement("x"), closePortal("y"), closeStatement(""), closePortal(""), sync1)}},
		{"describing what is not there", []step{sent(describeStatement("x"), sync1), sent(describePortal("y"), sync1), sent(describePortal(""), sync1)}},
		{"running what is not there", []step{sent(run(""), sync1), sent(run("x"), sync1), sent(bind("", "x"), sync1)}},
		{"describe", []step{sent(parse("a", "SELECT id, note FROM orders WHERE id = $1"), describeStatement("a"), bind("p", "a", "1"), describePortal("p"), run("p"), closePortal("p"), sync1)}},
		{"describe with declared types", []step{sent(parse("a", "SELECT $1, $2", 23, 25), describeStatement("a"), sync1)}},
		{"describe what gives no rows", []step{sent(parse("a", "INSERT INTO orders VALUES ($1, $2)"), describeStatement("a"), sync1)}},
		{"describe session commands", []step{
			sent(parse("a", "BEGIN"), describeStatement("a"), sync1), sent(parse("b", "SET work_mem = '1MB'"), describeStatement("b"), sync1),
			sent(parse("c", "SHOW work_mem"), describeStatement("c"), sync1), sent(parse("d", "DISCARD ALL"), describeStatement("d"), sync1),
			sent(parse("e", ""), describeStatement("e"), bind("", "e"), describePortal(""), run(""), sync1),
		}},
		{"row limits", []step{sent(pipeline(parse("", "SELECT generate_series(1, 5)"), bind("", ""), runSome("", 2), runSome("", 2), runSome("", 2), sync1)...)}},
		{"row limits across Flush", []step{
			flushed(5, parse("", "SELECT generate_series(1, 5)"), bind("p", ""), runSome("p", 2), flush), flushed(3, runSome("p", 2), flush), flushed(2, run("p"), flush), sent(sync1),
		}},
		{"a portal ends with Sync", []step{sent(parse("", "SELECT generate_series(1, 5)"), bind("p", ""), runSome("p", 2), sync1), sent(runSome("p", 2), sync1)}},
		{"a portal lives in a transaction", []step{
			query("BEGIN"), sent(parse("", "SELECT generate_series(1, 5)"), bind("p", ""), runSome("p", 2), sync1), sent(runSome("p", 2), sync1),
			sent(run("p"), sync1), sent(closePortal("p"), run("p"), sync1), query("ROLLBACK"),
		}},
		{"a transaction as JDBC sends it", []step{
			empty, sent(pipeline(parse("", "BEGIN"), bind("", ""), run(""), insert(k, "a"), sync1)...), sent(pipeline(unnamed("SELECT note FROM orders WHERE id = $1", text(k)), sync1)...),
			sent(parse("", "COMMIT"), bind("", ""), run(""), sync1), read,
		}},
		{"a whole transaction in one pipeline", []step{empty, sent(pipeline(unnamed("BEGIN"), insert(k, "a"), unnamed("COMMIT"), sync1)...), read}},
		{"two transactions in one pipeline", []step{empty, sent(pipeline(unnamed("BEGIN"), insert(k, "a"), unnamed("COMMIT"), unnamed("BEGIN"),
			unnamed("UPDATE orders SET note = 'z' WHERE id = $1", text(k)), unnamed("ROLLBACK"), sync1)...), read}},
		{"BEGIN after a statement", []step{empty, sent(pipeline(insert(k, "a"), unnamed("BEGIN"), unnamed("SELECT 1"), sync1)...), query("ROLLBACK"), read}},
		{"an error in a transaction", []step{
			empty, sent(pipeline(unnamed("BEGIN"), insert(k, "a"), unnamed("SELECT 1/0"), sync1)...), sent(pipeline(unnamed("SELECT 1"), sync1)...),
			sent(pipeline(unnamed("COMMIT"), sync1)...), read,
		}},
		{"an error and ROLLBACK in the same transaction", []step{
			query("BEGIN"), sent(pipeline(unnamed("SELECT 1/0"), sync1)...), sent(pipeline(unnamed("ROLLBACK"), sync1)...), sent(pipeline(unnamed("SELECT 1"), sync1)...),
		}},
		{"savepoints", []step{
			empty, sent(pipeline(unnamed("BEGIN"), unnamed("SAVEPOINT a"), insert(k, "a"), unnamed("ROLLBACK TO a"), insert(k, "b"), unnamed("RELEASE a"), unnamed("COMMIT"), sync1)...), read,
		}},
		{"an error and a savepoint", []step{
			empty, query("BEGIN"), query("SAVEPOINT a"), sent(pipeline(insert(k, "a"), unnamed("SELECT 1/0"), sync1)...), sent(pipeline(unnamed("ROLLBACK TO a"), insert(k, "c"), sync1)...),
			query("COMMIT"), read,
		}},
		{"nothing but transactions", []step{
			sent(pipeline(unnamed("BEGIN"), sync1)...), sent(pipeline(unnamed("BEGIN"), sync1)...), sent(pipeline(unnamed("COMMIT"), sync1)...),
			sent(pipeline(unnamed("COMMIT"), sync1)...), sent(pipeline(unnamed("ROLLBACK"), sync1)...), sent(pipeline(unnamed("SAVEPOINT a"), sync1)...),
		}},
		{"an empty statement", []step{sent(pipeline(unnamed(""), unnamed("-- nothing"), sync1)...)}},
		{"several statements in Parse", []step{sent(pipeline(unnamed("SELECT 1; SELECT 2"), sync1)...)}},
		{"a simple query after messages without Sync", []step{sent(pipeline(unnamed("SELECT 1"), &pgproto3.Query{String: "SELECT 2"})...)}},
		{"a simple query after an error without Sync", []step{{messages: pipeline(unnamed("SELECT 1/0"), &pgproto3.Query{String: "SELECT 2"}, sync1), replies: untilReady}}},
		{"a cursor of SQL", []step{
			query("BEGIN"), query("DECLARE c CURSOR FOR SELECT generate_series(1, 5)"), sent(describePortal("c"), runSome("c", 2), sync1),
			query("FETCH 1 FROM c"), sent(closePortal("c"), sync1), query("FETCH 1 FROM c"), query("ROLLBACK"),
		}},
		{"a large pipeline", []step{empty, sent(pipeline(repeated(400, unnamed("SELECT $1::text", strings.Repeat("x", 500))), sync1)...)}},
		{"a large pipeline with an error", []step{empty, sent(pipeline(insert(k, "a"), repeated(300, unnamed("SELECT $1::text", strings.Repeat("x", 500))), unnamed("SELECT 1/0"),
			repeated(300, unnamed("SELECT $1::text", strings.Repeat("x", 500))), sync1)...), read}},
		{"a large value", []step{sent(pipeline(unnamed("SELECT length($1), $1", strings.Repeat("y", 1<<20)), sync1)...)}},
		{"SET in a pipeline", []step{
			sent(pipeline(unnamed("SET work_mem = '1MB'"), unnamed("SHOW work_mem"), sync1)...), query("SHOW work_mem"),
			sent(pipeline(unnamed("SET work_mem = '2MB'"), unnamed("SELECT 1/0"), sync1)...), query("SHOW work_mem"),
			sent(pipeline(unnamed("BEGIN"), unnamed("SET work_mem = '3MB'"), unnamed("SHOW work_mem"), unnamed("ROLLBACK"), sync1)...), query("SHOW work_mem"),
			sent(pipeline(unnamed("RESET work_mem"), sync1)...), query("SHOW work_mem"),
		}},
		{"COPY by the extended protocol", []step{
			query("DELETE FROM undeclared"),
			flushed(3, parse("", "COPY undeclared FROM STDIN"), bind("", ""), run(""), sync1),
			sent(&pgproto3.CopyData{Data: []byte("1\tx\n")}, &pgproto3.CopyDone{}, sync1), query("TABLE undeclared"),
			sent(parse("", "COPY undeclared TO STDOUT"), bind("", ""), run(""), sync1),
		}},
	} {
		t.Run(c.name, func(t *testing.T) { w.sameAsPlain(t, c.steps...) })
	}
}

func repeated(count int, messages []pgproto3.FrontendMessage) []pgproto3.FrontendMessage {
	var all []pgproto3.FrontendMessage
	for range count {
		all = append(all, messages...)
	}
	return all
}

// countsPlaces is refused: where a row lies means something on its own shard alone.
const countsPlaces = "SELECT count(ctid) FROM orders"

// TestRefusalsUndo: what the router refuses fails as an error of the server would, in the same place, and undoes the same.
func TestRefusalsUndo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	first := w.key(t, 1, 0)
	insert := func(id int64) []pgproto3.FrontendMessage {
		return pipeline(parse("", "INSERT INTO orders VALUES ($1, 'x')"), bind("", "", text(id)), run(""))
	}
	refuse := pipeline(parse("", countsPlaces), bind("", ""), run(""))
	inserted := []string{"parsecomplete", "bindcomplete", "done INSERT 0 1"}
	gone := func(t *testing.T) {
		t.Helper()
		for _, number := range []int{1, 2} {
			if n := one[int](t, w.onShard(t, number), "SELECT count(*) FROM orders"); n != 0 {
				t.Errorf("shard %d has %d rows, and all should have been undone", number, n)
			}
		}
	}
	{
		const name = "a statement"
		t.Run(name+" before any backend", func(t *testing.T) {
			said := dialRaw(t, w.address, nil).ask(pipeline(refuse, sync1)...)
			wantCodes(t, said, "0A000", "ready I")
			w.settled(t)
		})
		t.Run(name+" in a pipeline after a write", func(t *testing.T) {
			said := dialRaw(t, w.address, nil).ask(pipeline(insert(first), refuse, insert(first), sync1)...)
			if diff := cmp.Diff(inserted, said[:3]); diff != "" {
				t.Error(diff)
			}
			wantCodes(t, said[3:], "0A000", "ready I")
			gone(t)
		})
		t.Run(name+" after Flush", func(t *testing.T) {
			conn := dialRaw(t, w.address, nil)
			conn.send(pipeline(insert(first), flush)...)
			if diff := cmp.Diff(inserted, conn.replies(3)); diff != "" {
				t.Error(diff)
			}
			wantCodes(t, conn.ask(pipeline(refuse, sync1)...), "0A000", "ready I")
			gone(t)
		})
		t.Run(name+" in a transaction", func(t *testing.T) {
			conn := dialRaw(t, w.address, nil)
			conn.ask(pipeline(unnamed("BEGIN"), insert(first), sync1)...)
			wantCodes(t, conn.ask(pipeline(refuse, sync1)...), "0A000", "ready E")
			wantCodes(t, conn.query("SELECT 1"), "25P02", "ready E")
			if said := conn.query("COMMIT"); !cmp.Equal(said, []string{"done ROLLBACK", "ready I"}) {
				t.Errorf("COMMIT said %q", said)
			}
			gone(t)
		})
		t.Run(name+" and back to a savepoint", func(t *testing.T) {
			conn := dialRaw(t, w.address, nil)
			conn.query("BEGIN")
			conn.ask(pipeline(insert(first), unnamed("SAVEPOINT a"), unnamed("UPDATE orders SET note = 'y' WHERE id = $1", text(first)), sync1)...)
			wantCodes(t, conn.ask(pipeline(refuse, sync1)...), "0A000", "ready E")
			conn.query("ROLLBACK TO a")
			said := conn.query(fmt.Sprintf("SELECT note FROM orders WHERE id = %d", first))
			if !strings.Contains(strings.Join(said, " "), `row "x"`) {
				t.Errorf("after ROLLBACK TO: %q", said)
			}
			conn.query("ROLLBACK")
			gone(t)
		})
	}
	t.Run("by the simple protocol", func(t *testing.T) {
		conn := dialRaw(t, w.address, nil)
		wantCodes(t, conn.query(fmt.Sprintf("INSERT INTO orders VALUES (%d, 'x'); %s", first, countsPlaces)), "0A000", "ready I")
		conn.query("BEGIN")
		conn.query(fmt.Sprintf("INSERT INTO orders VALUES (%d, 'x')", first))
		wantCodes(t, conn.query(countsPlaces), "0A000", "ready E")
		conn.query("END")
		gone(t)
	})
	t.Run("a refusal before Flush is told at once", func(t *testing.T) {
		conn := dialRaw(t, w.address, nil)
		conn.send(parse("", countsPlaces), flush)
		wantCodes(t, conn.replies(1), "0A000", "")
		wantCodes(t, conn.ask(sync1), "", "ready I")
	})
	w.settled(t)
}

// wantCodes wants one error with this code, and these last words.
func wantCodes(t testing.TB, said []string, code, last string) {
	t.Helper()
	var want, found []string
	if code != "" {
		want = []string{code}
	}
	for _, s := range said {
		if strings.HasPrefix(s, "ERROR ") || strings.HasPrefix(s, "FATAL ") {
			found = append(found, strings.Fields(s)[1])
		}
	}
	if !slices.Equal(found, want) || last != "" && (len(said) == 0 || said[len(said)-1] != last) {
		t.Errorf("%q: want an error %s and then %q", said, code, last)
	}
}
