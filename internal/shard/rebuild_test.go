package shard

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

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

// rich gives the cluster keyspaces of every strategy, pins, copies, tables, and numbers that are gone.
func rich(t testing.TB, c *cluster) {
	t.Helper()
	copyOn := func(shard string, state topology.CopyState) []topology.CopySpec {
		return []topology.CopySpec{{Shard: shard, State: state}}
	}
	byRange := topology.NewKeyspaceSpec("events", topology.ByRange, 0, "timestamptz", "text")
	byRange.Ranges = []topology.RangeSpec{
		{Shard: "s2"}, {From: topology.Point{"2020-01-01 00:00:00+00"}, Shard: "s1", Copies: copyOn("s3", topology.Incoming)},
		{From: topology.Point{"2021-01-01 00:00:00+00", "m"}, Shard: "s1", Copies: copyOn("s2", topology.Incoming)},
		{From: topology.Point{"infinity"}, Shard: "s3"},
	}
	byRange.Pins = []topology.PinSpec{{Key: topology.Point{"2020-02-02 00:00:00+00", `odd "key" é`}, Shard: "s3", Copies: []topology.CopySpec{{Shard: "s1", State: topology.Leaving}, {Shard: "s2", State: topology.Incoming}}}}
	bySchema := topology.NewKeyspaceSpec("tenants", topology.BySchema, 77)
	bySchema.Ranges = []topology.RangeSpec{{Shard: "s1"}, {From: hashAt("8"), Shard: "s2"}}
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
	c.change(t, topology.ReplaceRanges("users", []topology.RangeSpec{{Shard: "s1"}, {From: hashAt("8"), Shard: "s2"}}, topology.Assignment{}),
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
		topology.ReplaceRanges("users", []topology.RangeSpec{{Shard: "s1"}, {From: hashAt("8"), Shard: "s2", Copies: leaving}}, topology.Assignment{}),
		topology.SetPins("users", topology.PinSpec{Key: topology.Point{"1"}, Shard: "s2", Copies: leaving})))
	expectSameMap(t, must[*topology.Map](t)(rebuilt.Next()), want)
}

