package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/thorough"
)

// extendedSteps sends each statement by the extended protocol, with a Sync of its own.
func extendedSteps(statements ...string) []step {
	steps := make([]step, len(statements))
	for i, sql := range statements {
		steps[i] = sent(pipeline(unnamed(sql), sync1)...)
	}
	return steps
}

// TestAFailedTransactionTakesNothing: whichever shard the next statement is for, and however it is sent.
func TestAFailedTransactionTakesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3})
	w.empty(t)
	a, b, c := text(w.key(t, 1, 0)), text(w.key(t, 2, 0)), text(w.key(t, 3, 0))
	insert := func(id string) string { return "INSERT INTO orders VALUES (" + id + ", 'x')" }
	both := "SELECT note FROM orders WHERE id IN (" + a + ", " + b + ")"
	after := []string{
		insert(a), "SELECT * FROM orders WHERE id = " + a, both, "SELECT * FROM undeclared", "CREATE TABLE never (a int)", "ALTER TABLE orders ADD COLUMN never int",
		"INSERT INTO countries VALUES ('de', 'x')", "SET work_mem = '1MB'", "SAVEPOINT late", "BEGIN", "SELECT count(*) FROM orders", "DECLARE d CURSOR FOR SELECT 1", "SET CONSTRAINTS ALL IMMEDIATE",
	}
	for name, begun := range map[string][]string{
		"on another shard":    {"BEGIN", insert(c), insert(c)},
		"on one of several":   {"BEGIN", insert(b), insert(c), insert(c)},
		"on several at once":  {"BEGIN", insert(b), both, insert(b)},
		"before any shard":    {"BEGIN", "SELEKT 1"},
		"on the home shard":   {"BEGIN", "SELECT 1/0 FROM undeclared", "SELECT nosuch FROM undeclared"},
		"behind a definition": {"BEGIN", "CREATE TABLE passing (a int)", "SELECT nosuch FROM passing"},
	} {
		for how, steps := range map[string]func(...string) []step{"simple": texts, "extended": extendedSteps} {
			t.Run(name+", "+how, func(t *testing.T) {
				thorough.Some(t, 4)
				w.sameButOrder(t, append(steps(begun...), steps(append(slices.Clone(after), "COMMIT", both)...)...)...)
				w.nothingPrepared(t)
			})
		}
		t.Run(name+", ended in a text", func(t *testing.T) {
			thorough.Some(t, 4)
			for _, more := range []string{"; " + insert(a) + "; DELETE FROM orders", "; SELECT 1; SELECT 2", "; " + insert(a) + "; " + insert(b) + "; DELETE FROM orders WHERE id IN (" + a + "," + b + ")"} {
				for _, end := range []string{"ROLLBACK", "COMMIT", insert(a) + "; ROLLBACK", "SELECT 1; ROLLBACK"} {
					w.sameButOrder(t, append(texts(begun...), texts(end+more, "ROLLBACK", both)...)...)
				}
			}
			w.nothingPrepared(t)
		})
		t.Run(name+", ended in a pipeline", func(t *testing.T) {
			thorough.Some(t, 4)
			for _, end := range []string{"ROLLBACK", "COMMIT"} {
				w.sameButOrder(t, append(texts(begun...), sent(pipeline(unnamed(end), unnamed(insert(a)), unnamed(insert(b)), unnamed("DELETE FROM orders"), sync1)...), query(both))...)
			}
			w.nothingPrepared(t)
		})
	}
	t.Run("back to a savepoint", func(t *testing.T) {
		thorough.Some(t, 4)
		for _, begun := range [][]string{{"BEGIN", insert(c), "SAVEPOINT s", insert(c)}, {"BEGIN", insert(b), "SAVEPOINT s", insert(c), insert(c)}, {"BEGIN", "SAVEPOINT s", "SELEKT"}} {
			for _, steps := range []func(...string) []step{texts, extendedSteps} {
				w.sameButOrder(t, append(steps(begun...), steps(insert(a), "ROLLBACK TO s", insert(a), both, "ROLLBACK")...)...)
			}
			w.sameButOrder(t, append(texts(begun...), texts("ROLLBACK TO s; "+insert(a)+"; "+both, "ROLLBACK", both)...)...)
			w.sameButOrder(t, append(texts(begun...), sent(pipeline(unnamed("ROLLBACK TO s"), unnamed(insert(a)), unnamed(both), sync1)...), query("ROLLBACK"), query(both))...)
		}
	})
	w.sameRows(t)
}

