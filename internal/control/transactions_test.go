package control

import (
	"slices"
	"testing"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/internal/txn"
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
		"others' for now": {func(s *api.ShardTransactions, _ *topology.ShardSpec) {
			s.OtherPrepared, s.OtherPreparedSeconds = "x", 5
		}, "", nil},
		"others' for long": {
			func(s *api.ShardTransactions, _ *topology.ShardSpec) {
				s.OtherPrepared, s.OtherPreparedSeconds = "x", 60
			}, api.Warning, []string{"others_prepared"},
		},
		"one lost": {func(s *api.ShardTransactions, _ *topology.ShardSpec) { s.Lost = 1 }, api.Problem, []string{"transaction_lost"}},
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

// TestWhoseIsPrepared: a status speaks of the same transactions as their list, and of others as such.
func TestWhoseIsPrepared(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	p := startProcess(t, startEtcd(t), nil)
	clusterOf(t, p, []*localpg.Server{server})
	seen := func() api.ShardTransactions {
		status, err := p.Status(t.Context())
		if err != nil || len(status.Shards) != 1 || status.Shards[0].Transactions == nil {
			return api.ShardTransactions{}
		}
		return *status.Shards[0].Transactions
	}
	m, err := p.Map(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	made := txn.Prefix(m.Cluster()) + "made/up"
	execute(t, server, "BEGIN; CREATE TABLE a (); PREPARE TRANSACTION '"+made+"'")
	execute(t, server, "BEGIN; CREATE TABLE b (); PREPARE TRANSACTION 'cleave/ffffffff/1/1/1/1/router/random/1'")
	eventually(t, "the oldest of others' is seen", func() bool { return seen().OtherPrepared == made && seen().OtherPreparedSeconds > 0 })
	if own := seen().OldestPreparedSeconds; own != 0 {
		t.Errorf("one of the cluster's has been prepared for %v seconds", own)
	}
	gid := txn.PartName(txn.NewName(m.Cluster(), 1, 99, 1, 1, "router").String(), 1) // of another timeline, so that nobody ends it
	execute(t, server, "BEGIN; CREATE TABLE c (); PREPARE TRANSACTION '"+gid+"'")
	eventually(t, "the cluster's own is seen", func() bool { return seen().OldestPreparedSeconds > 0 && seen().OtherPrepared == made })
}
