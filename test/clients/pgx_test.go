package clients_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

var pgxCases = goCases{
	"connect":     pgxConnect,
	"types":       pgxTypes,
	"transaction": pgxTransaction,
	"savepoint":   pgxSavepoint,
	"error":       pgxError,
	"prepared":    pgxPrepared,
	"modes":       pgxModes,
	"cursor":      pgxCursor,
	"copy":        pgxCopy,
	"batch":       pgxBatch,
	"cancel":      pgxCancel,
	"notice":      pgxNotice,
	"listen":      pgxListen,
	"big":         pgxBig,
	"many":        pgxMany,
	shardedCase:   pgxSharded,
}

// pgxOpen connects for the length of the test.
func pgxOpen(t *testing.T, to target, change ...func(*pgx.ConnConfig)) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(to.dsn())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(config)
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func pgxExec(t *testing.T, conn *pgx.Conn, sql string, arguments ...any) pgconn.CommandTag {
	t.Helper()
	tag, err := conn.Exec(t.Context(), sql, arguments...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return tag
}

// pgxTable makes a table for the length of the test.
func pgxTable(t *testing.T, conn *pgx.Conn, name, columns string) {
	t.Helper()
	pgxExec(t, conn, "DROP TABLE IF EXISTS "+name)
	pgxExec(t, conn, "CREATE TABLE "+name+" ("+columns+")")
	t.Cleanup(func() { _, _ = conn.Exec(context.Background(), "DROP TABLE "+name) })
}

func pgxScan[T any](t *testing.T, conn *pgx.Conn, sql string, arguments ...any) T {
	t.Helper()
	var value T
	if err := conn.QueryRow(t.Context(), sql, arguments...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func wantState(t *testing.T, err error, state string) {
	t.Helper()
	var answer *pgconn.PgError
	if !errors.As(err, &answer) || answer.Code != state {
		t.Errorf("got %v, expected SQLSTATE %s", err, state)
	}
}

func pgxConnect(t *testing.T, to target) {
	conn := pgxOpen(t, to, func(c *pgx.ConnConfig) { c.RuntimeParams["application_name"] = "pgx client" })
	if got := pgxScan[string](t, conn, "SELECT current_setting('application_name')"); got != "pgx client" {
		t.Errorf("application_name is %q", got)
	}
	for name, want := range map[string]string{"client_encoding": "UTF8", "standard_conforming_strings": "on", "integer_datetimes": "on"} {
		if got := conn.PgConn().ParameterStatus(name); got != want {
			t.Errorf("the server reports %s as %q", name, got)
		}
	}
	if err := conn.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	config := conn.Config().Copy()
	config.Database = "no_such_database"
	_, err := pgx.ConnectConfig(t.Context(), config)
	wantState(t, err, "3D000")
}

func pgxTypes(t *testing.T, to target) {
	conn := pgxOpen(t, to)
	pgxTable(t, conn, "pgx_types", "a smallint, b integer, c bigint, d numeric(20,5), e double precision, f text, g bytea, h boolean, i date, j timestamptz, k uuid, l jsonb, m integer[], n text")
	day := time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)
	moment := time.Date(2024, 2, 29, 12, 34, 56, 789000000, time.UTC)
	pgxExec(t, conn, "INSERT INTO pgx_types VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14)",
		int16(-5), int32(1<<30), int64(1)<<60, "12345.67890", 0.1, "grüße \\ ' \"", []byte{0, 1, 255}, true, day, moment,
		"01234567-89ab-cdef-0123-456789abcdef", map[string]any{"a": 1}, []int32{1, 2, 3}, nil)
	var (
		a          int16
		b          int32
		c          int64
		d, f, k, l string
		e          float64
		g          []byte
		h          bool
		i, j       time.Time
		m          []int32
		n          *string
	)
	err := conn.QueryRow(t.Context(), "SELECT a, b, c, d::text, e, f, g, h, i, j, k::text, l::text, m, n FROM pgx_types").Scan(&a, &b, &c, &d, &e, &f, &g, &h, &i, &j, &k, &l, &m, &n)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(a, b, c, d, e, f, string(g), h, i.Equal(day), j.Equal(moment), k, l, m, n == nil)
	want := fmt.Sprint(-5, 1<<30, 1<<60, "12345.67890", 0.1, "grüße \\ ' \"", "\x00\x01\xff", true, true, true, "01234567-89ab-cdef-0123-456789abcdef", `{"a": 1}`, []int32{1, 2, 3}, true)
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func pgxTransaction(t *testing.T, to target) {
	conn := pgxOpen(t, to)
	pgxTable(t, conn, "pgx_transaction", "n integer")
	for _, commit := range []bool{false, true} {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "INSERT INTO pgx_transaction VALUES (1)"); err != nil {
			t.Fatal(err)
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := pgxScan[int](t, conn, "SELECT count(*) FROM pgx_transaction"); got != 1 {
		t.Errorf("%d rows after a rollback and a commit", got)
	}
	tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		t.Fatal(err)
	}
	_, err = tx.Exec(t.Context(), "INSERT INTO pgx_transaction VALUES (2)")
	wantState(t, err, "25006")
	_, err = tx.Exec(t.Context(), "SELECT 1")
	wantState(t, err, "25P02")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
}

func pgxSavepoint(t *testing.T, to target) {
	conn := pgxOpen(t, to)
	pgxTable(t, conn, "pgx_savepoint", "n integer PRIMARY KEY")
	err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "INSERT INTO pgx_savepoint VALUES (1)"); err != nil {
			return err
		}
		inner := pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO pgx_savepoint VALUES (1)")
			return err
		})
		wantState(t, inner, "23505")
		_, err := tx.Exec(t.Context(), "INSERT INTO pgx_savepoint VALUES (2)")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := pgxScan[int](t, conn, "SELECT sum(n) FROM pgx_savepoint"); got != 3 {
		t.Errorf("the sum is %d", got)
	}
}

