package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// asRouter connects to a server as a router's backend does.
func asRouter(t testing.TB, server *localpg.Server) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams[shard.RouterParameter] = "r-1"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func named(t testing.TB, text string) topology.TableName {
	t.Helper()
	name, err := topology.ParseTableName(text)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// sharding asks for a table to be sharded by columns, with commas between them.
func sharding(t testing.TB, table, columns string) ShardTableRequest {
	t.Helper()
	return ShardTableRequest{Table: named(t, table), Key: strings.Split(columns, ",")}
}

// shardTable has to succeed.
func shardTable(t testing.TB, p *process, request ShardTableRequest) api.Table {
	t.Helper()
	table, err := p.ShardTable(t.Context(), request)
	if err != nil {
		t.Fatalf("shard %s: %+v", request.Table, err)
	}
	return table
}

// refusal wants an error for a client with this SQLSTATE, and returns what it says.
func refusal(t testing.TB, code string, err error, what string) pgerr.Error {
	t.Helper()
	var refused *pgerr.Error
	if !errors.As(err, &refused) || refused.Code != code {
		t.Errorf("%s: %v, want SQLSTATE %s", what, err, code)
		return pgerr.Error{}
	}
	return *refused
}

// clusterWith starts that many servers, a process, and makes them a cluster.
func clusterWith(t *testing.T, count int) (*process, []*localpg.Server) {
	t.Helper()
	servers := pgtest.StartN(t, count)
	p := startProcess(t, startEtcd(t), nil)
	clusterOf(t, p, servers)
	return p, servers
}

// connectTo connects to a server as the control plane does.
func connectTo(t testing.TB, server *localpg.Server) session {
	t.Helper()
	access := shard.Access{User: "postgres", Database: "postgres", SSLMode: "disable"}
	conn, err := access.Connect(t.Context(), topology.ShardSpec{Primary: topology.InstanceSpec{Address: server.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeQuietly(conn) })
	return conn
}

// described returns the table's definition on a server, as text.
func described(t testing.TB, server *localpg.Server, table string) string {
	t.Helper()
	definition, err := shard.Describe(t.Context(), connectTo(t, server), named(t, table))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(definition, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// expectFindings wants exactly these about the tables and their guards, each as severity and code.
func expectFindings(t testing.TB, p *process, want ...string) {
	t.Helper()
	m, err := p.Map(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	findings := p.checkGuards(t.Context(), shard.Prepare(m), specsOf(m))
	got := []string{}
	for _, f := range findings {
		got = append(got, string(f.Severity)+" "+f.Code)
	}
	slices.Sort(got)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("the check found %q, want %q: %+v", got, want, findings)
	}
}

// richTable has something of all that is carried over.
const richTable = `
	CREATE ROLE owner; CREATE ROLE reader; CREATE ROLE "Odd ""role""";
	CREATE SCHEMA app AUTHORIZATION owner; GRANT USAGE ON SCHEMA app TO reader;
	CREATE TABLE app."Orders 'x'" (
		user_id bigint NOT NULL,
		id uuid DEFAULT gen_random_uuid(),
		gone text,
		"Total" numeric(10, 2) DEFAULT 0 CHECK ("Total" >= 0),
		code varchar(3) COMPRESSION pglz COLLATE "C",
		note text DEFAULT E'it''s \\ odd',
		twice numeric GENERATED ALWAYS AS ("Total" * 2) STORED,
		at timestamptz(3) DEFAULT now(),
		during tstzrange,
		tags text[] DEFAULT '{}',
		PRIMARY KEY (user_id, id),
		CONSTRAINT "code once" UNIQUE (code, user_id) WITH (fillfactor = 80) DEFERRABLE INITIALLY DEFERRED,
		CONSTRAINT parent FOREIGN KEY (user_id, id) REFERENCES app."Orders 'x'" ON DELETE CASCADE,
		CHECK (code <> note) NOT VALID
	) WITH (fillfactor = 70, toast.autovacuum_enabled = off);
	ALTER TABLE app."Orders 'x'" DROP COLUMN gone;
	ALTER TABLE app."Orders 'x'" ALTER note SET STORAGE EXTERNAL;
	ALTER TABLE app."Orders 'x'" ALTER note SET STATISTICS 500;
	ALTER TABLE app."Orders 'x'" ALTER code SET (n_distinct = 7);
	CREATE INDEX recent ON app."Orders 'x'" USING btree (at DESC, lower(note)) INCLUDE (code) WHERE code IS NOT NULL;
	CREATE UNIQUE INDEX also ON app."Orders 'x'" (user_id, "Total") NULLS NOT DISTINCT;
	CREATE INDEX tagged ON app."Orders 'x'" USING gin (tags);
	ALTER TABLE app."Orders 'x'" CLUSTER ON also;
	ALTER TABLE app."Orders 'x'" REPLICA IDENTITY FULL;
	COMMENT ON TABLE app."Orders 'x'" IS 'what people''s orders are';
	COMMENT ON COLUMN app."Orders 'x'".note IS 'a \ comment';
	COMMENT ON INDEX app.recent IS 'for lists';
	COMMENT ON CONSTRAINT "code once" ON app."Orders 'x'" IS 'once';
	ALTER TABLE app."Orders 'x'" OWNER TO owner;
	SET ROLE owner;
	GRANT SELECT ON app."Orders 'x'" TO reader WITH GRANT OPTION;
	GRANT UPDATE (note) ON app."Orders 'x'" TO "Odd ""role""";
	GRANT INSERT ON app."Orders 'x'" TO PUBLIC;
	REVOKE TRUNCATE ON app."Orders 'x'" FROM owner;`

func TestATableIsCarriedOverExactly(t *testing.T) {
	p, servers := clusterWith(t, 3)
	execute(t, servers[0], richTable)
	request := sharding(t, `app."Orders 'x'"`, "user_id")
	_, err := p.ShardTable(t.Context(), request)
	if refused := refusal(t, pgerr.UndefinedObject, err, "roles that other shards do not have"); !strings.Contains(refused.Message, "does not exist on shard") {
		t.Errorf("refused with %+v", refused)
	}
	for _, server := range servers[1:] {
		execute(t, server, `CREATE ROLE owner; CREATE ROLE reader; CREATE ROLE "Odd ""role"""`)
	}
	table := shardTable(t, p, request)
	if table.Keyspace != "default_bigint" || !table.KeyspaceCreated || len(table.Findings) > 0 || table.MapVersion != p.follower.Map().Version() {
		t.Errorf("declared %+v", table)
	}
	want := described(t, servers[0], `app."Orders 'x'"`)
	for _, server := range servers[1:] {
		if got := described(t, server, `app."Orders 'x'"`); got != want {
			t.Errorf("on another shard the table is\n%s\nand not\n%s", got, want)
		}
		if privilege := one[bool](t, server, "SELECT has_schema_privilege('reader', 'app', 'USAGE') AND pg_get_userbyid(nspowner) = 'owner' FROM pg_namespace WHERE nspname = 'app'"); !privilege {
			t.Error("the schema is another")
		}
	}
	if got := p.Tables(); len(got) != 1 || got[0].Name != `app."Orders 'x'"` {
		t.Errorf("the tables are %+v", got)
	}
	findings, err := p.CheckMap(t.Context())
	if err != nil || len(problems(findings)) > 0 {
		t.Errorf("%v, %+v", err, findings)
	}
	execute(t, servers[1], `DROP TRIGGER cleave_guard ON app."Orders 'x'"`)
	if findings, err = p.CheckMap(t.Context()); err != nil || !slices.ContainsFunc(findings, func(f api.Finding) bool { return f.Code == "guard" && f.Shard == "s2" }) {
		t.Errorf("%v, a guard that was taken off is not found: %+v", err, findings)
	}
	if _, err := shard.Record(t.Context(), connectTo(t, servers[1]), p.follower.Map(), "s2"); err != nil {
		t.Fatal(err)
	}
	insertEverywhere(t, p, servers, `app."Orders 'x'"`, "user_id", "default_bigint")
}

func one[T any](t testing.TB, server *localpg.Server, sql string) (value T) {
	t.Helper()
	if err := asRouter(t, server).QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// insertEverywhere tries bigint keys on all shards, and expects each to be taken by exactly one.
func insertEverywhere(t testing.TB, p *process, servers []*localpg.Server, table, column, keyspace string) {
	t.Helper()
	taken := map[int]int{}
	for _, server := range servers {
		conn := asRouter(t, server)
		for n := range 30 {
			_, err := conn.Exec(t.Context(), fmt.Sprintf("INSERT INTO %s (%s) VALUES (%d)", table, column, n))
			var refused *pgconn.PgError
			switch {
			case err == nil:
				taken[n]++
			case !errors.As(err, &refused) || refused.Code != pgerr.NotOwned:
				t.Fatalf("key %d: %v", n, err)
			}
		}
	}
	for n := range 30 {
		if taken[n] != 1 {
			t.Errorf("key %d of table %s was taken %d times", n, table, taken[n])
		}
	}
	if p.follower.Map().Keyspace(keyspace) == nil {
		t.Errorf("there is no keyspace %s", keyspace)
	}
}

// TestTablesThatCannotBeDeclared has one obstacle at a time: what is not carried over exactly is refused with the reason.
func TestTablesThatCannotBeDeclared(t *testing.T) {
	p, servers := clusterWith(t, 2)
	home := servers[0]
	execute(t, home, `CREATE TYPE mood AS ENUM ('happy'); CREATE DOMAIN small AS bigint; CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
		CREATE COLLATION mine (provider = icu, locale = 'de');
		CREATE FUNCTION twice(bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT 2 * $1'; CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
		CREATE TABLE plain (id bigint PRIMARY KEY); CREATE ROLE giver; CREATE ROLE taker; CREATE STATISTICS never ON id, (id + 1) FROM plain`)
	for name, test := range map[string]struct{ sql, key, code, words string }{
		"not there":             {"", "id", pgerr.UndefinedTable, "does not exist"},
		"a view":                {"CREATE VIEW x AS SELECT 1::bigint AS id", "id", pgerr.WrongObjectType, "a view"},
		"a sequence":            {"CREATE SEQUENCE x", "id", pgerr.WrongObjectType, "a sequence"},
		"partitioned":           {"CREATE TABLE x (id bigint) PARTITION BY HASH (id)", "id", pgerr.FeatureNotSupported, "partition"},
		"a partition":           {"CREATE TABLE parts (id bigint) PARTITION BY HASH (id); CREATE TABLE x PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0)", "id", pgerr.FeatureNotSupported, "partition"},
		"inherits":              {"CREATE TABLE x () INHERITS (plain)", "id", pgerr.FeatureNotSupported, "inherits"},
		"is inherited":          {"CREATE TABLE x (id bigint); CREATE TABLE child () INHERITS (x)", "id", pgerr.FeatureNotSupported, "inherits"},
		"typed":                 {"CREATE TYPE shape AS (id bigint); CREATE TABLE x OF shape", "id", pgerr.FeatureNotSupported, "type"},
		"unlogged":              {"CREATE UNLOGGED TABLE x (id bigint)", "id", pgerr.FeatureNotSupported, "unlogged"},
		"rows":                  {"CREATE TABLE x AS SELECT 1::bigint AS id", "id", pgerr.FeatureNotSupported, "not empty"},
		"trigger":               {"CREATE TABLE x (id bigint); CREATE TRIGGER mine BEFORE INSERT ON x EXECUTE FUNCTION nothing()", "id", pgerr.FeatureNotSupported, "mine"},
		"rule":                  {"CREATE TABLE x (id bigint); CREATE RULE mine AS ON INSERT TO x DO INSTEAD NOTHING", "id", pgerr.FeatureNotSupported, "rules"},
		"row security":          {"CREATE TABLE x (id bigint); ALTER TABLE x ENABLE ROW LEVEL SECURITY", "id", pgerr.FeatureNotSupported, "row-level security"},
		"policy":                {"CREATE TABLE x (id bigint); CREATE POLICY mine ON x", "id", pgerr.FeatureNotSupported, "row-level security"},
		"user's type":           {"CREATE TABLE x (id bigint, m mood)", "id", pgerr.FeatureNotSupported, "mood"},
		"array of it":           {"CREATE TABLE x (id bigint, m mood[])", "id", pgerr.FeatureNotSupported, "mood"},
		"domain":                {"CREATE TABLE x (id small)", "id", pgerr.FeatureNotSupported, "small"},
		"collation":             {"CREATE TABLE x (id bigint, t text COLLATE mine)", "id", pgerr.FeatureNotSupported, "mine"},
		"default by function":   {"CREATE TABLE x (id bigint DEFAULT twice(1))", "id", pgerr.FeatureNotSupported, "twice"},
		"generated by function": {"CREATE TABLE x (id bigint, d bigint GENERATED ALWAYS AS (twice(id)) STORED)", "id", pgerr.FeatureNotSupported, "twice"},
		"check by function":     {"CREATE TABLE x (id bigint CHECK (twice(id) > 0))", "id", pgerr.FeatureNotSupported, "twice"},
		"index by function":     {"CREATE TABLE x (id bigint); CREATE INDEX ON x (twice(id))", "id", pgerr.FeatureNotSupported, "twice"},
		"serial":                {"CREATE TABLE x (id bigserial)", "id", pgerr.FeatureNotSupported, "sequence"},
		"nextval":               {"CREATE SEQUENCE seq; CREATE TABLE x (id bigint, n bigint DEFAULT nextval('seq'))", "id", pgerr.FeatureNotSupported, "sequence"},
		"identity":              {"CREATE TABLE x (id bigint GENERATED BY DEFAULT AS IDENTITY)", "id", pgerr.FeatureNotSupported, "sequence"},
		"statistics":            {"CREATE TABLE x (id bigint, n int); CREATE STATISTICS mine ON id, n FROM x", "id", pgerr.FeatureNotSupported, "mine"},
		"publication":           {"CREATE TABLE x (id bigint); CREATE PUBLICATION mine FOR TABLE x", "id", pgerr.FeatureNotSupported, "mine"},
		"granted by another":    {"CREATE TABLE x (id bigint); GRANT USAGE ON SCHEMA test TO giver; GRANT SELECT ON x TO giver WITH GRANT OPTION; SET ROLE giver; GRANT SELECT ON x TO taker; RESET ROLE", "id", pgerr.FeatureNotSupported, "giver"},
		"is referred to":        {"CREATE TABLE x (id bigint PRIMARY KEY); CREATE TABLE other (id bigint REFERENCES x)", "id", pgerr.FeatureNotSupported, "other"},
		"refers to a plain one": {"CREATE TABLE x (id bigint REFERENCES plain)", "id", pgerr.FeatureNotSupported, "plain"},
		"no such column":        {"CREATE TABLE x (id bigint)", "size", pgerr.UndefinedColumn, "size"},
		"system column":         {"CREATE TABLE x (id bigint)", "xmin", pgerr.UndefinedColumn, "xmin"},
		"key twice":             {"CREATE TABLE x (id bigint)", "id,id", pgerr.InvalidParameterValue, "twice"},
		"long key":              {"CREATE TABLE x (id bigint)", "a,b,c,d,e,f,g,h,i", pgerr.InvalidParameterValue, "1 to 8"},
		"numeric key":           {"CREATE TABLE x (id numeric)", "id", pgerr.FeatureNotSupported, "numeric"},
		"char key":              {"CREATE TABLE x (id char(3))", "id", pgerr.FeatureNotSupported, "character(3)"},
		"collated key":          {"CREATE TABLE x (id text COLLATE blind)", "id", pgerr.FeatureNotSupported, "blind"},
		"generated key":         {"CREATE TABLE x (n bigint, id bigint GENERATED ALWAYS AS (n + 1) STORED)", "id", pgerr.FeatureNotSupported, "generated"},
		"primary key":           {"CREATE TABLE x (id bigint PRIMARY KEY, u bigint)", "u", pgerr.InvalidTableDefinition, "primary key"},
		"unique":                {"CREATE TABLE x (id bigint, u bigint UNIQUE)", "id", pgerr.InvalidTableDefinition, "unique constraint"},
		"unique index":          {"CREATE TABLE x (id bigint, u bigint); CREATE UNIQUE INDEX ux ON x (u)", "id", pgerr.InvalidTableDefinition, "ux"},
		"unique expression":     {"CREATE TABLE x (id bigint, u bigint); CREATE UNIQUE INDEX ux ON x ((id + 1), u)", "id", pgerr.InvalidTableDefinition, "ux"},
		"key included only":     {"CREATE TABLE x (id bigint, u bigint); CREATE UNIQUE INDEX ux ON x (u) INCLUDE (id)", "id", pgerr.InvalidTableDefinition, "ux"},
		"half of the key":       {"CREATE TABLE x (id bigint, u bigint UNIQUE)", "u,id", pgerr.InvalidTableDefinition, "unique constraint"},
		"exclusion":             {"CREATE TABLE x (id bigint, p int4range, EXCLUDE USING gist (p WITH &&))", "id", pgerr.InvalidTableDefinition, "exclusion"},
		"exclusion unequal":     {"CREATE TABLE x (p point, id bigint, EXCLUDE USING btree (id WITH =) WHERE (id > 0), EXCLUDE USING gist (p WITH ~=))", "id", pgerr.InvalidTableDefinition, "exclusion"},
	} {
		t.Run(name, func(t *testing.T) {
			execute(t, home, "DROP SCHEMA IF EXISTS test CASCADE; CREATE SCHEMA test; SET search_path = test, public; "+test.sql)
			before := p.follower.Map().Version()
			_, err := p.ShardTable(t.Context(), sharding(t, "test.x", test.key))
			refused := refusal(t, test.code, err, test.sql)
			if all := refused.Message + " " + refused.Detail; !strings.Contains(all, test.words) {
				t.Errorf("refused with %q, which does not say %q", all, test.words)
			}
			if refused.Detail == "" && refused.Hint == "" && test.code != pgerr.UndefinedColumn && test.code != pgerr.InvalidParameterValue {
				t.Errorf("refused with %+v, which teaches nothing", refused)
			}
			if now := p.follower.Map().Version(); now != before {
				t.Errorf("the map has version %d, was %d", now, before)
			}
			if n := one[int](t, servers[1], "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = 'test'"); n > 0 {
				t.Error("the other shard has something of it")
			}
			if n := one[int](t, home, "SELECT count(*) FROM pg_trigger WHERE tgname ~ '^cleave'"); n > 0 {
				t.Error("there is a guard")
			}
		})
	}
	execute(t, home, "DROP SCHEMA test CASCADE; CREATE TABLE loose (id bigint, u bigint UNIQUE)")
	request := sharding(t, "loose", "id")
	request.UniquePerShard = true
	shardTable(t, p, request)
}

func TestKeyspacesOfTables(t *testing.T) {
	p, servers := clusterWith(t, 2)
	execute(t, servers[0], `CREATE TABLE a (id bigint); CREATE TABLE b (id int); CREATE TABLE c (id smallint, t varchar(5)); CREATE TABLE d (id text);
		CREATE TABLE e (t text, id bigint); CREATE TABLE f (id bigint); CREATE TABLE g (id uuid)`)
	for _, request := range []api.CreateKeyspace{
		{Name: "own", Key: []string{"bigint"}}, {Name: "ranged", Strategy: topology.ByRange, Key: []string{"bigint"}, SplitAt: []topology.Point{{"100"}}}, {Name: "tenants", Strategy: topology.BySchema},
	} {
		if _, err := p.CreateKeyspace(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	with := func(table, columns string, change func(*ShardTableRequest)) ShardTableRequest {
		request := sharding(t, table, columns)
		change(&request)
		return request
	}
	for _, wrong := range []struct {
		request ShardTableRequest
		code    string
	}{
		{with("a", "id", func(r *ShardTableRequest) { r.Keyspace = "none" }), pgerr.UndefinedObject},
		{with("a", "id", func(r *ShardTableRequest) { r.Keyspace = "tenants" }), pgerr.InvalidParameterValue},
		{with("a", "id", func(r *ShardTableRequest) { r.Keyspace, r.Strategy = "own", "range" }), pgerr.InvalidParameterValue},
		{with("a", "id", func(r *ShardTableRequest) { r.Strategy = "range" }), pgerr.InvalidParameterValue},
		{with("a", "id", func(r *ShardTableRequest) { r.ColocateWith = "b" }), pgerr.InvalidParameterValue},
		{with("a", "id", func(r *ShardTableRequest) { r.ColocateWith = `"` }), pgerr.InvalidParameterValue},
		{with("d", "id", func(r *ShardTableRequest) { r.Keyspace = "own" }), pgerr.InvalidParameterValue},
		{with("c", "id,t", func(r *ShardTableRequest) { r.Keyspace = "own" }), pgerr.InvalidParameterValue},
	} {
		_, err := p.ShardTable(t.Context(), wrong.request)
		refusal(t, wrong.code, err, fmt.Sprintf("%+v", wrong.request))
	}
	for _, right := range []struct {
		request  ShardTableRequest
		keyspace string
		created  bool
		beside   []string
	}{
		{sharding(t, "a", "id"), "default_bigint", true, nil},
		{sharding(t, "b", "id"), "default_bigint", false, []string{"public.a"}},
		{sharding(t, "c", "id,t"), "default_bigint_text", true, nil},
		{with("d", "id", func(r *ShardTableRequest) { r.Strategy = "hash" }), "default_text", true, nil},
		{sharding(t, "e", "id,t"), "default_bigint_text", false, []string{"public.c"}},
		{with("f", "id", func(r *ShardTableRequest) { r.Keyspace, r.Strategy = "ranged", "range" }), "ranged", false, nil},
		{sharding(t, "g", "id"), "default_uuid", true, nil},
	} {
		table := shardTable(t, p, right.request)
		if table.Keyspace != right.keyspace || table.KeyspaceCreated != right.created || !slices.Equal(table.ColocatedWith, right.beside) {
			t.Errorf("declared %+v, want it in %s, created %v, beside %v", table, right.keyspace, right.created, right.beside)
		}
	}
	execute(t, servers[0], "CREATE TABLE h (id bigint)")
	if table := shardTable(t, p, with("h", "id", func(r *ShardTableRequest) { r.ColocateWith = "f" })); table.Keyspace != "ranged" {
		t.Errorf("declared %+v", table)
	}
	execute(t, servers[0], "CREATE TABLE i (id bigint)")
	_, err := p.ShardTable(t.Context(), with("i", "id", func(r *ShardTableRequest) { r.ColocateWith, r.Keyspace = "f", "own" }))
	refusal(t, pgerr.InvalidParameterValue, err, "two keyspaces")
	expectFindings(t, p)
}

// TestForeignKeysThatStayOnAShard: to a table of the same keyspace by the key, and to reference tables.
func TestForeignKeysThatStayOnAShard(t *testing.T) {
	p, servers := clusterWith(t, 2)
	execute(t, servers[0], "CREATE TABLE users (id bigint PRIMARY KEY); CREATE TABLE countries (code text PRIMARY KEY); CREATE TABLE things (id uuid PRIMARY KEY)")
	shardTable(t, p, sharding(t, "users", "id"))
	shardTable(t, p, sharding(t, "things", "id"))
	if _, err := p.ReferenceTable(t.Context(), ReferenceTableRequest{Table: named(t, "countries")}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ definition, key, code string }{
		"by_the_key":       {"(user_id bigint REFERENCES users, country text REFERENCES countries)", "user_id", ""},
		"by_another":       {"(id bigint, user_id bigint REFERENCES users)", "id", pgerr.FeatureNotSupported},
		"another_keyspace": {"(id bigint, thing uuid REFERENCES things)", "id", pgerr.FeatureNotSupported},
		"itself":           {"(id bigint, n int, parent int, PRIMARY KEY (id, n), FOREIGN KEY (id, parent) REFERENCES itself)", "id", ""},
		"crosswise":        {"(id bigint, n bigint, PRIMARY KEY (id, n), FOREIGN KEY (n, id) REFERENCES crosswise)", "id", pgerr.FeatureNotSupported},
	} {
		execute(t, servers[0], "CREATE TABLE "+name+" "+test.definition)
		_, err := p.ShardTable(t.Context(), sharding(t, name, test.key))
		if test.code != "" {
			refusal(t, test.code, err, name)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if described(t, servers[0], name) != described(t, servers[1], name) {
			t.Errorf("%s: the tables differ", name)
		}
	}
	execute(t, servers[0], "CREATE TABLE x (id bigint REFERENCES users)")
	_, err := p.ReferenceTable(t.Context(), ReferenceTableRequest{Table: named(t, "x")})
	refusal(t, pgerr.FeatureNotSupported, err, "a reference table that refers to a sharded one")
}

func TestWhoMayDeclare(t *testing.T) {
	p, servers := clusterWith(t, 2)
	for _, server := range servers {
		execute(t, server, "CREATE ROLE owner; CREATE ROLE member IN ROLE owner; CREATE ROLE stranger")
	}
	execute(t, servers[0], "CREATE TABLE a (id bigint); CREATE TABLE b (id bigint); CREATE TABLE c (id bigint); ALTER TABLE a OWNER TO owner; ALTER TABLE b OWNER TO owner; ALTER TABLE c OWNER TO owner; GRANT ALL ON a TO stranger")
	for _, role := range []string{"stranger", "nobody at all"} {
		request := sharding(t, "a", "id")
		request.Role = role
		_, err := p.ShardTable(t.Context(), request)
		refusal(t, pgerr.InsufficientPrivilege, err, role)
		_, err = p.ReferenceTable(t.Context(), ReferenceTableRequest{Table: named(t, "a"), Role: role})
		refusal(t, pgerr.InsufficientPrivilege, err, role)
	}
	for table, role := range map[string]string{"a": "owner", "b": "member", "c": "postgres"} {
		request := sharding(t, table, "id")
		request.Role = role
		shardTable(t, p, request)
	}
}

// TestReferenceTables: every shard has it, and no single copy is written to.
func TestReferenceTables(t *testing.T) {
	p, servers := clusterWith(t, 3)
	execute(t, servers[0], "CREATE TABLE countries (code text PRIMARY KEY, name text NOT NULL)")
	table, err := p.ReferenceTable(t.Context(), ReferenceTableRequest{Table: named(t, "countries")})
	if err != nil || table.Kind != topology.Reference {
		t.Fatalf("%+v, %v", table, err)
	}
	for _, server := range servers {
		if described(t, server, "countries") != described(t, servers[0], "countries") {
			t.Error("the tables differ")
		}
		_, err := asRouter(t, server).Exec(t.Context(), "INSERT INTO countries VALUES ('de', 'Germany')")
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != pgerr.FeatureNotSupported {
			t.Errorf("a write to one copy: %v", err)
		}
	}
	_, err = p.ReferenceTable(t.Context(), ReferenceTableRequest{Table: named(t, "countries")})
	refusal(t, pgerr.ObjectNotInPrerequisite, err, "again")
	_, err = p.ShardTable(t.Context(), sharding(t, "countries", "code"))
	refusal(t, pgerr.ObjectNotInPrerequisite, err, "as a sharded one")
	expectFindings(t, p)
}

// TestCrashesOfADeclaration ends it after each step: what is left is shown or harmless, rows that come in between are not
// misplaced, and the next attempt finishes.
func TestCrashesOfADeclaration(t *testing.T) {
	p, servers := clusterWith(t, 2)
	for reference, kind := range map[bool]string{false: "sharded", true: "reference"} {
		for last, step := range declareSteps {
			t.Run(kind+", "+step.name, func(t *testing.T) {
				table := fmt.Sprintf("t_%s_%d", kind, last)
				execute(t, servers[0], fmt.Sprintf("CREATE TABLE %s (id bigint PRIMARY KEY)", table))
				d := &declaration{cluster: p.Cluster, table: named(t, table)}
				d.decide = func(m *topology.Map, def *shard.Definition) (declared, error) {
					if reference {
						return declared{table: topology.SetTable(topology.TableSpec{Name: d.table.String(), Kind: topology.Reference})}, nil
					}
					return p.shardedAs(m, def, sharding(t, table, "id"))
				}
				for _, step := range declareSteps[:last+1] {
					if err := step.run(d, t.Context()); err != nil {
						t.Fatalf("%s: %v", step.name, err)
					}
				}
				d.close() // as if the process had died
				inMap := p.follower.Map().Table("public", table) != nil
				guarded := one[bool](t, servers[0], fmt.Sprintf("SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = '%s'::regclass AND tgname ~ '^cleave')", table))
				left := one[bool](t, servers[1], fmt.Sprintf("SELECT to_regclass('%s') IS NOT NULL", table))
				if left && !inMap {
					expectFindings(t, p, "warning guard_left")
				} else {
					expectFindings(t, p)
				}
				home := asRouter(t, servers[0])
				slipped := 0
				for n := range 20 { // a router with the map before sends everything to the home shard
					if _, err := home.Exec(t.Context(), fmt.Sprintf("INSERT INTO %s VALUES (%d)", table, n)); err == nil {
						slipped++
					}
				}
				if reference && guarded && slipped > 0 || !reference && guarded && (slipped == 0 || slipped == 20) || !guarded && slipped != 20 {
					t.Errorf("%d of 20 rows were taken, guarded: %v", slipped, guarded)
				}
				if !guarded {
					execute(t, servers[0], "TRUNCATE "+table)
				}
				again := func() error {
					if reference {
						_, err := p.ReferenceTable(t.Context(), ReferenceTableRequest{Table: d.table})
						return err
					}
					_, err := p.ShardTable(t.Context(), sharding(t, table, "id"))
					return err
				}
				err := again()
				if inMap {
					refusal(t, pgerr.ObjectNotInPrerequisite, err, "declared already")
				} else if err != nil {
					t.Fatalf("the next attempt: %v", err)
				}
				expectFindings(t, p)
				if n := one[int](t, servers[0], "SELECT count(*) FROM "+table); guarded && n != slipped {
					t.Errorf("%d rows, %d were taken", n, slipped)
				}
				if !reference {
					execute(t, servers[0], "SET cleave.router = 'by hand'; TRUNCATE "+table)
					insertEverywhere(t, p, servers, table, "id", "default_bigint")
				}
			})
		}
	}
}

// TestAFailedDeclarationIsTakenBack: etcd goes away between the guard and the map.
func TestAFailedDeclarationIsTakenBack(t *testing.T) {
	p, servers := clusterWith(t, 2)
	execute(t, servers[0], "CREATE TABLE a (id bigint); CREATE TABLE b (id bigint)")
	shardTable(t, p, sharding(t, "b", "id"))
	steps := declareSteps
	t.Cleanup(func() { declareSteps = steps })
	broken := errors.New("broken on purpose")
	declareSteps = slices.Clone(steps)
	at := slices.IndexFunc(declareSteps, func(s declareStep) bool { return s.name == "publish the map" })
	declareSteps[at].run = func(*declaration, context.Context) error { return broken }
	if _, err := p.ShardTable(t.Context(), sharding(t, "a", "id")); !errors.Is(err, broken) {
		t.Errorf("declared: %v", err)
	}
	execute(t, servers[0], "INSERT INTO a SELECT generate_series(1, 100)")
	declareSteps[at].run = func(*declaration, context.Context) error { return store.ErrOutcomeUnknown }
	execute(t, servers[0], "TRUNCATE a")
	if _, err := p.ShardTable(t.Context(), sharding(t, "a", "id")); !errors.Is(err, store.ErrOutcomeUnknown) {
		t.Errorf("declared: %v", err)
	}
	expectFindings(t, p, "warning guard_left")
	declareSteps = steps
	shardTable(t, p, sharding(t, "a", "id"))
	expectFindings(t, p)
}

// TestLeftoversThatAreNotOurs: a table of the same name on another shard is taken over only if it is equal and empty.
func TestLeftoversThatAreNotOurs(t *testing.T) {
	p, servers := clusterWith(t, 2)
	execute(t, servers[0], "CREATE TABLE a (id bigint, n int)")
	for name, sql := range map[string]string{
		"other columns": "CREATE TABLE a (id bigint, n bigint)",
		"an index":      "CREATE TABLE a (id bigint, n int); CREATE INDEX ON a (n)",
		"a grant":       "CREATE TABLE a (id bigint, n int); GRANT SELECT ON a TO PUBLIC",
		"rows":          "CREATE TABLE a (id bigint, n int); INSERT INTO a VALUES (1, 1)",
		"a view":        "CREATE VIEW a AS SELECT 1 AS id, 1 AS n",
	} {
		execute(t, servers[1], "DROP TABLE IF EXISTS a; "+sql)
		_, err := p.ShardTable(t.Context(), sharding(t, "a", "id"))
		if refused := refusal(t, pgerr.ObjectNotInPrerequisite, err, name); refused.Detail == "" || !strings.Contains(refused.Message, `"s2"`) {
			t.Errorf("%s: refused with %+v", name, refused)
		}
		if name == "a view" {
			execute(t, servers[1], "DROP VIEW a")
		}
	}
	execute(t, servers[1], "DROP TABLE IF EXISTS a; CREATE TABLE a (id bigint, n int)")
	shardTable(t, p, sharding(t, "a", "id"))
}

// TestDeclarationsSideBySide: of one table one wins and the others are told; of several tables all are declared.
func TestDeclarationsSideBySide(t *testing.T) {
	servers, endpoints := pgtest.StartN(t, 2), startEtcd(t)
	p := startProcess(t, endpoints, nil)
	clusterOf(t, p, servers)
	execute(t, servers[0], "CREATE TABLE one (id bigint, u uuid); CREATE TABLE a (id bigint); CREATE TABLE b (id bigint); CREATE TABLE c (id bigint)")
	other := startProcess(t, endpoints, nil)
	var declaring sync.WaitGroup
	results := make([]error, 4)
	for i := range results {
		declaring.Go(func() {
			by, columns := p, "id"
			if i%2 == 1 {
				by, columns = other, "u"
			}
			_, results[i] = by.ShardTable(t.Context(), sharding(t, "one", columns))
		})
	}
	failures := make([]error, 3)
	for i, table := range []string{"a", "b", "c"} {
		declaring.Go(func() { _, failures[i] = p.ShardTable(t.Context(), sharding(t, table, "id")) })
	}
	declaring.Wait()
	won := 0
	for _, err := range results {
		if err == nil {
			won++
			continue
		}
		refusal(t, pgerr.ObjectNotInPrerequisite, err, "who came later")
	}
	if won != 1 {
		t.Errorf("%d have won", won)
	}
	if err := errors.Join(failures...); err != nil {
		t.Error(err)
	}
	expectFindings(t, p)
}

func TestATableInUse(t *testing.T) {
	p, servers := clusterWith(t, 1)
	execute(t, servers[0], "CREATE TABLE a (id bigint)")
	writer := asRouter(t, servers[0])
	if _, err := writer.Exec(t.Context(), "BEGIN; DELETE FROM a"); err != nil {
		t.Fatal(err)
	}
	_, err := p.ShardTable(t.Context(), sharding(t, "a", "id"))
	refusal(t, "55P03", err, "a table with a writer")
	if _, err := writer.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	shardTable(t, p, sharding(t, "a", "id"))
}

// TestAShardThatIsAway: all must be there, and nothing is done otherwise.
func TestAShardThatIsAway(t *testing.T) {
	p, servers := clusterWith(t, 2)
	execute(t, servers[0], "CREATE TABLE a (id bigint)")
	if err := servers[1].Crash(); err != nil {
		t.Fatal(err)
	}
	_, err := p.ShardTable(t.Context(), sharding(t, "a", "id"))
	refusal(t, pgerr.ConnectionFailure, err, "with a shard away")
	execute(t, servers[0], "INSERT INTO a SELECT generate_series(1, 100)")
}

// TestARouterThatHasNotHeard is waited for, and then told of.
func TestARouterThatHasNotHeard(t *testing.T) {
	servers := pgtest.StartN(t, 1)
	p := startProcess(t, startEtcd(t), func(c *Config) { c.RouterPatience = 100 * time.Millisecond })
	clusterOf(t, p, servers)
	execute(t, servers[0], "CREATE TABLE a (id bigint)")
	registration, err := p.store.Register(t.Context(), store.Router{Name: "slow"})
	if err != nil {
		t.Fatal(err)
	}
	defer registration.Close()
	table := shardTable(t, p, sharding(t, "a", "id"))
	if len(table.Findings) != 1 || table.Findings[0].Code != "router_behind" || !strings.Contains(table.Findings[0].Message, "slow") {
		t.Errorf("declared %+v", table)
	}
}

// TestTheLeaderMendsGuards that somebody has taken off.
func TestTheLeaderMendsGuards(t *testing.T) {
	servers := pgtest.StartN(t, 1)
	p := startProcess(t, startEtcd(t), func(c *Config) { c.MendInterval = 50 * time.Millisecond })
	clusterOf(t, p, servers)
	execute(t, servers[0], "CREATE TABLE a (id bigint)")
	shardTable(t, p, sharding(t, "a", "id"))
	execute(t, servers[0], "DROP TRIGGER cleave_guard ON a; ALTER TABLE a DISABLE TRIGGER ALL")
	eventually(t, "the guard is back", func() bool {
		return one[int](t, servers[0], "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'a'::regclass AND tgname ~ '^cleave' AND tgenabled = 'O'") == 3
	})
}

// TestTheHomeShardStays as long as there are others.
func TestTheHomeShardStays(t *testing.T) {
	p, _ := clusterWith(t, 2)
	var inUse *topology.InUseError
	if _, err := p.RemoveShard(t.Context(), "s1"); !errors.As(err, &inUse) || !strings.Contains(err.Error(), "home shard") {
		t.Errorf("the home shard was removed: %v", err)
	}
	for _, name := range []string{"s2", "s1"} {
		if _, err := p.RemoveShard(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	_, err := p.ShardTable(t.Context(), sharding(t, "a", "id"))
	refusal(t, pgerr.ObjectNotInPrerequisite, err, "without shards")
}
