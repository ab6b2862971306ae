package placement_test

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/cleavedb/cleave/placement"
)

// TestMinimalMovesTheLeast compares with all balanced maps there are, on maps small enough to try them.
func TestMinimalMovesTheLeast(t *testing.T) {
	const slots = 16
	rapid.Check(t, func(t *rapid.T) {
		before := slotMapOf(t, slots, rapid.IntRange(1, 5).Draw(t, "before"))
		after := shardNames(rapid.IntRange(1, 6).Draw(t, "after"))
		if rapid.Bool().Draw(t, "first leaves") && len(after) > 1 {
			after = after[1:]
		}
		shards := placement.Named(after...)
		for i := range shards {
			shards[i].Weight = rapid.SampledFrom([]float64{1, 1, 1, 0.5, 2}).Draw(t, "weight")
		}
		a, err := placement.New("minimal", placement.Config{Slots: slots})
		if err != nil {
			t.Fatal(err)
		}
		m, err := a.Ranges(before, shards)
		if err != nil {
			t.Skip("a share of less than a slot is refused")
		}
		counts := slotCounts(before, slots)
		floors, extra := fairShares(shards, slots)
		checkBalanced(t, m, floors, slots)
		moved := new(big.Rat).Mul(before.Diff(m).Extent.Rat(), big.NewRat(slots, 1))
		least := leastByTrying(counts, shards, floors, extra)
		if moved.Cmp(big.NewRat(int64(least), 1)) != 0 {
			t.Fatalf("moved %v slots, %d are enough", moved, least)
		}
	})
}

func slotMapOf(t *rapid.T, slots, shards int) *placement.Map {
	names := shardNames(shards)
	var ranges []placement.OwnedHashRange
	for slot := range slots {
		width := uint64(1<<63) / uint64(slots) * 2
		r := owned(uint64(slot)*width, uint64(slot+1)*width, rapid.SampledFrom(names).Draw(t, "owner"))
		ranges = append(ranges, r)
	}
	m, err := placement.NewMap(names, ranges)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func slotCounts(m *placement.Map, slots int) map[string]int {
	counts := map[string]int{}
	for i, e := range m.Extents() {
		counts[m.Shards()[i]] = int(math.Round(e.Share() * float64(slots)))
	}
	return counts
}

// fairShares returns the shares rounded down, whether each has a fraction, and how many must round up.
func fairShares(shards []placement.Shard, slots int) (floors []float64, extra int) {
	total := 0.0
	for _, s := range shards {
		total += s.Weight
	}
	left := slots
	for _, s := range shards {
		fair := float64(slots) * s.Weight / total
		floors = append(floors, fair)
		left -= int(math.Floor(fair + 1e-9))
	}
	return floors, left
}

func checkBalanced(t *rapid.T, m *placement.Map, fair []float64, slots int) {
	for i, e := range m.Extents() {
		if has := e.Share() * float64(slots); math.Abs(has-fair[i]) >= 1 {
			t.Fatalf("%s has %v slots, fair is %v", m.Shards()[i], has, fair[i])
		}
	}
}

// leastByTrying tries every choice of who rounds up.
func leastByTrying(counts map[string]int, shards []placement.Shard, fair []float64, extra int) int {
	all := 0
	for _, n := range counts {
		all += n
	}
	best := math.MaxInt
	var try func(i, extra, stays int)
	try = func(i, extra, stays int) {
		if i == len(shards) {
			if extra == 0 {
				best = min(best, all-stays)
			}
			return
		}
		floor := int(math.Floor(fair[i] + 1e-9))
		try(i+1, extra, stays+min(counts[shards[i].Name], floor))
		if fair[i]-float64(floor) > 1e-9 && extra > 0 {
			try(i+1, extra-1, stays+min(counts[shards[i].Name], floor+1))
		}
	}
	try(0, extra, 0)
	return best
}

// TestMinimalFromAnyMap: from a map that knows no slots, the shares become equal to the last hash, and nothing moves but
// what is above the fair share.
func TestMinimalFromAnyMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := anyMap(t, "before")
		shards := placement.Named(shardNames(rapid.IntRange(1, 8).Draw(t, "after"))...)
		a, err := placement.New("minimal", placement.Config{Slots: 8})
		if err != nil {
			t.Fatal(err)
		}
		after, err := a.Ranges(before, shards)
		if err != nil {
			t.Fatal(err)
		}
		fair := new(big.Rat).SetFrac64(1, int64(len(shards)))
		unit := new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Lsh(big.NewInt(1), 64))
		if alignedToEighths(before) {
			unit.SetFrac64(1, 8)
		}
		excess := new(big.Rat)
		for i, e := range before.Extents() {
			over := new(big.Rat).Set(e.Rat())
			if i < len(shards) {
				over.Sub(over, fair)
			}
			if over.Sign() > 0 {
				excess.Add(excess, over)
			}
		}
		for i, e := range after.Extents() {
			if off := new(big.Rat).Sub(e.Rat(), fair); off.Abs(off).Cmp(unit) >= 0 {
				t.Fatalf("shard %d has %v, fair is %v", i, e.Share(), fair)
			}
		}
		// Rounding to units can save or cost up to a unit a shard.
		slack := new(big.Rat).Mul(unit, big.NewRat(int64(len(shards)), 1))
		if off := new(big.Rat).Sub(before.Diff(after).Extent.Rat(), excess); off.Abs(off).Cmp(slack) > 0 {
			t.Fatalf("moved %v, the excess is %v", before.Diff(after).Extent.Share(), excess)
		}
	})
}

func alignedToEighths(m *placement.Map) bool {
	for r := range m.All() {
		if r.Lo%(1<<61) != 0 {
			return false
		}
	}
	return true
}
