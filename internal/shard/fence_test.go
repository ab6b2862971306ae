package shard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// TestRoutersWithAnOlderMapAreEnded: those that have settled go on, and those that have not can neither go on nor come back.
func TestRoutersWithAnOlderMapAreEnded(t *testing.T) {
	c := newCluster(t, 1)
	c.record(t)
	spec := specOf("s1", c.servers[0])
	older := c.m.Version()
	greet := func(router string, version uint64) *pgx.Conn {
		t.Helper()
		conn := connectAs(t, spec, router)
		if _, err := hello(t, conn, router, version); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	settled, stale, stranger := greet("r-1", older), greet("r-2", older), connectAsClient(t, spec)
	// One is in the middle of hello when the shard asks for more, and is let in by what it was before.
	late := connectAs(t, spec, "r-3")
	execute(t, late, "BEGIN")
	execute(t, late, "SELECT cleave.hello('r-3', $1)", older)
	c.change(t, topology.UpdateShard("s1", func(s *topology.ShardSpec) { s.MinimumVersion = c.m.Version() + 1 }))
	c.record(t)
	fenced := make(chan error, 1)
	go func() {
		ended, err := Fence(context.Background(), c.conns[0], []string{"r-1", "r-4"})
		if err == nil && ended != 2 {
			err = errors.New("not two were ended")
		}
		fenced <- err
	}()
	waitUntilBlocked(t, connectAsClient(t, spec), c.conns[0])
	execute(t, late, "COMMIT")
	if err := <-fenced; err != nil {
		t.Fatal(err)
	}
	for name, conn := range map[string]*pgx.Conn{"stale": stale, "late": late} {
		if _, err := conn.Exec(t.Context(), "SELECT 1"); err == nil {
			t.Errorf("the %s router goes on", name)
		}
	}
	for _, conn := range []*pgx.Conn{settled, stranger} {
		execute(t, conn, "SELECT 1")
	}
	_, err := hello(t, connectAs(t, spec, "r-2"), "r-2", older)
	refusedAs(t, pgerr.OldMap, err, "the stale router, when it comes back")
	greet("r-2", c.m.Version())
	if ended, err := Fence(t.Context(), c.conns[0], []string{"r-1", "r-2"}); ended != 0 || err != nil {
		t.Errorf("%d more were ended, %v", ended, err)
	}
	if n := one[int](t, c.conns[0], "SELECT count(*) FROM cleave.backends WHERE router = 'r-2'"); n != 1 {
		t.Errorf("%d backends of it are noted", n)
	}
	// A backend that has ended, whose number another process has by now.
	execute(t, c.conns[0], "INSERT INTO cleave.backends VALUES ($1, now() - '1 day'::interval, 'r-9')", stranger.PgConn().PID())
	if ended, err := Fence(t.Context(), c.conns[0], nil); ended != 2 || err != nil {
		t.Errorf("%d more were ended, %v", ended, err)
	}
	execute(t, stranger, "SELECT 1")
}

// TestHelloOfRolesThatOnlyRead: whatever transactions of the role are like, its backends are noted.
func TestHelloOfRolesThatOnlyRead(t *testing.T) {
	c := newCluster(t, 1)
	c.record(t)
	execute(t, c.conns[0], "CREATE ROLE reader LOGIN; ALTER ROLE reader SET default_transaction_read_only = on; ALTER ROLE reader SET default_transaction_isolation = 'repeatable read'")
	spec := specOf("s1", c.servers[0])
	spec.User = "reader"
	conn := connectAsRouter(t, spec)
	if _, err := hello(t, conn, "r-1", c.m.Version()); err != nil {
		t.Fatal(err)
	}
	if n := one[int](t, c.conns[0], "SELECT count(*) FROM cleave.backends WHERE pid = $1", conn.PgConn().PID()); n != 1 {
		t.Error("its backend is not noted")
	}
	if mode := one[string](t, conn, "SHOW transaction_read_only"); mode != "on" {
		t.Errorf("its transactions are read only: %s", mode)
	}
}

// TestWritersPastTheRoutersAreWaitedFor: those that were there, and nobody else.
func TestWritersPastTheRoutersAreWaitedFor(t *testing.T) {
	c := newCluster(t, 1)
	c.record(t)
	spec := specOf("s1", c.servers[0])
	execute(t, c.conns[0], `CREATE TABLE public.a (id bigint); CREATE TABLE public.b (id bigint); CREATE TABLE public.p (id bigint) PARTITION BY RANGE (id);
		CREATE TABLE public.p1 PARTITION OF public.p FOR VALUES FROM (0) TO (100)`)
	tables, err := RelationNumbers(t.Context(), c.conns[0], []topology.TableName{{Schema: "public", Name: "a"}, {Schema: "public", Name: "p"}})
	if err != nil {
		t.Fatal(err)
	}
	router := connectAsRouter(t, spec)
	if _, err := hello(t, router, "r-1", c.m.Version()); err != nil {
		t.Fatal(err)
	}
	await := func(waits bool) error {
		conn, limit := connectAsClient(t, spec), time.Minute
		if waits {
			limit = 500 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return AwaitWriters(ctx, conn, tables, []string{"r-1"}) // which may end the connection
	}
	for _, w := range []struct {
		conn   *pgx.Conn
		sql    string
		waited bool
	}{
		{router, "INSERT INTO public.a VALUES (1)", false},
		{connectAsClient(t, spec), "INSERT INTO public.a VALUES (1)", true},
		{connectAsClient(t, spec), "INSERT INTO public.p1 VALUES (1)", true},
		{connectAsClient(t, spec), "INSERT INTO public.b VALUES (1)", false},
		{connectAsClient(t, spec), "SELECT * FROM public.a", false},
	} {
		execute(t, w.conn, "BEGIN")
		execute(t, w.conn, w.sql)
		if err := await(w.waited); (err != nil) != w.waited || err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", w.sql, err)
		}
		execute(t, w.conn, "COMMIT")
	}
	if err := AwaitWriters(t.Context(), c.conns[0], tables, []string{"r-1"}); err != nil { // so that its query is prepared, and the next one is the look itself
		t.Fatal(err)
	}
	stranger := connectAsClient(t, spec)
	execute(t, stranger, "BEGIN")
	execute(t, stranger, "INSERT INTO public.a VALUES (1)")
	execute(t, stranger, "PREPARE TRANSACTION 'theirs'")
	if err := await(true); err == nil || !strings.Contains(err.Error(), "transaction theirs, which is prepared") {
		t.Errorf("with a prepared transaction: %v", err)
	}
	began := one[time.Time](t, stranger, "SELECT clock_timestamp()")
	done := make(chan error, 1)
	go func() { done <- AwaitWriters(t.Context(), c.conns[0], tables, []string{"r-1"}) }()
	for !one[bool](t, stranger, "SELECT state = 'idle' AND query_start > $2 FROM pg_stat_activity WHERE pid = $1", c.conns[0].PgConn().PID(), began) {
		time.Sleep(time.Millisecond) // until it has looked once
	}
	execute(t, stranger, "BEGIN")
	execute(t, stranger, "INSERT INTO public.a VALUES (1)") // a later one is refused by the guard
	execute(t, connectAsClient(t, spec), "COMMIT PREPARED 'theirs'")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestWhoUsesTablesForLongest: prepared transactions too, and none of routers that hear nothing. Those that rest between two statements count, however young they are, where more than a statement is asked for.
func TestWhoUsesTablesForLongest(t *testing.T) {
	c := newCluster(t, 1)
	c.record(t)
	spec := specOf("s1", c.servers[0])
	execute(t, c.conns[0], `CREATE TABLE public.a (id bigint); CREATE TABLE public.b (id bigint); CREATE TABLE public.p (id bigint) PARTITION BY RANGE (id);
		CREATE TABLE public.p1 PARTITION OF public.p FOR VALUES FROM (0) TO (100)`)
	tables := []topology.TableName{{Schema: "public", Name: "a"}, {Schema: "public", Name: "p"}}
	router := connectAsRouter(t, spec)
	if _, err := hello(t, router, "r-1", c.m.Version()); err != nil {
		t.Fatal(err)
	}
	client := connectAsClient(t, spec)
	expect := func(what, want string, longest time.Duration, hearing ...string) {
		t.Helper()
		who, err := OldestUse(t.Context(), c.conns[0], tables, longest, append([]string{}, hearing...))
		if err != nil || (who == "") != (want == "") || !strings.HasPrefix(who, want) {
			t.Errorf("%s: %q, %v", what, who, err)
		}
		if inUse, err := IsInUse(t.Context(), c.conns[0], tables, time.Hour, append([]string{}, hearing...)); err != nil || longest == 0 && inUse != (want != "") { // all of them rest
			t.Errorf("%s: in use %t, %v", what, inUse, err)
		}
	}
	expect("nobody", "", 0)
	execute(t, client, "BEGIN")
	execute(t, client, "INSERT INTO public.b VALUES (1)")
	expect("of another table", "", 0)
	execute(t, client, "SELECT FROM public.p1")
	ofClient := fmt.Sprintf("a transaction of user %s, process %d, has used the tables for ", spec.User, client.PgConn().PID())
	expect("of a partition", ofClient, 0)
	expect("not for long", "", time.Hour)
	execute(t, client, "PREPARE TRANSACTION 'theirs'")
	expect("prepared", "transaction theirs, which is prepared, has used the tables for ", 0)
	expect("prepared, not for long", "", time.Hour)
	execute(t, client, "ROLLBACK PREPARED 'theirs'")
	execute(t, client, "BEGIN")
	execute(t, client, "INSERT INTO public.b VALUES (1)")
	execute(t, client, "PREPARE TRANSACTION 'others'")
	expect("prepared, of another table", "", 0)
	execute(t, client, "ROLLBACK PREPARED 'others'")
	execute(t, router, "BEGIN")
	execute(t, router, "SELECT FROM public.a")
	expect("of a router that hears", "a transaction of user ", 0, "r-1")
	expect("of one that does not", "", 0, "r-2")
	execute(t, router, "COMMIT")
}
