package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/cluster"
)

// ledger is a table that clients use while it changes, and what they were told of it. Every row has a twin, -id; the columns that
// come and go have values that tell them apart.
type ledger struct {
	next    atomic.Int64 // the last id that was given out
	added   atomic.Int64 // what was added to amounts
	done    atomic.Int64 // statements that went well
	running sync.WaitGroup
	stopped chan struct{}

	mu       sync.Mutex
	told     map[int64]bool // rows that were acknowledged
	known    map[*pgx.Conn]bool
	failures []error
}

const (
	accounts     = 20 // rows that are there from the beginning
	extraDefault = 5
	otherDefault = 6
)

func (l *ledger) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.failures) < 20 {
		l.failures = append(l.failures, err)
	}
}

// client works on a connection of its own until it is told to stop.
func (l *ledger) client(t *testing.T, r *cluster.Router, name string, work func(ctx context.Context, conn *pgx.Conn) error) {
	t.Helper()
	conn := r.Dial(t)
	l.running.Go(func() {
		for {
			select {
			case <-l.stopped:
				return
			default:
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			if err := work(ctx, conn); err != nil {
				l.fail(fmt.Errorf("%s on %s: %w", name, r.Name, err))
			} else {
				l.done.Add(1)
			}
			cancel()
			if conn.IsClosed() {
				return
			}
		}
	})
}

// goesOn waits until clients have done something more.
func (l *ledger) goesOn(t *testing.T) {
	t.Helper()
	before := l.done.Load()
	cluster.Eventually(t, "clients go on", func() bool { return l.done.Load() > before+30 })
}

func someAccount() int64 { return rand.Int64N(accounts) + 1 }

// checkRow says what is wrong with a row under the names that came with it.
func checkRow(names []string, values []any) error {
	sets := []string{"[id amount twin]", "[id amount twin extra]", "[id amount twin other]"}
	if !slices.Contains(sets, fmt.Sprint(names)) {
		return fmt.Errorf("the columns are %v", names)
	}
	id, _ := values[0].(int64)
	if twin, _ := values[2].(int64); twin != -id {
		return fmt.Errorf("columns %v have %v", names, values)
	}
	for i := 3; i < len(names); i++ {
		want := map[string]int64{"extra": extraDefault, "other": otherDefault}[names[i]]
		if values[i] != want {
			return fmt.Errorf("columns %v have %v", names, values)
		}
	}
	return nil
}

// read looks at all columns of one row, or of all rows, and returns how many there are.
func read(ctx context.Context, conn *pgx.Conn, query string, arguments ...any) (count int, err error) {
	rows, err := conn.Query(ctx, query, arguments...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return 0, err
		}
		var names []string
		for _, field := range rows.FieldDescriptions() {
			names = append(names, field.Name)
		}
		if err := checkRow(names, values); err != nil {
			return 0, err
		}
		count++
	}
	return count, rows.Err()
}

func (l *ledger) readOne(mode pgx.QueryExecMode) func(ctx context.Context, conn *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		count, err := read(ctx, conn, "SELECT * FROM ledger WHERE id = $1", mode, someAccount())
		if mode == pgx.QueryExecModeCacheStatement && mustDescribe(err) {
			return nil
		}
		if err == nil && count != 1 {
			err = fmt.Errorf("%d rows", count)
		}
		return err
	}
}

// mustDescribe says whether an error is the one with which PostgreSQL, too, tells a client who counts on the columns that a prepared
// statement had that it has others. Without it that client would read values under wrong names.
func mustDescribe(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == "0A000" && refused.Message == "cached plan must not change result type"
}

// readDescribed prepares once and asks for the columns whenever it runs, as libpq does: it hears of no change at all.
func (l *ledger) readDescribed(ctx context.Context, conn *pgx.Conn) error {
	const name = "described"
	if !l.once(conn) {
		if _, err := conn.PgConn().Prepare(ctx, name, "SELECT * FROM ledger WHERE id = $1", nil); err != nil {
			return err
		}
	}
	id := strconv.FormatInt(someAccount(), 10)
	answer := conn.PgConn().ExecPrepared(ctx, name, [][]byte{[]byte(id)}, nil, nil).Read()
	if answer.Err != nil {
		return answer.Err
	}
	if len(answer.Rows) != 1 {
		return fmt.Errorf("%d rows", len(answer.Rows))
	}
	var names []string
	var values []any
	for i, field := range answer.FieldDescriptions {
		value, err := strconv.ParseInt(string(answer.Rows[0][i]), 10, 64)
		if err != nil {
			return err
		}
		names, values = append(names, field.Name), append(values, value)
	}
	return checkRow(names, values)
}

