package rebalance

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
)

func TestHoursOfTheDay(t *testing.T) {
	for _, c := range []struct {
		hours Hours
		at    string
		in    bool
	}{
		{"", "03:00", true},
		{"08:00-17:00", "07:59", false}, {"08:00-17:00", "08:00", true}, {"08:00-17:00", "16:59", true}, {"08:00-17:00", "17:00", false},
		{"22:00-06:00", "21:59", false}, {"22:00-06:00", "22:00", true}, {"22:00-06:00", "00:00", true}, {"22:00-06:00", "05:59", true}, {"22:00-06:00", "06:00", false},
		{"nonsense", "03:00", false},
	} {
		hour, minute := must[int](t)(strconv.Atoi(c.at[:2])), must[int](t)(strconv.Atoi(c.at[3:]))
		if got := c.hours.Contain(hour*60 + minute); got != c.in {
			t.Errorf("%q contain %s: %v", c.hours, c.at, got)
		}
	}
	m := (&world{shards: shardsOf(1)}).build(t)
	for _, wrong := range []Hours{"22-06", "22:00", "22:00-22:00", "25:00-26:00", "22:00-6:00", "22:00–06:0"} {
		if err := (Settings{Hours: wrong}).WithDefaults().Check(m); err == nil {
			t.Errorf("hours %q were taken", wrong)
		}
	}
}

func TestSettingsThatMakeNoSense(t *testing.T) {
	m := (&world{shards: shardsOf(1)}).hashed("users", held{shard: "s1"}).build(t)
	if err := (Settings{}).WithDefaults().Check(m); err != nil {
		t.Error(err)
	}
	for _, wrong := range []Settings{
		{Moves: "perhaps"}, {Splits: "x"}, {Merges: "x"}, {Measure: "weight"}, {Tolerance: 1}, {Tolerance: -1}, {MaxBytes: -1}, {MaxMoves: -1}, {MaxMoves: 1000}, {SplitBytes: -1}, {SplitLoad: -1},
		{Keyspaces: []string{"none"}}, {Rules: []Rule{{Keyspace: "none"}}},
	} {
		if err := wrong.WithDefaults().Check(m); err == nil {
			t.Errorf("%+v was taken", wrong)
		}
	}
}

func TestMovesThatMayBegin(t *testing.T) {
	moves := []Move{
		{Keyspace: "a", Source: "s1", Target: "s2", Bytes: 100},
		{Keyspace: "a", Source: "s3", Target: "s4", Bytes: 10}, // of the same keyspace
		{Keyspace: "b", Source: "s2", Target: "s3", Bytes: 10}, // s2 is busy then
		{Keyspace: "c", Source: "s5", Target: "s6", Bytes: 900},
		{Keyspace: "d", Source: "s7", Target: "s8", Bytes: 10}, // more than is left
		{Keyspace: "e", Source: "s9", Target: "s10", Bytes: 0},
	}
	for _, c := range []struct {
		busy  []string
		under int
		max   int
		want  string
	}{
		{nil, 0, 32, "[a c e]"}, {nil, 0, 1, "[a]"}, {nil, 1, 2, "[a]"}, {nil, 2, 2, "[]"}, {[]string{"s1"}, 0, 32, "[a c d e]"}, {[]string{"s6", "s2"}, 0, 32, "[a d e]"},
	} {
		var names []string
		for _, m := range Choose(moves, c.busy, 1000, c.max-c.under) {
			names = append(names, m.Keyspace)
		}
		if got := fmt.Sprint(names); got != c.want {
			t.Errorf("busy %v, %d of %d under way: %s, not %s", c.busy, c.under, c.max, got, c.want)
		}
	}
}

// TestNothingMovesWithinTheTolerance, and when something moves it goes to half of it. What is fixed counts and stays.
func TestNothingMovesWithinTheTolerance(t *testing.T) {
	settings := Settings{Tolerance: 0.2}.WithDefaults()
	w := (&world{shards: shardsOf(2)}).hashed("users", slices.Concat(even(119, 100, "s1"), even(81, 100, "s2"))...)
	if plan := must[*Plan](t)(settings.PlanMoves(w.build(t), w.sizes, nil, 1<<40)); len(plan.Moves) > 0 {
		t.Errorf("within the tolerance %d bytes move", plan.Bytes)
	}
	w = (&world{shards: shardsOf(2)}).hashed("users", slices.Concat(even(125, 100, "s1"), even(75, 100, "s2"))...)
	plan := must[*Plan](t)(settings.PlanMoves(w.build(t), w.sizes, nil, 1<<40))
	if len(plan.Moves) != 1 || plan.SkewAfter > 1.1+1e-9 {
		t.Errorf("%d moves, skew %v", len(plan.Moves), plan.SkewAfter)
	}
	if limited := must[*Plan](t)(settings.PlanMoves(w.build(t), w.sizes, nil, 500)); limited.Bytes > 500 || limited.Bytes == 0 {
		t.Errorf("%d bytes move, of at most 500", limited.Bytes)
	}
	if fixed := must[*Plan](t)(settings.PlanMoves(w.build(t), w.sizes, []string{"users"}, 1<<40)); len(fixed.Moves) > 0 {
		t.Errorf("a keyspace that is fixed moves: %+v", fixed.Moves)
	}
	// Together the shards are even: users are on one and orders on the other. That users stay does not make orders move.
	w = (&world{shards: shardsOf(2)}).hashed("users", even(50, 100, "s1")...).hashed("orders", even(50, 100, "s2")...)
	if plan := must[*Plan](t)(settings.PlanMoves(w.build(t), w.sizes, []string{"users"}, 1<<40)); len(plan.Moves) > 0 {
		t.Errorf("what is fixed does not count: %+v", plan.Moves)
	}
}

// TestAHotKeyIsNotSplitForEver: one key's load makes no range narrower and narrower.
func TestAHotKeyIsNotSplitForEver(t *testing.T) {
	w := (&world{shards: shardsOf(1)}).hashed("users", held{shard: "s1", bytes: 100})
	k := &w.keyspaces[0]
	k.Ranges = append(k.Ranges, k.Ranges[0], k.Ranges[0])
	k.Ranges[1].From, k.Ranges[2].From = hexPoint(1<<60), hexPoint(1<<60+1<<40)
	w.sizes[0].Ranges = append(w.sizes[0].Ranges, RangeSize{From: hexPoint(1 << 60), Size: Size{Load: 5000}})
	got := must[*SplitProposals](t)(AutoSplit(w.build(t), w.sizes, Thresholds{Load: 1000}))
	if len(got.Splits) > 0 || len(got.Warnings) != 1 {
		t.Errorf("%+v", got)
	}
}
