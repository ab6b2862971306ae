package session

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// TestPreparedStatements compares what SQL and the protocol make of prepared statements, on a plain server and here.
func TestPreparedStatements(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{})
	k := w.key(t, 2, 0)
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"by SQL", texts("PREPARE a AS SELECT 1", "EXECUTE a", "PREPARE a AS SELECT 2", "EXECUTE nosuch", "DEALLOCATE a", "EXECUTE a", "DEALLOCATE a", "DEALLOCATE ALL")},
		{"by SQL with parameters", texts("PREPARE a (bigint) AS SELECT $1 + 1", "EXECUTE a (2)", "EXECUTE a ('3')", "DEALLOCATE a")},
		{"by SQL with a key", texts("PREPARE a (bigint, text) AS INSERT INTO orders VALUES ($1, $2)", fmt.Sprintf("EXECUTE a (%d, 'x')", k), "PREPARE b AS SELECT note FROM orders WHERE id = $1",
			fmt.Sprintf("EXECUTE b (%d)", k), fmt.Sprintf("EXECUTE b ('%d')", k), "DEALLOCATE b", fmt.Sprintf("DELETE FROM orders WHERE id = %d", k))},
		{"by SQL in a transaction that is undone", texts("BEGIN", "PREPARE a AS SELECT 1", "ROLLBACK", "EXECUTE a")},
		{"by SQL, wrong", texts("PREPARE a AS SELECT nosuch", "EXECUTE a", "PREPARE a AS SELEKT", "EXECUTE a")},
		{"by SQL, several in one text", texts("PREPARE a AS SELECT 1; PREPARE b AS SELECT 2", "EXECUTE a; EXECUTE b; EXECUTE a")},
		{"made by SQL, used by the protocol", []step{query("PREPARE a AS SELECT $1::int"), sent(describeStatement("a"), bind("", "a", "5"), run(""), sync1), sent(parse("a", "SELECT 2"), sync1), sent(closeStatement("a"), sync1), query("EXECUTE a (1)")}},
		{"made by the protocol, used by SQL", []step{
			sent(parse("a", "SELECT $1::int"), sync1), query("EXECUTE a (5)"), query("PREPARE a AS SELECT 2"), query("DEALLOCATE a"), sent(bind("", "a", "5"), run(""), sync1),
		}},
		{"EXECUTE by the protocol", []step{query("PREPARE a (int) AS SELECT $1"), sent(pipeline(unnamed("EXECUTE a (5)"), sync1)...), sent(pipeline(unnamed("DEALLOCATE a"), sync1)...), query("EXECUTE a (5)")}},
		{"the same name for different texts", []step{
			sent(parse("a", "SELECT 1"), sync1), sent(parse("a", "SELECT 'two'"), sync1).byAnother(), sent(bind("", "a"), run(""), sync1), sent(bind("", "a"), run(""), sync1).byAnother(),
			query("PREPARE b AS SELECT 1"), query("PREPARE b AS SELECT 'two'").byAnother(), query("EXECUTE b"), query("EXECUTE b").byAnother(),
		}},
		{"on several shards", []step{
			sent(parse("a", "SELECT note FROM orders WHERE id = $1"), describeStatement("a"), sync1), sent(bind("", "a", text(w.key(t, 1, 0))), run(""), sync1),
			sent(bind("", "a", text(k)), run(""), sync1), sent(bind("", "a", text(w.key(t, 1, 1))), run(""), sync1),
		}},
		{"DISCARD ALL", []step{sent(parse("a", "SELECT 1"), sync1), query("DISCARD ALL"), sent(bind("", "a"), run(""), sync1), sent(parse("a", "SELECT 2"), bind("", "a"), run(""), sync1)}},
		{"under another search_path", []step{
			query("CREATE SCHEMA IF NOT EXISTS other"), query("CREATE TABLE IF NOT EXISTS other.undeclared (z text)"), sent(parse("a", "SELECT * FROM undeclared"), describeStatement("a"), sync1),
			query("SET search_path = other"), sent(parse("b", "SELECT * FROM undeclared"), describeStatement("b"), sync1), query("RESET search_path"),
			sent(parse("c", "SELECT * FROM undeclared"), describeStatement("c"), sync1), query("DROP TABLE other.undeclared"), query("DROP SCHEMA other"),
		}},
	} {
		t.Run(c.name, func(t *testing.T) { w.sameAsPlain(t, c.steps...) })
	}
}

// TestStatementsAreShared: clients with the same text use one prepared statement of a backend.
func TestStatementsAreShared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	w.pools.SetLimit(1, 1)
	for i := range 5 {
		c := dialRaw(t, w.address, nil)
		said := c.ask(parse(fmt.Sprintf("mine%d", i), "SELECT $1::int"), bind("", fmt.Sprintf("mine%d", i), "5"), run(""), sync1)
		if !strings.Contains(strings.Join(said, " "), `row "5"`) {
			t.Fatalf("%q", said)
		}
		_ = c.conn.Close()
	}
	c := dialRaw(t, w.address, nil)
	said := c.query("SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT $1::int'")
	if !strings.Contains(strings.Join(said, " "), `row "1"`) {
		t.Errorf("%q, want one", said)
	}
	_ = c.conn.Close()
	w.settled(t)
}

