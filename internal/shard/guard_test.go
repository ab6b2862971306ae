package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/sqltext/qualified"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/placement/key"
)

// connectAsRouter logs in as a router's backend does.
func connectAsRouter(t testing.TB, spec topology.ShardSpec) *pgx.Conn {
	t.Helper()
	return connectAs(t, spec, "r-1")
}

func connectAs(t testing.TB, spec topology.ShardSpec, router string) *pgx.Conn {
	t.Helper()
	config := must[*pgx.ConnConfig](t)(Access{}.to(spec).config(spec.Primary.Address))
	config.RuntimeParams = map[string]string{RouterParameter: router}
	conn := must[*pgx.Conn](t)(pgx.ConnectConfig(t.Context(), config))
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// routers returns a router's connection to each shard.
func (c *cluster) routers(t testing.TB) []*pgx.Conn {
	t.Helper()
	conns := make([]*pgx.Conn, len(c.servers))
	for i, server := range c.servers {
		conns[i] = connectAsRouter(t, specOf(shardName(i), server))
	}
	return conns
}

// everywhere runs statements in the schema public of every shard.
func (c *cluster) everywhere(t testing.TB, sql string) {
	t.Helper()
	for _, conn := range c.conns {
		execute(t, conn, "SET LOCAL search_path = public; "+sql)
	}
}

// declare puts tables into the map, each in the keyspace and by the columns given, and records it.
func (c *cluster) declare(t testing.TB, keyspace string, tables map[string][]string) {
	t.Helper()
	for name, columns := range tables {
		c.change(t, topology.SetTable(topology.TableSpec{Name: name, Kind: topology.Sharded, Keyspace: keyspace, Key: columns}))
	}
	c.record(t)
}

// refusedAs wants an error of the server with this SQLSTATE, and returns what it says.
func refusedAs(t testing.TB, code string, err error, what string, arguments ...any) saying {
	t.Helper()
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != code {
		t.Errorf("%s: %v, want SQLSTATE %s", fmt.Sprintf(what, arguments...), err, code)
		return saying{}
	}
	return saying{refused.Message, refused.Detail, refused.Hint, refused.TableName, refused.ColumnName}
}

// saying is what an error says to people and programs.
type saying struct{ Message, Detail, Hint, TableName, ColumnName string }

// splitAt makes a keyspace by hash whose ranges begin at these hashes, dealt to the shards by turns.
func (c *cluster) splitAt(t testing.TB, name string, seed int64, types []string, hashes ...uint64) topology.Change {
	t.Helper()
	spec := topology.NewKeyspaceSpec(name, topology.ByHash, seed, types...)
	spec.Ranges = []topology.RangeSpec{{Shard: "s1"}}
	slices.Sort(hashes)
	for i, h := range slices.Compact(hashes) {
		if h == 0 {
			continue
		}
		spec.Ranges = append(spec.Ranges, topology.RangeSpec{From: hashPoint(h), Shard: shardName((i + 1) % len(c.servers))})
	}
	return topology.CreateKeyspace(spec)
}

// TestSignedBounds compares, at and around every bound, what PostgreSQL would count with what the map says.
func TestSignedBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	edges := []uint64{1, math.MaxInt64, math.MaxInt64 + 1, math.MaxInt64 + 2, math.MaxUint64}
	for range 2000 {
		var starts []uint64
		for range random.IntN(8) {
			if random.IntN(2) == 0 {
				starts = append(starts, edges[random.IntN(len(edges))])
			} else {
				starts = append(starts, random.Uint64())
			}
		}
		starts = append(starts, 0)
		slices.Sort(starts)
		starts = slices.Compact(starts)
		var owned []topology.Range
		for i, lo := range starts {
			hi := uint64(0)
			if i+1 < len(starts) {
				hi = starts[i+1]
			}
			if random.IntN(2) == 0 {
				owned = append(owned, topology.Range{Hash: placement.HashRange{Lo: lo, Hi: hi}})
			}
		}
		inside, bounds := signedBounds(owned)
		if !slices.IsSorted(bounds) || len(slices.Compact(slices.Clone(bounds))) != len(bounds) {
			t.Fatalf("bounds %v are not in order", bounds)
		}
		for _, start := range append(slices.Clone(starts), edges...) {
			for _, h := range []uint64{start - 1, start, start + 1} {
				want := slices.ContainsFunc(owned, func(r topology.Range) bool { return r.Hash.Contains(h) })
				if got := inBuckets(inside, bounds, int64(h)); got != want {
					t.Fatalf("hash %016x: inside %v, want %v; ranges %v, bounds %v", h, got, want, owned, bounds)
				}
			}
		}
	}
}

