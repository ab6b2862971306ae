package shard

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/topology"
)

// CopyFinding is what the home shard keeps of a copy that differs, or that could not be compared.
type CopyFinding struct {
	Table, Shard string
	// Difference is nil if it is not known whether the copy differs.
	Difference *Difference
	// Reason says why it is not repaired, or not known.
	Reason string
}

// Note keeps it on the home shard.
func (f CopyFinding) Note(ctx context.Context, home executor) error {
	var missing, extra, changed *int64
	if d := f.Difference; d != nil {
		missing, extra, changed = &d.Missing, &d.Extra, &d.Changed
	}
	const query = `
		INSERT INTO cleave.copy_differences (table_name, shard, missing, extra, changed, reason) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (table_name, shard) DO UPDATE SET missing = excluded.missing, extra = excluded.extra, changed = excluded.changed, reason = excluded.reason, at = excluded.at`
	if _, err := home.Exec(ctx, query, f.Table, f.Shard, missing, extra, changed, f.Reason); err != nil {
		return fmt.Errorf("note that the copy of table %s on shard %q differs: %w", f.Table, f.Shard, err)
	}
	return nil
}

// copyFindings are those that are kept.
func copyFindings(ctx context.Context, home querier) ([]CopyFinding, error) {
	rows, err := home.Query(ctx, "SELECT table_name, shard, missing, extra, changed, reason FROM cleave.copy_differences ORDER BY table_name, shard")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (f CopyFinding, err error) {
		var missing, extra, changed *int64
		if err = row.Scan(&f.Table, &f.Shard, &missing, &extra, &changed, &f.Reason); err == nil && missing != nil && extra != nil && changed != nil {
			f.Difference = &Difference{*missing, *extra, *changed}
		}
		return f, err
	})
}

// ForgetCopies forgets what is kept of copies that are equal again.
func ForgetCopies(ctx context.Context, home executor, table topology.TableName, shards []string) error {
	if _, err := home.Exec(ctx, "DELETE FROM cleave.copy_differences WHERE table_name = $1 AND shard = ANY ($2)", table.String(), shards); err != nil {
		return fmt.Errorf("note that copies of table %s are equal: %w", table, err)
	}
	return nil
}

// KeepCopies forgets what is kept of tables and shards that are not among these any more.
func KeepCopies(ctx context.Context, home executor, tables, shards []string) error {
	if _, err := home.Exec(ctx, "DELETE FROM cleave.copy_differences WHERE table_name <> ALL ($1) OR shard <> ALL ($2)", tables, shards); err != nil {
		return fmt.Errorf("forget copies that are gone: %w", err)
	}
	return nil
}

// ServerState says which server this is, and on which timeline.
func ServerState(ctx context.Context, on querier) (state string, err error) {
	if err = on.QueryRow(ctx, "SELECT cleave.server_state()").Scan(&state); err != nil {
		return "", fmt.Errorf("ask which server it is: %w", err)
	}
	return state, nil
}

// NoteEqual keeps, on the shard that has the copy, that it was equal to the home shard's, and which server that was.
func NoteEqual(ctx context.Context, on executor, table topology.TableName, home string) error {
	const query = `
		INSERT INTO cleave.copies (table_name, home) SELECT $1, $2 WHERE NOT EXISTS (SELECT FROM cleave.copies WHERE table_name = $1 AND home = $2)
		ON CONFLICT (table_name) DO UPDATE SET home = excluded.home, at = excluded.at`
	if _, err := on.Exec(ctx, query, table.String(), home); err != nil {
		return fmt.Errorf("note that the copy of table %s is equal: %w", table, err)
	}
	return nil
}

// WasEqual says whether the shard's copy was once equal to that of the home shard, when that was this very server on this timeline.
func WasEqual(ctx context.Context, on querier, table topology.TableName, home string) (was bool, err error) {
	if err = on.QueryRow(ctx, "SELECT EXISTS (SELECT FROM cleave.copies WHERE table_name = $1 AND home = $2)", table.String(), home).Scan(&was); err != nil {
		return false, fmt.Errorf("ask whether the copy of table %s was equal: %w", table, err)
	}
	return was, nil
}