// TestErrorsBehindSeveralShardsInAPipeline: all that came before the same Sync is undone, whoever finds the error and wherever it stands.
func TestErrorsBehindSeveralShardsInAPipeline(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3})
	w.empty(t)
	a, b, c := text(w.key(t, 1, 0)), text(w.key(t, 2, 0)), text(w.key(t, 3, 0))
	insert := func(ids ...string) []pgproto3.FrontendMessage {
		rows := "(" + strings.Join(ids, ", 'x'), (") + ", 'x')"
		return unnamed("INSERT INTO orders VALUES " + rows)
	}
	update := unnamed("UPDATE orders SET note = 'y' WHERE id = ANY('{" + a + "," + c + "}')")
	read := unnamed("SELECT note FROM orders WHERE id IN (" + a + ", " + b + ")")
	type sending struct {
		name     string
		messages []pgproto3.FrontendMessage
	}
	before := []sending{
		{"one by one", pipeline(insert(a), insert(b))},
		{"one by one, home last", pipeline(insert(b), insert(a))},
		{"at once", insert(a, b)},
		{"at once and one more", pipeline(insert(a, c), insert(b))},
		{"an update and one more", pipeline(update, insert(b))},
		{"one and then at once", pipeline(insert(b), insert(a, c))},
		{"a read of several", read},
		{"a read and a write", pipeline(read, insert(c))},
		{"a count of all, and a write", pipeline(insert(a, b), unnamed("SELECT count(*) FROM orders"), insert(c))},
		{"a setting behind", pipeline(insert(a, b), unnamed("SET work_mem = '2MB'"))},
		{"a long pipeline", pipeline(insert(a, b), repeated(300, unnamed("SELECT $1::text", strings.Repeat("x", 500))))},
		{"a long one to one shard", pipeline(insert(a, b), repeated(300, unnamed("SELECT note, $1::text FROM orders WHERE id = "+a, strings.Repeat("x", 500))))},
		{"a reference table's copy", pipeline(insert(a, b), unnamed("UPDATE countries SET name = 'x'"))},
	}
	wrong := []sending{
		{"a syntax error", unnamed("SELEKT 1")},
		{"a syntax error, in Parse", []pgproto3.FrontendMessage{parse("", "SELEKT 1")}},
		{"an unknown statement", []pgproto3.FrontendMessage{bind("", "nosuch"), run("")}},
		{"an unknown portal", []pgproto3.FrontendMessage{run("nosuch")}},
		{"describing nothing", []pgproto3.FrontendMessage{describeStatement("nosuch")}},
		{"an unknown column", unnamed("SELECT nosuch FROM orders WHERE id = " + a)},
		{"an error of the shard", unnamed("SELECT 1/0 FROM undeclared RIGHT JOIN (SELECT 1) AS one ON true")},
		{"an error of one shard", insert(c, b, c)},
		{"an error of the last step", unnamed("SELECT 1 / (count(*) - count(*)) FROM orders")},
		{"two statements", unnamed("SELECT 1; SELECT 2")},
		{"a wrong value", unnamed("SELECT note FROM orders WHERE id = $1", "x")},
		{"too few values", unnamed("SELECT note FROM orders WHERE id = $1")},
	}
	rows := query("SELECT * FROM orders")
	for i, come := range before {
		first, messages := come.name, come.messages
		// Every error comes behind something, in a block and outside; behind all would take minutes.
		alone, inBlock := wrong[i%len(wrong)], wrong[(i+len(wrong)/2)%len(wrong)]
		t.Run(first+", "+alone.name, func(t *testing.T) {
			thorough.Some(t, 4)
			w.sameButOrder(t, sent(pipeline(messages, alone.messages, insert(a), sync1)...), rows, query("SHOW work_mem"))
			w.nothingPrepared(t)
		})
		t.Run(first+", flushed", func(t *testing.T) {
			thorough.Some(t, 4)
			failing := pipeline(messages, unnamed("SELEKT 1"), flush)
			said := play(t, w.plain.Addr(), []step{sent(pipeline(failing, sync1)...)})[0]
			w.sameButOrder(t, flushed(len(said)-1, failing...), sent(pipeline(insert(a), sync1)...), rows)
			good := pipeline(messages, flush)
			said = play(t, w.plain.Addr(), []step{sent(pipeline(good, sync1)...), query("DELETE FROM orders")})[0]
			w.sameButOrder(t, flushed(len(said)-1, good...), sent(pipeline(unnamed("SELECT 1/0"), sync1)...), rows)
			w.sameButOrder(t, flushed(len(said)-1, good...), sent(sync1), rows, query("DELETE FROM orders"), query("RESET work_mem"))
			w.nothingPrepared(t)
		})
		t.Run(first+", refused", func(t *testing.T) {
			thorough.Some(t, 4)
			for _, sql := range []string{countsPlaces, countsPlaces + " WHERE id IN (" + a + ", " + c + ")"} {
				conn := dialRaw(t, w.address, nil)
				said := conn.ask(pipeline(messages, unnamed(sql), insert(a), sync1)...)
				wantCodes(t, said, "0A000", "ready I")
				if said := conn.query("SELECT * FROM orders"); !slices.Contains(said, "done SELECT 0") {
					t.Errorf("after %q: %q", sql, said)
				}
			}
			w.settled(t)
			w.nothingPrepared(t)
		})
		t.Run(first+", "+inBlock.name+", in a block", func(t *testing.T) {
			thorough.Some(t, 4)
			w.sameButOrder(t, query("BEGIN"), sent(pipeline(messages, inBlock.messages, insert(a), sync1)...), sent(pipeline(unnamed("SELECT 1"), sync1)...), query("COMMIT"), rows)
			w.nothingPrepared(t)
		})
	}
}