// inBuckets is what the SQL of bucketed computes.
func inBuckets(insideAtFirst bool, bounds []int64, h int64) bool {
	below, _ := slices.BinarySearch(bounds, h+1)
	if h == math.MaxInt64 {
		below = len(bounds)
	}
	return (below%2 == 1) != insideAtFirst
}

// keyed is a key of some types, and columns that can hold it.
type keyed struct {
	types   []string   // of the keyspace
	columns [][]string // of tables that fit into it
	texts   []topology.Point
}

// manyKeys has keys of every type.
func manyKeys() []keyed {
	random := rand.New(rand.NewPCG(3, 4))
	point := func(make func(int) []string) (points []topology.Point) {
		for i := range 25 {
			points = append(points, make(i))
		}
		return points
	}
	uuid := func() string {
		return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", random.Uint32(), random.IntN(1<<16), random.IntN(1<<16), random.IntN(1<<16), random.Uint64N(1<<48))
	}
	word := func() string {
		return []string{"", "a", "Zoë", `back\slash`, "it's", "日本", strings.Repeat("long ", 40)}[random.IntN(7)] + strconv.Itoa(random.IntN(1000))
	}
	day := func() string {
		return fmt.Sprintf("%04d-%02d-%02d", 1900+random.IntN(300), 1+random.IntN(12), 1+random.IntN(28))
	}
	return []keyed{
		{[]string{"bigint"}, [][]string{{"bigint"}, {"integer"}, {"smallint"}}, point(func(int) []string { return []string{strconv.Itoa(random.IntN(1<<16) - 1<<15)} })},
		{[]string{"integer"}, [][]string{{"bigint"}}, point(func(int) []string { return []string{strconv.Itoa(int(int32(random.Uint32())))} })},
		{[]string{"bigint"}, [][]string{{"bigint"}}, append(point(func(int) []string { return []string{strconv.FormatInt(int64(random.Uint64()), 10)} }), topology.Point{"-9223372036854775808"}, topology.Point{"9223372036854775807"})},
		{[]string{"text"}, [][]string{{"text"}, {"varchar(300)"}, {`text COLLATE "C"`}}, point(func(int) []string { return []string{word()} })},
		{[]string{"varchar"}, [][]string{{"text"}}, point(func(int) []string { return []string{word()} })},
		{[]string{"uuid"}, [][]string{{"uuid"}}, point(func(int) []string { return []string{uuid()} })},
		{[]string{"date"}, [][]string{{"date"}}, append(point(func(int) []string { return []string{day()} }), topology.Point{"infinity"}, topology.Point{"-infinity"}, topology.Point{"0044-03-15 BC"})},
		{[]string{"timestamptz"}, [][]string{{"timestamptz"}}, append(point(func(int) []string { return []string{day() + " 12:34:56.789+00"} }), topology.Point{"infinity"})},
		{[]string{"bytea"}, [][]string{{"bytea"}}, append(point(func(int) []string { return []string{fmt.Sprintf(`\x%016x`, random.Uint64())} }), topology.Point{`\x`}, topology.Point{`\x00ff00`})},
		{[]string{"bigint", "text"}, [][]string{{"integer", "varchar(300)"}}, point(func(i int) []string { return []string{strconv.Itoa(i % 5), word()} })},
		{[]string{"date", "uuid", "bytea"}, [][]string{{"date", "uuid", "bytea"}}, point(func(int) []string { return []string{day(), uuid(), `\x0102`} })},
	}
}

