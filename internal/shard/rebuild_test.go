package shard

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cleavedb/cleave/internal/topology"
)

// expectSameMap wants the maps to be equal in everything but the version.
func expectSameMap(t testing.TB, got, want *topology.Map) {
	t.Helper()
	a, b := got.Document(), want.Document()
	if a.Version <= b.Version {
		t.Errorf("the rebuilt map has version %d, the old one %d", a.Version, b.Version)
	}
	a.Version = b.Version
	if difference := cmp.Diff(b, a); difference != "" {
		t.Errorf("the rebuilt map differs (- old, + new):\n%s", difference)
	}
}

// rich gives the cluster keyspaces of every strategy, pins, copies, held ranges, tables, and numbers that are gone.
func rich(t testing.TB, c *cluster) {
	t.Helper()
	copyOn := func(shard string, state topology.CopyState) []topology.CopySpec {
		return []topology.CopySpec{{Shard: shard, State: state}}
	}
	byRange := topology.NewKeyspaceSpec("events", topology.ByRange, 0, "timestamptz", "text")
	byRange.Ranges = []topology.RangeSpec{
		{Shard: "s2"}, {From: topology.Point{"2020-01-01 00:00:00+00"}, Shard: "s1", Copies: copyOn("s3", topology.Incoming)},
		{From: topology.Point{"2021-01-01 00:00:00+00", "m"}, Shard: "s1", Held: true, Copies: copyOn("s2", topology.Incoming)},
		{From: topology.Point{"infinity"}, Shard: "s3"},
	}
	byRange.Pins = []topology.PinSpec{{Key: topology.Point{"2020-02-02 00:00:00+00", `odd "key" é`}, Shard: "s3", Held: true, Copies: []topology.CopySpec{{Shard: "s1", State: topology.Leaving}, {Shard: "s2", State: topology.Incoming}}}}
	bySchema := topology.NewKeyspaceSpec("tenants", topology.BySchema, 77)
	bySchema.Ranges = []topology.RangeSpec{{Shard: "s1"}, {From: topology.Point{"8"}, Shard: "s2"}}
	for i := range 20 {
		bySchema.Pins = append(bySchema.Pins, topology.PinSpec{Key: topology.Point{fmt.Sprintf("tenant_%02d", i)}, Shard: shardName(i % 3)})
	}
	c.change(t, c.hashKeyspace(t, "users"), topology.CreateKeyspace(byRange), topology.CreateKeyspace(bySchema),
		topology.SetTable(topology.TableSpec{Name: "orders", Kind: topology.Sharded, Keyspace: "users", Key: []string{"user_id", "region"}}),
		topology.SetTable(topology.TableSpec{Name: `app."Odd Name"`, Kind: topology.Reference}),
		topology.SetTable(topology.TableSpec{Name: "audit", Kind: topology.Single, Shard: "s2"}))
	c.change(t, topology.AddShard(topology.ShardSpec{Name: "gone", Primary: topology.InstanceSpec{Address: "192.0.2.1:5432"}}))
	c.change(t, topology.RemoveShard("gone"), topology.UpdateShard("s2", func(s *topology.ShardSpec) { s.State, s.MinimumVersion = topology.ReadOnly, 3 }))
}

