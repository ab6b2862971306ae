package shard

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// UseOrigin marks what a session writes with a replication origin, which is made if it is not there: who follows the changes of the shard can leave out what comes from it. No other session can use the same one at that time.
func UseOrigin(ctx context.Context, conn *pgx.Conn, name string) error {
	_, err := conn.Exec(ctx, "SELECT pg_replication_origin_create($1) WHERE NOT EXISTS (SELECT FROM pg_replication_origin WHERE roname = $1)", name)
	if err == nil {
		_, err = conn.Exec(ctx, "SELECT pg_replication_origin_session_setup($1)", name)
	}
	if err != nil {
		return fmt.Errorf("mark what is written with a replication origin: %w", err)
	}
	return nil
}
