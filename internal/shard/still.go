package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/sqltext"
)

// Still is what a server's tables were at one moment. One connection holds the snapshot, and another one reads with it, each part in a transaction of its own: who wants to lock a table does not wait for all of it to be read. While there is
// a still, vacuum removes nothing that was deleted since.
type Still struct {
	reads, holds *pgx.Conn
	snapshot     string
}

// TakeStill takes one, with connections whose sessions have the [CompareSettings]. Nothing else may use the one that holds it until it is closed.
func TakeStill(ctx context.Context, reads, holds *pgx.Conn) (*Still, error) {
	s := &Still{reads: reads, holds: holds}
	_, err := holds.Exec(ctx, noticesSoon+"; BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
	if err == nil {
		err = holds.QueryRow(ctx, "SELECT pg_export_snapshot()").Scan(&s.snapshot)
	}
	if err != nil {
		s.Close(ctx)
		return nil, fmt.Errorf("take a snapshot: %w", err)
	}
	return s, nil
}

// noticesSoon has a server notice within minutes that nobody is there any more for whom it keeps a snapshot.
const noticesSoon = "SET tcp_keepalives_idle = 60; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 6"

// stillPatience is how long a server may take to end a transaction that has done nothing.
const stillPatience = 5 * time.Second

// ErrKeptTooLong says that a still has kept from vacuum what was deleted during as many transactions as a server has at most before it vacuums tables whatever that costs.
var ErrKeptTooLong = errors.New("the shard has had as many transactions since the comparison began as autovacuum_freeze_max_age allows, and nothing that they have deleted could be vacuumed")

// mayStay fails when there has been a still for too long.
func (s *Still) mayStay(ctx context.Context) error {
	var tooLong bool
	err := s.reads.QueryRow(ctx, "SELECT coalesce((SELECT age(backend_xmin) > current_setting('autovacuum_freeze_max_age')::bigint FROM pg_stat_activity WHERE pid = $1), false)", s.holds.PgConn().PID()).Scan(&tooLong)
	switch {
	case err != nil:
		return fmt.Errorf("see how old a snapshot is: %w", err)
	case tooLong:
		return ErrKeptTooLong
	}
	return nil
}

// Close lets go of the snapshot. If it cannot, that ends with its connection.
func (s *Still) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stillPatience)
	defer cancel()
	_, _ = s.holds.Exec(ctx, "ROLLBACK")
}

// read reads something.
func (s *Still) read(ctx context.Context, do func(on querier) error) error {
	return pgx.BeginTxFunc(ctx, s.reads, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET TRANSACTION SNAPSHOT "+sqltext.QuoteLiteral(s.snapshot)); err != nil {
			return err
		}
		return do(tx)
	})
}
