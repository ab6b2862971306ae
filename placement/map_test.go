package placement_test

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cleavedb/cleave/placement"
)

type hashRange = placement.HashRange

func owned(lo, hi uint64, owner string) placement.OwnedHashRange {
	return placement.OwnedHashRange{Range: hashRange{Lo: lo, Hi: hi}, Owner: owner}
}

func mustMap(t testing.TB, shards []string, ranges ...placement.OwnedHashRange) *placement.Map {
	t.Helper()
	m, err := placement.NewMap(shards, ranges)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestNewMapNamesWhatIsWrong(t *testing.T) {
	ab := []string{"a", "b"}
	for name, c := range map[string]struct {
		shards []string
		ranges []placement.OwnedHashRange
		want   string
	}{
		"nothing":         {ab, nil, "no ranges"},
		"no shards":       {nil, []placement.OwnedHashRange{owned(0, 0, "a")}, "no shards"},
		"twice":           {[]string{"a", "a"}, []placement.OwnedHashRange{owned(0, 0, "a")}, `shard "a" is listed twice`},
		"nameless":        {[]string{"a", ""}, []placement.OwnedHashRange{owned(0, 0, "")}, `owned by "", which is not one of the shards`},
		"stranger":        {ab, []placement.OwnedHashRange{owned(0, 0, "c")}, `owned by "c", which is not one of the shards`},
		"gap at start":    {ab, []placement.OwnedHashRange{owned(5, 0, "a")}, "gap [0x0000000000000000, 0x0000000000000005)"},
		"gap in between":  {ab, []placement.OwnedHashRange{owned(0, 5, "a"), owned(7, 0, "b")}, "gap [0x0000000000000005, 0x0000000000000007)"},
		"gap at end":      {ab, []placement.OwnedHashRange{owned(0, 5, "a")}, "gap [0x0000000000000005, end)"},
		"overlap":         {ab, []placement.OwnedHashRange{owned(0, 9, "a"), owned(7, 0, "b")}, `overlap [0x0000000000000007, 0x0000000000000009): both "a" and "b"`},
		"overlap inside":  {ab, []placement.OwnedHashRange{owned(0, 9, "a"), owned(3, 4, "b"), owned(9, 0, "b")}, "overlap [0x0000000000000003, 0x0000000000000004)"},
		"overlap at end":  {ab, []placement.OwnedHashRange{owned(0, 0, "a"), owned(7, 0, "b")}, "overlap [0x0000000000000007, end)"},
		"the same twice":  {ab, []placement.OwnedHashRange{owned(0, 0, "a"), owned(0, 0, "b")}, "overlap [0x0000000000000000, end)"},
		"empty":           {ab, []placement.OwnedHashRange{owned(0, 5, "a"), owned(5, 5, "a"), owned(5, 0, "b")}, "empty or reversed"},
		"reversed":        {ab, []placement.OwnedHashRange{owned(9, 5, "a")}, "empty or reversed"},
		"out of order ok": {ab, []placement.OwnedHashRange{owned(5, 0, "a"), owned(0, 5, "b")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := placement.NewMap(c.shards, c.ranges)
			if c.want == "" && err != nil {
				t.Fatal(err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Fatalf("got %v, want %s", err, c.want)
			}
		})
	}
}

// anyMap draws a map of a few shards, with cuts that crowd together as well as spread out.
func anyMap(t *rapid.T, label string) *placement.Map {
	shards := shardNames(rapid.IntRange(1, 6).Draw(t, label+" shards"))
	point := rapid.OneOf(rapid.Uint64Min(1), rapid.Uint64Range(1, 40), rapid.Custom(func(t *rapid.T) uint64 {
		return uint64(rapid.IntRange(1, 15).Draw(t, "slot")) << 60
	}))
	cuts := rapid.SliceOfNDistinct(point, 0, 60, rapid.ID).Draw(t, label+" cuts")
	m, err := placement.NewMap(shards, []placement.OwnedHashRange{owned(0, 0, shards[0])})
	if err != nil {
		t.Fatal(err)
	}
	if m, err = m.Split(cuts...); err != nil {
		t.Fatal(err)
	}
	for i := range m.Len() {
		if m, err = m.Reassign(m.At(i).Range, rapid.SampledFrom(shards).Draw(t, label+" owner")); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func shardNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("s%d", i)
	}
	return names
}

// probes are hashes worth looking at in a map: around every border, and at the ends.
func probes(maps ...*placement.Map) []uint64 {
	hashes := []uint64{0, 1, 1 << 63, 1<<64 - 1}
	for _, m := range maps {
		for r := range m.All() {
			hashes = append(hashes, r.Lo-1, r.Lo, r.Lo+1, r.Hi-1)
		}
	}
	return hashes
}

func ownerByScan(m *placement.Map, hash uint64) string {
	for r := range m.All() {
		if r.Contains(hash) {
			return r.Owner
		}
	}
	return "nobody"
}

func TestLookupAgreesWithTheList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyMap(t, "map")
		hashes := append(probes(m), rapid.SliceOfN(rapid.Uint64(), 20, 20).Draw(t, "hashes")...)
		for _, h := range hashes {
			if got, want := m.Owner(h), ownerByScan(m, h); got != want {
				t.Fatalf("owner of %#x is %q, want %q", h, got, want)
			}
			if !m.RangeOf(h).Contains(h) {
				t.Fatalf("RangeOf(%#x) is %v", h, m.RangeOf(h))
			}
		}
	})
}

func TestMapRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyMap(t, "map")
		var ranges []placement.OwnedHashRange
		for r := range m.All() {
			ranges = append(ranges, r)
		}
		again, err := placement.NewMap(m.Shards(), rapid.Permutation(ranges).Draw(t, "order"))
		if err != nil || !again.Equal(m) {
			t.Fatalf("a map made of its own ranges differs: %v", err)
		}
	})
}

func TestExtentsAddUpToEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sum placement.Extent
		for _, e := range anyMap(t, "map").Extents() {
			sum = sum.Add(e)
		}
		if sum != placement.WholeSpace || sum.Share() != 1 || sum.Rat().Cmp(big.NewRat(1, 1)) != 0 {
			t.Fatalf("extents add up to %v", sum)
		}
	})
}

func TestDiffIsWhatChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := anyMap(t, "before"), anyMap(t, "after")
		movement := before.Diff(after)
		for _, h := range probes(before, after) {
			var moved *placement.HashMove
			for i, move := range movement.Moves {
				if move.Contains(h) {
					moved = &movement.Moves[i]
				}
			}
			from, to := before.Owner(h), after.Owner(h)
			if from == to && moved != nil || from != to && (moved == nil || moved.From != from || moved.To != to) {
				t.Fatalf("%#x goes from %s to %s, Diff says %v", h, from, to, moved)
			}
		}
		if back := after.Diff(before); back.Extent != movement.Extent {
			t.Fatalf("%v moves there, %v moves back", movement.Extent, back.Extent)
		}
		if none := before.Diff(before.Compact()); len(none.Moves) != 0 || !none.Extent.IsZero() {
			t.Fatalf("compacting moved %v", none)
		}
	})
}

func TestDiffExtentIsExact(t *testing.T) {
	before := mustMap(t, []string{"a", "b"}, owned(0, 0, "a"))
	after := mustMap(t, []string{"a", "b"}, owned(0, 3, "a"), owned(3, 4, "b"), owned(4, 0, "a"))
	if got, want := before.Diff(after).Extent.Rat().String(), "1/18446744073709551616"; got != want {
		t.Errorf("one hash of 2^64 is %s, want %s", got, want)
	}
	all := before.Diff(mustMap(t, []string{"b"}, owned(0, 0, "b")))
	if all.Extent != placement.WholeSpace {
		t.Errorf("everything moves, but Diff says %v", all.Extent)
	}
}