// once says whether a connection was here before.
func (l *ledger) once(conn *pgx.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.known[conn]
	l.known[conn] = true
	return before
}

func (l *ledger) readAll(ctx context.Context, conn *pgx.Conn) error {
	l.mu.Lock()
	least := len(l.told)
	l.mu.Unlock()
	count, err := read(ctx, conn, "SELECT * FROM ledger", pgx.QueryExecModeExec)
	if err == nil && count < least {
		err = fmt.Errorf("%d rows, and there were %d before", count, least)
	}
	return err
}

// insert adds rows without naming columns.
func (l *ledger) insert(mode pgx.QueryExecMode, count int) func(ctx context.Context, conn *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		rows, arguments := make([]string, count), []any{mode}
		var ids []int64
		for i := range rows {
			rows[i] = fmt.Sprintf("($%d, $%d, $%d)", 3*i+1, 3*i+2, 3*i+3)
			id := l.next.Add(1)
			ids, arguments = append(ids, id), append(arguments, id, int64(0), -id)
		}
		tag, err := conn.Exec(ctx, "INSERT INTO ledger VALUES "+strings.Join(rows, ", "), arguments...)
		if err != nil {
			return err
		}
		if tag.RowsAffected() != int64(count) {
			return fmt.Errorf("INSERT of %d rows: %s", count, tag)
		}
		l.acknowledged(ids...)
		return nil
	}
}

func (l *ledger) acknowledged(ids ...int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.told[id] = true
	}
}

// executeInsert uses a statement that SQL has prepared.
func (l *ledger) executeInsert(ctx context.Context, conn *pgx.Conn) error {
	if !l.once(conn) {
		if _, err := conn.Exec(ctx, "PREPARE add (bigint, bigint, bigint) AS INSERT INTO ledger VALUES ($1, $2, $3)", pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	id := l.next.Add(1)
	_, err := conn.Exec(ctx, fmt.Sprintf("EXECUTE add (%d, 0, %d)", id, -id), pgx.QueryExecModeSimpleProtocol)
	if err == nil {
		l.acknowledged(id)
	}
	return err
}

// copyIn adds rows by COPY.
func (l *ledger) copyIn(ctx context.Context, conn *pgx.Conn) error {
	const count = 10
	var ids []int64
	var lines strings.Builder
	for range count {
		id := l.next.Add(1)
		ids = append(ids, id)
		fmt.Fprintf(&lines, "%d\t0\t%d\n", id, -id)
	}
	tag, err := conn.PgConn().CopyFrom(ctx, strings.NewReader(lines.String()), "COPY ledger (id, amount, twin) FROM STDIN")
	if err == nil && tag.RowsAffected() != count {
		err = fmt.Errorf("COPY of %d rows: %s", count, tag)
	}
	if err == nil {
		l.acknowledged(ids...)
	}
	return err
}

func (l *ledger) update(ctx context.Context, conn *pgx.Conn) error {
	tag, err := conn.Exec(ctx, "UPDATE ledger SET amount = amount + 1 WHERE id = $1", someAccount())
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("UPDATE of one row: %s", tag)
	}
	if err == nil {
		l.added.Add(1)
	}
	return err
}

// transfer is a transaction over two shards, most of the time. A table that is declared while it runs ends it.
func (l *ledger) transfer(ctx context.Context, conn *pgx.Conn) error {
	// Always in the same order, so that two of them do not wait for each other on different shards, which no server would notice.
	from, to := someAccount(), someAccount()
	if from > to {
		from, to = to, from
	}
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE ledger SET amount = amount - 1 WHERE id = $1", from); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE ledger SET amount = amount + 1 WHERE id = $1", to)
		return err
	})
	if sqlState(err) == "40001" {
		return nil
	}
	return err
}

