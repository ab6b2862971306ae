package topology

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/cleavedb/cleave/internal/secret"
	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/placement/key"
)

const clusterID = "0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11"

func must[T any](t testing.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// clusterOf returns a map with n shards named s1, s2 …
func clusterOf(t testing.TB, n int) *Map {
	t.Helper()
	changes := make([]Change, n)
	for i := range changes {
		changes[i] = AddShard(ShardSpec{Name: fmt.Sprintf("s%d", i+1), Primary: InstanceSpec{Address: fmt.Sprintf("10.0.%d.%d:5432", i/250, i%250)}})
	}
	return must[*Map](t)(must[*Map](t)(New(clusterID)).Next(changes...))
}

// hashed returns a keyspace by hash of bigint keys, with ranges over the map's shards.
func hashed(t testing.TB, m *Map, name string) KeyspaceSpec {
	t.Helper()
	spec := NewKeyspaceSpec(name, ByHash, 42, "bigint")
	var err error
	spec.Ranges, spec.Assignment, err = m.Assign(Assignment{Algorithm: "ring", VirtualNodes: 10})
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func bigint(t testing.TB, text string) key.Value {
	return must[key.Value](t)(key.Bigint.Parse(text))
}

func TestKeysAreFoundWherePlacementPutsThem(t *testing.T) {
	m := clusterOf(t, 5)
	m = must[*Map](t)(m.Next(RemoveShard("s2"))) // numbers have a hole
	spec := hashed(t, m, "users")
	m = must[*Map](t)(m.Next(CreateKeyspace(spec), SetTable(TableSpec{Name: "orders", Kind: Sharded, Keyspace: "users", Key: []string{"user_id"}})))
	table := m.Table("public", "orders")
	if table == nil || table.Keyspace() != m.Keyspace("users") {
		t.Fatal("the table or its keyspace is not found")
	}
	reached := map[string]bool{}
	for i := range 1000 {
		place, err := table.Keyspace().Locate(bigint(t, strconv.Itoa(i)))
		if want := ownerByHand(t, spec.Ranges, key.HashInt(int64(i), 42)); err != nil || place.Shard.Name() != want || place.Held || place.Pinned {
			t.Fatalf("key %d: %+v, %v, want shard %s", i, place, err, want)
		}
		reached[place.Shard.Name()] = true
	}
	if len(reached) != 4 {
		t.Errorf("only shards %v were reached", reached)
	}
	if m.Table("public", "Orders") != nil || m.Table("other", "orders") != nil {
		t.Error("another table was found")
	}
}

// ownerByHand finds the last range that begins at or before the hash, from the texts that people read.
func ownerByHand(t testing.TB, ranges []RangeSpec, hash uint64) string {
	t.Helper()
	owner := ""
	for _, r := range ranges {
		text := "0"
		if len(r.From) > 0 {
			text = r.From[0]
		}
		from := must[uint64](t)(strconv.ParseUint(text, 16, 64))
		if from <= hash {
			owner = r.Shard
		}
	}
	return owner
}

func TestIntegerTypesStandForEachOtherAndOthersAreRefused(t *testing.T) {
	m := clusterOf(t, 4)
	m = must[*Map](t)(m.Next(CreateKeyspace(hashed(t, m, "users"))))
	k := m.Keyspace("users")
	big := must[Place](t)(k.Locate(bigint(t, "7")))
	small := must[Place](t)(k.Locate(must[key.Value](t)(key.Smallint.Parse("7"))))
	if big != small {
		t.Errorf("7 is on %s as bigint and on %s as smallint", big.Shard.Name(), small.Shard.Name())
	}
	if _, err := k.Locate(must[key.Value](t)(key.Text.Parse("7"))); err == nil {
		t.Error("a text was taken for a bigint")
	}
	if _, err := k.Locate(); err == nil {
		t.Error("a key without values was taken")
	}
	if _, err := k.Locate(bigint(t, "7"), bigint(t, "8")); err == nil {
		t.Error("a key with too many values was taken")
	}
}

func TestRangesOfTheKeyItself(t *testing.T) {
	m := clusterOf(t, 3)
	spec := NewKeyspaceSpec("events", ByRange, 0, "text", "bigint")
	spec.Ranges = must[[]RangeSpec](t)(m.Split(spec.Key, []Point{{"m"}, {"m", "100"}}))
	m = must[*Map](t)(m.Next(CreateKeyspace(spec)))
	k := m.Keyspace("events")
	for _, c := range []struct{ text, number, shard string }{
		{"a", "5", "s1"}, {"lzzz", "999", "s1"}, {"m", "-5", "s2"}, {"m", "99", "s2"}, {"m", "100", "s3"}, {"ma", "1", "s3"}, {"z", "0", "s3"},
	} {
		place := must[Place](t)(k.Locate(must[key.Value](t)(key.Text.Parse(c.text)), bigint(t, c.number)))
		if place.Shard.Name() != c.shard {
			t.Errorf("(%s, %s) is on %s, want %s", c.text, c.number, place.Shard.Name(), c.shard)
		}
	}
	spec.Ranges[0].To, spec.Ranges[1].To = spec.Ranges[1].From, spec.Ranges[2].From
	if diff := cmp.Diff(spec.Ranges, k.Spec().Ranges); diff != "" {
		t.Error(diff)
	}
}

func TestPinsGoBeforeRanges(t *testing.T) {
	m := clusterOf(t, 4)
	m = must[*Map](t)(m.Next(CreateKeyspace(hashed(t, m, "users"))))
	free := must[Place](t)(m.Keyspace("users").Locate(bigint(t, "7")))
	elsewhere := "s1"
	if free.Shard.Name() == elsewhere {
		elsewhere = "s2"
	}
	pinned := must[*Map](t)(m.Next(SetPins("users", PinSpec{Key: Point{"007"}, Shard: elsewhere})))
	place := must[Place](t)(pinned.Keyspace("users").Locate(bigint(t, "7")))
	if place.Shard.Name() != elsewhere || !place.Pinned {
		t.Errorf("the pinned key is on %s", place.Shard.Name())
	}
	if got := pinned.Keyspace("users").Spec().Pins[0].Key[0]; got != "7" {
		t.Errorf("the pin's key is printed %q, not as PostgreSQL would", got)
	}
	if again := must[Place](t)(m.Keyspace("users").Locate(bigint(t, "7"))); again != free {
		t.Error("the map before the change has changed")
	}
	unpinned := must[*Map](t)(pinned.Next(RemovePins("users", Point{"7"})))
	if got := must[Place](t)(unpinned.Keyspace("users").Locate(bigint(t, "7"))); got.Shard.Name() != free.Shard.Name() {
		t.Error("the key did not go back to its range")
	}
	var missing *NotFoundError
	if _, err := unpinned.Next(RemovePins("users", Point{"7"})); !errors.As(err, &missing) {
		t.Errorf("removing a pin that is not there: %v", err)
	}
}

func TestSchemasArePlacedAsAWhole(t *testing.T) {
	m := clusterOf(t, 2)
	spec := NewKeyspaceSpec("tenants", BySchema, 1)
	spec.Ranges, spec.Assignment, _ = m.Assign(Assignment{Algorithm: "even"})
	m = must[*Map](t)(m.Next(CreateKeyspace(spec), SetPins("tenants", PinSpec{Key: Point{"tenant_1"}, Shard: "s2"})))
	place, k := m.LocateSchema("tenant_1")
	if k == nil || k.Name() != "tenants" || place.Shard.Name() != "s2" {
		t.Errorf("the schema is on %+v", place)
	}
	if _, k := m.LocateSchema("tenant_2"); k != nil {
		t.Error("a schema that nobody declared was found")
	}
	if _, err := m.Next(SetTable(TableSpec{Name: "tenant_1.orders", Kind: Single, Shard: "s1"})); err == nil {
		t.Error("a table in a placed schema was declared by itself, on another shard")
	}
	if _, err := m.Next(SetTable(TableSpec{Name: "tenant_1.orders", Kind: Reference})); err == nil {
		t.Error("a table in a placed schema was declared as a reference table")
	}
	listed := must[*Map](t)(m.Next(SetTable(TableSpec{Name: "tenant_1.orders", Kind: Single, Shard: "s2"}))) // as it is while the schema moves
	if _, err := listed.Next(SetPins("tenants", PinSpec{Key: Point{"tenant_1"}, Shard: "s1"})); err == nil {
		t.Error("a schema left a table behind")
	}
	must[*Map](t)(listed.Next(SetPins("tenants", PinSpec{Key: Point{"tenant_1"}, Shard: "s1"}), SetTable(TableSpec{Name: "tenant_1.orders", Kind: Single, Shard: "s1"})))
	if _, err := m.Next(DropKeyspace("tenants")); err == nil {
		t.Error("a keyspace with schemas was dropped")
	}
	second := spec
	second.Name = "others"
	if _, err := m.Next(CreateKeyspace(second), SetPins("others", PinSpec{Key: Point{"tenant_1"}, Shard: "s1"})); err == nil {
		t.Error("a schema is in two keyspaces")
	}
}

// TestCopiesThatAreOpening: nobody may write to them, so they are held; and there is one at most.
func TestCopiesThatAreOpening(t *testing.T) {
	m := clusterOf(t, 3)
	for _, c := range []struct {
		spec RangeSpec
		ok   bool
	}{
		{RangeSpec{Shard: "s1", Held: true, Copies: []CopySpec{{"s2", Opening}}}, true},
		{RangeSpec{Shard: "s1", Held: true, Copies: []CopySpec{{"s2", Opening}, {"s3", Leaving}}}, true},
		{RangeSpec{Shard: "s1", Copies: []CopySpec{{"s2", Opening}}}, false},
		{RangeSpec{Shard: "s1", Held: true, Copies: []CopySpec{{"s2", Opening}, {"s3", Opening}}}, false},
		{RangeSpec{Shard: "s1", Held: true, Copies: []CopySpec{{"s1", Opening}}}, false},
		{RangeSpec{Shard: "s1", Held: true, Copies: []CopySpec{{"s2", "opened"}}}, false},
	} {
		spec := NewKeyspaceSpec("users", ByHash, 42, "bigint")
		spec.Ranges = []RangeSpec{c.spec}
		next, err := m.Next(CreateKeyspace(spec))
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.spec, err)
		}
		if err == nil && !slices.Equal(next.Keyspace("users").Spec().Ranges[0].Copies, c.spec.Copies) {
			t.Errorf("%+v became %+v", c.spec, next.Keyspace("users").Spec().Ranges)
		}
	}
}

