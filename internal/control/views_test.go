package control

import (
	"testing"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgerr"

	"github.com/cleavedb/cleave/internal/thorough"
)

// describedViews are the views of a server, with all that matters of them.
const describedViews = `SELECT coalesce(string_agg(format('%s %s %s %s %s', c.oid::regclass, pg_get_viewdef(c.oid), pg_get_userbyid(c.relowner), c.reloptions, (SELECT array_agg(a::text ORDER BY a::text) FROM unnest(c.relacl) AS a)), E'\n' ORDER BY c.relname), '')
	FROM pg_class c WHERE c.relkind = 'v' AND c.relnamespace IN ('public'::regnamespace, coalesce(to_regnamespace('app'), 0)) AND c.relname <> 'mixed'`

// TestViewsGoWhereTheirTablesAre: to shards that get the tables, in whatever order, and away again with them.
func TestViewsGoWhereTheirTablesAre(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	servers := model.StartN(t, 3)
	p := startRouter(t, startEtcd(t), "router")
	clusterOf(t, p, servers[:2])
	for _, s := range servers {
		execute(t, s, "CREATE ROLE painter; CREATE ROLE reader")
	}
	execute(t, servers[0], `CREATE TABLE countries (code text PRIMARY KEY); CREATE TABLE users (id bigint PRIMARY KEY, country text); CREATE TABLE plain (id bigint); CREATE SCHEMA app;
		CREATE FUNCTION app.short(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT left($1, 2)'; CREATE TYPE app.mood AS ENUM ('fine');
		CREATE VIEW mixed AS SELECT u.id FROM users u JOIN plain p ON p.id = u.id;
		CREATE VIEW by_country WITH (security_barrier) AS SELECT app.short(country) AS country, count(*) AS n, 'fine'::app.mood AS mood FROM users GROUP BY 1;
		CREATE VIEW app.lands (land) AS SELECT c.code FROM countries c JOIN users u ON u.country = c.code; CREATE VIEW over AS SELECT land FROM app.lands;
		CREATE OR REPLACE VIEW over AS SELECT land FROM app.lands WHERE land IN (SELECT country FROM by_country); ALTER VIEW over OWNER TO painter; GRANT SELECT ON by_country TO reader; GRANT SELECT (n) ON by_country TO painter`)
	shardTable(t, p, sharding(t, "users", "id"))
	if got := one[int](t, servers[1], "SELECT count(*)::int FROM pg_views WHERE schemaname IN ('public', 'app')"); got != 1 {
		t.Errorf("beside users there are %d views on the other shard", got)
	}
	if _, err := p.ReferenceTables(t.Context(), tablesNamed(t, "countries")); err != nil {
		t.Fatal(err)
	}
	expectViews := func(s *localpg.Server, when string) {
		t.Helper()
		want := one[string](t, servers[0], describedViews)
		if got := one[string](t, s, describedViews); got != want {
			t.Errorf("%s the views are\n%s\nnot\n%s", when, got, want)
		}
		if one[bool](t, s, "SELECT to_regclass('mixed') IS NOT NULL") {
			t.Errorf("%s there is a view of what is not there", when)
		}
	}
	expectViews(servers[1], "when all are declared")
	add(t, p, "s3", servers[2])
	expectViews(servers[2], "on a new shard")
	if _, err := p.RemoveShard(t.Context(), "s3"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.UndistributeTables(t.Context(), tablesNamed(t, "countries")); err != nil {
		t.Fatal(err)
	}
	if got := one[string](t, servers[1], "SELECT string_agg(viewname, ' ') FROM pg_views WHERE schemaname IN ('public', 'app')"); got != "by_country" {
		t.Errorf("without countries there are the views %s", got)
	}
	add(t, p, "s3", servers[2])
	if _, err := p.UndistributeTables(t.Context(), tablesNamed(t, "users")); err != nil {
		t.Fatal(err)
	}
	if got := one[int](t, servers[0], "SELECT count(*)::int FROM pg_views WHERE schemaname IN ('public', 'app')"); got != 4 {
		t.Errorf("the home shard has %d views left", got)
	}
}

// TestViewsOfPartitionsAndSequences: those of partitions go with their table; one of a sequence stays, and is in nobody's way.
func TestViewsOfPartitionsAndSequences(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	servers := model.StartN(t, 2)
	p := startRouter(t, startEtcd(t), "router")
	clusterOf(t, p, servers)
	execute(t, servers[0], `CREATE TABLE users (id bigint PRIMARY KEY); CREATE SEQUENCE numbers; CREATE VIEW counted AS SELECT u.id, n.last_value FROM users u, numbers n;
		CREATE TABLE logs (user_id bigint NOT NULL, day int NOT NULL) PARTITION BY RANGE (day); CREATE TABLE early PARTITION OF logs FOR VALUES FROM (0) TO (50); CREATE VIEW earliest AS SELECT user_id FROM early`)
	shardTable(t, p, sharding(t, "users", "id"))
	shardTable(t, p, sharding(t, "logs", "user_id"))
	if got := one[string](t, servers[1], "SELECT string_agg(viewname, ' ') FROM pg_views WHERE schemaname = 'public'"); got != "earliest" {
		t.Errorf("the other shard has the views %s", got)
	}
}

// TestPartitionsWithTriggersSwitchedOff are not carried over, or their rows would differ from shard to shard.
func TestPartitionsWithTriggersSwitchedOff(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	servers := model.StartN(t, 2)
	p := startRouter(t, startEtcd(t), "router")
	clusterOf(t, p, servers)
	execute(t, servers[0], `CREATE FUNCTION more() RETURNS trigger LANGUAGE plpgsql IMMUTABLE AS 'BEGIN NEW.day := NEW.day + 1; RETURN NEW; END';
		CREATE TABLE logs (user_id bigint NOT NULL, day int NOT NULL) PARTITION BY RANGE (day); CREATE TABLE early PARTITION OF logs FOR VALUES FROM (0) TO (50);
		CREATE TRIGGER more BEFORE INSERT ON logs FOR EACH ROW EXECUTE FUNCTION more(); ALTER TABLE early DISABLE TRIGGER more`)
	_, err := p.ShardTables(t.Context(), sharding(t, "logs", "user_id"))
	refusal(t, pgerr.FeatureNotSupported, err, "with a trigger that is off")
	execute(t, servers[0], "ALTER TABLE early ENABLE TRIGGER more")
	shardTable(t, p, sharding(t, "logs", "user_id"))
}