// sqlState is the code of a PostgreSQL error, empty for any other.
func sqlState(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

// TestDefinitionsUnderLoad: while clients of both routers use a table, its columns come and go on either router, and it is brought
// home and sharded again. They notice nothing but the columns.
func TestDefinitionsUnderLoad(t *testing.T) {
	thorough.Only(t)
	c := cluster.StartRouters(t, 3, 2)
	l := &ledger{stopped: make(chan struct{}), told: map[int64]bool{}, known: map[*pgx.Conn]bool{}}
	stop := sync.OnceFunc(func() { close(l.stopped); l.running.Wait() })
	defer stop() // before their connections are closed
	setUp := c.Routers[0].Dial(t)
	mustExec(t, setUp, "CREATE TABLE ledger (id bigint PRIMARY KEY, amount bigint NOT NULL, twin bigint NOT NULL)")
	mustExec(t, setUp, "SELECT cleave.shard_table('ledger', 'id')")
	for range accounts {
		if err := l.insert(pgx.QueryExecModeExec, 1)(t.Context(), setUp); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range c.Routers {
		l.client(t, r, "SELECT", l.readOne(pgx.QueryExecModeExec))
		l.client(t, r, "SELECT prepared", l.readOne(pgx.QueryExecModeCacheStatement))
		l.client(t, r, "SELECT prepared and described", l.readDescribed)
		l.client(t, r, "SELECT all", l.readAll)
		l.client(t, r, "INSERT", l.insert(pgx.QueryExecModeSimpleProtocol, 1))
		l.client(t, r, "INSERT prepared", l.insert(pgx.QueryExecModeCacheStatement, 1))
		l.client(t, r, "INSERT of rows", l.insert(pgx.QueryExecModeSimpleProtocol, 6))
		l.client(t, r, "INSERT of rows prepared", l.insert(pgx.QueryExecModeCacheStatement, 6))
		l.client(t, r, "EXECUTE of an INSERT", l.executeInsert)
		l.client(t, r, "COPY", l.copyIn)
		l.client(t, r, "UPDATE", l.update)
		l.client(t, r, "transaction", l.transfer)
	}
	l.changes(t, c)
	stop()
	for _, err := range l.failures {
		t.Error(err)
	}
	l.compare(t, c)
}

// changes changes the table on one router after the other.
func (l *ledger) changes(t *testing.T, c *cluster.Routers) {
	t.Helper()
	steps := []string{
		fmt.Sprintf("ALTER TABLE ledger ADD COLUMN extra bigint NOT NULL DEFAULT %d", extraDefault),
		fmt.Sprintf("ALTER TABLE ledger DROP COLUMN extra, ADD COLUMN other bigint NOT NULL DEFAULT %d", otherDefault),
		fmt.Sprintf("ALTER TABLE ledger ALTER COLUMN other SET DEFAULT %d", otherDefault),
		"CREATE INDEX ledger_amount ON ledger (amount)",
		"ALTER TABLE ledger DROP COLUMN other",
		"CLUSTER ledger USING ledger_pkey",
		"DROP INDEX ledger_amount",
		"CREATE POLICY everybody ON ledger",
		"REINDEX TABLE ledger",
		"DROP POLICY everybody ON ledger",
		"SELECT cleave.undistribute_table('ledger')",
		"SELECT cleave.shard_table('ledger', 'id')",
	}
	changers := []*pgx.Conn{c.Routers[0].Dial(t), c.Routers[1].Dial(t)}
	const rounds = 2
	for i := range rounds * len(steps) {
		l.goesOn(t)
		l.change(t, changers[i%2], steps[i%len(steps)])
	}
	l.goesOn(t)
}

// change may not get its lock in time, or etcd may not answer in time: then it has done nothing, and is tried again.
func (l *ledger) change(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	const tries = 20
	for range tries {
		_, err := conn.Exec(t.Context(), sql)
		if err == nil {
			return
		}
		if !slices.Contains([]string{"55P03", "57P03"}, sqlState(err)) {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	t.Fatalf("%s did not come to pass %d times", sql, tries)
}

// compare holds the rows of the shards against what clients were told.
func (l *ledger) compare(t *testing.T, c *cluster.Routers) {
	t.Helper()
	found := map[int64]string{}
	var sum int64
	for i := range c.Shards {
		name := fmt.Sprintf("s%d", i+1)
		rows, err := c.Direct(t, i).Query(t.Context(), "SELECT id, amount, twin FROM ledger")
		if err != nil {
			t.Fatal(err)
		}
		var id, amount, twin int64
		_, err = pgx.ForEachRow(rows, []any{&id, &amount, &twin}, func() error {
			if other, twice := found[id]; twice {
				t.Errorf("row %d is on %s and on %s", id, other, name)
			}
			if twin != -id {
				t.Errorf("row %d has twin %d", id, twin)
			}
			found[id] = name
			sum += amount
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for id := range l.told {
		if found[id] == "" {
			t.Errorf("row %d is lost", id)
		}
	}
	if len(found) != len(l.told) {
		t.Errorf("%d rows, and clients were told of %d", len(found), len(l.told))
	}
	if sum != l.added.Load() {
		t.Errorf("the amounts add up to %d, and clients were told of %d", sum, l.added.Load())
	}
}
