// Package observe turns what a process knows into metrics.
//
// [NewRegistry] has the metrics of the process itself; [Cluster] adds those of the cluster, and [Pools] those of a router's
// connections, taken from a status at the moment of asking, so nothing is counted twice and nothing goes stale. [Statements]
// and [ShardStats] are where statements are counted. It asks nobody: what it reports is what the process knows
// already. It does not serve HTTP (package admin does). Safe for concurrent use. Names and labels are part of the interface:
// docs/operating.md lists them.
package observe

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/cleavedb/cleave/internal/api"
)

// NewRegistry returns a registry with the metrics of the process.
func NewRegistry(version string) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "cleave_build_info", Help: "Always 1; the label has the program's version.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	registry.MustRegister(build)
	return registry
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("cleave_"+name, help, labels, nil)
}

var (
	mapVersion      = describe("map_version", "Version of the shard map that this process works with; 0: none yet.")
	storeConnected  = describe("store_connected", "Whether etcd could be reached at the last look.")
	keyspaces       = describe("keyspaces", "Number of keyspaces.")
	tables          = describe("tables", "Number of tables in the map.")
	findings        = describe("findings", "Number of findings in the status, by severity.", "severity")
	shardUp         = describe("shard_up", "Whether the shard's primary answered at the last look.", "shard")
	shardLatency    = describe("shard_latency_seconds", "How long the shard's primary took to answer at the last look.", "shard")
	shardRecorded   = describe("shard_recorded_map_version", "Map version at which the shard has recorded what it owns.", "shard")
	shardRanges     = describe("shard_ranges", "Ranges that the shard owns.", "shard")
	shardPins       = describe("shard_pins", "Pinned keys that the shard owns.", "shard")
	shardWeight     = describe("shard_weight", "Weight of the shard.", "shard")
	shardState      = describe("shard_state", "Always 1; the label has the shard's state.", "shard", "state")
	replicaUp       = describe("replica_up", "Whether the replica answered at the last look.", "shard", "address")
	replicaLag      = describe("replica_lag_seconds", "How far the replica is behind its primary.", "shard", "address")
	allDescriptions = []*prometheus.Desc{
		mapVersion, storeConnected, keyspaces, tables, findings, shardUp, shardLatency, shardRecorded, shardRanges, shardPins,
		shardWeight, shardState, replicaUp, replicaLag,
	}
)

// Cluster is a collector of the cluster's metrics.
type Cluster struct{ snapshot func() api.Status }

// NewCluster returns a collector that takes its figures from the snapshot.
func NewCluster(snapshot func() api.Status) *Cluster { return &Cluster{snapshot} }

// Describe lists the metrics.
func (c *Cluster) Describe(to chan<- *prometheus.Desc) {
	for _, d := range allDescriptions {
		to <- d
	}
}

// Collect takes a snapshot and reports it.
func (c *Cluster) Collect(to chan<- prometheus.Metric) {
	report := func(d *prometheus.Desc, value float64, labels ...string) { to <- gauge(d, value, labels...) }
	status := c.snapshot()
	report(mapVersion, float64(status.MapVersion))
	report(storeConnected, truth(status.Store.Connected))
	report(keyspaces, float64(status.Keyspaces))
	report(tables, float64(status.Tables))
	bySeverity := map[api.Severity]int{api.Problem: 0, api.Warning: 0}
	for _, f := range status.Findings {
		bySeverity[f.Severity]++
	}
	for severity, n := range bySeverity {
		report(findings, float64(n), string(severity))
	}
	for _, s := range status.Shards {
		report(shardUp, truth(s.Up), s.Name)
		report(shardLatency, s.LatencySeconds, s.Name)
		report(shardRecorded, float64(s.RecordedVersion), s.Name)
		report(shardRanges, float64(s.Ranges), s.Name)
		report(shardPins, float64(s.Pins), s.Name)
		report(shardWeight, s.Weight, s.Name)
		report(shardState, 1, s.Name, string(s.State))
		for _, r := range s.ReplicaStatus {
			report(replicaUp, truth(r.Up), s.Name, r.Address)
			report(replicaLag, r.LagSeconds, s.Name, r.Address)
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
