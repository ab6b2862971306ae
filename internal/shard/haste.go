package shard

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Haste says whether what is done waits for the disk.
type Haste bool

const (
	// Lasting work is durable when it is done.
	Lasting Haste = false
	// AtOnce has whatever the same connection does next, and waits for the disk, make it durable.
	AtOnce Haste = true
)

// do runs a statement in a transaction of its own, and reads the first row of its answer if somebody wants to know it.
func (h Haste) do(ctx context.Context, on *pgx.Conn, into any, sql string, arguments ...any) error {
	batch := &pgx.Batch{} // it is one transaction
	if h {
		batch.Queue("SELECT set_config('synchronous_commit', 'off', true)")
	}
	if query := batch.Queue(sql, arguments...); into != nil {
		query.QueryRow(func(row pgx.Row) error { return row.Scan(into) })
	}
	return on.SendBatch(ctx, batch).Close()
}

// Harden makes durable what was done on the server without waiting for the disk.
func Harden(ctx context.Context, on *pgx.Conn) error {
	if _, err := on.Exec(ctx, "BEGIN; SET LOCAL synchronous_commit = on; SELECT pg_logical_emit_message(true, 'cleave', ''::text); COMMIT"); err != nil { // it has to write something to wait for the disk
		return fmt.Errorf("wait for the disk: %w", err)
	}
	return nil
}
