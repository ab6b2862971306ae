package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const clusterID = "0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11"

func must[T any](t testing.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// service logs in as the service role, which in most tests is the server's superuser.
var service = &Identity{Service: true}

func specOf(name, address string) topology.ShardSpec {
	return topology.ShardSpec{Name: name, Primary: topology.InstanceSpec{Address: address}, Database: "postgres", User: "postgres", SSLMode: "disable"}
}

// mapOf has shards s1, s2 … at these addresses.
func mapOf(t testing.TB, addresses ...string) *topology.Map {
	t.Helper()
	m := must[*topology.Map](t)(topology.New(clusterID))
	for i, address := range addresses {
		m = must[*topology.Map](t)(m.Next(topology.AddShard(specOf(fmt.Sprintf("s%d", i+1), address))))
	}
	return m
}

func changed(t testing.TB, m *topology.Map, change topology.Change) *topology.Map {
	t.Helper()
	return must[*topology.Map](t)(m.Next(change))
}

func newPools(t testing.TB, config Config, m *topology.Map) *Pools {
	t.Helper()
	if err := config.Check(); err != nil {
		t.Fatal(err)
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	p := New(config)
	t.Cleanup(p.Close)
	p.Apply(m)
	return p
}

// poolsOn has the server as shard 1.
func poolsOn(t testing.TB, config Config, server *localpg.Server) *Pools {
	t.Helper()
	return newPools(t, config, mapOf(t, server.Addr()))
}

func acquire(t testing.TB, p *Pools, id *Identity) *Backend {
	t.Helper()
	return must[*Backend](t)(p.Acquire(t.Context(), 1, id, 0))
}

// one runs a statement that returns one value.
func one(t testing.TB, b *Backend, sql string) string {
	t.Helper()
	rows := must[[]Row](t)(b.Exec(t.Context(), sql))
	if len(rows) != 1 || len(rows[0]) != 1 {
		t.Fatalf("%s returned %q", sql, rows)
	}
	return string(rows[0][0])
}

// connect logs in as a superuser beside the pools.
func connect(t testing.TB, server *localpg.Server) *pgx.Conn {
	t.Helper()
	conn := must[*pgx.Conn](t)(shard.Access{}.Connect(t.Context(), specOf("s1", server.Addr())))
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func execute(t testing.TB, conn *pgx.Conn, sql string, arguments ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, arguments...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// setRules replaces the server's pg_hba.conf.
func setRules(t testing.TB, s *localpg.Server, admin *pgx.Conn, rules string) {
	t.Helper()
	loaded := func() (at time.Time) {
		if err := admin.QueryRow(t.Context(), "SELECT pg_conf_load_time()").Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	path := filepath.Join(s.Dir(), "data", "pg_hba.conf")
	if err := os.WriteFile(path, []byte(rules+"\n"), 0o600); err != nil { // keeps its owner
		t.Fatal(err)
	}
	before := loaded()
	execute(t, admin, "SELECT pg_reload_conf()")
	eventually(t, "the rules are in force", func() bool { return loaded().After(before) })
}

// eventually waits until it is so; only a test that hangs fails here.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never came to be that %s", what)
		}
	}
}

// statsOf returns the figures of shard 1.
func statsOf(t testing.TB, p *Pools) ShardStats {
	t.Helper()
	stats := p.Stats()
	if len(stats) == 0 || stats[0].Shard != 1 {
		t.Fatalf("there are no figures of shard 1: %+v", stats)
	}
	return stats[0]
}

func waiting(t testing.TB, p *Pools, count int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d wait", count), func() bool { return statsOf(t, p).Waiting == count })
}

// expectError wants an error with this code that says all of these words somewhere.
func expectError(t testing.TB, err error, code string, words ...string) {
	t.Helper()
	var failure *pgerr.Error
	if !errors.As(err, &failure) {
		t.Fatalf("%v is not for clients", err)
	}
	if failure.Code != code {
		t.Errorf("the code is %s, want %s: %v", failure.Code, code, failure)
	}
	for _, word := range words {
		if text := failure.Message + "\n" + failure.Detail + "\n" + failure.Hint; !strings.Contains(text, word) {
			t.Errorf("%q does not say %q", text, word)
		}
	}
}

// listen accepts connections and hands them to serve, one after the other; accepted tells how many there were.
func listen(t testing.TB, serve func(net.Conn)) (address string, accepted func() int) {
	t.Helper()
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	done := make(chan struct{})
	counter := make(chan int, 1)
	counter <- 0
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			counter <- <-counter + 1
			serve(conn)
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return listener.Addr().String(), func() int {
		n := <-counter
		counter <- n
		return n
	}
}
