package shard

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Standbys are those that follow a server as a whole, and could take its place.
type Standbys struct {
	// Any: there are some that are connected.
	Any bool
	// Behind are those, by name, that have not written to their disks what the server had when they were first looked at.
	Behind []string
}

// AwaitStandbys waits until all standbys that are connected have on their disks what the server has now, or until a time has passed. Who only keeps the server's WAL somewhere replays nothing, and is not waited for.
func AwaitStandbys(ctx context.Context, server *pgx.Conn, limit time.Duration) (found Standbys, err error) {
	began, upTo := time.Now(), ""
	for pause := 300 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		err := server.QueryRow(ctx, `
			WITH here AS (SELECT coalesce(nullif($1, '')::pg_lsn, pg_current_wal_flush_lsn()) AS lsn)
			SELECT (SELECT lsn::text FROM here), count(*) > 0, coalesce(array_agg(coalesce(nullif(r.application_name, ''), r.client_addr::text, 'of process ' || r.pid)) FILTER (WHERE r.flush_lsn IS NULL OR r.flush_lsn < (SELECT lsn FROM here)), '{}')
			FROM pg_stat_replication r LEFT JOIN pg_replication_slots s ON s.active_pid = r.pid WHERE s.slot_type IS DISTINCT FROM 'logical' AND r.state <> 'backup' AND r.replay_lsn IS NOT NULL`, upTo).Scan(&upTo, &found.Any, &found.Behind)
		if err != nil {
			return Standbys{}, fmt.Errorf("see how far standbys are: %w", err)
		}
		if len(found.Behind) == 0 || time.Since(began) > limit {
			return found, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return found, ctx.Err()
		}
	}
}