// tablesFor creates a table for each list of columns, key columns k1, k2 …, and declares them.
func (c *cluster) tablesFor(t *testing.T, keyspace string, k keyed) (names []string) {
	t.Helper()
	declared := map[string][]string{}
	for i, columns := range k.columns {
		name := fmt.Sprintf("public.%s_%d", keyspace, i)
		var definition, keys []string
		for j, column := range columns {
			keys = append(keys, fmt.Sprintf("k%d", j+1))
			definition = append(definition, keys[j]+" "+column)
		}
		c.everywhere(t, fmt.Sprintf("CREATE TABLE %s (%s, v text)", name, strings.Join(definition, ", ")))
		declared[name] = keys
		names = append(names, name)
	}
	c.declare(t, keyspace, declared)
	return names
}

// insertKeys tries every key on every shard: the one that the map says takes it, and no other.
func (c *cluster) insertKeys(t *testing.T, routers []*pgx.Conn, keyspace string, tables []string, points []topology.Point) {
	t.Helper()
	k := c.m.Keyspace(keyspace)
	for _, table := range tables {
		for _, point := range points {
			owner := ownerOf(t, k, point)
			for i, conn := range routers {
				values := make([]string, len(point))
				for j, text := range point {
					values[j] = sqltext.QuoteLiteral(text)
				}
				_, err := conn.Exec(t.Context(), fmt.Sprintf("INSERT INTO %s VALUES (%s)", table, strings.Join(values, ", ")))
				if owner == shardName(i) {
					if err != nil {
						t.Errorf("%s: key %s is of %s, which says %v", table, point, owner, err)
					}
					continue
				}
				refusedAs(t, pgerr.NotOwned, err, "%s: key %s of %s on %s", table, point, owner, shardName(i))
			}
		}
	}
}

func ownerOf(t testing.TB, k *topology.Keyspace, point topology.Point) string {
	t.Helper()
	values := make([]key.Value, len(point))
	for i, kind := range k.KeyTypes() {
		values[i] = must[key.Value](t)(kind.Parse(point[i]))
	}
	return must[topology.Place](t)(k.Locate(values...)).Shard.Name()
}

// TestAShardTakesItsOwnRowsAlone for every type of key, with few bounds, which stand in the trigger, and with many, which
// stand in the function.
func TestAShardTakesItsOwnRowsAlone(t *testing.T) {
	c := newCluster(t, 2)
	routers := c.routers(t)
	for i, k := range manyKeys() {
		for _, assignment := range []topology.Assignment{{Algorithm: "slots"}, {Algorithm: "ring", VirtualNodes: 60}} {
			name := fmt.Sprintf("k%d_%s", i, assignment.Algorithm)
			spec := topology.NewKeyspaceSpec(name, topology.ByHash, -42, k.types...)
			var err error
			if spec.Ranges, spec.Assignment, err = c.m.Assign(assignment); err != nil {
				t.Fatal(err)
			}
			c.change(t, topology.CreateKeyspace(spec))
			c.insertKeys(t, routers, name, c.tablesFor(t, name, k), k.texts)
		}
	}
	inline := one[int](t, c.conns[0], "SELECT count(*) FROM pg_trigger WHERE tgname = 'cleave_guard' AND tgqual IS NOT NULL")
	all := one[int](t, c.conns[0], "SELECT count(*) FROM pg_trigger WHERE tgname = 'cleave_guard'")
	if inline == 0 || inline == all {
		t.Errorf("%d of %d guards are in the trigger's condition", inline, all)
	}
}