// TestBlocksBehindSeveralShardsInAPipeline: what begins or ends a transaction finds one that nobody has begun.
func TestBlocksBehindSeveralShardsInAPipeline(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3})
	w.empty(t)
	a, b, c := text(w.key(t, 1, 0)), text(w.key(t, 2, 0)), text(w.key(t, 3, 0))
	several := unnamed("INSERT INTO orders VALUES (" + a + ", 'x'), (" + b + ", 'x')")
	apart := pipeline(unnamed("INSERT INTO orders VALUES ("+a+", 'x')"), unnamed("INSERT INTO orders VALUES ("+b+", 'x')"))
	more := unnamed("INSERT INTO orders VALUES (" + c + ", 'x')")
	end := []step{query("COMMIT"), query("SELECT * FROM orders"), query("DELETE FROM orders")}
	for name, before := range map[string][]pgproto3.FrontendMessage{"at once": several, "apart": apart} {
		for _, sql := range []string{
			"BEGIN", "START TRANSACTION", "BEGIN ISOLATION LEVEL REPEATABLE READ", "COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "SAVEPOINT a", "RELEASE a", "ROLLBACK TO a",
		} {
			t.Run(name+", "+sql, func(t *testing.T) {
				thorough.Some(t, 4)
				w.sameButOrder(t, append([]step{sent(pipeline(before, unnamed(sql), sync1)...)}, end...)...)
				w.sameButOrder(t, append([]step{sent(pipeline(before, unnamed(sql), more, sync1)...)}, end...)...)
				w.sameButOrder(t, append([]step{sent(pipeline(before, unnamed(sql), unnamed("SELECT 1/0"), sync1)...)}, end...)...)
				w.sameButOrder(t, append([]step{sent(pipeline(before, unnamed(sql), unnamed("SAVEPOINT b"), more, unnamed("ROLLBACK TO b"), sync1)...)}, end...)...)
				w.sameButOrder(t, append([]step{sent(pipeline(before, &pgproto3.Query{String: sql})...)}, end...)...)
				w.nothingPrepared(t)
			})
		}
		for _, sql := range []string{"SELECT 1", "INSERT INTO orders VALUES (" + c + ", 'y')", "SELECT note FROM orders WHERE id IN (" + a + ", " + c + ")", "SELECT 1/0", "SELECT 1; SELECT 2", "SELEKT", ""} {
			t.Run(name+", a simple query: "+sql, func(t *testing.T) {
				thorough.Some(t, 4)
				w.sameButOrder(t, append([]step{sent(pipeline(before, &pgproto3.Query{String: sql})...)}, end...)...)
				w.nothingPrepared(t)
			})
		}
	}
	t.Run("in a text", func(t *testing.T) {
		thorough.Some(t, 4)
		text := fmt.Sprintf("INSERT INTO orders VALUES (%s, 'x'), (%s, 'x'); ", a, b)
		for _, sql := range []string{"BEGIN", "SAVEPOINT a", "RELEASE a", "ROLLBACK TO a", "COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "BEGIN ISOLATION LEVEL REPEATABLE READ"} {
			w.sameButOrder(t, append(texts(text+sql), end...)...)
			w.sameButOrder(t, append(texts(text+sql+"; INSERT INTO orders VALUES ("+c+", 'z')"), end...)...)
		}
		w.nothingPrepared(t)
	})
}

