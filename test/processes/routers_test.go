package processes_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/store"

	"github.com/cleavedb/cleave/internal/thorough"
)

// makeCluster makes a map and shards of the servers, and waits until clients can be served.
func makeCluster(t *testing.T, p *process, servers []*localpg.Server) {
	t.Helper()
	eventually(t, "there is a map", func() bool {
		_, err := p.api.CreateMap(t.Context())
		return err == nil
	})
	for i, server := range servers {
		if _, err := p.api.AddShard(t.Context(), addRequest(fmt.Sprintf("s%d", i+1), server)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "it is ready", func() bool { return ready(p) })
}

// increment adds one to the client's account, as one statement, on a connection that it keeps.
func increment(ctx context.Context, conn *pgx.Conn, client int) error {
	tag, err := conn.Exec(ctx, "UPDATE accounts SET balance = balance + 1 WHERE id = $1", client+1)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("%v", tag)
	}
	return err
}

// TestRoutersServeOneCluster, both with sessions, through a time without etcd.
func TestRoutersServeOneCluster(t *testing.T) {
	servers := pgtest.StartN(t, 2)
	folder := t.TempDir()
	etcd, err := store.StartEmbedded(t.Context(), store.EmbeddedConfig{Dir: folder, Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { etcd.Close() })
	endpoints := urls(etcd.Endpoints())
	first := serve(t, "first", endpoints, routerLines...)
	makeCluster(t, first, servers)
	second := serve(t, "second", endpoints, routerLines...)
	eventually(t, "the second is ready", func() bool { return ready(second) })

	// What is sharded through one is sharded for the other.
	const clients = 4
	makeAccounts(t, first.listen, clients)
	other := mustDial(t, second.listen)
	eventually(t, "the other has heard of it", func() bool {
		var found int
		err := other.QueryRow(t.Context(), "SELECT count(*) FROM accounts WHERE id = 3").Scan(&found)
		return err == nil && found == 1
	})
	load := newLoad(t)
	for _, p := range []*process{first, second} {
		load.addSessions(p.listen, clients, increment)
		load.add(1, transfer(p.listen, 20*time.Millisecond))
		load.add(1, connectAndAsk(p.listen))
	}
	load.goesOn(t)

	etcd.Close()
	for _, p := range []*process{first, second} {
		eventually(t, p.name+" misses etcd", func() bool {
			status, err := p.api.Status(t.Context())
			return err == nil && !status.Store.Connected
		})
	}
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); {
		load.goesOn(t)
	}
	load.mustBeWell(t)

	_, port, err := net.SplitHostPort(strings.TrimPrefix(endpoints[0], "http://"))
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	if etcd, err = store.StartEmbedded(t.Context(), store.EmbeddedConfig{Dir: folder, Fast: true, ClientPort: number}); err != nil {
		t.Fatal(err)
	}
	weight := 2.0
	eventually(t, "a change goes through", func() bool {
		_, err := first.api.UpdateShard(t.Context(), "s2", api.UpdateShard{Weight: &weight})
		return err == nil
	})
	for _, p := range []*process{first, second} {
		eventually(t, p.name+" has the change", func() bool {
			status, err := p.api.Status(t.Context())
			return err == nil && status.Store.Connected && len(status.Shards) == 2 && status.Shards[1].Weight == weight
		})
	}
	load.goesOn(t)
	load.stop()
	load.mustBeWell(t)
}

// TestConnectionsAreShared: each router has its part of what a shard allows, and the status does the arithmetic.
func TestConnectionsAreShared(t *testing.T) {
	thorough.Only(t)
	servers := pgtest.StartWith(t, localpg.Config{Settings: map[string]string{"max_connections": "30"}})
	etcd := startEtcd(t)
	first := serve(t, "first", urls(etcd.Endpoints()), routerLines...)
	makeCluster(t, first, servers)
	second := serve(t, "second", urls(etcd.Endpoints()), routerLines...)
	eventually(t, "the second is ready", func() bool { return ready(second) })
	want := api.Connections{Max: 30, Reserved: 3, ForRouters: 22, Routers: 2, PerShard: 20, Limit: 11}
	for _, p := range []*process{first, second} {
		eventually(t, p.name+" knows its part", func() bool {
			status, err := p.api.Status(t.Context())
			return err == nil && len(status.Shards) == 1 && status.Shards[0].Connections != nil && *status.Shards[0].Connections == want &&
				hasFinding(status, "connections_capped", "each is kept to 11")
		})
	}
	if err := second.command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	second.end(t)
	eventually(t, "the other has all of it", func() bool {
		status, err := first.api.Status(t.Context())
		return err == nil && status.Shards[0].Connections.Limit == 20 && !hasFinding(status, "connections_capped", "")
	})
}