func TestAMapIsRebuiltFromItsShards(t *testing.T) {
	c := newCluster(t, 3)
	rich(t, c)
	c.record(t)
	records := c.read(t)
	for i, r := range records {
		expectCodes(t, Verify(c.m, shardName(i), r))
	}
	rebuilt, found, err := Rebuild(records)
	if err != nil {
		t.Fatal(found, err)
	}
	expectCodes(t, found)
	expectSameMap(t, rebuilt, c.m)
	if rebuilt.Version() != c.m.Version()+1 {
		t.Errorf("its version is %d, not %d", rebuilt.Version(), c.m.Version()+1)
	}
	// What was rebuilt can be put in force: shards take it, and have nothing to change but the version.
	c.m = rebuilt
	c.record(t)
	for i, r := range c.read(t) {
		expectCodes(t, Verify(rebuilt, shardName(i), r))
	}

	t.Run("a shard is missing", func(t *testing.T) {
		m, found, err := Rebuild(records[:2])
		if m != nil || !errors.Is(err, ErrNotWhole) {
			t.Errorf("rebuilt %v, %v", m, err)
		}
		said := fmt.Sprint(found)
		for _, words := range []string{"missing_shard s3", `keyspace "events" from infinity to the end belongs to nobody`, `keyspace "users" from`} {
			if !strings.Contains(said, words) {
				t.Errorf("%q is not said in %s", words, said)
			}
		}
	})
	t.Run("a shard twice", func(t *testing.T) {
		_, found, err := Rebuild([]*Recorded{records[0], records[1], records[2], records[1]})
		if !errors.Is(err, ErrNotWhole) || !strings.Contains(fmt.Sprint(codes(found)), "problem same_shard s2") {
			t.Errorf("%v, %v", found, err)
		}
	})
	t.Run("another cluster's", func(t *testing.T) {
		stranger := *records[2]
		stranger.Cluster = otherID
		_, found, err := Rebuild([]*Recorded{records[0], records[1], &stranger})
		if !errors.Is(err, ErrNotWhole) || !strings.Contains(fmt.Sprint(codes(found)), "problem other_cluster s3") {
			t.Errorf("%v, %v", found, err)
		}
	})
	t.Run("nobody's", func(t *testing.T) {
		_, found, err := Rebuild(append([]*Recorded{{}}, records...))
		if err != nil {
			t.Error(err)
		}
		expectCodes(t, found, "warning not_claimed")
	})
	t.Run("other tables in the same version", func(t *testing.T) {
		forked := *records[1]
		forked.Tables = nil
		_, found, err := Rebuild([]*Recorded{records[0], &forked, records[2]})
		if !errors.Is(err, ErrNotWhole) {
			t.Error(err)
		}
		expectCodes(t, found, "problem record_differs s2")
	})
}

// moved is a cluster of two shards after a move from s1 to s2 of the upper half, of which s1 knows nothing yet.
func moved(t *testing.T) (c *cluster, before, after *topology.Map) {
	t.Helper()
	c = newCluster(t, 2)
	c.change(t, topology.CreateKeyspace(wholeOn("s1")))
	c.change(t, topology.SetPins("users", topology.PinSpec{Key: topology.Point{"1"}, Shard: "s1"}))
	before = c.m
	c.record(t)
	c.change(t, topology.ReplaceRanges("users", []topology.RangeSpec{{Shard: "s1"}, {From: topology.Point{"8"}, Shard: "s2"}}, topology.Assignment{}),
		topology.SetPins("users", topology.PinSpec{Key: topology.Point{"1"}, Shard: "s2"}))
	if _, err := Record(t.Context(), c.conns[1], c.m, "s2"); err != nil {
		t.Fatal(err)
	}
	return c, before, c.m
}

func TestTheNewerRecordIsBelieved(t *testing.T) {
	c, _, after := moved(t)
	rebuilt, found, err := Rebuild(c.read(t))
	if err != nil {
		t.Fatal(found, err)
	}
	expectCodes(t, found, "warning older_record s1", "warning two_owners s1", "warning two_owners s1")
	// The rows may still be on s1, so nobody may see them there.
	leaving := []topology.CopySpec{{Shard: "s1", State: topology.Leaving}}
	want := must[*topology.Map](t)(after.Next(
		topology.ReplaceRanges("users", []topology.RangeSpec{{Shard: "s1"}, {From: topology.Point{"8"}, Shard: "s2", Copies: leaving}}, topology.Assignment{}),
		topology.SetPins("users", topology.PinSpec{Key: topology.Point{"1"}, Shard: "s2", Copies: leaving})))
	expectSameMap(t, must[*topology.Map](t)(rebuilt.Next()), want)
}