// TestReadOnlyAfterWriting: shards could not note what they commit.
func TestReadOnlyAfterWriting(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	a, b := text(w.key(t, 1, 0)), text(w.key(t, 2, 0))
	client := dialRaw(t, w.address, nil)
	for _, sql := range []string{"BEGIN", "INSERT INTO orders VALUES (" + a + ", 'x')", "INSERT INTO orders VALUES (" + b + ", 'x')", "SET TRANSACTION READ ONLY"} {
		client.query(sql)
	}
	wantCodes(t, client.query("COMMIT"), "0A000", "ready I")
	if said := client.query("SELECT * FROM orders"); !slices.Contains(said, "done SELECT 0") {
		t.Errorf("then there is %q", said)
	}
	w.nothingPrepared(t)
	w.settled(t)
}

// TestParseBehindSeveralShards: a table of the home shard's is found there, wherever the transaction is.
func TestParseBehindSeveralShards(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3, setUp: []string{"CREATE SEQUENCE numbers"}})
	for i := range 2 {
		execute(t, w.onShard(t, i+2), "DROP TABLE undeclared")
		execute(t, w.onShard(t, i+2), "DROP SEQUENCE numbers")
	}
	b, c := text(w.key(t, 2, 0)), text(w.key(t, 3, 0))
	both := "SELECT note FROM orders WHERE id IN (" + b + ", " + c + ")"
	for _, sql := range []string{"SELECT count(*) FROM undeclared", "SELECT nextval('numbers')", "INSERT INTO undeclared VALUES ($1, $2)"} {
		var values []string
		if strings.Contains(sql, "$1") {
			values = []string{"1", "x"}
		}
		for _, before := range [][]step{{query(both)}, {sent(pipeline(unnamed(both), sync1)...)}, {query("SELECT note FROM orders WHERE id = " + b), query("SELECT note FROM orders WHERE id = " + c)}} {
			begun := append([]step{query("BEGIN")}, before...)
			w.sameButOrder(t, append(begun, sent(pipeline(unnamed(sql, values...), sync1)...), query("ROLLBACK"))...)
			w.sameButOrder(t, append(begun, sent(parse("s", sql), describeStatement("s"), sync1), sent(bind("", "s", values...), run(""), sync1), query(both), query("ROLLBACK"))...)
		}
		w.sameButOrder(t, sent(pipeline(unnamed(both), unnamed(sql, values...), unnamed(both), sync1)...))
	}
	w.nothingPrepared(t)
}

// TestAFailedTransactionKeepsNobodyWaiting: on no shard, though only one has found the error, or the router itself.
func TestAFailedTransactionKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3})
	w.empty(t)
	a, b, c := text(w.key(t, 1, 0)), text(w.key(t, 2, 0)), text(w.key(t, 3, 0))
	update := func(id string) string { return "UPDATE orders SET note = note || 'x' WHERE id = " + id }
	all := fmt.Sprintf("INSERT INTO orders VALUES (%s, 'x'), (%s, 'x'), (%s, 'x')", a, b, c)
	for name, fail := range map[string]step{
		"of a shard":        query("SELECT 1/0 FROM orders WHERE id = " + b),
		"of several":        query("UPDATE orders SET note = (1 / (length(note) - length(note)))::text"),
		"in a pipeline":     sent(pipeline(unnamed(update(c)), unnamed("SELEKT 1"), sync1)...),
		"before it":         sent(bind("", "nosuch"), sync1),
		"in its definition": query("ALTER TABLE orders ADD COLUMN id int"),
	} {
		t.Run(name, func(t *testing.T) {
			steps := append(texts(all, "BEGIN", "SET LOCAL work_mem = '2MB'", update(a), update(b)), fail)
			for _, id := range []string{a, b, c} {
				steps = append(steps, query(update(id)).byAnother())
			}
			w.sameButOrder(t, append(steps, texts("SELECT 1", "ROLLBACK TO nosuch", "COMMIT", "SHOW work_mem", "SELECT * FROM orders", "DELETE FROM orders")...)...)
		})
	}
	w.nothingPrepared(t)
}