func TestHeldRangesAndCopiesAreSeen(t *testing.T) {
	m := clusterOf(t, 3)
	spec := NewKeyspaceSpec("users", ByHash, 42, "bigint")
	spec.Ranges = []RangeSpec{
		{Shard: "s1", Held: true, Copies: []CopySpec{{"s2", Incoming}}},
		{From: Point{"8000000000000000"}, Shard: "s2"},
	}
	m = must[*Map](t)(m.Next(CreateKeyspace(spec)))
	k := m.Keyspace("users")
	if !k.HasCopies(m.Shard("s2")) || k.HasCopies(m.Shard("s1")) {
		t.Error("it is not known which shard has copies")
	}
	if !k.IsMoving() || !k.Holds() || !k.TakesPart(m.Shard("s1")) || !k.TakesPart(m.Shard("s2")) || k.TakesPart(m.Shard("s3")) {
		t.Error("it is not known who takes part in the move")
	}
	for i := range 100 {
		v := bigint(t, strconv.Itoa(i))
		place := must[Place](t)(k.Locate(v))
		if lower := k.Hash(v) < 1<<63; place.Held != lower || (place.Shard.Name() == "s1") != lower {
			t.Fatalf("key %d: %+v", i, place)
		}
	}
	var inUse *InUseError
	if _, err := m.Next(RemoveShard("s2")); !errors.As(err, &inUse) {
		t.Errorf("a shard with a copy was removed: %v", err)
	}
	back := must[*Map](t)(Decode(document(t, m)))
	if diff := cmp.Diff(m.Document(), back.Document(), cmp.AllowUnexported(KeyspaceSpec{})); diff != "" {
		t.Error(diff)
	}
	if !must[Place](t)(back.Keyspace("users").Locate(firstWith(t, k, true))).Held {
		t.Error("a held range is not held any more after decoding")
	}
}

