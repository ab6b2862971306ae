package moves_test

import (
	"testing"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/test/faults"
)

// TestATableIsWrittenAnewMeanwhile: VACUUM FULL in the middle of a clean-up puts rows that have still to go onto pages that it has passed. They go all the same, and whole tables are compared like others.
func TestATableIsWrittenAnewMeanwhile(t *testing.T) {
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 0)
	conn := s.client(t)
	execute(t, conn, "CREATE TABLE wide (id bigint PRIMARY KEY, filler text)")
	execute(t, conn, "CREATE TABLE alone (id bigint PRIMARY KEY, n bigint)")
	execute(t, conn, "INSERT INTO alone SELECT i, i FROM generate_series(1, 100) AS i")
	const rows = 8000
	if _, err := s.Routers[0].API().CreateKeyspace(t.Context(), api.CreateKeyspace{Name: "wide", Key: []string{"bigint"}}); err != nil {
		t.Fatal(err)
	}
	execute(t, conn, "SELECT cleave.shard_table('wide', 'id', keyspace => 'wide')")
	execute(t, conn, "INSERT INTO wide SELECT i, repeat('x', 200) FROM generate_series(1, $1::int) AS i", rows)
	const point = "move.cleaning.rows"
	s.order(t, point, 2) // so that some pages were passed
	id := s.start(t, api.StartMove{Keyspace: "wide", From: "s1", To: "s2"})
	s.reached(t, point)
	source := s.onShard(t, 1)
	execute(t, source, "VACUUM FULL wide")
	s.release(t, point)
	s.await(t, id, "done")
	var left, all int
	if err := source.QueryRow(t.Context(), "SELECT count(*) FROM wide").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d rows are left on the source, %v", left, err)
	}
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM wide").Scan(&all); err != nil || all != rows {
		t.Errorf("of %d rows %d are seen, %v", rows, all, err)
	}
	id = s.start(t, api.StartMove{Tables: []string{"alone"}, To: "s2", Manual: true})
	s.await(t, id, "ready")
	execute(t, s.onShard(t, 2), "UPDATE alone SET n = -1 WHERE id = 7")
	found := s.verify(t, api.Verify{})
	if len(found.Moves) != 1 || found.Moves[0].Rows != 100 || len(found.Moves[0].Keys) != 1 || found.Moves[0].Keys[0] != "(7)" {
		t.Errorf("a whole table's copy has another value: %+v", found.Moves)
	}
	s.wish(t, id, "cancel")
	s.await(t, id, "cancelled")
	s.clean(t)
}
