package traffic

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func must[T any](t testing.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// mapOf has one shard, a keyspace users by hash whose ranges begin at these points, and one named events by range.
func mapOf(t testing.TB, users []uint64, events []string) *topology.Map {
	t.Helper()
	hashed, ranged := topology.NewKeyspaceSpec("users", topology.ByHash, 7, "bigint"), topology.NewKeyspaceSpec("events", topology.ByRange, 0, "bigint")
	hashed.Ranges, ranged.Ranges = hashRanges(users), keyRanges(events)
	m := must[*topology.Map](t)(topology.New("0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11"))
	return must[*topology.Map](t)(m.Next(
		topology.AddShard(topology.ShardSpec{Name: "s1", Primary: topology.InstanceSpec{Address: "localhost:1"}, Database: "d", User: "u"}), topology.CreateKeyspace(hashed), topology.CreateKeyspace(ranged),
	))
}

func hashRanges(starts []uint64) (ranges []topology.RangeSpec) {
	ranges = []topology.RangeSpec{{Shard: "s1"}}
	for _, start := range starts {
		ranges = append(ranges, topology.RangeSpec{From: topology.Point{fmt.Sprintf("%016x", start)}, Shard: "s1"})
	}
	return ranges
}

func keyRanges(starts []string) (ranges []topology.RangeSpec) {
	ranges = []topology.RangeSpec{{Shard: "s1"}}
	for _, start := range starts {
		ranges = append(ranges, topology.RangeSpec{From: topology.Point{start}, Shard: "s1"})
	}
	return ranges
}

func bigint(t testing.TB, n int64) []key.Value {
	t.Helper()
	return []key.Value{must[key.Value](t)(key.OfInt(key.Bigint, n))}
}

// TestKeysCountWhereTheyAre holds the layout's own way to find a range against that of the map, also where ranges are crowded together.
func TestKeysCountWhereTheyAre(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 3, 100, 3000} {
		starts := []uint64{}
		for range n {
			starts = append(starts, random.Uint64()>>(random.IntN(8)*7)|1) // many of them near the beginning
		}
		slices.Sort(starts)
		starts = slices.Compact(starts)
		k := mapOf(t, starts, nil).Keyspace("users")
		l := layoutOf(k)
		bounds := append([]uint64{0, math.MaxUint64}, starts...)
		for range 1000 {
			bounds = append(bounds, random.Uint64()>>(random.IntN(8)*7))
		}
		for _, hash := range bounds {
			if at := l.findHash(hash); k.Hashes().RangeOf(hash) != k.Hashes().At(at) {
				t.Fatalf("of %d ranges hash %x is found in %v, not in %v", n, hash, k.Hashes().At(at), k.Hashes().RangeOf(hash))
			}
		}
	}
}

// TestRates: a rate is right from the first look on, and a moment's peak is forgotten.
func TestRates(t *testing.T) {
	t.Parallel()
	m := mapOf(t, nil, []string{"100"})
	c := &Counter{}
	c.Follow(m, begin)
	events := m.Keyspace("events")
	count := func(key int64, n int) {
		for range n {
			c.OfKey(events, bigint(t, key), false).Add()
		}
	}
	rateAt := func(seconds int) (low, high float64) {
		rates, _ := Sum(events, []Report{c.Report(begin.Add(time.Duration(seconds) * time.Second))})
		return rates.Ranges[0], rates.Ranges[1]
	}
	count(99, 150)
	count(100, 15)
	if low, high := rateAt(15); low != 10 || high != 1 {
		t.Errorf("rates of %v and %v", low, high)
	}
	count(100, 15)
	if low, high := rateAt(30); low < 4 || low > 5 || high != 1 {
		t.Errorf("rates of %v and %v, after a quiet moment", low, high)
	}
	if low, high := rateAt(1000); low != 0 || high != 0 {
		t.Errorf("rates of %v and %v, long after", low, high)
	}
}

