package reshard

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
)

// world is a map with two shards: main is by hash, in four ranges dealt in turn, and days by range.
func world(t *testing.T) *topology.Map {
	t.Helper()
	m, err := topology.New("00000000-0000-4000-8000-000000000000")
	if err != nil {
		t.Fatal(err)
	}
	main := topology.NewKeyspaceSpec("main", topology.ByHash, 7, "bigint")
	main.Ranges = []topology.RangeSpec{{Shard: "a"}, {From: topology.Point{"4000000000000000"}, Shard: "b"}, {From: topology.Point{"8000000000000000"}, Shard: "a"}, {From: topology.Point{"c000000000000000"}, Shard: "a"}}
	days := topology.NewKeyspaceSpec("days", topology.ByRange, 0, "date")
	days.Ranges = []topology.RangeSpec{{Shard: "a"}, {From: topology.Point{"2026-01-01"}, Shard: "b"}}
	changes := []topology.Change{
		topology.AddShard(topology.ShardSpec{Name: "a", Primary: topology.InstanceSpec{Address: "localhost:1"}}), topology.AddShard(topology.ShardSpec{Name: "b", Primary: topology.InstanceSpec{Address: "localhost:2"}}),
		topology.CreateKeyspace(main), topology.CreateKeyspace(days),
		topology.SetTable(topology.TableSpec{Name: "public.t", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}}),
	}
	if m, err = m.Next(changes...); err != nil {
		t.Fatal(err)
	}
	return m
}

func describe(ranges []topology.RangeSpec) string {
	parts := make([]string, len(ranges))
	for i, r := range ranges {
		parts[i] = fmt.Sprintf("%s:%s", strings.Join(r.From, ","), r.Shard)
	}
	return strings.Join(parts, " ")
}

func TestRangesAreSplitAndMerged(t *testing.T) {
	k := world(t).Keyspace("main")
	split, err := SplitAt(k, []topology.Point{{"2000000000000000"}, {"f000000000000000"}})
	if got := describe(split); err != nil || got != ":a 2000000000000000:a 4000000000000000:b 8000000000000000:a c000000000000000:a f000000000000000:a" {
		t.Errorf("split: %s, %v", got, err)
	}
	if _, err := SplitAt(k, []topology.Point{{"4000000000000000"}}); err == nil {
		t.Error("a range was split where it begins")
	}
	if _, err := SplitAt(k, []topology.Point{{"4"}}); err == nil {
		t.Error("a range was split at no point of the hash space")
	}
	merged, fewer, err := Merge(k, Range{})
	if got := describe(merged); err != nil || fewer != 1 || got != ":a 4000000000000000:b 8000000000000000:a" {
		t.Errorf("merged: %s, %d fewer, %v", got, fewer, err)
	}
	if _, fewer, err := Merge(k, Range{To: topology.Point{"c000000000000000"}}); err != nil || fewer != 0 {
		t.Errorf("what lies across the end was merged: %d fewer, %v", fewer, err)
	}
	for of, want := range map[string]string{"": "2000000000000000", "4000000000000000": "6000000000000000", "ffffffffffffffff": "e000000000000000"} {
		var point topology.Point
		if of != "" {
			point = topology.Point{of}
		}
		if middle, err := Middle(k, point); err != nil || middle[0] != want {
			t.Errorf("the middle of what has %q is %v, %v", of, middle, err)
		}
	}
	around, err := AroundKey(k, topology.Point{"17"})
	if err != nil || len(around) != 2 || around[0][0] >= around[1][0] {
		t.Errorf("around a key: %v, %v", around, err)
	}
	if days := world(t).Keyspace("days"); days != nil {
		split, err := SplitAt(days, []topology.Point{{"2026-07-01"}})
		if got := describe(split); err != nil || got != ":a 2026-01-01:b 2026-07-01:b" {
			t.Errorf("split by range: %s, %v", got, err)
		}
	}
}

