package shard

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// marksLeft is the step of the schema for marks: rows that are written on one shard and published with a move, so that whoever sees one on the other shard knows that all that was committed before it has
// come there too.
const marksLeft = `
	CREATE TABLE cleave.marks (
		move text,
		mark text,
		made timestamptz NOT NULL DEFAULT now(),
		PRIMARY KEY (move, mark)
	);
	COMMENT ON TABLE cleave.marks IS 'how far the changes of moves have come: a mark is written on one shard, and arrives on the other behind all that was written before';
	REVOKE ALL ON cleave.marks FROM PUBLIC;`

// LeaveMark writes a mark, durably.
func LeaveMark(ctx context.Context, conn *pgx.Conn, move, mark string) error {
	_, err := conn.Exec(ctx, "INSERT INTO cleave.marks (move, mark) VALUES ($1, $2) ON CONFLICT DO NOTHING", move, mark)
	if err != nil {
		return fmt.Errorf("leave a mark: %w", err)
	}
	return nil
}

// HasMark says whether a mark has arrived, or was left here.
func HasMark(ctx context.Context, conn *pgx.Conn, move, mark string) (has bool, err error) {
	if err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM cleave.marks WHERE move = $1 AND mark = $2)", move, mark).Scan(&has); err != nil {
		return false, fmt.Errorf("look for a mark: %w", err)
	}
	return has, nil
}

// DropMarks removes what a move has left.
func DropMarks(ctx context.Context, conn *pgx.Conn, move string) error {
	if _, err := conn.Exec(ctx, "DELETE FROM cleave.marks WHERE move = $1", move); err != nil {
		return fmt.Errorf("remove marks: %w", err)
	}
	return nil
}
