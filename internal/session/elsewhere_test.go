package session

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/pool"
	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestParsingWhatAnotherShardHas: a statement is parsed and described where its tables are, whether or not there is a transaction, and whatever other shards
// have of that name.
func TestParsingWhatAnotherShardHas(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	far, other := "CREATE TABLE far (a int, b text)", "CREATE TABLE other (a int, b text)"
	w := newWorld(t, worldConfig{
		shards: 3, setUp: []string{far, other, "CREATE TABLE homely (a int, b text)", "CREATE SEQUENCE numbers"},
		tables: []topology.TableSpec{{Name: "public.far", Kind: topology.Single, Shard: "s2"}, {Name: "public.other", Kind: topology.Single, Shard: "s3"}},
		onShards: func(number int) []string {
			switch number {
			case 1:
				return []string{"DROP TABLE far", "DROP TABLE other", "CREATE TABLE other (a text)"}
			case 2:
				return []string{"DROP TABLE other, homely"}
			default:
				return []string{"DROP TABLE far, homely"}
			}
		},
	})
	b, c := text(w.key(t, 2, 0)), text(w.key(t, 3, 0))
	for name, steps := range map[string][]step{
		"alone":                 {sent(parse("s", "SELECT * FROM far WHERE a = $1"), sync1), sent(describeStatement("s"), sync1), sent(bind("", "s", "1"), describePortal(""), run(""), sync1)},
		"described":             {sent(parse("s", "SELECT a, b FROM other WHERE a = $1"), describeStatement("s"), sync1), sent(bind("", "s", "1"), describePortal(""), run(""), sync1)},
		"unnamed":               {sent(parse("", "INSERT INTO far VALUES ($1, $2) RETURNING b"), describeStatement(""), sync1), sent(bind("", "", "1", "x"), run(""), sync1), query("DELETE FROM far")},
		"flushed":               {flushed(3, parse("s", "SELECT * FROM other"), describeStatement("s"), flush), sent(bind("", "s"), run(""), sync1)},
		"both":                  {sent(parse("a", "SELECT * FROM far"), parse("b", "SELECT * FROM other"), describeStatement("a"), describeStatement("b"), sync1), sent(bind("", "b"), run(""), bind("", "a"), run(""), sync1)},
		"behind a key":          {sent(pipeline(unnamed("SELECT * FROM orders WHERE id = "+b), unnamed("SELECT * FROM homely"), parse("s", "SELECT * FROM homely WHERE a = $1"), describeStatement("s"), sync1)...)},
		"before a key":          {sent(pipeline(parse("s", "SELECT * FROM homely"), unnamed("SELECT * FROM orders WHERE id = "+b), describeStatement("s"), sync1)...)},
		"of home and another":   {sent(pipeline(parse("s", "SELECT * FROM homely"), parse("t", "SELECT * FROM far"), parse("u", "SELECT 1"), describeStatement("s"), describeStatement("t"), describeStatement("u"), sync1)...)},
		"serializable":          {query("BEGIN ISOLATION LEVEL SERIALIZABLE"), sent(pipeline(parse("s", "SELECT * FROM far"), unnamed("SELECT * FROM orders WHERE id = $1", c), sync1)...), query("COMMIT")},
		"a sequence":            {query("BEGIN"), query("SELECT * FROM orders WHERE id = " + b), sent(parse("s", "SELECT setval($1::text::regclass, 5)"), describeStatement("s"), sync1), query("COMMIT")},
		"in one go":             {sent(pipeline(unnamed("SELECT * FROM far WHERE a = $1", "1"), unnamed("SELECT b FROM other"), sync1)...)},
		"behind another":        {sent(pipeline(unnamed("SELECT * FROM undeclared"), parse("s", "SELECT * FROM far"), describeStatement("s"), sync1)...)},
		"before another":        {sent(pipeline(parse("s", "SELECT * FROM far"), unnamed("SELECT * FROM undeclared"), describeStatement("s"), sync1)...), sent(bind("", "s"), run(""), sync1)},
		"wrong":                 {sent(parse("s", "SELECT nosuch FROM far"), sync1), sent(parse("s", "SELECT a FROM far"), describeStatement("s"), sync1)},
		"in a transaction":      {query("BEGIN"), sent(parse("s", "SELECT * FROM far WHERE a = $1"), describeStatement("s"), sync1), sent(bind("", "s", "1"), run(""), sync1), query("COMMIT"), sent(describeStatement("s"), sync1)},
		"in one elsewhere":      {query("BEGIN"), query("SELECT * FROM other"), sent(parse("s", "SELECT * FROM far WHERE a = $1"), describeStatement("s"), sync1), query("COMMIT"), sent(bind("", "s", "1"), run(""), sync1)},
		"in a pipeline's":       {sent(pipeline(unnamed("BEGIN"), parse("s", "SELECT * FROM far WHERE a = $1"), describeStatement("s"), sync1)...), sent(bind("", "s", "1"), run(""), sync1), query("COMMIT")},
		"prepared, by another":  {sent(parse("s", "SELECT * FROM far"), describeStatement("s"), sync1), sent(parse("s", "SELECT * FROM far"), describeStatement("s"), sync1).byAnother()},
		"a cast of a parameter": {sent(parse("s", "UPDATE far SET b = $2 WHERE a = $1"), describeStatement("s"), sync1), sent(bind("", "s", "1", "x"), run(""), sync1)},
	} {
		t.Run(name, func(t *testing.T) { w.sameAsPlain(t, steps...) })
	}
}

