package control

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/rebalance"
	"github.com/cleavedb/cleave/internal/topology"
)

// TestRangesOfRawKeysAreMeasured by keys that shards sample, and divided where their rows are. There are so few rows that all are sampled: the figures do not depend on chance.
func TestRangesOfRawKeysAreMeasured(t *testing.T) {
	p, servers := clusterWith(t, 2)
	execute(t, servers[0], `CREATE TABLE events (id bigint PRIMARY KEY, note text); CREATE TABLE few (id bigint PRIMARY KEY);
		INSERT INTO events SELECT CASE WHEN n <= 9000 THEN n ELSE 1000000 + n END, repeat('x', 400) FROM generate_series(1, 10000) n`)
	request := together(sharding(t, "events", "id"), sharding(t, "few", "id"))
	request.Strategy, request.SplitAt = "range", []topology.Point{{"1000000"}, {"2000000"}}
	shardTable(t, p, request)
	for _, server := range servers {
		execute(t, server, "VACUUM ANALYZE events, few")
	}
	m, err := p.Map(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	name := m.Table("public", "events").Keyspace().Name()
	sizes, silent, err := p.measure(t.Context(), m)
	if err != nil || len(silent) > 0 {
		t.Fatal(err, silent)
	}
	rows := map[string]int64{}
	for _, one := range sizes {
		for _, r := range one.Ranges {
			rows[strings.Join(r.From, ",")] += r.Rows
		}
	}
	if near := func(got, want int64) bool { return math.Abs(float64(got-want)) < 500 }; !near(rows[""], 9000) || !near(rows["1000000"], 1000) || rows["2000000"] != 0 {
		t.Errorf("ranges have %v rows", rows)
	}
	// The first range has 9,000 rows whose keys are next to each other: their middle is not that of the numbers.
	changed, err := p.SplitRanges(t.Context(), name, api.SplitRanges{Middle: true})
	if err != nil {
		t.Fatal(err)
	}
	middle, err := strconv.Atoi(changed.Keyspace.Ranges[1].From[0])
	if err != nil || middle < 4000 || middle > 5000 {
		t.Errorf("the middle of the rows is %v, %v", changed.Keyspace.Ranges[1].From, err)
	}
	if _, err := p.SplitRanges(t.Context(), name, api.SplitRanges{Middle: true, Of: []string{"3000000"}}); err == nil || !strings.Contains(err.Error(), "no rows") {
		t.Errorf("an empty range was divided in the middle: %v", err)
	}
	changed, err = p.SplitRanges(t.Context(), name, api.SplitRanges{BySize: 500_000})
	if err != nil || len(changed.Keyspace.Ranges) < 8 {
		t.Errorf("%v, %d ranges", err, len(changed.Keyspace.Ranges))
	}
	if m, err = p.Map(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sizes, _, err = p.measure(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	for _, one := range sizes {
		for _, r := range one.Ranges {
			if r.Bytes > 700_000 {
				t.Errorf("the range from %s has %d bytes", r.From, r.Bytes)
			}
		}
	}
	if _, err := p.SplitRanges(t.Context(), name, api.SplitRanges{BySize: 1 << 40}); err == nil {
		t.Error("small ranges were divided")
	}
	// A plan knows where it may cut, and what it moves.
	plan, err := rebalance.Balance(m, sizes, rebalance.Options{Keyspaces: []string{name}, Split: true})
	if err != nil || plan.SkewAfter > 1.1 {
		t.Errorf("%v, %+v", err, plan)
	}
}

// TestLoadIsMeasured as what tables do in a second, from the second look on.
func TestLoadIsMeasured(t *testing.T) {
	defer func(before time.Duration) { workWindow = before }(workWindow)
	workWindow = time.Nanosecond
	p, servers := clusterWith(t, 2)
	execute(t, servers[0], "CREATE TABLE orders (id bigint PRIMARY KEY); INSERT INTO orders SELECT generate_series(1, 2000)")
	shardTable(t, p, sharding(t, "orders", "id"))
	loads := func() map[string]float64 {
		m, err := p.Map(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sizes, silent, err := p.measure(t.Context(), m)
		if err != nil || len(silent) > 0 {
			t.Fatal(err, silent)
		}
		found := map[string]float64{}
		for _, s := range sizes[0].Shards {
			found[s.Shard] = s.Load
		}
		return found
	}
	if first := loads(); first["s1"] != 0 || first["s2"] != 0 {
		t.Errorf("load is known at the first look: %v", first)
	}
	eventually(t, "the shard that works has load, and the other has not", func() bool {
		execute(t, servers[1], "SELECT count(*) FROM orders; SELECT count(*) FROM orders")
		now := loads()
		return now["s2"] > 0 && now["s1"] == 0
	})
	workWindow = time.Hour
	if now := loads(); now["s2"] == 0 {
		t.Error("load is forgotten before there is a new one")
	}
	workWindow = time.Nanosecond
	tables := []measured{{table: "t", work: 10}}
	p.load("other", tables, time.Now())
	tables[0].work = 5
	if p.load("other", tables, time.Now()); tables[0].Load != 0 {
		t.Errorf("statistics that were reset are a load of %v", tables[0].Load)
	}
}

// TestSampledSizes: pins count by themselves, and rows that the shard does not own not at all.
func TestSampledSizes(t *testing.T) {
	m, err := topology.New("00000000-0000-4000-8000-000000000000")
	if err != nil {
		t.Fatal(err)
	}
	spec := topology.NewKeyspaceSpec("events", topology.ByRange, 0, "bigint")
	spec.Ranges = []topology.RangeSpec{{Shard: "a"}, {From: topology.Point{"100"}, Shard: "b"}, {From: topology.Point{"200"}, Shard: "a"}}
	spec.Pins = []topology.PinSpec{{Key: topology.Point{"150"}, Shard: "a"}}
	m, err = m.Next(topology.AddShard(topology.ShardSpec{Name: "a", Primary: topology.InstanceSpec{Address: "localhost:1"}}), topology.AddShard(topology.ShardSpec{Name: "b", Primary: topology.InstanceSpec{Address: "localhost:2"}}),
		topology.CreateKeyspace(spec))
	if err != nil {
		t.Fatal(err)
	}
	k := listRawRanges(m.Keyspace("events"))
	sample := []topology.Point{{"1"}, {"2"}, {"3"}, {"3"}, {"150"}, {"150"}, {"120"}, {"200"}, {"250"}}
	ranges, pins := k.sampledSizes("a", sample, rebalance.Size{Bytes: 800, Rows: 8})
	if len(ranges) != 2 || ranges[0].Bytes != 400 || ranges[1].Bytes != 200 || len(pins) != 1 || pins[0].Bytes != 200 {
		t.Errorf("%+v, %+v", ranges, pins)
	}
	if points := ranges[1].SplitAt; len(points) != 1 || points[0].String() != "250" { // not 200, where it begins
		t.Errorf("%v", points)
	}
	if ranges, pins := k.sampledSizes("b", []topology.Point{{"1"}}, rebalance.Size{Bytes: 800}); ranges != nil || pins != nil {
		t.Errorf("%+v, %+v of rows that are not owned", ranges, pins)
	}
}