// TestTheBoundsOfARangeAreExact has ranges that begin at the hash of one key, or end right after it, in both halves of the
// hash space: positive and negative for PostgreSQL.
func TestTheBoundsOfARangeAreExact(t *testing.T) {
	c := newCluster(t, 2)
	routers := c.routers(t)
	const seed = 7
	keys := []topology.Point{}
	var hashes []uint64
	for n, negative, positive := int64(0), 0, 0; negative < 4 || positive < 4; n++ {
		h := key.HashInt(n, seed)
		if int64(h) < 0 {
			negative++
		} else {
			positive++
		}
		keys = append(keys, topology.Point{strconv.FormatInt(n, 10)})
		hashes = append(hashes, h, h+1)
	}
	for name, at := range map[string][]uint64{"each": hashes, "first": hashes[:1], "one": hashes[:2], "half": {1 << 63}, "whole": nil, "last": {math.MaxUint64}} {
		c.change(t, c.splitAt(t, name, seed, []string{"bigint"}, at...))
		c.insertKeys(t, routers, name, c.tablesFor(t, name, keyed{columns: [][]string{{"bigint"}}}), keys)
	}
}

// TestRangesOfTheKeyItself: every type, keys with bounds of their first columns alone, and text in C order.
func TestRangesOfTheKeyItself(t *testing.T) {
	c := newCluster(t, 2)
	routers := c.routers(t)
	for i, k := range manyKeys() {
		points := slices.Clone(k.texts[:6])
		if len(k.types) > 1 {
			points[0], points[1] = points[0][:1], points[1][:1]
		}
		name := fmt.Sprintf("r%d", i)
		spec := topology.NewKeyspaceSpec(name, topology.ByRange, 0, k.types...)
		spec.Ranges = []topology.RangeSpec{{Shard: "s1"}}
		for j, from := range sortedPoints(t, k.types, points) {
			spec.Ranges = append(spec.Ranges, topology.RangeSpec{From: from, Shard: shardName((j/2 + 1) % 2)}) // some follow each other
		}
		c.change(t, topology.CreateKeyspace(spec))
		c.insertKeys(t, routers, name, c.tablesFor(t, name, k), k.texts)
	}
}

// sortedPoints puts points into the map's order, each once.
func sortedPoints(t testing.TB, types []string, points []topology.Point) []topology.Point {
	t.Helper()
	encoded := map[string]topology.Point{}
	for _, p := range points {
		var b []byte
		for i, text := range p {
			kind := must[key.Type](t)(key.ParseType(types[i]))
			b = must[key.Value](t)(kind.Parse(text)).AppendOrdered(b)
		}
		encoded[string(b)] = p
	}
	var sorted []topology.Point
	for _, e := range slices.Sorted(maps.Keys(encoded)) {
		sorted = append(sorted, encoded[e])
	}
	return sorted
}

// TestPinsDecideOverRanges on both shards: a key that is pinned away is refused where its range is, and taken where it is not.
func TestPinsDecideOverRanges(t *testing.T) {
	c := newCluster(t, 2)
	routers := c.routers(t)
	for _, conn := range routers { // a key must be found whatever the session's settings
		execute(t, conn, "SET datestyle = 'SQL, DMY'")
		execute(t, conn, "SET timezone = 'Asia/Tokyo'")
		execute(t, conn, "SET bytea_output = 'escape'")
	}
	for i, k := range manyKeys() {
		for _, strategy := range []topology.Strategy{topology.ByHash, topology.ByRange} {
			name := fmt.Sprintf("p%d_%s", i, strategy)
			spec := topology.NewKeyspaceSpec(name, strategy, 99, k.types...)
			if strategy == topology.ByHash {
				spec.Ranges = []topology.RangeSpec{{Shard: "s1"}, {From: hashAt("8"), Shard: "s2"}}
			} else {
				spec.Ranges = []topology.RangeSpec{{Shard: "s1"}, {From: sortedPoints(t, k.types, k.texts)[len(k.texts)/2], Shard: "s2"}}
			}
			for j, from := range sortedPoints(t, k.types, k.texts) {
				if j%3 == 0 {
					spec.Pins = append(spec.Pins, topology.PinSpec{Key: from, Shard: shardName(j % 2)})
				}
			}
			c.change(t, topology.CreateKeyspace(spec))
			c.insertKeys(t, routers, name, c.tablesFor(t, name, k), k.texts)
		}
	}
	if n := one[int](t, c.conns[0], "SELECT count(*) FROM cleave.guard_pins WHERE NOT here"); n == 0 {
		t.Error("no key is pinned away from its range")
	}
}

