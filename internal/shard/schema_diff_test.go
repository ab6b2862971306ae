package shard

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// driftCluster has two shards with equal tables of every kind.
func driftCluster(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t, 2)
	c.change(t, c.hashKeyspace(t, "users"))
	c.change(t,
		topology.SetTable(topology.TableSpec{Name: "public.orders", Kind: topology.Sharded, Keyspace: "users", Key: []string{"user_id", "region"}}),
		topology.SetTable(topology.TableSpec{Name: "public.countries", Kind: topology.Reference}),
		topology.SetTable(topology.TableSpec{Name: "public.settings", Kind: topology.Single, Shard: "s2"}),
	)
	for i := range c.conns {
		c.inPublic(t, i, ordersSQL+"; CREATE TABLE countries (code text PRIMARY KEY)")
	}
	c.inPublic(t, 0, "CREATE TABLE local (id int)")
	c.inPublic(t, 1, "CREATE TABLE settings (id int)")
	c.record(t)
	return c
}

// inPublic runs statements that find tables in the schema public.
func (c *cluster) inPublic(t *testing.T, shard int, sql string) {
	t.Helper()
	execute(t, c.conns[shard], "SET search_path = public; "+sql+"; RESET search_path")
}

const ordersSQL = `CREATE TABLE orders (user_id bigint, region text, total int, note text, PRIMARY KEY (user_id, region)); CREATE INDEX by_total ON orders (total)`

// drift looks at all shards and returns what differs, a line each.
func (c *cluster) drift(t *testing.T) []string {
	t.Helper()
	var looks []*SchemaLook
	for i, conn := range c.conns {
		looks = append(looks, must[*SchemaLook](t)(LookAtSchema(t.Context(), conn, c.m, shardName(i))))
	}
	lines := []string{}
	for _, f := range DiffSchemas(c.m, looks) {
		if f.Severity != api.Problem {
			t.Errorf("%+v is no problem", f)
		}
		lines = append(lines, fmt.Sprintf("%s %s: %s", f.Code, f.Shard, f.Message))
	}
	return lines
}

