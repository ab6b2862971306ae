package placement_test

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cleavedb/cleave/placement"
)

func TestMeasure(t *testing.T) {
	f := placement.Measure([]float64{2, 4, 4, 6})
	want := placement.Figures{Shards: 4, Total: 16, Mean: 4, Std: math.Sqrt2, Min: 2, Max: 6, Entropy: f.Entropy}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Error(diff)
	}
	// -⅛·log2(⅛) - 2·¼·log2(¼) - ⅜·log2(⅜)
	if want := 0.375 + 1 + 0.375*math.Log2(8.0/3); math.Abs(f.Entropy-want) > 1e-12 {
		t.Errorf("entropy %v, want %v", f.Entropy, want)
	}
	if f.Skew() != 3 || f.Peak() != 1.5 {
		t.Errorf("skew %v, peak %v", f.Skew(), f.Peak())
	}
	even := placement.Measure([]float64{5, 5, 5, 5})
	if even.Evenness() != 1 || even.Skew() != 1 || even.Std != 0 {
		t.Errorf("an even spread: %+v", even)
	}
	if idle := placement.Measure([]float64{0, 5}); !math.IsInf(idle.Skew(), 1) {
		t.Errorf("skew with an idle shard is %v", idle.Skew())
	}
	if none := placement.Measure([]float64{0, 0}); none.Skew() != 1 || math.IsNaN(none.Entropy) {
		t.Errorf("figures of nothing: %+v", none)
	}
}

var rewrite = flag.Bool("rewrite", false, "rewrite the golden placements")

// TestPlacementsNeverChange holds every algorithm to what it gave before, on every platform: a change here would move
// people's data.
func TestPlacementsNeverChange(t *testing.T) {
	var got strings.Builder
	weights := []float64{1, 2, 0.5}
	for _, info := range placement.Algorithms() {
		for _, n := range []int{1, 7, 20} {
			shards := placement.Numbered("shard-", n)
			for i := range shards {
				if info.Weighted {
					shards[i].Weight = weights[i%3]
				}
			}
			a := algorithm(t, info.Name, placement.Config{})
			p, m := keysOf(t, a, shards), rangesOf(t, a, nil, shards)
			twice := rangesOf(t, a, m, append(shards, renamed("more-", shards)...))
			fmt.Fprintf(&got, "%s %d keys %016x replicas %016x ranges %016x doubled %016x\n", info.Name, n,
				fingerprint(p.Place), fingerprint(func(h uint64) int { return lastOf(p.Replicas(nil, h, 3)) }),
				fingerprint(m.Place), fingerprint(twice.Place))
		}
	}
	const file = "testdata/placements.txt"
	if *rewrite {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Error(diff)
	}
}

// renamed returns shards like these under other names: every algorithm can go from n shards to 2n.
func renamed(prefix string, shards []placement.Shard) []placement.Shard {
	others := slices.Clone(shards)
	for i := range others {
		others[i].Name = prefix + others[i].Name
	}
	return others
}

func lastOf(shards []int) int { return shards[len(shards)-1] }

func fingerprint(place func(uint64) int) uint64 {
	sum := fnv.New64a()
	for h := range hashes(5000) {
		fmt.Fprintln(sum, place(h))
	}
	return sum.Sum64()
}

func TestCompareCountsByName(t *testing.T) {
	before, after := placement.Named("a", "b"), placement.Named("b", "a")
	c, err := placement.NewChange(algorithm(t, "rendezvous", placement.Config{}), placement.KeyLevel, before, after)
	if err != nil {
		t.Fatal(err)
	}
	o := placement.Compare(c, hashes(1000))
	if o.Overlap() != 1 || o.Keys != 1000 || o.CountsBefore[0] != o.CountsAfter[1] {
		t.Errorf("the same shards in another order: %+v", o)
	}
}

// TestChangesInARow: what a second change moves is counted from where the first has arrived, not from a map made anew.
func TestChangesInARow(t *testing.T) {
	shards := placement.Numbered("shard-", 6)
	left := slices.Delete(slices.Clone(shards), 1, 2)
	for _, name := range []string{"slots", "minimal", "ring", "rendezvous", "rendezvous-fast", "weighted-rendezvous"} {
		for _, level := range []placement.Level{placement.KeyLevel, placement.SlotLevel} {
			add := change(t, name, level, shards[:5], shards)
			remove, err := add.Then(left)
			if err != nil {
				t.Fatal(err)
			}
			movesOnlyFrom(t, remove, "shard-1")
			back, err := remove.Then(shards)
			if err != nil {
				t.Fatal(err)
			}
			movesOnlyTo(t, back, "shard-1")
			for h := range hashes(2000) {
				if add.ShardsAfter[add.After.Place(h)] != remove.ShardsBefore[remove.Before.Place(h)] {
					t.Fatalf("%s: the second change does not begin where the first ended", name)
				}
			}
		}
	}
	if _, err := change(t, "doubling", placement.KeyLevel, shards[:3], shards).Then(left); err == nil {
		t.Error("doubling took a shard away without a word")
	}
}