// TestAnOlderRecordDecidesOnlyWhatFollows has some shards behind after one change of the map.
func TestAnOlderRecordDecidesOnlyWhatFollows(t *testing.T) {
	wholeTo := func(shard string) topology.Change {
		return topology.ReplaceRanges("users", []topology.RangeSpec{{Shard: shard}}, topology.Assignment{})
	}
	pin := func(shard string, copies ...topology.CopySpec) topology.Change {
		return topology.SetPins("users", topology.PinSpec{Key: topology.Point{"7"}, Shard: shard, Copies: copies})
	}
	unpin := topology.RemovePins("users", topology.Point{"7"})
	table := topology.SetTable(topology.TableSpec{Name: "countries", Kind: topology.Reference})
	half := topology.ReplaceRanges("users", []topology.RangeSpec{{Shard: "s1"}, {From: hashAt("8"), Shard: "s2"}}, topology.Assignment{})
	incoming := topology.CopySpec{Shard: "s2", State: topology.Incoming}
	for name, test := range map[string]struct {
		before, after []topology.Change
		behind        string // numbers of shards
		want          []string
	}{
		"the only one behind still owns what nobody else does":    {nil, []topology.Change{table}, "1", []string{"warning older_record s1"}},
		"the only one behind has lost a part":                     {nil, []topology.Change{half}, "1", []string{"warning older_record s1", "warning two_owners s1"}},
		"the only one behind has lost everything":                 {nil, []topology.Change{wholeTo("s2")}, "1", []string{"warning older_record s1", "warning two_owners s1"}},
		"it may have gone to another that is behind":              {nil, []topology.Change{wholeTo("s2")}, "12", []string{"problem older_record s1", "warning older_record s2"}},
		"it has not, but nobody can know":                         {nil, []topology.Change{table}, "12", []string{"problem older_record s1", "warning older_record s2"}},
		"who is behind has nothing":                               {nil, []topology.Change{table}, "3", []string{"warning older_record s3"}},
		"two that are behind have nothing":                        {nil, []topology.Change{table}, "23", []string{"warning older_record s2", "warning older_record s3"}},
		"who is behind got it since":                              {nil, []topology.Change{wholeTo("s2")}, "2", []string{"problem gap", "warning older_record s2"}},
		"a pin that was removed":                                  {[]topology.Change{pin("s3")}, []topology.Change{unpin}, "3", []string{"problem older_record s3"}},
		"a pin that was not removed, but nobody can know":         {[]topology.Change{pin("s3")}, []topology.Change{table}, "3", []string{"problem older_record s3"}},
		"a pin that went to another":                              {[]topology.Change{pin("s3")}, []topology.Change{pin("s2")}, "3", []string{"warning older_record s3", "warning two_owners s3"}},
		"a pin that is still there, because another has its copy": {[]topology.Change{pin("s3")}, []topology.Change{pin("s3", incoming)}, "3", []string{"warning older_record s3"}},
		"a pin that is there, of one of two":                      {[]topology.Change{wholeTo("s2"), pin("s3")}, []topology.Change{pin("s3", incoming)}, "13", []string{"problem older_record s3", "warning older_record s1"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := withoutServers(t, 3)
			c.change(t, append([]topology.Change{topology.CreateKeyspace(wholeOn("s1"))}, test.before...)...)
			before := c.m
			c.change(t, test.after...)
			records := make([]*Recorded, 3)
			for i := range records {
				m := c.m
				if strings.Contains(test.behind, strconv.Itoa(i+1)) {
					m = before
				}
				records[i] = must[*Recorded](t)(expectedOf(m, shardName(i)))
			}
			refused := slices.ContainsFunc(test.want, func(code string) bool { return strings.HasPrefix(code, "problem") })
			rebuilt, found, err := Rebuild(records)
			expectCodes(t, found, test.want...)
			if refused != errors.Is(err, ErrNotWhole) || refused != (rebuilt == nil) {
				t.Fatalf("rebuilt %v, %v", rebuilt, err)
			}
			if rebuilt != nil {
				expectSameOwners(t, rebuilt, c.m)
			}
			rebuilt, found, err = RebuildWith(records, RebuildOptions{AllowOlder: true})
			if slices.Contains(test.want, "problem gap") {
				return // there is nothing to believe
			}
			if err != nil || rebuilt == nil {
				t.Errorf("if older records are allowed: %v, %v", found, err)
			}
			allowed := slices.Clone(test.want)
			for i, code := range allowed {
				allowed[i] = strings.Replace(code, "problem older", "warning older", 1)
			}
			expectCodes(t, found, allowed...)
		})
	}
}

// sixteenths returns who owns each sixteenth of the hash space, and the pins.
func sixteenths(m *topology.Map) (owners [16]string, pins map[string]string) {
	k := m.Keyspace("users")
	for r := range k.Ranges() {
		for i := r.Hash.Lo >> 60; i <= (r.Hash.Hi-1)>>60; i++ {
			owners[i] = r.Owner.Name()
		}
	}
	pins = map[string]string{}
	for p := range k.Pins() {
		pins[p.Encoded] = p.Owner.Name()
	}
	return owners, pins
}

func expectSameOwners(t *testing.T, got, want *topology.Map) {
	t.Helper()
	gotOwners, gotPins := sixteenths(got)
	wantOwners, wantPins := sixteenths(want)
	if gotOwners != wantOwners || !maps.Equal(gotPins, wantPins) {
		t.Errorf("ranges belong to %v and not to %v, pins to %v and not to %v", gotOwners, wantOwners, gotPins, wantPins)
	}
}

