package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/test/cluster"

	"github.com/cleavedb/cleave/internal/thorough"
)

// refusedWith wants a statement to fail with a SQLSTATE, a reason and what to do.
func refusedWith(t *testing.T, conn *pgx.Conn, code, statement string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), statement)
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != code {
		t.Errorf("%s: %v, want SQLSTATE %s", statement, err, code)
		return
	}
	if code != "23514" && (refused.Detail == "" || refused.Hint == "") {
		t.Errorf("%s is refused without a reason, or without a hint: %+v", statement, refused)
	}
}

// startRollouts is a cluster of three shards and two routers whose tables belong to the role app, with a plain server that has the same.
func startRollouts(t *testing.T) (c *cluster.Routers, a, b, plain *pgx.Conn) {
	t.Helper()
	c = cluster.StartRouters(t, 3, 2)
	for _, statement := range []string{"CREATE ROLE app LOGIN", "CREATE ROLE somebody LOGIN", "CREATE SCHEMA shop AUTHORIZATION app"} {
		mustExec(t, c.Routers[0].Dial(t), statement)
	}
	a, b = c.Routers[0].DialAs(t, "app"), c.Routers[1].DialAs(t, "app")
	server := pgtest.StartN(t, 1)[0]
	plain, err := pgx.Connect(t.Context(), server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plain.Close(context.Background()) })
	mustExec(t, plain, "CREATE SCHEMA shop")
	for _, conn := range []*pgx.Conn{a, b, plain} {
		mustExec(t, conn, "SET search_path TO shop")
	}
	for _, conn := range []*pgx.Conn{a, plain} {
		mustExec(t, conn, "CREATE TABLE orders (user_id bigint, id int, amount int, note text, PRIMARY KEY (user_id, id))")
		mustExec(t, conn, "CREATE TABLE countries (code text PRIMARY KEY, name text)")
		mustExec(t, conn, "CREATE TABLE alone (id int)")
		mustExec(t, conn, "INSERT INTO orders SELECT i, 1, i * 10, 'note ' || i FROM generate_series(1, 60) AS i")
		mustExec(t, conn, "INSERT INTO countries VALUES ('fr', 'France'), ('it', 'Italy')")
	}
	mustExec(t, a, "CREATE FUNCTION reads_rows() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM shop.orders'")
	mustExec(t, a, "SELECT cleave.shard_table('orders', 'user_id')")
	mustExec(t, a, "SELECT cleave.reference_table('countries')")
	return c, a, b, plain
}

const rolloutRows = "SELECT state, shard, shard_state, applied_at IS NOT NULL AS dated FROM cleave.rollouts WHERE name = 'change' ORDER BY shard"

// TestARolloutOverTwoRouters begins on one router, goes on by the other, and statements are right on both, whichever form a shard has.
func TestARolloutOverTwoRouters(t *testing.T) {
	thorough.Only(t)
	c, a, b, plain := startRollouts(t)
	expect(t, a, "SELECT cleave.rollout_begin('change', 'CREATE INDEX orders_note ON orders (note); ALTER TABLE orders ADD CONSTRAINT small CHECK (amount < 5000)')",
		"rollout_begin; roll-out change is open; the first shard will be s1")
	header := "state,shard,shard_state,dated; "
	expect(t, b, rolloutRows, header+"open s1 pending false; open s2 pending false; open s3 pending false")
	same := func(when string) {
		t.Helper()
		for _, conn := range []*pgx.Conn{a, b} {
			sameAnswers(t, conn, plain, when)
		}
	}
	same("before the first shard")
	expect(t, b, "SELECT cleave.rollout_next('change')", "rollout_next; roll-out change is applied on shard s1, 1 of 3")
	expect(t, a, rolloutRows, header+"open s1 applied true; open s2 pending false; open s3 pending false")
	same("after the first shard")
	expect(t, a, "SELECT cleave.rollout_next('change', shard => 's3')", "rollout_next; roll-out change is applied on shard s3, 2 of 3")
	same("after the second shard")
	checkOnSome(t, c, a)
	noOtherChange(t, a, b)
	differs(t, c, 0, `roll-out "change" is open`)

	var notices []string
	watching := c.Routers[1].DialWith(t, "app", func(n *pgconn.Notice) { notices = append(notices, n.Message) })
	if got := table(t, watching, "SELECT cleave.rollout_finish('change')"); !strings.Contains(got, "is finished") {
		t.Errorf("finishing said %s", got)
	}
	if len(notices) != 1 || !strings.Contains(notices[0], "shard s2, 3 of 3") {
		t.Errorf("on its way it said %q", notices)
	}
	same("when it is finished")
	differs(t, c, 0, "ok")
	expect(t, a, rolloutRows, header+"finished s1 applied true; finished s2 applied true; finished s3 applied true")
	mustExec(t, b, "ALTER TABLE orders ADD COLUMN late int")
	mustExec(t, a, "ALTER TABLE orders DROP COLUMN late")
	refusedWith(t, a, "55000", "SELECT cleave.rollout_undo('change')")
}

