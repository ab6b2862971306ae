package rebalance

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cleavedb/cleave/internal/topology"
)

// TestEveryShardEndsWithinTheTolerance: whatever the map, with the least movement but for one range per shard.
func TestEveryShardEndsWithinTheTolerance(t *testing.T) {
	seeded(t, 60, func(t *testing.T, random *rand.Rand) {
		w := randomWorld(random)
		plan := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{Split: random.IntN(2) == 0}))
		checkArithmetic(t, w, plan)
		checkWithin(t, plan)
		checkLeast(t, w, plan)
		weights := 0.0
		for _, s := range plan.Shards {
			weights += s.Weight
		}
		for _, s := range plan.Shards {
			if ideal := float64(plan.TotalBytes) * s.Weight / weights; ideal/s.Ideal < 0.999999 || ideal/s.Ideal > 1.000001 || s.Target/s.Ideal < 0.999999 || s.Target/s.Ideal > 1.000001 {
				t.Errorf("shard %s of weight %v has an ideal share of %f and a target of %f, not %f", s.Shard, s.Weight, s.Ideal, s.Target, ideal)
			}
		}
		if len(plan.Warnings) > 0 {
			t.Error(plan.Warnings)
		}
	})
}

// checkLeast holds what moves against what must, whatever the plan: what is to be emptied and what is above the tolerance, or else what is missing below it.
func checkLeast(t testing.TB, w *world, plan *Plan) {
	t.Helper()
	var over, under float64
	for _, s := range plan.Shards {
		switch {
		case s.TakesPart:
			over += max(0, float64(s.Before.Bytes)-s.Ideal*(1+plan.Tolerance))
			under += max(0, s.Ideal*(1-plan.Tolerance)-float64(s.Before.Bytes))
		default:
			over += float64(s.Before.Bytes - s.After.Bytes) // of those that are left alone nothing
		}
	}
	least, shards := max(over, under), float64(len(plan.Shards))
	if most := least + float64(w.largest())*shards; float64(plan.Bytes) < least-2*shards || float64(plan.Bytes) > most {
		t.Errorf("%d bytes move; %.0f must, and with a range more for each shard %.0f may", plan.Bytes, least, most)
	}
}

// TestThoseBelowGetFirst: what one shard has too much is just what ten others lack, so nothing else has to move.
func TestThoseBelowGetFirst(t *testing.T) {
	w := &world{shards: shardsOf(21)}
	ranges := even(230, 5, "s1")
	for i := range 10 {
		ranges = slices.Concat(ranges, even(188, 5, w.shards[1+i].Name), even(209, 5, w.shards[11+i].Name))
	}
	plan := must[*Plan](t)(Balance(w.hashed("users", ranges...).build(t), w.sizes, Options{}))
	checkWithin(t, plan)
	if plan.Bytes != 100 || len(plan.Moves) != 10 {
		t.Errorf("%d bytes move in %d moves", plan.Bytes, len(plan.Moves))
	}
}

// TestFewMovesDoMuch: a shard of a hundred that goes, or comes, has to do with some twenty others and not with all: as many as can give or take it within their tolerance.
func TestFewMovesDoMuch(t *testing.T) {
	w := &world{shards: shardsOf(101)}
	w.hashed("users", even(100, 1000, names(w.shards[:100])...)...)
	grown := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{}))
	w.shard("s101").State, w.shard("s7").State = topology.Maintenance, topology.Draining
	shrunk := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{}))
	for _, plan := range []*Plan{grown, shrunk} {
		checkArithmetic(t, w, plan)
		checkWithin(t, plan)
		if len(plan.Moves) > 26 {
			t.Errorf("%d moves", len(plan.Moves))
		}
	}
}

// TestWhatIsMostUrgentMovesFirst: with a limit, what breaks a rule goes before what is on a draining shard, and that before balance.
func TestWhatIsMostUrgentMovesFirst(t *testing.T) {
	w := (&world{shards: shardsOf(4)}).hashed("orders", even(20, 100, "s1")...).hashed("users", even(20, 100, "s2")...).hashed("zeroes", even(20, 100, "s3")...)
	w.shard("s2").State, w.shard("s4").Labels = topology.Draining, map[string]string{"region": "eu"}
	rules := []Rule{{Keyspace: "orders", Label: "region", Value: "eu"}}
	for limit, want := range map[int64][]Reason{2000: {ByRule}, 4000: {ByRule, Emptying}} {
		plan := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{Rules: rules, MaxBytes: limit}))
		var got []Reason
		for _, m := range plan.Moves {
			got = append(got, m.Reason)
		}
		if got = slices.Compact(got); !slices.Equal(got, want) || plan.Bytes != limit {
			t.Errorf("of %d bytes move %d, for %v", limit, plan.Bytes, got)
		}
	}
}

