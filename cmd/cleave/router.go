package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/auth"
	"github.com/cleavedb/cleave/internal/catalog"
	"github.com/cleavedb/cleave/internal/deadlock"
	"github.com/cleavedb/cleave/internal/observe"
	"github.com/cleavedb/cleave/internal/pool"
	"github.com/cleavedb/cleave/internal/session"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/traffic"
	"github.com/cleavedb/cleave/internal/virtual"
)

// router is the part of a process that PostgreSQL clients talk to.
type router struct {
	node       *node
	pools      *pool.Pools
	catalog    *catalog.Catalog
	server     *session.Server
	schema     *virtual.Schema
	statements *observe.Statements
	shards     *observe.ShardStats
	directory  *directory // nil if users come from a file
	deadlocks  prometheus.Counter
	traffic    *traffic.Counter

	mu        sync.Mutex
	greetings map[int]shard.Greeting // by the shard's number
	routers   int
	counting  chan struct{} // holds one token when routers are to be counted now
}

// newRouter builds the router's parts. Nothing runs before [router.serve].
func newRouter(n *node) (*router, error) {
	c := n.config
	r := &router{node: n, greetings: map[int]shard.Greeting{}, routers: 1, counting: make(chan struct{}, 1), deadlocks: observe.NewDeadlocks(), traffic: &traffic.Counter{}}
	access := accessOf(c)
	incarnation := n.id
	r.statements = observe.NewStatements(observe.StatementsConfig{})
	r.shards = observe.NewShardStats(func(number int) string {
		if m := n.follower.Map(); m != nil && m.ShardByNumber(number) != nil {
			return m.ShardByNumber(number).Name()
		}
		return strconv.Itoa(number)
	})
	r.pools = pool.New(pool.Config{
		PerShard: c.Pool.PerShard, Total: c.Pool.Total, MinIdle: c.Pool.MinIdle, QueueTimeout: c.Pool.QueueTimeout,
		IdleTimeout: c.Pool.IdleTimeout, MaxAge: c.Pool.MaxAge, LoginsAtOnce: c.Pool.LoginsAtOnce, LoginsPerSecond: c.Pool.LoginsPerSecond,
		ConnectTimeout: c.Shards.ConnectTimeout, Access: access, Name: "cleave/" + incarnation, Logger: n.logger,
		Startup: map[string]string{shard.RouterParameter: incarnation},
		OnLogin: session.Greet(incarnation, r.mapVersion, r.learnt),
	})
	r.catalog = catalog.New(catalog.Config{Access: access, Map: n.follower.Map, Logger: n.logger})
	server, err := r.newServer()
	if err != nil {
		r.close()
		return nil, err
	}
	r.server = server
	return r, nil
}

func (r *router) newServer() (*session.Server, error) {
	n, c := r.node, r.node.config
	rules, err := parseRules(c.Auth.Rules)
	if err != nil {
		return nil, fmt.Errorf("auth.rules: %w", err)
	}
	users, err := r.usersOf()
	if err != nil {
		return nil, err
	}
	var certificates *auth.Certificates
	if c.TLS.CertFile != "" {
		if certificates, err = auth.NewCertificates(c.TLS.CertFile, c.TLS.KeyFile, c.TLS.ClientCAFile, n.logger); err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
	}
	r.schema = virtual.New(virtual.Config{
		Version: version, Router: c.RouterName, Map: n.follower.Map, Cluster: n.cluster, Look: r.catalog.Look, Access: accessOf(c), Routers: n.store.Routers, Pools: r.pools.Stats,
		Sessions: func() []session.Info { return r.server.Sessions() }, Statements: r.statements,
	})
	return session.New(session.Config{
		Router: n.id, Database: c.Shards.Database, ServiceUser: c.Shards.User, Rules: rules, Users: users, Certificates: certificates,
		Pools: r.pools, Catalog: r.catalog, Virtual: r.schema, Map: n.follower.Map, MapChanged: n.follower.Changed, Ready: r.ready,
		Schema: n.follower.Schema, Acknowledge: n.schemaApplied, Settled: n.mapSettled, Definitions: definitions{n},
		Statements: r.statements, Shards: r.shards, Traffic: r.traffic, Mode: session.Mode(c.Pool.Mode),
		MaxClients: c.Limits.Clients, MaxMessage: c.Limits.MaxMessage, StartupTimeout: c.Limits.StartupTimeout,
		HoldTimeout: c.Limits.HoldTimeout, DrainTimeout: c.Limits.DrainTimeout, Plans: c.Limits.Plans, Logger: n.logger,
		Rows: session.Rows{
			Memory: c.Limits.RowsMemory, Files: c.Limits.RowsFiles, PullMemory: c.Limits.PullMemory, PullSize: c.Limits.PullSize, Given: c.Limits.GivenRows, Arrays: c.Limits.ArrayRows,
		},
	}), nil
}

// serve takes in clients until the context ends and the last one is gone.
func (r *router) serve(ctx context.Context, door net.Listener) error {
	budget, stop := context.WithCancel(ctx)
	defer stop()
	// Whoever waits is watched to the end, also while the last ones leave.
	watching, stopWatching := context.WithCancel(context.Background())
	defer stopWatching()
	var loops sync.WaitGroup
	loops.Go(func() { r.keepBudget(budget) })
	loops.Go(func() { r.newWatchdog().Run(watching) })
	loops.Go(func() { r.reportTraffic(budget) })
	err := r.server.Serve(ctx, door)
	stop()
	stopWatching()
	loops.Wait()
	return err
}

