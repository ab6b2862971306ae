package cluster_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/test/cluster"
)

// TestADeclarationIsCancelled wherever it waits: the client hears so, nothing of it is left, and the table can be used and declared at once.
func TestADeclarationIsCancelled(t *testing.T) {
	c := cluster.StartRouters(t, 3, 2)
	client, other := c.Routers[0].Dial(t), c.Routers[1].Dial(t)
	shards := make([]*pgx.Conn, len(c.Shards))
	for i := range shards {
		shards[i] = c.Direct(t, i)
	}
	mustExec(t, client, "CREATE TABLE big (id bigint PRIMARY KEY, note text)")
	mustExec(t, client, "INSERT INTO big SELECT i, 'a row of some length, number ' || i FROM generate_series(1, 250000) AS i")
	const waits = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name LIKE 'cleave/declare%')"
	for _, s := range []struct {
		name, block, call, see string
		at                     int // the shard on which it can be seen, and on which somebody is in the way
	}{
		{"waiting for a lock", "LOCK TABLE big", "SELECT cleave.shard_table('big', 'id')", waits, 0},
		{"making the table elsewhere", "CREATE TABLE big ()", "SELECT cleave.shard_table('big', 'id')", waits, 2},
		{"copying the rows", "", "SELECT cleave.shard_table('big', 'id')", "SELECT EXISTS (SELECT FROM pg_stat_progress_copy WHERE tuples_processed > 0)", 0},
		{"copying all rows", "", "SELECT cleave.reference_table('big')", "SELECT EXISTS (SELECT FROM pg_stat_progress_copy WHERE tuples_processed > 0)", 0},
	} {
		t.Run(s.name, func(t *testing.T) {
			blocker := c.Direct(t, s.at)
			if s.block != "" {
				mustExec(t, blocker, "BEGIN")
				mustExec(t, blocker, s.block)
			}
			ended := make(chan error, 1)
			go func() {
				_, err := client.Exec(t.Context(), s.call)
				ended <- err
			}()
			cluster.Eventually(t, "the declaration is under way", func() bool { return one[bool](t, shards[s.at], s.see) })
			if err := client.PgConn().CancelRequest(t.Context()); err != nil {
				t.Error(err)
			}
			var failure *pgconn.PgError
			if err := <-ended; !errors.As(err, &failure) || failure.Code != "57014" {
				t.Errorf("the client hears %v", err)
			}
			mustExec(t, blocker, "ROLLBACK")
			expect(t, other, "SELECT count(*) FROM big", "count; 250000")
			for i, conn := range shards {
				if gone := one[bool](t, conn, "SELECT to_regclass('big') IS NULL"); gone != (i > 0) {
					t.Errorf("shard %d has the table: %v", i+1, !gone)
				}
				cluster.Eventually(t, "no connection is left", func() bool {
					return one[int](t, conn, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'cleave/declare%'") == 0
				})
				expect(t, conn, "SELECT count(*) FROM pg_prepared_xacts", "count; 0")
				expect(t, conn, "SELECT count(*) FROM cleave.declarations", "count; 0")
			}
			mustExec(t, other, "UPDATE big SET note = 'x' WHERE id = 1")
		})
	}
	mustExec(t, client, "SELECT cleave.shard_table('big', 'id')")
	expect(t, other, "SELECT note FROM big WHERE id = 1", "note; x")
}
