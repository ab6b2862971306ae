package processes_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// routerLines make a router that asks clients for no password, of shards without TLS.
var routerLines = append([]string{"auth:", "  rules: [host all all loopback trust]", "pool:", "  per_shard: 20"}, trusted...)

// dial connects to a router.
func dial(ctx context.Context, address string) (*pgx.Conn, error) {
	return pgx.Connect(ctx, "postgres://postgres@"+address+"/postgres?sslmode=disable&application_name=load")
}

func mustDial(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := dial(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func mustExec(t *testing.T, conn *pgx.Conn, statement string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// load is clients that work until they are stopped.
type load struct {
	running sync.WaitGroup
	stopped chan struct{}
	stop    func()
	done    atomic.Int64

	mu       sync.Mutex
	failures []error
}

func newLoad(t *testing.T) *load {
	t.Helper()
	l := &load{stopped: make(chan struct{})}
	l.stop = sync.OnceFunc(func() { close(l.stopped); l.running.Wait() })
	t.Cleanup(l.stop)
	return l
}

// add lets clients do something again and again; each is told who it is.
func (l *load) add(clients int, work func(ctx context.Context, client int) error) {
	for client := range clients {
		l.running.Go(func() {
			l.repeat(func(ctx context.Context) error { return work(ctx, client) })
		})
	}
}

// addSessions is the same for clients that keep their connection, for as long as it works.
func (l *load) addSessions(address string, clients int, work func(ctx context.Context, conn *pgx.Conn, client int) error) {
	for client := range clients {
		l.running.Go(func() {
			var conn *pgx.Conn
			l.repeat(func(ctx context.Context) (err error) {
				if conn == nil || conn.IsClosed() {
					if conn, err = dial(ctx, address); err != nil {
						return fmt.Errorf("connect: %w", err)
					}
				}
				return work(ctx, conn, client)
			})
			if conn != nil {
				_ = conn.Close(context.Background())
			}
		})
	}
}

func (l *load) repeat(work func(ctx context.Context) error) {
	for {
		select {
		case <-l.stopped:
			return
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // more than it can need
		if err := work(ctx); err != nil {
			l.note(err)
			time.Sleep(20 * time.Millisecond)
		} else {
			l.done.Add(1)
		}
		cancel()
	}
}

func (l *load) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, err)
}

// failed returns what went wrong since it was last asked.
func (l *load) failed() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	failures := l.failures
	l.failures = nil
	return failures
}

// goesOn waits until every client could have done something more.
func (l *load) goesOn(t *testing.T) {
	t.Helper()
	before := l.done.Load()
	eventually(t, "clients go on", func() bool { return l.done.Load() > before+50 })
}

// mustBeWell fails the test if anything went wrong.
func (l *load) mustBeWell(t *testing.T) {
	t.Helper()
	failures := l.failed()
	for i, err := range failures {
		if i == 10 {
			t.Errorf("… %d in all", len(failures))
			return
		}
		t.Error(err)
	}
}

// sqlState is the code of a PostgreSQL error, empty for any other.
func sqlState(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

// connectAndAsk connects, asks once and leaves.
func connectAndAsk(address string) func(ctx context.Context, client int) error {
	return func(ctx context.Context, client int) error {
		conn, err := dial(ctx, address)
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		defer conn.Close(ctx)
		var got int
		if err := conn.QueryRow(ctx, "SELECT count(*) FROM accounts WHERE id = $1", client+1).Scan(&got); err != nil || got != 1 {
			return fmt.Errorf("%d accounts with id %d: %w", got, client+1, err)
		}
		return nil
	}
}

// transfer takes a while over a transaction on a connection of its own.
func transfer(address string, pause time.Duration) func(ctx context.Context, client int) error {
	return func(ctx context.Context, client int) error {
		conn, err := dial(ctx, address)
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		defer conn.Close(ctx)
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			for step := range 4 {
				if _, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance + 1 WHERE id = $1", client+1); err != nil {
					return fmt.Errorf("step %d of a transaction: %w", step+1, err)
				}
				time.Sleep(pause)
			}
			return nil
		})
	}
}

// makeAccounts shards a table, with an account for each of the clients and a counter in it, by a client that leaves again. The first two
// accounts are on the first shard, the others on the second, if there is one: no shard is without clients by chance.
func makeAccounts(t *testing.T, address string, count int) {
	t.Helper()
	conn := mustDial(t, address)
	defer conn.Close(context.Background())
	mustExec(t, conn, "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL)")
	mustExec(t, conn, "SELECT cleave.shard_table('accounts', 'id', strategy => 'range', split_at => '3')")
	for id := range count {
		mustExec(t, conn, "INSERT INTO accounts VALUES ($1, 0)", id+1)
	}
}

// balances is the sum over all accounts, one by one.
func balances(t *testing.T, conn *pgx.Conn, count int) int64 {
	t.Helper()
	var sum int64
	for id := range count {
		var balance int64
		if err := conn.QueryRow(t.Context(), "SELECT balance FROM accounts WHERE id = $1", id+1).Scan(&balance); err != nil {
			t.Fatal(err)
		}
		sum += balance
	}
	return sum
}
