package shard

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Health is how an instance is.
type Health struct {
	ServerVersion string
	// MapVersion is the version that the shard has recorded, 0 if it has recorded none.
	MapVersion uint64
	// MaxConnections of the server, and how many of them are kept for superusers and such.
	MaxConnections, ReservedConnections int
	// InRecovery: it is a replica.
	InRecovery bool
	// Receiving: a replica is connected to its primary. One that is not has nothing to replay, and no lag.
	Receiving bool
	// ReplayLag is how long ago the last transaction was committed that a replica has replayed; 0 while it has replayed
	// everything that it has received.
	ReplayLag time.Duration
	// DeclarationPrepared: a declaration of tables has a prepared transaction here.
	DeclarationPrepared bool
	// MaxPrepared is how many transactions can be prepared at once.
	MaxPrepared int
	// Prepared are the transactions that are prepared in the database, whoever made them, the oldest first; but for those of declarations.
	Prepared []PreparedTransaction
	// Standbys is how many follow, and Synchronous says whether a commit waits for one.
	Standbys    int
	Synchronous bool
	// Lost is of how many transactions over several shards something is known to be lost.
	Lost int
	// Timeline that a primary writes, 0 of a replica, and when the server was started.
	Timeline int
	Started  time.Time
	// Copies are the findings about copies of reference tables that are kept here, if it is the home shard.
	Copies []CopyFinding
}

// PreparedTransaction is a transaction that waits for its end, with its locks.
type PreparedTransaction struct {
	GID string
	Age time.Duration
}

// Ping takes a cheap look at an instance, a primary or a replica.
func Ping(ctx context.Context, conn *pgx.Conn) (Health, error) {
	const query = `
		SELECT current_setting('server_version'), current_setting('max_connections')::int,
		       current_setting('superuser_reserved_connections')::int + coalesce(current_setting('reserved_connections', true)::int, 0),
		       pg_is_in_recovery(), pg_is_in_recovery() AND EXISTS (SELECT FROM pg_stat_wal_receiver),
		       CASE WHEN pg_is_in_recovery() AND pg_last_wal_receive_lsn() > pg_last_wal_replay_lsn()
		            THEN greatest(extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()), 0)::float8 ELSE 0 END,
		       EXISTS (SELECT FROM pg_prepared_xacts WHERE database = current_database() AND starts_with(gid, $1)),
		       current_setting('max_prepared_transactions')::int,
		       (SELECT count(*) FROM pg_stat_replication r WHERE NOT EXISTS (SELECT FROM pg_replication_slots l WHERE l.active_pid = r.pid AND l.slot_type = 'logical')),
		       current_setting('synchronous_standby_names') <> '',
		       CASE WHEN pg_is_in_recovery() THEN 0 ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int END, pg_postmaster_start_time()`
	var h Health
	var lag *float64 // nothing has been replayed since the replica's start
	if err := conn.QueryRow(ctx, query, declarationPrefix).Scan(&h.ServerVersion, &h.MaxConnections, &h.ReservedConnections, &h.InRecovery, &h.Receiving, &lag, &h.DeclarationPrepared,
		&h.MaxPrepared, &h.Standbys, &h.Synchronous, &h.Timeline, &h.Started); err != nil {
		return Health{}, fmt.Errorf("ping: %w", err)
	}
	var err error
	if h.Prepared, err = listPrepared(ctx, conn); err != nil {
		return Health{}, fmt.Errorf("ping: %w", err)
	}
	if err := conn.QueryRow(ctx, "SELECT count(*) FROM cleave.commits WHERE lost IS NOT NULL").Scan(&h.Lost); err != nil && !notThere(err) {
		return Health{}, fmt.Errorf("ping: %w", err)
	}
	if h.Copies, err = copyFindings(ctx, conn); err != nil && !notThere(err) {
		return Health{}, fmt.Errorf("ping: %w", err)
	}
	if lag != nil {
		h.ReplayLag = time.Duration(*lag * float64(time.Second))
	}
	id, err := readIdentity(ctx, conn)
	if err != nil {
		return Health{}, fmt.Errorf("ping: read the recorded version: %w", err)
	}
	if id != nil {
		h.MapVersion = id.MapVersion
	}
	return h, nil
}

func listPrepared(ctx context.Context, conn *pgx.Conn) ([]PreparedTransaction, error) {
	rows, err := conn.Query(ctx, `
		SELECT gid, greatest(extract(epoch FROM clock_timestamp() - prepared), 0)::float8 FROM pg_prepared_xacts
		WHERE database = current_database() AND NOT starts_with(gid, $1) ORDER BY prepared`, declarationPrefix)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p PreparedTransaction, err error) {
		var seconds float64
		err = row.Scan(&p.GID, &seconds)
		p.Age = time.Duration(seconds * float64(time.Second))
		return p, err
	})
}