// sameAnswers compares statements of all kinds with a plain server, and leaves everything as it was.
func sameAnswers(t *testing.T, conn, plain *pgx.Conn, when string) {
	t.Helper()
	for _, statement := range []string{
		"SELECT * FROM orders WHERE user_id = 7", "SELECT note FROM orders WHERE user_id = 33 AND note = 'note 33'",
		"INSERT INTO orders VALUES (7, 2, 1, 'second') RETURNING *", "UPDATE orders SET amount = amount + 1 WHERE user_id = 7 AND id = 1 RETURNING amount",
		"INSERT INTO orders VALUES (7, 2, 9, 'again') ON CONFLICT (user_id, id) DO UPDATE SET amount = excluded.amount RETURNING amount",
		"INSERT INTO orders VALUES (7, 2, 9, 'again') ON CONFLICT ON CONSTRAINT orders_pkey DO NOTHING",
		"INSERT INTO orders VALUES (101, 1, 1), (102, 1, 1), (103, 1, 1), (104, 1, 1), (105, 1, 1), (106, 1, 1)",
		"DELETE FROM orders WHERE user_id > 100", "DELETE FROM orders WHERE user_id = 7 AND id = 2", "UPDATE orders SET amount = 70 WHERE user_id = 7",
		"SELECT o.user_id, c.name FROM orders o, countries c WHERE o.user_id = 8 ORDER BY c.name",
		"INSERT INTO orders VALUES (7, 1, 1, 'there already')", "SELECT nothing FROM orders WHERE user_id = 7",
		"INSERT INTO orders VALUES (7, 3, 1) ON CONFLICT (note) DO NOTHING", "INSERT INTO countries VALUES ('fr', 'x') ON CONFLICT (code) DO UPDATE SET name = countries.name RETURNING name",
	} {
		got, want := answerTo(t, conn, statement), answerTo(t, plain, statement)
		if got != want {
			t.Errorf("%s, %s:\n%s\nplain PostgreSQL:\n%s", when, statement, got, want)
		}
	}
}

// answerTo is what a statement answers, or the SQLSTATE of its error.
func answerTo(t *testing.T, conn *pgx.Conn, statement string) string {
	t.Helper()
	text, err := readTable(t.Context(), conn, statement, pgx.QueryExecModeCacheStatement) // prepared once, and run on every form
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return text
}

// checkOnSome: a check constraint refuses rows where it stands already, and a statement over several shards is refused as a whole.
func checkOnSome(t *testing.T, c *cluster.Routers, conn *pgx.Conn) {
	t.Helper()
	refusedOn, takenOn := 0, 0
	for shard := range c.Shards {
		var key int
		if err := c.Direct(t, shard).QueryRow(t.Context(), "SELECT min(user_id) FROM shop.orders").Scan(&key); err != nil {
			t.Fatal(err)
		}
		if shard == 1 {
			mustExec(t, conn, fmt.Sprintf("INSERT INTO orders VALUES (%d, 9, 9999)", key))
			takenOn = key
			continue
		}
		refusedOn = key
		refusedWith(t, conn, "23514", fmt.Sprintf("INSERT INTO orders VALUES (%d, 9, 9999)", key))
	}
	refusedWith(t, conn, "23514", fmt.Sprintf("INSERT INTO orders VALUES (%d, 8, 9999), (%d, 8, 9999)", takenOn, refusedOn))
	expect(t, conn, fmt.Sprintf("SELECT id FROM orders WHERE user_id = %d AND amount = 9999", takenOn), "id; 9")
	mustExec(t, conn, fmt.Sprintf("DELETE FROM orders WHERE user_id = %d AND amount = 9999", takenOn))
}