// TestLimitsCutRanges: what is left of a limit of bytes is used, if ranges may be cut.
func TestLimitsCutRanges(t *testing.T) {
	w := (&world{shards: shardsOf(3)}).hashed("users", even(1, 1<<40, "s1", "s2")...)
	w.shard("s1").State = topology.Draining
	for _, options := range []Options{{Split: true, MaxBytes: 1 << 38}, {Split: true, MaxBytes: 1 << 20}} {
		plan := must[*Plan](t)(Balance(w.build(t), w.sizes, options))
		checkArithmetic(t, w, plan)
		if plan.Bytes > options.MaxBytes || plan.Bytes < options.MaxBytes-2 {
			t.Errorf("%d bytes move, of at most %d", plan.Bytes, options.MaxBytes)
		}
	}
}

// TestCutsThatAreNotUsedAreJoined: a rule that ends in the middle of a range that stays leaves it whole.
func TestCutsThatAreNotUsedAreJoined(t *testing.T) {
	w := (&world{shards: shardsOf(2)}).hashed("users", even(2, 100, "s1", "s2")...)
	w.shard("s1").Labels = map[string]string{"region": "eu"}
	plan := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{Split: true, Rules: []Rule{{Keyspace: "users", To: topology.Point{"1000000000000000"}, Label: "region", Value: "eu"}}}))
	if s := change(t, plan, "s1"); len(plan.Moves) > 0 || len(plan.Splits) > 0 || s.Before != s.After || s.Before.Ranges != 2 {
		t.Errorf("%+v, %+v", plan.Splits, s)
	}
}

// TestUnitsCanMoveTwice: the last place counts, for the first reason; and who comes back has not moved.
func TestUnitsCanMoveTwice(t *testing.T) {
	w := (&world{shards: shardsOf(3)}).hashed("users", even(1, 100, "s1", "s2", "s3")...)
	p := must[*planner](t)(newPlanner(w.build(t), w.sizes, Options{}, ""))
	p.place(0, 1, Emptying)
	p.place(0, 2, Balancing)
	if p.bytes != 100 || len(p.pairs) != 1 || p.pairs[pair{0, 0, 2}] != 1 || p.units[0].reason != Emptying || p.shards[2].load != 200 || p.shards[1].load != 100 {
		t.Errorf("%d bytes, %v, for %s", p.bytes, p.pairs, p.units[0].reason)
	}
	p.place(0, 0, Balancing)
	if p.bytes != 0 || len(p.pairs) != 0 || p.shards[0].load != 100 {
		t.Errorf("%d bytes, %v", p.bytes, p.pairs)
	}
}

// TestOthersCauseNoMoves: what an excluded shard has too much or too little of is no reason to move anything.
func TestOthersCauseNoMoves(t *testing.T) {
	w := (&world{shards: shardsOf(5)}).hashed("users", slices.Concat(even(10, 100, "s1", "s2", "s3"), even(90, 100, "s4"))...)
	if plan := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{Excluded: []string{"s4", "s5"}, Split: true})); len(plan.Moves) > 0 || plan.SkewBefore != 1 {
		t.Errorf("%+v", plan.Moves)
	}
	if plan := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{Excluded: []string{"s4"}})); len(plan.Moves) == 0 {
		t.Error("the new shard gets nothing")
	}
}

// TestDrainObeysRules: what needs a label that no other shard has stays.
func TestDrainObeysRules(t *testing.T) {
	w := (&world{shards: shardsOf(3)}).hashed("orders", even(4, 100, "s1")...).hashed("users", even(4, 100, "s1", "s2", "s3")...)
	w.shard("s1").Labels = map[string]string{"region": "eu"}
	plan := must[*Plan](t)(Drain(w.build(t), "s1", w.sizes, Options{Rules: []Rule{{Keyspace: "orders", Label: "region", Value: "eu"}}}))
	if plan.Bytes != 400 || change(t, plan, "s1").After.Ranges != 4 || len(plan.Warnings) != 2 {
		t.Errorf("%d bytes move: %v", plan.Bytes, plan.Warnings)
	}
}

func TestWhatIsBalancedStays(t *testing.T) {
	seeded(t, 20, func(t *testing.T, random *rand.Rand) {
		w := &world{shards: shardsOf(2 + random.IntN(8))}
		for i := range w.shards {
			w.shards[i].Weight = float64(1 + random.IntN(3))
		}
		var ranges []held
		for _, s := range w.shards {
			for range 100 {
				ranges = append(ranges, held{shard: s.Name, bytes: int64(s.Weight * (970_000 + 60_000*random.Float64()))})
			}
		}
		random.Shuffle(len(ranges), func(i, j int) { ranges[i], ranges[j] = ranges[j], ranges[i] })
		plan := must[*Plan](t)(Balance(w.hashed("users", ranges...).build(t), w.sizes, Options{Split: true, BytesPerSecond: 1}))
		if len(plan.Moves) > 0 || plan.Bytes != 0 || plan.EstimatedSeconds != 0 || plan.SkewBefore != plan.SkewAfter || len(plan.Warnings) > 0 {
			t.Errorf("something moves: %+v", plan)
		}
	})
}