// TestAGuardFollowsTheMap: pins come and go, ranges change their owner, the table is released.
func TestAGuardFollowsTheMap(t *testing.T) {
	c := newCluster(t, 2)
	routers := c.routers(t)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}, 1<<63))
	c.everywhere(t, "CREATE TABLE users (id bigint)")
	c.declare(t, "users", map[string][]string{"public.users": {"id"}})
	var points []topology.Point
	for n := range 20 {
		points = append(points, topology.Point{strconv.FormatInt(int64(n), 10)})
	}
	try := func() {
		t.Helper()
		c.record(t)
		c.insertKeys(t, routers, "users", []string{"public.users"}, points)
		for i, conn := range c.conns {
			plan := Prepare(c.m)
			expectCodes(t, must[[]api.Finding](t)(plan.CheckGuards(t.Context(), conn, shardName(i))))
		}
	}
	try()
	c.change(t, topology.SetPins("users", topology.PinSpec{Key: points[0], Shard: "s1"}, topology.PinSpec{Key: points[1], Shard: "s2"}, topology.PinSpec{Key: points[2], Shard: "s1"}, topology.PinSpec{Key: points[3], Shard: "s2"}))
	try()
	c.change(t, topology.SetPins("users", topology.PinSpec{Key: points[0], Shard: "s2"}), topology.RemovePins("users", points[1]))
	try()
	c.change(t, topology.RemovePins("users", points[0], points[2], points[3]))
	try()
	if n := one[int](t, c.conns[0], "SELECT count(*) FROM cleave.guard_pins"); n != 0 {
		t.Errorf("%d pins are left", n)
	}
	c.change(t, topology.ReplaceRanges("users", []topology.RangeSpec{{Shard: "s2"}, {From: hashAt("4"), Shard: "s1"}}, topology.Assignment{}))
	try()
	c.change(t, topology.ReplaceRanges("users", []topology.RangeSpec{{Shard: "s2"}}, topology.Assignment{}))
	try()

	c.change(t, topology.DropTable("public.users"))
	c.record(t)
	for _, conn := range c.conns {
		if n := one[int](t, conn, "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'public.users'::regclass"); n != 0 {
			t.Errorf("a released table has %d triggers", n)
		}
		if n := one[int](t, conn, "SELECT count(*) FROM pg_proc WHERE proname ~ '^guard_'"); n != 0 {
			t.Errorf("%d functions of guards are left", n)
		}
	}
}

