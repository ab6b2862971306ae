package control

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/reshard"
	"github.com/cleavedb/cleave/internal/topology"
)

// TestMovesOfManyRangesAreDivided: each is a job that can be stored, and together they move all that was asked for.
func TestMovesOfManyRangesAreDivided(t *testing.T) {
	const ranges, pins = 24_000, 3_000
	spec := topology.NewKeyspaceSpec("main", topology.ByHash, 7, "text")
	for i := range ranges { // every other one is another shard's
		r := topology.RangeSpec{Shard: []string{"s1", "s3"}[i%2]}
		if i > 0 {
			r.From = topology.Point{fmt.Sprintf("%016x", uint64(i)<<48)}
		}
		spec.Ranges = append(spec.Ranges, r)
	}
	for i := range pins {
		spec.Pins = append(spec.Pins, topology.PinSpec{Key: topology.Point{fmt.Sprintf("a tenant with a name that is long enough to be one: %d", i)}, Shard: "s1"})
	}
	m := mapOf(t, 3, topology.CreateKeyspace(spec), topology.SetTable(topology.TableSpec{Name: "public.t", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}}))
	moves, err := movesFor(m, api.StartMove{From: "s1", To: "s2", Why: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	if len(moves) < 7 || len(moves) > 9 {
		t.Errorf("%d moves", len(moves))
	}
	movedRanges, movedPins := 0, 0
	for _, move := range moves {
		if move.Source != "s1" || move.Target != "s2" || move.Why != "a test" {
			t.Errorf("a part is another move: %+v", move)
		}
		job, err := reshard.NewJob(move)
		if err != nil || len(job.Body) > 1<<19 {
			t.Errorf("a job takes %d bytes: %v", len(job.Body), err)
		}
		movedRanges, movedPins = movedRanges+len(move.Ranges), movedPins+len(move.Pins)
	}
	if movedRanges != ranges/2 || movedPins != pins {
		t.Errorf("%d ranges and %d pins move", movedRanges, movedPins)
	}
	// What is beside each other is one range, however many there are in the map.
	for i := range spec.Ranges {
		spec.Ranges[i].Shard = "s1"
	}
	spec.Pins = nil
	m = mapOf(t, 3, topology.CreateKeyspace(spec))
	if moves, err = movesFor(m, api.StartMove{From: "s1", To: "s2"}); err != nil || len(moves) != 1 || len(moves[0].Ranges) != 1 {
		t.Errorf("%v, %d moves", err, len(moves))
	}
}

// mapOf is a map of shards named s1, s2 … that no server stands behind.
func mapOf(t testing.TB, shards int, more ...topology.Change) *topology.Map {
	t.Helper()
	m, err := topology.New("0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11")
	if err != nil {
		t.Fatal(err)
	}
	var changes []topology.Change
	for i := range shards {
		changes = append(changes, topology.AddShard(topology.ShardSpec{Name: fmt.Sprintf("s%d", i+1), Weight: []float64{1, 2}[i%2], Primary: topology.InstanceSpec{Address: fmt.Sprintf("10.0.%d.%d:5432", i/250, i%250)}}))
	}
	if m, err = m.Next(slices.Concat(changes, more)...); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestOptionsThatMakeNoSense are not taken for the usual ones.
func TestOptionsThatMakeNoSense(t *testing.T) {
	for name, request := range map[string]api.StartMove{
		"streams": {Streams: -1}, "many streams": {Streams: 1000}, "keep": {KeepSeconds: -1}, "no number": {KeepSeconds: math.NaN()}, "for ever": {KeepSeconds: 1e12}, "pause": {PauseLimitMS: -1}, "a day": {PauseLimitMS: 86_400_000},
		"rate": {MoveLimits: api.MoveLimits{MaxRate: ptr(int64(-1))}}, "load": {MoveLimits: api.MoveLimits{MaxLoad: ptr(0.5)}}, "lag": {MoveLimits: api.MoveLimits{MaxLagSeconds: ptr(-1.0)}}, "wal": {MoveLimits: api.MoveLimits{MaxWAL: ptr(int64(0))}},
	} {
		var invalid *InvalidError
		if err := checkOptions(request); !errors.As(err, &invalid) || invalid.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkOptions(api.StartMove{Streams: 4, KeepSeconds: 86400, PauseLimitMS: 2000}); err != nil {
		t.Error(err)
	}
}
