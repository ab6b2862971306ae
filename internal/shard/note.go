package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// Note is what the home shard keeps of a declaration while it is under way, so that somebody else can finish it: DESIGN.md says how.
type Note struct {
	// ID is random.
	ID string
	// Version is that of the map which is to have the tables so.
	Version uint64
	Tables  []NotedTable
	// Hold is the hold on the tables that goes with it.
	Hold  string
	State NoteState
}

// NotedTable is what becomes of a table: nothing to be in the map, if it is to be undeclared.
type NotedTable struct {
	Name    topology.TableName  `json:"name"`
	Becomes *topology.TableSpec `json:"becomes"`
}

// NoteState is how far a declaration has come.
type NoteState string

// The states of a note.
const (
	// Pending: the map decides.
	Pending NoteState = "pending"
	// Decided: what is prepared is to be committed.
	Decided NoteState = "decided"
	// Undone: what is prepared is to be rolled back.
	Undone NoteState = "undone"
)

// declarationPrefix begins the names of prepared transactions of declarations.
const declarationPrefix = "cleave_declare_"

// GID is the name of its prepared transactions, the same on every shard.
func (n Note) GID(cluster string) string {
	return declarationPrefix + cluster + "_" + strconv.FormatUint(n.Version, 10) + "_" + n.ID
}

// IsIn says whether the map has the tables as the note says.
func (n Note) IsIn(m *topology.Map) bool {
	return !slices.ContainsFunc(n.Tables, func(t NotedTable) bool {
		have := m.Table(t.Name.Schema, t.Name.Name)
		if have == nil || t.Becomes == nil {
			return (have == nil) != (t.Becomes == nil)
		}
		return !equalJSON(have.Spec(), *t.Becomes)
	})
}

// ErrNoNote says that a note is not there in a state from which it can go on.
var ErrNoNote = errors.New("the declaration has been resolved by somebody else")

// Write puts a new note down.
func (n Note) Write(ctx context.Context, home *pgx.Conn) error {
	tables, err := json.Marshal(n.Tables)
	if err == nil {
		_, err = home.Exec(ctx, "INSERT INTO cleave.declarations (id, version, tables, hold, state) VALUES ($1, $2, $3, $4, $5)", n.ID, int64(n.Version), tables, n.Hold, string(Pending))
	}
	if err != nil {
		return fmt.Errorf("note the declaration: %w", err)
	}
	return nil
}

// Mark changes the state of a pending note; one that has that state already keeps it. Anything else is [ErrNoNote].
func (n Note) Mark(ctx context.Context, home *pgx.Conn, state NoteState) error {
	done, err := home.Exec(ctx, "UPDATE cleave.declarations SET state = $2 WHERE id = $1 AND state IN ($2, $3)", n.ID, string(state), string(Pending))
	if err == nil && done.RowsAffected() == 0 {
		err = ErrNoNote
	}
	if err != nil {
		return fmt.Errorf("mark the declaration as %s: %w", state, err)
	}
	return nil
}

// Remove takes the note away.
func (n Note) Remove(ctx context.Context, home *pgx.Conn) error {
	if _, err := home.Exec(ctx, "DELETE FROM cleave.declarations WHERE id = $1", n.ID); err != nil {
		return fmt.Errorf("remove the note of a declaration: %w", err)
	}
	return nil
}

// Notes reads all notes of the home shard, and forgets those that were undone long ago: nobody can have slept for so long.
func Notes(ctx context.Context, home *pgx.Conn) ([]Note, error) {
	notes, err := readNotes(ctx, home)
	if notThere(err) {
		return nil, nil // no declaration was ever made
	}
	if err != nil {
		return nil, fmt.Errorf("read the notes of declarations: %w", err)
	}
	return notes, nil
}

// IsNoted says whether there is a note of this identifier that is not undone.
func IsNoted(ctx context.Context, home *pgx.Conn, id string) (noted bool, err error) {
	err = home.QueryRow(ctx, "SELECT EXISTS (SELECT FROM cleave.declarations WHERE id = $1 AND state <> 'undone')", id).Scan(&noted)
	if notThere(err) {
		return false, nil // no declaration was ever made
	}
	if err != nil {
		return false, fmt.Errorf("look for the note of a declaration: %w", err)
	}
	return noted, nil
}

func readNotes(ctx context.Context, home *pgx.Conn) ([]Note, error) {
	if _, err := home.Exec(ctx, "DELETE FROM cleave.declarations WHERE state = 'undone' AND at < now() - interval '7 days'"); err != nil {
		return nil, err
	}
	rows, err := home.Query(ctx, "SELECT id, version, tables, hold, state FROM cleave.declarations ORDER BY at, id")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (n Note, err error) {
		var tables []byte
		if err = row.Scan(&n.ID, &n.Version, &tables, &n.Hold, &n.State); err == nil {
			err = json.Unmarshal(tables, &n.Tables)
		}
		return n, err
	})
}

// PreparedDeclarations lists the names of the cluster's transactions that declarations have left prepared in the database.
func PreparedDeclarations(ctx context.Context, conn *pgx.Conn, cluster string) ([]string, error) {
	rows, err := conn.Query(ctx, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND starts_with(gid, $1) ORDER BY gid", declarationPrefix+cluster+"_")
	if err != nil {
		return nil, fmt.Errorf("list prepared transactions: %w", err)
	}
	gids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list prepared transactions: %w", err)
	}
	return gids, nil
}

// NoteID returns the identifier of the note in the name of a prepared transaction.
func NoteID(gid string) string { return gid[strings.LastIndexByte(gid, '_')+1:] }

// PrepareTransaction prepares the connection's transaction under a name.
func PrepareTransaction(ctx context.Context, tx pgx.Tx, gid string) error {
	if _, err := tx.Exec(ctx, "PREPARE TRANSACTION "+sqltext.QuoteLiteral(gid)); err != nil {
		return fmt.Errorf("prepare the transaction: %w", err)
	}
	return nil
}

// FinishPrepared commits a prepared transaction, or rolls it back; one that is not there is finished.
func FinishPrepared(ctx context.Context, conn *pgx.Conn, gid string, commit bool) error {
	verb := "ROLLBACK"
	if commit {
		verb = "COMMIT"
	}
	_, err := conn.Exec(ctx, verb+" PREPARED "+sqltext.QuoteLiteral(gid))
	var refused *pgconn.PgError
	if err == nil || errors.As(err, &refused) && refused.Code == codeUndefinedObject {
		return nil
	}
	return fmt.Errorf("finish the prepared transaction %s: %w", gid, err)
}
