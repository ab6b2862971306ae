package shard

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/topology"
)

func TestRecordWritesOnlyWhenSomethingChanged(t *testing.T) {
	c := newCluster(t, 1)
	c.change(t, c.hashKeyspace(t, "users"), topology.SetTable(topology.TableSpec{Name: "orders", Kind: topology.Sharded, Keyspace: "users", Key: []string{"a", "b"}}))
	for _, want := range []bool{true, false, false} {
		if changed, err := Record(t.Context(), c.conns[0], c.m, "s1"); err != nil || changed != want {
			t.Fatalf("changed: %v, %v", changed, err)
		}
	}
	expectCodes(t, Verify(c.m, "s1", c.read(t)[0]))
	c.change(t) // a version that changes nothing is recorded all the same
	if changed, err := Record(t.Context(), c.conns[0], c.m, "s1"); err != nil || !changed {
		t.Fatalf("changed: %v, %v", changed, err)
	}
	for _, step := range []struct {
		name   string
		change topology.Change
	}{
		{"a table more", topology.SetTable(topology.TableSpec{Name: "countries", Kind: topology.Reference})},
		{"a table changed", topology.SetTable(topology.TableSpec{Name: "orders", Kind: topology.Sharded, Keyspace: "users", Key: []string{"x", "b"}})},
		{"a table less", topology.DropTable("orders")},
		{"a pin", topology.SetPins("users", topology.PinSpec{Key: topology.Point{"1", "é \"\\"}, Shard: "s1"})},
		{"the entry", topology.UpdateShard("s1", func(s *topology.ShardSpec) { s.State = topology.Draining })},
		{"another keyspace", c.hashKeyspace(t, "others")},
		{"held", topology.ReplaceRanges("users", []topology.RangeSpec{{Shard: "s1", Held: true}}, topology.Assignment{})},
		{"fewer ranges", topology.ReplaceRanges("users", []topology.RangeSpec{{Shard: "s1"}, {From: hashAt("8"), Shard: "s1"}}, topology.Assignment{Algorithm: "slots"})},
		{"a number was lost", topology.RaiseVersion(100)},
	} {
		c.change(t, step.change)
		c.record(t)
		if found := Verify(c.m, "s1", c.read(t)[0]); len(found) > 0 {
			t.Errorf("%s: %v", step.name, found)
		}
	}
	c.change(t, topology.DropTable("countries"))
	c.change(t, topology.DropKeyspace("others"), topology.DropKeyspace("users"))
	c.record(t)
	expectCodes(t, Verify(c.m, "s1", c.read(t)[0]))
	if n := one[int](t, c.conns[0], "SELECT (SELECT count(*) FROM cleave.ranges) + (SELECT count(*) FROM cleave.pins) + (SELECT count(*) FROM cleave.tables)"); n != 0 {
		t.Errorf("%d rows are left of what was dropped", n)
	}
}

func TestAPinOfTheGreatestLengthIsRecorded(t *testing.T) {
	c := newCluster(t, 1)
	spec := topology.NewKeyspaceSpec("blobs", topology.ByRange, 0, "bytea")
	long := func(b string) topology.Point { return topology.Point{`\x` + strings.Repeat(b, topology.MaxKeyBytes-4)} }
	spec.Ranges = []topology.RangeSpec{{Shard: "s1"}, {From: long("11"), Shard: "s1"}}
	spec.Pins = []topology.PinSpec{{Key: long("22"), Shard: "s1"}}
	c.change(t, topology.CreateKeyspace(spec))
	c.record(t)
	expectCodes(t, Verify(c.m, "s1", c.read(t)[0]))
}