func TestPartsOfRangesAreFound(t *testing.T) {
	k := world(t).Keyspace("main")
	parts, err := Intersect(k, []api.MoveRange{{From: []string{"2000000000000000"}, To: []string{"9000000000000000"}}})
	if got := describe(parts); err != nil || got != "2000000000000000:a 4000000000000000:b 8000000000000000:a" {
		t.Errorf("%s, %v", got, err)
	}
	joined := Join([]Range{{To: topology.Point{"1"}}, {From: topology.Point{"1"}, To: topology.Point{"2"}}, {From: topology.Point{"3"}}})
	if len(joined) != 2 || !slices.Equal(joined[0].To, topology.Point{"2"}) {
		t.Errorf("joined: %v", joined)
	}
}

// TestTheMapSaysHowFarAMoveIs: every mark can be written and is read again, and nothing else of the map changes.
func TestTheMapSaysHowFarAMoveIs(t *testing.T) {
	m := world(t)
	move := &Move{ID: "x", Keyspace: "main", Source: "a", Target: "b", Ranges: []Range{{From: topology.Point{"2000000000000000"}, To: topology.Point{"4000000000000000"}}}, Pins: []topology.Point{{"17"}}}
	pinned, err := m.Next(topology.SetPins("main", topology.PinSpec{Key: topology.Point{"17"}, Shard: "a"}))
	if err != nil {
		t.Fatal(err)
	}
	if err := move.Check(pinned); err != nil {
		t.Fatal(err)
	}
	if is, alike, err := move.marked(pinned); !alike || is != plain("a") || err != nil {
		t.Errorf("of a range that is larger than the move: %+v, %v, %v", is, alike, err)
	}
	if _, alike, err := move.marked(m); alike || err != nil {
		t.Errorf("a key that is not pinned is taken for one that is: %v", err)
	}
	forth := move.course()
	now := pinned
	for _, next := range []mark{plain("a"), forth.announced(), forth.holding(), forth.closed(), forth.holding(), forth.closing(), forth.announced(), forth.holding(), forth.closed(), forth.turned(), plain("b")} {
		var err error
		if now, err = now.Next(move.changes(next)...); err != nil {
			t.Fatal(err)
		}
		if is, alike, err := move.marked(now); err != nil || !alike || is != next {
			t.Errorf("%+v is read as %+v, %v, %v", next, is, alike, err)
		}
		if k := now.Keyspace("main"); k.Holds() != next.held || k.IsMoving() != (next.copyOn != "") || k.Closes() != forth.isClosing(next) {
			t.Errorf("%+v: holds %v, moves %v", next, k.Holds(), k.IsMoving())
		}
		for _, r := range now.Keyspace("main").Spec().Ranges[2:] {
			if len(r.Copies) > 0 || r.Held {
				t.Errorf("%+v: another range is marked too: %+v", next, r)
			}
		}
	}
	for name, wrong := range map[string]Move{
		"to where it is":        {Keyspace: "main", Source: "a", Target: "a", Ranges: move.Ranges},
		"of another shard":      {Keyspace: "main", Source: "b", Target: "a", Ranges: move.Ranges},
		"of nothing":            {Keyspace: "main", Source: "a", Target: "b"},
		"of an unknown one":     {Keyspace: "none", Source: "a", Target: "b", Ranges: move.Ranges},
		"of two shards' ranges": {Keyspace: "main", Source: "a", Target: "b", Ranges: []Range{{}}},
	} {
		if err := wrong.Check(m); err == nil {
			t.Errorf("a move %s is not refused", name)
		}
	}
}

