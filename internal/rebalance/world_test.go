package rebalance

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/cleavedb/cleave/internal/topology"
)

const clusterID = "0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11"

func must[T any](t testing.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// world is a map in the making, with the sizes of what it has.
type world struct {
	shards    []topology.ShardSpec
	keyspaces []topology.KeyspaceSpec
	sizes     Sizes
}

// shardsOf returns n active shards of weight 1 named s1, s2 …
func shardsOf(n int) []topology.ShardSpec {
	shards := make([]topology.ShardSpec, n)
	for i := range shards {
		shards[i] = topology.ShardSpec{Name: fmt.Sprintf("s%d", i+1), Primary: topology.InstanceSpec{Address: fmt.Sprintf("10.0.%d.%d:5432", i/250, i%250)}}
	}
	return shards
}

func hexPoint(h uint64) topology.Point {
	if h == 0 {
		return nil
	}
	return topology.Point{fmt.Sprintf("%016x", h)}
}

// held is a range of a world: who has it, and how much it has.
type held struct {
	shard  string
	bytes  int64
	copies []topology.CopySpec
	held   bool
}

// hashed adds a keyspace by hash with these ranges, all of the same width.
func (w *world) hashed(name string, ranges ...held) *world {
	spec := topology.NewKeyspaceSpec(name, topology.ByHash, 7, "bigint")
	sizes := KeyspaceSizes{Keyspace: name}
	step := math.MaxUint64/uint64(len(ranges)) + 1 // 0 for a single one
	for i, r := range ranges {
		from := hexPoint(uint64(i) * step)
		spec.Ranges = append(spec.Ranges, topology.RangeSpec{From: from, Shard: r.shard, Copies: r.copies, Held: r.held})
		sizes.Ranges = append(sizes.Ranges, RangeSize{From: from, Size: Size{Bytes: r.bytes, Rows: r.bytes / 10, Load: float64(r.bytes) / 4}})
	}
	w.keyspaces, w.sizes = append(w.keyspaces, spec), append(w.sizes, sizes)
	return w
}

// keyed adds a keyspace named events, by range of bigint, with ranges that begin at 0, 1000, 2000 …
func (w *world) keyed(ranges ...held) *world {
	spec := topology.NewKeyspaceSpec("events", topology.ByRange, 0, "bigint")
	sizes := KeyspaceSizes{Keyspace: "events"}
	for i, r := range ranges {
		var from topology.Point
		if i > 0 {
			from = topology.Point{strconv.Itoa(1000 * i)}
		}
		spec.Ranges = append(spec.Ranges, topology.RangeSpec{From: from, Shard: r.shard, Copies: r.copies, Held: r.held})
		sizes.Ranges = append(sizes.Ranges, RangeSize{From: from, Size: Size{Bytes: r.bytes, Rows: r.bytes / 10}})
	}
	w.keyspaces, w.sizes = append(w.keyspaces, spec), append(w.sizes, sizes)
	return w
}

// pin adds a pin to the keyspace that was added last.
func (w *world) pin(key, shard string, bytes int64) {
	k, sizes := &w.keyspaces[len(w.keyspaces)-1], &w.sizes[len(w.sizes)-1]
	k.Pins = append(k.Pins, topology.PinSpec{Key: topology.Point{key}, Shard: shard})
	sizes.Pins = append(sizes.Pins, PinSize{Key: topology.Point{key}, Size: Size{Bytes: bytes}})
}

// shard returns one to change.
func (w *world) shard(name string) *topology.ShardSpec {
	return &w.shards[slices.IndexFunc(w.shards, func(s topology.ShardSpec) bool { return s.Name == name })]
}

func (w *world) build(t testing.TB) *topology.Map {
	t.Helper()
	var changes []topology.Change
	for _, s := range w.shards {
		changes = append(changes, topology.AddShard(s))
	}
	for _, k := range w.keyspaces {
		changes = append(changes, topology.CreateKeyspace(k))
	}
	return must[*topology.Map](t)(must[*topology.Map](t)(topology.New(clusterID)).Next(changes...))
}

// even returns n ranges of the same size on each of these shards, in turn.
func even(n int, bytes int64, shards ...string) []held {
	var ranges []held
	for range n {
		for _, s := range shards {
			ranges = append(ranges, held{shard: s, bytes: bytes})
		}
	}
	return ranges
}

func names(shards []topology.ShardSpec) []string {
	list := make([]string, len(shards))
	for i, s := range shards {
		list[i] = s.Name
	}
	return list
}

// randomWorld has shards of several weights and ranges that are spread unevenly, but small enough for any tolerance of 5 %.
func randomWorld(random *rand.Rand) *world {
	w := &world{shards: shardsOf(3 + random.IntN(10))}
	likely := make([]float64, len(w.shards))
	for i := range w.shards {
		w.shards[i].Weight = []float64{1, 1, 1.5, 2}[random.IntN(4)]
		likely[i] = random.Float64() * random.Float64()
	}
	likely[0] = max(likely[0], 0.1)
	deal := func(ranges int) []held {
		list := make([]held, ranges)
		for i := range list {
			list[i] = held{shard: w.shards[drawn(random, likely)].Name, bytes: 1<<20 + random.Int64N(1<<20)}
		}
		return list
	}
	w.hashed("users", deal(len(w.shards)*60+random.IntN(500))...)
	w.hashed("orders", deal(len(w.shards)*60)...)
	w.keyed(deal(len(w.shards) * 40)...)
	for i := range random.IntN(50) {
		w.pin(strconv.Itoa(i*7), w.shards[drawn(random, likely)].Name, random.Int64N(1<<20))
	}
	return w
}

// drawn returns a number with a probability in proportion.
func drawn(random *rand.Rand, likely []float64) int {
	total := 0.0
	for _, l := range likely {
		total += l
	}
	at := random.Float64() * total
	for i, l := range likely {
		if at -= l; at < 0 {
			return i
		}
	}
	return 0
}

// seeded runs a test for many seeds.
func seeded(t *testing.T, seeds int, run func(t *testing.T, random *rand.Rand)) {
	for seed := range seeds {
		t.Run(strconv.Itoa(seed), func(t *testing.T) { run(t, rand.New(rand.NewPCG(uint64(seed), 77))) })
	}
}

// extent is a range of a map as the oracle sees it: from the texts that people read, nothing of the planner.
type extent struct {
	keyspace, from, to string
	owner              string
	bytes              float64
}

// oracle applies plans to a map.
type oracle struct {
	extents []extent
	pins    map[[2]string]extent
}

func newOracle(w *world) *oracle {
	o := &oracle{pins: map[[2]string]extent{}}
	for at, k := range w.keyspaces {
		for i, r := range k.Ranges {
			e := extent{keyspace: k.Name, from: r.From.String(), to: "the beginning", owner: going(r.Shard, r.Copies), bytes: float64(w.sizes[at].Ranges[i].Bytes)}
			if i+1 < len(k.Ranges) {
				e.to = k.Ranges[i+1].From.String()
			}
			o.extents = append(o.extents, e)
		}
		for i, pin := range k.Pins {
			o.pins[[2]string{k.Name, pin.Key.String()}] = extent{owner: going(pin.Shard, pin.Copies), bytes: float64(w.sizes[at].Pins[i].Bytes)}
		}
	}
	return o
}

func going(owner string, copies []topology.CopySpec) string {
	for _, c := range copies {
		if c.State != topology.Leaving {
			return c.Shard
		}
	}
	return owner
}

// apply makes the splits and moves of a plan. Ranges of hashes are cut by width; what a piece of raw keys has, the plan must say.
func (o *oracle) apply(t testing.TB, plan *Plan) {
	t.Helper()
	for _, s := range plan.Splits {
		o.split(t, s, plan)
	}
	for _, m := range plan.Moves {
		for _, r := range m.Ranges {
			at := slices.IndexFunc(o.extents, func(e extent) bool {
				return e.keyspace == m.Keyspace && e.from == r.From.String() && e.to == r.To.String()
			})
			if at < 0 || o.extents[at].owner != m.Source {
				t.Fatalf("keyspace %s: [%s, %s) does not go from %s to %s: that shard does not own such a range", m.Keyspace, r.From, r.To, m.Source, m.Target)
			}
			if math.Abs(o.extents[at].bytes-float64(r.Bytes)) > 2 {
				t.Fatalf("keyspace %s: [%s, %s) has %f bytes, not %d", m.Keyspace, r.From, r.To, o.extents[at].bytes, r.Bytes)
			}
			o.extents[at].owner = m.Target
		}
		for _, key := range m.Pins {
			at := [2]string{m.Keyspace, key.String()}
			pin, there := o.pins[at]
			if !there || pin.owner != m.Source {
				t.Fatalf("pin %v is not on %s", at, m.Source)
			}
			pin.owner = m.Target
			o.pins[at] = pin
		}
	}
}

func (o *oracle) split(t testing.TB, s Split, plan *Plan) {
	t.Helper()
	for i, e := range o.extents {
		if e.keyspace != s.Keyspace || e.owner != s.Shard || !o.hasInside(e, s.At[0]) {
			continue
		}
		upper := e
		upper.from, o.extents[i].to = s.At[0], s.At[0]
		if len(s.At[0]) == 16 {
			share := (place(e.to, true) - place(s.At[0], false)) / (place(e.to, true) - place(e.from, false))
			upper.bytes = e.bytes * share
		} else {
			upper.bytes = said(plan, s.Keyspace, upper, e.bytes)
		}
		o.extents[i].bytes -= upper.bytes
		o.extents = slices.Insert(o.extents, i+1, upper)
		return
	}
	t.Fatalf("keyspace %s: %s is inside of no range of shard %s", s.Keyspace, s.At, s.Shard)
}

// said is what the plan says of the pieces of raw keys in there, or else nothing.
func said(plan *Plan, keyspace string, e extent, otherwise float64) float64 {
	sum, found := 0.0, false
	for _, m := range plan.Moves {
		for _, r := range m.Ranges {
			if m.Keyspace == keyspace && place(r.From.String(), false) >= place(e.from, false) && place(r.To.String(), true) <= place(e.to, true) {
				sum, found = sum+float64(r.Bytes), true
			}
		}
	}
	if !found {
		return otherwise / 2
	}
	return sum
}

func (o *oracle) hasInside(e extent, point string) bool {
	return number(point, false) > number(e.from, false) && number(point, false) < number(e.to, true)
}

// number reads a point as a whole number; raw keys here are never negative.
func number(point string, end bool) uint64 {
	base := 10
	if len(point) == 16 {
		base = 16
	}
	n, err := strconv.ParseUint(point, base, 64)
	if err != nil && end {
		return math.MaxUint64
	}
	return n
}

// place is the number as it can be divided.
func place(point string, end bool) float64 { return float64(number(point, end)) }

// loads is what each shard has.
func (o *oracle) loads() map[string]float64 {
	loads := map[string]float64{}
	for _, e := range o.extents {
		loads[e.owner] += e.bytes
	}
	for _, e := range o.pins {
		loads[e.owner] += e.bytes
	}
	return loads
}

// largest is the largest range or pin.
func (w *world) largest() int64 {
	largest := int64(0)
	for _, k := range w.sizes {
		for _, r := range k.Ranges {
			largest = max(largest, r.Bytes)
		}
		for _, p := range k.Pins {
			largest = max(largest, p.Bytes)
		}
	}
	return largest
}

// checkArithmetic holds what a plan says against what comes of it.
func checkArithmetic(t testing.TB, w *world, plan *Plan) {
	t.Helper()
	o := newOracle(w)
	before := o.loads()
	o.apply(t, plan)
	after := o.loads()
	skew, rounding := 1.0, 2+2*float64(len(plan.Splits))
	for _, s := range plan.Shards {
		if float64(s.Before.Bytes) != before[s.Shard] {
			t.Errorf("shard %s has %f bytes before, the plan says %d", s.Shard, before[s.Shard], s.Before.Bytes)
		}
		if math.Abs(float64(s.After.Bytes)-after[s.Shard]) > rounding {
			t.Errorf("shard %s has %f bytes after, the plan says %d", s.Shard, after[s.Shard], s.After.Bytes)
		}
		if s.TakesPart && s.Ideal > 0 {
			skew = max(skew, after[s.Shard]/s.Ideal)
		}
	}
	if plan.Measure == ByBytes && math.Abs(skew-plan.SkewAfter) > 1e-4 {
		t.Errorf("the skew after is %f, the plan says %f", skew, plan.SkewAfter)
	}
	checkSums(t, plan)
}

func checkSums(t testing.TB, plan *Plan) {
	t.Helper()
	var bytes, total, ranges int64
	seen := map[[3]string]bool{} // pairs with a move that is not full
	for _, m := range plan.Moves {
		bytes += m.Bytes
		ranges = 0
		for _, r := range m.Ranges {
			ranges += r.Bytes
		}
		if len(m.Pins) == 0 && ranges != m.Bytes || len(m.Ranges)+len(m.Pins) == 0 || m.Reason == "" || m.Detail == "" {
			t.Errorf("a move is not what it says: %+v", m)
		}
		of := [3]string{m.Keyspace, m.Source, m.Target}
		if seen[of] || m.Source == m.Target {
			t.Errorf("two moves of %v, or one to itself", of)
		}
		seen[of] = runsOf(m.Ranges)+len(m.Pins) < maxMoveParts
	}
	for _, s := range plan.Shards {
		total += s.After.Bytes
	}
	if bytes != plan.Bytes || total != plan.TotalBytes || plan.TotalBytes > 0 && plan.MovementShare != float64(bytes)/float64(total) {
		t.Errorf("the plan moves %d of %d bytes, and says %d of %d, a share of %f", bytes, total, plan.Bytes, plan.TotalBytes, plan.MovementShare)
	}
}

// change returns what the plan says of a shard.
func change(t testing.TB, plan *Plan, shard string) ShardChange {
	t.Helper()
	at, found := slices.BinarySearchFunc(plan.Shards, shard, func(s ShardChange, name string) int {
		return cmp.Or(cmp.Compare(len(s.Shard), len(name)), cmp.Compare(s.Shard, name))
	})
	if !found {
		t.Fatalf("the plan says nothing of shard %s", shard)
	}
	return plan.Shards[at]
}

// checkWithin says whether every shard that takes part is within the tolerance of its target.
func checkWithin(t testing.TB, plan *Plan) {
	t.Helper()
	for _, s := range plan.Shards {
		if !s.TakesPart {
			continue
		}
		if has := float64(s.After.Bytes); has < s.Target*(1-plan.Tolerance)-2 || has > s.Target*(1+plan.Tolerance)+2 {
			t.Errorf("shard %s has %.0f bytes, %.1f %% of its target", s.Shard, has, 100*has/s.Target)
		}
	}
}