// TestWaysAroundAGuard tries what changes a key behind the router's back.
func TestWaysAroundAGuard(t *testing.T) {
	c := newCluster(t, 2)
	conn := c.routers(t)[0]
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}, 1<<63))
	c.everywhere(t, "CREATE TABLE users (id bigint, name text); CREATE TABLE days (day date)")
	c.change(t, c.splitAt(t, "days", 1, []string{"date"}, 1<<63))
	c.declare(t, "users", map[string][]string{"public.users": {"id"}})
	c.declare(t, "days", map[string][]string{"public.days": {"day"}})
	var here, there int64
	for n := int64(0); here == 0 || there == 0; n++ {
		if key.HashInt(n, 1) < 1<<63 {
			here = n
		} else {
			there = n
		}
	}
	execute(t, conn, "INSERT INTO users VALUES ($1, 'x')", here)

	_, err := conn.Exec(t.Context(), "UPDATE users SET id = $1", there)
	refused := refusedAs(t, pgerr.NotOwned, err, "an update of the key")
	if refused.TableName != "users" || !strings.Contains(refused.Message, `"s1"`) || !strings.Contains(refused.Detail, fmt.Sprintf("Key (id)=(%d)", there)) || refused.Hint == "" {
		t.Errorf("refused with %+v", refused)
	}
	_, err = conn.Exec(t.Context(), "UPDATE users SET id = NULL")
	refusedAs(t, pgerr.NotNullViolation, err, "an update to a null key")
	_, err = conn.Exec(t.Context(), "INSERT INTO users VALUES (NULL)")
	if refused := refusedAs(t, pgerr.NotNullViolation, err, "a null key"); refused.ColumnName != "id" {
		t.Errorf("refused with %+v", refused)
	}
	_, err = conn.Exec(t.Context(), "INSERT INTO days VALUES (NULL)")
	refusedAs(t, pgerr.NotNullViolation, err, "a null key that has a hash")
	execute(t, conn, "UPDATE users SET name = 'y'")
	_, err = conn.PgConn().CopyFrom(t.Context(), strings.NewReader(fmt.Sprintf("%d\tx\n%d\tx\n", here, there)), "COPY users FROM STDIN")
	refusedAs(t, pgerr.NotOwned, err, "a copy")

	c.everywhere(t, fmt.Sprintf(`CREATE FUNCTION elsewhere() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.id := %d; RETURN NEW; END';
		CREATE TRIGGER zz BEFORE INSERT OR UPDATE ON users FOR EACH ROW EXECUTE FUNCTION elsewhere()`, there))
	_, err = conn.Exec(t.Context(), "INSERT INTO users VALUES ($1, 'x')", here)
	refusedAs(t, pgerr.NotOwned, err, "a trigger that changes the key of a new row")
	_, err = conn.Exec(t.Context(), "UPDATE users SET name = 'z'")
	refusedAs(t, pgerr.NotOwned, err, "a trigger that changes the key of an old row")
	c.everywhere(t, "DROP TRIGGER zz ON users")

	// What replication brings has been decided elsewhere.
	execute(t, c.conns[0], "SET session_replication_role = replica")
	execute(t, c.conns[0], "INSERT INTO public.users VALUES ($1, 'x')", there)
	if n := one[int](t, conn, "SELECT count(*) FROM users"); n != 2 {
		t.Errorf("%d rows, want the one that was let in and the one that was replicated", n)
	}
}

// TestCopiesOfOthersAreNotChanged: a shard that still has rows of a range that it does not own lets nobody change them.
func TestCopiesOfOthersAreNotChanged(t *testing.T) {
	c := newCluster(t, 2)
	conn := c.routers(t)[0]
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}))
	c.everywhere(t, "CREATE TABLE users (id bigint, name text)")
	c.declare(t, "users", map[string][]string{"public.users": {"id"}})
	execute(t, conn, "INSERT INTO users SELECT generate_series(1, 20)")
	c.change(t, topology.ReplaceRanges("users", []topology.RangeSpec{
		{Shard: "s1"}, {From: hashAt("8"), Shard: "s2", Copies: []topology.CopySpec{{Shard: "s1", State: topology.Leaving}}},
	}, topology.Assignment{}))
	c.record(t)
	for n := range 20 {
		_, err := conn.Exec(t.Context(), "UPDATE users SET name = 'x' WHERE id = $1", n+1)
		if key.HashInt(int64(n+1), 1) < 1<<63 {
			if err != nil {
				t.Errorf("an own row: %v", err)
			}
			continue
		}
		refusedAs(t, pgerr.NotOwned, err, "a row that is leaving")
	}
}

