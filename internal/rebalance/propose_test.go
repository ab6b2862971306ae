package rebalance

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cleavedb/cleave/internal/topology"
)

const gib = 1 << 30

func TestLargeRangesAreProposedForSplitting(t *testing.T) {
	busy := held{shard: "s1", bytes: 50 * gib, copies: []topology.CopySpec{{Shard: "s2", State: topology.Incoming}}}
	w := (&world{shards: shardsOf(2)}).hashed("users", held{shard: "s1", bytes: 10 * gib}, held{shard: "s2", bytes: 31 * gib}, held{shard: "s1", bytes: gib}, busy)
	w.keyed(held{shard: "s1", bytes: 15 * gib}, held{shard: "s2", bytes: 20*gib + 1}, held{shard: "s2", bytes: 1})
	for i := range w.sizes[0].Ranges {
		w.sizes[0].Ranges[i].Load = 100
	}
	w.sizes[0].Ranges[2].Load = 2500
	w.sizes[1].Ranges[1].SplitAt = []topology.Point{{"1100"}, {"1200"}, {"1300"}, {"1400"}, {"1500"}}
	got := must[*SplitProposals](t)(AutoSplit(w.build(t), w.sizes, Thresholds{Load: 1000}))
	want := []SplitProposal{
		{Keyspace: "events", Shard: "s2", From: topology.Point{"1000"}, To: topology.Point{"2000"}, At: []topology.Point{{"1200"}, {"1400"}}, Size: Size{Bytes: 20*gib + 1, Rows: 2 * gib}, Reason: ByBytes},
		{
			Keyspace: "users", Shard: "s2", From: topology.Point{"4000000000000000"}, To: topology.Point{"8000000000000000"},
			At: []topology.Point{{"5000000000000000"}, {"6000000000000000"}, {"7000000000000000"}}, Size: Size{Bytes: 31 * gib, Rows: 31 * gib / 10, Load: 100}, Reason: ByBytes,
		},
		{
			Keyspace: "users", Shard: "s1", From: topology.Point{"8000000000000000"}, To: topology.Point{"c000000000000000"},
			At: []topology.Point{{"9555555555555555"}, {"aaaaaaaaaaaaaaaa"}}, Size: Size{Bytes: gib, Rows: gib / 10, Load: 2500}, Reason: ByLoad,
		},
	}
	if diff := cmp.Diff(want, got.Splits, cmp.Comparer(closePoints)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"keyspace events: the range from the beginning is too large, but nobody knows where to cut it"}, got.Warnings); diff != "" {
		t.Error(diff)
	}
	if quiet := must[*SplitProposals](t)(AutoSplit(w.build(t), w.sizes, Thresholds{Bytes: 60 * gib})); len(quiet.Splits) > 0 {
		t.Errorf("%+v", quiet.Splits)
	}
}

// closePoints says whether two points are the same but for the last digits of a hash.
func closePoints(a, b topology.Point) bool {
	cut := func(p topology.Point) string {
		if text := p.String(); len(text) == 16 {
			return text[:12]
		}
		return p.String()
	}
	return cut(a) == cut(b)
}

func TestSmallRangesAreProposedForMerging(t *testing.T) {
	w := (&world{shards: shardsOf(2)}).keyed(
		held{shard: "s1", bytes: 400}, held{shard: "s1", bytes: 300}, held{shard: "s1", bytes: 200}, // together
		held{shard: "s1", bytes: 100}, // one more would be a tenth
		held{shard: "s2", bytes: 1}, held{shard: "s1", bytes: 1, held: true}, held{shard: "s1", bytes: 1},
		held{shard: "s1", bytes: 1},                              // the rule begins here
		held{shard: "s1", bytes: 1}, held{shard: "s1", bytes: 1}, // the last one is not measured
	)
	w.sizes[0].Ranges = w.sizes[0].Ranges[:9]
	rules := []Rule{{Keyspace: "events", From: topology.Point{"7000"}, Label: "region", Value: "eu"}}
	got := must[*MergeProposals](t)(AutoMerge(w.build(t), w.sizes, Thresholds{Bytes: 10_000, Rules: rules}))
	want := []MergeProposal{
		{Keyspace: "events", Shard: "s1", To: topology.Point{"3000"}, At: []topology.Point{{"1000"}, {"2000"}}, Size: Size{Bytes: 900, Rows: 90}},
		{Keyspace: "events", Shard: "s1", From: topology.Point{"7000"}, To: topology.Point{"9000"}, At: []topology.Point{{"8000"}}, Size: Size{Bytes: 2}},
	}
	if diff := cmp.Diff(want, got.Merges); diff != "" {
		t.Error(diff)
	}
	w.sizes[0].Ranges[0].Load = 10
	if busy := must[*MergeProposals](t)(AutoMerge(w.build(t), w.sizes, Thresholds{Bytes: 10_000, Load: 100, Rules: rules})); busy.Merges[0].From.String() != "1000" {
		t.Errorf("a range under load is joined: %+v", busy.Merges[0])
	}
}

// TestWhatIsSplitIsNotMerged: the proposals of one are none for the other.
func TestWhatIsSplitIsNotMerged(t *testing.T) {
	w := (&world{shards: shardsOf(1)}).hashed("users", held{shard: "s1", bytes: 10*gib + 1})
	split := must[*SplitProposals](t)(AutoSplit(w.build(t), w.sizes, Thresholds{}))
	if len(split.Splits) != 1 || len(split.Splits[0].At) != 1 {
		t.Fatalf("%+v", split)
	}
	w = (&world{shards: shardsOf(1)}).hashed("users", even(2, 5*gib, "s1")...)
	if merged := must[*MergeProposals](t)(AutoMerge(w.build(t), w.sizes, Thresholds{})); len(merged.Merges) > 0 {
		t.Errorf("%+v", merged)
	}
	for _, bad := range []Thresholds{{Bytes: -1}, {Bytes: 5}, {Load: -1}, {Keyspaces: []string{"none"}}, {Rules: []Rule{{Keyspace: "none"}}}} {
		if _, err := AutoSplit(w.build(t), w.sizes, bad); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}
