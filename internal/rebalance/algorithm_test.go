package rebalance

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement"
)

// assigned returns a world whose keyspace an algorithm has made over the first shards, of a byte for each 2^24 hashes.
func assigned(t *testing.T, shards, first int, algorithm string) (*world, *topology.Map) {
	t.Helper()
	w := &world{shards: shardsOf(shards)}
	few := (&world{shards: w.shards[:first]}).build(t)
	spec := topology.NewKeyspaceSpec("users", topology.ByHash, 7, "bigint")
	var err error
	if spec.Ranges, spec.Assignment, err = few.Assign(topology.Assignment{Algorithm: algorithm}); err != nil {
		t.Fatal(err)
	}
	w.keyspaces = append(w.keyspaces, spec)
	m := w.build(t)
	sizes := KeyspaceSizes{Keyspace: "users"}
	for r := range m.Keyspace("users").Ranges() {
		size := int64(hashWidth(span{Lo: hashBound(r.Hash.Lo), Hi: hashBound(r.Hash.Hi)}) / (1 << 24))
		sizes.Ranges = append(sizes.Ranges, RangeSize{From: hexPoint(r.Hash.Lo), Size: Size{Bytes: size}})
	}
	w.sizes = append(w.sizes, sizes)
	return w, m
}

// mapAfter applies a plan and returns the keyspace's hashes, neighbours joined.
func mapAfter(t *testing.T, w *world, plan *Plan) *placement.Map {
	t.Helper()
	o := newOracle(w)
	o.apply(t, plan)
	var ranges []placement.OwnedHashRange
	for _, e := range o.extents {
		r := placement.OwnedHashRange{Owner: e.owner}
		r.Lo = number(e.from, false)
		r.Hi = number(e.to, false)
		ranges = append(ranges, r)
	}
	return must[*placement.Map](t)(placement.NewMap(names(w.shards), ranges)).Compact()
}

// TestAlgorithmsGetTheirMap: after the plan the map is the one that the algorithm makes.
func TestAlgorithmsGetTheirMap(t *testing.T) {
	for _, info := range placement.Algorithms() {
		t.Run(info.Name, func(t *testing.T) {
			w, m := assigned(t, 8, 4, info.Name)
			plan := must[*Plan](t)(Balance(m, w.sizes, Options{Algorithm: info.Name}))
			checkArithmetic(t, w, plan)
			algorithm := must[placement.Algorithm](t)(placement.New(info.Name, placement.Config{}))
			from := must[*placement.Map](t)(m.Keyspace("users").Hashes().WithShards(names(w.shards[:4])...))
			want := must[*placement.Map](t)(algorithm.Ranges(from, placement.Named(names(w.shards)...)))
			if moved := mapAfter(t, w, plan).Diff(want).Extent; !moved.IsZero() {
				t.Errorf("%f of the space is not where %s wants it", moved.Share(), info.Name)
			}
			if Layout(mapAfter(t, w, plan)) != plan.Assignments[0].Layout || Layout(from) == plan.Assignments[0].Layout {
				t.Error("the layout does not tell whether the plan has been carried out")
			}
			half := must[*Plan](t)(Balance(m, w.sizes, Options{Algorithm: info.Name, MaxBytes: plan.Bytes / 2}))
			if len(half.Assignments) > 0 || Layout(mapAfter(t, w, half)) == plan.Assignments[0].Layout || half.ID == plan.ID {
				t.Errorf("half of the plan counts as all of it: %d of %d bytes, %+v", half.Bytes, plan.Bytes, half.Assignments)
			}
			if len(plan.Moves) == 0 || plan.Moves[0].Reason != ByAlgorithm || len(plan.Warnings) > 0 || plan.Assignments[0].Assignment.Algorithm != info.Name {
				t.Errorf("%d moves, %v, %+v", len(plan.Moves), plan.Warnings, plan.Assignments)
			}
		})
	}
}