// firstWith returns a key whose hash is in the lower half of the space, or in the upper.
func firstWith(t testing.TB, k *Keyspace, lower bool) key.Value {
	for i := range 1000 {
		if v := bigint(t, strconv.Itoa(i)); (k.Hash(v) < 1<<63) == lower {
			return v
		}
	}
	t.Fatal("no key found")
	return key.Value{}
}

func document(t testing.TB, m *Map) []byte {
	return must[[]byte](t)(json.MarshalIndent(m.Document(), "", "  "))
}

func TestAChangeIsAllOrNothingAndNeverTouchesTheMapBefore(t *testing.T) {
	m := clusterOf(t, 2)
	before := document(t, m)
	if _, err := m.Next(AddShard(ShardSpec{Name: "s3", Primary: InstanceSpec{Address: "h:1"}}), RemoveShard("nobody")); err == nil {
		t.Fatal("a shard that is not there was removed")
	}
	next := must[*Map](t)(m.Next(UpdateShard("s1", func(s *ShardSpec) { s.Weight = 3; s.Labels = map[string]string{"region": "eu"} })))
	if next.Version() != m.Version()+1 || next.Shard("s1").Weight() != 3 || next.Shard("s1").Label("region") != "eu" {
		t.Errorf("the change did not take: %+v", next.Shard("s1").Spec())
	}
	spec := next.Shard("s1").Spec()
	spec.Labels["region"] = "us"
	if next.Shard("s1").Label("region") != "eu" {
		t.Error("a map was changed through a copy")
	}
	if after := document(t, m); string(after) != string(before) {
		t.Error("the map before the change has changed")
	}
}

func TestAChangeCanBeMadeAgain(t *testing.T) {
	m := clusterOf(t, 1)
	change := AddShard(ShardSpec{Name: "again", Primary: InstanceSpec{Address: "h:1"}})
	for range 2 {
		if next := must[*Map](t)(m.Next(change)); next.Shard("again").Number() != 2 {
			t.Errorf("it has number %d", next.Shard("again").Number())
		}
	}
}

func TestNumbersAreNeverGivenTwice(t *testing.T) {
	m := clusterOf(t, 2)
	m = must[*Map](t)(m.Next(RemoveShard("s2")))
	m = must[*Map](t)(m.Next(AddShard(ShardSpec{Name: "s2", Primary: InstanceSpec{Address: "h:1"}})))
	if got := m.Shard("s2").Number(); got != 3 {
		t.Errorf("the second s2 has number %d, want 3", got)
	}
	if m.ShardByNumber(2) != nil {
		t.Error("number 2 is a shard again")
	}
}