// noOtherChange: definitions of the table are refused on all routers, and nothing else is.
func noOtherChange(t *testing.T, routers ...*pgx.Conn) {
	t.Helper()
	for _, conn := range routers {
		for _, statement := range []string{
			"ALTER TABLE orders ADD COLUMN x int", "CREATE INDEX x ON orders (amount)", "CREATE INDEX CONCURRENTLY x ON orders (amount)", "DROP INDEX orders_note",
			"DROP TABLE orders", "COMMENT ON TABLE orders IS 'x'", "GRANT SELECT ON orders TO somebody", "ALTER TABLE orders DROP CONSTRAINT small",
			"SELECT cleave.undistribute_table('orders')", "SELECT cleave.rollout_begin('other', 'CREATE INDEX x ON orders (amount)')",
		} {
			refusedWith(t, conn, "55006", statement)
		}
		refusedWith(t, conn, "0A000", "SELECT cleave.rollout_begin('other', 'ALTER TABLE countries ADD COLUMN x int')")
		refusedWith(t, conn, "22023", "SELECT cleave.rollout_begin('other', 'ALTER TABLE countries SET (fillfactor = 50)')")
		refusedWith(t, conn, "0A000", "SELECT cleave.rollout_begin('other', 'ALTER TABLE countries ADD CONSTRAINT c CHECK (reads_rows() > 0)')")
		mustExec(t, conn, "ANALYZE orders")
		mustExec(t, conn, "VACUUM orders")
		mustExec(t, conn, "ALTER TABLE countries ADD COLUMN x int")
		mustExec(t, conn, "ALTER TABLE countries DROP COLUMN x")
		mustExec(t, conn, "CREATE INDEX alone_id ON alone (id)")
		mustExec(t, conn, "DROP INDEX alone_id")
	}
}

// TestWhoMayRollOut: who owns the table, and nobody else; and not inside a transaction.
func TestWhoMayRollOut(t *testing.T) {
	thorough.Only(t)
	c, a, _, _ := startRollouts(t)
	somebody := c.Routers[0].DialAs(t, "somebody")
	begin := "SELECT cleave.rollout_begin('change', 'CREATE STATISTICS shop.two ON amount, note FROM shop.orders')"
	_, err := somebody.Exec(t.Context(), begin)
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "42501" {
		t.Errorf("somebody else begins: %v", err)
	}
	mustExec(t, a, begin)
	mustExec(t, a, "SELECT cleave.rollout_next('change')")
	for _, step := range []string{"next", "finish", "undo"} {
		if _, err := somebody.Exec(t.Context(), "SELECT cleave.rollout_"+step+"('change')"); !errors.As(err, &refused) || refused.Code != "42501" {
			t.Errorf("somebody else calls %s: %v", step, err)
		}
	}
	tx, err := a.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT cleave.rollout_next('change')"); !errors.As(err, &refused) || refused.Code != "25001" {
		t.Errorf("in a transaction: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for setting, standard := range map[string]string{"client_encoding": "UTF8", "standard_conforming_strings": "on"} {
		other := map[string]string{"UTF8": "LATIN1", "on": "off"}[standard]
		mustExec(t, a, "SET "+setting+" TO '"+other+"'")
		refusedWith(t, a, "0A000", "SELECT cleave.rollout_next('change')")
		mustExec(t, a, "SET "+setting+" TO '"+standard+"'")
	}
	// What the client's own steps make is the client's, and so is what an operator makes for it.
	command(t, c, 0, "is finished", "finish", "change")
	for shard := range c.Shards {
		expect(t, c.Direct(t, shard), "SELECT stxowner::regrole::text AS owner FROM pg_statistic_ext WHERE stxname = 'two'", "owner; app")
	}
	var names string
	if err := a.QueryRow(t.Context(), "SHOW search_path").Scan(&names); err != nil || names != "shop" {
		t.Errorf("the search path is %q, %v", names, err)
	}
}

// command runs 'cleave schema rollout', and compares the exit code and what is said.
func command(t *testing.T, c *cluster.Routers, code int, says string, arguments ...string) {
	t.Helper()
	path, err := cluster.Binary()
	if err != nil {
		t.Fatal(err)
	}
	run := exec.Command(path, append(append([]string{"schema", "rollout"}, arguments...), "--api", c.Routers[1].API.BaseURL)...)
	output, err := run.CombinedOutput()
	var exit *exec.ExitError
	got := 0
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if got != code || !strings.Contains(string(output), says) {
		t.Errorf("%v: exit code %d, want %d and %q:\n%s", arguments, got, code, says, output)
	}
}

