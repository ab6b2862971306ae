package session

import (
	"testing"

	"github.com/cleavedb/cleave/internal/topology"
)

// TestPartitionsOfShardedTables are queried and written by their own names and through their table, made, emptied and dropped, on all shards.
func TestPartitionsOfShardedTables(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3, setUp: []string{
		"CREATE TABLE logs (id bigint NOT NULL, at date NOT NULL, note text, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)",
		"CREATE TABLE logs_24 PARTITION OF logs FOR VALUES FROM ('2024-01-01') TO ('2025-01-01')",
		"CREATE TABLE logs_rest PARTITION OF logs DEFAULT",
	}, tables: []topology.TableSpec{{Name: "public.logs", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}}}})
	w.sameButOrder(t, texts(
		"INSERT INTO logs SELECT i, '2024-06-01'::date + i, 'n' || i % 9 FROM generate_series(1, 400) AS i",
		"CREATE VIEW recent AS SELECT id, note FROM logs WHERE at > '2024-06-05'", "SELECT * FROM recent WHERE id = 77", "SELECT count(*), max(note) FROM recent", "DROP VIEW recent", "CREATE VIEW recent AS SELECT 1", "DROP VIEW recent",
		"SELECT count(*), min(at), max(at) FROM logs_24", "SELECT note, count(*) FROM logs_rest GROUP BY note",
		"INSERT INTO logs_24 VALUES (1001, '2024-01-01', 'a'), (1002, '2024-01-02', 'b'), (1003, '2024-01-03', 'c') RETURNING id",
		"INSERT INTO logs_24 VALUES (1004, '2025-01-01', 'a')",
		"UPDATE logs SET at = '2026-01-01' WHERE note = 'a' RETURNING id, at", "UPDATE logs_24 SET note = 'x' WHERE id = 1002", "UPDATE logs_24 SET at = '2026-01-01' WHERE id = 1002",
		"SELECT l.id FROM logs_rest l JOIN logs m ON m.id = l.id + 0 WHERE l.note = 'n3'", "DELETE FROM logs_rest WHERE note = 'n3'",
		"CREATE TABLE logs_27 PARTITION OF logs FOR VALUES FROM ('2027-01-01') TO ('2028-01-01') PARTITION BY HASH (id)", "CREATE TABLE logs_27x PARTITION OF logs_27 FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
		"INSERT INTO logs_27 VALUES (5, '2027-01-05', 'x'), (6, '2027-01-06', 'y')", "SELECT * FROM logs_27x",
		"BEGIN", "CREATE TABLE logs_28 PARTITION OF logs FOR VALUES FROM ('2028-01-01') TO ('2029-01-01')", "INSERT INTO logs_28 VALUES (7, '2028-01-05'), (8, '2028-01-05'), (9, '2028-01-05')",
		"SELECT count(*) FROM logs_28", "ROLLBACK", "SELECT count(*) FROM logs_28",
		"TRUNCATE logs_27", "SELECT count(*) FROM logs", "DROP TABLE logs_24", "SELECT count(*) FROM logs", "SELECT count(*) FROM logs_24", "INSERT INTO logs VALUES (1, '2024-02-02') RETURNING at", "DROP TABLE logs_27x",
		"DROP TABLE logs", "SELECT FROM logs_rest",
	)...)
	if n := one[int](t, w.onShard(t, 2), "SELECT count(*) FROM pg_class WHERE relname LIKE 'logs%'"); n > 0 {
		t.Errorf("%d relations are left", n)
	}
}