func TestWhatIsWrongIsRefused(t *testing.T) {
	base := clusterOf(t, 2)
	base = must[*Map](t)(base.Next(CreateKeyspace(hashed(t, base, "users"))))
	shard := func(change func(*ShardSpec)) Change {
		s := ShardSpec{Name: "s3", Primary: InstanceSpec{Address: "h:5432"}}
		change(&s)
		return AddShard(s)
	}
	keyspace := func(change func(*KeyspaceSpec)) Change {
		k := hashed(t, base, "k2")
		change(&k)
		return CreateKeyspace(k)
	}
	for name, c := range map[string]struct {
		change Change
		want   string
	}{
		"name":             {shard(func(s *ShardSpec) { s.Name = "S 3" }), "lower-case"},
		"name taken":       {shard(func(s *ShardSpec) { s.Name = "s1" }), "exists already"},
		"address":          {shard(func(s *ShardSpec) { s.Primary.Address = "nowhere" }), "host:port"},
		"port":             {shard(func(s *ShardSpec) { s.Primary.Address = "h:99999" }), "1 to 65535"},
		"address taken":    {shard(func(s *ShardSpec) { s.Primary.Address = "10.0.0.0:5432" }), "same database"},
		"replica twice":    {shard(func(s *ShardSpec) { s.Replicas = []InstanceSpec{{Address: "h:5432"}} }), "named twice"},
		"weight":           {shard(func(s *ShardSpec) { s.Weight = -1 }), "weight"},
		"state":            {shard(func(s *ShardSpec) { s.State = "asleep" }), "state"},
		"label":            {shard(func(s *ShardSpec) { s.Labels = map[string]string{"Bad Name": "x"} }), "label"},
		"sslmode":          {shard(func(s *ShardSpec) { s.SSLMode = "maybe" }), "sslmode"},
		"password":         {shard(func(s *ShardSpec) { s.Password = secret.Reference{File: "/a", Env: "B"} }), "password"},
		"minimum":          {shard(func(s *ShardSpec) { s.MinimumVersion = 99 }), "version 99"},
		"number":           {shard(func(s *ShardSpec) { s.Number = 9 }), "given, not chosen"},
		"keyspace taken":   {keyspace(func(k *KeyspaceSpec) { k.Name = "users" }), "exists already"},
		"strategy":         {keyspace(func(k *KeyspaceSpec) { k.Strategy = "magic" }), "strategy"},
		"key type":         {keyspace(func(k *KeyspaceSpec) { k.Key = []string{"money"} }), "money"},
		"no key":           {keyspace(func(k *KeyspaceSpec) { k.Key = nil }), "1 to 8 columns"},
		"seed":             {keyspace(func(k *KeyspaceSpec) { k.Seed = "x" }), "seed"},
		"no ranges":        {keyspace(func(k *KeyspaceSpec) { k.Ranges = nil }), "gap"},
		"gap at the start": {keyspace(func(k *KeyspaceSpec) { k.Ranges[0].From = Point{"1000000000000000"} }), "beginning"},
		"order":            {keyspace(func(k *KeyspaceSpec) { k.Ranges[1], k.Ranges[2] = k.Ranges[2], k.Ranges[1] }), "order"},
		"twice":            {keyspace(func(k *KeyspaceSpec) { k.Ranges[2] = k.Ranges[1] }), "order"},
		"bound":            {keyspace(func(k *KeyspaceSpec) { k.Ranges[1].From = Point{"xyz"} }), "hexadecimal"},
		"owner":            {keyspace(func(k *KeyspaceSpec) { k.Ranges[1].Shard = "s9" }), "s9"},
		"copy on owner":    {keyspace(func(k *KeyspaceSpec) { k.Ranges[0].Copies = []CopySpec{{k.Ranges[0].Shard, Leaving}} }), "already"},
		"copy state":       {keyspace(func(k *KeyspaceSpec) { k.Ranges[0].Copies = []CopySpec{{"s2", "lost"}} }), "lost"},
		"pin twice": {keyspace(func(k *KeyspaceSpec) {
			k.Pins = []PinSpec{{Key: Point{"7"}, Shard: "s1"}, {Key: Point{"07"}, Shard: "s2"}}
		}), "twice"},
		"pin of wrong type": {SetPins("users", PinSpec{Key: Point{"seven"}, Shard: "s1"}), "seven"},
		"pin of wrong size": {SetPins("users", PinSpec{Key: Point{"7", "8"}, Shard: "s1"}), "2 values"},
		"pin without key":   {SetPins("users", PinSpec{Shard: "s1"}), "0 values"},
		"pin on nobody":     {SetPins("users", PinSpec{Key: Point{"7"}, Shard: "s9"}), "s9"},
		"pin nowhere":       {SetPins("nobody", PinSpec{Key: Point{"7"}, Shard: "s1"}), "does not exist"},
		"table kind":        {SetTable(TableSpec{Name: "t", Kind: "odd"}), "odd"},
		"table keyspace":    {SetTable(TableSpec{Name: "t", Kind: Sharded, Keyspace: "nobody", Key: []string{"a"}}), "nobody"},
		"table key":         {SetTable(TableSpec{Name: "t", Kind: Sharded, Keyspace: "users", Key: []string{"a", "b"}}), "1 columns"},
		"table shard":       {SetTable(TableSpec{Name: "t", Kind: Single, Shard: "s9"}), "s9"},
		"reference on one":  {SetTable(TableSpec{Name: "t", Kind: Reference, Shard: "s1"}), "not on one shard"},
		"table name":        {SetTable(TableSpec{Name: `a.b.c`, Kind: Reference}), "schema.name"},
		"drop nobody":       {DropTable("nobody"), "does not exist"},
		"in use":            {RemoveShard("s1"), "ranges"},
		"rename":            {UpdateShard("s1", func(s *ShardSpec) { s.Name = "x" }), "cannot be changed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := base.Next(c.change)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestTableNamesOfEarlierVersions(t *testing.T) {
	for text, want := range map[string]string{"user.orders": `"user".orders`, `"user".orders`: `"user".orders`, "public.user": "public.user", `"User"."a.b"`: `"User"."a.b"`, "a.b.c": "a.b.c"} {
		if got := NormalTableName(text); got != want {
			t.Errorf("%s is now %s, not %s", text, got, want)
		}
	}
}

func TestTableNamesReadAsInSQL(t *testing.T) {
	for text, want := range map[string]TableName{
		"orders": {"public", "orders"}, "Shop.Orders": {"shop", "orders"}, `"Shop"."Or.d""ers"`: {"Shop", `Or.d"ers`}, `a."b c"`: {"a", "b c"},
	} {
		got, err := ParseTableName(text)
		if err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		if again, err := ParseTableName(got.String()); err != nil || again != got {
			t.Errorf("%s is printed %s, which reads %v, %v", text, got, again, err)
		}
	}
	for _, wrong := range []string{"", ".", "a.", ".b", `"a`, `"a"b`, "a b", strings.Repeat("x", 64)} {
		if got, err := ParseTableName(wrong); err == nil {
			t.Errorf("%q was read as %v", wrong, got)
		}
	}
}

// TestADocumentForPeople pins the form: whoever keeps such a file must be able to read it in years.
func TestADocumentForPeople(t *testing.T) {
	m := clusterOf(t, 2)
	spec := NewKeyspaceSpec("users", ByHash, -5, "bigint", "text")
	spec.Ranges = []RangeSpec{{Shard: "s1"}, {From: Point{"8000000000000000"}, Shard: "s2", Copies: []CopySpec{{"s1", Leaving}}}}
	spec.Pins = []PinSpec{{Key: Point{"7", "eu"}, Shard: "s2"}}
	m = must[*Map](t)(m.Next(
		UpdateShard("s1", func(s *ShardSpec) {
			s.Password, s.Labels = secret.Reference{Env: "S1"}, map[string]string{"region": "eu"}
		}),
		CreateKeyspace(spec),
		SetTable(TableSpec{Name: "orders", Kind: Sharded, Keyspace: "users", Key: []string{"user_id", "region"}}),
		SetTable(TableSpec{Name: "countries", Kind: Reference})))
	const want = `{
  "schema": 3,
  "readable_by": 3,
  "cluster": "0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11",
  "version": 3,
  "last_shard_number": 2,
  "shards": [
    {
      "name": "s1",
      "number": 1,
      "primary": {
        "address": "10.0.0.0:5432"
      },
      "password": {
        "env": "S1"
      },
      "weight": 1,
      "labels": {
        "region": "eu"
      },
      "state": "active"
    },
    {
      "name": "s2",
      "number": 2,
      "primary": {
        "address": "10.0.0.1:5432"
      },
      "weight": 1,
      "state": "active"
    }
  ],
  "keyspaces": [
    {
      "name": "users",
      "strategy": "hash",
      "key": [
        "bigint",
        "text"
      ],
      "seed": "-5",
      "ranges": [
        {
          "to": "8000000000000000",
          "shard": "s1"
        },
        {
          "from": "8000000000000000",
          "shard": "s2",
          "copies": [
            {
              "shard": "s1",
              "state": "leaving"
            }
          ]
        }
      ],
      "pins": [
        {
          "key": [
            "7",
            "eu"
          ],
          "shard": "s2"
        }
      ]
    }
  ],
  "tables": [
    {
      "name": "public.countries",
      "kind": "reference"
    },
    {
      "name": "public.orders",
      "kind": "sharded",
      "keyspace": "users",
      "key": [
        "user_id",
        "region"
      ]
    }
  ]
}`
	if diff := cmp.Diff(want, string(document(t, m))); diff != "" {
		t.Error(diff)
	}
	back := must[*Map](t)(Decode([]byte(want)))
	if diff := cmp.Diff(want, string(document(t, back))); diff != "" {
		t.Error(diff)
	}
}

func TestDocumentsOfOtherPrograms(t *testing.T) {
	const form = `{"schema": %d, "readable_by": %d, "cluster": "` + clusterID + `", "version": 5, "last_shard_number": 0, "later": true}`
	newer := must[*Map](t)(Decode(fmt.Appendf(nil, form, Schema+1, 1)))
	var refused *NewerSchemaError
	if _, err := newer.Next(); !errors.As(err, &refused) || !refused.Writing {
		t.Errorf("a map of a newer program was changed: %v", err)
	}
	if _, err := Decode(fmt.Appendf(nil, form, Schema+1, Schema+1)); !errors.As(err, &refused) || refused.Writing {
		t.Errorf("a map that needs a newer program was read: %v", err)
	}
	if _, err := Decode(fmt.Appendf(nil, form, Schema, Schema)); err == nil || !strings.Contains(err.Error(), "later") {
		t.Errorf("a misspelt field was not noticed: %v", err)
	}
	twice := strings.Replace(fmt.Sprintf(form, Schema, Schema), `"later": true`, `"tables": [], "tables": []`, 1)
	if _, err := Decode([]byte(twice)); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a field that is there twice: %v", err)
	}
	last := strings.Replace(strings.Replace(fmt.Sprintf(form, Schema, Schema), `, "later": true`, "", 1), `"version": 5`, `"version": 18446744073709551614`, 1)
	if _, err := Decode([]byte(last)); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("a version that leaves no room: %v", err)
	}
	for _, wrong := range []string{"", "{}", "[]", "null", `{"schema": 1, "readable_by": 1}`, "{\n\n  oops"} {
		if _, err := Decode([]byte(wrong)); err == nil {
			t.Errorf("%q was read as a map", wrong)
		}
	}
	if _, err := Decode([]byte("{\n\n  oops")); !strings.Contains(err.Error(), "line 3") {
		t.Errorf("the line is not said: %v", err)
	}
}

