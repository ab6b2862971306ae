package control

import (
	"slices"
	"testing"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/thorough"
)

// TestPartitionedTables are declared with their partitions and rows, given to new shards, and brought back.
func TestPartitionedTables(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	servers := model.StartN(t, 3)
	p := startRouter(t, startEtcd(t), "router")
	clusterOf(t, p, servers[:2])
	for _, server := range servers {
		execute(t, server, "CREATE ROLE reader; CREATE ROLE keeper; CREATE SCHEMA aside")
	}
	execute(t, servers[0], `
		CREATE TABLE logs (user_id bigint NOT NULL, at timestamptz NOT NULL DEFAULT now(), n bigserial, note text CHECK (note <> ''), PRIMARY KEY (at, user_id)) PARTITION BY RANGE (at);
		CREATE TABLE logs_24 PARTITION OF logs FOR VALUES FROM ('2024-01-01Z') TO ('2025-01-01Z') WITH (fillfactor = 70);
		CREATE TABLE aside."Of 25" PARTITION OF logs FOR VALUES FROM ('2025-01-01Z') TO ('2026-01-01Z') PARTITION BY HASH (user_id);
		CREATE TABLE logs_25a PARTITION OF aside."Of 25" FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE TABLE logs_25b PARTITION OF aside."Of 25" FOR VALUES WITH (MODULUS 2, REMAINDER 1);
		CREATE TABLE logs_rest PARTITION OF logs DEFAULT;
		CREATE INDEX ON logs (note); CREATE UNIQUE INDEX other ON logs (user_id, at, n) WHERE note <> 'x';
		GRANT SELECT ON logs, logs_24 TO reader; ALTER TABLE logs_rest OWNER TO keeper;
		INSERT INTO logs SELECT i % 50, '2023-10-01Z'::timestamptz + i * '1 day'::interval, i, 'note ' || i FROM generate_series(1, 900) AS i`)
	before := content(t, servers[:1], "logs")
	shardTable(t, p, sharding(t, "logs", "user_id"))
	add(t, p, "s3", servers[2])
	if got := content(t, servers, "logs"); !slices.Equal(got, before) {
		t.Errorf("there are %d rows, not %d, or others", len(got), len(before))
	}
	const tree = "SELECT string_agg(relid || ' ' || coalesce(pg_get_expr(c.relpartbound, c.oid), '') || ' ' || c.relowner::regrole || coalesce(c.relacl::text, '') || coalesce(c.reloptions::text, ''), '; ' ORDER BY relid::text) FROM pg_partition_tree('logs') JOIN pg_class c ON c.oid = relid"
	for i, server := range servers {
		if one[string](t, server, tree) != one[string](t, servers[0], tree) || described(t, server, "logs") != described(t, servers[0], "logs") {
			t.Errorf("shard %d has other partitions: %s", i+1, one[string](t, server, tree))
		}
		if i < 2 && one[int](t, server, "SELECT count(*) FROM logs") == 0 {
			t.Errorf("shard %d has no rows", i+1)
		}
	}
	eventually(t, "all shards have recorded the map", p.settled)
	expectNoFindings(t, p)
	_, err := asRouter(t, servers[2]).Exec(t.Context(), "INSERT INTO logs_24 VALUES (1, '2024-02-02Z', 1000)")
	refusedBy(t, pgerr.NotOwned, err)
	if _, err := p.RemoveShard(t.Context(), "s3"); err != nil {
		t.Fatal(err)
	}
	if one[bool](t, servers[2], "SELECT to_regclass('logs_24') IS NOT NULL") {
		t.Error("a shard that was removed keeps partitions")
	}
	if _, err := p.UndistributeTables(t.Context(), tablesNamed(t, "logs")); err != nil {
		t.Fatal(err)
	}
	if got := content(t, servers[:1], "logs"); !slices.Equal(got, before) {
		t.Errorf("on the way back there are %d rows, not %d, or others", len(got), len(before))
	}
}
