package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/observe"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/reshard"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// Config says what a [Cluster] works with.
type Config struct {
	// Store is where the map is. Required.
	Store *store.Store
	// Follower has the map that this process works with. Required.
	Follower *store.Follower
	// Access says how to log in to shards, where the map does not.
	Access shard.Access
	// Provisioner makes servers for shards that are added without an address. Default: none, an address is needed.
	Provisioner Provisioner
	// Candidate is this process's name in the election of the leader. Default: "cleave".
	Candidate string
	// Endpoints of etcd, to be shown.
	Endpoints []string
	// Version of the program, to be shown.
	Version string
	// HealthInterval is how long from one look at a shard to the next. Default: 2 seconds.
	HealthInterval time.Duration
	// HealthTimeout is how long a shard may take to answer a look. Default: 1 second.
	HealthTimeout time.Duration
	// MendInterval is how long the leader lets go by from one look at the guards of tables to the next. Default: 1 minute.
	MendInterval time.Duration
	// CompareInterval is how long the leader lets go by from one look at the copies of a reference table to the next. Default: 10 minutes.
	CompareInterval time.Duration
	// AutoInterval is how long the leader lets go by from one look at what it may do by itself to the next. Default: 5 minutes.
	AutoInterval time.Duration
	// RouterPatience is how long declaring a table waits for the routers to hear of it. Default: 5 seconds.
	RouterPatience time.Duration
	// Router is the ID of this process's record, in whose name its leader takes holds over. Default: none, and holds of dead
	// routers stay.
	Router string
	// HoldGrace is how long a holder may be without a record before the leader takes its hold over, so that one who lost it for
	// a moment can come back. Default: 5 seconds.
	HoldGrace time.Duration
	// FinishHold finishes or undoes what the holder of tables left when it died, before they are released; DESIGN.md of package
	// store says what it must see to. An error has it called again later. Default: there is nothing to finish.
	FinishHold func(context.Context, topology.Hold) error
	// Examine says why statements would be refused if a client ran them, with that search path, before they go from shard to shard. Default:
	// none would.
	Examine func(ctx context.Context, statements, searchPath []string) error
	// Share fills in how routers share the connections that a shard allows. Default: nothing is said of it.
	Share func(*api.Connections)
	// Moves count what moves do. Default: nobody reads them.
	Moves *observe.Moves
	// Logger hears what the loops find. Default: slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Candidate == "" {
		c.Candidate = "cleave"
	}
	if c.HealthInterval == 0 {
		c.HealthInterval = 2 * time.Second
	}
	if c.HealthTimeout == 0 {
		c.HealthTimeout = time.Second
	}
	if c.MendInterval == 0 {
		c.MendInterval = time.Minute
	}
	if c.CompareInterval == 0 {
		c.CompareInterval = 10 * time.Minute
	}
	if c.AutoInterval == 0 {
		c.AutoInterval = 5 * time.Minute
	}
	if c.HoldGrace == 0 {
		c.HoldGrace = 5 * time.Second
	}
	if c.FinishHold == nil {
		c.FinishHold = func(context.Context, topology.Hold) error { return nil }
	}
	if c.Examine == nil {
		c.Examine = func(context.Context, []string, []string) error { return nil }
	}
	if c.Share == nil {
		c.Share = func(*api.Connections) {}
	}
	if c.RouterPatience == 0 {
		c.RouterPatience = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Provisioner makes and removes servers for shards of a local cluster.
type Provisioner interface {
	// Provision starts a server for a new shard and returns the description with its addresses filled in.
	Provision(ctx context.Context, spec topology.ShardSpec) (topology.ShardSpec, error)
	// Retire removes the server of a shard that is in the map no more, if Provision made it. It says where the data were
	// kept, if there was something in them.
	Retire(ctx context.Context, name string) (kept string, err error)
}

// Cluster has the operations on a cluster.
type Cluster struct {
	config  Config
	monitor *monitor
	// adding keeps shards from being added side by side, so that each is compared with the ones before it. Another process
	// may still add one; then only the comparison is missing, and the next look at the map tells.
	adding sync.Mutex
	// reports are recent looks at shards, so that adding several does not look at each of them again and again.
	reportsLock sync.Mutex
	reports     map[int]recentReport // by the shard's number
	// left are tables that a dead router held: it may have been repairing their copies.
	leftLock sync.Mutex
	left     []topology.TableName
	// work is what shards had done when they were measured, by their names.
	workLock sync.Mutex
	work     map[string]workReading
	// mover carries out moves while this process leads.
	mover *reshard.Mover
}

// recentReport is a look at a shard, and when and where that was.
type recentReport struct {
	report  *shard.Report
	address string
	taken   time.Time
}

// reportAge is how long a look at a shard stands in for another.
const reportAge = time.Minute

// New returns the operations. Nothing runs until [Cluster.Run].
func New(config Config) *Cluster {
	config = config.withDefaults()
	c := &Cluster{config: config, monitor: newMonitor(config), reports: map[int]recentReport{}, work: map[string]workReading{}}
	c.mover = reshard.New(reshard.Config{Store: config.Store, Router: config.Router, Access: config.Access, Rename: plan.Renamed, Metrics: config.Moves, Logger: config.Logger})
	c.config.FinishHold = func(ctx context.Context, hold topology.Hold) error {
		if err := c.finishTransactions(ctx); err != nil {
			return err
		}
		if err := c.finishHold(ctx, hold); err != nil {
			return err
		}
		return config.FinishHold(ctx, hold)
	}
	return c
}

// Run looks at the shards and, while this process leads, keeps their records up to date, until the context ends.
func (c *Cluster) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { c.monitor.run(ctx) })
	loops.Go(func() { c.lead(ctx) })
	loops.Wait()
}

