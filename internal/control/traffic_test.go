package control

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/internal/traffic"
)

// reporting registers a router that reports so many statements a second of a range.
func reporting(t *testing.T, s *store.Store, id string, report any) *store.Registration {
	t.Helper()
	router, err := s.Register(t.Context(), store.Router{ID: id, Name: id})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = router.Close() })
	body, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	before := reportsIn(t, s)
	router.SetTraffic(body)
	eventually(t, "the report is stored", func() bool { return reportsIn(t, s) == before+1 })
	return router
}

func reportsIn(t *testing.T, s *store.Store) int {
	t.Helper()
	reports, err := s.Traffic(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(reports)
}

func trafficOf(keyspace string, unbound float64, ranges ...traffic.RangeReport) traffic.Report {
	return traffic.Report{Keyspaces: []traffic.KeyspaceReport{{Name: keyspace, Ranges: ranges, Unbound: unbound}}}
}

// TestHotRangesAreDivided: all ranges have the same size, and routers say that one of them has nearly all of the shard's load. It is proposed for a split, and no other is; without routers that count, all have as much as
// their sizes.
func TestHotRangesAreDivided(t *testing.T) {
	l, _ := leadIdly(t)
	eighths := api.SplitRanges{}
	for i := range uint64(7) {
		eighths.At = append(eighths.At, []string{fmt.Sprintf("%016x", (i+1)<<61)})
	}
	if _, err := l.SplitRanges(t.Context(), keyspaceOfOrders, eighths); err != nil {
		t.Fatal(err)
	}
	m, err := l.config.Store.Map(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k := m.Keyspace(keyspaceOfOrders)
	ranges := k.Spec().Ranges
	l.workLock.Lock()
	l.work["s1"] = workReading{at: time.Now(), rate: map[string]float64{"public.orders": 1000}} // as if it had been looked at a minute ago
	l.workLock.Unlock()
	l.set(api.UpdateAutomation{On: ptr(true), Moves: ptr("off"), SplitLoad: ptr(500.0)})
	l.round()
	if proposed := l.stored().Proposals; len(proposed) > 0 {
		t.Fatalf("%+v, and nothing was counted", proposed)
	}

	hot := ranges[2]
	told := traffic.RangeReport{From: hot.From, To: hot.To, PerSecond: 45}
	gone := reporting(t, l.config.Store, "one", trafficOf(keyspaceOfOrders, 5, told))
	reporting(t, l.config.Store, "other", trafficOf(keyspaceOfOrders, 5, told))
	reporting(t, l.config.Store, "newer", []string{"of a version that is to come"})
	reporting(t, l.config.Store, "idle", traffic.Report{})
	l.set(api.UpdateAutomation{SplitLoad: ptr(501.0)}) // so that it looks again
	l.round()
	proposed := l.stored().Proposals
	from, to := hashOf(t, hot.From), hashOf(t, hot.To)
	middle := fmt.Sprintf("cleave split --keyspace %s --at %016x", keyspaceOfOrders, from+(to-from)/2)
	// Nine of ten statements are for the range, and its part by size of those that are for none.
	load := 900 + 100/float64(len(ranges))
	if len(proposed) != 1 || proposed[0].What != "split" || proposed[0].Command != middle || !strings.Contains(proposed[0].Why, fmt.Sprintf("%.0f statements", load)) {
		t.Fatalf("%+v, wanted %s for a load of %v", proposed, middle, load)
	}
	busy, err := l.Traffic(t.Context(), k)
	if err != nil || len(busy) != 1 || busy[0].StatementsPerSecond != 90 || busy[0].From.String() != hot.From.String() {
		t.Errorf("%v, %+v", err, busy)
	}

	// A plan by load has the same units: the shard's own load, whatever routers count.
	plan, err := l.PlanRebalance(t.Context(), api.PlanRebalance{Measure: "load", Split: true})
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, s := range plan.Shards {
		sum += s.LoadBefore
	}
	if math.Abs(sum-1000) > 1 || len(plan.Moves) != 1 || plan.Moves[0].Load < 450 || plan.Moves[0].Load > 550 {
		t.Errorf("%v of load in all; %+v", sum, plan.Moves)
	}

	// It is divided if it has that load for some time, and not only at a moment.
	l.set(api.UpdateAutomation{Splits: ptr("do")})
	l.round()
	if now := l.stored(); now.Events[0].What == "split" || len(now.Waiting) != 1 || !strings.Contains(now.Waiting[0], "if that is still so at the next look") {
		t.Errorf("%+v, %+v", now.Events, now.Waiting)
	}
	l.config.AutoInterval = time.Millisecond

	// When it is divided, its load goes along to its parts before a router has counted anything of them.
	l.round()
	l.round()
	if events, proposals := l.stored().Events, l.stored().Proposals; events[0].What != "split" || events[1].What == "split" || len(proposals) > 0 {
		t.Errorf("%+v, %+v", events, proposals)
	}
	next, err := l.config.Store.Map(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if busy, err := l.Traffic(t.Context(), next.Keyspace(keyspaceOfOrders)); err != nil || len(busy) != 2 || math.Abs(busy[0].StatementsPerSecond-45) > 0.1 {
		t.Errorf("%v, %+v", err, busy)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	if busy, err := l.Traffic(t.Context(), next.Keyspace(keyspaceOfOrders)); err != nil || len(busy) != 2 || math.Abs(busy[0].StatementsPerSecond-22.5) > 0.1 {
		t.Errorf("one router is gone: %v, %+v", err, busy)
	}
}

func hashOf(t *testing.T, p topology.Point) (h uint64) {
	t.Helper()
	if _, err := fmt.Sscanf(p.String(), "%x", &h); err != nil {
		t.Fatal(err)
	}
	return h
}