// TestStrangersAreToldWhereToGo: whoever is no router writes nothing, not even where no row would be touched.
func TestStrangersAreToldWhereToGo(t *testing.T) {
	c := newCluster(t, 2)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}))
	c.everywhere(t, "CREATE TABLE users (id bigint); CREATE TABLE countries (code text)")
	c.change(t, topology.SetTable(topology.TableSpec{Name: "public.countries", Kind: topology.Reference}))
	c.declare(t, "users", map[string][]string{"public.users": {"id"}})
	stranger, router := connectAsClient(t, specOf("s1", c.servers[0])), c.routers(t)[0]
	for _, sql := range []string{"INSERT INTO users VALUES (1)", "UPDATE users SET id = 1 WHERE false", "DELETE FROM users WHERE false", "TRUNCATE users"} {
		_, err := stranger.Exec(t.Context(), sql)
		if refused := refusedAs(t, pgerr.NoHello, err, "%s", sql); !strings.Contains(refused.Hint, "SET cleave.router = 'by hand'") || refused.TableName != "users" {
			t.Errorf("%s: refused with %+v", sql, refused)
		}
		execute(t, router, sql)
		_, err = stranger.Exec(t.Context(), strings.ReplaceAll(strings.ReplaceAll(sql, "users", "countries"), "id", "code"))
		refusedAs(t, pgerr.NoHello, err, "%s of a reference table", sql)
		execute(t, router, strings.ReplaceAll(strings.ReplaceAll(sql, "users", "countries"), "id", "code"))
	}
	// What a trigger writes reaches one copy.
	execute(t, router, `CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.countries VALUES ('xx'); RETURN NULL; END $$;
		CREATE TRIGGER noting AFTER DELETE ON users FOR EACH STATEMENT EXECUTE FUNCTION note()`)
	_, err := router.Exec(t.Context(), "DELETE FROM users")
	refusedAs(t, pgerr.FeatureNotSupported, err, "a trigger that writes to a reference table")
	execute(t, router, "DROP TRIGGER noting ON users")
	_, err = stranger.PgConn().CopyFrom(t.Context(), strings.NewReader("1\n"), "COPY users FROM STDIN")
	refusedAs(t, pgerr.NoHello, err, "a copy")
	if _, err := stranger.Exec(t.Context(), "SELECT * FROM users"); err != nil {
		t.Errorf("reading: %v", err)
	}
	execute(t, stranger, "SET cleave.router = 'by hand'")
	execute(t, stranger, "INSERT INTO users VALUES (1)")
	execute(t, stranger, "INSERT INTO countries VALUES ('de')")
	execute(t, stranger, "RESET ALL")
	_, err = stranger.Exec(t.Context(), "INSERT INTO users VALUES (1)")
	refusedAs(t, pgerr.NoHello, err, "an insert after RESET ALL")

	for _, reset := range []string{"RESET ALL", "DISCARD ALL", "RESET cleave.router"} {
		execute(t, router, reset)
		execute(t, router, "INSERT INTO users VALUES (1)")
	}
	_, err = connectAsClient(t, specOf("s2", c.servers[1])).Exec(t.Context(), "INSERT INTO users VALUES (1)")
	refusedAs(t, pgerr.NoHello, err, "an insert on a shard that does not own the row either")
}

