package control

import (
	"slices"
	"testing"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
)

// TestTransactionFindings: what a status says of transactions over several shards, before it hurts and after.
func TestTransactionFindings(t *testing.T) {
	good := api.ShardTransactions{MaxPrepared: 100}
	for name, c := range map[string]struct {
		change   func(*api.ShardTransactions, *topology.ShardSpec)
		severity api.Severity
		codes    []string
	}{
		"all is well":         {func(*api.ShardTransactions, *topology.ShardSpec) {}, "", nil},
		"none can be":         {func(s *api.ShardTransactions, _ *topology.ShardSpec) { s.MaxPrepared = 0 }, api.Problem, []string{"max_prepared_transactions"}},
		"few can be":          {func(s *api.ShardTransactions, _ *topology.ShardSpec) { s.MaxPrepared = 99 }, api.Warning, []string{"max_prepared_transactions"}},
		"a standby":           {func(s *api.ShardTransactions, _ *topology.ShardSpec) { s.Standbys = 1 }, api.Warning, []string{"asynchronous_replicas"}},
		"a replica":           {func(_ *api.ShardTransactions, m *topology.ShardSpec) { m.Replicas = make([]topology.InstanceSpec, 1) }, api.Warning, []string{"asynchronous_replicas"}},
		"one that is awaited": {func(s *api.ShardTransactions, _ *topology.ShardSpec) { s.Standbys, s.Synchronous = 1, true }, "", nil},
		"one under way":       {func(s *api.ShardTransactions, _ *topology.ShardSpec) { s.OldestPreparedSeconds = 5 }, "", nil},
		"one in doubt":        {func(s *api.ShardTransactions, _ *topology.ShardSpec) { s.OldestPreparedSeconds = 60 }, api.Problem, []string{"transaction_in_doubt"}},
		"one lost":            {func(s *api.ShardTransactions, _ *topology.ShardSpec) { s.Lost = 1 }, api.Problem, []string{"transaction_lost"}},
	} {
		t.Run(name, func(t *testing.T) {
			status := api.ShardStatus{Up: true, Connections: &api.Connections{Max: 100}, RecordedVersion: 1}
			now := good
			c.change(&now, &status.ShardSpec)
			status.Transactions = &now
			var codes []string
			for _, f := range shardFindings(status, 1) {
				codes = append(codes, f.Code)
				if f.Severity != c.severity || f.Hint == "" {
					t.Errorf("%+v", f)
				}
			}
			if !slices.Equal(codes, c.codes) {
				t.Errorf("findings are %q, want %q", codes, c.codes)
			}
		})
	}
}