// newWatchdog returns what finds the router's sessions that wait for others in a circle.
func (r *router) newWatchdog() *deadlock.Watchdog {
	n := r.node
	return deadlock.NewWatchdog(deadlock.WatchdogConfig{
		Router: n.config.RouterName, Sessions: r.server, Map: n.follower.Map, Access: accessOf(n.config), Broken: r.deadlocks.Inc, Logger: n.logger,
		Records: func() deadlock.Records {
			if registration := n.registration(); registration != nil {
				return registration
			}
			return nil
		},
	})
}

// reportTraffic counts by the newest map, and tells the leader how busy ranges are.
func (r *router) reportTraffic(ctx context.Context) {
	n := r.node
	r.traffic.Run(ctx, traffic.RunConfig{
		Map: n.follower.Map, Changed: n.follower.Changed, Logger: n.logger,
		Write: func(report json.RawMessage) bool {
			registration := n.registration()
			if registration != nil {
				registration.SetTraffic(report)
			}
			return registration != nil
		},
	})
}

func (r *router) close() {
	r.pools.Close()
	r.catalog.Close()
	if r.directory != nil {
		r.directory.connections.Close()
	}
}

// ready returns why clients cannot be served: there is no map, or this process is not registered, so that nobody would wait
// for it at a switch.
func (r *router) ready() error {
	if r.node.follower.Map() == nil {
		return errors.New("there is no shard map: make one with 'cleave map create', and add shards")
	}
	select {
	case <-r.node.registered:
		return nil
	default:
		return errors.New("this process is not registered in etcd yet")
	}
}

func (r *router) mapVersion() uint64 {
	if m := r.node.follower.Map(); m != nil {
		return m.Version()
	}
	return 0
}

// learnt notes what a shard says of itself at a login, and keeps the number of backends within what it allows.
func (r *router) learnt(number int, g shard.Greeting) {
	r.mu.Lock()
	r.greetings[number] = g
	routers := r.routers
	r.mu.Unlock()
	r.limit(number, g, routers)
}

func (r *router) limit(number int, g shard.Greeting, routers int) {
	p := r.node.config.Pool
	r.pools.SetLimit(number, pool.Budget(g.MaxConnections, g.ReservedConnections, routers, p.PerShard, p.Total))
}

// keepBudget shares the shards' connections with the other routers, however many there are.
func (r *router) keepBudget(ctx context.Context) {
	const interval = 10 * time.Second
	for {
		asking, cancel := context.WithTimeout(ctx, interval)
		routers, err := r.node.store.Routers(asking)
		cancel()
		if err == nil {
			r.mu.Lock()
			r.routers = max(1, len(routers))
			for number, g := range r.greetings {
				r.limit(number, g, r.routers)
			}
			r.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-r.counting:
		case <-time.After(interval):
		}
	}
}

// recount lets the shards' connections be shared anew at once, because there is one router more or less.
func (r *router) recount() {
	select {
	case r.counting <- struct{}{}:
	default: // it is about to happen
	}
}

// share fills in how the routers share a shard's connections.
func (r *router) share(c *api.Connections) {
	r.mu.Lock()
	c.Routers = r.routers
	r.mu.Unlock()
	p := r.node.config.Pool
	c.PerShard = p.PerShard
	if p.Total > 0 {
		c.PerShard = min(p.PerShard, p.Total)
	}
	c.ForRouters = pool.Budget(c.Max, c.Reserved, 1, 0, 0)
	c.Limit = pool.Budget(c.Max, c.Reserved, c.Routers, p.PerShard, p.Total)
}

// poolStats are the pools' figures as metrics have them.
func (r *router) poolStats() []observe.PoolStats {
	stats := r.pools.Stats()
	reported := make([]observe.PoolStats, len(stats))
	for i, s := range stats {
		reported[i] = observe.PoolStats{
			Shard: s.Name, Limit: s.Limit, Waiting: s.Waiting, InUse: s.InUse, Idle: s.Idle, LoggingIn: s.LoginsRunning, Closing: s.Closing,
			Waits: s.Waits, Timeouts: s.Timeouts, WaitTime: s.WaitTime, Logins: s.Opened, FailedLogins: s.FailedLogins,
			BreakerOpen: s.Breaker == pool.Open,
		}
	}
	return reported
}

// parseRules reads lines as pg_hba.conf has them.
func parseRules(lines []string) (auth.Rules, error) {
	specs := make([]auth.RuleSpec, len(lines))
	for i, line := range lines {
		fields := strings.Fields(line)
		const parts = 5
		if len(fields) != parts {
			return nil, fmt.Errorf("rule %d, %q: write TYPE DATABASE USER ADDRESS METHOD, such as hostssl all all 10.0.0.0/8 scram-sha-256", i+1, line)
		}
		connection, known := map[string]string{"host": "any", "hostssl": "tls", "hostnossl": "plain"}[fields[0]]
		if !known {
			return nil, fmt.Errorf("rule %d, %q: the type is host, hostssl or hostnossl", i+1, line)
		}
		specs[i] = auth.RuleSpec{
			Connection: connection, Databases: strings.Split(fields[1], ","), Users: strings.Split(fields[2], ","),
			Addresses: strings.Split(fields[3], ","), Method: fields[4],
		}
	}
	return auth.ParseRules(specs)
}