func TestRecordsNeverGoBack(t *testing.T) {
	c := newCluster(t, 1)
	c.change(t, c.hashKeyspace(t, "users"))
	old := c.m
	c.change(t, topology.UpdateShard("s1", func(s *topology.ShardSpec) { s.MinimumVersion = old.Version() }), topology.SetPins("users", topology.PinSpec{Key: topology.Point{"1", "x"}, Shard: "s1"}))
	c.record(t)
	var newer *NewerError
	changed, err := Record(t.Context(), c.conns[0], old, "s1")
	if changed || !errors.As(err, &newer) || newer.Recorded != c.m.Version() || newer.Map != old.Version() {
		t.Fatalf("an older map: %v, %v", changed, err)
	}
	record := c.read(t)[0]
	expectCodes(t, Verify(c.m, "s1", record))
	expectCodes(t, Verify(old, "s1", record), "problem map_older s1")

	// A map that comes from a backup may have a lower minimum. Its version was raised; the shard's minimum stays.
	restored := must[*topology.Map](t)(old.Next(topology.RaiseVersion(c.m.Version() + 1)))
	if _, err := Record(t.Context(), c.conns[0], restored, "s1"); err != nil {
		t.Fatal(err)
	}
	if record := c.read(t)[0]; record.MinimumVersion != old.Version() || record.MapVersion != restored.Version() {
		t.Errorf("the record is %+v", record.Identity)
	}
}

func TestTwoMapsOfOneVersionAreNoticed(t *testing.T) {
	c := newCluster(t, 1)
	c.change(t, c.hashKeyspace(t, "users"))
	base := c.m
	c.change(t, topology.SetPins("users", topology.PinSpec{Key: topology.Point{"1", "x"}, Shard: "s1"}))
	c.record(t)
	fork := must[*topology.Map](t)(base.Next(topology.SetPins("users", topology.PinSpec{Key: topology.Point{"2", "y"}, Shard: "s1"})))
	var forked *ForkError
	if _, err := Record(t.Context(), c.conns[0], fork, "s1"); !errors.As(err, &forked) || !strings.Contains(forked.Difference, `keyspace "users"`) || forked.Version != fork.Version() {
		t.Errorf("record says %v", err)
	}
	expectCodes(t, Verify(c.m, "s1", c.read(t)[0]))
	expectCodes(t, Verify(fork, "s1", c.read(t)[0]), "problem record_differs s1")
}

// TestEverythingRecordedCanShowAFork has one version with two contents, different in one thing each time.
func TestEverythingRecordedCanShowAFork(t *testing.T) {
	c := newCluster(t, 1)
	sharded := func(column string) topology.Change {
		return topology.SetTable(topology.TableSpec{Name: "orders", Kind: topology.Sharded, Keyspace: "users", Key: []string{column}})
	}
	seeded := func(seed string) topology.Change {
		spec := wholeOn("s1")
		spec.Seed = seed
		return topology.CreateKeyspace(spec)
	}
	another := func() topology.Change {
		return topology.AddShard(topology.ShardSpec{Name: "s2", Primary: topology.InstanceSpec{Address: "192.0.2.1:5432"}})
	}
	weight := func(weight float64) topology.Change {
		return topology.UpdateShard("s1", func(s *topology.ShardSpec) { s.Weight = weight })
	}
	version := c.m.Version()
	for name, test := range map[string]struct {
		recorded, fork []topology.Change
		difference     string
	}{
		"seed":             {[]topology.Change{seeded("1")}, []topology.Change{seeded("2")}, `the definition of keyspace "users"`},
		"keyspace more":    {nil, []topology.Change{seeded("1")}, `the definition of keyspace "users"`},
		"keyspace less":    {[]topology.Change{seeded("1")}, nil, "which keyspaces there are"},
		"assignment":       {[]topology.Change{seeded("1")}, []topology.Change{seeded("1"), topology.ReplaceRanges("users", []topology.RangeSpec{{Shard: "s1"}}, topology.Assignment{Algorithm: "slots"})}, `the definition of keyspace "users"`},
		"ranges":           {[]topology.Change{seeded("1")}, []topology.Change{seeded("1"), topology.ReplaceRanges("users", []topology.RangeSpec{{Shard: "s1"}, {From: hashAt("8"), Shard: "s1"}}, topology.Assignment{})}, `the ranges or pins of keyspace "users"`},
		"table changed":    {[]topology.Change{seeded("1"), sharded("a")}, []topology.Change{seeded("1"), sharded("b")}, "the tables' definitions"},
		"table more":       {[]topology.Change{seeded("1")}, []topology.Change{seeded("1"), sharded("a")}, "the tables' definitions"},
		"table less":       {[]topology.Change{seeded("1"), sharded("a")}, []topology.Change{seeded("1")}, "the tables' definitions"},
		"entry":            {[]topology.Change{weight(2)}, []topology.Change{weight(3)}, "the shard's own entry"},
		"another shard":    {nil, []topology.Change{another()}, "which shards there are"},
		"no shard but s1":  {[]topology.Change{another()}, nil, "which shards there are"},
		"last number only": {nil, []topology.Change{another(), topology.RemoveShard("s2")}, "which shards there are"},
	} {
		t.Run(name, func(t *testing.T) {
			base := must[*topology.Map](t)(c.m.Next(topology.RaiseVersion(version + 1))) // records never go back
			recorded, fork := must[*topology.Map](t)(base.Next(test.recorded...)), must[*topology.Map](t)(base.Next(test.fork...))
			version = recorded.Version()
			if changed, err := Record(t.Context(), c.conns[0], recorded, "s1"); err != nil || !changed {
				t.Fatalf("changed: %v, %v", changed, err)
			}
			var forked *ForkError
			changed, err := Record(t.Context(), c.conns[0], fork, "s1")
			if changed || !errors.As(err, &forked) || forked.Version != recorded.Version() || forked.Difference != test.difference {
				t.Errorf("changed: %v, %v", changed, err)
			}
			expectCodes(t, Verify(recorded, "s1", c.read(t)[0]))
			if changed, err := Record(t.Context(), c.conns[0], recorded, "s1"); err != nil || changed {
				t.Errorf("the same map again: changed: %v, %v", changed, err)
			}
		})
	}
}