func TestRolloutsFromTheCommandLine(t *testing.T) {
	thorough.Only(t)
	c, a, _, _ := startRollouts(t)
	command(t, c, 0, "no roll-out", "status")
	command(t, c, 1, "SELECT *", "begin", "change", "ALTER TABLE shop.orders ADD COLUMN x int")
	command(t, c, 1, "does not exist", "begin", "change", "CREATE INDEX i ON orders (note)")
	command(t, c, 0, "is open", "begin", "change", "CREATE INDEX CONCURRENTLY i ON orders (note)", "--search-path", "shop", "--shards", "s2")
	command(t, c, 0, "shard s2, 1 of 3", "next", "change")
	command(t, c, 0, "shard s3, 2 of 3", "next", "change", "--shard", "s3")
	command(t, c, 0, "s1    │ pending", "status", "change")
	refusedWith(t, a, "55006", "CREATE INDEX j ON orders (note)")
	command(t, c, 0, "no shard has it", "undo", "change")
	command(t, c, 1, "is undone", "next", "change")
	command(t, c, 2, "write", "next")
	mustExec(t, a, "CREATE INDEX i ON orders (note)")
}

// TestAShardThatTakesLongIsHeardOf while it is at work.
func TestAShardThatTakesLongIsHeardOf(t *testing.T) {
	thorough.Only(t)
	c, a, _, _ := startRollouts(t)
	mustExec(t, a, "SELECT cleave.rollout_begin('change', 'CREATE INDEX CONCURRENTLY orders_note ON orders (note)')")
	inTheWay := c.Direct(t, 0)
	mustExec(t, inTheWay, "BEGIN")
	mustExec(t, inTheWay, "LOCK TABLE shop.orders IN ROW EXCLUSIVE MODE")
	heard := make(chan string, 100)
	waiting := c.Routers[1].DialWith(t, "app", func(n *pgconn.Notice) { heard <- n.Message })
	var stepping sync.WaitGroup
	var failed error
	stepping.Go(func() { _, failed = waiting.Exec(t.Context(), "SELECT cleave.rollout_next('change')") })
	if line := <-heard; !strings.Contains(line, "shard s1 has been at work") || !strings.Contains(line, "waiting for writers") {
		t.Errorf("it said %q", line)
	}
	mustExec(t, inTheWay, "ROLLBACK")
	stepping.Wait()
	if failed != nil {
		t.Error(failed)
	}
}

// TestARouterDiesInTheMiddleOfARollout: another one goes on, from what the shard itself says.
func TestARouterDiesInTheMiddleOfARollout(t *testing.T) {
	thorough.Only(t)
	c, a, b, _ := startRollouts(t)
	mustExec(t, a, "SELECT cleave.rollout_begin('change', 'CREATE INDEX CONCURRENTLY orders_note ON orders (note)')")
	inTheWay := c.Direct(t, 0)
	mustExec(t, inTheWay, "BEGIN")
	mustExec(t, inTheWay, "LOCK TABLE shop.orders IN ROW EXCLUSIVE MODE")
	mustExec(t, inTheWay, "SELECT pg_current_xact_id()")
	var stepping sync.WaitGroup
	stepping.Go(func() { _, _ = a.Exec(context.WithoutCancel(t.Context()), "SELECT cleave.rollout_next('change')") })
	direct := c.Direct(t, 0)
	cluster.Eventually(t, "the index is being made", func() bool {
		return table(t, direct, "SELECT count(*) AS n FROM pg_index WHERE indexrelid = to_regclass('shop.orders_note')") == "n; 1"
	})
	c.Routers[0].Kill()
	stepping.Wait()
	mustExec(t, direct, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONCURRENTLY%'")
	mustExec(t, inTheWay, "ROLLBACK")
	expect(t, direct, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'shop.orders_note'::regclass", "indisvalid; false")
	cluster.Eventually(t, "the other router goes on", func() bool { // when the dead one's record is gone
		_, err := b.Exec(t.Context(), "SELECT cleave.rollout_finish('change')")
		return err == nil
	})
	for shard := range c.Shards {
		expect(t, c.Direct(t, shard), "SELECT indisvalid FROM pg_index WHERE indexrelid = 'shop.orders_note'::regclass", "indisvalid; true")
	}
}
