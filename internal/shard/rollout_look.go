package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// RolloutLook looks up on the home shard what a roll-out names, under the roll-out's search path.
type RolloutLook struct{ tx pgx.Tx }

// LookForRollout calls work with a look that ends with it.
func LookForRollout(ctx context.Context, conn *pgx.Conn, searchPath string, work func(*RolloutLook) error) error {
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT set_config('search_path', $1, true)", searchPath); err != nil {
			return err
		}
		return work(&RolloutLook{tx})
	})
}

// FoundRelation is a table, or an index of one.
type FoundRelation struct {
	// Name is its own, Table that of the table, the same for a table.
	Name, Table topology.TableName
	// Index: it is an index; Unique: a unique one; OfConstraint: it comes and goes with a constraint; Definition: what makes it.
	Index, Unique, OfConstraint bool
	Definition                  string
}

// Relation finds a table or an index by its name, as SQL writes it; nil if there is none.
func (l *RolloutLook) Relation(ctx context.Context, name string) (*FoundRelation, error) {
	var f FoundRelation
	err := l.tx.QueryRow(ctx, `
		SELECT n.nspname, c.relname, coalesce(tn.nspname, n.nspname), coalesce(t.relname, c.relname), i.indexrelid IS NOT NULL, coalesce(i.indisunique, false),
			EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conindid = i.indexrelid), coalesce(pg_catalog.pg_get_indexdef(i.indexrelid), '')
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid
		LEFT JOIN pg_catalog.pg_class t ON t.oid = i.indrelid LEFT JOIN pg_catalog.pg_namespace tn ON tn.oid = t.relnamespace
		WHERE c.oid = pg_catalog.to_regclass($1)`, name).
		Scan(&f.Name.Schema, &f.Name.Name, &f.Table.Schema, &f.Table.Name, &f.Index, &f.Unique, &f.OfConstraint, &f.Definition)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for relation %s: %w", name, err)
	}
	return &f, nil
}

// Constraint finds a constraint of a table: its kind, as the catalogue has it, and what makes it; kind is empty if there is none.
func (l *RolloutLook) Constraint(ctx context.Context, table topology.TableName, name string) (kind, definition string, err error) {
	err = l.tx.QueryRow(ctx, "SELECT contype::text, pg_catalog.pg_get_constraintdef(oid) FROM pg_catalog.pg_constraint WHERE conrelid = pg_catalog.to_regclass($1) AND conname = $2",
		table.String(), name).Scan(&kind, &definition)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", "", nil
	}
	return kind, definition, err
}

// Statistics finds statistics by name, in the search path if no schema is given: their own name, whose they are, and what makes them.
// The name is empty if there are none.
func (l *RolloutLook) Statistics(ctx context.Context, schema, name string) (own, table topology.TableName, definition string, err error) {
	err = l.tx.QueryRow(ctx, `
		SELECT n.nspname, s.stxname, tn.nspname, t.relname, pg_catalog.pg_get_statisticsobjdef(s.oid)
		FROM pg_catalog.pg_statistic_ext s JOIN pg_catalog.pg_namespace n ON n.oid = s.stxnamespace
		JOIN pg_catalog.pg_class t ON t.oid = s.stxrelid JOIN pg_catalog.pg_namespace tn ON tn.oid = t.relnamespace
		WHERE s.stxname = $2 AND CASE WHEN $1 = '' THEN pg_catalog.pg_statistics_obj_is_visible(s.oid) ELSE n.nspname = $1 END`, schema, name).
		Scan(&own.Schema, &own.Name, &table.Schema, &table.Name, &definition)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return own, table, definition, err
}

// FirstSchema is where things without a schema are made.
func (l *RolloutLook) FirstSchema(ctx context.Context) (schema string, err error) {
	err = l.tx.QueryRow(ctx, "SELECT coalesce(pg_catalog.current_schema(), '')").Scan(&schema)
	return schema, err
}

// MayChange says whether a role may change a table: it must own it, or be a superuser.
func (l *RolloutLook) MayChange(ctx context.Context, role string, table topology.TableName) error {
	var may bool
	err := l.tx.QueryRow(ctx, `
		SELECT r.rolsuper OR pg_catalog.pg_has_role(r.oid, c.relowner, 'USAGE')
		FROM pg_catalog.pg_roles r, pg_catalog.pg_class c WHERE r.rolname = $1 AND c.oid = pg_catalog.to_regclass($2)`, role, table.String()).Scan(&may)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("see whether role %q owns table %s: %w", role, table, err)
	}
	if !may {
		return pgerr.New(pgerr.InsufficientPrivilege, "must be owner of table %s", table.Name).WithDetail("Role %q is neither the owner nor a superuser.", role)
	}
	return nil
}

// Owner of a table.
func (l *RolloutLook) Owner(ctx context.Context, table topology.TableName) (owner string, err error) {
	err = l.tx.QueryRow(ctx, "SELECT pg_catalog.pg_get_userbyid(relowner) FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass($1)", table.String()).Scan(&owner)
	return owner, err
}

// IndexProgress is how far the indexes are that are being made on one of the tables, in PostgreSQL's words; empty if there are none.
func IndexProgress(ctx context.Context, conn *pgx.Conn, tables []topology.TableName) (phase string, err error) {
	names := make([]string, len(tables))
	for i, table := range tables {
		names[i] = table.String()
	}
	err = conn.QueryRow(ctx, `
		SELECT p.phase || CASE WHEN p.blocks_total > 0 THEN pg_catalog.format(', %s of %s blocks', p.blocks_done, p.blocks_total) ELSE '' END
			|| CASE WHEN p.lockers_total > 0 THEN pg_catalog.format(', %s of %s transactions waited for', p.lockers_done, p.lockers_total) ELSE '' END
		FROM pg_catalog.pg_stat_progress_create_index p
		WHERE p.datname = pg_catalog.current_database() AND p.relid IN (SELECT pg_catalog.to_regclass(name) FROM pg_catalog.unnest($1::text[]) AS name) LIMIT 1`, names).Scan(&phase)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return phase, err
}
