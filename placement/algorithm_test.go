package placement_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/placement/key"
)

const keyCount = 20_000

// hashes yields n key hashes, the same every time.
func hashes(n int) func(func(uint64) bool) {
	return func(yield func(uint64) bool) {
		for i := range n {
			if !yield(key.HashInt(int64(i), 7)) {
				return
			}
		}
	}
}

func algorithm(t testing.TB, name string, config placement.Config) placement.Algorithm {
	t.Helper()
	a, err := placement.New(name, config)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func keysOf(t testing.TB, a placement.Algorithm, shards []placement.Shard) placement.Placer {
	t.Helper()
	p, err := a.Keys(shards)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func rangesOf(t testing.TB, a placement.Algorithm, from *placement.Map, shards []placement.Shard) *placement.Map {
	t.Helper()
	m, err := a.Ranges(from, shards)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// each runs a test for every algorithm.
func each(t *testing.T, test func(t *testing.T, name string)) {
	for _, info := range placement.Algorithms() {
		t.Run(info.Name, func(t *testing.T) { test(t, info.Name) })
	}
}

func TestTotalDeterministicEveryShardReachable(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		for _, n := range []int{1, 2, 3, 20, 32, 33} {
			shards := placement.Numbered("shard-", n)
			a := algorithm(t, name, placement.Config{})
			first, second := keysOf(t, a, shards), keysOf(t, algorithm(t, name, placement.Config{}), shards)
			m := rangesOf(t, a, nil, shards)
			reached, owning := make([]bool, n), make([]bool, n)
			for h := range hashes(keyCount) {
				shard := first.Place(h)
				if shard < 0 || shard >= n || shard != second.Place(h) {
					t.Fatalf("%d shards: key %#x goes to %d and %d", n, h, shard, second.Place(h))
				}
				reached[shard], owning[m.Lookup(h)] = true, true
			}
			if slices.Contains(reached, false) || slices.Contains(owning, false) {
				t.Errorf("%d shards: not all are reachable: %v %v", n, reached, owning)
			}
			for h := range hashes(50) {
				checkReplicas(t, first, second, n, h, 3)
				checkReplicas(t, first, second, n, h, n+1)
			}
		}
	})
}

// movesOnlyTo fails if a key moves anywhere but to the new shard.
func movesOnlyTo(t *testing.T, c *placement.Change, newcomer string) (share float64) {
	t.Helper()
	moved := 0
	for h := range hashes(keyCount) {
		before, after := c.ShardsBefore[c.Before.Place(h)], c.ShardsAfter[c.After.Place(h)]
		if before != after {
			moved++
			if after != newcomer {
				t.Fatalf("key %#x went from %s to %s", h, before, after)
			}
		}
	}
	return float64(moved) / keyCount
}

// movesOnlyFrom fails if a key moves that was not on the shard that left.
func movesOnlyFrom(t *testing.T, c *placement.Change, gone string) {
	t.Helper()
	for h := range hashes(keyCount) {
		before, after := c.ShardsBefore[c.Before.Place(h)], c.ShardsAfter[c.After.Place(h)]
		if before != after && before != gone || after == gone {
			t.Fatalf("key %#x went from %s to %s", h, before, after)
		}
	}
}

func change(t *testing.T, name string, level placement.Level, before, after []placement.Shard) *placement.Change {
	t.Helper()
	c, err := placement.NewChange(algorithm(t, name, placement.Config{}), level, before, after)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// consistent are the algorithms that move only what a new shard takes.
var consistent = []string{"ring", "ring32", "rendezvous", "rendezvous-fast", "jump", "slots", "weighted-ring", "weighted-rendezvous", "minimal"}

func TestAddingMovesOnlyToTheNewShard(t *testing.T) {
	for _, name := range consistent {
		for _, level := range []placement.Level{placement.KeyLevel, placement.SlotLevel} {
			for _, n := range []int{1, 4, 20, 31, 32} {
				t.Run(fmt.Sprintf("%s/%s/%d", name, level, n), func(t *testing.T) {
					shards := placement.Numbered("shard-", n+1)
					share := movesOnlyTo(t, change(t, name, level, shards[:n], shards), fmt.Sprintf("shard-%d", n))
					// A ring's new shard takes its share give or take what 150 points leave to chance; slots of 1,024 likewise.
					if fair := 1 / float64(n+1); share < fair*0.5 || share > fair*1.6 {
						t.Errorf("%.4f of the keys moved, fair is %.4f", share, fair)
					}
				})
			}
		}
	}
}

func TestRemovingMovesOnlyItsKeys(t *testing.T) {
	for _, name := range consistent {
		for _, n := range []int{2, 5, 21, 33} {
			for _, gone := range []int{0, n / 2, n - 1} {
				if name == "jump" && gone != n-1 {
					continue // jump can only drop its last shard
				}
				t.Run(fmt.Sprintf("%s/%d/%d", name, n, gone), func(t *testing.T) {
					shards := placement.Numbered("shard-", n)
					left := slices.Delete(slices.Clone(shards), gone, gone+1)
					for _, level := range []placement.Level{placement.KeyLevel, placement.SlotLevel} {
						movesOnlyFrom(t, change(t, name, level, shards, left), shards[gone].Name)
					}
				})
			}
		}
	}
}

func TestModuloAndFibonacciMoveNearlyEverything(t *testing.T) {
	shards := placement.Numbered("shard-", 21)
	for _, name := range []string{"modulo", "fibonacci"} {
		o := placement.Compare(change(t, name, placement.KeyLevel, shards[:20], shards), hashes(100_000))
		if o.Overlap() < 0.045 || o.Overlap() > 0.051 {
			t.Errorf("%s keeps %.4f, want about 1/21", name, o.Overlap())
		}
	}
}

func TestSeatsAreKeptOverSeveralChanges(t *testing.T) {
	a := algorithm(t, "rendezvous-fast", placement.Config{Slots: 1 << 14})
	shards := placement.Numbered("shard-", 9)
	nine := rangesOf(t, a, nil, shards)
	without := rangesOf(t, a, nine, slices.Delete(slices.Clone(shards), 3, 4))
	for _, move := range nine.Diff(without).Moves {
		if move.From != "shard-3" {
			t.Fatalf("removing shard-3 moved %v", move)
		}
	}
	if f := without.Figures(); f.Shards != 8 || f.Min == 0 {
		t.Errorf("the empty seat counts as a shard: %+v", f)
	}
	replaced := rangesOf(t, a, without, append(slices.Delete(slices.Clone(shards), 3, 4), placement.Shard{Name: "new"}))
	for _, move := range without.Diff(replaced).Moves {
		if move.To != "new" {
			t.Fatalf("adding a shard moved %v", move)
		}
	}
	if !slices.Equal(replaced.Shards()[3:4], []string{"new"}) {
		t.Errorf("the newcomer did not take the empty seat: %v", replaced.Shards())
	}
}

// TestFewSeatsTaken reaches the fallback: with one of 4,096 seats taken, two hundred looks mostly find nothing.
func TestFewSeatsTaken(t *testing.T) {
	shards := make([]placement.Shard, 4096)
	shards[4000], shards[17] = placement.Shard{Name: "a"}, placement.Shard{Name: "b"}
	p := keysOf(t, algorithm(t, "rendezvous-fast", placement.Config{}), shards)
	counts := placement.Count(p, len(shards), hashes(keyCount))
	if counts[4000]+counts[17] != keyCount || math.Abs(counts[17]/keyCount-0.5) > 0.02 {
		t.Errorf("%v and %v keys, want half each", counts[4000], counts[17])
	}
	checkReplicas(t, p, p, 2, 99, 3)
}

func TestWeightsAreRespected(t *testing.T) {
	shards := []placement.Shard{{Name: "small", Weight: 0.5}, {Name: "one"}, {Name: "two", Weight: 2}, {Name: "four", Weight: 4}}
	for _, info := range placement.Algorithms() {
		t.Run(info.Name, func(t *testing.T) {
			a := algorithm(t, info.Name, placement.Config{VirtualNodes: 1000, LoadFactor: 1.05})
			p, err := a.Keys(shards)
			if !info.Weighted {
				if err == nil || !strings.Contains(err.Error(), "cannot honour unequal weights") {
					t.Fatalf("unequal weights: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			counts := placement.Count(p, len(shards), hashes(100_000))
			for i, want := range []float64{0.5, 1, 2, 4} {
				if got, want := counts[i]/100_000, want/7.5; got < want*0.9 || got > want*1.1 {
					t.Errorf("%s has %.4f of the keys, want %.4f", shards[i].Name, got, want)
				}
			}
		})
	}
}

func TestRaisingAWeightMovesOnlyToThatShard(t *testing.T) {
	before := placement.Numbered("shard-", 8)
	after := slices.Clone(before)
	after[3].Weight = 2
	for _, name := range []string{"weighted-ring", "weighted-rendezvous", "minimal", "slots"} {
		t.Run(name, func(t *testing.T) {
			if share := movesOnlyTo(t, change(t, name, placement.KeyLevel, before, after), "shard-3"); share == 0 {
				t.Error("nothing moved")
			}
		})
	}
}

func TestDoubling(t *testing.T) {
	shards := placement.Numbered("shard-", 40)
	a := algorithm(t, "doubling", placement.Config{})
	before := rangesOf(t, a, nil, shards[:20])
	after := rangesOf(t, a, before, shards)
	movement := before.Diff(after)
	if movement.Extent.Share() < 0.4999999 || movement.Extent.Share() > 0.5000001 {
		t.Errorf("%v of the space moves, want half", movement.Extent.Share())
	}
	for _, move := range movement.Moves {
		var from, to int
		_, _ = fmt.Sscanf(move.From+" "+move.To, "shard-%d shard-%d", &from, &to)
		if to != from+20 {
			t.Fatalf("%s gives to %s, not to its twin", move.From, move.To)
		}
	}
	if !rangesOf(t, a, nil, shards).Equal(after) {
		t.Error("forty shards at once and twenty doubled differ")
	}
	for _, bad := range [][]placement.Shard{shards[:21], shards[:19], placement.Numbered("other-", 40)} {
		if _, err := a.Ranges(before, bad); err == nil {
			t.Errorf("doubling 20 shards to %d was not refused", len(bad))
		}
	}
}

func TestBoundedStaysWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "shards")
		factor := rapid.Float64Range(1.001, 2).Draw(t, "factor")
		shards := placement.Numbered("shard-", n)
		total := 0.0
		for i := range shards {
			shards[i].Weight = rapid.Float64Range(0.1, 5).Draw(t, "weight")
			total += shards[i].Weight
		}
		a, err := placement.New("bounded", placement.Config{LoadFactor: factor, VirtualNodes: rapid.IntRange(10, 60).Draw(t, "nodes")})
		if err != nil {
			t.Fatal(err)
		}
		m, err := a.Ranges(nil, shards)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range m.Extents() {
			if limit := factor * shards[i].Weight / total; e.Share() > limit*(1+1e-12) {
				t.Fatalf("%s has %v of the space, its limit is %v", shards[i].Name, e.Share(), limit)
			}
		}
	})
}

func TestBalancerBoundsLiveLoads(t *testing.T) {
	shards := placement.Numbered("cache-", 7)
	b, err := placement.NewBalancer(shards, placement.Config{LoadFactor: 1.1})
	if err != nil {
		t.Fatal(err)
	}
	var held []int
	for h := range hashes(5000) {
		held = append(held, b.Acquire(h))
	}
	for shard, load := range b.Loads() {
		if limit := math.Ceil(1.1 * 5000 / 7); float64(load) > limit {
			t.Errorf("shard %d holds %d, limit %v", shard, load, limit)
		}
	}
	// One hot key cannot pile up on one shard.
	for range 5000 {
		held = append(held, b.Acquire(42))
	}
	if most := slices.Max(b.Loads()); float64(most) > math.Ceil(1.1*10_000/7) {
		t.Errorf("a hot key piled %d on one shard", most)
	}
	for _, shard := range held {
		b.Release(shard)
	}
	if most := slices.Max(b.Loads()); most != 0 {
		t.Errorf("%d held after everything was released", most)
	}
	defer func() {
		if recover() == nil {
			t.Error("releasing what was never acquired did not panic")
		}
	}()
	b.Release(0)
}

func TestBalancerFollowsTheRing(t *testing.T) {
	shards := placement.Numbered("cache-", 7)
	ring := keysOf(t, algorithm(t, "ring", placement.Config{}), shards)
	b, err := placement.NewBalancer(shards, placement.Config{LoadFactor: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	// The last hash lies after the last point, where the ring closes.
	for _, h := range append(slices.Collect(hashes(2000)), math.MaxUint64) {
		if got, want := b.Acquire(h), ring.Place(h); got != want {
			t.Fatalf("key %#x: balancer %d, ring %d", h, got, want)
		}
	}
}

func TestWrongInputIsRefused(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		a := algorithm(t, name, placement.Config{})
		for what, shards := range map[string][]placement.Shard{
			"no shards": nil, "a name twice": placement.Named("a", "b", "a"), "a nameless shard": {{Name: "a"}, {Weight: 1}},
			"a negative weight": {{Name: "a", Weight: -1}}, "an infinite weight": {{Name: "a", Weight: math.Inf(1)}}, "no number": {{Name: "a", Weight: math.NaN()}},
		} {
			if _, err := a.Keys(shards); err == nil {
				t.Errorf("Keys takes %s", what)
			}
			if _, err := a.Ranges(nil, shards); err == nil {
				t.Errorf("Ranges takes %s", what)
			}
		}
	})
	for _, config := range []placement.Config{
		{VirtualNodes: -1}, {VirtualNodes: 1 << 30}, {Slots: -1}, {Slots: 1000}, {Slots: 1 << 30}, {LoadFactor: 1}, {LoadFactor: math.NaN()},
	} {
		if _, err := placement.New("ring", config); err == nil {
			t.Errorf("config %+v was taken", config)
		}
	}
	if _, err := placement.New("rings", placement.Config{}); !errors.Is(err, placement.ErrUnknownAlgorithm) {
		t.Errorf("an unknown algorithm gives %v", err)
	}
}

// TestTooFewSlotsAreRefused: a shard that no slot reaches would be paid for and never used.
func TestTooFewSlotsAreRefused(t *testing.T) {
	for _, name := range []string{"rendezvous", "rendezvous-fast", "jump", "modulo", "fibonacci", "slots", "minimal", "weighted-rendezvous"} {
		_, err := algorithm(t, name, placement.Config{Slots: 16}).Ranges(nil, placement.Numbered("s", 20))
		if err == nil || !strings.Contains(err.Error(), "use more slots") {
			t.Errorf("%s with 16 slots for 20 shards: %v", name, err)
		}
	}
	uneven := []placement.Shard{{Name: "a", Weight: 1000}, {Name: "b"}}
	for _, name := range []string{"slots", "minimal"} {
		if _, err := algorithm(t, name, placement.Config{Slots: 16}).Ranges(nil, uneven); err == nil {
			t.Errorf("%s gave a shard no slot without a word", name)
		}
	}
}

// colliding puts the first points of all shards at one place and leaves the others alone.
func colliding(label string) uint64 {
	if strings.HasSuffix(label, "-vnode-0") {
		return 0
	}
	return key.HashText(label, 0)
}

func TestCollisionsAreSettledByName(t *testing.T) {
	config := placement.Config{VirtualNodes: 2, NodeHash: colliding}
	for _, name := range []string{"ring", "ring32"} {
		for _, shards := range [][]placement.Shard{placement.Named("b", "a"), placement.Named("a", "b")} {
			m := rangesOf(t, algorithm(t, name, config), nil, shards)
			if owner := m.Owner(0); owner != "a" {
				t.Errorf("%s, shards %v: %q has the place that both want", name, shards, owner)
			}
		}
	}
}

func TestAShardWithoutAPlaceIsRefused(t *testing.T) {
	config := placement.Config{NodeHash: func(string) uint64 { return 5 }}
	for _, name := range []string{"ring", "ring32", "weighted-ring", "bounded"} {
		if _, err := algorithm(t, name, config).Ranges(nil, placement.Named("a", "b")); err == nil {
			t.Errorf("%s: a shard without any place on the ring was taken", name)
		}
	}
	if _, err := placement.NewBalancer(placement.Named("a", "b"), config); err == nil {
		t.Error("balancer: a shard without any place on the ring was taken")
	}
}

func TestTooManyPointsAreRefused(t *testing.T) {
	a := algorithm(t, "ring", placement.Config{VirtualNodes: 1 << 20})
	if _, err := a.Ranges(nil, placement.Numbered("s", 1000)); err == nil {
		t.Error("a thousand million virtual nodes were taken")
	}
}

func TestExtremesOfWeightsAndFactors(t *testing.T) {
	tiny := []placement.Shard{{Name: "a", Weight: 1e-310}, {Name: "b", Weight: 1e-310}, {Name: "c", Weight: 1e-310}}
	for _, name := range []string{"weighted-rendezvous", "minimal", "slots"} {
		counts := placement.Count(keysOf(t, algorithm(t, name, placement.Config{}), tiny), 3, hashes(9000))
		if f := placement.Measure(counts); f.Max > 3300 {
			t.Errorf("%s: equal tiny weights give %v", name, counts)
		}
	}
	lopsided := []placement.Shard{{Name: "a", Weight: 1e300}, {Name: "b", Weight: 1e-300}}
	for _, name := range []string{"weighted-rendezvous", "minimal", "slots", "weighted-ring", "bounded"} {
		if _, err := algorithm(t, name, placement.Config{}).Ranges(nil, lopsided); err == nil {
			t.Errorf("%s: a shard too small to get anything was taken", name)
		}
	}
	for _, factor := range []float64{1e25, 1e300} {
		bounded := keysOf(t, algorithm(t, "bounded", placement.Config{LoadFactor: factor}), placement.Numbered("s", 3))
		ring := keysOf(t, algorithm(t, "ring", placement.Config{}), placement.Numbered("s", 3))
		for h := range hashes(1000) {
			if bounded.Place(h) != ring.Place(h) {
				t.Fatalf("without a real bound, key %#x is not where the ring has it", h)
			}
		}
	}
}

func TestBoundedHoldsForSlotsToo(t *testing.T) {
	a := algorithm(t, "bounded", placement.Config{LoadFactor: 1.01})
	shards := placement.Numbered("shard-", 10)
	c, err := placement.NewChange(a, placement.SlotLevel, shards, shards)
	if err != nil {
		t.Fatal(err)
	}
	if f := c.Before.(*placement.Map).Figures(); f.Max > math.Ceil(1.01*1024/10)/1024 {
		t.Errorf("a shard has %v of the slots", f.Max)
	}
}

func TestSeatsRefuseTheSameNameTwice(t *testing.T) {
	a := algorithm(t, "rendezvous-fast", placement.Config{})
	from := rangesOf(t, a, nil, placement.Named("a", "b", "c"))
	if _, err := a.Ranges(from, placement.Named("a", "a", "c")); err == nil {
		t.Error("a name twice was taken")
	}
	if _, err := placement.NewChange(a, placement.KeyLevel, placement.Named("a", "b"), placement.Named("a", "a")); err == nil {
		t.Error("a name twice was taken key by key")
	}
	// A map with an empty seat can be stored and made again.
	seat := rangesOf(t, a, from, placement.Named("a", "c"))
	again, err := placement.NewMap(seat.Shards(), slices.Collect(seat.All()))
	if err != nil || !again.Equal(seat) {
		t.Errorf("a map with an empty seat cannot be made again: %v", err)
	}
}

func TestManyReplicas(t *testing.T) {
	p := keysOf(t, algorithm(t, "rendezvous-fast", placement.Config{}), placement.Numbered("s", 3000))
	all := p.Replicas(nil, 77, 3000)
	if few := p.Replicas(nil, 77, 5); !slices.Equal(few, all[:5]) {
		t.Errorf("five replicas %v are not the first of all %v", few, all[:5])
	}
	slices.Sort(all)
	if len(slices.Compact(all)) != 3000 {
		t.Error("not all shards, each once")
	}
	for _, info := range placement.Algorithms() {
		p := keysOf(t, algorithm(t, info.Name, placement.Config{}), placement.Numbered("s", 3))
		if got := p.Replicas(nil, 7, -1); len(got) != 0 {
			t.Errorf("%s: -1 replicas are %v", info.Name, got)
		}
	}
}

func TestMinimalFromAMapFinerThanSlots(t *testing.T) {
	ring := rangesOf(t, algorithm(t, "ring", placement.Config{}), nil, placement.Numbered("s", 200))
	m := rangesOf(t, algorithm(t, "minimal", placement.Config{Slots: 64}), ring, placement.Numbered("s", 201))
	if f := m.Figures(); f.Max-f.Min > 1e-15 {
		t.Errorf("shares from %v to %v", f.Min, f.Max)
	}
}

func TestFiguresByWeight(t *testing.T) {
	shards := []placement.Shard{{Name: "a"}, {Name: "b", Weight: 2}, {Name: "c"}}
	m := rangesOf(t, algorithm(t, "minimal", placement.Config{}), nil, shards)
	if f := m.FiguresByWeight(shards); f.Skew() != 1 || math.Abs(f.Total-1) > 1e-12 {
		t.Errorf("shares in proportion to weights: %+v", f)
	}
	if f := m.Figures(); f.Skew() != 2 {
		t.Errorf("plain shares: %+v", f)
	}
}

func TestReplicaSetsOutliveOtherShards(t *testing.T) {
	shards := placement.Numbered("shard-", 12)
	without := slices.Delete(slices.Clone(shards), 5, 6)
	for _, name := range []string{"ring", "rendezvous"} {
		a := algorithm(t, name, placement.Config{})
		before, after := keysOf(t, a, shards), keysOf(t, a, without)
		for h := range hashes(3000) {
			var was, is []string
			for _, i := range before.Replicas(nil, h, 3) {
				was = append(was, shards[i].Name)
			}
			for _, i := range after.Replicas(nil, h, 3) {
				is = append(is, without[i].Name)
			}
			if kept := slices.DeleteFunc(slices.Clone(was), func(s string) bool { return s == "shard-5" }); !slices.Equal(kept, is[:len(kept)]) {
				t.Fatalf("%s: replicas were %v, are %v", name, was, is)
			}
		}
	}
}

// TestAPointOwnsUpToItself: a key exactly at a point belongs to it, the next hash to the point that follows.
func TestAPointOwnsUpToItself(t *testing.T) {
	at := map[string]uint64{"a-vnode-0": 1000 << 32, "b-vnode-0": 2000 << 32}
	config := placement.Config{VirtualNodes: 1, NodeHash: func(label string) uint64 { return at[label] }}
	for name, last := range map[string]uint64{"ring": 1000 << 32, "ring32": 1000<<32 | 0xffffffff} {
		m := rangesOf(t, algorithm(t, name, config), nil, placement.Named("a", "b"))
		for h, want := range map[uint64]string{0: "a", last: "a", last + 1: "b", 2000 << 32: "b", 2001 << 32: "a", math.MaxUint64: "a"} {
			if got := m.Owner(h); got != want {
				t.Errorf("%s: %#x belongs to %s, want %s", name, h, got, want)
			}
		}
	}
}

// TestSlotsStayWhole: from a map that knows no slots, even slots come out whole and evenly counted.
func TestSlotsStayWhole(t *testing.T) {
	shards := placement.Numbered("shard-", 6)
	from := rangesOf(t, algorithm(t, "ring", placement.Config{}), nil, shards)
	m := rangesOf(t, algorithm(t, "slots", placement.Config{Slots: 64}), from, shards)
	for r := range m.All() {
		if r.Lo%(1<<58) != 0 {
			t.Fatalf("range %v cuts a slot", r.Range)
		}
	}
	if f := m.Figures(); f.Max-f.Min > 1.0/64 {
		t.Errorf("shares from %v to %v", f.Min, f.Max)
	}
}
