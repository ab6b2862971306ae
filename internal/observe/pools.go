package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// PoolStats are the figures of one shard's backends in this process, as [Pools] reports them. Those that count begin at 0 when
// the shard is first seen.
type PoolStats struct {
	Shard string
	// Limit is the most backends that there may be, Waiting how many clients wait for one.
	Limit, Waiting int
	// InUse, Idle, LoggingIn and Closing are the backends, by what they do.
	InUse, Idle, LoggingIn, Closing int
	// Waits counts the clients that found no idle backend, WaitTime is how long all of them waited, Timeouts counts those that
	// gave up.
	Waits, Timeouts uint64
	WaitTime        time.Duration
	// Logins and FailedLogins count those that have ended.
	Logins, FailedLogins uint64
	// BreakerOpen: the shard could not be logged in to, and is left alone for a while.
	BreakerOpen bool
}

var (
	clientsConnected = describe("clients", "Clients that are connected to this process, those included that are logging in.")
	poolBackends     = describe("pool_backends", "Connections to the shard, by what they do: in_use, idle, logging_in, closing.", "shard", "state")
	poolLimit        = describe("pool_limit", "Most connections to the shard that this process may have.", "shard")
	poolWaiting      = describe("pool_waiting", "Clients that wait for a connection to the shard.", "shard")
	poolWaits        = describe("pool_waits_total", "Times that a client found no idle connection to the shard.", "shard")
	poolWaitTime     = describe("pool_wait_seconds_total", "How long clients waited for connections to the shard.", "shard")
	poolTimeouts     = describe("pool_timeouts_total", "Times that a client gave up waiting for a connection to the shard.", "shard")
	poolLogins       = describe("pool_logins_total", "Logins to the shard, by result: ok, failed.", "shard", "result")
	poolBreakerOpen  = describe("pool_breaker_open", "Whether logins to the shard are put off because they failed.", "shard")
	poolDescriptions = []*prometheus.Desc{
		clientsConnected, poolBackends, poolLimit, poolWaiting, poolWaits, poolWaitTime, poolTimeouts, poolLogins, poolBreakerOpen,
	}
)

// Pools is a collector of a router's clients and of its connections to the shards.
type Pools struct {
	clients func() int
	stats   func() []PoolStats
}

// NewPools returns a collector that takes its figures from the functions at the moment of asking.
func NewPools(clients func() int, stats func() []PoolStats) *Pools { return &Pools{clients, stats} }

// Describe lists the metrics.
func (p *Pools) Describe(to chan<- *prometheus.Desc) {
	for _, d := range poolDescriptions {
		to <- d
	}
}

// Collect reports the clients, and every shard's connections.
func (p *Pools) Collect(to chan<- prometheus.Metric) {
	to <- gauge(clientsConnected, float64(p.clients()))
	for _, s := range p.stats() {
		s.collect(to)
	}
}

func (s PoolStats) collect(to chan<- prometheus.Metric) {
	to <- gauge(poolBackends, float64(s.InUse), s.Shard, "in_use")
	to <- gauge(poolBackends, float64(s.Idle), s.Shard, "idle")
	to <- gauge(poolBackends, float64(s.LoggingIn), s.Shard, "logging_in")
	to <- gauge(poolBackends, float64(s.Closing), s.Shard, "closing")
	to <- gauge(poolLimit, float64(s.Limit), s.Shard)
	to <- gauge(poolWaiting, float64(s.Waiting), s.Shard)
	to <- counter(poolWaits, s.Waits, s.Shard)
	to <- counter(poolWaitTime, s.WaitTime.Seconds(), s.Shard)
	to <- counter(poolTimeouts, s.Timeouts, s.Shard)
	to <- counter(poolLogins, s.Logins, s.Shard, "ok")
	to <- counter(poolLogins, s.FailedLogins, s.Shard, "failed")
	to <- gauge(poolBreakerOpen, truth(s.BreakerOpen), s.Shard)
}

func gauge(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}
