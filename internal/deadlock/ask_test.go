package deadlock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

// write changes the row that all want.
const write = "UPDATE rows SET n = n + 1 WHERE id = 1"

// client is a connection, and its process.
type client struct {
	*pgx.Conn
	t   *testing.T
	pid int
}

func dial(t *testing.T, server *localpg.Server, user string, statements ...string) *client {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), "postgres://"+user+"@"+server.Addr()+"/postgres?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	c := &client{conn, t, int(conn.PgConn().PID())}
	for _, sql := range statements {
		c.run(sql)
	}
	return c
}

func (c *client) run(sql string) {
	c.t.Helper()
	if _, err := c.Exec(c.t.Context(), sql); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
}

// writeLater changes the row, which waits.
func (c *client) writeLater() <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := c.Exec(context.Background(), write)
		ended <- err
	}()
	return ended
}

// lookUntil looks at the server until something is so.
func lookUntil(t *testing.T, conn *pgx.Conn, what string, pids []int, so func(look) bool) look {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		seen, err := ask(t.Context(), conn, pids)
		if err != nil {
			t.Fatal(err)
		}
		if so(seen) {
			return seen
		}
	}
	t.Fatalf("it never came to be that %s", what)
	return look{}
}

// TestLooks: what a server tells of its locks is what the graph takes it for.
func TestLooks(t *testing.T) {
	server := pgtest.StartWith(t, localpg.Config{Settings: map[string]string{"deadlock_timeout": "100ms"}})[0]
	admin := dial(t, server, "postgres", "CREATE TABLE rows (id int PRIMARY KEY, n int)", "INSERT INTO rows SELECT i, 0 FROM generate_series(1, 5) AS i", "CREATE ROLE weak LOGIN", "SET search_path = pg_catalog")
	holder := dial(t, server, "postgres", "BEGIN", write)
	first, second, idle := dial(t, server, "postgres", "BEGIN"), dial(t, server, "postgres", "BEGIN"), dial(t, server, "postgres")
	firstEnds := first.writeLater()
	lookUntil(t, admin.Conn, "the first waits", nil, func(seen look) bool { return seen.backends[first.pid].long })
	secondEnds := second.writeLater()
	pids := []int{holder.pid, first.pid, second.pid, idle.pid}
	seen := lookUntil(t, admin.Conn, "the second waits", pids, func(seen look) bool { return seen.backends[second.pid].waits() })

	if seen.patience != 100*time.Millisecond {
		t.Errorf("its deadlock_timeout is %v", seen.patience)
	}
	h, f, s, i := seen.backends[holder.pid], seen.backends[first.pid], seen.backends[second.pid], seen.backends[idle.pid]
	if h.waits() || !h.awaited || h.own == "" || h.state != "idle in transaction" {
		t.Errorf("the holder is %+v", h)
	}
	if !f.waits() || !f.long || f.xid != h.own || f.lock != "ShareLock on transaction "+h.own || !f.awaited {
		t.Errorf("the first to wait is %+v", f)
	}
	if !s.waits() || s.xid != "" || !strings.Contains(s.lock, "of relation public.rows") || s.awaited {
		t.Errorf("the second to wait is %+v", s)
	}
	if i.virtual != "" || i.waits() || i.awaited {
		t.Errorf("who does nothing is %+v", i)
	}
	blockers, err := askBlockers(t.Context(), admin.Conn, []int{second.pid}, true)
	if err != nil || !slices.Equal(blockers[second.pid], []int{first.pid}) || !slices.Equal(blockers[first.pid], []int{holder.pid}) || len(blockers[holder.pid]) > 0 {
		t.Errorf("in the way are %v, %v", blockers, err)
	}

	// A wait is only ended if it is the very one.
	other := Wait{Process{1, first.pid}, f.virtual, f.since.Add(time.Microsecond)}
	if was, err := cancelWait(t.Context(), admin.Conn, other); was || err != nil {
		t.Errorf("another wait was ended: %v, %v", was, err)
	}
	other = Wait{Process{1, first.pid}, "0/1", f.since}
	if was, err := cancelWait(t.Context(), admin.Conn, other); was || err != nil {
		t.Errorf("the wait of another transaction was ended: %v, %v", was, err)
	}
	this := Wait{Process{1, first.pid}, f.virtual, f.since}
	weak := dial(t, server, "weak")
	if _, err := cancelWait(t.Context(), weak.Conn, this); !errors.Is(err, errNotPermitted) {
		t.Errorf("who may not end it hears %v", err)
	}
	if lasts, err := stillWaits(t.Context(), weak.Conn, this); !lasts || err != nil {
		t.Errorf("who may not end it may ask: %v, %v", lasts, err)
	}
	if told, err := ask(t.Context(), weak.Conn, pids); err != nil || told.backends[first.pid].xid != h.own || told.backends[holder.pid].state != "" {
		t.Errorf("who may not see what others do sees %+v, %v", told, err)
	}
	if was, err := cancelWait(t.Context(), admin.Conn, this); !was || err != nil {
		t.Errorf("the wait was not ended: %v, %v", was, err)
	}
	var failure *pgconn.PgError
	if err := <-firstEnds; !errors.As(err, &failure) || failure.Code != "57014" {
		t.Errorf("it ended with %v", err)
	}
	if lasts, err := stillWaits(t.Context(), admin.Conn, this); lasts || err != nil {
		t.Errorf("it lasts: %v, %v", lasts, err)
	}
	failed := lookUntil(t, admin.Conn, "it has failed", []int{first.pid}, func(seen look) bool { return seen.backends[first.pid].state != "active" })
	if !failed.backends[first.pid].hasFailed() {
		t.Errorf("it is %+v", failed.backends[first.pid])
	}
	holder.run("COMMIT")
	if err := <-secondEnds; err != nil {
		t.Error(err)
	}
	second.run("COMMIT")

	// What was locked after a savepoint has another number than the transaction.
	holder.run("BEGIN")
	holder.run("SAVEPOINT a")
	holder.run(write)
	secondEnds = second.writeLater()
	seen = lookUntil(t, admin.Conn, "it waits for a subtransaction", []int{holder.pid}, func(seen look) bool { return seen.backends[second.pid].waits() })
	if own, xid := seen.backends[holder.pid].own, seen.backends[second.pid].xid; own == "" || xid == "" || own == xid {
		t.Errorf("the transaction is %q, and %q is waited for", own, xid)
	}
	holder.run("ROLLBACK")
	if err := <-secondEnds; err != nil {
		t.Error(err)
	}

	// Nobody waits behind a prepared transaction but for its end.
	holder.run("BEGIN")
	holder.run(write)
	holder.run("PREPARE TRANSACTION 'p'")
	secondEnds = second.writeLater()
	lookUntil(t, admin.Conn, "it waits for a prepared transaction", nil, func(seen look) bool { return seen.backends[second.pid].waits() })
	if blockers, err := askBlockers(t.Context(), admin.Conn, []int{second.pid}, true); err != nil || !slices.Equal(blockers[second.pid], []int{preparedPID}) || len(blockers) != 1 {
		t.Errorf("in the way are %v, %v", blockers, err)
	}
	holder.run("ROLLBACK PREPARED 'p'")
	if err := <-secondEnds; err != nil {
		t.Error(err)
	}
}