// TestNobodyElseIsTouched: shards that are excluded, read-only or in maintenance keep what they have and get nothing, draining ones end empty, and what has a move under way stays.
func TestNobodyElseIsTouched(t *testing.T) {
	seeded(t, 60, func(t *testing.T, random *rand.Rand) {
		w := randomWorld(random)
		states := map[string]topology.State{}
		var excluded []string
		for i := range w.shards[1:] {
			s := &w.shards[i+1]
			s.State = []topology.State{topology.Active, topology.Active, topology.Draining, topology.ReadOnly, topology.Maintenance}[random.IntN(5)]
			states[s.Name] = s.State
			if random.IntN(6) == 0 {
				excluded = append(excluded, s.Name)
			}
		}
		busy := makeBusy(random, w)
		plan := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{Excluded: excluded, Split: random.IntN(2) == 0}))
		checkArithmetic(t, w, plan)
		for _, m := range plan.Moves {
			for _, r := range m.Ranges {
				if busy[m.Keyspace+" "+r.From.String()] {
					t.Errorf("keyspace %s: the range from %s moves, though a move is under way", m.Keyspace, r.From)
				}
			}
			if state := states[m.Source]; slices.Contains(excluded, m.Source) || state == topology.ReadOnly || state == topology.Maintenance {
				t.Errorf("%s gives something", m.Source)
			}
			if state := states[m.Target]; slices.Contains(excluded, m.Target) || state != topology.Active && state != "" {
				t.Errorf("%s gets something", m.Target)
			}
			if (m.Reason == Emptying) != (states[m.Source] == topology.Draining) {
				t.Errorf("a move from %s, which is %s, is for %s", m.Source, states[m.Source], m.Reason)
			}
		}
		for _, s := range plan.Shards {
			stays := 0
			for key := range busy {
				if strings.HasSuffix(key, " to "+s.Shard) {
					stays++
				}
			}
			if s.State == topology.Draining && !slices.Contains(excluded, s.Shard) && s.After.Ranges+s.After.Pins != stays {
				t.Errorf("draining shard %s keeps %d ranges and %d pins, want %d", s.Shard, s.After.Ranges, s.After.Pins, stays)
			}
		}
		checkWithin(t, plan)
		checkLeast(t, w, plan)
	})
}

// makeBusy begins moves of some ranges, and returns them: where they begin, and as " to " where they are going.
func makeBusy(random *rand.Rand, w *world) map[string]bool {
	busy := map[string]bool{}
	for at := range w.keyspaces {
		k := &w.keyspaces[at]
		for i := range k.Ranges {
			r := &k.Ranges[i]
			other := w.shards[random.IntN(len(w.shards))].Name
			if random.IntN(100) > 0 || other == r.Shard {
				continue
			}
			switch random.IntN(4) {
			case 0:
				r.Copies = []topology.CopySpec{{Shard: other, State: topology.Incoming}}
			case 1:
				r.Copies, r.Held = []topology.CopySpec{{Shard: other, State: topology.Opening}}, true
			case 2:
				r.Copies = []topology.CopySpec{{Shard: other, State: topology.Leaving}}
			default:
				r.Held = true
			}
			busy[k.Name+" "+r.From.String()] = true
			busy[k.Name+" "+r.From.String()+" to "+going(r.Shard, r.Copies)] = true
		}
	}
	return busy
}

func TestCopiesCountWhereTheyAreGoing(t *testing.T) {
	w := &world{shards: shardsOf(2)}
	ranges := even(10, 100, "s1")
	for i := range 5 {
		ranges[i].copies = []topology.CopySpec{{Shard: "s2", State: topology.Incoming}}
	}
	plan := must[*Plan](t)(Balance(w.hashed("users", ranges...).build(t), w.sizes, Options{}))
	if len(plan.Moves) > 0 || change(t, plan, "s1").Before.Bytes != 500 || change(t, plan, "s2").Before.Bytes != 500 {
		t.Errorf("half of it is going already: %+v", plan)
	}
}