// failures are statements that fail, with their SQLSTATE.
var failures = map[string]string{
	"SELECT 1/0":                     "22012",
	"SELECT * FROM no_such_table":    "42P01",
	"SELEC 1":                        "42601",
	"SELECT no_such_column":          "42703",
	"SELECT 'x'::integer":            "22P02",
	"SELECT no_such_function(1)":     "42883",
	"INSERT INTO no_such_table(a)":   "42601",
	"SELECT 1::bigint << 64 + 'a'::": "42601",
}

func pgxError(t *testing.T, to target) {
	conn := pgxOpen(t, to)
	for sql, state := range failures {
		_, err := conn.Exec(t.Context(), sql)
		wantState(t, err, state)
		if got := pgxScan[int](t, conn, "SELECT 1"); got != 1 {
			t.Errorf("after %s the connection says %d", sql, got)
		}
	}
	pgxTable(t, conn, "pgx_error", "n integer CONSTRAINT pgx_error_key PRIMARY KEY")
	pgxExec(t, conn, "INSERT INTO pgx_error VALUES (1)")
	_, err := conn.Exec(t.Context(), "INSERT INTO pgx_error VALUES (1)")
	wantState(t, err, "23505")
	var answer *pgconn.PgError
	if errors.As(err, &answer) && (answer.ConstraintName != "pgx_error_key" || answer.TableName != "pgx_error" || answer.Detail == "") {
		t.Errorf("the error lacks its fields: %+v", answer)
	}
}

func pgxPrepared(t *testing.T, to target) {
	conn := pgxOpen(t, to)
	description, err := conn.Prepare(t.Context(), "double", "SELECT $1::integer * 2 AS twice")
	if err != nil {
		t.Fatal(err)
	}
	if len(description.ParamOIDs) != 1 || description.ParamOIDs[0] != 23 || description.Fields[0].Name != "twice" {
		t.Errorf("described as %+v", description)
	}
	for n := range 20 {
		if got := pgxScan[int](t, conn, "double", n); got != 2*n {
			t.Errorf("twice %d is %d", n, got)
		}
	}
	if err := conn.Deallocate(t.Context(), "double"); err != nil {
		t.Error(err)
	}
	_, err = conn.PgConn().ExecPrepared(t.Context(), "double", [][]byte{[]byte("1")}, nil, nil).Close()
	wantState(t, err, "26000")
}

// pgxModes goes through all ways in which pgx can send a statement.
func pgxModes(t *testing.T, to target) {
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			conn := pgxOpen(t, to, func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = mode })
			pgxTable(t, conn, "pgx_modes", "n bigint, word text")
			for n := range int64(5) {
				pgxExec(t, conn, "INSERT INTO pgx_modes VALUES ($1, $2)", n, fmt.Sprint("word ", n))
			}
			for n := range int64(5) {
				if got := pgxScan[string](t, conn, "SELECT word FROM pgx_modes WHERE n = $1", n); got != fmt.Sprint("word ", n) {
					t.Errorf("row %d holds %q", n, got)
				}
			}
			// A table that changes under a cached statement is for the client to notice, in or out of a cache.
			pgxExec(t, conn, "ALTER TABLE pgx_modes ADD COLUMN more integer DEFAULT 7")
			if got := pgxScan[int](t, conn, "SELECT more FROM pgx_modes WHERE n = $1", int64(1)); got != 7 {
				t.Errorf("the new column holds %d", got)
			}
		})
	}
}

