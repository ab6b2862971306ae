package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/internal/txn"
)

// monitor looks at every instance of every shard, again and again, over connections that it keeps.
type monitor struct {
	config Config

	mu        sync.Mutex
	instances map[string]*instance // by shard's name and address
}

// instance is what is known of one PostgreSQL server.
type instance struct {
	conn    session // used by one look at a time
	up      bool
	failure string
	latency time.Duration
	health  shard.Health
	looked  time.Time
	seen    uint64 // the round in which it was last in the map
	returns uint64 // how often it has answered again
}

func newMonitor(config Config) *monitor {
	return &monitor{config: config, instances: map[string]*instance{}}
}

// run looks at all instances at every tick, and at once when the map changes.
func (m *monitor) run(ctx context.Context) {
	defer m.end()
	ticker := time.NewTicker(m.config.HealthInterval)
	defer ticker.Stop()
	for round := uint64(1); ; round++ {
		changed := m.config.Follower.Changed()
		if current := m.config.Follower.Map(); current != nil {
			m.look(ctx, current, round)
		}
		select {
		case <-ticker.C:
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// instanceKey tells instances apart, and an instance from itself when it is to be reached in another way.
func instanceKey(spec topology.ShardSpec, address string) string {
	return strings.Join([]string{spec.Name, address, spec.Database, spec.User, spec.Password.String(), spec.SSLMode, spec.SSLRootCert}, " ")
}

// look asks all instances of the map at once, and forgets those that are not in it any more.
func (m *monitor) look(ctx context.Context, current *topology.Map, round uint64) {
	var running sync.WaitGroup
	places := make(chan struct{}, maxParallel)
	for s := range current.Shards() {
		spec := s.Spec()
		addresses := []string{spec.Primary.Address}
		for _, replica := range spec.Replicas {
			addresses = append(addresses, replica.Address)
		}
		for _, address := range addresses {
			one := m.instance(instanceKey(spec, address), round)
			places <- struct{}{}
			running.Go(func() {
				defer func() { <-places }()
				m.ask(ctx, one, spec, address)
			})
		}
	}
	running.Wait()
	m.forget(round)
}

// instance returns what is kept of an instance, and marks it as being in the map.
func (m *monitor) instance(key string, round uint64) *instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.instances[key]
	if one == nil {
		one = &instance{}
		m.instances[key] = one
	}
	one.seen = round
	return one
}

func (m *monitor) forget(round uint64) {
	m.mu.Lock()
	var gone []session
	for key, one := range m.instances {
		if one.seen == round {
			continue
		}
		if one.conn != nil {
			gone = append(gone, one.conn)
		}
		delete(m.instances, key)
	}
	m.mu.Unlock()
	closeAll(gone)
}

// closeAll closes connections side by side: one to a server that does not answer takes its time.
func closeAll(sessions []session) {
	var closing sync.WaitGroup
	for _, s := range sessions {
		closing.Go(func() { closeQuietly(s) })
	}
	closing.Wait()
}

// ask looks at one instance. Only one look at a time uses its connection, so that is not under the lock.
func (m *monitor) ask(ctx context.Context, one *instance, spec topology.ShardSpec, address string) {
	ctx, cancel := context.WithTimeout(ctx, m.config.HealthTimeout)
	defer cancel()
	started := time.Now()
	health, err := m.ping(ctx, one, spec, address)
	took := time.Since(started)
	m.mu.Lock()
	defer m.mu.Unlock()
	wasUp, first := one.up, one.looked.IsZero()
	one.looked, one.up, one.latency, one.failure = time.Now(), err == nil, took, ""
	if err != nil {
		one.failure = err.Error()
	} else {
		one.health = health
	}
	if first && one.up && address == spec.Primary.Address && health.MaxPrepared < health.MaxConnections {
		m.config.Logger.Warn("max_prepared_transactions is low: transactions over several shards may fail; set it to max_connections and restart the server",
			"shard", spec.Name, "max_prepared_transactions", health.MaxPrepared, "max_connections", health.MaxConnections)
	}
	if first || wasUp == one.up || errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	if one.up {
		one.returns++
		m.config.Logger.Info("shard answers again", "shard", spec.Name, "address", address)
	} else {
		m.config.Logger.Warn("shard does not answer", "shard", spec.Name, "address", address, "error", err)
	}
}

func (m *monitor) ping(ctx context.Context, one *instance, spec topology.ShardSpec, address string) (shard.Health, error) {
	if one.conn == nil || one.conn.IsClosed() {
		conn, err := m.config.Access.ConnectTo(ctx, spec, address)
		if err != nil {
			return shard.Health{}, err
		}
		one.conn = conn
	}
	health, err := shard.Ping(ctx, one.conn)
	if err != nil {
		closeQuietly(one.conn)
		one.conn = nil
	}
	return health, err
}

// end gives all connections up.
func (m *monitor) end() { m.forget(0) } // no round has this number

// noteRecorded notes at once what the next look would find.
func (m *monitor) noteRecorded(name string, version uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, one := range m.instances {
		if strings.HasPrefix(key, name+" ") && !one.health.InRecovery {
			one.health.MapVersion = max(one.health.MapVersion, version)
		}
	}
}

// isBehind says whether the shard's primary was seen with an older record than this version.
func (m *monitor) isBehind(spec topology.ShardSpec, version uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.instances[instanceKey(spec, spec.Primary.Address)]
	return one != nil && one.up && one.health.MapVersion < version
}

// servers tells which servers the primaries of all shards are, and whether the home shard answers: it changes when one is another, was started anew, was promoted, or
// was away.
func (m *monitor) servers(current *topology.Map) (servers string, up bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	for s := range current.Shards() {
		spec := s.Spec()
		one := m.instances[instanceKey(spec, spec.Primary.Address)]
		if one == nil || one.looked.IsZero() {
			return "", false
		}
		if s == current.Home() {
			up = one.up
		}
		fmt.Fprintf(&b, "%s %s %d %d %d\n", spec.Name, spec.Primary.Address, one.health.Timeline, one.health.Started.UnixMicro(), one.returns)
	}
	return b.String(), up
}

// unwell says which shards do not answer, or answer slowly, and why. Those in maintenance take no part in anything.
func (m *monitor) unwell(current *topology.Map, slow time.Duration) (reasons []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s := range current.Shards() {
		spec := s.Spec()
		one := m.instances[instanceKey(spec, spec.Primary.Address)]
		switch {
		case s.State() == topology.Maintenance:
		case one == nil || one.looked.IsZero():
			reasons = append(reasons, fmt.Sprintf("shard %s has not been looked at yet", spec.Name))
		case !one.up:
			reasons = append(reasons, fmt.Sprintf("shard %s does not answer", spec.Name))
		case one.health.InRecovery:
			reasons = append(reasons, fmt.Sprintf("the server of shard %s is a replica, not a primary", spec.Name))
		case one.latency > slow:
			reasons = append(reasons, fmt.Sprintf("shard %s is slow: it answered after %s", spec.Name, one.latency.Round(time.Millisecond)))
		}
	}
	return reasons
}

// copyFindings are what the home shard keeps of copies of reference tables, as far as the map has the tables and the shards still.
func (m *monitor) copyFindings(current *topology.Map) []shard.CopyFinding {
	home := current.Home()
	if home == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.instances[instanceKey(home.Spec(), home.Spec().Primary.Address)]
	if one == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(one.health.Copies), func(f shard.CopyFinding) bool {
		name, err := topology.ParseTableName(f.Table)
		if err != nil || current.Shard(f.Shard) == nil {
			return true
		}
		t := current.Table(name.Schema, name.Name)
		return t == nil || t.Kind() != topology.Reference
	})
}

// differingCopies are those that are known to differ, as table and shard.
func (m *monitor) differingCopies(current *topology.Map) map[string]bool {
	differing := map[string]bool{}
	for _, f := range m.copyFindings(current) {
		differing[f.Table+" "+f.Shard] = f.Difference != nil
	}
	return differing
}

// hasPrepared says whether a declaration of tables has left, or has just now, a prepared transaction on a shard that answers.
func (m *monitor) hasPrepared() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range m.instances {
		if one.up && one.health.DeclarationPrepared && !one.health.InRecovery {
			return true
		}
	}
	return false
}