// TestRulesAreObeyed: what is bound is only where its label is, what was elsewhere moves first, and shards are as even as that allows.
func TestRulesAreObeyed(t *testing.T) {
	seeded(t, 60, func(t *testing.T, random *rand.Rand) {
		w := randomWorld(random)
		for i := range w.shards {
			w.shards[i].Labels = map[string]string{"region": []string{"eu", "us"}[i%2], "disk": []string{"fast", "slow", "slow"}[i%3]}
		}
		rules := []Rule{{Keyspace: "users", Label: "region", Value: "eu"}, {Keyspace: "events", From: topology.Point{"10000"}, To: topology.Point{"30000"}, Label: "disk", Value: "slow"}}
		if random.IntN(2) == 0 {
			rules = append(rules, Rule{Keyspace: "orders", From: topology.Point{"8000000000000000"}, Label: "region", Value: "us"})
		}
		plan := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{Rules: rules, Split: random.IntN(2) == 0}))
		checkArithmetic(t, w, plan)
		o := newOracle(w)
		o.apply(t, plan)
		for _, e := range o.extents {
			for _, r := range rules {
				bound := r.Keyspace == e.keyspace && number(e.from, false) < number(r.To.String(), true) && number(e.to, true) > number(r.From.String(), false)
				if bound && w.shard(e.owner).Labels[r.Label] != r.Value {
					t.Fatalf("[%s, %s) of %s is on %s, which is not %s=%s", e.from, e.to, e.keyspace, e.owner, r.Label, r.Value)
				}
			}
		}
		if !slices.IsSortedFunc(plan.Moves, func(a, b Move) int { return slices.Index(reasons, a.Reason) - slices.Index(reasons, b.Reason) }) || plan.Moves[0].Reason != ByRule {
			t.Error("what breaks a rule does not move first")
		}
		checkWithin(t, plan)
	})
}

// TestFullShardsPassOn: s2 has too much that only s1 may take, which is full itself of what s3 may take.
func TestFullShardsPassOn(t *testing.T) {
	w := &world{shards: shardsOf(3)}
	w.shard("s1").Labels, w.shard("s2").Labels = map[string]string{"region": "eu"}, map[string]string{"region": "eu"}
	w.hashed("bound", even(15, 10, "s2")...).hashed("free", slices.Concat(even(10, 10, "s1"), even(5, 10, "s3"))...)
	plan := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{Rules: []Rule{{Keyspace: "bound", Label: "region", Value: "eu"}}}))
	checkArithmetic(t, w, plan)
	checkWithin(t, plan)
	if plan.Bytes != 100 && plan.Bytes != 80 {
		t.Errorf("%d bytes move", plan.Bytes)
	}
}

func TestRulesThatCannotBeObeyed(t *testing.T) {
	w := &world{shards: shardsOf(3)}
	w.shard("s3").Labels, w.shard("s3").State = map[string]string{"region": "us"}, topology.Maintenance
	w.hashed("users", even(4, 100, "s1", "s2")...).hashed("orders", even(4, 100, "s1", "s2")...)
	w.pin("5", "s1", 10)
	rules := []Rule{
		{Keyspace: "users", Label: "region", Value: "eu"}, {Keyspace: "orders", Label: "region", Value: "us"},
		{Keyspace: "orders", Key: topology.Point{"6"}, Label: "region", Value: "us"},
	}
	plan := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{Rules: rules}))
	want := []string{
		"keyspace orders: 6 is not pinned, so the rule region=us binds nothing",
		"no shard with label region=us can take anything: what needs it stays where it is",
		"no shard has label region=eu: what needs it stays where it is",
	}
	if diff := cmp.Diff(want, plan.Warnings); diff != "" || len(plan.Moves) > 0 {
		t.Error(diff, plan.Moves)
	}
}

// TestBoundsOfRulesCutRanges: the half that is bound goes, the other stays, if ranges may be cut; otherwise all of it goes.
func TestBoundsOfRulesCutRanges(t *testing.T) {
	for _, split := range []bool{false, true} {
		w := &world{shards: shardsOf(2)}
		w.shard("s2").Labels = map[string]string{"region": "eu"}
		w.hashed("users", held{shard: "s1", bytes: 1000}).keyed(held{shard: "s1", bytes: 1000}, held{shard: "s1", bytes: 400})
		rules := []Rule{
			{Keyspace: "users", From: topology.Point{"c000000000000000"}, Label: "region", Value: "eu"},
			{Keyspace: "events", From: topology.Point{"1500"}, Label: "region", Value: "eu"},
		}
		plan := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{Rules: rules, Split: split, Tolerance: 0.9}))
		got := map[string]string{}
		for _, m := range plan.Moves {
			for _, r := range m.Ranges {
				got[m.Keyspace] += fmt.Sprintf("%s to %s: %d. ", r.From, r.To, r.Bytes)
			}
		}
		want := map[string]string{"users": "the beginning to the beginning: 1000. ", "events": "1000 to the beginning: 400. "}
		if split {
			want = map[string]string{"users": "c000000000000000 to the beginning: 250. ", "events": "1500 to the beginning: 200. "}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("split %v: %s", split, diff)
		}
		if split != (len(plan.Splits) == 2) {
			t.Errorf("the splits are %v", plan.Splits)
		}
	}
}