func hasFinding(status api.Status, code, text string) bool {
	for _, f := range status.Findings {
		if f.Code == code && strings.Contains(f.Message, text) {
			return true
		}
	}
	return false
}

// TestAShardIsRestartedUnderLoad: clients hear that their connection is gone, and nothing else, and nothing stays behind.
func TestAShardIsRestartedUnderLoad(t *testing.T) {
	thorough.Only(t)
	servers := pgtest.StartN(t, 2)
	etcd := startEtcd(t)
	p := serve(t, "router", urls(etcd.Endpoints()), routerLines...)
	makeCluster(t, p, servers)
	const clients = 4
	makeAccounts(t, p.listen, clients)
	load := newLoad(t)
	load.addSessions(p.listen, clients, increment)
	load.add(2, transfer(p.listen, 20*time.Millisecond))
	load.add(1, connectAndAsk(p.listen))
	load.goesOn(t)
	load.mustBeWell(t)

	for _, server := range servers {
		if err := server.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // without it
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// All is well again when nothing fails for a while.
	eventually(t, "nothing fails any more", func() bool {
		for _, err := range load.failed() {
			if code := sqlState(err); !strings.HasPrefix(code, "08") && !strings.HasPrefix(code, "57P") {
				t.Errorf("a client heard %q: %v", code, err)
			}
		}
		load.goesOn(t)
		time.Sleep(time.Second)
		failures := load.failed()
		for _, err := range failures {
			load.note(err)
		}
		return len(failures) == 0
	})
	load.stop()
	for i, server := range servers {
		nothingStays(t, p, fmt.Sprintf("s%d", i+1), server)
	}
}

// metric is a figure of the process, by its name and labels; -1 if there is none.
func metric(t *testing.T, p *process, name string) float64 {
	t.Helper()
	answer, err := http.Get(p.api.BaseURL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if text, found := strings.CutPrefix(lines.Text(), name+" "); found {
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	return -1
}

// nothingStays checks that no client of the router has a backend of the shard, that no transaction is open there, and that it has
// no backends but those that the router knows of.
func nothingStays(t *testing.T, p *process, name string, server *localpg.Server) {
	t.Helper()
	eventually(t, "no client is left", func() bool {
		return metric(t, p, "cleave_clients") == 0 && metric(t, p, `cleave_pool_backends{shard="`+name+`",state="in_use"}`) == 0
	})
	conn, err := dial(t.Context(), server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	eventually(t, "no transaction is open on the shard", func() bool {
		var open, prepared, locks int
		const query = `SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND (state <> 'idle' OR xact_start IS NOT NULL)),
			(SELECT count(*) FROM pg_prepared_xacts), (SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND pid <> pg_backend_pid())`
		return conn.QueryRow(t.Context(), query).Scan(&open, &prepared, &locks) == nil && open+prepared+locks == 0
	})
	var found []string
	known := -1.0
	defer func() {
		if t.Failed() {
			t.Logf("shard %s has backends of %q, and the router knows of %v that are idle", name, found, known)
		}
	}()
	eventually(t, "the router knows all its backends", func() bool {
		// One that was made for somebody who got another has not been given a client's name yet.
		const query = `SELECT coalesce(array_agg(application_name || ': ' || query), '{}') FROM pg_stat_activity
			WHERE (application_name = 'load' OR application_name LIKE 'cleave/%' AND application_name <> 'cleave/control') AND pid <> pg_backend_pid()`
		err := conn.QueryRow(t.Context(), query).Scan(&found)
		known = metric(t, p, `cleave_pool_backends{shard="`+name+`",state="idle"}`)
		return err == nil && len(found) > 0 && float64(len(found)) == known
	})
}