// TestAnotherFormOfTheSameIsNoFork: digests may have been made by another program, and the server has an order of its own.
func TestAnotherFormOfTheSameIsNoFork(t *testing.T) {
	c := newCluster(t, 1)
	c.change(t, topology.CreateKeyspace(wholeOn("s1")), topology.SetTable(topology.TableSpec{Name: "countries", Kind: topology.Reference}))
	c.record(t)
	execute(t, c.conns[0], `UPDATE cleave.identity SET tables_digest = 'another', entry = entry || '{"since_a_later_program": 1}', minimum_version = 0`)
	execute(t, c.conns[0], `UPDATE cleave.keyspaces SET digest = 'another', definition = definition || '{"since_a_later_program": 1}'`)
	execute(t, c.conns[0], `UPDATE cleave.tables SET definition = definition || '{"since_a_later_program": 1}'`)
	if changed, err := Record(t.Context(), c.conns[0], c.m, "s1"); err != nil || !changed {
		t.Errorf("changed: %v, %v", changed, err)
	}
	expectCodes(t, Verify(c.m, "s1", c.read(t)[0]))
}

func TestVerifyFindsEveryDifference(t *testing.T) {
	c := newCluster(t, 1)
	c.change(t, c.hashKeyspace(t, "users"), topology.SetTable(topology.TableSpec{Name: "countries", Kind: topology.Reference}))
	c.change(t, topology.SetPins("users", topology.PinSpec{Key: topology.Point{"1", "x"}, Shard: "s1"}))
	c.record(t)
	for name, test := range map[string]struct {
		change func(*Recorded)
		want   string
	}{
		"nothing":      {func(*Recorded) {}, ""},
		"unclaimed":    {func(r *Recorded) { *r = Recorded{} }, "problem not_claimed s1"},
		"cluster":      {func(r *Recorded) { r.Cluster = otherID }, "problem other_cluster s1"},
		"shard":        {func(r *Recorded) { r.Shard = "s2" }, "problem other_shard s1"},
		"newer":        {func(r *Recorded) { r.MapVersion++ }, "problem map_older s1"},
		"minimum":      {func(r *Recorded) { r.MinimumVersion = r.MapVersion + 1 }, "problem map_older s1"},
		"older":        {func(r *Recorded) { r.MapVersion-- }, "warning not_recorded s1"},
		"number":       {func(r *Recorded) { r.Number++ }, "problem record_differs s1"},
		"entry":        {func(r *Recorded) { r.Entry.Weight++ }, "problem record_differs s1"},
		"members":      {func(r *Recorded) { r.Members = append(r.Members, "s9") }, "problem record_differs s1"},
		"last number":  {func(r *Recorded) { r.LastShardNumber++ }, "problem record_differs s1"},
		"table":        {func(r *Recorded) { r.Tables[0].Kind = topology.Sharded }, "problem record_differs s1"},
		"no table":     {func(r *Recorded) { r.Tables = nil }, "problem record_differs s1"},
		"seed":         {func(r *Recorded) { r.Keyspaces[0].Head.Seed = "1" }, "problem record_differs s1"},
		"no keyspace":  {func(r *Recorded) { r.Keyspaces = nil }, "problem record_differs s1"},
		"bound":        {func(r *Recorded) { r.Keyspaces[0].Ranges[0].Upper = hashAt("123") }, "problem record_differs s1"},
		"no range":     {func(r *Recorded) { r.Keyspaces[0].Ranges = r.Keyspaces[0].Ranges[1:] }, "problem record_differs s1"},
		"held":         {func(r *Recorded) { r.Keyspaces[0].Ranges[0].Held = true }, "problem record_differs s1"},
		"state":        {func(r *Recorded) { r.Keyspaces[0].Ranges[0].State = Leaving }, "problem record_differs s1"},
		"pin":          {func(r *Recorded) { r.Keyspaces[0].Pins[0].Key = topology.Point{"2", "x"} }, "problem record_differs s1"},
		"no pin":       {func(r *Recorded) { r.Keyspaces[0].Pins = nil }, "problem record_differs s1"},
		"pin of a one": {func(r *Recorded) { r.Keyspaces[0].Pins[0].Key = topology.Point{"1x"} }, "problem record_differs s1"},
	} {
		t.Run(name, func(t *testing.T) {
			record := c.read(t)[0]
			test.change(record)
			var want []string
			if test.want != "" {
				want = []string{test.want}
			}
			expectCodes(t, Verify(c.m, "s1", record), want...)
		})
	}
}