func pgxCursor(t *testing.T, to target) {
	conn := pgxOpen(t, to)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "DECLARE c CURSOR FOR SELECT n FROM generate_series(1, 250) n"); err != nil {
		t.Fatal(err)
	}
	total := 0
	for {
		rows, err := tx.Query(t.Context(), "FETCH 100 FROM c")
		if err != nil {
			t.Fatal(err)
		}
		fetched, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if err != nil {
			t.Fatal(err)
		}
		if total += len(fetched); len(fetched) < 100 {
			break
		}
	}
	if total != 250 {
		t.Errorf("fetched %d rows", total)
	}
}

func pgxCopy(t *testing.T, to target) {
	conn := pgxOpen(t, to)
	pgxTable(t, conn, "pgx_copy", "n integer, word text")
	const count = 10_000
	copied, err := conn.CopyFrom(t.Context(), pgx.Identifier{"pgx_copy"}, []string{"n", "word"}, pgx.CopyFromSlice(count, func(i int) ([]any, error) {
		return []any{i, fmt.Sprint("word ", i)}, nil
	}))
	if err != nil || copied != count {
		t.Fatalf("copied %d, %v", copied, err)
	}
	var out bytes.Buffer
	tag, err := conn.PgConn().CopyTo(t.Context(), &out, "COPY (SELECT * FROM pgx_copy ORDER BY n) TO STDOUT")
	if err != nil || tag.RowsAffected() != count || strings.Count(out.String(), "\n") != count || !strings.HasSuffix(out.String(), "9999\tword 9999\n") {
		t.Errorf("copied out %v, %v, %d bytes", tag, err, out.Len())
	}
	_, err = conn.PgConn().CopyFrom(t.Context(), strings.NewReader("1\tx\nnot a number\ty\n"), "COPY pgx_copy FROM STDIN")
	wantState(t, err, "22P02")
	if got := pgxScan[int](t, conn, "SELECT count(*) FROM pgx_copy"); got != count {
		t.Errorf("%d rows after a copy that failed", got)
	}
}

func pgxBatch(t *testing.T, to target) {
	conn := pgxOpen(t, to)
	pgxTable(t, conn, "pgx_batch", "n integer PRIMARY KEY")
	batch := &pgx.Batch{}
	for n := range 50 {
		batch.Queue("INSERT INTO pgx_batch VALUES ($1)", n)
	}
	sum := 0
	batch.Queue("SELECT sum(n) FROM pgx_batch").QueryRow(func(row pgx.Row) error { return row.Scan(&sum) })
	if err := conn.SendBatch(t.Context(), batch).Close(); err != nil || sum != 49*50/2 {
		t.Errorf("the sum is %d, %v", sum, err)
	}
	failing := &pgx.Batch{}
	failing.Queue("INSERT INTO pgx_batch VALUES (100)")
	failing.Queue("INSERT INTO pgx_batch VALUES (0)")
	wantState(t, conn.SendBatch(t.Context(), failing).Close(), "23505")
	if got := pgxScan[int](t, conn, "SELECT count(*) FROM pgx_batch"); got != 50 {
		t.Errorf("%d rows after a batch that failed", got)
	}
}

func pgxCancel(t *testing.T, to target) {
	conn := pgxOpen(t, to)
	started := time.AfterFunc(200*time.Millisecond, func() { _ = conn.PgConn().CancelRequest(context.Background()) })
	defer started.Stop()
	_, err := conn.Exec(t.Context(), "SELECT pg_sleep(60)")
	wantState(t, err, "57014")
	if got := pgxScan[int](t, conn, "SELECT 1"); got != 1 {
		t.Errorf("after the cancel the connection says %d", got)
	}
}

// noticeStatement makes the server say noticeText, and nothing else.
const (
	noticeStatement = "DROP TABLE IF EXISTS no_such_table"
	noticeText      = `table "no_such_table" does not exist, skipping`
)