// TestWhatIsRebuiltWasInForce has shards stop recording at random versions of random maps: whatever is rebuilt without a
// problem agrees with the newest version that anybody recorded. The one exception is written down in DESIGN.md: a pin that
// a shard was given after its last record is not known to anybody.
func TestWhatIsRebuiltWasInForce(t *testing.T) {
	const shards, histories = 4, 1500
	random := rand.New(rand.NewPCG(7, 11))
	rebuiltCount := 0
	for history := range histories {
		c := withoutServers(t, shards)
		c.change(t, topology.CreateKeyspace(wholeOn(shardName(random.IntN(shards)))))
		versions := []*topology.Map{c.m}
		for range 1 + random.IntN(5) {
			c.change(t, randomChange(random, c.m, shards))
			versions = append(versions, c.m)
		}
		records, newest := make([]*Recorded, shards), versions[0]
		for i := range records {
			m := versions[len(versions)-1]
			if random.IntN(3) == 0 {
				m = versions[random.IntN(len(versions))]
			}
			if m.Version() > newest.Version() {
				newest = m
			}
			records[i] = must[*Recorded](t)(expectedOf(m, shardName(i)))
		}
		rebuilt, _, err := Rebuild(records)
		if err != nil {
			if !errors.Is(err, ErrNotWhole) {
				t.Fatal(err)
			}
			continue
		}
		rebuiltCount++
		owners, pins := sixteenths(rebuilt)
		wantOwners, wantPins := sixteenths(newest)
		for key, owner := range wantPins {
			at := slices.IndexFunc(records, func(r *Recorded) bool { return r.Shard == owner })
			if pins[key] == "" && records[at].MapVersion < newest.Version() {
				delete(wantPins, key)
			}
		}
		if owners != wantOwners || !maps.Equal(pins, wantPins) {
			t.Fatalf("history %d: ranges belong to %v and not to %v, pins to %v and not to %v", history, owners, wantOwners, pins, wantPins)
		}
	}
	if rebuiltCount < histories/10 || rebuiltCount > histories*9/10 {
		t.Errorf("%d of %d were rebuilt: the histories show too little", rebuiltCount, histories)
	}
}

// randomChange is one of ranges in sixteenths, or of one of a few pins.
func randomChange(random *rand.Rand, m *topology.Map, shards int) topology.Change {
	anyShard := func() string { return shardName(random.IntN(shards)) }
	point := topology.Point{strconv.Itoa(random.IntN(3))}
	switch random.IntN(5) {
	case 0:
		if pins := slices.Collect(m.Keyspace("users").Pins()); len(pins) > 0 {
			point, _ := m.Keyspace("users").Texts(pins[0].Encoded)
			return topology.RemovePins("users", point)
		}
	case 1:
		return topology.SetPins("users", topology.PinSpec{Key: point, Shard: "s1", Copies: []topology.CopySpec{{Shard: "s2", State: topology.Incoming}}})
	case 2:
		return topology.SetPins("users", topology.PinSpec{Key: point, Shard: anyShard()})
	}
	ranges := []topology.RangeSpec{{Shard: anyShard()}}
	for i := 1 + random.IntN(8); i < 16; i += 1 + random.IntN(8) {
		ranges = append(ranges, topology.RangeSpec{From: hashAt(strconv.FormatInt(int64(i), 16)), Shard: anyShard()})
	}
	return topology.ReplaceRanges("users", ranges, topology.Assignment{})
}

func TestDamagedRecordsAreNotBelieved(t *testing.T) {
	c := withoutServers(t, 2)
	c.change(t, c.hashKeyspace(t, "users"), topology.CreateKeyspace(wholeNamed("others", "s1")))
	for name, damage := range map[string]func(*Recorded){
		"no members":             func(r *Recorded) { r.Members = nil },
		"not among its members":  func(r *Recorded) { r.Members = []string{"s2"} },
		"no name":                func(r *Recorded) { r.Shard = "" },
		"another's entry":        func(r *Recorded) { r.Entry.Name = "s2" },
		"no entry":               func(r *Recorded) { r.Entry = topology.ShardSpec{} },
		"another's number":       func(r *Recorded) { r.Number = 2 },
		"the last version":       func(r *Recorded) { r.MapVersion = math.MaxUint64 },
		"the last minimum":       func(r *Recorded) { r.MinimumVersion = math.MaxUint64 },
		"a keyspace twice":       func(r *Recorded) { r.Keyspaces = append(r.Keyspaces, r.Keyspaces[0]) },
		"no state":               func(r *Recorded) { r.Keyspaces[0].Ranges[0].State = "" },
		"the state of a pin":     func(r *Recorded) { r.Keyspaces[0].Pins = []Pin{{Key: topology.Point{"1"}, State: "lost"}} },
		"rows that were changed": func(r *Recorded) { r.Keyspaces[0].damaged = true },
	} {
		t.Run(name, func(t *testing.T) {
			records := []*Recorded{must[*Recorded](t)(expectedOf(c.m, "s1")), must[*Recorded](t)(expectedOf(c.m, "s2"))}
			damage(records[0])
			m, found, err := RebuildWith(records, RebuildOptions{AllowOlder: true})
			if m != nil || !errors.Is(err, ErrNotWhole) {
				t.Errorf("rebuilt %v, %v", m, err)
			}
			expectCodes(t, found, strings.TrimSpace("problem damaged_record "+records[0].Shard))
		})
	}
	if _, found, err := Rebuild([]*Recorded{nil, must[*Recorded](t)(expectedOf(c.m, "s1")), must[*Recorded](t)(expectedOf(c.m, "s2"))}); err != nil {
		t.Error(found, err)
	}
}