// store keeps pieces as a store would, and counts what is fetched.
type pieceStore struct {
	pieces  map[PieceID][]byte
	fetched int
	bytes   int
}

// put keeps the pieces that are new and returns how many those are, and their bytes with the manifest's.
func (s *pieceStore) put(m *Map) (count, size int) {
	size = len(m.Manifest())
	for _, p := range m.Pieces() {
		if _, there := s.pieces[p.ID]; !there {
			s.pieces[p.ID] = p.Encode()
			count++
			size += len(s.pieces[p.ID])
		}
	}
	return count, size
}

func (s *pieceStore) fetch(ids []PieceID) (map[PieceID][]byte, error) {
	found := map[PieceID][]byte{}
	for _, id := range ids {
		found[id] = s.pieces[id]
		s.fetched++
		s.bytes += len(s.pieces[id])
	}
	return found, nil
}

func newPieceStore() *pieceStore { return &pieceStore{pieces: map[PieceID][]byte{}} }

func assemble(t testing.TB, s *pieceStore, manifest []byte, previous *Map) *Map {
	t.Helper()
	parsed := must[*Manifest](t)(ParseManifest(manifest))
	return must[*Map](t)(parsed.Assemble(previous, s.fetch))
}

// TestHistory changes a map at random for a while. At every step the map that was changed, the one that a follower
// assembled from pieces on top of an older one, and the one made anew from the document must be the same to the last piece.
func TestHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := clusterOf(t, 3)
		range1 := NewKeyspaceSpec("events", ByRange, 0, "text")
		range1.Ranges = must[[]RangeSpec](t)(m.Split(range1.Key, []Point{{"g"}, {"p"}}))
		m = must[*Map](t)(m.Next(CreateKeyspace(hashed(t, m, "users")), CreateKeyspace(range1)))
		s := newPieceStore()
		s.put(m)
		follower := assemble(t, s, m.Manifest(), nil)
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			next, err := m.Next(anyChange(rt, m))
			if err != nil {
				continue
			}
			m = next
			s.put(m)
			if rapid.Bool().Draw(rt, "follow") {
				follower = assemble(t, s, m.Manifest(), follower)
				same(rt, m, follower)
			}
		}
		same(rt, m, assemble(t, s, m.Manifest(), nil))
		same(rt, m, must[*Map](t)(Decode(document(t, m))))
	})
}

func same(t *rapid.T, a, b *Map) {
	t.Helper()
	if diff := cmp.Diff(a.Document(), b.Document(), cmp.AllowUnexported(KeyspaceSpec{})); diff != "" {
		t.Fatal(diff)
	}
	if string(a.Manifest()) != string(b.Manifest()) {
		t.Fatalf("manifests differ:\n%s\n%s", a.Manifest(), b.Manifest())
	}
	for _, k := range a.Keyspaces() {
		other := b.Keyspace(k.Name())
		for i := range 20 {
			for _, typ := range []key.Type{key.Bigint, key.Text} {
				v, _ := typ.Parse(strconv.Itoa(i))
				p, err := k.Locate(v)
				q, otherErr := other.Locate(v)
				if (err == nil) != (otherErr == nil) || err == nil && (p.Shard.Name() != q.Shard.Name() || p.Shard.Number() != q.Shard.Number() || p.Held != q.Held || p.Pinned != q.Pinned) {
					t.Fatalf("key %d of %s: %+v and %+v", i, k.Name(), p, q)
				}
			}
		}
	}
}