// describe fills in how a shard of the cluster is.
func (m *monitor) describe(status *api.ShardStatus, cluster string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if one := m.instances[instanceKey(status.ShardSpec, status.Primary.Address)]; one == nil || one.looked.IsZero() {
		status.Error = "not looked at yet"
	} else {
		status.Up, status.Error = one.up, one.failure
		status.LatencySeconds = one.latency.Seconds()
		status.ServerVersion, status.RecordedVersion = one.health.ServerVersion, one.health.MapVersion
		if one.up && one.health.InRecovery {
			status.Up, status.Error = false, "it is a replica, not a primary"
		}
		if one.health.MaxConnections > 0 {
			status.Connections = &api.Connections{Max: one.health.MaxConnections, Reserved: one.health.ReservedConnections}
			status.Transactions = transactionsOf(one.health, cluster)
		}
	}
	for _, replica := range status.Replicas {
		described := api.ReplicaStatus{Address: replica.Address, Error: "not looked at yet"}
		if one := m.instances[instanceKey(status.ShardSpec, replica.Address)]; one != nil && !one.looked.IsZero() {
			described.Up, described.Error = one.up, one.failure
			described.LagSeconds = one.health.ReplayLag.Seconds()
			if one.up && !one.health.InRecovery {
				described.Up, described.Error = false, "it is a primary, not a replica"
			}
		}
		status.ReplicaStatus = append(status.ReplicaStatus, described)
	}
}

// transactionsOf tells the cluster's own prepared transactions from others'.
func transactionsOf(health shard.Health, cluster string) *api.ShardTransactions {
	t := &api.ShardTransactions{MaxPrepared: health.MaxPrepared, Lost: health.Lost, Standbys: health.Standbys, Synchronous: health.Synchronous}
	for _, p := range health.Prepared { // the oldest first
		switch own := txn.IsPart(cluster, p.GID); {
		case own && t.OldestPreparedSeconds == 0:
			t.OldestPreparedSeconds = p.Age.Seconds()
		case !own && t.OtherPrepared == "":
			t.OtherPrepared, t.OtherPreparedSeconds = p.GID, p.Age.Seconds()
		}
	}
	return t
}