func TestRangesAreJoinedAtTheirBorders(t *testing.T) {
	m := world(t)
	k := m.Keyspace("main")
	joined, err := JoinAt(k, []topology.Point{{"c000000000000000"}})
	if got := describe(joined); err != nil || got != ":a 4000000000000000:b 8000000000000000:a" {
		t.Errorf("joined: %s, %v", got, err)
	}
	for _, wrong := range []topology.Point{{"4000000000000000"}, {"5000000000000000"}} {
		if _, err := JoinAt(k, []topology.Point{wrong}); err == nil {
			t.Errorf("ranges were joined at %s", wrong)
		}
	}
	numbers := topology.NewKeyspaceSpec("numbers", topology.ByRange, 0, "bigint")
	numbers.Ranges = []topology.RangeSpec{{Shard: "a"}}
	names := topology.NewKeyspaceSpec("names", topology.ByRange, 0, "text")
	names.Ranges = []topology.RangeSpec{{Shard: "a"}}
	if m, err = m.Next(topology.CreateKeyspace(numbers), topology.CreateKeyspace(names)); err != nil {
		t.Fatal(err)
	}
	points, err := AroundKey(m.Keyspace("numbers"), topology.Point{"41"})
	if got := fmt.Sprint(points); err != nil || got != "[41 42]" {
		t.Errorf("around 41: %s, %v", got, err)
	}
	if points, err := AroundKey(m.Keyspace("names"), topology.Point{"acme"}); err != nil || fmt.Sprint(points) != `[acme ["acme\u0001"]]` {
		t.Errorf("around a text: %q, %v", points, err)
	}
	if points, err := AroundKey(m.Keyspace("numbers"), topology.Point{"9223372036854775807"}); err != nil || fmt.Sprint(points) != "[9223372036854775807]" {
		t.Errorf("around the last number: %v, %v", points, err)
	}
}

// TestAroundWhatHasABorder: only what is missing is divided, and a key that is alone already is told so.
func TestAroundWhatHasABorder(t *testing.T) {
	t.Parallel()
	pairs := topology.NewKeyspaceSpec("pairs", topology.ByRange, 0, "text", "smallint")
	pairs.Ranges = []topology.RangeSpec{{Shard: "a", To: topology.Point{"acme", "1"}}, {From: topology.Point{"acme", "1"}, To: topology.Point{"acme", "32767"}, Shard: "a"}, {From: topology.Point{"acme", "32767"}, Shard: "a"}}
	m, err := world(t).Next(topology.CreateKeyspace(pairs))
	if err != nil {
		t.Fatal(err)
	}
	k := m.Keyspace("pairs")
	for _, c := range []struct {
		key  topology.Point
		want string
	}{
		{topology.Point{"acme", "1"}, "[(acme, 2)]"},
		{topology.Point{"acme", "0"}, "[(acme, 0)]"},
		{topology.Point{"acme", "32767"}, `[["acme\u0001"]]`},
		{topology.Point{"beta", "7"}, "[(beta, 7) (beta, 8)]"},
	} {
		points, err := AroundKey(k, c.key)
		if err != nil || fmt.Sprint(points) != c.want {
			t.Errorf("around %s: %q, %v", c.key, points, err)
			continue
		}
		ranges, err := SplitAt(k, points)
		if err != nil {
			t.Fatal(err)
		}
		divided := k.Spec()
		divided.Name, divided.Ranges = "divided", ranges
		alone, err := m.Next(topology.CreateKeyspace(divided))
		if err != nil {
			t.Fatal(err)
		}
		if points, err := AroundKey(alone.Keyspace("divided"), c.key); err == nil {
			t.Errorf("around %s, which is alone: %q", c.key, points)
		}
	}
}

// TestOthersMayMergeWhatMoved: ranges are put together when nothing marks them any more, and the move knows its part of them.
func TestOthersMayMergeWhatMoved(t *testing.T) {
	move := &Move{ID: "x", Keyspace: "main", Source: "a", Target: "b", Ranges: []Range{{From: topology.Point{"2000000000000000"}, To: topology.Point{"4000000000000000"}}}}
	m, err := world(t).Next(move.changes(plain("b"))...)
	if err != nil {
		t.Fatal(err)
	}
	merged, fewer, err := Merge(m.Keyspace("main"), Range{})
	if err != nil || fewer == 0 {
		t.Fatalf("%d fewer, %v", fewer, err)
	}
	if m, err = m.Next(topology.ReplaceRanges("main", merged, m.Keyspace("main").Assignment())); err != nil {
		t.Fatal(err)
	}
	if is, alike, err := move.marked(m); err != nil || !alike || is != plain("b") {
		t.Errorf("%+v, %v, %v", is, alike, err)
	}
}
