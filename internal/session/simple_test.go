package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// TestSimpleQueries sends texts to a plain server and to the router, and wants the same answers.
func TestSimpleQueries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{})
	k := w.key(t, 2, 0)
	read := query(fmt.Sprintf("SELECT * FROM orders WHERE id = %d", k))
	empty := query(fmt.Sprintf("DELETE FROM orders WHERE id = %d", k))
	insert := fmt.Sprintf("INSERT INTO orders VALUES (%d, 'a')", k)
	rows := &pgproto3.CopyData{Data: []byte("1\tx\n2\ty\n")}
	done := &pgproto3.CopyDone{}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"nothing", texts("", ";", " ;; ", "-- a comment", "/* a /* nested */ one */", "SELECT 1;;;")},
		{"several statements", []step{empty, query(insert + "; SELECT 1; UPDATE orders SET note = 'b' WHERE id = " + text(k)), read}},
		{"an error in the middle", []step{empty, query(insert + "; SELECT 1/0; SELECT 2"), read}},
		{"a transaction in one text", []step{empty, query("BEGIN; " + insert + "; COMMIT"), read}},
		{"a transaction that stays open", []step{empty, query("BEGIN; " + insert), read, query("ROLLBACK"), read}},
		{"COMMIT in the middle", []step{empty, query(insert + "; COMMIT; SELECT 1/0"), read}},
		{"an error and COMMIT in one text", []step{empty, query("BEGIN; " + insert + "; SELECT 1/0; COMMIT"), query("SELECT 1"), query("COMMIT"), read}},
		{"transactions", texts("BEGIN", "BEGIN", "SELECT 1", "COMMIT", "COMMIT", "ROLLBACK", "START TRANSACTION READ ONLY", "SHOW transaction_read_only", "END", "ABORT")},
		{"chained transactions", texts("BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1", "COMMIT AND CHAIN", "SHOW transaction_isolation", "ROLLBACK AND CHAIN", "COMMIT",
			"COMMIT AND CHAIN", "BEGIN ISOLATION LEVEL REPEATABLE READ", "COMMIT AND CHAIN", "SHOW transaction_isolation", "ROLLBACK")},
		{"savepoints", texts("SAVEPOINT a", "BEGIN", "SAVEPOINT a", "ROLLBACK TO b", "SELECT 1", "ROLLBACK TO a", "SELECT 1", "RELEASE a", "RELEASE a", "ROLLBACK")},
		{"savepoints after a statement", texts("BEGIN", "SELECT 1", "SAVEPOINT a", "SELECT 1/0", "SELECT 1", "ROLLBACK TO a", "SELECT 2", "RELEASE a", "COMMIT")},
		{"a syntax error", texts("SELEKT 1", "SELECT 'open", "BEGIN", "SELEKT 1", "SELECT 1", "ROLLBACK", "SELECT 1")},
		{"a syntax error in a transaction that is under way", []step{empty, query("BEGIN"), query(insert), query("SELEKT"), query("SELECT 1"), query("COMMIT"), read}},
		{"unknown names", texts("SELECT * FROM nosuch", "SELECT nosuch FROM orders WHERE id = 1", "SELECT nosuch(1)", "INSERT INTO nosuch VALUES (1)")},
		{"a wrong value of the key", texts("SELECT * FROM orders WHERE id = 'x'", "INSERT INTO orders VALUES (NULL, 'x')")},
		{"notices", texts("INSERT INTO watched VALUES (1), (2)", "DROP TABLE IF EXISTS nosuch")},
		{"a large result", texts("SELECT g, repeat('x', 100) FROM generate_series(1, 5000) g", "SELECT repeat('y', 300000) FROM generate_series(1, 3)")},
		{"a large text", texts("SELECT length('" + strings.Repeat("z", 200_000) + "')")},
		{"COPY in and out", []step{
			query("DELETE FROM undeclared"), flushed(1, &pgproto3.Query{String: "COPY undeclared FROM STDIN"}), copied(rows, rows, done),
			query("COPY undeclared TO STDOUT"), query("COPY undeclared TO STDOUT WITH (FORMAT binary)"),
		}},
		{"COPY in, in one write", []step{
			query("DELETE FROM undeclared"), sent(&pgproto3.Query{String: "COPY undeclared FROM STDIN"}, rows, done), query("TABLE undeclared"),
		}},
		{"COPY that the client ends", []step{
			query("DELETE FROM undeclared"), flushed(1, &pgproto3.Query{String: "COPY undeclared FROM STDIN"}), copied(rows, &pgproto3.CopyFail{Message: "no more"}), query("TABLE undeclared"),
		}},
		{"COPY of wrong rows", []step{
			flushed(1, &pgproto3.Query{String: "COPY undeclared FROM STDIN"}), copied(&pgproto3.CopyData{Data: []byte("x\ty\n")}, rows, rows, done), query("SELECT 1"),
		}},
		{"COPY into nothing", []step{sent(&pgproto3.Query{String: "COPY nosuch FROM STDIN"}, rows, done), query("SELECT 1")}},
		{"COPY with notices", []step{
			flushed(1, &pgproto3.Query{String: "COPY watched FROM STDIN"}), flushed(0, &pgproto3.CopyData{Data: []byte("1\n2\n")}), query("SELECT 1").byAnother(),
			flushed(0, &pgproto3.CopyData{Data: []byte("3\n")}), query("SELECT 2").byAnother(), flushed(0, &pgproto3.CopyData{Data: []byte("4\n")}), query("SELECT 3").byAnother(),
			copied(&pgproto3.CopyData{Data: []byte("5\n")}, done),
		}},
		{"COPY in a transaction", []step{
			query("DELETE FROM undeclared"), query("BEGIN"), flushed(1, &pgproto3.Query{String: "COPY undeclared FROM STDIN"}), copied(rows, done), query("ROLLBACK"), query("TABLE undeclared"),
		}},
		{"COPY among others", []step{
			query("DELETE FROM undeclared"), flushed(4, &pgproto3.Query{String: "SELECT 1; COPY undeclared FROM STDIN; SELECT 2"}), copied(rows, done), query("TABLE undeclared"),
		}},
		{"COPY data without COPY", []step{sent(rows, done, &pgproto3.Query{String: "SELECT 1"})}},
	} {
		t.Run(c.name, func(t *testing.T) { w.sameAsPlain(t, c.steps...) })
	}
}

