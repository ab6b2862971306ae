package saga

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

var renamePerson = SQL(func(ctx context.Context, tx pgx.Tx, c *Call) (any, error) {
	var name string
	if err := c.Input(&name); err != nil {
		return nil, err
	}
	tag, err := tx.Exec(ctx, "UPDATE people SET name = $2 WHERE id = $1", c.Key, name)
	return tag.RowsAffected(), err
})

// TestKeysOfEveryType: a saga's key is of any type that a shard key can have, and steps get it as they can use it.
func TestKeysOfEveryType(t *testing.T) {
	server := pgtest.StartWhole(t)
	admin := openPool(t, server.DSN("postgres"), 2)
	at := time.Date(2020, 1, 31, 12, 0, 0, 123456000, time.UTC)
	for keyType, key := range map[string]any{
		"bigint": int64(1) << 40, "integer": 7, "smallint": int16(7), "text": "a b", "uuid": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "date": at.Truncate(24 * time.Hour), "timestamptz": at, "bytea": []byte("\x00a"),
	} {
		t.Run(keyType, func(t *testing.T) {
			if _, err := admin.Exec(t.Context(), "CREATE DATABASE of_"+keyType); err != nil {
				t.Fatal(err)
			}
			w := &world{pool: openPool(t, server.DSN("of_"+keyType), 4)}
			if err := Install(t.Context(), w.pool, InstallOptions{KeyType: keyType}); err != nil {
				t.Fatal(err)
			}
			if err := Install(t.Context(), w.pool, InstallOptions{KeyType: keyType}); err != nil {
				t.Errorf("once more: %v", err)
			}
			w.exec(t, "CREATE TABLE people (id "+keyType+", name text)")
			w.exec(t, "INSERT INTO people VALUES ($1, 'nobody')", key)
			run(t, w.runner(t, nil, Type{Name: "person", Steps: []Step{{Name: "rename", Do: renamePerson}}}))
			s := w.start(t, Request{Type: "person", Key: key, IdempotencyKey: "x", Input: "somebody"})
			if again := w.start(t, Request{Type: "person", Key: s.Key, IdempotencyKey: "x", Input: "somebody"}); again.New {
				t.Error("it was started twice")
			}
			w.wait(t, s, Completed)
			if name := one[string](t, w.pool, "SELECT name FROM people WHERE id = $1", key); name != "somebody" {
				t.Errorf("the row with that key is called %s", name)
			}
		})
	}
	if err := Install(t.Context(), admin, InstallOptions{Keyspace: "k"}); err == nil || !strings.Contains(err.Error(), "plain PostgreSQL") {
		t.Errorf("in a keyspace: %v", err)
	}
}

// TestWithoutTables: a runner says what is missing, and so does Start.
func TestWithoutTables(t *testing.T) {
	w := &world{pool: openPool(t, pgtest.Start(t).DSN("postgres"), 4)}
	if err := w.runner(t, nil, w.order("order", orders{})).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "saga.Install") {
		t.Errorf("Run: %v", err)
	}
	if _, err := Start(t.Context(), w.pool, Request{Type: "order", Key: 1, IdempotencyKey: "x"}); err == nil || !strings.Contains(err.Error(), "saga.Install") {
		t.Errorf("Start: %v", err)
	}
	if _, err := List(t.Context(), w.pool, Filter{}); err == nil || !strings.Contains(err.Error(), "saga.Install") {
		t.Errorf("List: %v", err)
	}
}

// TestSimpleProtocol: connections that use the simple protocol, as some poolers ask for, will do.
func TestSimpleProtocol(t *testing.T) {
	w := onPostgres(t)
	config := w.pool.Config()
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	simple, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(simple.Close)
	w.pool = simple
	run(t, w.runner(t, nil, w.order("order", orders{})))
	s, refused := w.begin(t, "order", order{}), w.begin(t, "order", order{Refused: true})
	w.wait(t, s, Completed)
	w.wait(t, refused, Compensated)
	inReverse(t, w.traces(t, refused))
}

