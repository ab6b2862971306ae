package clients_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
)

var psqlCases = goCases{
	"connect":     psqlConnect,
	"describe":    psqlDescribe,
	"completion":  psqlCompletion,
	"types":       psqlTypes,
	"transaction": psqlTransaction,
	"savepoint":   psqlSavepoint,
	"error":       psqlError,
	"prepared":    psqlPrepared,
	"cursor":      psqlCursor,
	"copy":        psqlCopy,
	"cancel":      psqlCancel,
	"notice":      psqlNotice,
	"big":         psqlBig,
	"many":        psqlMany,
	"gdesc":       psqlDescribeResult,
	shardedCase:   psqlSharded,
}

// psqlCommand runs psql without anybody's settings.
func psqlCommand(ctx context.Context, to target, flags ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "psql", append([]string{"-X"}, flags...)...)
	command.Env = append(to.environment(), "TERM=dumb", "PAGER=cat", "PSQL_HISTORY=/dev/null", "LC_ALL=C.UTF-8")
	return command
}

// psql runs the script and returns what it printed, rows as bare fields and errors among them.
func psql(t *testing.T, to target, script string) string {
	t.Helper()
	return psqlWith(t, to, script, "-t")
}

func psqlWith(t *testing.T, to target, script string, flags ...string) string {
	t.Helper()
	command := psqlCommand(context.WithoutCancel(t.Context()), to, append(flags, "-q", "-A")...) // also for cleaning up
	command.Stdin = strings.NewReader(script)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("psql: %v\n%s", err, output)
	}
	return strings.TrimSpace(string(output))
}

func wantPsql(t *testing.T, to target, script, want string) {
	t.Helper()
	if got := psql(t, to, script); got != want {
		t.Errorf("%s\ngot:\n%s\nwant:\n%s", script, got, want)
	}
}

// psqlTable sees to it that the table is not there before the test nor after it.
func psqlTable(t *testing.T, to target, name string) {
	t.Helper()
	remove := func() { psql(t, to, "DROP TABLE IF EXISTS "+name) }
	remove()
	t.Cleanup(remove)
}

func wantParts(t *testing.T, output string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(output, part) {
			t.Errorf("no %q in:\n%s", part, output)
		}
	}
}

func psqlConnect(t *testing.T, to target) {
	wantParts(t, psql(t, to, `\conninfo`), "You are connected to database", to.database, to.user, to.port)
	wantPsql(t, to, `\echo :DBNAME :USER :PORT :ENCODING`, fmt.Sprint(to.database, " ", to.user, " ", to.port, " UTF8"))
}

// psqlDescribe asks the catalogue as people do.
func psqlDescribe(t *testing.T, to target) {
	psql(t, to, `DROP TABLE IF EXISTS psql_child, psql_items; DROP VIEW IF EXISTS psql_view;
CREATE TABLE psql_items (id integer PRIMARY KEY, name text NOT NULL DEFAULT 'none', price numeric(10,2) CHECK (price > 0));
CREATE TABLE psql_child (id integer REFERENCES psql_items);
CREATE INDEX psql_items_name ON psql_items (name);
COMMENT ON TABLE psql_items IS 'some items';
CREATE VIEW psql_view AS SELECT 1 AS one;`)
	t.Cleanup(func() { psql(t, to, "DROP VIEW psql_view; DROP TABLE psql_child, psql_items") })
	for command, parts := range map[string][]string{
		`\d`:                 {"psql_items", "psql_view"},
		`\d psql_items`:      {"id|integer||not null|", "name|text||not null|'none'::text", "psql_items_name", "psql_items_pkey", "psql_child_id_fkey", "price > 0::numeric"},
		`\d+ psql_items`:     {"extended", "heap"},
		`\dt`:                {"public|psql_items|table|"},
		`\dt+ psql_*`:        {"some items", "permanent"},
		`\di`:                {"psql_items_name"},
		`\dv`:                {"psql_view"},
		`\l`:                 {to.database, "UTF8"},
		`\l+`:                {"pg_default"},
		`\du`:                {to.user},
		`\dn`:                {"public"},
		`\dn+`:               {"standard public schema"},
		`\df pg_catalog.abs`: {"abs|bigint|bigint|func"},
		`\dT+ numeric`:       {"numeric"},
		`\dp psql_items`:     {"psql_items"},
		`\dx`:                {"plpgsql"},
		`\sv psql_view`:      {"CREATE OR REPLACE VIEW", "SELECT 1 AS one"},
		`\dconfig work_mem`:  {"work_mem"},
	} {
		t.Run(command, func(t *testing.T) {
			output := psqlWith(t, to, command)
			wantParts(t, output, parts...)
			if strings.Contains(output, "ERROR:") {
				t.Error(output)
			}
		})
	}
}

