package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/failpoint/orders"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/shardtest"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/test/cluster"
	"github.com/cleavedb/cleave/test/faults/proxy"
)

// Cluster is a cluster of real processes. Make it with [Start].
type Cluster struct {
	Shards  []*Shard
	Routers []*Router
	// Spares are servers that are not in the map yet: Join adds them.
	Spares []*Shard
	// Etcd is nil unless it is a process of its own.
	Etcd *Etcd
	// Folder has logs and whatever else tells what happened. It is kept if the test fails.
	Folder string
	// Orders is the folder of orders to failpoints.
	Orders string

	probe string // a statement on all shards, when there are tables
}

// Config says what a cluster is like.
type Config struct {
	// Shards is how many there are. Default: 3.
	Shards int
	// Spares is how many there are besides that are not in the map at first.
	Spares int
	// Replicated is the number, from 1, of the shard that has a replica. Default: none.
	Replicated int
	// Routers is how many there are. Default: 2.
	Routers int
	// Folders are those of the shards' servers, in their order; an empty one, or none: one of its own. Default: none.
	Folders []string
	// EtcdApart: etcd is a process of its own, which can be killed and stopped. Default: it is within the test's.
	EtcdApart bool
	// EtcdProxies: each router has a way of its own to etcd, which can be cut.
	EtcdProxies bool
	// Durations take the place of those that routers have for people, by their names.
	Durations map[string]time.Duration
}

// Start makes a cluster and returns when it serves. It ends with the test. Where PostgreSQL is missing the test is skipped, as package pgtest does.
func Start(t testing.TB, config Config) *Cluster {
	t.Helper()
	pgtest.Installations(t) // skips, before anything is built
	if _, err := Binary(); err != nil {
		t.Fatal(err)
	}
	if config.Shards == 0 {
		config.Shards = 3
	}
	if config.Routers == 0 {
		config.Routers = 2
	}
	c := &Cluster{Folder: keptFolder(t)}
	c.Orders = filepath.Join(c.Folder, "orders")
	if err := os.Mkdir(c.Orders, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, value := range config.Durations {
		if err := orders.SetDuration(c.Orders, name, value); err != nil {
			t.Fatal(err)
		}
	}
	c.startShards(t, config)
	c.startRouters(t, config, c.startEtcd(t, config.EtcdApart))
	return c
}

// keptFolder makes one that stays if the test fails, or if CLEAVE_FAULTS_KEEP is set.
func keptFolder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "cleave-faults-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() || os.Getenv("CLEAVE_FAULTS_KEEP") != "" {
			t.Logf("the history, the faults and all logs are in %s", folder)
		} else if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	return folder
}

// serverSettings make servers notice quickly what they notice.
var serverSettings = map[string]string{
	"deadlock_timeout": "200ms", "wal_retrieve_retry_interval": "200ms", "log_line_prefix": "%m [%p] %a ", "log_min_messages": "warning",
}

// model is what all servers begin as: they need not be furnished one by one when they become shards.
var model = shardtest.NewModel()