func TestTwoOwnersInOneVersionAreNotReconciled(t *testing.T) {
	c, before, _ := moved(t)
	records := c.read(t)
	records[0].MapVersion = records[1].MapVersion
	m, found, err := Rebuild(records)
	if m != nil || !errors.Is(err, ErrNotWhole) {
		t.Errorf("rebuilt %v, %v", m, err)
	}
	expectCodes(t, found, "problem two_owners s2", "problem two_owners s2")
	if before.Version() >= records[1].MapVersion {
		t.Error("the test compares a version with itself")
	}
}

func TestOldRecordsOfAnotherKeyspaceOfThatNameAreLeftOut(t *testing.T) {
	c := newCluster(t, 2)
	c.change(t, topology.CreateKeyspace(wholeOn("s1")))
	c.record(t)
	c.change(t, topology.DropKeyspace("users"))
	again := wholeOn("s2")
	again.Seed = "99"
	c.change(t, topology.CreateKeyspace(again))
	if _, err := Record(t.Context(), c.conns[1], c.m, "s2"); err != nil {
		t.Fatal(err)
	}
	rebuilt, found, err := Rebuild(c.read(t))
	if err != nil {
		t.Fatal(found, err)
	}
	expectCodes(t, found, "warning older_record s1", "warning other_keyspace s1")
	expectSameMap(t, rebuilt, c.m)
}

func TestAGapNamesItsStretch(t *testing.T) {
	record := func(name string, number int, ranges ...Range) *Recorded {
		return &Recorded{
			Identity: Identity{Cluster: clusterID, Shard: name, Number: number, MapVersion: 5}, Members: []string{"a", "b"},
			Entry:     topology.ShardSpec{Name: name, Number: number, Primary: topology.InstanceSpec{Address: name + ":5432"}, Weight: 1, State: topology.Active},
			Keyspaces: []Keyspace{{Head: topology.NewKeyspaceSpec("users", topology.ByHash, 1, "bigint").KeyspaceHead, Ranges: ranges}},
		}
	}
	for name, test := range map[string]struct {
		a, b []Range
		want string
	}{
		"at the beginning": {[]Range{{Lower: topology.Point{"4"}, State: Owned}}, nil, "from the beginning to 4 "},
		"in the middle":    {[]Range{{Upper: topology.Point{"4"}, State: Owned}}, []Range{{Lower: topology.Point{"c"}, State: Owned}}, "from 4 to c "},
		"at the end":       {[]Range{{Upper: topology.Point{"4"}, State: Owned}}, nil, "from 4 to the end "},
		"all":              {nil, nil, "from the beginning to the end "},
		"a copy alone":     {[]Range{{Upper: topology.Point{"4"}, State: Owned}}, []Range{{Lower: topology.Point{"4"}, State: Incoming}}, "from 4 to the end "},
	} {
		t.Run(name, func(t *testing.T) {
			m, found, err := Rebuild([]*Recorded{record("a", 1, test.a...), record("b", 2, test.b...)})
			if m != nil || !errors.Is(err, ErrNotWhole) {
				t.Errorf("rebuilt %v, %v", m, err)
			}
			expectCodes(t, found, "problem gap")
			if !strings.Contains(fmt.Sprint(found), test.want) {
				t.Errorf("%q is not said in %v", test.want, found)
			}
		})
	}
	for name, r := range map[string]Range{
		"not a hash": {Upper: topology.Point{"xyz"}, State: Owned}, "two values": {Upper: topology.Point{"1", "2"}, State: Owned},
		"nothing in it": {Lower: topology.Point{"8"}, Upper: topology.Point{"4"}, State: Owned},
	} {
		if m, _, err := Rebuild([]*Recorded{record("a", 1, r), record("b", 2)}); m != nil || err == nil {
			t.Errorf("%s: rebuilt %v, %v", name, m, err)
		}
	}
	if _, _, err := Rebuild(nil); !errors.Is(err, ErrNotWhole) {
		t.Errorf("from nothing: %v", err)
	}
}