// TestStatementsFollowATableToAnotherShard: prepared ones too, in a transaction or not, when the shard that had it has it no more.
func TestStatementsFollowATableToAnotherShard(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{
		noPlain: true, shards: 3, setUp: []string{"CREATE TABLE far (a int, b text)", "CREATE TABLE far2 (a int, b text)"},
	})
	const sql = "WITH added AS (INSERT INTO far2 (a, b) VALUES ($1, 'x'), ($1, 'y') RETURNING b) UPDATE far SET b = (SELECT max(b) FROM added) WHERE a = $1"
	const sql2 = "SELECT (SELECT count(*) FROM far), (SELECT max(b) FROM far2 WHERE a = $1)"
	conn := w.client(t)
	prepared := map[string]string{"written": sql, "read": sql2}
	for name, sql := range prepared {
		if _, err := conn.Prepare(t.Context(), name, sql); err != nil {
			t.Fatal(err)
		}
	}
	run := func() {
		t.Helper()
		for name := range prepared {
			if _, err := conn.Exec(t.Context(), name, 1); err != nil {
				t.Error(err)
			}
		}
	}
	run()
	on := func(shard string) {
		w.publish(must[*topology.Map](t)(w.published.Load().Next(topology.SetTable(topology.TableSpec{Name: "public.far", Kind: topology.Single, Shard: shard}), topology.SetTable(topology.TableSpec{Name: "public.far2", Kind: topology.Single, Shard: shard}))))
	}
	on("s1")
	run()
	on("s2")
	run()
	execute(t, w.onShard(t, 1), "DROP TABLE far, far2")
	run()
	on("s3")
	run()
	execute(t, conn, "BEGIN")
	run()
	execute(t, conn, "COMMIT")
	on("s2")
	execute(t, conn, "BEGIN")
	run()
	execute(t, conn, "COMMIT")
}

// TestADumpThatWouldLackTables is refused.
func TestADumpThatWouldLackTables(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, tables: []topology.TableSpec{{Name: "public.far", Kind: topology.Single, Shard: "s2"}}})
	conn := w.client(t)
	const query = "SELECT count(*) FROM pg_catalog.pg_class"
	execute(t, conn, query)
	execute(t, conn, "SET application_name = 'pg_dump'")
	var refused *pgconn.PgError
	if _, err := conn.Exec(t.Context(), query); !errors.As(err, &refused) || refused.Code != pgerr.FeatureNotSupported {
		t.Errorf("it was not refused: %v", err)
	}
}