// TestRowsThatAreGoneAreMissed: a record whose rows do not fit their digest proves nothing.
func TestRowsThatAreGoneAreMissed(t *testing.T) {
	c := newCluster(t, 1)
	c.change(t, topology.CreateKeyspace(wholeOn("s1")))
	c.change(t, topology.SetPins("users", topology.PinSpec{Key: topology.Point{"1"}, Shard: "s1"}))
	c.record(t)
	execute(t, c.conns[0], "DELETE FROM cleave.pins")
	m, found, err := Rebuild(c.read(t))
	if m != nil || !errors.Is(err, ErrNotWhole) {
		t.Errorf("rebuilt %v, %v", m, err)
	}
	expectCodes(t, found, "problem damaged_record s1")
}

// TestNoRecordPanicsUs changes something anywhere in a record, thousands of times.
func TestNoRecordPanicsUs(t *testing.T) {
	c := withoutServers(t, 3)
	rich(t, c)
	plan := Prepare(c.m)
	random := rand.New(rand.NewPCG(3, 5))
	read := 0
	for range 2000 {
		var records []*Recorded
		for i := range 3 {
			records = append(records, must[*Recorded](t)(plan.expected(shardName(i))))
		}
		at := random.IntN(3)
		var content any
		if err := json.Unmarshal(must[[]byte](t)(json.Marshal(records[at])), &content); err != nil {
			t.Fatal(err)
		}
		for range 1 + random.IntN(3) {
			content = spoil(random, content)
		}
		damaged := &Recorded{}
		if json.Unmarshal(must[[]byte](t)(json.Marshal(content)), damaged) != nil {
			continue
		}
		read++
		records[at] = damaged
		for _, options := range []RebuildOptions{{}, {AllowOlder: true}} {
			if m, found, err := RebuildWith(records, options); (m == nil) == (err == nil) {
				t.Fatalf("rebuilt %v, %v, %v", m, found, err)
			}
		}
		plan.Verify(shardName(at), damaged)
	}
	if read < 1000 {
		t.Errorf("only %d records could be read at all", read)
	}
}