// TestRatesGoAlong with the keys when ranges are divided and joined, and stay where nothing changed.
func TestRatesGoAlong(t *testing.T) {
	t.Parallel()
	const half, threeQuarters = 1 << 63, 3 << 62
	m := mapOf(t, []uint64{half}, []string{"100"})
	c := &Counter{}
	c.Follow(m, begin)
	users, events := m.Keyspace("users"), m.Keyspace("events")
	for range 600 {
		c.OfHashes(users, half, math.MaxUint64).Add()
		c.OfKey(events, bigint(t, 5), false).Add()
	}
	c.OfHashes(users, half-1, half).Add() // nobody knows which
	c.Everywhere(users).Add()
	first := c.Report(begin.Add(time.Minute))
	next := must[*topology.Map](t)(m.Next(
		topology.ReplaceRanges("users", hashRanges([]uint64{half, threeQuarters}), topology.Assignment{}), topology.ReplaceRanges("events", keyRanges([]string{"7", "100"}), topology.Assignment{}),
	))
	c.Follow(next, begin.Add(time.Minute))
	if got := c.Totals("users"); !slices.Equal(got.Ranges, []uint64{0, 0, 0}) || got.Somewhere != 1 || got.Unbound != 1 {
		t.Errorf("totals %+v", got)
	}
	// The router's own next report says the same as the leader makes of the last one.
	for what, report := range map[string]Report{"before": first, "after": c.Report(begin.Add(time.Minute))} {
		rates, known := Sum(next.Keyspace("users"), []Report{report, report})
		if !known || !slices.Equal(rates.Ranges, []float64{0, 10, 10}) {
			t.Errorf("users %s: %+v", what, rates)
		}
		if rates, _ := Sum(next.Keyspace("events"), []Report{report}); !slices.Equal(rates.Ranges, []float64{5, 5, 0}) {
			t.Errorf("events %s: %+v", what, rates)
		}
	}
	joined := must[*topology.Map](t)(next.Next(topology.ReplaceRanges("users", hashRanges(nil), topology.Assignment{})))
	c.Follow(joined, begin.Add(time.Minute))
	if rates, _ := Sum(joined.Keyspace("users"), []Report{c.Report(begin.Add(time.Minute))}); !slices.Equal(rates.Ranges, []float64{10}) {
		t.Errorf("joined: %+v", rates)
	}
	if _, known := Sum(joined.Keyspace("users"), nil); known {
		t.Error("nobody has reported anything, and it is known")
	}
}

// TestReportsAreBounded: those that are named are the busiest, and nothing is lost of the others.
func TestReportsAreBounded(t *testing.T) {
	t.Parallel()
	starts := []uint64{}
	for i := range uint64(2999) {
		starts = append(starts, (i+1)<<50)
	}
	m := mapOf(t, starts, nil)
	c := &Counter{}
	c.Follow(m, begin)
	users := m.Keyspace("users")
	for i := range uint64(3000) {
		for range i + 1 {
			c.OfHashes(users, i<<50, i<<50).Add()
		}
	}
	report := c.Report(begin.Add(time.Second))
	body := must[[]byte](t)(json.Marshal(report))
	told := report.Keyspaces[0].Ranges
	if len(told) != maxTold || told[0].PerSecond != 3000 || told[maxTold-1].PerSecond != 2501 {
		t.Errorf("%d ranges, from %v to %v", len(told), told[0].PerSecond, told[len(told)-1].PerSecond)
	}
	if rest := report.Keyspaces[0].Rest; rest != 2500*2501/2 {
		t.Errorf("the rest is %v", rest)
	}
	if len(body) > 100_000 {
		t.Errorf("a report has %d bytes", len(body))
	}
	if read := must[Report](t)(Decode(body)); read.differsFrom(report) {
		t.Error("a report that was read back is another")
	}
}

// TestReportsOfLongKeys have fewer of them.
func TestReportsOfLongKeys(t *testing.T) {
	t.Parallel()
	const length = 2500
	spec := topology.NewKeyspaceSpec("names", topology.ByRange, 0, "text")
	spec.Ranges = []topology.RangeSpec{{Shard: "s1"}}
	for i := range 100 {
		spec.Ranges = append(spec.Ranges, topology.RangeSpec{From: topology.Point{fmt.Sprintf("%0*d", length, i)}, Shard: "s1"})
	}
	m := must[*topology.Map](t)(mapOf(t, nil, nil).Next(topology.CreateKeyspace(spec)))
	c := &Counter{}
	c.Follow(m, begin)
	for i := range 100 {
		c.OfKey(m.Keyspace("names"), []key.Value{key.OfText(key.Text, fmt.Sprintf("%0*d", length, i))}, false).Add()
	}
	report := c.Report(begin.Add(time.Second)).Keyspaces[0]
	if n := len(report.Ranges); n < 10 || n*2*length > maxToldBytes+2*length || float64(n)+report.Rest != 100 {
		t.Errorf("%d ranges are named, and the rest is %v", n, report.Rest)
	}
}