// psqlCompletion types at a terminal and has psql ask the server what may follow.
func psqlCompletion(t *testing.T, to target) {
	psql(t, to, "DROP TABLE IF EXISTS psql_completed_table; CREATE TABLE psql_completed_table AS SELECT 'found it' AS said_column")
	t.Cleanup(func() { psql(t, to, "DROP TABLE psql_completed_table") })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := psqlCommand(ctx, to)
	terminal, err := pty.Start(command)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	var seen bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&seen, terminal) // a terminal whose other end is closed is an error, and the end
	}()
	// psql reads all of it in its own time; a column's name can be completed only once the table's is.
	for _, keys := range []string{"SELECT * FROM psql_compl\t;\n", "UPDATE psql_compl\tSET said\t= 'changed' RETURNING said_column;\n", "\\q\n"} {
		if _, err := terminal.WriteString(keys); err != nil {
			t.Fatal(err)
		}
	}
	err = command.Wait()
	<-read
	if err != nil {
		t.Errorf("psql at a terminal: %v", err)
	}
	wantParts(t, seen.String(), "found it", "changed", "(1 row)")
}

func psqlTypes(t *testing.T, to target) {
	wantPsql(t, to, `SELECT 1::smallint, 2::bigint, 1.50::numeric(5,2), 0.1::float8, 'grüße', '\x00ff'::bytea, true, '2024-02-29'::date, '{1,2}'::int[], '{"a":1}'::jsonb, NULL;`,
		`1|2|1.50|0.1|grüße|\x00ff|t|2024-02-29|{1,2}|{"a": 1}|`)
}

func psqlTransaction(t *testing.T, to target) {
	psqlTable(t, to, "psql_transaction")
	wantPsql(t, to, `CREATE TABLE psql_transaction (n integer);
BEGIN; INSERT INTO psql_transaction VALUES (1); ROLLBACK;
BEGIN; INSERT INTO psql_transaction VALUES (2); COMMIT;
SELECT * FROM psql_transaction;`, "2")
	// One message with several statements is one transaction.
	output, err := psqlCommand(t.Context(), to, "-A", "-t", "-c", "CREATE TABLE psql_one (n int); SELECT 1/0; CREATE TABLE psql_two (n int)").CombinedOutput()
	if err == nil || !strings.Contains(string(output), "division by zero") {
		t.Errorf("%v: %s", err, output)
	}
	wantPsql(t, to, "SELECT to_regclass('psql_one') IS NULL", "t")
}

func psqlSavepoint(t *testing.T, to target) {
	psqlTable(t, to, "psql_savepoint")
	wantPsql(t, to, `\set ON_ERROR_ROLLBACK on
CREATE TABLE psql_savepoint (n integer PRIMARY KEY);
BEGIN;
INSERT INTO psql_savepoint VALUES (1);
\set VERBOSITY sqlstate
INSERT INTO psql_savepoint VALUES (1);
INSERT INTO psql_savepoint VALUES (2);
COMMIT;
SELECT sum(n) FROM psql_savepoint;`, "ERROR:  23505\n3")
}

func psqlError(t *testing.T, to target) {
	for sql, state := range failures {
		wantParts(t, psql(t, to, sql+";\n\\echo state :LAST_ERROR_SQLSTATE\nSELECT 'goes on';"), "state "+state, "goes on")
	}
	wantParts(t, psql(t, to, "SELECT *\nFROM no_such_table;"), "LINE 2: FROM no_such_table", "^")
}