// TestGuardsNameTheSystemsThings in their functions, which run under anybody's search_path, and some with their owner's rights.
func TestGuardsNameTheSystemsThings(t *testing.T) {
	m := must[*topology.Map](t)(topology.New(clusterID))
	m = must[*topology.Map](t)(m.Next(topology.AddShard(topology.ShardSpec{Name: "s1", Primary: topology.InstanceSpec{Address: "a:1"}}), topology.AddShard(topology.ShardSpec{Name: "s2", Primary: topology.InstanceSpec{Address: "b:1"}})))
	for i, k := range manyKeys() {
		for _, strategy := range []topology.Strategy{topology.ByHash, topology.ByRange} {
			name := fmt.Sprintf("k%d-%s", i, strategy)
			spec := topology.NewKeyspaceSpec(name, strategy, 1, k.types...)
			spec.Ranges = []topology.RangeSpec{{Shard: "s1"}, {From: hashAt("8"), Shard: "s2"}}
			if strategy == topology.ByRange {
				spec.Ranges[1].From = k.texts[0]
			}
			for _, point := range sortedPoints(t, k.types, k.texts) {
				spec.Pins = append(spec.Pins, topology.PinSpec{Key: point, Shard: shardName(len(spec.Pins) % 2)})
			}
			table := topology.TableSpec{Name: fmt.Sprintf("public.t%d_%s", i, strategy), Kind: topology.Sharded, Keyspace: name, Key: []string{"a", "b", "c"}[:len(k.types)]}
			m = must[*topology.Map](t)(m.Next(topology.CreateKeyspace(spec), topology.SetTable(table)))
		}
	}
	for _, table := range []topology.TableSpec{ // numbers are made by functions with their owner's rights
		{Name: "public.made", Kind: topology.Sharded, Keyspace: "k0-hash", Key: []string{"id"}, MadeKeys: []string{"id"}},
		{Name: "public.ids", Kind: topology.Sharded, Keyspace: "k0-hash", Key: []string{"owner"}, IDs: []topology.MadeID{{Column: "id", Floor: 1 << 40}}},
	} {
		m = must[*topology.Map](t)(m.Next(topology.SetTable(table)))
	}
	sources := 0
	for _, g := range must[[]guard](t)(Prepare(m).guardsOf(m.Shard("s1"))) {
		for name, source := range g.sources {
			sources++
			for _, found := range qualified.Bare(source) {
				t.Errorf("%s, function %s: %s", g.table, name, found)
			}
		}
	}
	if want := m.TableCount() + 2; sources != want {
		t.Errorf("%d functions were looked at, want %d", sources, want)
	}
}

// TestAGuardIsNoOneElsesBusiness: a role that may write to the table needs nothing of the schema cleave, pins or not.
func TestAGuardIsNoOneElsesBusiness(t *testing.T) {
	c := newCluster(t, 2)
	spec := specOf("s1", c.servers[0])
	c.everywhere(t, "CREATE ROLE app LOGIN; CREATE TABLE users (id bigint); GRANT ALL ON users TO app")
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}))
	c.change(t, topology.SetPins("users", topology.PinSpec{Key: topology.Point{"5"}, Shard: "s2"}))
	c.declare(t, "users", map[string][]string{"public.users": {"id"}})
	spec.User = "app"
	app := connectAsRouter(t, spec)
	execute(t, app, "INSERT INTO users VALUES (4)")
	_, err := app.Exec(t.Context(), "INSERT INTO users VALUES (5)")
	refusedAs(t, pgerr.NotOwned, err, "a key that is pinned elsewhere")
	execute(t, c.conns[0], "CREATE SCHEMA app AUTHORIZATION app")
	// Functions, operators and types of the role's own must not stand in for PostgreSQL's.
	execute(t, app, `CREATE FUNCTION app.hashint8extended(bigint, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint';
		CREATE FUNCTION app.width_bucket(bigint, bigint[]) RETURNS int LANGUAGE sql AS 'SELECT 0'; CREATE FUNCTION app.int8send(bigint) RETURNS bytea LANGUAGE sql AS 'SELECT NULL::bytea';
		CREATE FUNCTION app.yes(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT false'; CREATE OPERATOR app.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = app.yes);
		CREATE FUNCTION app.same(bigint, int) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'; CREATE OPERATOR app.>> (LEFTARG = bigint, RIGHTARG = int, FUNCTION = app.same);
		CREATE DOMAIN app.text AS pg_catalog.text CHECK (VALUE IS NULL)`)
	execute(t, app, "SET search_path = app, public, pg_catalog")
	_, err = app.Exec(t.Context(), "INSERT INTO users VALUES (5)")
	refusedAs(t, pgerr.NotOwned, err, "a key that is pinned elsewhere, hashed by somebody else")
}