// anyChange draws a change, which may be refused.
func anyChange(t *rapid.T, m *Map) Change {
	name := fmt.Sprintf("s%d", rapid.IntRange(1, 5).Draw(t, "shard"))
	keyspace := rapid.SampledFrom([]string{"users", "events"}).Draw(t, "keyspace")
	// Few keys, so that both keyspaces, whose keys have different types, often have pins of the same text.
	pinKey := func() Point { return Point{strconv.Itoa(rapid.IntRange(0, 2).Draw(t, "key"))} }
	switch rapid.IntRange(0, 7).Draw(t, "change") {
	case 0:
		return AddShard(ShardSpec{Name: name, Primary: InstanceSpec{Address: fmt.Sprintf("h:%d", 1000+m.Version())}})
	case 1:
		return RemoveShard(name)
	case 2:
		weight := rapid.Float64Range(0.1, 9).Draw(t, "weight")
		return UpdateShard(name, func(s *ShardSpec) { s.Weight = weight })
	case 3:
		return SetPins(keyspace, PinSpec{Key: pinKey(), Shard: name, Held: rapid.Bool().Draw(t, "held")})
	case 4:
		return RemovePins(keyspace, pinKey())
	case 5:
		ranges := m.Keyspace(keyspace).Spec().Ranges
		at := rapid.IntRange(0, len(ranges)-1).Draw(t, "range")
		ranges[at].Shard, ranges[at].Copies = name, nil
		if rapid.Bool().Draw(t, "split") && keyspace == "users" {
			ranges = slices.Insert(ranges, len(ranges), RangeSpec{From: Point{fmt.Sprintf("ffff%012x", m.Version())}, Shard: name})
			ranges[len(ranges)-2].To = nil
		}
		return ReplaceRanges(keyspace, ranges, m.Keyspace(keyspace).Assignment())
	case 6:
		return SetTable(TableSpec{Name: "t" + strconv.Itoa(rapid.IntRange(0, 9).Draw(t, "table")), Kind: Single, Shard: name})
	default:
		return DropTable("t" + strconv.Itoa(rapid.IntRange(0, 9).Draw(t, "table")))
	}
}

// TestPinsChangedOneByOneOrAnew compares cutting piece by piece with cutting everything anew, with many pieces.
func TestPinsChangedOneByOneOrAnew(t *testing.T) {
	c := newCodec(ByHash, []key.Type{key.Bigint}, clusterOf(t, 3).shards)
	cutting := c.pinCutting()
	cutting.every = 8
	random := rand.New(rand.NewPCG(1, 2))
	pin := func() pinEntry {
		specs := []PinSpec{{Key: Point{strconv.Itoa(random.IntN(3000))}, Shard: fmt.Sprintf("s%d", 1+random.IntN(3))}}
		return must[[]pinEntry](t)(c.pinEntries(specs))[0]
	}
	table := newPinTable(nil)
	model := map[string]uint16{}
	for step := range 3000 {
		one := pin()
		if random.IntN(3) == 0 {
			table = table.with(cutting, nil, []pinEntry{one})
			delete(model, one.key)
		} else {
			table = table.with(cutting, []pinEntry{one}, nil)
			model[one.key] = one.owner
		}
		if step%100 != 0 {
			continue
		}
		agree(t, &table, model, c)
		anew := cutting.cut(join(table.pieces), nil, nil)
		if !slices.Equal(identifiers(anew), identifiers(table.pieces)) {
			t.Fatalf("step %d: the pieces depend on the history", step)
		}
	}
	if len(table.pieces) < 50 {
		t.Fatalf("only %d pieces", len(table.pieces))
	}
}

// agree holds the table against a plain map, for all keys that there may be.
func agree(t *testing.T, table *pinTable, model map[string]uint16, c *codec) {
	t.Helper()
	if table.count != len(model) {
		t.Fatalf("%d pins, want %d", table.count, len(model))
	}
	for i := range 3000 {
		encoded := must[string](t)(c.encodeKey(Point{strconv.Itoa(i)}))
		owner, pinned := model[encoded]
		found := table.find([]byte(encoded))
		if (found != nil) != pinned || pinned && found.owner != owner {
			t.Fatalf("key %d: found %+v, want %d, %v", i, found, owner, pinned)
		}
	}
}

// TestKeysThatShareAHashAreAllFound puts keys with one hash on both sides of the end of a piece.
func TestKeysThatShareAHashAreAllFound(t *testing.T) {
	c := newCodec(ByHash, []key.Type{key.Bigint}, clusterOf(t, 2).shards)
	cutting := c.pinCutting()
	hash := uint64(5 << 20) // ends a piece
	encode := func(k int64) string { return string(key.AppendInt(nil, k)) }
	var entries []pinEntry
	for _, shared := range []struct{ hash uint64 }{{hash - 1}, {hash}, {hash}, {hash}, {hash + 1}} {
		entries = append(entries, pinEntry{hash: shared.hash, key: encode(int64(len(entries))), holding: holding{owner: 1}})
	}
	table := newPinTable(cutting.cut(entries, nil, nil))
	if len(table.pieces) != 4 {
		t.Fatalf("%d pieces", len(table.pieces))
	}
	for i, e := range entries {
		if found := table.findHash(e.hash, []byte(e.key)); found == nil || found.key != e.key {
			t.Errorf("key %d is not found", i)
		}
	}
	if table.findHash(hash, []byte(encode(99))) != nil {
		t.Error("a key that only shares the hash was found")
	}
}