func (c *Cluster) startShards(t testing.TB, config Config) {
	t.Helper()
	configs := model.Configs(t, config.Shards+config.Spares)
	for i := range configs {
		configs[i].Port, configs[i].Settings = cluster.FreePort(t), serverSettings
		if i < len(config.Folders) {
			configs[i].Dir = config.Folders[i]
		}
	}
	for i, server := range pgtest.StartWith(t, configs...) {
		p, err := proxy.Start(cluster.FreeAddress(t), server.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		c.Shards = append(c.Shards, &Shard{Name: fmt.Sprintf("s%d", i+1), Proxy: p, primary: server})
	}
	c.Shards, c.Spares = c.Shards[:config.Shards], slices.Clone(c.Shards[config.Shards:])
	if config.Replicated > 0 {
		c.Shards[config.Replicated-1].AddReplica(t)
	}
	t.Cleanup(func() { c.keepServerLogs(t) })
}

// keepServerLogs copies them, since the servers' folders go with the test.
func (c *Cluster) keepServerLogs(t testing.TB) {
	if !t.Failed() {
		return
	}
	for _, s := range c.Shards {
		for role, server := range map[string]*localpg.Server{"primary": s.Primary(), "replica": s.Replica()} {
			if server != nil {
				// That of a case's own replica has gone with the case.
				if err := copyFile(filepath.Join(c.Folder, s.Name+"-"+role+".log"), server.LogFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Error(err)
				}
			}
		}
	}
}

func copyFile(to, from string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// startEtcd returns where it is.
func (c *Cluster) startEtcd(t testing.TB, apart bool) (endpoints []string) {
	t.Helper()
	if apart {
		c.Etcd = newEtcd(t, c.Folder)
		if err := c.Etcd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Etcd.Kill)
		return []string{c.Etcd.address}
	}
	etcd, err := store.StartEmbedded(t.Context(), store.EmbeddedConfig{Dir: t.TempDir(), Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	return etcd.Endpoints()
}

func (c *Cluster) startRouters(t testing.TB, config Config, etcd []string) {
	t.Helper()
	for i := range config.Routers {
		var way *proxy.Proxy
		endpoints := etcd
		if config.EtcdProxies {
			var err error
			if way, err = proxy.Start(cluster.FreeAddress(t), strings.TrimPrefix(etcd[0], "http://")); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(way.Close)
			endpoints = []string{way.Addr()}
		}
		r := newRouter(t, fmt.Sprintf("r%d", i+1), c.Folder, c.Orders, endpoints)
		r.ToEtcd = way
		if err := r.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Kill)
		c.Routers = append(c.Routers, r)
	}
	if err := c.makeMap(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// makeMap makes a map in which the shards are where their proxies are.
func (c *Cluster) makeMap(ctx context.Context) error {
	first := &api.Client{BaseURL: c.Routers[0].api.BaseURL} // nobody is stopped yet: what is slow is waited for
	if err := eventually(ctx, "there is a map", func(ctx context.Context) error {
		_, err := first.CreateMap(ctx)
		return err
	}); err != nil {
		return err
	}
	for _, s := range c.Shards {
		if err := s.addTo(ctx, first); err != nil {
			return err
		}
	}
	return nil
}

func (s *Shard) addTo(ctx context.Context, client *api.Client) error {
	request := api.AddShard{}
	request.Name, request.Primary.Address = s.Name, s.Proxy.Addr()
	_, err := client.AddShard(ctx, request)
	return err
}

// Join adds the first spare server to the map.
func (c *Cluster) Join(ctx context.Context) error {
	if len(c.Spares) == 0 {
		return errors.New("there is no spare server")
	}
	joins := c.Spares[0]
	if err := joins.addTo(ctx, &api.Client{BaseURL: c.Routers[0].api.BaseURL}); err != nil {
		return err
	}
	c.Shards, c.Spares = append(c.Shards, joins), c.Spares[1:]
	return nil
}

// WaitReady waits until all routers serve, all shards.
func (c *Cluster) WaitReady(ctx context.Context) error {
	for _, r := range c.Routers {
		if err := eventually(ctx, r.Name+" is ready", func(ctx context.Context) error { return c.serves(ctx, r) }); err != nil {
			return err
		}
	}
	return nil
}

// serves returns why a router does not serve. It may say that it is ready and keep away from a shard that was not there a moment ago.
func (c *Cluster) serves(ctx context.Context, r *Router) error {
	switch {
	case !r.Running():
		return errors.New("it has ended")
	case !r.Ready(ctx):
		return errors.New("it is not ready")
	case c.probe == "":
		return nil
	}
	client := NewClient(1, r)
	defer client.Drop()
	conn, err := client.Connection(ctx)
	if err == nil {
		_, err = conn.Exec(ctx, c.probe)
	}
	return err
}

// Leader waits until one of the routers that run leads, and all that answer know it.
func (c *Cluster) Leader(ctx context.Context) (leader *Router, err error) {
	err = eventually(ctx, "one of the routers leads", func(ctx context.Context) error {
		leader = nil
		for _, r := range c.Routers {
			if !r.Running() {
				continue
			}
			status, err := r.Status(ctx)
			if err != nil {
				continue // it may be stopped
			}
			i := slices.IndexFunc(c.Routers, func(r *Router) bool { return r.Name == status.Leader && r.Running() && r.hasLed() })
			if i < 0 || leader != nil && leader != c.Routers[i] {
				return fmt.Errorf("%s says that %q leads", r.Name, status.Leader)
			}
			leader = c.Routers[i]
		}
		if leader == nil {
			return errors.New("nobody answers")
		}
		return nil
	})
	return leader, err
}

// Other is a router that is not the given one.
func (c *Cluster) Other(than *Router) *Router {
	return c.Routers[slices.IndexFunc(c.Routers, func(r *Router) bool { return r != than })]
}

// Heal takes back all that was done to the cluster, and returns when it serves again.
func (c *Cluster) Heal(ctx context.Context) error {
	if err := c.withdrawOrders(); err != nil {
		return err
	}
	if c.Etcd != nil {
		if err := c.Etcd.Await(ctx); err != nil {
			return err
		}
	}
	for _, s := range c.Shards {
		s.Proxy.Resume()
		s.Proxy.Refuse(false)
		if err := s.Restart(ctx); err != nil {
			return err
		}
		if replica := s.Replica(); replica != nil {
			if err := restart(ctx, replica); err != nil {
				return err
			}
		}
	}
	for _, r := range c.Routers {
		r.Continue()
		if err := r.Start(); err != nil {
			return err
		}
	}
	return c.WaitReady(ctx)
}

// withdrawOrders takes back those that nobody obeyed, and releases those who hold.
func (c *Cluster) withdrawOrders() error {
	for _, point := range Points {
		if err := errors.Join(orders.Withdraw(c.Orders, point), orders.Release(c.Orders, point)); err != nil {
			return err
		}
	}
	return nil
}

// EachShard asks every primary, past the proxies, over connections of its own.
func (c *Cluster) EachShard(ctx context.Context, ask func(i int, conn *pgx.Conn) error) error {
	for i, s := range c.Shards {
		conn, err := s.Connect(ctx)
		if err != nil {
			return fmt.Errorf("shard %s: %w", s.Name, err)
		}
		err = errors.Join(ask(i, conn), conn.Close(ctx))
		if err != nil {
			return fmt.Errorf("shard %s: %w", s.Name, err)
		}
	}
	return nil
}

// Points are the failpoints of transactions over several shards. Those of a router come first, then those of a leader.
var Points = append(slices.Clone(CommitPoints), LeaderPoints...)

// CommitPoints are where a router is in a commit, in this order: lines C1 to C7 of the crash table.
var CommitPoints = []string{
	"commit.begin", "commit.preparing", "commit.prepared", "commit.deciding", "commit.decided", "commit.finishing", "commit.finished",
}

// LeaderPoints are where a leader is in recovery and clean-up: lines L1 to L5, and S1 to S3.
var LeaderPoints = []string{
	"recover.listed", "recover.aborting", "recover.rolledback", "recover.committed", "recover.terminated", "sweep.noted", "sweep.unmarked", "sweep.cleared",
}