// TestPreparedTransaction is S27: a saga whose row a prepared transaction has is passed over until that is resolved, and others go on.
func TestPreparedTransaction(t *testing.T) {
	w := onPostgres(t)
	s, other := w.begin(t, "order", order{}), w.begin(t, "order", order{})
	conn, err := pgx.Connect(t.Context(), w.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, sql := range []string{"BEGIN", fmt.Sprintf("UPDATE sagas.sagas SET note = 'prepared' WHERE id = '%s'", s.ID), "PREPARE TRANSACTION 'left'"} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	run(t, w.runner(t, func(c *Config) { c.Concurrency = 1 }, w.order("order", orders{})))
	eventually(t, "the other one ends", func() bool {
		if waits := one[int](t, conn, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"); waits > 0 {
			t.Fatal("somebody waits for the prepared transaction")
		}
		saga, err := Get(t.Context(), w.pool, other.Key, other.ID)
		return err == nil && saga.State == Completed
	})
	if saga, err := Get(t.Context(), w.pool, s.Key, s.ID); err != nil || saga.Holder != "" || saga.State != Running {
		t.Errorf("%+v, %v", saga, err)
	}
	if _, err := conn.Exec(t.Context(), "COMMIT PREPARED 'left'"); err != nil {
		t.Fatal(err)
	}
	w.wait(t, s, Completed)
}

// TestServerCrashes is S25: progress and the effects of SQL steps are there together or not at all.
func TestServerCrashes(t *testing.T) {
	server := pgtest.Start(t)
	w := &world{dsn: server.DSN("postgres"), shards: 1}
	w.prepare(t)
	started := make([]Started, 30)
	for i := range started {
		started[i] = w.begin(t, "order", order{Refused: i%2 == 0})
	}
	r := w.runner(t, short, w.order("order", orders{}))
	var steps atomic.Int32
	enough := make(chan struct{})
	r.at = func(point, _ string, _ Direction) {
		if point == pointWritten && steps.Add(1) == 40 {
			close(enough)
		}
	}
	run(t, r)
	<-enough
	if err := server.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, s := range started {
		eventually(t, "it ends", func() bool {
			saga, err := Get(t.Context(), w.pool, s.Key, s.ID)
			return err == nil && saga.State.Ended()
		})
		traces := w.traces(t, s)
		counts := map[string]int{}
		for _, tr := range traces {
			counts[tr.What]++
		}
		// Outside steps may have happened again. That what is SQL has not is the point.
		crash{input: order{Refused: i%2 == 0}, calls: counts["charge do"], undone: counts["charge undo"]}.once(t, s, withoutRepeats(traces, "ship do"))
	}
}

// withoutRepeats leaves all but the first of a trace out.
func withoutRepeats(traces []trace, what string) (list []trace) {
	seen := false
	for _, tr := range traces {
		if tr.What != what || !seen {
			list = append(list, tr)
		}
		seen = seen || tr.What == what
	}
	return list
}

// severing passes bytes between a client and a server, and when it is told to, cuts a connection after the server has heard COMMIT and before the client
// hears of it, or before the server has heard it.
type severing struct {
	net.Listener
	server  string
	cut     atomic.Int32 // cutAfter, cutBefore, or nothing
	happens atomic.Int32
	running sync.WaitGroup
}

const (
	cutAfter = iota + 1
	cutBefore
)

func newSevering(t *testing.T, server string) *severing {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &severing{Listener: listener, server: server}
	s.running.Go(s.accept)
	t.Cleanup(func() {
		_ = s.Close()
		s.running.Wait()
	})
	return s
}

func (s *severing) accept() {
	for {
		client, err := s.Accept()
		if err != nil {
			return
		}
		s.running.Go(func() { s.pass(client) })
	}
}

func (s *severing) pass(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", s.server)
	if err != nil {
		return
	}
	defer server.Close()
	var deaf atomic.Bool
	s.running.Go(func() {
		defer client.Close()
		buffer := make([]byte, 1<<16)
		for {
			n, err := server.Read(buffer)
			if err != nil || deaf.Load() {
				return // it has answered, and nobody hears it
			}
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
	})
	buffer := make([]byte, 1<<16)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		if bytes.Contains(buffer[:n], []byte("commit\x00")) {
			switch s.cut.Swap(0) {
			case cutBefore:
				s.happens.Add(1)
				return
			case cutAfter:
				s.happens.Add(1)
				deaf.Store(true)
				_, _ = server.Write(buffer[:n])
				_, _ = io.Copy(io.Discard, client)
				return
			}
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// TestTheAnswerToACommitIsLost is S21: whether a SQL step was committed the row says, not what the process heard.
func TestTheAnswerToACommitIsLost(t *testing.T) {
	server := pgtest.Start(t)
	direct := &world{dsn: server.DSN("postgres"), shards: 1}
	direct.prepare(t)
	between := newSevering(t, server.Addr())
	w := &world{pool: openPool(t, strings.Replace(direct.dsn, server.Addr(), between.Addr().String(), 1), 6)}
	kind := Type{Name: "severed", Steps: []Step{{Name: "first", Do: sqlTrace(), Undo: sqlTrace(), Policy: soon}, {Name: "second", Do: sqlTrace(), Policy: soon}}}
	for name, cut := range map[string]int32{"before": cutBefore, "after": cutAfter} {
		t.Run(name, func(t *testing.T) {
			r := w.runner(t, nil, kind)
			r.at = func(point, step string, _ Direction) {
				if point == pointToCommit && step == "first" && between.happens.Load() == 0 {
					between.cut.Store(cut)
				}
			}
			between.happens.Store(0)
			s := direct.begin(t, "severed", nil)
			stop := run(t, r)
			saga := direct.wait(t, s, Completed)
			if err := stop(); err != nil {
				t.Error(err)
			}
			wantTraces(t, direct, s, "first do", "second do")
			if between.happens.Load() != 1 {
				t.Error("no connection was cut")
			}
			if want := map[string]int{"before": 2, "after": 1}[name]; saga.Steps[0].Attempts != want {
				t.Errorf("%+v", saga.Steps)
			}
		})
	}
}

// TestConfigurations that make no sense are refused.
func TestConfigurations(t *testing.T) {
	pool := openPool(t, "postgres://nobody@127.0.0.1:1/nothing", 4)
	single := openPool(t, "postgres://nobody@127.0.0.1:1/nothing", 1)
	do := failing(errBusy)
	good := Type{Name: "good", Steps: []Step{{Name: "a", Do: do}}}
	for name, c := range map[string]Config{
		"no pool": {Types: []Type{good}}, "one connection": {Pool: single, Types: []Type{good}}, "no types": {Pool: pool}, "short lease": {Pool: pool, Types: []Type{good}, Lease: time.Millisecond},
		"negative": {Pool: pool, Types: []Type{good}, Batch: -1}, "twice": {Pool: pool, Types: []Type{good, good}}, "no name": {Pool: pool, Types: []Type{{Steps: good.Steps}}},
		"odd name": {Pool: pool, Types: []Type{{Name: "a/b", Steps: good.Steps}}}, "no steps": {Pool: pool, Types: []Type{{Name: "a"}}},
		"nothing to do": {Pool: pool, Types: []Type{{Name: "a", Steps: []Step{{Name: "a"}}}}}, "step twice": {Pool: pool, Types: []Type{{Name: "a", Steps: []Step{{Name: "a", Do: do}, {Name: "a", Do: do}}}}},
		"odd step": {Pool: pool, Types: []Type{{Name: "a", Steps: []Step{{Name: " ", Do: do}}}}}, "attempts": {Pool: pool, Types: []Type{{Name: "a", Steps: []Step{{Name: "a", Do: do, Policy: Policy{MaxAttempts: -2}}}}}},
		"delays": {Pool: pool, Types: []Type{{Name: "a", Steps: []Step{{Name: "a", Do: do, UndoPolicy: Policy{MinDelay: 2, MaxDelay: 1}}}}}},
	} {
		if _, err := NewRunner(c); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := NewRunner(Config{Pool: pool, Types: []Type{good}}); err != nil {
		t.Error(err)
	}
}

// TestDelays grow to their limit, and are never the same for all.
func TestDelays(t *testing.T) {
	p := Policy{MinDelay: time.Second, MaxDelay: 10 * time.Second}
	for attempts, most := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 4: 8 * time.Second, 5: 10 * time.Second, 1000: 10 * time.Second} {
		seen := map[time.Duration]bool{}
		for range 100 {
			d := p.delay(attempts)
			if seen[d] = true; d > most || d < most/2 {
				t.Errorf("after %d attempts it waits %v", attempts, d)
			}
		}
		if len(seen) < 50 {
			t.Errorf("after %d attempts it waits %v", attempts, seen)
		}
	}
}

// TestPermanent errors are known however deep they are.
func TestPermanent(t *testing.T) {
	err := fmt.Errorf("outer: %w", errors.Join(errBusy, Permanent(errRefused)))
	if !IsPermanent(err) || !errors.Is(err, errRefused) || IsPermanent(errRefused) || IsPermanent(nil) || Permanent(nil) != nil {
		t.Error(err)
	}
}