func TestSplitMergeReassign(t *testing.T) {
	m := mustMap(t, []string{"a", "b"}, owned(0, 100, "a"), owned(100, 0, "b"))
	split, err := m.Split(50, 150)
	if err != nil || split.Len() != 4 || len(m.Diff(split).Moves) != 0 {
		t.Fatalf("split gave %d ranges, %v", split.Len(), err)
	}
	merged, err := split.Merge(150, 50)
	if err != nil || !merged.Equal(m) {
		t.Fatalf("merging what was split differs: %v", err)
	}
	moved, err := m.Reassign(hashRange{Lo: 90, Hi: 110}, "a")
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Diff(moved).Moves; len(got) != 1 || got[0].String() != (hashRange{Lo: 100, Hi: 110}).String() {
		t.Fatalf("reassigning moved %v", got)
	}
	if m.Len() != 2 || m.Owner(105) != "b" {
		t.Fatal("the map it came from has changed")
	}
	for name, fails := range map[string]func() (*placement.Map, error){
		"split at a border":     func() (*placement.Map, error) { return m.Split(100) },
		"split twice":           func() (*placement.Map, error) { return m.Split(7, 7) },
		"split at the start":    func() (*placement.Map, error) { return m.Split(0) },
		"merge nothing":         func() (*placement.Map, error) { return m.Merge(99) },
		"merge at the start":    func() (*placement.Map, error) { return m.Merge(0) },
		"merge two owners":      func() (*placement.Map, error) { return m.Merge(100) },
		"reassign to nobody":    func() (*placement.Map, error) { return m.Reassign(hashRange{}, "c") },
		"reassign backwards":    func() (*placement.Map, error) { return m.Reassign(hashRange{Lo: 9, Hi: 8}, "a") },
		"drop an owning shard":  func() (*placement.Map, error) { return m.WithShards("a") },
		"list a shard twice":    func() (*placement.Map, error) { return m.WithShards("a", "b", "a") },
		"reassign to a no-name": func() (*placement.Map, error) { return m.Reassign(hashRange{}, "") },
	} {
		if _, err := fails(); err == nil {
			t.Errorf("%s did not fail", name)
		}
	}
	wider, err := m.WithShards("c", "b", "a")
	if err != nil || len(m.Diff(wider).Moves) != 0 {
		t.Errorf("a longer list of shards moved %v, %v", m.Diff(wider).Moves, err)
	}
}

func TestReplicasAreDistinct(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyMap(t, "map")
		h, k := rapid.Uint64().Draw(t, "hash"), rapid.IntRange(0, 8).Draw(t, "k")
		checkReplicas(t, m, m.Compact(), len(owners(m)), h, k)
	})
}

func owners(m *placement.Map) map[string]bool {
	set := map[string]bool{}
	for r := range m.All() {
		set[r.Owner] = true
	}
	return set
}

// checkReplicas checks that both placers, made alike, give the same k distinct shards, led by the one of Place.
func checkReplicas(t interface{ Fatalf(string, ...any) }, p, twin placement.Placer, reachable int, h uint64, k int) {
	got := p.Replicas([]int{-1}, h, k)[1:]
	if want := min(k, reachable); len(got) != want {
		t.Fatalf("%d replicas of %#x, want %d", len(got), h, want)
	}
	if k > 0 && got[0] != p.Place(h) {
		t.Fatalf("the first replica is %d, the key's place %d", got[0], p.Place(h))
	}
	seen := map[int]bool{}
	for i, shard := range got {
		if seen[shard] {
			t.Fatalf("shard %d twice in %v", shard, got)
		}
		seen[shard] = true
		if again := twin.Replicas(nil, h, k); again[i] != shard {
			t.Fatalf("replicas %v and %v of one key", got, again)
		}
	}
}

// FuzzNewMap reads any number of ranges from bytes, over a space of few points, and compares with counting owners point by
// point.
func FuzzNewMap(f *testing.F) {
	f.Add([]byte{0, 10, 0, 10, 0, 1})
	f.Add([]byte{5, 0, 0, 0, 5, 1})
	f.Add([]byte{0, 4, 0, 4, 9, 1, 9, 0, 2, 2, 3, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		shards := []string{"a", "b", "c"}
		var ranges []placement.OwnedHashRange
		valid := len(data) >= 3
		for ; len(data) >= 3; data = data[3:] {
			r := owned(uint64(data[0]), uint64(data[1]), shards[data[2]%3])
			ranges = append(ranges, r)
			valid = valid && (r.Hi == 0 || r.Hi > r.Lo)
		}
		for p := range uint64(300) { // past the last border that a byte can name
			owners := 0
			for _, r := range ranges {
				if r.Contains(p) {
					owners++
				}
			}
			valid = valid && owners == 1
		}
		m, err := placement.NewMap(shards, ranges)
		if valid != (err == nil) {
			t.Fatalf("%v covers the space exactly: %v, but NewMap says %v", ranges, valid, err)
		}
		for p := uint64(0); err == nil && p < 300; p++ {
			if got, want := m.Owner(p), ownerByScan(m, p); got != want {
				t.Fatalf("%d belongs to %s, want %s", p, got, want)
			}
		}
	})
}

func TestLookupDoesNotAllocate(t *testing.T) {
	m := mustMap(t, []string{"a", "b"}, owned(0, 1<<63, "a"), owned(1<<63, 0, "b"))
	if n := testing.AllocsPerRun(100, func() { m.Lookup(1 << 62) }); n != 0 {
		t.Errorf("Lookup allocates %v times", n)
	}
}