// single says which shard has a table, from the next statement on.
func (w *world) single(t testing.TB, table, shard string) {
	t.Helper()
	w.publish(must[*topology.Map](t)(w.published.Load().Next(topology.SetTable(topology.TableSpec{Name: table, Kind: topology.Single, Shard: shard}))))
}

// TestTransactionsAcrossAMoveOfATable: one that takes a snapshot for each statement goes on, and one that keeps an older one than the table's arrival does not see half of it.
func TestTransactionsAcrossAMoveOfATable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, setUp: []string{"CREATE TABLE far (a int)", "CREATE TABLE near (a int)"}, tables: []topology.TableSpec{{Name: "public.near", Kind: topology.Single, Shard: "s2"}}})
	for level, code := range map[string]string{"READ COMMITTED": "", "REPEATABLE READ": pgerr.SerializationFailure} {
		for between, sql := range map[string]string{"at once": "", "later": "SELECT count(*) FROM near"} {
			w.single(t, "public.far", "s1")
			conn := w.client(t)
			execute(t, conn, "BEGIN ISOLATION LEVEL "+level)
			execute(t, conn, "SELECT count(*) FROM near")
			w.single(t, "public.far", "s2")
			if sql != "" {
				execute(t, conn, sql)
			}
			_, err := conn.Exec(t.Context(), "SELECT count(*) FROM far")
			var refused *pgconn.PgError
			if errors.As(err, &refused); code == "" && err != nil || code != "" && (refused == nil || refused.Code != code) {
				t.Errorf("%s, %s: %v", level, between, err)
			}
		}
	}
}

// TestTheHomeShardDoesNotKnow of a table that it does not have: names mean the same table still, what runs there unseen is refused, and so is another name.
func TestTheHomeShardDoesNotKnow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, unsharded: true, setUp: []string{
		"CREATE SCHEMA first", "CREATE SCHEMA empty", "CREATE TABLE first.far (a int)", "CREATE TABLE far (a int)", "INSERT INTO far VALUES (1), (2)",
		"CREATE FUNCTION hidden() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM first.far); END'",
	}})
	conn := w.client(t)
	execute(t, conn, "SET search_path = first, public")
	count := func(want int64) {
		t.Helper()
		if got := one[int64](t, conn, "SELECT count(*) FROM far"); got != want {
			t.Errorf("%d rows, not %d", got, want)
		}
	}
	count(0)
	execute(t, conn, "SELECT hidden()")
	execute(t, w.onShard(t, 2), "INSERT INTO first.far VALUES (1)")
	w.single(t, "first.far", "s2")
	count(1)
	execute(t, w.onShard(t, 1), "DROP TABLE first.far")
	conn = w.client(t)
	execute(t, conn, "SET search_path = first, public")
	eventually(t, "it is known that the table is gone", func() bool { return one[int64](t, conn, "SELECT count(*) FROM far") == 1 })
	for _, sql := range []string{"SELECT hidden()", "DO 'BEGIN END'", "ALTER TABLE far RENAME TO near", "ALTER TABLE first.far SET SCHEMA public", "ALTER SCHEMA first RENAME TO second"} {
		var refused *pgconn.PgError
		if _, err := conn.Exec(t.Context(), sql); !errors.As(err, &refused) || refused.Code != pgerr.FeatureNotSupported {
			t.Errorf("%s: %v", sql, err)
		}
	}
	execute(t, conn, "ALTER TABLE far RENAME COLUMN a TO b")
	execute(t, conn, "ALTER SCHEMA empty RENAME TO second")
}