// TestKeyspacesDoNotShareWhatOnlyLooksAlike has the same texts as keys of different types: their pieces have the same names.
func TestKeyspacesDoNotShareWhatOnlyLooksAlike(t *testing.T) {
	m := clusterOf(t, 3)
	keyspace := func(name string, strategy Strategy, typ string) Change {
		spec := NewKeyspaceSpec(name, strategy, 1, typ)
		spec.Ranges = []RangeSpec{{Shard: "s1"}, {From: Point{"1000100010001000"}, Shard: "s2"}}
		spec.Pins = []PinSpec{{Key: Point{"42"}, Shard: "s3"}}
		return CreateKeyspace(spec)
	}
	m = must[*Map](t)(m.Next(keyspace("a", ByRange, "bigint"), keyspace("b", ByRange, "text"), keyspace("c", ByHash, "bigint"), keyspace("d", ByHash, "text")))
	s := newPieceStore()
	s.put(m)
	follower := assemble(t, s, m.Manifest(), nil)
	for range 3 {
		m = must[*Map](t)(m.Next(UpdateShard("s1", func(s *ShardSpec) { s.Weight++ })))
		s.put(m)
		follower = assemble(t, s, m.Manifest(), follower)
		for _, k := range m.Keyspaces() {
			for _, text := range []string{"5", "42", "999", "1000100010001000", "2000100010001000"} {
				v := must[key.Value](t)(k.KeyTypes()[0].Parse(text))
				want, got := must[Place](t)(k.Locate(v)), must[Place](t)(follower.Keyspace(k.Name()).Locate(v))
				if want.Shard.Name() != got.Shard.Name() || want.Pinned != got.Pinned {
					t.Errorf("key %s of %s: %s, want %s", text, k.Name(), got.Shard.Name(), want.Shard.Name())
				}
			}
		}
	}
}

// TestPinsOutOfOrderAreRefused swaps two pieces in a manifest: pins would be there and not be found.
func TestPinsOutOfOrderAreRefused(t *testing.T) {
	m := clusterOf(t, 2)
	spec := NewKeyspaceSpec("names", ByHash, 1, "text")
	spec.Ranges = []RangeSpec{{Shard: "s1"}}
	for i := range 5000 {
		spec.Pins = append(spec.Pins, PinSpec{Key: Point{strconv.Itoa(i)}, Shard: "s2"})
	}
	m = must[*Map](t)(m.Next(CreateKeyspace(spec)))
	manifest := must[*Manifest](t)(ParseManifest(m.Manifest()))
	pins := manifest.form.Keyspaces[0].Pins
	if len(pins) < 2 {
		t.Fatal("one piece only")
	}
	pins[0], pins[1] = pins[1], pins[0]
	s := newPieceStore()
	s.put(m)
	if _, err := manifest.Assemble(nil, s.fetch); err == nil || !strings.Contains(err.Error(), "order") {
		t.Errorf("pins out of order: %v", err)
	}
}

// TestPiecesOfLongKeysStayBelowTheLimit makes pieces that only their size can end.
func TestPiecesOfLongKeysStayBelowTheLimit(t *testing.T) {
	m := clusterOf(t, 2)
	spec := NewKeyspaceSpec("names", ByHash, 1, "text")
	spec.Ranges = []RangeSpec{{Shard: "s1"}}
	for i := range 500 {
		filling := []string{"x", "<", "\x01"}[i%3] // some are longer in JSON
		spec.Pins = append(spec.Pins, PinSpec{Key: Point{fmt.Sprintf("%04d%s", i, strings.Repeat(filling, 2600))}, Shard: "s2"})
	}
	m = must[*Map](t)(m.Next(CreateKeyspace(spec)))
	for _, p := range m.Pieces() {
		if n := len(p.Encode()); n > 220<<10 {
			t.Errorf("a piece has %d bytes", n)
		}
	}
	one := must[*Map](t)(m.Next(SetPins("names", PinSpec{Key: spec.Pins[250].Key, Shard: "s1"})))
	anew := must[*Map](t)(Decode(document(t, one)))
	if string(anew.Manifest()) != string(one.Manifest()) {
		t.Error("the pieces depend on the history")
	}
	if _, err := m.Next(SetPins("names", PinSpec{Key: Point{strings.Repeat("x", 3000)}, Shard: "s1"})); err == nil {
		t.Error("a key longer than any index holds was pinned")
	}
}

func TestAShardThatCameBackUnderAnotherNumberKeepsItsRangesApart(t *testing.T) {
	first := clusterOf(t, 1)
	spec := NewKeyspaceSpec("users", ByHash, 1, "bigint")
	spec.Ranges = []RangeSpec{{Shard: "s1"}}
	before := must[*Map](t)(first.Next(CreateKeyspace(spec)))
	now := must[*Map](t)(before.Next(DropKeyspace("users"), RemoveShard("s1")))
	now = must[*Map](t)(now.Next(AddShard(ShardSpec{Name: "s1", Primary: InstanceSpec{Address: "h:1"}})))
	now = must[*Map](t)(now.Next(CreateKeyspace(spec)))
	s := newPieceStore()
	s.put(now)
	follower := assemble(t, s, now.Manifest(), before)
	if got := must[Place](t)(follower.Keyspace("users").Locate(bigint(t, "1"))).Shard; got != follower.Shard("s1") || got.Number() != 2 {
		t.Errorf("the key is on shard number %d", got.Number())
	}
}

func TestDamagedPiecesAreNoticed(t *testing.T) {
	m := clusterOf(t, 2)
	m = must[*Map](t)(m.Next(CreateKeyspace(hashed(t, m, "users"))))
	manifest := must[*Manifest](t)(ParseManifest(m.Manifest()))
	for damage, fetch := range map[string]func([]PieceID, map[PieceID][]byte){
		"damaged": func(ids []PieceID, found map[PieceID][]byte) {
			found[ids[0]] = append([]byte(" "), found[ids[0]]...)
		},
		"missing": func(ids []PieceID, found map[PieceID][]byte) { delete(found, ids[0]) },
	} {
		s := newPieceStore()
		s.put(m)
		_, err := manifest.Assemble(nil, func(ids []PieceID) (map[PieceID][]byte, error) {
			found, _ := s.fetch(ids)
			fetch(ids, found)
			return found, nil
		})
		if err == nil || !strings.Contains(err.Error(), damage) {
			t.Errorf("a %s piece: %v", damage, err)
		}
	}
	for _, wrong := range []string{"", "{}", "[]", `{"schema":1,"readable_by":1,"version":1,"cluster":"x"}`} {
		parsed, err := ParseManifest([]byte(wrong))
		if err == nil {
			_, err = parsed.Assemble(nil, newPieceStore().fetch)
		}
		if err == nil {
			t.Errorf("%q was taken for a manifest", wrong)
		}
	}
}

