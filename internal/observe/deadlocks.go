package observe

import "github.com/prometheus/client_golang/prometheus"

// NewDeadlocks returns a counter of the deadlocks across shards that were broken by ending a transaction of this process.
func NewDeadlocks() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "cleave_deadlocks_broken_total", Help: "Deadlocks across shards that were broken by ending a transaction of this process.",
	})
}