// TestUnseenCodeOfRoutersThatComeBack: a statement that runs code of which nobody can tell what it uses, and that waits for a backend while a table goes elsewhere and its router is given up for that, does not run where the table was; nor does one
// that is planned while the map says that a table is held, and nothing else has told the router.
func TestUnseenCodeOfRoutersThatComeBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, unsharded: true, pools: pool.Config{PerShard: 1}, setUp: []string{
		"CREATE TABLE far (a int)", "CREATE FUNCTION hidden() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM far); END'",
	}})
	first, waiting := w.client(t), w.client(t)
	const hidden = "SELECT hidden()"
	execute(t, waiting, hidden)
	execute(t, first, "BEGIN")
	execute(t, first, "SELECT count(*) FROM undeclared")
	ended := make(chan error, 1)
	go func() { ended <- waiting.QueryRow(t.Context(), hidden, pgx.QueryExecModeSimpleProtocol).Scan(new(int)) }()
	eventually(t, "the statement waits", func() bool { return w.waits(waiting.PgConn().PID()) })
	w.single(t, "public.far", "s2")
	shard := w.onShard(t, 1)
	execute(t, shard, "UPDATE cleave.identity SET minimum_version = $1", w.published.Load().Version())
	execute(t, shard, "SELECT pg_terminate_backend(pid) FROM cleave.backends")
	_, _ = first.Exec(t.Context(), "ROLLBACK") // it hears of it, and gives the backend back
	var refused *pgconn.PgError
	if err := <-ended; !errors.As(err, &refused) || refused.Code != pgerr.SerializationFailure {
		t.Errorf("it ran where the table was: %v", err)
	}
	w.publish(must[*topology.Map](t)(w.published.Load().Next(topology.SetTable(topology.TableSpec{Name: "public.far", Kind: topology.Single, Shard: "s1", Held: true}))))
	if _, err := w.client(t).Exec(t.Context(), hidden); !errors.As(err, &refused) || refused.Code != pgerr.CannotConnectNow {
		t.Errorf("it ran while a table was held: %v", err)
	}
}

// TestATableThatIsHeldByTheMapAlone, as a router sees it that was given up and has read half of what was published since: nobody asks the shard that had the table whether there is one.
func TestATableThatIsHeldByTheMapAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, setUp: []string{"CREATE TABLE far (a int)", "CREATE TABLE near (a int)"}})
	w.publish(must[*topology.Map](t)(w.published.Load().Next(topology.SetTable(topology.TableSpec{Name: "public.far", Kind: topology.Single, Shard: "s1", Held: true}))))
	execute(t, w.onShard(t, 1), "DROP TABLE far")
	conn := w.client(t)
	for _, sql := range []string{"UPDATE far SET a = a + $1", "SELECT count(*) FROM far WHERE a = $1", "SELECT count(*) FROM nobody_knows WHERE a = $1"} {
		for how, run := range map[string]func() error{
			"parsed": func() error { _, err := conn.Prepare(t.Context(), "", sql); return err },
			"run":    func() error { _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol, 1); return err },
		} {
			var refused *pgconn.PgError
			if err := run(); !errors.As(err, &refused) || refused.Code != pgerr.CannotConnectNow {
				t.Errorf("%s, %s: %v", sql, how, err)
			}
		}
	}
	execute(t, conn, "SELECT count(*) FROM near")
}

// TestATableThatIsHeldBehindItsParse: a statement that was planned before the map said that its table is held is not looked at on the shard that had the table.
func TestATableThatIsHeldBehindItsParse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, setUp: []string{"CREATE TABLE far (a int)"}})
	says := func(held bool) {
		w.publish(must[*topology.Map](t)(w.published.Load().Next(topology.SetTable(topology.TableSpec{Name: "public.far", Kind: topology.Single, Shard: "s1", Held: held}))))
	}
	says(false)
	client := dialRaw(t, w.address, nil)
	client.send(&pgproto3.Parse{Name: "p", Query: "UPDATE far SET a = a + $1"}, sync1)
	client.replies(2)
	says(true)
	execute(t, w.onShard(t, 1), "DROP TABLE far")
	wantCodes(t, client.ask(&pgproto3.Describe{ObjectType: 'S', Name: "p"}, sync1), pgerr.CannotConnectNow, "ready I")
	wantCodes(t, client.ask(&pgproto3.Bind{PreparedStatement: "p", Parameters: [][]byte{[]byte("1")}}, &pgproto3.Execute{}, sync1), pgerr.CannotConnectNow, "ready I")
}
