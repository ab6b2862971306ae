package observe

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
)

func status() api.Status {
	up := api.ShardStatus{ShardSpec: topology.ShardSpec{Name: "s1", Weight: 2, State: topology.Draining}, Ranges: 5, Pins: 7, Up: true, LatencySeconds: 0.25, RecordedVersion: 8}
	up.ReplicaStatus = []api.ReplicaStatus{{Address: "r:1", Up: true, LagSeconds: 1.5}}
	down := api.ShardStatus{ShardSpec: topology.ShardSpec{Name: "s2", Weight: 1, State: topology.Active}}
	return api.Status{
		MapVersion: 9, Keyspaces: 3, Tables: 4, Store: api.StoreStatus{Connected: true}, Shards: []api.ShardStatus{up, down},
		Findings: []api.Finding{{Severity: api.Problem}, {Severity: api.Warning}, {Severity: api.Warning}},
	}
}

func poolStats() []PoolStats {
	return []PoolStats{{
		Shard: "s1", Limit: 46, Waiting: 1, InUse: 2, Idle: 3, LoggingIn: 4, Closing: 5, Waits: 6, Timeouts: 7, WaitTime: 1500 * time.Millisecond,
		Logins: 8, FailedLogins: 9, BreakerOpen: true,
	}}
}

func rowStats() RowStats {
	return RowStats{Memory: 12, MemoryLimit: 13, Files: 14, FileBytes: 15, Spills: 16, Refused: 17}
}

func moveStats() *Moves {
	m := NewMoves()
	m.Watch(func() []MoveState {
		return []MoveState{{ID: "a", From: "s1", To: "s2", Phase: "copying", Paused: true, LagBytes: 21, Copied: 0.5, Left: 3 * time.Second}, {ID: "b", From: "s2", To: "s1", Phase: "copying", Stopped: true}}
	})
	m.Copied(22, 23)
	m.Copied(1, 1)
	m.Cleaned(24)
	m.Switched(20 * time.Millisecond)
	m.TakenBack("settle", time.Second)
	m.Throttled("load", 1500*time.Millisecond)
	m.Stopped()
	m.Ended("done")
	return m
}

// samples returns what a scrape gives, one line each.
func samples(t *testing.T) []string {
	t.Helper()
	statements, shards := NewStatements(StatementsConfig{}), NewShardStats(func(int) string { return "s1" })
	shards.Observe(1, time.Millisecond, 1, 1, false)
	registry := NewRegistry("v1")
	registry.MustRegister(NewCluster(status), NewPools(func() int { return 11 }, poolStats), NewRows(rowStats), statements, shards, moveStats())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "cleave_") {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			lines = append(lines, fmt.Sprintf("%s{%s} %v", family.GetName(), strings.Join(labels, ","), m.GetGauge().GetValue()+m.GetCounter().GetValue()+float64(m.GetHistogram().GetSampleCount())))
		}
	}
	return lines
}

func TestWhatIsKnownIsReported(t *testing.T) {
	lines := samples(t)
	for _, want := range []string{
		"cleave_build_info{version=v1} 1", "cleave_map_version{} 9", "cleave_store_connected{} 1", "cleave_keyspaces{} 3", "cleave_tables{} 4",
		"cleave_findings{severity=problem} 1", "cleave_findings{severity=warning} 2",
		"cleave_shard_up{shard=s1} 1", "cleave_shard_up{shard=s2} 0", "cleave_shard_latency_seconds{shard=s1} 0.25",
		"cleave_shard_recorded_map_version{shard=s1} 8", "cleave_shard_ranges{shard=s1} 5", "cleave_shard_pins{shard=s1} 7",
		"cleave_shard_weight{shard=s1} 2", "cleave_shard_state{shard=s1,state=draining} 1",
		"cleave_replica_up{address=r:1,shard=s1} 1", "cleave_replica_lag_seconds{address=r:1,shard=s1} 1.5",
		"cleave_clients{} 11", "cleave_pool_limit{shard=s1} 46", "cleave_pool_waiting{shard=s1} 1",
		"cleave_pool_backends{shard=s1,state=in_use} 2", "cleave_pool_backends{shard=s1,state=idle} 3",
		"cleave_pool_backends{shard=s1,state=logging_in} 4", "cleave_pool_backends{shard=s1,state=closing} 5",
		"cleave_pool_waits_total{shard=s1} 6", "cleave_pool_timeouts_total{shard=s1} 7", "cleave_pool_wait_seconds_total{shard=s1} 1.5",
		"cleave_pool_logins_total{result=ok,shard=s1} 8", "cleave_pool_logins_total{result=failed,shard=s1} 9", "cleave_pool_breaker_open{shard=s1} 1",
		"cleave_moves{phase=copying} 2", "cleave_moves_paused{} 1", "cleave_moves_stopped{} 1", "cleave_moves_ended_total{phase=done} 1", "cleave_move_stops_total{} 1",
		"cleave_move_lag_bytes{from=s1,move=a,to=s2} 21", "cleave_move_copied_ratio{from=s1,move=a,to=s2} 0.5", "cleave_move_copy_left_seconds{from=s1,move=a,to=s2} 3", "cleave_move_rows_copied_total{} 23", "cleave_move_bytes_copied_total{} 24", "cleave_move_rows_cleaned_total{} 24",
		"cleave_move_switch_held_seconds{} 2", "cleave_move_switches_total{} 1", "cleave_move_switches_taken_back_total{step=settle} 1", "cleave_move_throttled_seconds_total{reason=load} 1.5",
		"cleave_rows_memory_bytes{} 12", "cleave_rows_memory_limit_bytes{} 13", "cleave_rows_files{} 14", "cleave_rows_file_bytes{} 15", "cleave_rows_spills_total{} 16", "cleave_rows_refused_total{} 17",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("%s is missing in\n%s", want, strings.Join(lines, "\n"))
		}
	}
}

// TestEveryMetricIsDocumented holds the page for operators to the names that are reported.
func TestEveryMetricIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range samples(t) {
		name, _, _ := strings.Cut(line, "{")
		if !regexp.MustCompile("`" + name + "[`{]").Match(page) {
			t.Errorf("docs/operating.md does not name %s", name)
		}
	}
}

// TestMovesOfNobody: who does not lead carries nothing out, and says so.
func TestMovesOfNobody(t *testing.T) {
	registry := NewRegistry("v1")
	m := moveStats()
	m.Watch(nil)
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		switch family.GetName() {
		case "cleave_moves", "cleave_move_lag_bytes":
			t.Errorf("%s is reported: %v", family.GetName(), family)
		case "cleave_move_switch_held_seconds":
			h := family.GetMetric()[0].GetHistogram()
			for _, b := range h.GetBucket() {
				if want := map[bool]uint64{true: 1}[b.GetUpperBound() >= 0.02] + map[bool]uint64{true: 1}[b.GetUpperBound() >= 1]; b.GetCumulativeCount() != want {
					t.Errorf("%d attempts held nobody longer than %g s, not %d", b.GetCumulativeCount(), b.GetUpperBound(), want)
				}
			}
			if h.GetSampleSum() != 1.02 || len(h.GetBucket()) != len(heldBuckets) {
				t.Errorf("held for %g s in all, in %d buckets", h.GetSampleSum(), len(h.GetBucket()))
			}
		}
	}
}