// TestALargeMapIsCheapToChange has a thousand shards with 150,000 ranges, and a million pins: fewer in short tests, and with
// the race detector, which makes it ten times as slow and has nothing to find in a value that never changes.
func TestALargeMapIsCheapToChange(t *testing.T) {
	pins := 1_000_000
	switch {
	case testing.Short():
		pins = 50_000
	case raceDetector:
		pins = 200_000
	}
	m := largeMap(t, pins)
	s := newPieceStore()
	count, size := s.put(m)
	if got := m.Keyspace("big").RangeCount(); got < 149_000 {
		t.Fatalf("only %d ranges", got)
	}
	largest := 0
	for _, content := range s.pieces {
		largest = max(largest, len(content))
	}
	t.Logf("%d pieces, %d bytes in all, the largest %d, manifest %d bytes", count, size, largest, len(m.Manifest()))
	if largest > 220<<10 || len(m.Manifest()) > 100<<10 {
		t.Error("a piece or the manifest is too large for one request")
	}
	ranges := m.Keyspace("big").Spec().Ranges
	ranges[70_000].Shard = "s1"
	for what, change := range map[string]Change{
		"a pin":     SetPins("tenants", PinSpec{Key: Point{"tenant-1234"}, Shard: "s9"}),
		"a new pin": SetPins("tenants", PinSpec{Key: Point{"somebody new"}, Shard: "s9"}),
		"an unpin":  RemovePins("tenants", Point{"tenant-777"}),
		"a range":   ReplaceRanges("big", ranges, m.Keyspace("big").Assignment()),
		"a weight":  UpdateShard("s500", func(s *ShardSpec) { s.Weight = 2 }),
	} {
		next := must[*Map](t)(m.Next(change))
		count, size := s.put(next)
		t.Logf("%s: %d new pieces, %d bytes with the manifest", what, count, size)
		if count > 3 || size > 256<<10 {
			t.Errorf("changing %s writes %d pieces, %d bytes", what, count, size)
		}
		s.fetched = 0
		assemble(t, s, next.Manifest(), m)
		if s.fetched != count {
			t.Errorf("after %s a follower fetches %d pieces, want %d", what, s.fetched, count)
		}
	}
}

// largeMap has a thousand shards, a keyspace with a ring of 150 virtual nodes each, and one with pins.
func largeMap(t testing.TB, pins int) *Map {
	t.Helper()
	m := clusterOf(t, 1000)
	big := NewKeyspaceSpec("big", ByHash, 42, "bigint")
	var err error
	if big.Ranges, big.Assignment, err = m.Assign(Assignment{Algorithm: "ring", VirtualNodes: 150}); err != nil {
		t.Fatal(err)
	}
	tenants := NewKeyspaceSpec("tenants", ByHash, 43, "text")
	tenants.Ranges = []RangeSpec{{Shard: "s1"}}
	tenants.Pins = make([]PinSpec, pins)
	for i := range tenants.Pins {
		tenants.Pins[i] = PinSpec{Key: Point{fmt.Sprintf("tenant-%d", i)}, Shard: fmt.Sprintf("s%d", i%1000+1)}
	}
	return must[*Map](t)(m.Next(CreateKeyspace(big), CreateKeyspace(tenants), SetTable(TableSpec{Name: "orders", Kind: Sharded, Keyspace: "big", Key: []string{"user_id"}})))
}

func TestLookUpsAllocateNothing(t *testing.T) {
	m := largeMap(t, 10_000)
	user := bigint(t, "123456")
	pinned, free := must[key.Value](t)(key.Text.Parse("tenant-77")), must[key.Value](t)(key.Text.Parse("nobody"))
	for what, look := range map[string]func(){
		"a table and its key": func() { _, _ = m.Table("public", "orders").Keyspace().Locate(user) },
		"a pinned key":        func() { _, _ = m.Keyspace("tenants").Locate(pinned) },
		"a key beside pins":   func() { _, _ = m.Keyspace("tenants").Locate(free) },
	} {
		if n := testing.AllocsPerRun(100, look); n != 0 {
			t.Errorf("looking up %s allocates %v times", what, n)
		}
	}
}

func TestEveryAlgorithmMakesAKeyspace(t *testing.T) {
	m := clusterOf(t, 4)
	for _, info := range placement.Algorithms() {
		ranges, by, err := m.Assign(Assignment{Algorithm: info.Name})
		if err != nil {
			t.Errorf("%s: %v", info.Name, err)
			continue
		}
		spec := NewKeyspaceSpec("k", ByHash, 1, "bigint")
		spec.Ranges, spec.Assignment = ranges, by
		next, err := m.Next(CreateKeyspace(spec))
		if err != nil {
			t.Errorf("%s: %v", info.Name, err)
			continue
		}
		for s := range next.Shards() {
			if next.Holdings()[s.Number()].Ranges == 0 {
				t.Errorf("%s: shard %s owns nothing", info.Name, s.Name())
			}
		}
	}
	if _, _, err := m.Assign(Assignment{Algorithm: "guess"}); !errors.Is(err, placement.ErrUnknownAlgorithm) {
		t.Errorf("an unknown algorithm: %v", err)
	}
	drained := must[*Map](t)(m.Next(UpdateShard("s1", func(s *ShardSpec) { s.State = Draining })))
	ranges, _, err := drained.Assign(Assignment{Algorithm: "even"})
	if err != nil || slices.ContainsFunc(ranges, func(r RangeSpec) bool { return r.Shard == "s1" }) {
		t.Errorf("a draining shard was given ranges: %v", err)
	}
	if _, _, err := must[*Map](t)(New(clusterID)).Assign(Assignment{Algorithm: "even"}); !errors.Is(err, ErrNoActiveShard) {
		t.Errorf("no shards: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	m := clusterOf(f, 2)
	f.Add(document(f, m))
	m = must[*Map](f)(m.Next(CreateKeyspace(hashed(f, m, "users"))))
	f.Add(document(f, m))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Decode(data)
		if err != nil {
			return
		}
		if _, err := Decode(document(t, m)); err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
	})
}
