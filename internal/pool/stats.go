package pool

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// ShardStats are the figures of one shard. Those that count begin at 0 when the shard is first seen.
type ShardStats struct {
	Shard         int
	Name, Address string
	// Limit is the one in force.
	Limit int
	// InUse, Idle, Closing and LoginsRunning together are never more than Limit, unless it was lowered a moment ago.
	InUse, Idle, Closing, LoginsRunning int
	// Waiting is how many wait for a backend.
	Waiting int
	// Opened counts logins that succeeded, FailedLogins those that did not, Closed the backends that were closed.
	Opened, FailedLogins, Closed uint64
	// Waits counts those who found no idle backend, WaitTime is how long all of them waited, Timeouts counts those who gave
	// up, whether their time was over or their context ended.
	Waits, Timeouts uint64
	WaitTime        time.Duration
	// Breaker is whether logins are attempted; NextAttempt is when, if it is open.
	Breaker     BreakerState
	NextAttempt time.Time
	// LastError is what the last failed login failed of, at LastErrorAt; it stays when logins succeed again.
	LastError   string
	LastErrorAt time.Time
	// Roles is in the order of names.
	Roles []RoleStats
}

// RoleStats are the figures of one role on one shard.
type RoleStats struct {
	User                 string
	InUse, Idle, Waiting int
}

// Stats returns the figures of all shards of the map, in the order of their numbers.
func (p *Pools) Stats() []ShardStats {
	shards := p.current()
	stats := make([]ShardStats, len(shards))
	for i, s := range shards {
		stats[i] = s.stats(time.Now())
	}
	return stats
}

func (s *shardPool) stats(now time.Time) ShardStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := ShardStats{
		Shard: s.number, Name: s.spec.Name, Address: s.spec.Primary.Address, Limit: s.limit(),
		InUse: s.counts[lent], Idle: s.counts[idle], Closing: s.counts[closing], LoginsRunning: s.logins, Waiting: s.queue.length,
		Opened: s.figures.opened, FailedLogins: s.figures.failedLogins, Closed: s.figures.closed,
		Waits: s.figures.waits, Timeouts: s.figures.timeouts, WaitTime: s.figures.waited,
		Breaker: s.breaker.state(now), LastError: s.figures.lastError, LastErrorAt: s.figures.lastErrorAt,
	}
	if stats.Breaker == Open {
		stats.NextAttempt = s.breaker.until
	}
	for _, r := range slices.SortedFunc(maps.Values(s.roles), func(a, b *role) int { return cmp.Compare(a.user, b.user) }) {
		stats.Roles = append(stats.Roles, RoleStats{User: r.user, InUse: r.counts[lent], Idle: r.counts[idle], Waiting: r.waiting.length})
	}
	return stats
}