// TestSchemaDrift changes one thing on one shard at a time, and back again.
func TestSchemaDrift(t *testing.T) {
	c := driftCluster(t)
	if found := c.drift(t); len(found) > 0 {
		t.Fatalf("equal shards differ: %q", found)
	}
	for _, d := range []struct {
		name     string
		shard    int
		do, undo string
		want     []string
	}{
		{
			"column gone", 1, "ALTER TABLE orders ADD more int", "ALTER TABLE orders DROP more",
			[]string{`table_differs s2: table public.orders: column "more" is on shard "s2" and missing on shard "s1"`},
		},
		{
			"column missing", 0, "ALTER TABLE orders ADD more int", "ALTER TABLE orders DROP more",
			[]string{`table_differs s2: table public.orders: column "more" is missing on shard "s2"`},
		},
		{
			"column differs", 1, "ALTER TABLE orders ALTER note TYPE varchar(9), ALTER note SET NOT NULL", "ALTER TABLE orders ALTER note TYPE text, ALTER note DROP NOT NULL",
			[]string{`table_differs s2: table public.orders: column "note" differs: not null: no on shard "s1", yes on shard "s2"; type: text on shard "s1", character varying(9) on shard "s2"; type oid: 25 on shard "s1", 1043 on shard "s2"`},
		},
		{
			"index missing", 1, "DROP INDEX by_total", "CREATE INDEX by_total ON orders (total)",
			[]string{`table_differs s2: table public.orders: index "by_total" is missing on shard "s2"`},
		},
		{
			"index differs", 1, "DROP INDEX by_total; CREATE INDEX by_total ON orders (total DESC)", "DROP INDEX by_total; CREATE INDEX by_total ON orders (total)",
			[]string{`table_differs s2: table public.orders: index "by_total" differs: definition: CREATE INDEX by_total ON public.orders USING btree (total) on shard "s1", CREATE INDEX by_total ON public.orders USING btree (total DESC) on shard "s2"`},
		},
		{
			"constraint with its index", 1, "ALTER TABLE countries ADD CONSTRAINT twice UNIQUE (code)", "ALTER TABLE countries DROP CONSTRAINT twice",
			[]string{`table_differs s2: table public.countries: constraint "twice" is on shard "s2" and missing on shard "s1"`},
		},
		{
			"privilege", 1, "GRANT SELECT ON countries TO PUBLIC", "REVOKE SELECT ON countries FROM PUBLIC",
			[]string{`table_differs s2: table public.countries: privilege "SELECT of PUBLIC" is on shard "s2" and missing on shard "s1"`},
		},
		{
			"owner", 1, "CREATE ROLE other; ALTER TABLE countries OWNER TO other", "ALTER TABLE countries OWNER TO postgres; DROP ROLE other",
			[]string{`table_differs s2: table public.countries: the owner: postgres on shard "s1", other on shard "s2"`},
		},
		{
			"storage", 1, "ALTER TABLE countries SET (fillfactor = 70)", "ALTER TABLE countries RESET (fillfactor)",
			[]string{`table_differs s2: table public.countries: the storage parameters: nothing on shard "s1", ["fillfactor=70"] on shard "s2"`},
		},
		{
			"row-level security", 1, "ALTER TABLE countries ENABLE ROW LEVEL SECURITY", "ALTER TABLE countries DISABLE ROW LEVEL SECURITY",
			[]string{`table_differs s2: table public.countries: row-level security: no on shard "s1", yes on shard "s2"`},
		},
		{
			"what has no words of its own", 1, "ALTER TABLE countries REPLICA IDENTITY FULL", "ALTER TABLE countries REPLICA IDENTITY DEFAULT",
			[]string{`table_differs s2: table public.countries: the replica identity: not the same on shard "s1" and shard "s2"`},
		},
		{
			"a rule", 1, "CREATE RULE r AS ON DELETE TO countries DO INSTEAD NOTHING", "DROP RULE r ON countries",
			[]string{`table_differs s2: table public.countries: the rules: nothing on shard "s1", ["r"] on shard "s2"`},
		},
		{
			"order", 1, "ALTER TABLE orders DROP total; ALTER TABLE orders ADD total int; CREATE INDEX by_total ON orders (total)", "DROP TABLE orders; " + ordersSQL,
			[]string{`table_differs s2: table public.orders: each column is there, but their order on shard "s2" is another than on shard "s1"`},
		},
		{
			"table missing", 1, "ALTER TABLE countries RENAME TO gone", "ALTER TABLE gone RENAME TO countries",
			[]string{
				`table_missing s2: table public.countries is missing on shard "s2"`,
				`table_extra s2: table public.gone is on shard "s2", where no statement sees it: the map does not have it, and such tables are on the home shard`,
			},
		},
		{
			"table missing at home", 0, "ALTER TABLE countries RENAME TO gone", "ALTER TABLE gone RENAME TO countries",
			[]string{`table_missing s1: table public.countries is missing on shard "s1"`},
		},
		{
			"table missing everywhere", 1, "DROP TABLE settings", "CREATE TABLE settings (id int)",
			[]string{`table_missing s2: table public.settings is missing on shard "s2"`},
		},
		{
			"a view in its place", 1, "ALTER TABLE countries RENAME TO gone; CREATE VIEW countries AS SELECT * FROM gone", "DROP VIEW countries; ALTER TABLE gone RENAME TO countries",
			nil,
		},
		{
			"single table elsewhere", 0, "CREATE TABLE settings (id int)", "DROP TABLE settings",
			[]string{`table_extra s1: table public.settings is on shard "s1", where no statement sees it: the map has it on shard "s2" alone`},
		},
		{
			"undeclared at home", 0, "CREATE TABLE anything (id int)", "DROP TABLE anything", []string{},
		},
		{
			"what does not count", 1, "CREATE TEMPORARY TABLE passing (id int); CREATE TABLE cleave.own (id int); CREATE VIEW v AS SELECT 1", "DROP TABLE passing; DROP TABLE cleave.own; DROP VIEW v", []string{},
		},
	} {
		c.inPublic(t, d.shard, d.do)
		found := c.drift(t)
		if d.want == nil {
			if len(found) == 0 || !strings.Contains(found[0], `the kind of relation: r on shard "s1", v on shard "s2"`) {
				t.Errorf("%s: %q", d.name, found)
			}
		} else if diff := cmp.Diff(d.want, found); diff != "" {
			t.Errorf("%s: %s", d.name, diff)
		}
		c.inPublic(t, d.shard, d.undo)
		if left := c.drift(t); len(left) > 0 {
			t.Fatalf("%s, undone: %q", d.name, left)
		}
	}
}