func TestRowsThatSomebodyChangedAreMended(t *testing.T) {
	c := newCluster(t, 1)
	c.change(t, c.hashKeyspace(t, "users"))
	c.change(t, topology.SetPins("users", topology.PinSpec{Key: topology.Point{"1", "x"}, Shard: "s1"}))
	c.record(t)
	execute(t, c.conns[0], `UPDATE cleave.pins SET key = '["2", "x"]'`)
	execute(t, c.conns[0], `DELETE FROM cleave.ranges WHERE upper IS NULL`)
	expectCodes(t, Verify(c.m, "s1", c.read(t)[0]), "problem record_differs s1", "problem record_differs s1")
	c.change(t, topology.SetPins("users", topology.PinSpec{Key: topology.Point{"3", "x"}, Shard: "s1"}))
	c.record(t)
	expectCodes(t, Verify(c.m, "s1", c.read(t)[0]))
}

// TestAChangeOfOnePinWritesLittle has a hundred thousand pins, and measures what the server writes.
func TestAChangeOfOnePinWritesLittle(t *testing.T) {
	c := newCluster(t, 1)
	spec := wholeOn("s1")
	const many = 20_000
	for i := range many {
		spec.Pins = append(spec.Pins, topology.PinSpec{Key: topology.Point{strconv.Itoa(i)}, Shard: "s1"})
	}
	c.change(t, topology.CreateKeyspace(spec))
	written := func() (bytes, rows int64) {
		before := one[string](t, c.conns[0], "SELECT pg_current_wal_insert_lsn()::text")
		transaction := one[int64](t, c.conns[0], "SELECT txid_current()")
		c.record(t)
		bytes = one[int64](t, c.conns[0], "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::pg_lsn)::bigint", before)
		rows = one[int64](t, c.conns[0], "SELECT count(*) FROM cleave.pins WHERE xmin::text::bigint > $1", transaction)
		return bytes, rows
	}
	if _, rows := written(); rows != many {
		t.Fatalf("%d rows were written at first", rows)
	}
	execute(t, c.conns[0], "CHECKPOINT")
	c.change(t, topology.SetPins("users", topology.PinSpec{Key: topology.Point{"-1"}, Shard: "s1"}), topology.RemovePins("users", topology.Point{"5"}))
	bytes, rows := written()
	t.Logf("one pin more and one less: %d rows and %d bytes of the log", rows, bytes)
	if rows != 1 || bytes > 256<<10 {
		t.Errorf("one pin more and one less wrote %d rows and %d bytes", rows, bytes)
	}
	if n := one[int](t, c.conns[0], "SELECT count(*) FROM cleave.pins"); n != many {
		t.Errorf("there are %d pins", n)
	}
	expectCodes(t, Verify(c.m, "s1", c.read(t)[0]))
}