func TestRulesForPins(t *testing.T) {
	w := &world{shards: shardsOf(2)}
	w.shard("s2").Labels = map[string]string{"region": "eu"}
	spec := topology.NewKeyspaceSpec("tenants", topology.BySchema, 1)
	spec.Ranges = []topology.RangeSpec{{Shard: "s1"}}
	spec.Pins = []topology.PinSpec{{Key: topology.Point{"acme"}, Shard: "s1"}, {Key: topology.Point{"zeta"}, Shard: "s1"}}
	w.keyspaces = append(w.keyspaces, spec)
	sizes := Sizes{{Keyspace: "tenants", Shards: []ShardSize{{Shard: "s1", Size: Size{Bytes: 100}}}}}
	plan := must[*Plan](t)(Balance(w.build(t), sizes, Options{Tolerance: 0.9, Rules: []Rule{{Keyspace: "tenants", Key: topology.Point{"zeta"}, Label: "region", Value: "eu"}}}))
	if len(plan.Moves) != 1 || len(plan.Moves[0].Ranges) > 0 || plan.Moves[0].Pins[0].String() != "zeta" || plan.Moves[0].Bytes != 50 || plan.Moves[0].Reason != ByRule {
		t.Errorf("%+v", plan.Moves)
	}
}

func TestLimitsAreKept(t *testing.T) {
	seeded(t, 60, func(t *testing.T, random *rand.Rand) {
		w := randomWorld(random)
		w.shards[1].State = topology.Draining
		split := random.IntN(2) == 0
		free := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{Split: split}))
		options := Options{Split: split}
		if random.IntN(3) > 0 {
			options.MaxBytes = 1 + random.Int64N(free.Bytes+1)
		}
		if random.IntN(3) > 0 || options.MaxBytes == 0 {
			options.MaxMoves = 1 + random.IntN(len(free.Moves)+2)
		}
		plan := must[*Plan](t)(Balance(w.build(t), w.sizes, options))
		checkArithmetic(t, w, plan)
		if options.MaxBytes > 0 && plan.Bytes > options.MaxBytes || options.MaxMoves > 0 && len(plan.Moves) > options.MaxMoves {
			t.Errorf("%d bytes in %d moves are above the limits of %d and %d", plan.Bytes, len(plan.Moves), options.MaxBytes, options.MaxMoves)
		}
		if split && options.MaxMoves == 0 && float64(plan.Bytes) < 0.9*float64(min(options.MaxBytes, free.Bytes)) {
			t.Errorf("only %d bytes move, of at most %d", plan.Bytes, options.MaxBytes)
		}
	})
}

// TestLargeRangesAreSplit: of hashes anywhere, of raw keys only where that is known to be possible.
func TestLargeRangesAreSplit(t *testing.T) {
	w := (&world{shards: shardsOf(4)}).hashed("users", held{shard: "s1", bytes: 1 << 40})
	whole := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{}))
	if len(whole.Moves) > 0 || len(whole.Warnings) != 1 {
		t.Errorf("one range over four shards: %v, %v", whole.Moves, whole.Warnings)
	}
	plan := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{Split: true}))
	checkArithmetic(t, w, plan)
	checkWithin(t, plan)
	if len(plan.Moves) != 3 || len(plan.Splits) != 3 {
		t.Errorf("%d splits for %d moves", len(plan.Splits), len(plan.Moves))
	}

	w = (&world{shards: shardsOf(2)}).keyed(held{shard: "s1", bytes: 300}, held{shard: "s1", bytes: 700})
	for _, at := range []string{"1100", "1200", "1400", "1700", "1900", "2000"} {
		w.sizes[0].Ranges[1].SplitAt = append(w.sizes[0].Ranges[1].SplitAt, topology.Point{at})
	}
	plan = must[*Plan](t)(Balance(w.build(t), w.sizes, Options{Split: true}))
	checkArithmetic(t, w, plan)
	checkWithin(t, plan)
	if len(plan.Splits) != 1 || plan.Splits[0].At.String() != "1900" || plan.Bytes != 500 {
		t.Errorf("the splits are %v, for %d bytes", plan.Splits, plan.Bytes)
	}
}

// TestCoarseRangesComeAsNearAsTheyCan: of ten equal ranges on three shards one has four.
func TestCoarseRangesComeAsNearAsTheyCan(t *testing.T) {
	w := (&world{shards: shardsOf(3)}).hashed("users", even(5, 1000, "s1", "s2")...)
	plan := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{}))
	checkArithmetic(t, w, plan)
	loads := []int64{plan.Shards[0].After.Bytes, plan.Shards[1].After.Bytes, plan.Shards[2].After.Bytes}
	slices.Sort(loads)
	if diff := cmp.Diff([]int64{3000, 3000, 4000}, loads); diff != "" || plan.Bytes != 3000 || len(plan.Warnings) != 1 {
		t.Error(diff, plan.Bytes, plan.Warnings)
	}
}

