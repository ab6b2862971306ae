package rebalance

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cleavedb/cleave/internal/topology"
)

// largeWorld has a thousand shards and 150,000 ranges of uneven sizes in two keyspaces, which the last shards have little of.
func largeWorld(testing.TB) *world {
	random := rand.New(rand.NewPCG(1, 2))
	w := &world{shards: shardsOf(1000)}
	for i := range w.shards {
		w.shards[i].Weight = []float64{1, 2}[i%2]
		w.shards[i].Labels = map[string]string{"region": []string{"eu", "us", "asia"}[i%3]}
	}
	deal := func(ranges, shards int) []held {
		list := make([]held, ranges)
		for i := range list {
			list[i] = held{shard: w.shards[random.IntN(shards)].Name, bytes: 1<<28 + random.Int64N(1<<30)}
		}
		return list
	}
	return w.hashed("orders", deal(50_000, 1000)...).hashed("users", deal(100_000, 950)...)
}

// crowdedWorld has all of its 150,000 ranges on one of a thousand shards.
func crowdedWorld(testing.TB) *world {
	return (&world{shards: shardsOf(1000)}).hashed("users", even(150_000, 1<<30, "s1")...)
}

// ringWorld has a ring over all but fifty of its shards, which are new.
func ringWorld(tb testing.TB) *world {
	w := &world{shards: shardsOf(1000)}
	spec := topology.NewKeyspaceSpec("users", topology.ByHash, 7, "bigint")
	var err error
	if spec.Ranges, spec.Assignment, err = (&world{shards: w.shards[:950]}).build(tb).Assign(topology.Assignment{Algorithm: "ring", VirtualNodes: 158}); err != nil {
		tb.Fatal(err)
	}
	sizes := KeyspaceSizes{Keyspace: "users"}
	for i := range w.shards[:950] {
		sizes.Shards = append(sizes.Shards, ShardSize{Shard: w.shards[i].Name, Size: Size{Bytes: 150 << 30}})
	}
	w.keyspaces, w.sizes = append(w.keyspaces, spec), append(w.sizes, sizes)
	return w
}

var largePlans = []struct {
	name    string
	world   func(testing.TB) *world
	options Options
	change  func(*world)
}{
	{name: "uneven", world: largeWorld},
	{name: "split", world: largeWorld, options: Options{Split: true}},
	{name: "draining", world: largeWorld, change: func(w *world) {
		for i := range 100 {
			w.shards[i*10].State = topology.Draining
		}
	}},
	{name: "rules", world: largeWorld, options: Options{Rules: []Rule{
		{Keyspace: "users", To: topology.Point{"4000000000000000"}, Label: "region", Value: "eu"}, {Keyspace: "orders", From: topology.Point{"9000000000000000"}, Label: "region", Value: "us"},
	}}},
	{name: "ring", world: ringWorld, options: Options{Algorithm: "ring"}},
	{name: "moves", world: largeWorld, options: Options{MaxMoves: 300}},
	{name: "bytes", world: largeWorld, options: Options{MaxBytes: 1 << 42}},
	{name: "crowded", world: crowdedWorld},
	{name: "crowded-split", world: crowdedWorld, options: Options{Split: true, Tolerance: 0.001}},
}

// BenchmarkPlan plans for 1,000 shards with 150,000 ranges.
func BenchmarkPlan(b *testing.B) {
	for _, c := range largePlans {
		b.Run(c.name, func(b *testing.B) {
			w := c.world(b)
			if c.change != nil {
				c.change(w)
			}
			m := w.build(b)
			b.ReportAllocs()
			for b.Loop() {
				plan := must[*Plan](b)(Balance(m, w.sizes, c.options))
				b.ReportMetric(float64(len(plan.Moves)), "moves")
				b.ReportMetric(100*plan.MovementShare, "%moved")
				b.ReportMetric(plan.SkewAfter, "skew")
			}
		})
	}
}

func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it plans for tens of thousands of ranges")
	}
}

// TestLargePlans: the same at that scale, without a look at the clock.
func TestLargePlans(t *testing.T) {
	skipShort(t)
	for _, c := range largePlans {
		if !slices.Contains([]string{"uneven", "draining", "ring"}, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			w := c.world(t)
			if c.change != nil {
				c.change(w)
			}
			plan := must[*Plan](t)(Balance(w.build(t), w.sizes, c.options))
			checkSums(t, plan)
			if c.options.Algorithm == "" {
				checkWithin(t, plan)
			}
			if len(plan.Moves) == 0 || len(plan.Moves) > 10_000 {
				t.Errorf("%d moves", len(plan.Moves))
			}
		})
	}
}
