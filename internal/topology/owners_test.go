package topology

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestOwnersOfAnInterval compares with every key that lies in it, pins included.
func TestOwnersOfAnInterval(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	m := must[*Map](t)(New(clusterID))
	spec := NewKeyspaceSpec("users", ByHash, 7, "bigint")
	for i := range 6 {
		m = must[*Map](t)(m.Next(AddShard(ShardSpec{Name: fmt.Sprintf("s%d", i), Primary: InstanceSpec{Address: fmt.Sprintf("h%d:1", i)}})))
	}
	for i := range 32 { // the last shard owns pins alone
		r := RangeSpec{From: formatHash(uint64(i) << 59), Shard: fmt.Sprintf("s%d", random.IntN(5)), Held: i == 3}
		spec.Ranges = append(spec.Ranges, r)
	}
	for n := range 200 {
		spec.Pins = append(spec.Pins, PinSpec{Key: Point{strconv.Itoa(n)}, Shard: fmt.Sprintf("s%d", random.IntN(6)), Held: n == 50})
	}
	m = must[*Map](t)(m.Next(CreateKeyspace(spec)))
	k := m.Keyspace("users")
	intervals := [][2]uint64{{0, math.MaxUint64}, {0, 0}, {math.MaxUint64, math.MaxUint64}}
	for range 300 {
		a, b := random.Uint64(), random.Uint64()>>random.IntN(20)
		intervals = append(intervals, [2]uint64{min(a, b), max(a, b)})
	}
	for _, one := range intervals {
		got, held := k.AppendOwners(nil, one[0], one[1])
		want := map[*Shard]bool{}
		wantHeld := false
		for r := range k.Ranges() {
			if r.Hash.Lo <= one[1] && (r.Hash.Hi == 0 || r.Hash.Hi > one[0]) {
				want[r.Owner], wantHeld = true, wantHeld || r.Held
			}
		}
		for n := range int64(200) {
			if h := k.Hash(bigint(t, strconv.FormatInt(n, 10))); h >= one[0] && h <= one[1] {
				place := must[Place](t)(k.Locate(bigint(t, strconv.FormatInt(n, 10))))
				want[place.Shard], wantHeld = true, wantHeld || place.Held
			}
		}
		if len(got) != len(want) || held != wantHeld || slices.ContainsFunc(got, func(s *Shard) bool { return !want[s] }) {
			t.Errorf("from %x to %x: %d owners, held %t, want %d, %t", one[0], one[1], len(got), held, len(want), wantHeld)
		}
	}
	into := make([]*Shard, 0, 6)
	if allocated := testing.AllocsPerRun(10, func() { into, _ = k.AppendOwners(into[:0], 1<<60, 1<<61) }); allocated > 0 {
		t.Errorf("%v allocations", allocated)
	}
	hash := k.Hash(bigint(t, "51"))
	was, _ := k.AppendOwners(nil, hash, hash)
	again := must[*Map](t)(m.Next(RemovePins("users", Point{"51"}))).Keyspace("users")
	if now, _ := again.AppendOwners(nil, hash, hash); len(was) != 2 || len(now) != 1 || now[0].Name() != k.byHash(hash).Shard.Name() {
		t.Errorf("%d shards may have a pinned key, and %d when it is not pinned", len(was), len(now))
	}
}

// TestNumbersOfATable: what the map takes, and that it keeps it.
func TestNumbersOfATable(t *testing.T) {
	m := must[*Map](t)(New(clusterID))
	spec := NewKeyspaceSpec("users", ByHash, 7, "bigint", "text")
	spec.Ranges = []RangeSpec{{Shard: "s1"}}
	ranges := NewKeyspaceSpec("ranges", ByRange, 0, "bigint", "text")
	ranges.Ranges = []RangeSpec{{Shard: "s1"}}
	m = must[*Map](t)(m.Next(AddShard(ShardSpec{Name: "s1", Primary: InstanceSpec{Address: "a:1"}}), CreateKeyspace(spec), CreateKeyspace(ranges)))
	table := TableSpec{
		Name: "public.orders", Kind: Sharded, Keyspace: "users", Key: []string{"user_id", "region"},
		IDs: []MadeID{{Column: "id", Floor: math.MaxInt64 - 1}}, MadeKeys: []string{"user_id"},
	}
	next := must[*Map](t)(m.Next(SetTable(table)))
	read := must[*Map](t)(Decode(document(t, next))).Table("public", "orders")
	if !read.Spec().Equal(table) || !slices.Equal(read.IDs(), table.IDs) || !slices.Equal(read.MadeKeys(), table.MadeKeys) {
		t.Errorf("the map has %+v", read.Spec())
	}
	if text := string(must[[]byte](t)(json.Marshal(table.IDs))); text != `[{"column":"id","floor":"9223372036854775806"}]` {
		t.Errorf("written as %s", text)
	}
	for _, wrong := range []struct {
		change func(*TableSpec)
		say    string
	}{
		{func(s *TableSpec) { s.Keyspace = "ranges" }, "not ordered by hashes"},
		{func(s *TableSpec) { s.IDs[0].Floor = 0 }, "positive"},
		{func(s *TableSpec) { s.IDs[0].Column = "region" }, "is of the key"},
		{func(s *TableSpec) { s.IDs[0].Column = "" }, "identifier"},
		{func(s *TableSpec) { s.IDs = append(s.IDs, s.IDs[0]) }, "named twice"},
		{func(s *TableSpec) { s.MadeKeys = []string{"id"} }, "is not of the key"},
		{func(s *TableSpec) { s.MadeKeys = []string{"region"} }, "integer"},
		{func(s *TableSpec) { s.MadeKeys = []string{"user_id", "user_id"} }, "named twice"},
		{func(s *TableSpec) { s.Kind, s.Keyspace, s.Key = Reference, "", nil }, "depend on a key"},
	} {
		changed := table
		changed.IDs, changed.MadeKeys = slices.Clone(table.IDs), slices.Clone(table.MadeKeys)
		wrong.change(&changed)
		if _, err := m.Next(SetTable(changed)); err == nil || !strings.Contains(err.Error(), wrong.say) {
			t.Errorf("%+v: %v", changed, err)
		}
		if changed.Equal(table) {
			t.Errorf("%+v is taken for the same", changed)
		}
	}
}