// TestWhatIsNoticeable is worth writing.
func TestWhatIsNoticeable(t *testing.T) {
	t.Parallel()
	report := func(rate float64, to string) Report {
		return Report{Keyspaces: []KeyspaceReport{{Name: "users", Ranges: []RangeReport{{To: topology.Point{to}, PerSecond: rate}}}}}
	}
	for _, c := range []struct {
		name       string
		now, then  Report
		noticeable bool
	}{
		{"nothing at all", Report{}, Report{}, false},
		{"the first", report(1, "8000000000000000"), Report{}, true},
		{"the last", Report{}, report(1, "8000000000000000"), true},
		{"a little more", report(105, "8000000000000000"), report(100, "8000000000000000"), false},
		{"more", report(120, "8000000000000000"), report(100, "8000000000000000"), true},
		{"less", report(80, "8000000000000000"), report(100, "8000000000000000"), true},
		{"little of little", report(0.05, "8000000000000000"), report(0.01, "8000000000000000"), false},
		{"another range", report(100, "4000000000000000"), report(100, "8000000000000000"), true},
	} {
		if c.now.differsFrom(c.then) != c.noticeable {
			t.Errorf("%s: noticeable is not %t", c.name, c.noticeable)
		}
	}
}

// TestWrongReports are refused, and what one says of a keyspace that was another is not lost.
func TestWrongReports(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "[]", `{"keyspaces": [{"name": "users", "rest": -1}]}`} {
		if _, err := Decode([]byte(body)); err == nil {
			t.Errorf("%q is taken", body)
		}
	}
	m := mapOf(t, nil, nil)
	of := func(name string, r RangeReport) Report {
		return Report{Keyspaces: []KeyspaceReport{{Name: name, Ranges: []RangeReport{r}, Pins: []PinReport{{Key: topology.Point{"5"}, PerSecond: 1}}}}}
	}
	for _, r := range []Report{
		of("users", RangeReport{From: topology.Point{"x"}, PerSecond: 1}), of("users", RangeReport{To: topology.Point{"1", "2"}, PerSecond: 1}),
		of("events", RangeReport{From: topology.Point{"x"}, PerSecond: 1}), of("events", RangeReport{From: topology.Point{"5"}, To: topology.Point{"5"}, PerSecond: 1}),
	} {
		if rates, _ := Sum(m.Keyspace(r.Keyspaces[0].Name), []Report{r}); rates.Rest != 2 || len(rates.Pins) != 0 {
			t.Errorf("%+v: %+v", r, rates)
		}
	}
}

// TestCountingTakesNoMemory, nor does it fail where there is nothing to count.
func TestCountingTakesNoMemory(t *testing.T) {
	m := mapOf(t, []uint64{1 << 63}, []string{"100"})
	m = must[*topology.Map](t)(m.Next(topology.SetPins("users", topology.PinSpec{Key: topology.Point{"5"}, Shard: "s1"})))
	c := &Counter{}
	users, events := m.Keyspace("users"), m.Keyspace("events")
	five := bigint(t, 5)
	var none *Counter
	count := func() {
		for _, counter := range []*Counter{c, none} {
			counter.OfKey(users, five, false).Add()
			counter.OfKey(users, five, true).Add()
			counter.OfKey(events, five, false).Add()
			counter.OfHashes(users, 1, 2).Add()
			counter.Everywhere(events).Add()
			counter.Somewhere(events).Add()
		}
	}
	count() // no map is known yet
	c.Follow(m, begin)
	if n := testing.AllocsPerRun(100, count); n > 0 {
		t.Errorf("counting takes %v allocations", n)
	}
}

func BenchmarkCount(b *testing.B) {
	starts := []uint64{}
	for i := range uint64(1023) {
		starts = append(starts, (i+1)<<54)
	}
	m := mapOf(b, starts, nil)
	c := &Counter{}
	c.Follow(m, begin)
	users, values := m.Keyspace("users"), bigint(b, 5)
	b.ReportAllocs()
	for b.Loop() {
		c.OfKey(users, values, false).Add()
	}
}