// spoil changes one thing somewhere in a JSON value, most often into something of the same type.
func spoil(random *rand.Rand, value any) any {
	texts := []any{"", "s2", "8000000000000000", "bigint", "hash", "2020-01-01 00:00:00+00", `\x00`}
	numbers := []any{-1.0, 0.0, 1.0, 9.0, 9223372036854774784.0}
	pick := func(from []any) any { return from[random.IntN(len(from))] }
	if random.IntN(20) == 0 {
		return pick([]any{nil, "", 1.0, true, []any{}, map[string]any{}, []any{"x", "y", "z"}})
	}
	switch inner := value.(type) {
	case string:
		return pick(texts)
	case float64:
		return pick(numbers)
	case bool:
		return !inner
	case map[string]any:
		if keys := slices.Sorted(maps.Keys(inner)); len(keys) > 0 {
			key := keys[random.IntN(len(keys))]
			inner[key] = spoil(random, inner[key])
		}
		return inner
	case []any:
		if len(inner) == 0 {
			return inner
		}
		i := random.IntN(len(inner))
		switch random.IntN(6) {
		case 0:
			return slices.Delete(inner, i, i+1)
		case 1:
			return append(inner, inner[i])
		}
		inner[i] = spoil(random, inner[i])
		return inner
	}
	return pick(texts)
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
		"at the beginning": {[]Range{{Lower: hashAt("4"), State: Owned}}, nil, "from the beginning to 4000000000000000 "},
		"in the middle":    {[]Range{{Upper: hashAt("4"), State: Owned}}, []Range{{Lower: hashAt("c"), State: Owned}}, "from 4000000000000000 to c000000000000000 "},
		"at the end":       {[]Range{{Upper: hashAt("4"), State: Owned}}, nil, "from 4000000000000000 to the end "},
		"all":              {nil, nil, "from the beginning to the end "},
		"a copy alone":     {[]Range{{Upper: hashAt("4"), State: Owned}}, []Range{{Lower: hashAt("4"), State: Incoming}}, "from 4000000000000000 to the end "},
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
		"nothing in it": {Lower: hashAt("8"), Upper: hashAt("4"), State: Owned},
	} {
		if m, _, err := Rebuild([]*Recorded{record("a", 1, r), record("b", 2)}); m != nil || err == nil {
			t.Errorf("%s: rebuilt %v, %v", name, m, err)
		}
	}
	if _, _, err := Rebuild(nil); !errors.Is(err, ErrNotWhole) {
		t.Errorf("from nothing: %v", err)
	}
}

// TestASwitchIsUnderWay when everything else is lost: what the shards have noted says who has the rows, or the table.
func TestASwitchIsUnderWay(t *testing.T) {
	half := []topology.RangeSpec{{Shard: "s1"}, {From: hashAt("8"), Shard: "s1", Held: true, Copies: []topology.CopySpec{{Shard: "s2", State: topology.Opening}}}}
	for name, test := range map[string]struct {
		arrived, takenBack, rolledBack bool
		owner                          string
	}{
		"closed":              {owner: "s1"},
		"all there":           {arrived: true, owner: "s2"},
		"taken back":          {arrived: true, takenBack: true, owner: "s1"},
		"there and back":      {arrived: true, rolledBack: true, owner: "s1"},
		"taken back and away": {takenBack: true, owner: "s1"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2)
			c.change(t, topology.CreateKeyspace(wholeOn("s1")), topology.SetTable(topology.TableSpec{Name: "alone", Kind: topology.Single, Shard: "s1", Held: true}))
			c.change(t, topology.ReplaceRanges("users", half, topology.Assignment{}))
			c.record(t)
			for _, conn := range c.conns {
				for id, description := range map[string]string{"rows": `{"keyspace": "users", "target": "s2"}`, "tables": `{"whole": ["public.alone"], "target": "s2"}`} {
					if err := NoteMove(t.Context(), conn, id, []byte(description)); err != nil {
						t.Fatal(err)
					}
				}
			}
			leave := func(is bool, conn *pgx.Conn, mark string) {
				for _, id := range []string{"rows", "tables"} {
					if !is {
						continue
					}
					if err := LeaveMark(t.Context(), conn, id, mark); err != nil {
						t.Fatal(err)
					}
				}
			}
			leave(test.arrived, c.conns[1], ArrivedFrom("s1")+"0/1")
			leave(test.takenBack, c.conns[0], takenBack)
			leave(test.rolledBack, c.conns[0], ArrivedFrom("s2")+"0/2")
			rebuilt, found, err := Rebuild(c.read(t))
			if err != nil {
				t.Fatal(found, err)
			}
			last := rebuilt.Keyspace("users").Spec().Ranges[1]
			if last.Shard != test.owner || last.Held || len(last.Copies) != 1 || last.Copies[0].State == topology.Opening {
				t.Errorf("the rows: %+v, %v", last, found)
			}
			if alone := rebuilt.Table("public", "alone"); alone.Shard().Name() != test.owner || alone.IsHeld() {
				t.Errorf("the table: %+v, %v", alone.Spec(), found)
			}
		})
	}
}