// Map returns the newest map. While etcd is away, or has lost it, that is the last one known; if none is known, the reason.
func (c *Cluster) Map(ctx context.Context) (*topology.Map, error) {
	last := c.config.Follower.Map()
	if last != nil && !c.config.Follower.Status().Connected {
		return last, nil // asking would only take time
	}
	m, err := c.config.Store.Map(ctx)
	if last != nil && (errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrNoMap)) {
		return last, nil
	}
	return m, err
}

// applied waits until this process works with the version that it just made, so that what it is asked next is answered
// from that version. If it takes long the change stands all the same.
func (c *Cluster) applied(ctx context.Context, version uint64) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := c.config.Follower.Wait(ctx, version); err != nil {
		c.config.Logger.Warn("a change of the map takes long to come back", "version", version, "error", err)
	}
}

// change publishes the next version of the map.
func (c *Cluster) change(ctx context.Context, decide func(*topology.Map) ([]topology.Change, error)) (*topology.Map, error) {
	m, err := c.config.Store.Update(ctx, func(m *topology.Map) (*topology.Map, error) {
		changes, err := decide(m)
		if err != nil {
			return nil, invalidUnlessTyped(err)
		}
		next, err := m.Next(changes...)
		return next, invalidUnlessTyped(err)
	})
	if err != nil {
		return nil, err
	}
	c.applied(ctx, m.Version())
	return m, nil
}

// inspected is what looking at one shard gave.
type inspected struct {
	spec   topology.ShardSpec
	report *shard.Report
	record *shard.Recorded
	// findings of a look that is for those alone, sequences and prepared transactions of others.
	findings  []api.Finding
	sequences []shard.SmallSequence
	prepared  []string
	err       error
}

// maxParallel bounds how many shards are asked at once.
const maxParallel = 32

// each runs look for all of the shards, many at once, and returns what came out in their order.
func each(specs []topology.ShardSpec, look func(topology.ShardSpec) inspected) []inspected {
	results := make([]inspected, len(specs))
	places := make(chan struct{}, maxParallel)
	var running sync.WaitGroup
	for i, spec := range specs {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			results[i] = look(spec)
			results[i].spec = spec
		})
	}
	running.Wait()
	return results
}

const (
	// lookTimeout bounds a thorough look at one shard.
	lookTimeout = 20 * time.Second
	// recordTimeout bounds telling one shard what it owns: a million pins take some ten seconds at first.
	recordTimeout = 2 * time.Minute
)

// inspectAll looks at shards thoroughly.
func (c *Cluster) inspectAll(ctx context.Context, specs []topology.ShardSpec) []inspected {
	return each(specs, func(spec topology.ShardSpec) inspected {
		var result inspected
		result.err = c.connected(ctx, spec, func(ctx context.Context, s session) (err error) {
			result.report, err = shard.Inspect(ctx, s)
			return err
		})
		return result
	})
}

// recentReports returns looks at shards that may be a minute old.
func (c *Cluster) recentReports(ctx context.Context, specs []topology.ShardSpec) []inspected {
	looks := make([]inspected, len(specs))
	var missing []topology.ShardSpec
	var places []int
	c.reportsLock.Lock()
	for i, spec := range specs {
		if recent, ok := c.reports[spec.Number]; ok && recent.address == spec.Primary.Address && time.Since(recent.taken) < reportAge {
			looks[i] = inspected{spec: spec, report: recent.report}
			continue
		}
		missing, places = append(missing, spec), append(places, i)
	}
	c.reportsLock.Unlock()
	for i, look := range c.inspectAll(ctx, missing) {
		looks[places[i]] = look
		if look.err == nil {
			c.noteReport(look.spec, look.report)
		}
	}
	return looks
}

func (c *Cluster) noteReport(spec topology.ShardSpec, report *shard.Report) {
	c.reportsLock.Lock()
	defer c.reportsLock.Unlock()
	c.reports[spec.Number] = recentReport{report: report, address: spec.Primary.Address, taken: time.Now()}
}

// readAll reads the records of shards.
func (c *Cluster) readAll(ctx context.Context, specs []topology.ShardSpec) []inspected {
	return each(specs, func(spec topology.ShardSpec) inspected {
		var result inspected
		result.err = c.connected(ctx, spec, func(ctx context.Context, s session) (err error) {
			result.record, err = shard.Read(ctx, s)
			return err
		})
		return result
	})
}

// connected runs work with a connection to the shard's primary.
func (c *Cluster) connected(ctx context.Context, spec topology.ShardSpec, work func(context.Context, session) error) error {
	return c.connectedFor(ctx, lookTimeout, spec, work)
}

func (c *Cluster) connectedFor(ctx context.Context, limit time.Duration, spec topology.ShardSpec, work func(context.Context, session) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := c.config.Access.Connect(ctx, spec)
	if err != nil {
		return err
	}
	defer closeQuietly(conn)
	return work(ctx, conn)
}

func specsOf(m *topology.Map) []topology.ShardSpec {
	var specs []topology.ShardSpec
	if m != nil {
		for s := range m.Shards() {
			specs = append(specs, s.Spec())
		}
	}
	return specs
}

// unreachable is the finding about a shard that could not be asked.
func unreachable(spec topology.ShardSpec, severity api.Severity, what string, err error) api.Finding {
	return api.Finding{
		Severity: severity, Code: "unreachable", Shard: spec.Name,
		Message: fmt.Sprintf("the server at %s could not be asked, so %s: %v", spec.Primary.Address, what, err),
		Hint:    "Look at the server and its log, and at the address.",
	}
}