// TestSchemasOfTenants: tables of a schema that a keyspace places are where the schema is, and nowhere else.
func TestSchemasOfTenants(t *testing.T) {
	c := newCluster(t, 2)
	tenants := topology.NewKeyspaceSpec("tenants", topology.BySchema, 9)
	tenants.Ranges = []topology.RangeSpec{{Shard: "s1"}}
	tenants.Pins = []topology.PinSpec{{Key: topology.Point{"acme"}, Shard: "s2"}}
	c.change(t, topology.CreateKeyspace(tenants))
	for _, conn := range c.conns {
		execute(t, conn, "CREATE SCHEMA acme; CREATE TABLE acme.t (id int)")
	}
	want := []string{`table_extra s1: table acme.t is on shard "s1", where no statement sees it: its schema is on shard "s2"`}
	if diff := cmp.Diff(want, c.drift(t)); diff != "" {
		t.Error(diff)
	}
}

// TestSchemaOfAStranger: a shard that the map does not have is an error, not a shard without tables.
func TestSchemaOfAStranger(t *testing.T) {
	m := must[*topology.Map](t)(topology.New(clusterID))
	if _, err := LookAtSchema(t.Context(), nil, m, "s1"); err == nil {
		t.Error("no error")
	}
}

// TestWhatIsLeftOfASchema when its tables move: all that they do not need.
func TestWhatIsLeftOfASchema(t *testing.T) {
	conn := newCluster(t, 1).conns[0]
	for _, sql := range []string{
		"CREATE SCHEMA acme", "CREATE TYPE acme.mood AS ENUM ('good')", "CREATE DOMAIN acme.positive AS int CHECK (VALUE > 0)", "CREATE FUNCTION acme.touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
		"CREATE TABLE acme.a (id bigserial PRIMARY KEY, mood acme.mood, n acme.positive, made int GENERATED ALWAYS AS IDENTITY)", "CREATE TABLE acme.b (id int PRIMARY KEY REFERENCES acme.a, feelings acme.mood[])",
		"CREATE TRIGGER touches BEFORE UPDATE ON acme.a FOR EACH ROW EXECUTE FUNCTION acme.touch()", "CREATE STATISTICS acme.both ON id, n FROM acme.a", "CREATE INDEX ON acme.a (n)",
	} {
		execute(t, conn, sql)
	}
	tables, err := TablesIn(t.Context(), conn, "acme")
	if err != nil || len(tables) != 2 {
		t.Fatal(tables, err)
	}
	definitions, _, err := CheckWhole(t.Context(), conn, must[*topology.Map](t)(topology.New(clusterID)), tables)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := LeftInSchema(t.Context(), conn, "acme", definitions); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	for sql, what := range map[string]string{
		"CREATE VIEW acme.v AS SELECT 1 AS one": "view acme.v", "CREATE SEQUENCE acme.free": "sequence acme.free", "CREATE FUNCTION acme.f() RETURNS int LANGUAGE sql RETURN 1": "function acme.f()", "CREATE TYPE acme.pair AS (a int, b int)": "type acme.pair",
		"CREATE TABLE acme.late (id int)": "table acme.late", "ALTER DEFAULT PRIVILEGES IN SCHEMA acme GRANT SELECT ON TABLES TO PUBLIC": "default privileges", "CREATE COLLATION acme.c (locale = 'C')": "collation acme.c",
	} {
		before, err := SizeOfSchema(t.Context(), conn, "acme")
		if err != nil {
			t.Fatal(err)
		}
		execute(t, conn, sql)
		if left, err := LeftInSchema(t.Context(), conn, "acme", definitions); err != nil || !slices.ContainsFunc(left, func(l string) bool { return strings.Contains(l, what) }) {
			t.Errorf("%s: left: %q, %v", sql, left, err)
		}
		if after, err := SizeOfSchema(t.Context(), conn, "acme"); err != nil || after <= before {
			t.Errorf("%s: %d things before, %d after, %v", sql, before, after, err)
		}
	}
}

// TestASchemaInWhichATableIsMade is busy until that is committed.
func TestASchemaInWhichATableIsMade(t *testing.T) {
	c := newCluster(t, 1)
	conn, other := c.conns[0], connectAsClient(t, specOf("s1", c.servers[0]))
	execute(t, conn, "CREATE SCHEMA acme")
	const sql = "CREATE TABLE acme.t (id int)"
	execute(t, other, "BEGIN")
	execute(t, other, sql)
	_, err := SizeOfSchema(t.Context(), conn, "acme")
	var busy *pgerr.Error
	if !errors.As(err, &busy) || busy.Code != pgerr.LockNotAvailable {
		t.Errorf("while somebody runs %s: %v", sql, err)
	}
	execute(t, other, "COMMIT")
	if size, err := SizeOfSchema(t.Context(), conn, "acme"); err != nil || size != 1 {
		t.Errorf("%d things are in the schema, %v", size, err)
	}
}