func psqlPrepared(t *testing.T, to target) {
	wantPsql(t, to, "PREPARE p(integer) AS SELECT $1 * 2;\nEXECUTE p(21);\nEXECUTE p(4);\nDEALLOCATE p;", "42\n8")
}

func psqlCursor(t *testing.T, to target) {
	wantPsql(t, to, "\\set FETCH_COUNT 100\nSELECT n FROM generate_series(1, 5) n;\nSELECT count(*) FROM (SELECT generate_series(1, 1000)) x;", "1\n2\n3\n4\n5\n1000")
	wantPsql(t, to, "BEGIN; DECLARE c SCROLL CURSOR FOR SELECT n FROM generate_series(1, 5) n; FETCH 2 FROM c; MOVE LAST FROM c; FETCH PRIOR FROM c; COMMIT;", "1\n2\n4")
}

func psqlCopy(t *testing.T, to target) {
	folder := t.TempDir()
	in, out := filepath.Join(folder, "in.csv"), filepath.Join(folder, "out.csv")
	const rows = "1,one\n2,\"two, with a comma\"\n3,\n"
	if err := os.WriteFile(in, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	psqlTable(t, to, "psql_copy")
	wantPsql(t, to, fmt.Sprintf(`CREATE TABLE psql_copy (n integer, word text);
\copy psql_copy FROM '%s' WITH (FORMAT csv)
\copy (SELECT * FROM psql_copy ORDER BY n) TO '%s' WITH (FORMAT csv)
COPY psql_copy FROM STDIN;
4	four
\.
SELECT count(*), sum(n) FROM psql_copy;
COPY (SELECT word FROM psql_copy WHERE n = 4) TO STDOUT;`, in, out), "4|10\nfour")
	if got, err := os.ReadFile(out); err != nil || string(got) != rows {
		t.Errorf("copied out %q, %v", got, err)
	}
}

// psqlCancel interrupts psql as Ctrl-C does, once it has said that it begins. It leaves the rest of the script undone.
func psqlCancel(t *testing.T, to target) {
	command := psqlCommand(t.Context(), to, "-q", "-A", "-t")
	command.Stdin = strings.NewReader("\\set VERBOSITY sqlstate\n\\echo begins\nSELECT pg_sleep(60);\n")
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	command.Stderr = &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(output, make([]byte, len("begins\n"))); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // until the statement is under way
	if err := command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	const scriptFailed = 3
	var exit *exec.ExitError
	if err := command.Wait(); !errors.As(err, &exit) || exit.ExitCode() != scriptFailed {
		t.Errorf("psql: %v", err)
	}
	wantParts(t, said.String(), "57014")
}

func psqlNotice(t *testing.T, to target) {
	wantParts(t, psql(t, to, noticeStatement), "NOTICE:  "+noticeText)
}

func psqlBig(t *testing.T, to target) {
	output := psql(t, to, "SELECT repeat('x', 200) FROM generate_series(1, 50000);")
	if got := strings.Count(output, "\n") + 1; got != 50_000 || len(output) != 50_000*201-1 {
		t.Errorf("%d rows in %d bytes", got, len(output))
	}
}

func psqlMany(t *testing.T, to target) {
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			output, err := psqlCommand(t.Context(), to, "-A", "-t", "-c", fmt.Sprintf("SELECT %d * 2", i)).CombinedOutput()
			if err != nil || strings.TrimSpace(string(output)) != strconv.Itoa(2*i) {
				t.Errorf("twice %d is %s, %v", i, output, err)
			}
		})
	}
	all.Wait()
}

func psqlDescribeResult(t *testing.T, to target) {
	wantPsql(t, to, `SELECT 1 AS one, 'x'::varchar(5) AS word, now() AS moment \gdesc`, "one|integer\nword|character varying(5)\nmoment|timestamp with time zone")
	wantPsql(t, to, "SELECT format('SELECT %s', n) FROM generate_series(1, 3) n \\gexec\n", "1\n2\n3")
	wantPsql(t, to, "SELECT 7 AS seven \\gset\n\\echo :seven\n", "7")
}

