package txn

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/topology"
)

// asRole logs in as usual, as another role.
func asRole(connect func(context.Context, topology.ShardSpec) (*pgx.Conn, error), role string) func(context.Context, topology.ShardSpec) (*pgx.Conn, error) {
	return func(ctx context.Context, spec topology.ShardSpec) (*pgx.Conn, error) {
		spec.User = role
		return connect(ctx, spec)
	}
}

// followed gives a shard a replica.
func followed(t testing.TB, w *world, number int) *localpg.Server {
	t.Helper()
	return pgtest.StartReplica(t, w.servers[number-1])
}

// caughtUp returns when the replica of a shard has all that there is.
func caughtUp(t testing.TB, w *world, number int) {
	t.Helper()
	now := one[string](t, w.conns[number-1], "SELECT pg_current_wal_lsn()::text")
	eventually(t, "the replica has caught up", func() bool {
		return one[bool](t, w.conns[number-1], "SELECT coalesce(bool_and(replay_lsn >= $1::pg_lsn), false) FROM pg_stat_replication", now)
	})
}

// cutOff lets a replica hear nothing more of its primary.
func cutOff(t testing.TB, replica *localpg.Server) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), replica.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	execute(t, conn, "ALTER SYSTEM SET primary_slot_name = 'nowhere'", "SELECT pg_reload_conf()")
	eventually(t, "the replica is cut off", func() bool { return one[int](t, conn, "SELECT count(*) FROM pg_stat_wal_receiver") == 0 })
}

// promote lets the replica of a shard take its place; the primary is gone.
func promote(t testing.TB, w *world, number int, replica *localpg.Server) {
	t.Helper()
	if err := w.servers[number-1].Crash(); err != nil {
		t.Fatal(err)
	}
	if err := replica.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.moved(t, number, replica)
}
