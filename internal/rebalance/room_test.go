package rebalance

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/internal/topology"
)

// TestNoMoveIsTooLongForItsJob: what goes from one shard to another is as many moves as it takes, each of which can be stored; ranges that follow each other are one.
func TestNoMoveIsTooLongForItsJob(t *testing.T) {
	skipShort(t)
	for name, c := range map[string]struct {
		held []held
		want int
	}{
		"apart":             {even(5*maxMoveParts/2, 100, "s1", "s3"), 3},
		"beside each other": {even(5*maxMoveParts, 100, "s1"), 1},
	} {
		if c.want == 1 && !thorough.Asked() { // which takes long
			continue
		}
		w := (&world{shards: shardsOf(3)}).hashed("users", c.held...)
		w.shard("s3").State = topology.ReadOnly // it takes nothing, so all goes to one
		plan := must[*Plan](t)(Drain(w.build(t), "s1", w.sizes, Options{}))
		checkArithmetic(t, w, plan)
		if len(plan.Moves) != c.want {
			t.Errorf("%s: %d moves", name, len(plan.Moves))
		}
		for _, m := range plan.Moves {
			if runs := runsOf(m.Ranges); runs > maxMoveParts {
				t.Errorf("%s: a move has %d ranges that do not follow each other", name, runs)
			}
		}
		if limited := must[*Plan](t)(Drain(w.build(t), "s1", w.sizes, Options{MaxMoves: 1})); len(limited.Moves) != 1 || (limited.Bytes < plan.Bytes) != (c.want > 1) {
			t.Errorf("%s: %d moves of %d bytes, of %d, where one is allowed", name, len(limited.Moves), limited.Bytes, plan.Bytes)
		} else {
			checkArithmetic(t, w, limited)
		}
	}
	w := &world{shards: shardsOf(2)}
	spec := topology.NewKeyspaceSpec("tenants", topology.BySchema, 1)
	spec.Ranges = []topology.RangeSpec{{Shard: "s2"}}
	spec.Pins = []topology.PinSpec{{Key: topology.Point{"acme"}, Shard: "s1"}, {Key: topology.Point{"zeta"}, Shard: "s1"}}
	w.keyspaces = append(w.keyspaces, spec)
	sizes := Sizes{{Keyspace: "tenants", Pins: []PinSize{{Key: topology.Point{"acme"}, Size: Size{Bytes: 10}}, {Key: topology.Point{"zeta"}, Size: Size{Bytes: 20}}}}}
	plan := must[*Plan](t)(Drain(w.build(t), "s1", sizes, Options{}))
	if len(plan.Moves) != 2 || plan.Moves[0].Bytes != 10 || plan.Moves[1].Bytes != 20 {
		t.Errorf("schemas do not move each by itself: %+v", plan.Moves)
	}
}

func runsOf(ranges []MovedRange) (runs int) {
	for i, r := range ranges {
		if i == 0 || ranges[i-1].To.String() != r.From.String() {
			runs++
		}
	}
	return runs
}

// TestLongKeysTakeRoom: few of them fill a move, and one always fits.
func TestLongKeysTakeRoom(t *testing.T) {
	var room Room
	taken := 0
	for room.Pin(topology.Point{strings.Repeat("k", 2000)}) {
		taken++
	}
	if taken != maxMoveText/2000 {
		t.Errorf("%d keys of 2,000 bytes fit", taken)
	}
	if empty := (Room{}); !empty.Pin(topology.Point{strings.Repeat("k", 2*maxMoveText)}) {
		t.Error("a move has no room for a single key")
	}
}
