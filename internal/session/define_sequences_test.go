package session

import (
	"testing"

	"github.com/cleavedb/cleave/internal/topology"
)

// TestSequencesOfDeclaredTables: who may use a declared table's sequence is the same on every shard, and what it counts is not changed on one.
func TestSequencesOfDeclaredTables(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{
		noPlain: true,
		setUp:   []string{"CREATE TABLE parcels (id bigserial, k bigint PRIMARY KEY)", "CREATE ROLE reader"},
		tables:  []topology.TableSpec{{Name: "public.parcels", Kind: topology.Sharded, Keyspace: "main", Key: []string{"k"}}},
	})
	client := dialRaw(t, w.address, nil)
	everywhere := func(sql, looked, want string) {
		t.Helper()
		client.query(sql)
		for i := range w.shards {
			if got := one[string](t, w.onShard(t, i+1), looked); got != want {
				t.Errorf("after %s shard %d has %q, not %q", sql, i+1, got, want)
			}
		}
	}
	const may = "SELECT has_sequence_privilege('reader', 'parcels_id_seq', 'USAGE')::text"
	everywhere("GRANT USAGE ON SEQUENCE parcels_id_seq TO reader", may, "true")
	everywhere("REVOKE USAGE ON SEQUENCE parcels_id_seq FROM reader", may, "false")
	everywhere("GRANT USAGE ON parcels_id_seq TO reader", may, "true")
	everywhere("ALTER SEQUENCE parcels_id_seq CACHE 5", "SELECT seqcache::text FROM pg_sequence WHERE seqrelid = 'parcels_id_seq'::regclass", "5")
	everywhere("COMMENT ON SEQUENCE parcels_id_seq IS 'x'", "SELECT coalesce(obj_description('parcels_id_seq'::regclass), '')", "x")
	for _, sql := range []string{"ALTER SEQUENCE parcels_id_seq RESTART", "ALTER SEQUENCE parcels_id_seq RENAME TO x", "ALTER SEQUENCE parcels_id_seq OWNED BY NONE", "DROP SEQUENCE parcels_id_seq CASCADE"} {
		wantCodes(t, client.query(sql), "0A000", "ready I")
	}
	w.settled(t)
}