// TestSameOwners: how ranges are divided, what is held, who has copies and which keys are pinned where they are anyway changes no owner; a range or a pin that goes elsewhere does.
func TestSameOwners(t *testing.T) {
	m := clusterOf(t, 3)
	byRange := NewKeyspaceSpec("days", ByRange, 0, "date")
	byRange.Ranges = []RangeSpec{{Shard: "s1"}, {From: Point{"2026-01-01"}, Shard: "s2"}}
	m = must[*Map](t)(m.Next(CreateKeyspace(hashed(t, m, "users")), CreateKeyspace(byRange)))
	users, days := m.Keyspace("users"), m.Keyspace("days")
	owner := must[Place](t)(users.Locate(bigint(t, "1"))).Shard.Name()
	other := map[string]string{"s1": "s2", "s2": "s3", "s3": "s1"}[owner]
	ranges := users.Spec().Ranges
	marked, moved := slices.Clone(ranges), slices.Clone(ranges)
	marked[0].Held, marked[1].Copies = true, []CopySpec{{Shard: other, State: Incoming}}
	marked = append(marked, RangeSpec{From: Point{"ffffffffffffff00"}, Shard: ranges[len(ranges)-1].Shard})
	moved[3].Shard = map[string]string{"s1": "s2", "s2": "s3", "s3": "s1"}[moved[3].Shard]
	pins := make([]PinSpec, 2000) // in several pieces
	for i := range pins {
		key := strconv.Itoa(i)
		pins[i] = PinSpec{Key: Point{key}, Shard: must[Place](t)(users.Locate(bigint(t, key))).Shard.Name()}
	}
	pinned := must[*Map](t)(m.Next(SetPins("users", pins...)))
	next := func(of *Map, changes ...Change) *Map { return must[*Map](t)(of.Next(changes...)) }
	for name, c := range map[string]struct {
		a, b *Keyspace
		want bool
	}{
		"itself":              {users, users, true},
		"marked and divided":  {users, next(m, ReplaceRanges("users", marked, Assignment{})).Keyspace("users"), true},
		"a range has moved":   {users, next(m, ReplaceRanges("users", moved, Assignment{})).Keyspace("users"), false},
		"pinned":              {users, pinned.Keyspace("users"), true},
		"pinned elsewhere":    {users, next(m, SetPins("users", PinSpec{Key: Point{"1"}, Shard: other})).Keyspace("users"), false},
		"a pin has moved":     {pinned.Keyspace("users"), next(pinned, SetPins("users", PinSpec{Key: Point{"1"}, Shard: other})).Keyspace("users"), false},
		"a pin is held":       {pinned.Keyspace("users"), next(pinned, SetPins("users", PinSpec{Key: Point{"1"}, Shard: owner, Held: true})).Keyspace("users"), true},
		"gone":                {users, nil, false},
		"by range":            {days, next(m, ReplaceRanges("days", append(slices.Clone(byRange.Ranges), RangeSpec{From: Point{"2026-06-01"}, Shard: "s2"}), Assignment{})).Keyspace("days"), true},
		"by range, has moved": {days, next(m, ReplaceRanges("days", []RangeSpec{{Shard: "s1"}, {From: Point{"2026-02-01"}, Shard: "s2"}}, Assignment{})).Keyspace("days"), false},
	} {
		if got := c.a.SameOwners(c.b); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
		if c.b != nil && c.b.SameOwners(c.a) != c.want {
			t.Errorf("%s, the other way: %t", name, !c.want)
		}
	}
}
