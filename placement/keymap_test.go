package placement_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/placement/key"
)

func encodedInt(n int64) string { return string(key.AppendInt(nil, n)) }

func preSplit(t testing.TB, shards []string, points ...string) *placement.KeyMap {
	t.Helper()
	m, err := placement.PreSplit(shards, points...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestKeyMapLooksUpRawKeys(t *testing.T) {
	m := preSplit(t, []string{"a", "b"}, encodedInt(-10), encodedInt(0), encodedInt(100))
	for n, want := range map[int64]string{-1 << 63: "a", -11: "a", -10: "a", -1: "a", 0: "b", 99: "b", 100: "b", 1<<63 - 1: "b"} {
		if got := m.Owner(encodedInt(n)); got != want {
			t.Errorf("%d belongs to %s, want %s", n, got, want)
		}
		if got := m.LookupBytes(key.AppendInt(nil, n)); m.Shards()[got] != want {
			t.Errorf("%d as bytes belongs to %d, want %s", n, got, want)
		}
	}
}

func TestKeyMapCompositePrefix(t *testing.T) {
	// A border at channel 7 alone comes before every bucket of channel 7.
	m := preSplit(t, []string{"a", "b"}, encodedInt(7))
	of := func(channel, bucket int64) string {
		return m.Owner(string(key.AppendInt(key.AppendInt(nil, channel), bucket)))
	}
	if of(6, 1<<62) != "a" || of(7, -1<<62) != "b" || of(7, 0) != "b" {
		t.Errorf("channels 6 and 7 are on %s and %s", of(6, 1<<62), of(7, -1<<62))
	}
}

func TestKeyMapBetween(t *testing.T) {
	m := preSplit(t, []string{"a", "b", "c"}, encodedInt(10), encodedInt(20))
	between := func(lo, hi string) []int { return m.Between(nil, placement.KeyRange{Lo: lo, Hi: hi}) }
	for name, c := range map[string]struct{ got, want []int }{
		"one":           {between(encodedInt(11), encodedInt(12)), []int{1}},
		"up to border":  {between(encodedInt(11), encodedInt(20)), []int{1}},
		"over a border": {between(encodedInt(9), encodedInt(11)), []int{0, 1}},
		"from":          {between(encodedInt(15), ""), []int{1, 2}},
		"all":           {between("", ""), []int{0, 1, 2}},
		"empty":         {between(encodedInt(5), encodedInt(5)), nil},
		"reversed":      {between(encodedInt(15), encodedInt(5)), nil},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
}

func TestKeyMapChanges(t *testing.T) {
	m := preSplit(t, []string{"a", "b"}, "m")
	split, err := m.Split("f")
	if err != nil {
		t.Fatal(err)
	}
	moved, err := split.Reassign(split.At(1).Range, "b")
	if err != nil {
		t.Fatal(err)
	}
	moves := m.Diff(moved)
	if len(moves) != 1 || moves[0].String() != `["f", "m")` || moves[0].From != "a" || moves[0].To != "b" {
		t.Fatalf("moved %v", moves)
	}
	if merged, err := moved.Merge("m"); err != nil || !merged.Equal(moved.Compact()) || merged.Len() != 2 {
		t.Errorf("merged %v, %v", merged, err)
	}
	if _, err := m.Merge("m"); err == nil {
		t.Error("ranges of two owners were merged")
	}
	if _, err := placement.NewKeyMap([]string{"a"}, []placement.OwnedKeyRange{{Range: placement.KeyRange{Lo: "x"}, Owner: "a"}}); err == nil {
		t.Error("a gap was taken")
	}
	if _, err := m.WithShards("b"); err == nil {
		t.Error("a shard that owns a range was dropped")
	}
}

func TestPinsAgreeWithAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := map[string]string{}
		for i := range rapid.IntRange(0, 50).Draw(t, "start") {
			model["k"+strconv.Itoa(i)] = "s"
		}
		pins := placement.NewPins(model)
		if len(model) == 0 && rapid.Bool().Draw(t, "zero value") {
			pins = placement.Pins{}
		}
		before, had := pins, maps.Clone(model)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			k := "k" + strconv.Itoa(rapid.IntRange(0, 70).Draw(t, "key"))
			if rapid.Bool().Draw(t, "pin") {
				shard := rapid.SampledFrom([]string{"s", "t"}).Draw(t, "shard")
				model[k], pins = shard, pins.With(k, shard)
			} else {
				delete(model, k)
				pins = pins.Without(k)
			}
		}
		if got := maps.Collect(pins.All()); !maps.Equal(got, model) || pins.Len() != len(model) {
			t.Fatalf("%d pins %v, want %v", pins.Len(), got, model)
		}
		if got := maps.Collect(before.All()); !maps.Equal(got, had) {
			t.Fatal("the pins it came from have changed")
		}
	})
}

func TestAMillionPinsChangeCheaply(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a million pins")
	}
	all := make(map[string]string, 1_000_000)
	for i := range 1_000_000 {
		all["tenant-"+strconv.Itoa(i)] = "shard-" + strconv.Itoa(i%16)
	}
	pins := placement.NewPins(all)
	allocations := testing.AllocsPerRun(10, func() { pins.With("tenant-5", "elsewhere") })
	if shard, ok := pins.Lookup("tenant-999999"); !ok || shard != "shard-15" || pins.Len() != 1_000_000 {
		t.Errorf("tenant-999999 is on %q, %d pins", shard, pins.Len())
	}
	if allocations > 100 {
		t.Errorf("changing one of a million pins takes %v allocations", allocations)
	}
}
