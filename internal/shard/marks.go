package shard

import (
	"context"
	"fmt"
	"time"

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

// PassMark leaves a mark on one shard, waits until it has come to the other, and notes there, durably, that it has, and from where on the shard's own changes are its own.
func PassMark(ctx context.Context, from, to *pgx.Conn, move, mark, note string) error {
	if err := LeaveMark(ctx, from, move, mark); err != nil {
		return err
	}
	for pause := 500 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		tag, err := to.Exec(ctx, "INSERT INTO cleave.marks (move, mark) SELECT $1, $3 || pg_current_wal_insert_lsn() FROM cleave.marks WHERE move = $1 AND mark = $2 ON CONFLICT DO NOTHING", move, mark, note)
		if err != nil || tag.RowsAffected() > 0 {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("changes have not come over: %w", ctx.Err())
		}
	}
}

// LastNote is what stands behind the beginning of the last such note; empty if there is none.
func LastNote(ctx context.Context, conn *pgx.Conn, move, note string) (rest string, err error) {
	err = conn.QueryRow(ctx, "SELECT coalesce((SELECT substr(mark, length($2) + 1) FROM cleave.marks WHERE move = $1 AND starts_with(mark, $2) ORDER BY made DESC LIMIT 1), '')", move, note).Scan(&rest)
	if err != nil {
		return "", fmt.Errorf("look for a note: %w", err)
	}
	return rest, nil
}

// TakeLead has a shard know who carries a move out, by a number that is higher for every later leader, and ends the connections of those before, which may have slept. It returns when they are gone. Connections of a move
// are called application followed by their leader's number; each asks [Leads] when it begins. Whether the number is still the leader's is asked between the two: after that, any later one is noted here later.
func TakeLead(ctx context.Context, conn *pgx.Conn, move, application string, number int64, stillLeads func() error) error {
	if err := LeaveMark(ctx, conn, move, leadMark(number)); err != nil {
		return err
	}
	if err := stillLeads(); err != nil {
		_, _ = conn.Exec(ctx, "DELETE FROM cleave.marks WHERE move = $1 AND mark = $2", move, leadMark(number)) // it says nothing, and would be left
		return err
	}
	return EndOthers(ctx, conn, application, number)
}

// EndOthers ends the connections of a move's other leaders, and returns when they are gone.
func EndOthers(ctx context.Context, conn *pgx.Conn, application string, number int64) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		var left int
		err := conn.QueryRow(ctx, "SELECT count(CASE WHEN pg_terminate_backend(pid) THEN 1 ELSE 1 END) FROM pg_stat_activity WHERE starts_with(application_name, $1 || ' ') AND application_name <> $2", application, Application(application, number)).Scan(&left)
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("connections of an earlier leader do not end: %w", ctx.Err())
		}
	}
}

// Application is what connections of a move are called under a leader.
func Application(application string, number int64) string {
	return fmt.Sprintf("%s %d", application, number)
}

// MarkTravels is the condition of marks that are for the other shard: who leads, each shard is told by itself.
const MarkTravels = "NOT starts_with(mark, 'leader ')"

// leadMark sorts as its number does.
func leadMark(number int64) string { return fmt.Sprintf("leader %020d", number) }

// Leads says whether this number is the last one that a shard has heard of for a move.
func Leads(ctx context.Context, conn *pgx.Conn, move string, number int64) (leads bool, err error) {
	err = conn.QueryRow(ctx, "SELECT coalesce(max(mark COLLATE \"C\") = $2, false) FROM cleave.marks WHERE move = $1 AND starts_with(mark, 'leader ')", move, leadMark(number)).Scan(&leads)
	if err != nil {
		return false, fmt.Errorf("see who carries a move out: %w", err)
	}
	return leads, nil
}
