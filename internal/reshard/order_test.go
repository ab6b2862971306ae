package reshard

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cleavedb/cleave/internal/topology"
)

// TestRangesAreDividedAndFound as one does it by looking at each beside each.
func TestRangesAreDividedAndFound(t *testing.T) {
	o := orderOf(world(t).Keyspace("main"))
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		some := func(n int) (points []topology.Point) {
			for range n {
				points = append(points, hashPoint(1+uint64(random.IntN(40))<<58))
			}
			slices.SortFunc(points, slices.Compare[topology.Point])
			return slices.CompactFunc(points, slices.Equal[topology.Point])
		}
		ranges := []topology.RangeSpec{{Shard: "a"}}
		for _, p := range some(random.IntN(12)) {
			ranges[len(ranges)-1].To = p
			ranges = append(ranges, topology.RangeSpec{From: p, Shard: "a"})
		}
		ends := some(random.IntN(12))
		if random.IntN(3) == 0 {
			ends = append(ends, nil)
		}
		if random.IntN(3) == 0 {
			ends = slices.Insert(ends, 0, nil)
		}
		var parts []Range
		for i := 0; i+1 < len(ends); i += 1 + random.IntN(2) { // some beside each other
			parts = append(parts, Range{From: ends[i], To: ends[i+1]})
		}
		random.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		divided, err := o.split(ranges, parts)
		if err != nil {
			t.Fatal(err)
		}
		borders := map[string]bool{}
		for _, r := range ranges {
			borders[r.From.String()] = true
		}
		for _, r := range parts {
			for _, p := range []topology.Point{r.From, r.To} {
				if len(p) > 0 {
					borders[p.String()] = true
				}
			}
		}
		if len(divided) != len(borders) || len(divided[0].From) > 0 || len(divided[len(divided)-1].To) > 0 {
			t.Fatalf("seed %d: %d ranges, not %d: %v", seed, len(divided), len(borders), divided)
		}
		all, err := o.area(parts)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range divided {
			if !borders[r.From.String()] || i > 0 && (!slices.Equal(divided[i-1].To, r.From) || divided[i-1].From.String() == r.From.String()) {
				t.Fatalf("seed %d: range %d is from %s to %s", seed, i, r.From, r.To)
			}
			want := slices.ContainsFunc(parts, func(part Range) bool {
				inside, err := o.within(r.From, r.To, part)
				return err == nil && inside
			})
			if got, err := all.covers(r.From, r.To); err != nil || got != want {
				t.Fatalf("seed %d: from %s to %s is inside: %v, want %v, %v", seed, r.From, r.To, got, want, err)
			}
		}
	}
}