func TestMeasures(t *testing.T) {
	w := (&world{shards: shardsOf(2)}).hashed("users", even(50, 100, "s1", "s2")...)
	for i := range w.sizes[0].Ranges {
		r := &w.sizes[0].Ranges[i]
		r.Load, r.Rows = float64(1+i%2*3), int64(10+i%2*10) // s2 has four times the load and twice the rows
	}
	m := w.build(t)
	for measure, want := range map[Measure]int{ByBytes: 0, ByRows: 25, ByLoad: 37} {
		plan := must[*Plan](t)(Balance(m, w.sizes, Options{Measure: measure}))
		moved := 0
		for _, move := range plan.Moves {
			moved += len(move.Ranges)
		}
		if (want == 0) != (moved == 0) || moved > want || plan.SkewAfter > 1.051 || plan.Measure != measure {
			t.Errorf("by %s %d ranges move, the skew after is %f", measure, moved, plan.SkewAfter)
		}
	}
	for i := range w.sizes[0].Ranges {
		w.sizes[0].Ranges[i].Load = 0
	}
	plan := must[*Plan](t)(Balance(m, w.sizes, Options{Measure: ByLoad}))
	if len(plan.Moves) > 0 || len(plan.Warnings) != 1 {
		t.Errorf("no load is known: %v, %v", plan.Moves, plan.Warnings)
	}
}

// TestNothingIsKnown: an empty cluster is balanced by width.
func TestNothingIsKnown(t *testing.T) {
	w := (&world{shards: shardsOf(4)}).hashed("users", even(40, 0, "s1", "s2", "s3")...)
	plan := must[*Plan](t)(Balance(w.build(t), nil, Options{}))
	if plan.Measure != ByWidth || plan.SkewAfter > 1.05 || change(t, plan, "s4").After.Ranges < 28 || len(plan.Warnings) != 2 {
		t.Errorf("%s, skew %f, %d ranges on the new shard, %v", plan.Measure, plan.SkewAfter, change(t, plan, "s4").After.Ranges, plan.Warnings)
	}
}

