package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// notesOfMoves is the step of the schema for what moves note on one shard alone. It may be long, as the names of some hundred tables are, and a mark is a part of an index, whose entries have to fit on a page.
const notesOfMoves = `
	CREATE TABLE cleave.move_notes (
		move    text,
		note    text,
		content text NOT NULL,
		PRIMARY KEY (move, note)
	);
	COMMENT ON TABLE cleave.move_notes IS 'what moves have to find again on this shard: what they are, and where sequences stood that give no numbers meanwhile';
	REVOKE ALL ON cleave.move_notes FROM PUBLIC;
	INSERT INTO cleave.move_notes SELECT DISTINCT ON (move) move, 'move', substr(mark, 6) FROM cleave.marks WHERE starts_with(mark, 'move ') ORDER BY move, made DESC;
	INSERT INTO cleave.move_notes SELECT DISTINCT ON (move) move, 'numbers', substr(mark, 9) FROM cleave.marks WHERE starts_with(mark, 'numbers ') ORDER BY move, made;
	DELETE FROM cleave.marks WHERE starts_with(mark, 'move ') OR starts_with(mark, 'numbers ');`

// The notes of a move.
const (
	moveNote    = "move"    // what it is
	numbersNote = "numbers" // where sequences stood that give no numbers any more
)

// writeNote takes the place of what was noted before.
func writeNote(ctx context.Context, on executor, move, note string, content []byte) error {
	_, err := on.Exec(ctx, "INSERT INTO cleave.move_notes (move, note, content) VALUES ($1, $2, $3) ON CONFLICT (move, note) DO UPDATE SET content = excluded.content", move, note, string(content))
	return err
}

// readNote is empty if nothing is noted.
func readNote(ctx context.Context, on querier, move, note string) (content string, err error) {
	err = on.QueryRow(ctx, "SELECT content FROM cleave.move_notes WHERE move = $1 AND note = $2", move, note).Scan(&content)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return content, err
}

func forgetNote(ctx context.Context, on executor, move, note string) error {
	_, err := on.Exec(ctx, "DELETE FROM cleave.move_notes WHERE move = $1 AND note = $2", move, note)
	return err
}

// NoteMove has a shard know what a move is: whoever has lost the store that knows of it can end it then.
func NoteMove(ctx context.Context, conn *pgx.Conn, move string, description []byte) error {
	if err := writeNote(ctx, conn, move, moveNote, description); err != nil {
		return fmt.Errorf("note what a move is: %w", err)
	}
	return nil
}