func pgxNotice(t *testing.T, to target) {
	var heard []string
	conn := pgxOpen(t, to, func(c *pgx.ConnConfig) {
		c.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { heard = append(heard, n.Severity+" "+n.Message) }
	})
	pgxExec(t, conn, noticeStatement)
	pgxExec(t, conn, "COMMIT")
	if got := strings.Join(heard, ", "); got != "NOTICE "+noticeText+", WARNING there is no transaction in progress" {
		t.Errorf("heard %q", got)
	}
}

func pgxListen(t *testing.T, to target) {
	listener, speaker := pgxOpen(t, to), pgxOpen(t, to)
	pgxExec(t, listener, "LISTEN pgx_channel")
	pgxExec(t, speaker, "SELECT pg_notify('pgx_channel', 'hello')")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	heard, err := listener.WaitForNotification(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if heard.Channel != "pgx_channel" || heard.Payload != "hello" {
		t.Errorf("heard %+v", heard)
	}
}

func pgxBig(t *testing.T, to target) {
	conn := pgxOpen(t, to)
	rows, err := conn.Query(t.Context(), "SELECT n, repeat('x', 200) FROM generate_series(1, 50000) n")
	if err != nil {
		t.Fatal(err)
	}
	count, sum := 0, 0
	var n int
	var text string
	_, err = pgx.ForEachRow(rows, []any{&n, &text}, func() error {
		count, sum = count+1, sum+n
		if len(text) != 200 {
			return fmt.Errorf("row %d has %d characters", n, len(text))
		}
		return nil
	})
	if err != nil || count != 50_000 || sum != 50_000*50_001/2 {
		t.Errorf("%d rows, sum %d, %v", count, sum, err)
	}
	const size = 5 << 20
	if got := pgxScan[string](t, conn, "SELECT $1::text", strings.Repeat("y", size)); len(got) != size {
		t.Errorf("a text of %d came back with %d", size, len(got))
	}
	// A result that is left early.
	rows, err = conn.Query(t.Context(), "SELECT repeat('x', 200) FROM generate_series(1, 50000) n")
	if err != nil {
		t.Fatal(err)
	}
	rows.Next()
	rows.Close()
	if got := pgxScan[int](t, conn, "SELECT 1"); got != 1 {
		t.Errorf("afterwards the connection says %d", got)
	}
}

// manyConnections are open at the same time.
const manyConnections = 40

func pgxMany(t *testing.T, to target) {
	config, err := pgxpool.ParseConfig(to.dsn())
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = manyConnections
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var all sync.WaitGroup
	for i := range manyConnections {
		all.Go(func() {
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Release()
			for n := range 20 {
				var got int
				if err := conn.QueryRow(t.Context(), "SELECT $1::integer + $2::integer", i, n).Scan(&got); err != nil || got != i+n {
					t.Errorf("%d + %d is %d, %v", i, n, got, err)
				}
			}
		})
	}
	all.Wait()
}

func pgxSharded(t *testing.T, to target) {
	conn := pgxOpen(t, to)
	table := to.ordersTable
	for user := range int64(20) {
		for id := range int64(3) {
			pgxExec(t, conn, "INSERT INTO "+table+" (user_id, id, note) VALUES ($1, $2, $3)", user, id, fmt.Sprint("order ", id))
		}
	}
	for user := range int64(20) {
		if got := pgxScan[int](t, conn, "SELECT count(*) FROM "+table+" WHERE user_id = $1", user); got != 3 {
			t.Errorf("user %d has %d orders", user, got)
		}
		if tag := pgxExec(t, conn, "UPDATE "+table+" SET note = $2 WHERE user_id = $1 AND id = 1", user, "changed"); tag.RowsAffected() != 1 {
			t.Errorf("the update says %s", tag)
		}
		if tag := pgxExec(t, conn, "DELETE FROM "+table+" WHERE user_id = $1 AND id = 2", user); tag.RowsAffected() != 1 {
			t.Errorf("the delete says %s", tag)
		}
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			var note string
			if err := tx.QueryRow(t.Context(), "SELECT note FROM "+table+" WHERE user_id = $1 AND id = 1 FOR UPDATE", user).Scan(&note); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), "UPDATE "+table+" SET note = $3 WHERE user_id = $1 AND id = $2", user, 1, note+" again")
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if got := pgxScan[string](t, conn, "SELECT note FROM "+table+" WHERE user_id = $1 AND id = $2", user, 1); got != "changed again" {
			t.Errorf("user %d's order holds %q", user, got)
		}
	}
	_, err := conn.Exec(t.Context(), "INSERT INTO "+table+" VALUES ($1, $2, $3)", int64(1), int64(0), "twice")
	wantState(t, err, "23505")
}
