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
	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// asRouter connects to a server as a router's backend does, until the test ends.
func asRouter(t testing.TB, server *localpg.Server) *pgx.Conn {
	t.Helper()
	conn := dialAsRouter(t, server)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func dialAsRouter(t testing.TB, server *localpg.Server) *pgx.Conn {
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
func sharding(t testing.TB, table, columns string) ShardTablesRequest {
	t.Helper()
	return ShardTablesRequest{Tables: []TableKey{{Table: named(t, table), Key: strings.Split(columns, ",")}}}
}

// together joins requests into one.
func together(requests ...ShardTablesRequest) ShardTablesRequest {
	for _, r := range requests[1:] {
		requests[0].Tables = append(requests[0].Tables, r.Tables...)
	}
	return requests[0]
}

// tablesNamed asks for reference tables, or for tables to be undistributed.
func tablesNamed(t testing.TB, names ...string) TablesRequest {
	t.Helper()
	var request TablesRequest
	for _, name := range names {
		request.Tables = append(request.Tables, named(t, name))
	}
	return request
}

// shardTable has to succeed.
func shardTable(t testing.TB, p *process, request ShardTablesRequest) api.TablesChanged {
	t.Helper()
	changed, err := p.ShardTables(t.Context(), request)
	if err != nil {
		t.Fatalf("shard %+v: %+v", request.Tables, err)
	}
	return changed
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
	servers := model.StartN(t, count)
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

// expectNoFindings wants nothing to be wrong with the tables and their guards.
func expectNoFindings(t testing.TB, p *process) {
	t.Helper()
	m, err := p.Map(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if findings := p.checkGuards(t.Context(), shard.Prepare(m), specsOf(m)); len(findings) > 0 {
		t.Errorf("the check found %+v", findings)
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
		number bigserial,
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
	ALTER INDEX app.recent ALTER COLUMN 2 SET STATISTICS 400;
	COMMENT ON SEQUENCE app."Orders 'x'_number_seq" IS 'counts';
	COMMENT ON CONSTRAINT "code once" ON app."Orders 'x'" IS 'once';
	ALTER TABLE app."Orders 'x'" OWNER TO owner;
	SET ROLE owner;
	GRANT SELECT ON app."Orders 'x'" TO reader WITH GRANT OPTION;
	GRANT UPDATE (note) ON app."Orders 'x'" TO "Odd ""role""";
	GRANT INSERT ON app."Orders 'x'" TO PUBLIC;
	REVOKE TRUNCATE ON app."Orders 'x'" FROM owner;`

func TestATableIsCarriedOverExactly(t *testing.T) {
	t.Parallel()
	p, servers := clusterWith(t, 3)
	execute(t, servers[0], richTable)
	request := sharding(t, `app."Orders 'x'"`, "user_id")
	_, err := p.ShardTables(t.Context(), request)
	if refused := refusal(t, pgerr.UndefinedObject, err, "roles that other shards do not have"); !strings.Contains(refused.Message, "does not exist on shard") {
		t.Errorf("refused with %+v", refused)
	}
	for _, server := range servers[1:] {
		execute(t, server, `CREATE ROLE owner; CREATE ROLE reader; CREATE ROLE "Odd ""role"""`)
	}
	table := shardTable(t, p, request)
	if table.Tables[0].Keyspace != "default_bigint" || !slices.Equal(table.KeyspacesCreated, []string{"default_bigint"}) || len(table.Findings) > 0 || table.MapVersion != p.follower.Map().Version() {
		t.Errorf("declared %+v", table)
	}
	want := described(t, servers[0], `app."Orders 'x'"`)
	if !strings.Contains(want, `"counts"`) || !strings.Contains(want, `"2": 400`) {
		t.Errorf("what a sequence is for, or how much is known of an index, is no part of %s", want)
	}
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

// one asks for one value, over a connection that ends with the answer.
func one[T any](t testing.TB, server *localpg.Server, sql string) (value T) {
	t.Helper()
	conn := dialAsRouter(t, server)
	defer conn.Close(context.Background())
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
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

const partitioned = "CREATE TABLE x (id bigint, n int) PARTITION BY HASH (id); CREATE TABLE part PARTITION OF x FOR VALUES WITH (MODULUS 1, REMAINDER 0); "

// TestTablesThatCannotBeDeclared has one obstacle at a time: what is not carried over exactly is refused with the reason.
func TestTablesThatCannotBeDeclared(t *testing.T) {
	t.Parallel()
	p, servers := clusterWith(t, 2)
	home := servers[0]
	execute(t, home, `CREATE TYPE mood AS ENUM ('happy'); CREATE DOMAIN small AS bigint; CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
		CREATE COLLATION mine (provider = icu, locale = 'de');
		CREATE FUNCTION twice(bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT 2 * $1'; CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
		CREATE TABLE plain (id bigint PRIMARY KEY); CREATE ROLE giver; CREATE ROLE taker; CREATE STATISTICS never ON id, (id + 1) FROM plain`)
	for name, test := range map[string]struct{ sql, key, code, words string }{
		"not there":              {"", "id", pgerr.UndefinedTable, "does not exist"},
		"a view":                 {"CREATE VIEW x AS SELECT 1::bigint AS id", "id", pgerr.WrongObjectType, "a view"},
		"a sequence":             {"CREATE SEQUENCE x", "id", pgerr.WrongObjectType, "a sequence"},
		"index of a partition":   {partitioned + "CREATE INDEX ON part (id)", "id", pgerr.FeatureNotSupported, "indexes of its own"},
		"check of a partition":   {partitioned + "ALTER TABLE part ADD CHECK (id > 0)", "id", pgerr.FeatureNotSupported, "constraints of its own"},
		"trigger of a partition": {partitioned + "CREATE TRIGGER mine BEFORE INSERT ON part EXECUTE FUNCTION nothing()", "id", pgerr.FeatureNotSupported, "triggers of its own"},
		"default of a partition": {partitioned + "ALTER TABLE part ALTER n SET DEFAULT 1", "id", pgerr.FeatureNotSupported, "columns of its own"},
		"policies of a part":     {partitioned + "ALTER TABLE part ENABLE ROW LEVEL SECURITY", "id", pgerr.FeatureNotSupported, "row security of its own"},
		"a partition":            {"CREATE TABLE parts (id bigint) PARTITION BY HASH (id); CREATE TABLE x PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0)", "id", pgerr.FeatureNotSupported, "partition"},
		"inherits":               {"CREATE TABLE x () INHERITS (plain)", "id", pgerr.FeatureNotSupported, "inherits"},
		"is inherited":           {"CREATE TABLE x (id bigint); CREATE TABLE child () INHERITS (x)", "id", pgerr.FeatureNotSupported, "inherits"},
		"typed":                  {"CREATE TYPE shape AS (id bigint); CREATE TABLE x OF shape", "id", pgerr.FeatureNotSupported, "type"},
		"rule":                   {"CREATE TABLE x (id bigint); CREATE RULE mine AS ON INSERT TO x DO INSTEAD NOTHING", "id", pgerr.FeatureNotSupported, "rules"},
		"domain":                 {"CREATE TABLE x (id small)", "id", pgerr.FeatureNotSupported, "small"},
		"collation":              {"CREATE TABLE x (id bigint, t text COLLATE mine)", "id", pgerr.FeatureNotSupported, "mine"},
		"serial that is small":   {"CREATE TABLE x (id bigint, n smallserial)", "id", pgerr.FeatureNotSupported, "type smallint"},
		"identity that is small": {"CREATE TABLE x (id bigint, n smallint GENERATED ALWAYS AS IDENTITY)", "id", pgerr.FeatureNotSupported, "type smallint"},
		"cycle":                  {"CREATE TABLE x (id bigint, n bigint GENERATED ALWAYS AS IDENTITY (CYCLE))", "id", pgerr.FeatureNotSupported, "begins again"},
		"number out of lanes":    {"CREATE TABLE x (id bigint, n bigserial); INSERT INTO x VALUES (1, 281474976710655)", "id", pgerr.FeatureNotSupported, "none left"},
		"null key":               {"CREATE TABLE x (id bigint, n int); INSERT INTO x VALUES (1, 1), (NULL, 2)", "id", pgerr.NotNullViolation, "null value in column"},
		"row type":               {"CREATE TABLE x (id bigint, p plain)", "id", pgerr.FeatureNotSupported, "plain"},
		"base type":              {"CREATE TYPE odd; CREATE FUNCTION odd_in(cstring) RETURNS odd IMMUTABLE STRICT LANGUAGE internal AS 'textin'; CREATE FUNCTION odd_out(odd) RETURNS cstring IMMUTABLE STRICT LANGUAGE internal AS 'textout'; CREATE TYPE odd (INPUT = odd_in, OUTPUT = odd_out); CREATE TABLE x (id bigint, o odd)", "id", pgerr.FeatureNotSupported, "odd"},
		"policy reads another":   {"CREATE TABLE x (id bigint); CREATE POLICY mine ON x USING (id IN (SELECT id FROM plain))", "id", pgerr.FeatureNotSupported, "plain"},
		"trigger for replicas":   {"CREATE TABLE x (id bigint); CREATE TRIGGER mine BEFORE INSERT ON x EXECUTE FUNCTION nothing(); ALTER TABLE x ENABLE ALWAYS TRIGGER mine", "id", pgerr.FeatureNotSupported, "mine"},
		"aggregate":              {"CREATE AGGREGATE most(bigint) (SFUNC = int8larger, STYPE = bigint); CREATE TABLE x (id bigint, n bigint DEFAULT 1); CREATE OPERATOR ### (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = int8pl); ALTER TABLE x ADD CHECK (id ### 1 > 0)", "id", pgerr.FeatureNotSupported, "###"},
		"nextval":                {"CREATE SEQUENCE seq; CREATE TABLE x (id bigint, n bigint DEFAULT nextval('seq'))", "id", pgerr.FeatureNotSupported, "does not belong"},
		"publication":            {"CREATE TABLE x (id bigint); CREATE PUBLICATION mine FOR TABLE x", "id", pgerr.FeatureNotSupported, "mine"},
		"granted by another":     {"CREATE TABLE x (id bigint); GRANT USAGE ON SCHEMA test TO giver; GRANT SELECT ON x TO giver WITH GRANT OPTION; SET ROLE giver; GRANT SELECT ON x TO taker; RESET ROLE", "id", pgerr.FeatureNotSupported, "giver"},
		"is referred to":         {"CREATE TABLE x (id bigint PRIMARY KEY); CREATE TABLE other (id bigint REFERENCES x)", "id", pgerr.FeatureNotSupported, "other"},
		"refers to a plain one":  {"CREATE TABLE x (id bigint REFERENCES plain)", "id", pgerr.FeatureNotSupported, "plain"},
		"no such column":         {"CREATE TABLE x (id bigint)", "size", pgerr.UndefinedColumn, "size"},
		"system column":          {"CREATE TABLE x (id bigint)", "xmin", pgerr.UndefinedColumn, "xmin"},
		"key twice":              {"CREATE TABLE x (id bigint)", "id,id", pgerr.InvalidParameterValue, "twice"},
		"long key":               {"CREATE TABLE x (id bigint)", "a,b,c,d,e,f,g,h,i", pgerr.InvalidParameterValue, "1 to 8"},
		"numeric key":            {"CREATE TABLE x (id numeric)", "id", pgerr.FeatureNotSupported, "numeric"},
		"char key":               {"CREATE TABLE x (id char(3))", "id", pgerr.FeatureNotSupported, "character(3)"},
		"collated key":           {"CREATE TABLE x (id text COLLATE blind)", "id", pgerr.FeatureNotSupported, "blind"},
		"generated key":          {"CREATE TABLE x (n bigint, id bigint GENERATED ALWAYS AS (n + 1) STORED)", "id", pgerr.FeatureNotSupported, "generated"},
		"primary key":            {"CREATE TABLE x (id bigint PRIMARY KEY, u bigint)", "u", pgerr.InvalidTableDefinition, "primary key"},
		"unique":                 {"CREATE TABLE x (id bigint, u bigint UNIQUE)", "id", pgerr.InvalidTableDefinition, "unique constraint"},
		"unique index":           {"CREATE TABLE x (id bigint, u bigint); CREATE UNIQUE INDEX ux ON x (u)", "id", pgerr.InvalidTableDefinition, "ux"},
		"unique expression":      {"CREATE TABLE x (id bigint, u bigint); CREATE UNIQUE INDEX ux ON x ((id + 1), u)", "id", pgerr.InvalidTableDefinition, "ux"},
		"key included only":      {"CREATE TABLE x (id bigint, u bigint); CREATE UNIQUE INDEX ux ON x (u) INCLUDE (id)", "id", pgerr.InvalidTableDefinition, "ux"},
		"half of the key":        {"CREATE TABLE x (id bigint, u bigint UNIQUE)", "u,id", pgerr.InvalidTableDefinition, "unique constraint"},
		"exclusion":              {"CREATE TABLE x (id bigint, p int4range, EXCLUDE USING gist (p WITH &&))", "id", pgerr.InvalidTableDefinition, "exclusion"},
		"exclusion unequal":      {"CREATE TABLE x (p point, id bigint, EXCLUDE USING btree (id WITH =) WHERE (id > 0), EXCLUDE USING gist (p WITH ~=))", "id", pgerr.InvalidTableDefinition, "exclusion"},
	} {
		t.Run(name, func(t *testing.T) {
			thorough.Some(t, 4)
			execute(t, home, "DROP SCHEMA IF EXISTS test CASCADE; CREATE SCHEMA test; SET search_path = test, public; "+test.sql)
			before := p.follower.Map().Version()
			_, err := p.ShardTables(t.Context(), sharding(t, "test.x", test.key))
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
	for _, table := range []string{"pg_catalog.pg_class", "cleave.pins", "information_schema.sql_features"} {
		_, err := p.ShardTables(t.Context(), sharding(t, table, "oid"))
		refusal(t, pgerr.InsufficientPrivilege, err, table)
	}
	execute(t, home, "DROP SCHEMA test CASCADE; CREATE TABLE loose (id bigint, u bigint UNIQUE)")
	request := sharding(t, "loose", "id")
	request.UniquePerShard = true
	shardTable(t, p, request)
}

func TestKeyspacesOfTables(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
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
	with := func(table, columns string, change func(*ShardTablesRequest)) ShardTablesRequest {
		request := sharding(t, table, columns)
		change(&request)
		return request
	}
	for _, wrong := range []struct {
		request ShardTablesRequest
		code    string
	}{
		{with("a", "id", func(r *ShardTablesRequest) { r.Keyspace = "none" }), pgerr.UndefinedObject},
		{with("a", "id", func(r *ShardTablesRequest) { r.Keyspace = "tenants" }), pgerr.InvalidParameterValue},
		{with("a", "id", func(r *ShardTablesRequest) { r.Keyspace, r.Strategy = "own", "range" }), pgerr.InvalidParameterValue},
		{with("a", "id", func(r *ShardTablesRequest) { r.Strategy = "schema" }), pgerr.InvalidParameterValue},
		{with("a", "id", func(r *ShardTablesRequest) { r.SplitAt = []topology.Point{{"5"}} }), pgerr.InvalidParameterValue},
		{with("a", "id", func(r *ShardTablesRequest) { r.Strategy, r.SplitAt = "range", []topology.Point{{"x"}} }), pgerr.InvalidParameterValue},
		{with("a", "id", func(r *ShardTablesRequest) { r.ColocateWith = "b" }), pgerr.InvalidParameterValue},
		{with("a", "id", func(r *ShardTablesRequest) { r.ColocateWith = `"` }), pgerr.InvalidParameterValue},
		{with("d", "id", func(r *ShardTablesRequest) { r.Keyspace = "own" }), pgerr.InvalidParameterValue},
		{with("c", "id,t", func(r *ShardTablesRequest) { r.Keyspace = "own" }), pgerr.InvalidParameterValue},
	} {
		_, err := p.ShardTables(t.Context(), wrong.request)
		refusal(t, wrong.code, err, fmt.Sprintf("%+v", wrong.request))
	}
	for _, right := range []struct {
		request  ShardTablesRequest
		keyspace string
		created  bool
		beside   []string
	}{
		{sharding(t, "a", "id"), "default_bigint", true, nil},
		{sharding(t, "b", "id"), "default_bigint", false, []string{"public.a"}},
		{sharding(t, "c", "id,t"), "default_bigint_text", true, nil},
		{with("d", "id", func(r *ShardTablesRequest) { r.Strategy = "hash" }), "default_text", true, nil},
		{sharding(t, "e", "id,t"), "default_bigint_text", false, []string{"public.c"}},
		{with("f", "id", func(r *ShardTablesRequest) { r.Keyspace, r.Strategy = "ranged", "range" }), "ranged", false, nil},
		{sharding(t, "g", "id"), "default_uuid", true, nil},
	} {
		table := shardTable(t, p, right.request)
		if table.Tables[0].Keyspace != right.keyspace || len(table.KeyspacesCreated) > 0 != right.created || !slices.Equal(table.Tables[0].ColocatedWith, right.beside) {
			t.Errorf("declared %+v, want it in %s, created %v, beside %v", table, right.keyspace, right.created, right.beside)
		}
	}
	execute(t, servers[0], "CREATE TABLE h (id bigint)")
	if table := shardTable(t, p, with("h", "id", func(r *ShardTablesRequest) { r.ColocateWith = "f" })); table.Tables[0].Keyspace != "ranged" {
		t.Errorf("declared %+v", table)
	}
	execute(t, servers[0], "CREATE TABLE i (id bigint)")
	_, err := p.ShardTables(t.Context(), with("i", "id", func(r *ShardTablesRequest) { r.ColocateWith, r.Keyspace = "f", "own" }))
	refusal(t, pgerr.InvalidParameterValue, err, "two keyspaces")
	expectNoFindings(t, p)
}

// TestSequencesOfReferenceTables: the copies stand where the home shard's stand, whatever their bounds are and wherever they have counted before.
func TestSequencesOfReferenceTables(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	p, servers := clusterWith(t, 2)
	execute(t, servers[0], "CREATE TABLE high (id bigint GENERATED BY DEFAULT AS IDENTITY (MINVALUE 100 START WITH 107), n int); INSERT INTO high (n) VALUES (1), (2)")
	execute(t, servers[0], "CREATE TABLE been (id bigserial, n bigint); INSERT INTO been (n) VALUES (1), (2)")
	shardTable(t, p, sharding(t, "been", "n"))
	if _, err := p.UndistributeTables(t.Context(), tablesNamed(t, "been")); err != nil {
		t.Fatal(err)
	}
	if _, err := p.ReferenceTables(t.Context(), tablesNamed(t, "high", "been")); err != nil {
		t.Fatal(err)
	}
	for _, sequence := range []string{"high_id_seq", "been_id_seq"} {
		looked := "SELECT concat_ws(' ', v.last_value, v.is_called, s.seqmin, s.seqmax, s.seqstart) FROM " + sequence + " v, pg_sequence s WHERE s.seqrelid = '" + sequence + "'::regclass"
		if home, copied := one[string](t, servers[0], looked), one[string](t, servers[1], looked); home != copied {
			t.Errorf("%s is %s on the home shard and %s on the other", sequence, home, copied)
		}
	}
}

// TestForeignKeysThatStayOnAShard: to a table of the same keyspace by the key, and to reference tables.
func TestForeignKeysThatStayOnAShard(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	p, servers := clusterWith(t, 2)
	execute(t, servers[0], "CREATE TABLE users (id bigint PRIMARY KEY); CREATE TABLE countries (code text PRIMARY KEY); CREATE TABLE things (id uuid PRIMARY KEY)")
	shardTable(t, p, sharding(t, "users", "id"))
	shardTable(t, p, sharding(t, "things", "id"))
	if _, err := p.ReferenceTables(t.Context(), tablesNamed(t, "countries")); err != nil {
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
		_, err := p.ShardTables(t.Context(), sharding(t, name, test.key))
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
	_, err := p.ReferenceTables(t.Context(), tablesNamed(t, "x"))
	refusal(t, pgerr.FeatureNotSupported, err, "a reference table that refers to a sharded one")
}

// TestWhoRefersToAReferenceTable: a table on the home shard alone finds all rows there, and PostgreSQL keeps the foreign key.
func TestWhoRefersToAReferenceTable(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	p, servers := clusterWith(t, 2)
	execute(t, servers[0], `CREATE TABLE currencies (code text PRIMARY KEY); CREATE TABLE countries (code text PRIMARY KEY, currency text REFERENCES currencies);
		CREATE TABLE cities (name text, country text CONSTRAINT of_country REFERENCES countries); CREATE TABLE users (id bigint PRIMARY KEY, country text REFERENCES countries);
		CREATE TABLE notes (user_id bigint CONSTRAINT of_user REFERENCES users);
		INSERT INTO currencies VALUES ('EUR'); INSERT INTO countries VALUES ('de', 'EUR'); INSERT INTO cities VALUES ('Kiel', 'de'); INSERT INTO users VALUES (1, 'de')`)
	_, err := p.ReferenceTables(t.Context(), tablesNamed(t, "countries"))
	refusal(t, pgerr.FeatureNotSupported, err, "a reference table that refers to one that is none")
	if _, err := p.ReferenceTables(t.Context(), tablesNamed(t, "countries", "currencies")); err != nil {
		t.Fatal(err)
	}
	_, err = p.ShardTables(t.Context(), sharding(t, "users", "id"))
	if refused := refusal(t, pgerr.FeatureNotSupported, err, "a table that refers to it stays at home"); !strings.Contains(refused.Message, `"of_user"`) ||
		!strings.Contains(refused.Hint, `ALTER TABLE public.notes DROP CONSTRAINT "of_user"`) {
		t.Errorf("refused with %+v", refused)
	}
	shardTable(t, p, together(sharding(t, "users", "id"), sharding(t, "notes", "user_id")))
	_, err = asRouter(t, servers[0]).Exec(t.Context(), "INSERT INTO cities VALUES ('Nowhere', 'xx')")
	refusedBy(t, "23503", err)
	_, err = p.ReferenceTables(t.Context(), tablesNamed(t, "cities", "cities"))
	refusal(t, pgerr.InvalidParameterValue, err, "a table twice")
	expectNoFindings(t, p)
}

func TestWhoMayDeclare(t *testing.T) {
	t.Parallel()
	p, servers := clusterWith(t, 2)
	for _, server := range servers {
		execute(t, server, "CREATE ROLE owner; CREATE ROLE member IN ROLE owner; CREATE ROLE stranger")
	}
	execute(t, servers[0], "CREATE TABLE a (id bigint); CREATE TABLE b (id bigint); CREATE TABLE c (id bigint); ALTER TABLE a OWNER TO owner; ALTER TABLE b OWNER TO owner; ALTER TABLE c OWNER TO owner; GRANT ALL ON a TO stranger")
	for _, role := range []string{"stranger", "nobody at all"} {
		request := sharding(t, "a", "id")
		request.Role = role
		_, err := p.ShardTables(t.Context(), request)
		refusal(t, pgerr.InsufficientPrivilege, err, role)
		_, err = p.ReferenceTables(t.Context(), TablesRequest{Tables: []topology.TableName{named(t, "a")}, Role: role})
		refusal(t, pgerr.InsufficientPrivilege, err, role)
	}
	for table, role := range map[string]string{"a": "owner", "b": "member", "c": "postgres"} {
		request := sharding(t, table, "id")
		request.Role = role
		shardTable(t, p, request)
	}
}

// TestReferenceTables: every shard has it, with its rows.
func TestReferenceTables(t *testing.T) {
	t.Parallel()
	p, servers := clusterWith(t, 3)
	execute(t, servers[0], "CREATE TABLE countries (code text PRIMARY KEY, name text NOT NULL); INSERT INTO countries VALUES ('fr', 'France')")
	table, err := p.ReferenceTables(t.Context(), tablesNamed(t, "countries"))
	if err != nil || table.Tables[0].Kind != topology.Reference {
		t.Fatalf("%+v, %v", table, err)
	}
	for _, server := range servers {
		if described(t, server, "countries") != described(t, servers[0], "countries") {
			t.Error("the tables differ")
		}
		if rows := content(t, []*localpg.Server{server}, "countries"); !slices.Equal(rows, []string{"(fr,France)"}) {
			t.Errorf("a copy has %q", rows)
		}
	}
	_, err = p.ReferenceTables(t.Context(), tablesNamed(t, "countries"))
	refusal(t, pgerr.ObjectNotInPrerequisite, err, "again")
	_, err = p.ShardTables(t.Context(), sharding(t, "countries", "code"))
	refusal(t, pgerr.ObjectNotInPrerequisite, err, "as a sharded one")
	expectNoFindings(t, p)
}

// TestLeftoversThatAreNotOurs: a table of the same name on another shard is taken over only if it is equal and empty.
func TestLeftoversThatAreNotOurs(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
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
		_, err := p.ShardTables(t.Context(), sharding(t, "a", "id"))
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
			_, results[i] = by.ShardTables(t.Context(), sharding(t, "one", columns))
		})
	}
	failures := make([]error, 3)
	for i, table := range []string{"a", "b", "c"} {
		declaring.Go(func() { _, failures[i] = p.ShardTables(t.Context(), sharding(t, table, "id")) })
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
	expectNoFindings(t, p)
}

func TestATableInUse(t *testing.T) {
	t.Parallel()
	p, servers := clusterWith(t, 1)
	execute(t, servers[0], "CREATE TABLE a (id bigint)")
	writer := asRouter(t, servers[0])
	if _, err := writer.Exec(t.Context(), "BEGIN; DELETE FROM a"); err != nil {
		t.Fatal(err)
	}
	_, err := p.ShardTables(t.Context(), sharding(t, "a", "id"))
	refusal(t, pgerr.LockNotAvailable, err, "a table with a writer")
	if _, err := writer.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	shardTable(t, p, sharding(t, "a", "id"))
}

// TestAShardThatIsAway: all must be there, and nothing is done otherwise.
func TestAShardThatIsAway(t *testing.T) {
	t.Parallel()
	p, servers := clusterWith(t, 2)
	execute(t, servers[0], "CREATE TABLE a (id bigint)")
	if err := servers[1].Crash(); err != nil {
		t.Fatal(err)
	}
	_, err := p.ShardTables(t.Context(), sharding(t, "a", "id"))
	refusal(t, pgerr.ConnectionFailure, err, "with a shard away")
	execute(t, servers[0], "INSERT INTO a SELECT generate_series(1, 100)")
}

// TestTheLeaderMendsGuards that somebody has taken off.
func TestTheLeaderMendsGuards(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	p, _ := clusterWith(t, 2)
	_, err := p.RemoveShard(t.Context(), "s1")
	if refused := refusal(t, pgerr.ObjectInUse, err, "removing the home shard"); !strings.Contains(refused.Message, "home shard") || refused.Hint == "" {
		t.Errorf("it says %+v", refused)
	}
	for _, name := range []string{"s2", "s1"} {
		if _, err := p.RemoveShard(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	_, err = p.ShardTables(t.Context(), sharding(t, "a", "id"))
	refusal(t, pgerr.ObjectNotInPrerequisite, err, "without shards")
}

// TestWhatStaysOnTheHomeShard is said, by name, to whoever empties it: tables that nobody has declared are in no map. Moved by name they are in it.
func TestWhatStaysOnTheHomeShard(t *testing.T) {
	t.Parallel()
	p, servers := clusterWith(t, 2)
	execute(t, servers[0], `CREATE TABLE a (id bigint PRIMARY KEY); CREATE TABLE jobs (id bigint PRIMARY KEY); CREATE TABLE "odd ones" (id bigint PRIMARY KEY); CREATE TABLE moved (id bigint PRIMARY KEY)`)
	shardTable(t, p, sharding(t, "a", "id"))
	if _, err := p.config.Store.Update(t.Context(), func(m *topology.Map) (*topology.Map, error) {
		return withSingle(m, []topology.TableName{named(t, "moved")})
	}); err != nil {
		t.Fatal(err)
	}
	said := func(what string, warnings []string, err error) {
		t.Helper()
		if err != nil || len(warnings) != 1 {
			t.Errorf("%s: %q, %v", what, warnings, err)
			return
		}
		for _, want := range []string{"s1 is the home shard", "2 in all", `public."odd ones"`, "public.jobs", "--table"} {
			if !strings.Contains(warnings[0], want) {
				t.Errorf("%s: %q is missing in %s", what, want, warnings[0])
			}
		}
		if strings.Contains(warnings[0], "public.moved") || strings.Contains(warnings[0], "public.a,") {
			t.Errorf("%s: tables that move are said to stay: %s", what, warnings[0])
		}
	}
	plan, err := p.PlanRebalance(t.Context(), api.PlanRebalance{Drain: "s1"})
	said("a drain", plan.Warnings, err)
	if !slices.ContainsFunc(plan.Moves, func(m api.RebalanceMove) bool { return slices.Equal(m.Tables, []string{"public.moved"}) }) {
		t.Errorf("the plan has %+v", plan.Moves)
	}
	list, err := p.StartMoves(t.Context(), api.StartMove{From: "s1", To: "s2", DryRun: true})
	said("a move of all", list.Warnings, err)
	if plan, err = p.PlanRebalance(t.Context(), api.PlanRebalance{Drain: "s2"}); err != nil || len(plan.Warnings) > 0 {
		t.Errorf("of another shard it says %q: %v", plan.Warnings, err)
	}
	if list, err = p.StartMoves(t.Context(), api.StartMove{From: "s1", To: "s2", Keyspace: "default_bigint", DryRun: true}); err != nil || len(list.Warnings) > 0 {
		t.Errorf("of a keyspace alone it says %q: %v", list.Warnings, err)
	}
}