// copied is a step whose end is the ReadyForQuery of the COPY before it.
func copied(messages ...pgproto3.FrontendMessage) step {
	return step{messages: messages, replies: untilReady}
}

// TestCopyOfAClientThatVanishes: its rows are not kept and its backend is not given to others.
func TestCopyOfAClientThatVanishes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	for name, leave := range map[string]func(*rawClient){
		"closed":       func(c *rawClient) { _ = c.conn.Close() },
		"terminated":   func(c *rawClient) { c.send(&pgproto3.Terminate{}); _ = c.conn.Close() },
		"half message": func(c *rawClient) { c.write([]byte{'d', 0, 0, 1, 0, 'x'}); _ = c.conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			c := dialRaw(t, w.address, nil)
			c.send(&pgproto3.Query{String: "COPY undeclared FROM STDIN"})
			c.replies(1)
			c.send(&pgproto3.CopyData{Data: []byte("1\tx\n")})
			leave(c)
			w.settled(t)
			admin := w.onShard(t, 1)
			eventually(t, "the COPY has ended", func() bool {
				return one[int](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY%' AND state <> 'idle'") == 0
			})
			if n := one[int](t, admin, "SELECT count(*) FROM undeclared"); n != 0 {
				t.Errorf("%d rows were kept", n)
			}
		})
	}
}
