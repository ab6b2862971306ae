package session

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/plan"

	"github.com/cleavedb/cleave/internal/thorough"
)

// endIdle ends the backends of a shard that are in a transaction and have nothing to do.
func endIdle(t testing.TB, w *world, shard int) {
	t.Helper()
	if n := one[int](t, w.onShard(t, shard), "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"); n != 1 {
		t.Fatalf("%d backends are ended on shard %d", n, shard)
	}
}

// wantRows wants shards to have so many orders each.
func wantRows(t testing.TB, w *world, want ...int) {
	t.Helper()
	for i, n := range want {
		if got := one[int](t, w.onShard(t, i+1), "SELECT count(*) FROM orders"); got != n {
			t.Errorf("shard %d has %d rows, want %d", i+1, got, n)
		}
	}
}

// TestWhatIsToldOfALoss: nobody is told that something is rolled back which may be there.
func TestWhatIsToldOfALoss(t *testing.T) {
	for _, c := range []struct {
		statement plan.Statement
		status    byte
		want      string
	}{
		{plan.Statement{Name: "UPDATE"}, statusOpen, "The transaction is rolled back."},
		{plan.Statement{Name: "UPDATE"}, statusIdle, mayHaveRun},
		{plan.Statement{Name: "COMMIT", Command: plan.Commit}, statusOpen, mayHaveRun},
		{plan.Statement{Name: "PREPARE TRANSACTION"}, statusOpen, mayHaveRun},
	} {
		s := &session{status: c.status, ops: []op{{kind: opQuery, planned: &planned{plan: &plan.Plan{Statements: []plan.Statement{c.statement}}}}}}
		if told := s.afterLoss(); told != c.want {
			t.Errorf("%s: %q", c.statement.Name, told)
		}
	}
}

func insertOrder(key int64) string { return fmt.Sprintf("INSERT INTO orders VALUES (%d, 'x')", key) }

// TestAWriterThatBeganUnseen: a shard that wrote before the router knew that it would be one of several is no reader when all are committed.
func TestAWriterThatBeganUnseen(t *testing.T) {
	for name, run := range map[string]func(c *rawClient, first, second string) func() []string{
		"BEGIN in a text": func(c *rawClient, first, second string) func() []string {
			c.query("BEGIN; " + first)
			c.query(second)
			return func() []string { return c.query("COMMIT") }
		},
		"a pipeline that is flushed": func(c *rawClient, first, second string) func() []string {
			for _, sql := range []string{first, second} {
				c.send(pipeline(unnamed(sql), &pgproto3.Flush{})...)
				c.replies(4)
			}
			return func() []string { return c.ask(sync1) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, worldConfig{noPlain: true})
			end := run(dialRaw(t, w.address, nil), insertOrder(w.key(t, 1, 0)), insertOrder(w.key(t, 2, 0)))
			endIdle(t, w, 1)
			if said := strings.Join(end(), " "); !strings.Contains(said, "08006") {
				t.Errorf("the end said %s", said)
			}
			wantRows(t, w, 0, 0)
			w.nothingPrepared(t)
		})
	}
}

// TestALegIsLostByAQuestion: a question of the router's own that finds a shard of the transaction lost ends it, whatever the question was for.
func TestALegIsLostByAQuestion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, shards: 3})
	c := dialRaw(t, w.address, nil)
	c.send(pipeline(unnamed("INSERT INTO undeclared VALUES (1, 'x')"), unnamed(insertOrder(w.key(t, 2, 0))), &pgproto3.Flush{})...)
	c.replies(8)
	endIdle(t, w, 1)
	said := c.ask(pipeline(unnamed(insertOrder(w.key(t, 3, 0))), sync1)...)
	wantCodes(t, said, "08006", "ready I")
	if !strings.Contains(strings.Join(said, "\n"), `shard "s1"`) {
		t.Errorf("the shard is not named: %q", said)
	}
	wantRows(t, w, 0, 0, 0)
	w.nothingPrepared(t)
}