// TestManyStatements: a backend holds so many and no more, and every client still finds its own.
func TestManyStatements(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	w.pools.SetLimit(1, 1)
	c := dialRaw(t, w.address, nil)
	const count = maxPrepared + 50
	use := func(i int) {
		t.Helper()
		said := c.ask(bind("", fmt.Sprintf("s%d", i)), run(""), sync1)
		if !strings.Contains(strings.Join(said, " "), fmt.Sprintf(`row "%d"`, i)) {
			t.Fatalf("s%d: %q", i, said)
		}
	}
	for i := range count {
		c.ask(parse(fmt.Sprintf("s%d", i), fmt.Sprintf("SELECT %d", i)), sync1)
		use(i)
	}
	for i := range count {
		use(i)
	}
	// An error before a statement is closed for a new one leaves it where it is.
	for i := range count {
		wantCodes(t, c.ask(pipeline(unnamed("SELECT 1/0"), bind("", fmt.Sprintf("s%d", i)), run(""), sync1)...), "22012", "ready I")
	}
	for i := range count {
		use(i)
	}
	said := c.query(fmt.Sprintf("SELECT count(*) <= %d FROM pg_prepared_statements", maxPrepared))
	if !strings.Contains(strings.Join(said, " "), `row "t"`) {
		t.Errorf("a backend holds more than %d: %q", maxPrepared, said)
	}
	_ = c.conn.Close()
	w.settled(t)
}

// TestChangedTables: after a change of a table a client that prepares anew is served, and one that did not can go on after
// the error that PostgreSQL gives it.
func TestChangedTables(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	w.pools.SetLimit(1, 1)
	c := dialRaw(t, w.address, nil)
	all := []pgproto3.FrontendMessage{bind("", "all"), run(""), sync1}
	c.query("INSERT INTO undeclared VALUES (1, 'x')")
	c.ask(parse("all", "SELECT * FROM undeclared"), sync1)
	wantCodes(t, c.ask(all...), "", "ready I")
	c.query("ALTER TABLE undeclared ADD c int")
	other := dialRaw(t, w.address, nil)
	said := other.ask(parse("all", "SELECT * FROM undeclared"), describeStatement("all"), bind("", "all"), run(""), sync1)
	wantCodes(t, said, "", "ready I")
	if !strings.Contains(strings.Join(said, " "), `row "1" "x" NULL`) {
		t.Errorf("a new client finds %q", said)
	}
	wantCodes(t, c.ask(all...), "0A000", "ready I")
	said = c.ask(all...)
	if !strings.Contains(strings.Join(said, " "), `row "1" "x" NULL`) {
		t.Errorf("after the error it finds %q", said)
	}
	_ = c.conn.Close()
	_ = other.conn.Close()
	w.settled(t)
}

// TestPGXOverChanges: a driver with a cache of statements of its own gets along.
func TestPGXOverChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	c := w.client(t)
	execute(t, c, "INSERT INTO undeclared VALUES (1, 'x')")
	for i := range 3 {
		failures := 0
		for range 3 {
			rows, err := c.Query(t.Context(), "SELECT * FROM undeclared WHERE a = $1", 1)
			if err == nil {
				rows.Close()
				err = rows.Err()
			}
			var refused *pgconn.PgError
			if errors.As(err, &refused) && refused.Code == "0A000" {
				failures++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if failures > 1 {
			t.Errorf("round %d: the statement failed %d times", i, failures)
		}
		execute(t, c, fmt.Sprintf("ALTER TABLE undeclared ADD c%d int", i))
	}
}

// TestPrepareThatFailsAnew: a statement of PREPARE is made again on another backend; if that fails, the client hears of it once.
func TestPrepareThatFailsAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	admin := w.onShard(t, 1)
	c := dialRaw(t, w.address, nil)
	wantCodes(t, c.query("PREPARE a AS SELECT a FROM undeclared"), "", "ready I")
	execute(t, admin, "ALTER TABLE undeclared RENAME TO away")
	terminate(t, admin)
	wantCodes(t, c.query("EXECUTE a"), "42P01", "ready I")
	wantCodes(t, c.ask(pipeline(unnamed("EXECUTE a"), sync1)...), "42P01", "ready I")
	execute(t, admin, "ALTER TABLE away RENAME TO undeclared")
	wantCodes(t, c.query("EXECUTE a"), "", "ready I")
	wantCodes(t, c.ask(pipeline(unnamed("EXECUTE a"), sync1)...), "", "ready I")
	_ = c.conn.Close()
	w.settled(t)
}
