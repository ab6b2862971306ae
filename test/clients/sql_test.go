package clients_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
)

// sqlCases are those of every driver of database/sql.
func sqlCases(driver string) goCases {
	with := func(run func(t *testing.T, db *sql.DB)) func(t *testing.T, to target) {
		return func(t *testing.T, to target) { run(t, sqlOpen(t, driver, to)) }
	}
	return goCases{
		"types":       with(sqlTypes),
		"transaction": with(sqlTransaction),
		"error":       with(sqlError),
		"prepared":    with(sqlPrepared),
		"cancel":      with(sqlCancel),
		"many":        with(sqlMany),
		shardedCase:   func(t *testing.T, to target) { sqlSharded(t, sqlOpen(t, driver, to), to.ordersTable) },
	}
}

// pqCases are lib/pq's: those of all drivers, and what only it does.
var pqCases = func() goCases {
	cases := sqlCases("postgres")
	cases["connect"] = pqConnect
	cases["savepoint"] = pqSavepoint
	cases["cursor"] = pqCursor
	cases["copy"] = pqCopy
	cases["notice"] = pqNotice
	cases["big"] = pqBig
	cases["listen"] = pqListen
	return cases
}()

func sqlOpen(t *testing.T, driver string, to target) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, to.dsn())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func sqlExec(t *testing.T, db interface {
	ExecContext(ctx context.Context, query string, arguments ...any) (sql.Result, error)
}, query string, arguments ...any) int64 {
	t.Helper()
	result, err := db.ExecContext(t.Context(), query, arguments...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	affected, err := result.RowsAffected()
	if err != nil {
		t.Fatal(err)
	}
	return affected
}

func sqlTable(t *testing.T, db *sql.DB, name, columns string) {
	t.Helper()
	sqlExec(t, db, "DROP TABLE IF EXISTS "+name)
	sqlExec(t, db, "CREATE TABLE "+name+" ("+columns+")")
	t.Cleanup(func() { _, _ = db.Exec("DROP TABLE " + name) })
}

func sqlScan[T any](t *testing.T, db *sql.DB, query string, arguments ...any) T {
	t.Helper()
	var value T
	if err := db.QueryRowContext(t.Context(), query, arguments...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

// wantSQLState takes both drivers' errors.
func wantSQLState(t *testing.T, err error, state string) {
	t.Helper()
	var answer interface{ SQLState() string }
	if !errors.As(err, &answer) || answer.SQLState() != state {
		t.Errorf("got %v, expected SQLSTATE %s", err, state)
	}
}

func sqlTypes(t *testing.T, db *sql.DB) {
	sqlTable(t, db, "sql_types", "a bigint, b double precision, c text, d bytea, e boolean, f timestamptz, g text, h numeric(12,4)")
	moment := time.Date(2024, 2, 29, 12, 34, 56, 789000000, time.UTC)
	sqlExec(t, db, "INSERT INTO sql_types VALUES ($1,$2,$3,$4,$5,$6,$7,$8)", int64(1)<<60, 0.1, "grüße \\ ' \"", []byte{0, 1, 255}, true, moment, nil, "123.4500")
	var (
		a    int64
		b    float64
		c, h string
		d    []byte
		e    bool
		f    time.Time
		g    sql.NullString
	)
	if err := db.QueryRowContext(t.Context(), "SELECT * FROM sql_types").Scan(&a, &b, &c, &d, &e, &f, &g, &h); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(a, b, c, string(d), e, f.Equal(moment), g.Valid, h)
	if want := fmt.Sprint(1<<60, 0.1, "grüße \\ ' \"", "\x00\x01\xff", true, true, false, "123.4500"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func sqlTransaction(t *testing.T, db *sql.DB) {
	sqlTable(t, db, "sql_transaction", "n integer")
	for _, end := range []func(*sql.Tx) error{(*sql.Tx).Rollback, (*sql.Tx).Commit} {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		sqlExec(t, tx, "INSERT INTO sql_transaction VALUES (1)")
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
	}
	if got := sqlScan[int](t, db, "SELECT count(*) FROM sql_transaction"); got != 1 {
		t.Errorf("%d rows after a rollback and a commit", got)
	}
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = tx.ExecContext(t.Context(), "INSERT INTO sql_transaction VALUES (2)")
	wantSQLState(t, err, "25006")
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
}

func sqlError(t *testing.T, db *sql.DB) {
	for query, state := range failures {
		_, err := db.ExecContext(t.Context(), query)
		wantSQLState(t, err, state)
		if got := sqlScan[int](t, db, "SELECT 1"); got != 1 {
			t.Errorf("after %s the connection says %d", query, got)
		}
	}
}

func sqlPrepared(t *testing.T, db *sql.DB) {
	statement, err := db.PrepareContext(t.Context(), "SELECT $1::integer * 2")
	if err != nil {
		t.Fatal(err)
	}
	defer statement.Close()
	for n := range 20 {
		var got int
		if err := statement.QueryRowContext(t.Context(), n).Scan(&got); err != nil || got != 2*n {
			t.Errorf("twice %d is %d, %v", n, got, err)
		}
	}
}

func sqlCancel(t *testing.T, db *sql.DB) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := db.ExecContext(ctx, "SELECT pg_sleep(60)"); err == nil {
		t.Error("a cancelled statement succeeded")
	}
	if got := sqlScan[int](t, db, "SELECT 1"); got != 1 {
		t.Errorf("after the cancel the connection says %d", got)
	}
}

func sqlMany(t *testing.T, db *sql.DB) {
	db.SetMaxOpenConns(manyConnections)
	var all sync.WaitGroup
	for i := range manyConnections {
		all.Go(func() {
			for n := range 20 {
				var got int
				if err := db.QueryRowContext(t.Context(), "SELECT $1::integer + $2::integer", i, n).Scan(&got); err != nil || got != i+n {
					t.Errorf("%d + %d is %d, %v", i, n, got, err)
				}
			}
		})
	}
	all.Wait()
}

func sqlSharded(t *testing.T, db *sql.DB, table string) {
	for user := range 20 {
		for id := range 3 {
			sqlExec(t, db, "INSERT INTO "+table+" (user_id, id, note) VALUES ($1, $2, $3)", user, id, "order")
		}
		if got := sqlScan[int](t, db, "SELECT count(*) FROM "+table+" WHERE user_id = $1", user); got != 3 {
			t.Errorf("user %d has %d orders", user, got)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := sqlExec(t, tx, "UPDATE "+table+" SET note = $2 WHERE user_id = $1", user, "changed"); n != 3 {
			t.Errorf("the update changed %d rows", n)
		}
		if n := sqlExec(t, tx, "DELETE FROM "+table+" WHERE user_id = $1 AND id = $2", user, 2); n != 1 {
			t.Errorf("the delete took %d rows", n)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if got := sqlScan[string](t, db, "SELECT string_agg(note, ' ' ORDER BY id) FROM "+table+" WHERE user_id = $1", user); got != "changed changed" {
			t.Errorf("user %d's orders hold %q", user, got)
		}
	}
}

func pqConnect(t *testing.T, to target) {
	if err := sqlOpen(t, "postgres", to).PingContext(t.Context()); err != nil {
		t.Error(err)
	}
	to.database = "no_such_database"
	wantSQLState(t, sqlOpen(t, "postgres", to).PingContext(t.Context()), "3D000")
}

func pqSavepoint(t *testing.T, to target) {
	db := sqlOpen(t, "postgres", to)
	sqlTable(t, db, "pq_savepoint", "n integer PRIMARY KEY")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	sqlExec(t, tx, "INSERT INTO pq_savepoint VALUES (1)")
	sqlExec(t, tx, "SAVEPOINT s")
	_, err = tx.ExecContext(t.Context(), "INSERT INTO pq_savepoint VALUES (1)")
	wantSQLState(t, err, "23505")
	sqlExec(t, tx, "ROLLBACK TO SAVEPOINT s")
	sqlExec(t, tx, "INSERT INTO pq_savepoint VALUES (2)")
	sqlExec(t, tx, "RELEASE SAVEPOINT s")
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := sqlScan[int](t, db, "SELECT sum(n) FROM pq_savepoint"); got != 3 {
		t.Errorf("the sum is %d", got)
	}
}

func pqCursor(t *testing.T, to target) {
	tx, err := sqlOpen(t, "postgres", to).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	sqlExec(t, tx, "DECLARE c CURSOR FOR SELECT n FROM generate_series(1, 250) n")
	total := 0
	for _, want := range []int64{100, 100, 50, 0} {
		got := sqlExec(t, tx, "FETCH 100 FROM c")
		if total += int(got); got != want {
			t.Errorf("fetched %d, expected %d", got, want)
		}
	}
	if total != 250 {
		t.Errorf("fetched %d rows", total)
	}
}

func pqCopy(t *testing.T, to target) {
	db := sqlOpen(t, "postgres", to)
	sqlTable(t, db, "pq_copy", "n integer, word text")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	statement, err := tx.PrepareContext(t.Context(), `COPY "pq_copy" ("n", "word") FROM STDIN`)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 1000 {
		if _, err := statement.ExecContext(t.Context(), n, fmt.Sprint("word ", n)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := statement.ExecContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(statement.Close(), tx.Commit()); err != nil {
		t.Fatal(err)
	}
	if got := sqlScan[int](t, db, "SELECT count(*) FROM pq_copy"); got != 1000 {
		t.Errorf("%d rows", got)
	}
}

func pqNotice(t *testing.T, to target) {
	connector, err := pq.NewConnector(to.dsn())
	if err != nil {
		t.Fatal(err)
	}
	var heard []string
	db := sql.OpenDB(pq.ConnectorWithNoticeHandler(connector, func(n *pq.Error) { heard = append(heard, n.Message) }))
	defer db.Close()
	sqlExec(t, db, noticeStatement)
	if got := strings.Join(heard, ", "); got != noticeText {
		t.Errorf("heard %q", got)
	}
}

func pqBig(t *testing.T, to target) {
	db := sqlOpen(t, "postgres", to)
	rows, err := db.QueryContext(t.Context(), "SELECT n, repeat('x', 200) FROM generate_series(1, 50000) n")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	sum := 0
	for rows.Next() {
		var n int
		var text string
		if err := rows.Scan(&n, &text); err != nil || len(text) != 200 {
			t.Fatalf("row %d has %d characters, %v", n, len(text), err)
		}
		sum += n
	}
	if err := rows.Err(); err != nil || sum != 50_000*50_001/2 {
		t.Errorf("the sum is %d, %v", sum, err)
	}
}

func pqListen(t *testing.T, to target) {
	listener := pq.NewListener(to.dsn(), time.Second, time.Minute, nil)
	defer func() {
		if err := listener.Close(); err != nil && !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	}()
	if err := listener.Listen("pq_channel"); err != nil {
		t.Fatal(err)
	}
	sqlExec(t, sqlOpen(t, "postgres", to), "SELECT pg_notify('pq_channel', 'hello')")
	select {
	case heard := <-listener.Notify:
		if heard == nil || heard.Extra != "hello" {
			t.Errorf("heard %+v", heard)
		}
	case <-time.After(time.Minute):
		t.Error("heard nothing")
	}
}