// TestCommandsBoundEarly: a command that ends the transaction, or is about all of it, is about all its shards when it is run, wherever it was when it was bound.
func TestCommandsBoundEarly(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	for command, c := range map[string]struct {
		after []string // what is run behind it
		rows  int
	}{
		"COMMIT":          {nil, 1},
		"ROLLBACK":        {nil, 0},
		"SAVEPOINT s":     {[]string{"DELETE FROM orders", "ROLLBACK TO s", "COMMIT"}, 1},
		"ROLLBACK TO old": {[]string{"COMMIT"}, 0},
	} {
		t.Run(command, func(t *testing.T) {
			w := newWorld(t, worldConfig{noPlain: true})
			client := dialRaw(t, w.address, nil)
			client.query("BEGIN")
			client.query("SAVEPOINT old")
			client.query(insertOrder(w.key(t, 1, 0)))
			client.ask(parse("c", command), bind("early", "c"), sync1)
			client.query(insertOrder(w.key(t, 2, 0)))
			wantCodes(t, client.ask(run("early"), sync1), "", map[bool]string{true: "ready I", false: "ready T"}[c.after == nil])
			for _, sql := range c.after {
				client.query(sql)
			}
			wantRows(t, w, c.rows, c.rows)
			w.nothingPrepared(t)
			w.settled(t)
		})
	}
}

// TestBeginBehindAPipeline: what a pipeline has done before it is in the block, and other shards begin it as well.
func TestBeginBehindAPipeline(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	client := dialRaw(t, w.address, nil)
	client.ask(pipeline(unnamed(insertOrder(w.key(t, 1, 0))), &pgproto3.Query{String: "BEGIN"})...)
	wantCodes(t, client.query(insertOrder(w.key(t, 2, 0))), "", "ready T")
	client.query("ROLLBACK")
	wantRows(t, w, 0, 0)
}

// TestAPinnedLegIsLost: a session that loses a backend of its own has lost what it was kept for, and is not to believe that it has it.
func TestAPinnedLegIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	for _, last := range []string{"COMMIT", "SELECT * FROM orders", "SELECT * FROM undeclared", "COMMENT ON TABLE orders IS 'x'"} {
		t.Run(last, func(t *testing.T) {
			client := dialRaw(t, w.address, nil)
			for _, sql := range []string{"SELECT pg_advisory_lock(42)", "BEGIN", "INSERT INTO undeclared VALUES (1, 'x')", insertOrder(w.key(t, 2, 0))} {
				client.query(sql)
			}
			endIdle(t, w, 1)
			client.send(&pgproto3.Query{String: last})
			var said []string
			for message, err := client.next(); err == nil; message, err = client.next() {
				if e, is := message.(*pgproto3.ErrorResponse); is {
					said = append(said, e.Severity+" "+e.Code)
				}
			}
			if len(said) == 0 || said[len(said)-1] != "FATAL 57P01" && said[len(said)-1] != "FATAL 08006" {
				t.Errorf("the session was told %v", said)
			}
			wantRows(t, w, 0, 0)
			w.nothingPrepared(t)
		})
	}
}

// TestCommitWithoutItsReplicas: who is to wait for a replica that is not there, and is not let, hears of it as from PostgreSQL.
func TestCommitWithoutItsReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	admin := w.onShard(t, 2)
	replicas := func(names string) {
		t.Helper()
		execute(t, admin, "ALTER SYSTEM SET synchronous_standby_names = '"+names+"'")
		execute(t, admin, "SELECT pg_reload_conf()")
	}
	const waits = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
	replicas("nobody")
	eventually(t, "commits wait", func() bool {
		probe, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		conn := must[*pgx.Conn](t)(pgx.Connect(t.Context(), "postgres://postgres@"+w.shards[1].Addr()+"/postgres?sslmode=disable"))
		defer func() { _ = conn.Close(context.Background()) }()
		_, err := conn.Exec(probe, "CREATE TABLE IF NOT EXISTS probe (a int); DROP TABLE probe")
		return err != nil
	})
	eventually(t, "nobody waits", func() bool {
		return one[int](t, admin, "SELECT count(pg_terminate_backend(pid)) "+waits) == 0
	})
	key := 0
	for _, c := range []struct {
		name      string
		first     string // on the first shard
		cancelled bool
		want      []string
		committed bool
	}{
		{"the only writer is lost", "SELECT * FROM orders WHERE id = %d", false, []string{"ERROR 08007", "ready I"}, true},
		{"the only writer is cancelled", "SELECT * FROM orders WHERE id = %d", true, []string{"WARNING", "done COMMIT", "ready I"}, true},
		{"one of two writers is cancelled", "INSERT INTO orders VALUES (%d, 'x')", true, []string{"ERROR 57014", "ready I"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := dialRaw(t, w.address, nil)
			client.query("BEGIN")
			client.query(fmt.Sprintf(c.first, w.key(t, 1, key)))
			client.query(insertOrder(w.key(t, 2, key)))
			before := one[int](t, admin, "SELECT count(*) FROM orders")
			client.send(&pgproto3.Query{String: "COMMIT"})
			eventually(t, "it waits", func() bool {
				return one[int](t, admin, "SELECT count(*) "+waits) > 0
			})
			if c.cancelled {
				w.cancel(t, client.pid, client.secret)
			} else {
				one[int](t, admin, "SELECT count(pg_terminate_backend(pid)) "+waits)
			}
			if !c.committed {
				eventually(t, "it is being rolled back", func() bool { return one[int](t, admin, "SELECT count(*) "+waits+" AND query LIKE 'ROLLBACK%'") == 1 })
				replicas("")
			}
			said := client.readyTimes(1)
			for _, want := range c.want {
				if !slices.ContainsFunc(said, func(line string) bool { return strings.Contains(line, want) }) {
					t.Errorf("COMMIT said %q, want %q", said, want)
				}
			}
			if committed := one[int](t, admin, "SELECT count(*) FROM orders") > before; committed != c.committed {
				t.Errorf("committed: %v", committed)
			}
			w.nothingPrepared(t)
			w.settled(t)
		})
		key++
	}
}

