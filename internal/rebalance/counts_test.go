package rebalance

import (
	"math"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/topology"
)

// countedWorld has a keyspace by hash of four ranges of 100 bytes each, two on each shard, whose loads are known of the shards alone.
func countedWorld(t *testing.T) (*topology.Map, Sizes) {
	t.Helper()
	w := &world{shards: shardsOf(2)}
	w.hashed("users", held{shard: "s1"}, held{shard: "s1"}, held{shard: "s2"}, held{shard: "s2"})
	m := w.build(t)
	return m, Sizes{{Keyspace: "users", Shards: []ShardSize{{Shard: "s1", Size: Size{Bytes: 200, Load: 1000}}, {Shard: "s2", Size: Size{Bytes: 200, Load: 1000}}}}}
}

func loadsOf(t *testing.T, k *topology.Keyspace, sizes Sizes) (ranges, pins []float64) {
	t.Helper()
	m := must[*measured](t)(measure(k, sizes))
	for _, p := range m.ranges {
		ranges = append(ranges, p.size.size().Load)
	}
	for _, p := range m.pins {
		pins = append(pins, p.size.size().Load)
	}
	return ranges, pins
}

func wantLoads(t *testing.T, what string, got []float64, want ...float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: loads %v, not %v", what, got, want)
	}
	for i := range got {
		if math.Abs(got[i]-want[i]) > 0.01 {
			t.Errorf("%s: loads %v, not %v", what, got, want)
		}
	}
}

// TestLoadIsSharedOutByCounts, and by size as far as nothing was counted.
func TestLoadIsSharedOutByCounts(t *testing.T) {
	m, sizes := countedWorld(t)
	users := m.Keyspace("users")
	second := hexPoint(1 << 62)
	for _, c := range []struct {
		name   string
		counts Counts
		want   []float64
	}{
		{"nothing was counted", Counts{}, []float64{500, 500, 500, 500}},
		{"all of a shard for one", Counts{Ranges: []RangeCount{{From: second, PerSecond: 7}}}, []float64{0, 1000, 500, 500}},
		{"three to one", Counts{Ranges: []RangeCount{{PerSecond: 1}, {From: second, PerSecond: 3}}}, []float64{250, 750, 500, 500}},
		{"half of it for none", Counts{Ranges: []RangeCount{{From: second, PerSecond: 10}}, Others: []ShardCount{{Shard: "s1", PerSecond: 10}, {Shard: "s2", PerSecond: 10}}}, []float64{250, 750, 500, 500}},
		{"what is not in the map", Counts{Ranges: []RangeCount{{From: hexPoint(5), PerSecond: 10}}, Others: []ShardCount{{Shard: "s9", PerSecond: 10}}}, []float64{500, 500, 500, 500}},
	} {
		sizes[0].Counts = c.counts
		loads, _ := loadsOf(t, users, sizes)
		wantLoads(t, c.name, loads, c.want...)
	}
	for _, wrong := range []float64{-1, math.NaN(), math.Inf(1)} {
		for _, counts := range []Counts{{Ranges: []RangeCount{{PerSecond: wrong}}}, {Others: []ShardCount{{Shard: "s1", PerSecond: wrong}}}, {Pins: []PinCount{{Key: topology.Point{"5"}, PerSecond: wrong}}}} {
			sizes[0].Counts = counts
			if _, err := measure(users, sizes); err == nil || !strings.Contains(err.Error(), "count") {
				t.Errorf("%+v: %v", counts, err)
			}
		}
	}
	sizes[0].Counts = Counts{Ranges: []RangeCount{{PerSecond: 5}}}
	sizes[0].Shards[0].Load = 0
	loads, _ := loadsOf(t, users, sizes)
	wantLoads(t, "a shard of which no load is known", loads, 0, 0, 500, 500)
}

// TestPinsHaveTheLoadThatWasCounted, raw keys too, whose sizes are known of each range.
func TestPinsHaveTheLoadThatWasCounted(t *testing.T) {
	w := &world{shards: shardsOf(2)}
	w.keyed(held{shard: "s1", bytes: 100}, held{shard: "s1", bytes: 300}, held{shard: "s2", bytes: 100})
	w.pin("5", "s1", 0)
	m := w.build(t)
	sizes := w.sizes
	sizes[0].Shards = []ShardSize{{Shard: "s1", Size: Size{Bytes: 400, Load: 1000}}}
	sizes[0].Counts = Counts{Pins: []PinCount{{Key: topology.Point{"5"}, PerSecond: 6}}, Others: []ShardCount{{Shard: "s1", PerSecond: 4}}}
	loads, pins := loadsOf(t, m.Keyspace("events"), sizes)
	wantLoads(t, "ranges", loads, 100, 300, 0)
	wantLoads(t, "pins", pins, 600)
}

// TestHotRangesAreSeen by plans and proposals, though all have the same size.
func TestHotRangesAreSeen(t *testing.T) {
	m, sizes := countedWorld(t)
	sizes[0].Shards[0].Load, sizes[0].Shards[1].Load = 900, 100
	sizes[0].Counts = Counts{Ranges: []RangeCount{{PerSecond: 80}, {From: hexPoint(1 << 62), PerSecond: 10}}}
	splits := must[*SplitProposals](t)(AutoSplit(m, sizes, Thresholds{Load: 500}))
	if len(splits.Splits) != 1 || len(splits.Splits[0].From) != 0 || splits.Splits[0].Reason != ByLoad || math.Round(splits.Splits[0].Load) != 800 {
		t.Errorf("%+v", splits)
	}
	// Of the two ranges of a shard that has too much the one that brings both to even is moved: not the hot one, which would only move the trouble.
	plan := must[*Plan](t)(Balance(m, sizes, Options{Measure: ByLoad}))
	if len(plan.Moves) != 1 || len(plan.Moves[0].Ranges) != 1 || math.Round(plan.Moves[0].Load) != 100 || plan.Moves[0].Ranges[0].From.String() != hexPoint(1<<62).String() {
		t.Errorf("%+v", plan.Moves)
	}
}