func psqlSharded(t *testing.T, to target) {
	for user := range 20 {
		wantPsql(t, to, fmt.Sprintf(`\set table %s
\set user %d
INSERT INTO :table (user_id, id, note) VALUES (:user, 1, 'order');
INSERT INTO :table VALUES (:user, 2, 'order');
UPDATE :table SET note = 'changed' WHERE user_id = :user AND id = 2;
SELECT id, note FROM :table WHERE user_id = :user ORDER BY id;
BEGIN; DELETE FROM :table WHERE user_id = :user AND id = 1; COMMIT;
SELECT count(*) FROM :table WHERE user_id = :user;`, to.ordersTable, user), "1|order\n2|changed\n1")
	}
	wantParts(t, psql(t, to, `\d `+to.ordersTable), "user_id|bigint||not null|")
}

var pgbenchCases = goCases{
	"initialise": func(t *testing.T, to target) { pgbenchInitialise(t, to) },
	"scripts":    pgbenchScripts,
	shardedCase:  pgbenchSharded,
}

// pgbenchProgram is on nobody's PATH in some distributions.
func pgbenchProgram() (string, error) {
	if path, err := exec.LookPath("pgbench"); err == nil {
		return path, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	if err != nil || len(found) == 0 {
		return "", errors.New("pgbench is not installed")
	}
	return found[len(found)-1], nil
}

func needsPgbench() string {
	if _, err := pgbenchProgram(); err != nil {
		return err.Error()
	}
	return ""
}

func pgbench(t *testing.T, to target, flags ...string) string {
	t.Helper()
	program, err := pgbenchProgram()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(context.WithoutCancel(t.Context()), program, flags...) // also for cleaning up
	command.Env = to.environment()
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("pgbench %s: %v\n%s", strings.Join(flags, " "), err, output)
	}
	return string(output)
}

func pgbenchInitialise(t *testing.T, to target) {
	t.Helper()
	wantParts(t, pgbench(t, to, "-i", "-I", "dtgvp", "-s", "1", "-q"), "done in")
	wantPsql(t, to, "SELECT count(*) FROM pgbench_accounts", "100000")
	t.Cleanup(func() { pgbench(t, to, "-i", "-I", "d", "-q") })
}

func pgbenchScripts(t *testing.T, to target) {
	pgbenchInitialise(t, to)
	for _, script := range []string{"select-only", "tpcb-like", "simple-update"} {
		for _, mode := range []string{"simple", "extended", "prepared"} {
			t.Run(script+" "+mode, func(t *testing.T) {
				output := pgbench(t, to, "-n", "-b", script, "-M", mode, "-c", "4", "-t", "25")
				wantParts(t, output, "number of transactions actually processed: 100/100", "number of failed transactions: 0")
			})
		}
	}
	// Every transaction that was counted has been done: tpcb-like and simple-update add a row each.
	wantPsql(t, to, "SELECT count(*) FROM pgbench_history", "600")
	wantPsql(t, to, "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)", "t")
}

// pgbenchSharded has every transaction stay with one key, among many clients that have others.
func pgbenchSharded(t *testing.T, to target) {
	script := filepath.Join(t.TempDir(), "orders.sql")
	text := fmt.Sprintf(`\set id random(1, 1000000000)
BEGIN;
INSERT INTO %[1]s (user_id, id, note) VALUES (:client_id, :id, 'order');
UPDATE %[1]s SET note = 'changed' WHERE user_id = :client_id AND id = :id;
SELECT count(*) FROM %[1]s WHERE user_id = :client_id;
COMMIT;
`, to.ordersTable)
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"simple", "extended", "prepared"} {
		t.Run(mode, func(t *testing.T) {
			wantParts(t, pgbench(t, to, "-n", "-f", script, "-M", mode, "-c", "8", "-t", "10"), "actually processed: 80/80", "failed transactions: 0")
		})
	}
	for client := range 8 {
		wantPsql(t, to, fmt.Sprintf("SELECT count(*) FROM %s WHERE user_id = %d AND note = 'changed'", to.ordersTable, client), "30")
	}
}