// TestCrash06InsideARecord ends the backend in the middle of a record: the one before is whole.
func TestCrash06InsideARecord(t *testing.T) {
	c := newCluster(t, 1)
	c.change(t, c.hashKeyspace(t, "users"))
	c.record(t)
	before := c.m
	c.change(t, topology.SetPins("users", topology.PinSpec{Key: topology.Point{"1", "x"}, Shard: "s1"}), topology.SetTable(topology.TableSpec{Name: "countries", Kind: topology.Reference}))
	blocker := connect(t, specOf("s1", c.servers[0]))
	execute(t, blocker, "BEGIN")
	execute(t, blocker, "LOCK TABLE cleave.tables IN SHARE MODE") // comes after the pins
	victim := connect(t, specOf("s1", c.servers[0]))
	ended := make(chan error, 1)
	go func() {
		_, err := Record(context.Background(), victim, c.m, "s1")
		ended <- err
	}()
	killWhenBlocked(t, blocker, victim)
	if err := <-ended; err == nil {
		t.Fatal("the end of the backend went unnoticed")
	}
	execute(t, blocker, "ROLLBACK")
	expectCodes(t, Verify(before, "s1", c.read(t)[0]))
	expectCodes(t, Verify(c.m, "s1", c.read(t)[0]), "warning not_recorded s1")
	c.record(t)
	expectCodes(t, Verify(c.m, "s1", c.read(t)[0]))
}

// TestCrash07ManyRecordersAtOnce has controllers that do not know of each other write different versions.
func TestCrash07ManyRecordersAtOnce(t *testing.T) {
	c := newCluster(t, 1)
	c.change(t, c.hashKeyspace(t, "users"))
	const recorders, versions = 4, 12
	maps := []*topology.Map{c.m}
	for i := range versions {
		c.change(t, topology.SetPins("users", topology.PinSpec{Key: topology.Point{strconv.Itoa(i), "x"}, Shard: "s1"}))
		maps = append(maps, c.m)
	}
	conns := make([]*pgx.Conn, recorders)
	for i := range conns {
		conns[i] = connect(t, specOf("s1", c.servers[0]))
	}
	failures := make([]error, recorders)
	var all sync.WaitGroup
	for i, conn := range conns {
		all.Go(func() {
			order := slices.Clone(maps)
			if i%2 == 1 {
				slices.Reverse(order) // the newest first: all others must be refused
			}
			for _, m := range order {
				_, err := Record(t.Context(), conn, m, "s1")
				var newer *NewerError
				if err != nil && !errors.As(err, &newer) {
					failures[i] = errors.Join(failures[i], err)
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(failures...); err != nil {
		t.Fatal(err)
	}
	expectCodes(t, Verify(c.m, "s1", c.read(t)[0]))
}

// TestCrash08OfTheServer: what was recorded is there after the server has come back.
func TestCrash08OfTheServer(t *testing.T) {
	c := newCluster(t, 1)
	c.change(t, c.hashKeyspace(t, "users"))
	c.record(t)
	if err := errors.Join(c.servers[0].Crash(), c.servers[0].Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	record := must[*Recorded](t)(Read(t.Context(), connect(t, specOf("s1", c.servers[0]))))
	expectCodes(t, Verify(c.m, "s1", record))
}