func TestDoublingPairsShards(t *testing.T) {
	w, m := assigned(t, 8, 4, "doubling")
	plan := must[*Plan](t)(Balance(m, w.sizes, Options{Algorithm: "doubling"}))
	var pairs []string
	for _, move := range plan.Moves {
		pairs = append(pairs, move.Source+" "+move.Target)
	}
	if diff := cmp.Diff([]string{"s1 s5", "s2 s6", "s3 s7", "s4 s8"}, pairs); diff != "" {
		t.Error(diff)
	}
	if _, err := Drain(m, "s1", w.sizes, Options{Algorithm: "doubling"}); err == nil {
		t.Error("doubling with a shard less was planned")
	}
}

// TestAlgorithmsAndEverythingElse: states, rules and raw keys hold, whatever an algorithm wants.
func TestAlgorithmsAndEverythingElse(t *testing.T) {
	for _, name := range []string{"ring", "minimal", "slots", "rendezvous-fast"} {
		w, _ := assigned(t, 6, 5, name)
		w.keyed(even(3, 1000, "s1", "s2")...)
		w.shard("s1").State, w.shard("s2").State = topology.Draining, topology.ReadOnly
		w.shard("s4").Labels, w.shard("s6").Labels = map[string]string{"region": "eu"}, map[string]string{"region": "eu"}
		rule := Rule{Keyspace: "users", From: topology.Point{"c000000000000000"}, Label: "region", Value: "eu"}
		plan := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{Algorithm: name, Excluded: []string{"s3"}, Rules: []Rule{rule}, Split: true}))
		checkArithmetic(t, w, plan)
		if s := change(t, plan, "s1"); s.After.Ranges != 0 {
			t.Errorf("%s: the draining shard keeps %d ranges", name, s.After.Ranges)
		}
		for _, move := range plan.Moves {
			if slices.Contains([]string{"s2", "s3"}, move.Source) || slices.Contains([]string{"s1", "s2", "s3"}, move.Target) || move.Keyspace == "events" && move.Source != "s1" {
				t.Errorf("%s: %s gives to %s in %s", name, move.Source, move.Target, move.Keyspace)
			}
			for _, r := range move.Ranges {
				if eu := move.Target == "s4" || move.Target == "s6"; move.Keyspace == "users" && r.From.String() >= "c" && len(r.From) > 0 && !eu {
					t.Errorf("%s: the range from %s goes to %s", name, r.From, move.Target)
				}
			}
		}
		if text := strings.Join(plan.Warnings, "\n"); !strings.Contains(text, "not raw keys") || name == "ring" && !strings.Contains(text, "would place them elsewhere") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// TestSeatsAreKept: an algorithm that remembers seats finds them again in what the last plan noted.
func TestSeatsAreKept(t *testing.T) {
	w, _ := assigned(t, 5, 5, "rendezvous-fast")
	w.shard("s2").State = topology.Draining
	plan := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{Algorithm: "rendezvous-fast"}))
	by := plan.Assignments[0].Assignment
	if diff := cmp.Diff([]string{"s1", "", "s3", "s4", "s5"}, by.Seats); diff != "" {
		t.Error(diff)
	}
	for _, move := range plan.Moves {
		if move.Source != "s2" {
			t.Errorf("%s gives something", move.Source)
		}
	}
	var ranges []topology.RangeSpec
	for r := range mapAfter(t, w, plan).All() {
		ranges = append(ranges, topology.RangeSpec{From: hexPoint(r.Lo), Shard: r.Owner})
	}
	next := must[*topology.Map](t)(w.build(t).Next(topology.ReplaceRanges("users", ranges, by), topology.RemoveShard("s2")))
	if again := must[*Plan](t)(Balance(next, nil, Options{Algorithm: "rendezvous-fast"})); len(again.Moves) > 0 {
		t.Errorf("%d moves more", len(again.Moves))
	}
}

// TestAlgorithmsSeeShardsThatAreAside: one that is read-only has its place still, so nobody else's changes.
func TestAlgorithmsSeeShardsThatAreAside(t *testing.T) {
	w, _ := assigned(t, 5, 5, "jump")
	w.shard("s2").State = topology.ReadOnly
	if plan := must[*Plan](t)(Balance(w.build(t), w.sizes, Options{Algorithm: "jump"})); len(plan.Moves) > 0 {
		t.Errorf("%d moves", len(plan.Moves))
	}
}
