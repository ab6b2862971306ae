package cluster

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/store"
)

// Routers are several processes of one cluster, with shards named s1, s2 … and an etcd in the test's own process.
type Routers struct {
	Shards  []*localpg.Server
	Routers []*Router
}

// Router is a running 'cleave serve'.
type Router struct {
	Name string
	// Listen is where clients connect.
	Listen  string
	API     *api.Client
	Command *exec.Cmd
	ended   chan struct{}
	log     logged
}

// logged is what a process has written; it may go on while a test reads it.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements [io.Writer].
func (l *logged) Write(part []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(part)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// StartRouters makes a cluster of so many shards, and runs so many routers of it, which trust everybody. It returns when all of
// them are ready.
func StartRouters(t *testing.T, shards, routers int) *Routers {
	t.Helper()
	configs := make([]localpg.Config, shards)
	for i := range configs {
		configs[i].Settings = map[string]string{"deadlock_timeout": "200ms"}
	}
	c := &Routers{Shards: pgtest.StartWith(t, configs...)}
	etcd, err := store.StartEmbedded(t.Context(), store.EmbeddedConfig{Dir: t.TempDir(), Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	for i := range routers {
		c.Routers = append(c.Routers, startRouter(t, fmt.Sprintf("r%d", i+1), etcd.Endpoints()))
	}
	c.makeMap(t)
	for _, r := range c.Routers {
		Eventually(t, r.Name+" is ready", r.ready)
	}
	return c
}

// makeMap makes a map and adds the shards.
func (c *Routers) makeMap(t *testing.T) {
	t.Helper()
	first := c.Routers[0].API
	Eventually(t, "there is a map", func() bool {
		_, err := first.CreateMap(t.Context())
		return err == nil
	})
	for i, server := range c.Shards {
		request := api.AddShard{}
		request.Name, request.Primary.Address = fmt.Sprintf("s%d", i+1), server.Addr()
		if _, err := first.AddShard(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
}

// startRouter runs 'cleave serve'. It is killed when the test ends.
func startRouter(t *testing.T, name string, endpoints []string) *Router {
	t.Helper()
	path, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	web := FreeAddress(t)
	r := &Router{Name: name, Listen: FreeAddress(t), API: &api.Client{BaseURL: "http://" + web}, ended: make(chan struct{})}
	file := filepath.Join(t.TempDir(), "cleave.yaml")
	if err := os.WriteFile(file, []byte(r.configuration(web, endpoints)), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Command = exec.Command(path, "serve", "--config", file)
	r.Command.Stderr = &r.log
	if err := r.Command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		_ = r.Command.Wait()
	}()
	t.Cleanup(func() {
		r.Kill()
		if t.Failed() {
			t.Logf("%s said:\n%s", name, r.log.String())
		}
	})
	return r
}

func (r *Router) configuration(web string, endpoints []string) string {
	urls := make([]string, len(endpoints))
	for i, e := range endpoints {
		urls[i] = "http://" + strings.TrimPrefix(e, "http://")
	}
	return strings.Join([]string{
		"router_name: " + r.Name, "listen: " + r.Listen,
		"etcd:", "  endpoints: [" + strings.Join(urls, ", ") + "]", "  lease_ttl: 2s",
		"http:", "  listen: " + web,
		"auth:", "  rules: [host all all loopback trust]",
		"shards:", "  user: postgres", "  database: postgres", "  sslmode: disable",
		"pool:", "  per_shard: 20", "",
	}, "\n")
}

func (r *Router) ready() bool {
	answer, err := http.Get(r.API.BaseURL + "/readyz")
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// Kill ends the process outright, stopped or not, and waits for its end.
func (r *Router) Kill() {
	_ = r.Command.Process.Kill()
	<-r.ended
}

// Stop halts the process: it does nothing, and nobody is told.
func (r *Router) Stop(t *testing.T) { r.signal(t, syscall.SIGSTOP) }

// Continue lets a process that was stopped go on.
func (r *Router) Continue(t *testing.T) { r.signal(t, syscall.SIGCONT) }

func (r *Router) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := r.Command.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// Dial connects to the router as the superuser; the connection is closed when the test ends.
func (r *Router) Dial(t *testing.T) *pgx.Conn {
	t.Helper()
	return dial(t, r.Listen, "")
}

// DialWith connects as somebody else who hears what the router notices.
func (r *Router) DialWith(t *testing.T, user string, hear func(*pgconn.Notice)) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig("postgres://" + user + "@" + r.Listen + "/postgres?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { hear(n) }
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// DialAs connects as somebody else.
func (r *Router) DialAs(t *testing.T, user string) *pgx.Conn {
	t.Helper()
	return dial(t, r.Listen, user)
}

// Direct connects to a shard, past the routers.
func (c *Routers) Direct(t *testing.T, shard int) *pgx.Conn {
	t.Helper()
	return dial(t, c.Shards[shard].Addr(), "")
}

func dial(t *testing.T, address, user string) *pgx.Conn {
	t.Helper()
	if user == "" {
		user = "postgres"
	}
	conn, err := pgx.Connect(t.Context(), "postgres://"+user+"@"+address+"/postgres?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Eventually waits until the condition holds.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("in a minute it did not come to pass that %s", what)
}