// TestTotalsAreSpread: what is known of a shard alone goes to its ranges by width, less what was measured.
func TestTotalsAreSpread(t *testing.T) {
	w := &world{shards: shardsOf(2)}
	spec := topology.NewKeyspaceSpec("users", topology.ByHash, 7, "bigint")
	for from, shard := range map[uint64]string{0: "s1", 1 << 60: "s2", 2 << 60: "s1", 4 << 60: "s1", 5 << 60: "s2"} {
		spec.Ranges = append(spec.Ranges, topology.RangeSpec{From: hexPoint(from), Shard: shard})
	}
	slices.SortFunc(spec.Ranges, func(a, b topology.RangeSpec) int { return slices.Compare(a.From, b.From) })
	w.keyspaces = append(w.keyspaces, spec)
	sizes := KeyspaceSizes{Keyspace: "users", Ranges: []RangeSize{{Size: Size{Bytes: 100}}}, Shards: []ShardSize{{"s1", Size{Bytes: 1000, Rows: 9, Load: 1}}, {"s2", Size{Bytes: 48}}}}
	k := must[*measured](t)(measure(w.build(t).Keyspace("users"), Sizes{sizes}))
	want := []int64{100, 4, 600, 300, 44}
	for i, r := range k.ranges {
		if r.size[bytesAt] != want[i] || !r.known {
			t.Errorf("range %d has %d bytes, want %d", i, r.size[bytesAt], want[i])
		}
	}
	if k.ranges[2].size[rowsAt] != 6 || k.ranges[3].size[loadAt] != 334 && k.ranges[3].size[loadAt] != 333 {
		t.Errorf("rows and load: %v, %v", k.ranges[2].size, k.ranges[3].size)
	}
	for _, bad := range []KeyspaceSizes{
		{Keyspace: "users", Ranges: []RangeSize{{From: topology.Point{"12"}}}},
		{Keyspace: "users", Ranges: []RangeSize{{}, {}}},
		{Keyspace: "users", Ranges: []RangeSize{{Size: Size{Bytes: -1}}}},
		{Keyspace: "users", Ranges: []RangeSize{{SplitAt: []topology.Point{hexPoint(1 << 60)}}}},
		{Keyspace: "users", Pins: []PinSize{{Key: topology.Point{"x"}}}},
		{Keyspace: "users", Shards: []ShardSize{{Shard: "s1"}, {Shard: "s1"}}},
	} {
		if _, err := measure(w.build(t).Keyspace("users"), Sizes{bad}); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

// TestTheSamePlanEveryTime: same arguments, same bytes; another version or another move, another ID; other sizes alone, the same.
func TestTheSamePlanEveryTime(t *testing.T) {
	w := randomWorld(rand.New(rand.NewPCG(5, 5)))
	w.shards[1].State = topology.Draining
	m := w.build(t)
	text := func(m *topology.Map, sizes Sizes, options Options) (string, *Plan) {
		plan := must[*Plan](t)(Balance(m, sizes, options))
		return string(must[[]byte](t)(json.Marshal(plan))), plan
	}
	first, plan := text(m, w.sizes, Options{Split: true})
	for range 5 {
		if again, _ := text(m, w.sizes, Options{Split: true}); again != first {
			t.Fatal("the same arguments give another plan")
		}
	}
	var read Plan
	if err := json.Unmarshal([]byte(first), &read); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*plan, read); diff != "" {
		t.Error("what was written is not what is read:", diff)
	}
	next := must[*topology.Map](t)(m.Next())
	if _, other := text(next, w.sizes, Options{Split: true}); other.ID == plan.ID || other.MapVersion != plan.MapVersion+1 {
		t.Error("another version has the same ID")
	}
	if _, other := text(m, w.sizes, Options{Split: true, MaxMoves: 1}); other.ID == plan.ID {
		t.Error("other moves have the same ID")
	}
	if _, other := text(m, w.sizes, Options{Split: true, BytesPerSecond: 10}); other.ID != plan.ID {
		t.Error("the same moves have another ID")
	}
}

func TestTimeIsEstimated(t *testing.T) {
	moves := []Move{{Source: "a", Target: "b", Bytes: 100}, {Source: "c", Target: "d", Bytes: 300}, {Source: "a", Target: "d", Bytes: 50}, {Source: "e", Target: "f", Bytes: 320}}
	if got := estimate(moves, 10); got != 35 {
		t.Errorf("%v seconds, want 35: the third waits for the second", got)
	}
	if estimate(moves, 0) != 0 || estimate(nil, 10) != 0 {
		t.Error("without a rate, or without moves, there is nothing to estimate")
	}
}

func TestDrain(t *testing.T) {
	seeded(t, 40, func(t *testing.T, random *rand.Rand) {
		w := randomWorld(random)
		w.shards[1].State = topology.Draining // another one, which is left alone
		w.shards[2].State = []topology.State{topology.Active, topology.Draining}[random.IntN(2)]
		m := must[*topology.Map](t)(w.build(t).Next(topology.SetTable(topology.TableSpec{Name: "settings", Kind: topology.Single, Shard: "s3"})))
		plan := must[*Plan](t)(Drain(m, "s3", w.sizes, Options{Split: random.IntN(2) == 0}))
		checkArithmetic(t, w, plan)
		drained := change(t, plan, "s3")
		if drained.After != (Holding{}) || plan.Bytes != drained.Before.Bytes {
			t.Errorf("shard s3 keeps %+v; %d bytes move, of %d", drained.After, plan.Bytes, drained.Before.Bytes)
		}
		for _, move := range plan.Moves {
			if move.Source != "s3" || move.Target == "s2" || move.Reason != Emptying {
				t.Errorf("%+v", move)
			}
		}
		if len(plan.Warnings) > 0 {
			t.Errorf("%q", plan.Warnings)
		}
		draining := must[*topology.Map](t)(m.Next(topology.UpdateShard("s3", func(s *topology.ShardSpec) { s.State = topology.Draining })))
		if warned := must[*Plan](t)(Balance(draining, w.sizes, Options{})).Warnings; !slices.ContainsFunc(warned, func(w string) bool { return strings.Contains(w, "shard s3 has 1 single tables") }) {
			t.Errorf("a plan that does not move the table says %q", warned)
		}
		for _, s := range plan.Shards {
			if s.TakesPart && s.After.Bytes > s.Before.Bytes && float64(s.After.Bytes) > s.Target*1.05+2 {
				t.Errorf("shard %s was filled to %f of its target", s.Shard, float64(s.After.Bytes)/s.Target)
			}
		}
	})
	w := (&world{shards: shardsOf(2)}).hashed("users", even(8, 0, "s1", "s2")...)
	m := w.build(t)
	for _, refused := range []func() (*Plan, error){
		func() (*Plan, error) { return Drain(m, "s9", nil, Options{}) },
		func() (*Plan, error) { return Drain(m, "s1", nil, Options{Excluded: []string{"s1"}}) },
		func() (*Plan, error) {
			return Drain(must[*topology.Map](t)(m.Next(topology.UpdateShard("s1", func(s *topology.ShardSpec) { s.State = topology.ReadOnly }))), "s1", nil, Options{})
		},
	} {
		if plan, err := refused(); err == nil {
			t.Errorf("planned: %+v", plan)
		}
	}
	if plan := must[*Plan](t)(Drain(m, "s1", nil, Options{Excluded: []string{"s2"}})); len(plan.Moves) > 0 || !strings.Contains(strings.Join(plan.Warnings, "\n"), "no shard can take anything") {
		t.Errorf("there is nowhere to go: %v, %v", plan.Moves, plan.Warnings)
	}
}

// TestWhatIsEmptyIsDealtOut: ranges without bytes leave a draining shard too, and not all to one.
func TestWhatIsEmptyIsDealtOut(t *testing.T) {
	w := (&world{shards: shardsOf(4)}).hashed("users", slices.Concat(even(30, 0, "s1"), even(1, 1000, "s2", "s3", "s4"))...)
	plan := must[*Plan](t)(Drain(w.build(t), "s1", w.sizes, Options{}))
	for _, name := range []string{"s2", "s3", "s4"} {
		if s := change(t, plan, name); s.After.Ranges != 11 {
			t.Errorf("shard %s has %d ranges", name, s.After.Ranges)
		}
	}
}

// TestLargeRangesLeaveInPieces: the only range of a shard that drains is shared out among all.
func TestLargeRangesLeaveInPieces(t *testing.T) {
	w := (&world{shards: shardsOf(4)}).hashed("users", even(1, 1<<30, "s1", "s2", "s3", "s4")...)
	plan := must[*Plan](t)(Drain(w.build(t), "s1", w.sizes, Options{Split: true}))
	checkArithmetic(t, w, plan)
	checkWithin(t, plan)
	if len(plan.Moves) != 3 || len(plan.Splits) != 2 {
		t.Errorf("%d moves, %d splits", len(plan.Moves), len(plan.Splits))
	}
}

// TestRangesOfShortKeysLeaveInPieces: what a keyspace by range begins and ends with may be of any length, and has no width.
func TestRangesOfShortKeysLeaveInPieces(t *testing.T) {
	w := &world{shards: shardsOf(4)}
	spec, sizes := topology.NewKeyspaceSpec("tenants", topology.ByRange, 0, "text"), KeyspaceSizes{Keyspace: "tenants"}
	for i, from := range []topology.Point{nil, {"h"}, {"q"}} {
		spec.Ranges = append(spec.Ranges, topology.RangeSpec{From: from, Shard: fmt.Sprintf("s%d", i+1)})
		sizes.Ranges = append(sizes.Ranges, RangeSize{From: from, Size: Size{Bytes: 1 << 30, Rows: 1 << 20}})
	}
	sizes.Ranges[1].SplitAt = []topology.Point{{"i"}, {"k"}, {"m"}, {"n"}, {"p"}}
	w.keyspaces, w.sizes = append(w.keyspaces, spec), append(w.sizes, sizes)
	spread := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{Split: true}))
	if s := change(t, spread, "s4"); s.After.Bytes == 0 || len(spread.Splits) == 0 {
		t.Errorf("the empty shard gets %d bytes, and %d ranges are split", s.After.Bytes, len(spread.Splits))
	}
	w.shards = w.shards[:3]
	drained := must[*Plan](t)(Drain(w.build(t), "s2", w.sizes, Options{Split: true}))
	first, last := change(t, drained, "s1").After.Bytes, change(t, drained, "s3").After.Bytes
	if len(drained.Splits) != 1 || len(drained.Moves) != 2 || first != 3<<29 || last != 3<<29 {
		t.Errorf("%d splits, %d moves; the others have %d and %d bytes", len(drained.Splits), len(drained.Moves), first, last)
	}
}

