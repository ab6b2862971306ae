package saga

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/test/cluster"
)

// suite is all tests, after which the binary of the routers is removed.
type suite struct{ m *testing.M }

func (s suite) Run() int { return cluster.Main(s.m) }

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		runChild()
		return
	}
	goleak.VerifyTestMain(suite{m})
}

const (
	// lease is short, for tests in which it ends; in all others it must not, however slow the machine is. patience is how long a test waits for what must
	// come.
	lease    = 700 * time.Millisecond
	patience = time.Minute
)

// world is a database with sagas: a plain PostgreSQL, or a cluster behind a router.
type world struct {
	pool    *pgxpool.Pool
	dsn     string
	shards  int
	cluster *cluster.Routers // nil for a plain PostgreSQL
}

// onPostgres is a world of one server.
func onPostgres(t *testing.T) *world {
	t.Helper()
	server := pgtest.Start(t)
	w := &world{dsn: server.DSN("postgres"), shards: 1}
	w.prepare(t)
	return w
}

// behindRouter is a world of three shards, still without sagas.
func behindRouter(t *testing.T) *world {
	t.Helper()
	c := cluster.StartRouters(t, 3, 1)
	w := &world{dsn: "postgres://postgres@" + c.Routers[0].Listen + "/postgres?sslmode=disable", shards: len(c.Shards), cluster: c}
	w.pool = openPool(t, w.dsn, 12)
	return w
}

// prepare installs sagas, and makes the tables in which steps leave their traces.
func (w *world) prepare(t *testing.T) {
	t.Helper()
	if w.pool == nil {
		w.pool = openPool(t, w.dsn, 12)
	}
	if err := Install(t.Context(), w.pool, InstallOptions{}); err != nil {
		t.Fatal(err)
	}
	w.exec(t, tracesSQL)
	if w.shards > 1 {
		w.exec(t, "SELECT cleave.shard_table('traces', 'key')")
	}
}

// tracesSQL makes a table that takes everything twice, so that it shows what happened twice.
const tracesSQL = `CREATE TABLE traces (key bigint NOT NULL, saga text NOT NULL, what text NOT NULL, idempotency_key text NOT NULL, process integer NOT NULL,
	at timestamptz NOT NULL DEFAULT clock_timestamp())`

func openPool(t testing.TB, dsn string, connections int32) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (w *world) exec(t testing.TB, sql string, arguments ...any) {
	t.Helper()
	if _, err := w.pool.Exec(t.Context(), sql, arguments...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func one[T any](t testing.TB, db Querier, sql string, arguments ...any) (value T) {
	t.Helper()
	if err := db.QueryRow(t.Context(), sql, arguments...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func (w *world) start(t testing.TB, r Request) Started {
	t.Helper()
	started, err := Start(t.Context(), w.pool, r)
	if err != nil {
		t.Fatal(err)
	}
	return started
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// short makes leases short.
func short(c *Config) { c.Lease = lease }

// runner makes one that looks often.
func (w *world) runner(t testing.TB, change func(*Config), types ...Type) *Runner {
	t.Helper()
	c := Config{Pool: w.pool, Types: types, PollInterval: 50 * time.Millisecond, StopTimeout: 5 * time.Second, Logger: quiet}
	if change != nil {
		change(&c)
	}
	r, err := NewRunner(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// run runs a runner until the test ends, or stop is called, which returns what Run does.
func run(t testing.TB, r *Runner) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stopped := false
	stop = func() error {
		cancel()
		if stopped {
			return nil
		}
		stopped = true
		return <-ended
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("the runner ended with %v", err)
		}
	})
	return stop
}

// wait waits until a saga has ended or is stuck, and wants that state.
func (w *world) wait(t testing.TB, s Started, want State) Saga {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	saga, err := Wait(ctx, w.pool, s.Key, s.ID, 10*time.Millisecond)
	if err != nil || saga.State != want {
		t.Fatalf("saga %s should be %s: %v, %+v", s.ID, want, err, saga)
	}
	return saga
}

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("it did not come to pass that %s", what)
}

// trace is a row of traces.
type trace struct {
	What, Key string
	Process   int
}

// traces are what the steps of a saga have left, in order.
func (w *world) traces(t testing.TB, s Started) []trace {
	t.Helper()
	rows, err := w.pool.Query(t.Context(), "SELECT what, idempotency_key, process FROM traces WHERE key = $1 AND saga = $2 ORDER BY at", s.Key, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[trace])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// whats are the traces in words.
func whats(list []trace) []string {
	words := []string{}
	for _, t := range list {
		words = append(words, t.What)
	}
	return words
}

const leaveTrace = "INSERT INTO traces (key, saga, what, idempotency_key, process) VALUES ($1, $2, $3, $4, $5)"

func leave(ctx context.Context, db Querier, c *Call) error {
	_, err := db.Exec(ctx, leaveTrace, c.Key, c.ID, c.Step+" "+string(c.Direction), c.IdempotencyKey, os.Getpid())
	return err
}

// sqlTrace is a SQL action that leaves a trace.
func sqlTrace() Action {
	return SQL(func(ctx context.Context, tx pgx.Tx, c *Call) (any, error) {
		return c.Step + "'s result", leave(ctx, tx, c)
	})
}

// outsideTrace is an outside action that leaves a trace, which no transaction takes back.
func (w *world) outsideTrace() Action {
	return Outside(func(ctx context.Context, c *Call) (any, error) { return c.Step + "'s result", leave(ctx, w.pool, c) })
}

// failing is an outside action that always fails.
func failing(err error) Action {
	return Outside(func(context.Context, *Call) (any, error) { return nil, err })
}

var serial = make(chan int64, 1)

func init() { serial <- 0 } //nolint:gochecknoinits // a counter

// newKey returns a key that no other saga of the process has.
func newKey() int64 {
	n := <-serial + 1
	serial <- n
	return n
}

// begin starts a saga of a type with a key and an idempotency key of its own.
func (w *world) begin(t testing.TB, kind string, input any) Started {
	t.Helper()
	key := newKey()
	return w.start(t, Request{Type: kind, Key: key, IdempotencyKey: fmt.Sprintf("start-%d", key), Input: input})
}