// TestReadOnlyCommits: a transaction that could not write is committed, whatever it has run on its shards; one that only looks so is not taken for it.
func TestReadOnlyCommits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	declare := func(name string, key int64) string {
		return fmt.Sprintf("DECLARE %s CURSOR FOR SELECT * FROM orders WHERE id = %d", name, key)
	}
	client := dialRaw(t, w.address, nil)
	for _, sql := range []string{"BEGIN READ ONLY", declare("a", w.key(t, 1, 0)), "FETCH ALL FROM a", declare("b", w.key(t, 2, 0)), "FETCH ALL FROM b"} {
		wantCodes(t, client.query(sql), "", "ready T")
	}
	if said := strings.Join(client.query("COMMIT"), " "); said != "done COMMIT ready I" {
		t.Errorf("COMMIT said %s", said)
	}
	for _, begin := range [][]string{
		{"BEGIN /* read only */ ISOLATION LEVEL READ COMMITTED"}, {"BEGIN READ ONLY, READ WRITE"}, {"BEGIN READ ONLY", "SET TRANSACTION READ WRITE"},
		{"BEGIN READ ONLY", "SET transaction_read_only = off"}, {"BEGIN READ ONLY", "SET LOCAL transaction_read_only TO off"}, {"BEGIN READ ONLY", "BEGIN READ WRITE"},
		{"BEGIN READ ONLY", "RESET transaction_read_only"}, {"BEGIN READ ONLY; SET transaction_read_only = off"}, {"BEGIN READ ONLY; COMMIT; BEGIN"},
	} {
		for _, sql := range begin {
			client.query(sql)
		}
		client.query(insertOrder(w.key(t, 1, 0)))
		client.query(insertOrder(w.key(t, 2, 0)))
		endIdle(t, w, 2)
		if said := strings.Join(client.query("COMMIT"), " "); !strings.Contains(said, "08006") {
			t.Errorf("%v: COMMIT said %s", begin, said)
		}
		wantRows(t, w, 0, 0)
	}
	w.nothingPrepared(t)
}

// TestDeallocatedNotes: code that deallocates what the router has prepared on a backend costs one commit, and not all.
func TestDeallocatedNotes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	client := dialRaw(t, w.address, nil)
	commit := func(n int) string {
		client.query("BEGIN")
		client.query(insertOrder(w.key(t, 1, n)))
		client.query(insertOrder(w.key(t, 2, n)))
		return strings.Join(client.query("COMMIT"), " ")
	}
	const done = "done COMMIT ready I"
	if said := commit(0); said != done {
		t.Fatalf("the first said %s", said)
	}
	admin := w.onShard(t, 2)
	execute(t, admin, "CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'DEALLOCATE ALL'; RETURN NEW; END $$")
	execute(t, admin, "CREATE TRIGGER forget BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION forget()")
	if said := commit(1); !strings.Contains(said, "26000") {
		t.Errorf("the second said %s", said)
	}
	execute(t, admin, "DROP TRIGGER forget ON orders")
	if said := commit(1); said != done {
		t.Errorf("the last said %s", said)
	}
	w.nothingPrepared(t)
}
