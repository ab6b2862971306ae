package processes_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"

	"github.com/cleavedb/cleave/internal/thorough"
)

// socketPath is one that is short enough for a socket.
func socketPath(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "cleave-h")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return filepath.Join(folder, "s")
}

// successor starts another process with the same file.
func (p *process) successor(t *testing.T) *process {
	t.Helper()
	next := &process{name: p.name, file: p.file, listen: p.listen, api: p.api}
	next.start(t)
	return next
}

// TestAProcessIsReplacedUnderLoad replaces the router three times: no connection is refused, and no transaction is lost.
func TestAProcessIsReplacedUnderLoad(t *testing.T) {
	servers := pgtest.StartN(t, 2)
	etcd := startEtcd(t)
	p := serve(t, "router", urls(etcd.Endpoints()), append([]string{"handover_socket: " + socketPath(t)}, routerLines...)...)
	makeCluster(t, p, servers)
	const clients = 4
	makeAccounts(t, p.listen, clients)
	short, long := newLoad(t), newLoad(t)
	short.add(clients, connectAndAsk(p.listen))
	long.add(clients, transfer(p.listen, 50*time.Millisecond))

	for range 3 {
		short.goesOn(t)
		next := p.successor(t)
		p.end(t) // it has handed over, and its last client is gone
		p = next
		short.goesOn(t)
	}
	eventually(t, "only one process is registered", func() bool {
		status, err := p.api.Status(t.Context())
		return err == nil && len(status.Routers) == 1
	})
	short.stop()
	long.stop()
	short.mustBeWell(t)
	long.mustBeWell(t)
	if got, want := balances(t, mustDial(t, p.listen), clients), 4*long.done.Load(); got != want || want == 0 {
		t.Errorf("%d transactions changed the balances by %d", long.done.Load(), got)
	}
	if err := p.command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	p.end(t)
}

// TestSessionsStayWithTheOldProcess until the time for that is over; then idle ones are closed and a transaction may end.
func TestSessionsStayWithTheOldProcess(t *testing.T) {
	thorough.Only(t)
	servers := pgtest.StartN(t, 1)
	etcd := startEtcd(t)
	old := serve(t, "router", urls(etcd.Endpoints()), append([]string{"handover_socket: " + socketPath(t), "limits:", "  drain_timeout: 5s"}, routerLines...)...)
	makeCluster(t, old, servers)
	idle, busy := mustDial(t, old.listen), mustDial(t, old.listen)
	makeAccounts(t, old.listen, 1)
	mustExec(t, busy, "BEGIN")
	mustExec(t, busy, "UPDATE accounts SET balance = 1 WHERE id = 1")

	next := old.successor(t)
	eventually(t, "the new process has taken over", func() bool { return strings.Contains(old.errors.String(), "another process has taken over") })
	mustExec(t, idle, "SELECT 1")
	eventually(t, "the idle session is closed", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := idle.Exec(ctx, "SELECT 1")
		if err != nil && sqlState(err) != "57P01" {
			t.Errorf("the idle session ended with %v", err)
		}
		time.Sleep(500 * time.Millisecond)
		return err != nil
	})
	mustExec(t, busy, "UPDATE accounts SET balance = balance + 1 WHERE id = 1")
	mustExec(t, busy, "COMMIT")
	old.end(t)
	if got := balances(t, mustDial(t, next.listen), 1); got != 2 {
		t.Errorf("the transaction left the balance at %d", got)
	}
}

// TestAProcessThatIsNotReadyTakesNothing, and the old one goes on.
func TestAProcessThatIsNotReadyTakesNothing(t *testing.T) {
	servers := pgtest.StartN(t, 1)
	etcd := startEtcd(t)
	path := socketPath(t)
	lines := append([]string{"handover_socket: " + path}, routerLines...)
	p := serve(t, "router", urls(etcd.Endpoints()), lines...)
	makeCluster(t, p, servers)
	makeAccounts(t, p.listen, 1)

	stranger := configure(t, "router", urls(etcd.Endpoints()), append(lines, "cluster: empty")...) // which has no map
	stranger.start(t)
	clients := newLoad(t)
	clients.add(1, connectAndAsk(p.listen))
	clients.goesOn(t)
	if err := stranger.command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	stranger.end(t)
	clients.goesOn(t)
	next := p.successor(t)
	p.end(t)
	clients.goesOn(t)
	clients.stop()
	clients.mustBeWell(t)
	if err := next.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-next.ended
	last := next.successor(t) // a socket that a dead process left is no obstacle
	eventually(t, "it serves", func() bool { return ready(last) })
}