func TestWrongOptionsAreRefused(t *testing.T) {
	w := (&world{shards: shardsOf(2)}).hashed("users", even(8, 10, "s1", "s2")...)
	m := w.build(t)
	for _, o := range []Options{
		{Algorithm: "guess"}, {Measure: "weight"}, {Tolerance: -1}, {Tolerance: 1}, {MaxBytes: -1}, {MaxMoves: -1}, {BytesPerSecond: -1}, {Keyspaces: []string{"none"}},
		{Excluded: []string{"none"}}, {Slots: 1 << 21}, {Slots: -1}, {Algorithm: "slots", Slots: 3}, {Rules: []Rule{{Keyspace: "none", Label: "a", Value: "b"}}},
		{Rules: []Rule{{Keyspace: "users"}}}, {Rules: []Rule{{Keyspace: "users", Label: "a", Value: "b", From: topology.Point{"x"}}}},
		{Rules: []Rule{{Keyspace: "users", Label: "a", Value: "b", Key: topology.Point{"1"}, From: hexPoint(1)}}},
		{Rules: []Rule{{Keyspace: "users", Label: "a", Value: "b", From: hexPoint(2), To: hexPoint(1)}}},
	} {
		if plan, err := Balance(m, w.sizes, o); err == nil {
			t.Errorf("%+v was taken: %+v", o, plan)
		}
	}
	if plan := must[*Plan](t)(Balance(must[*topology.Map](t)(topology.New(clusterID)), nil, Options{})); len(plan.Moves) > 0 {
		t.Errorf("an empty map: %+v", plan)
	}
}

// TestKeyspacesAreChosen: what is not looked at neither moves nor counts.
func TestKeyspacesAreChosen(t *testing.T) {
	w := (&world{shards: shardsOf(2)}).hashed("orders", even(40, 1000, "s1")...).hashed("users", even(40, 10, "s2")...)
	plan := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{Keyspaces: []string{"users"}}))
	if len(plan.Moves) != 1 || plan.Moves[0].Keyspace != "users" || plan.TotalBytes != 400 || plan.Moves[0].Source != "s2" {
		t.Errorf("%+v", plan)
	}
}
