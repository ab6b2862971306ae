package shard

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// foreignKey of one table to another, as the catalogue has it: pairs of columns, and the operators by which a referenced column is compared with the
// one that refers to it, and with another of its own kind.
type foreignKey struct {
	Name                string
	FromSchema, From    string
	ToSchema, To        string
	Columns, Referenced []string
	Pairs, AmongThem    []string
}

func (f foreignKey) from() topology.TableName {
	return topology.TableName{Schema: f.FromSchema, Name: f.From}
}
func (f foreignKey) to() topology.TableName {
	return topology.TableName{Schema: f.ToSchema, Name: f.To}
}

const foreignKeysQuery = `
	SELECT f.conname, fn.nspname, fc.relname, tn.nspname, tc.relname,
		ARRAY(SELECT a.attname::text FROM unnest(f.conkey) WITH ORDINALITY AS k (number, place) JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.number ORDER BY k.place),
		ARRAY(SELECT a.attname::text FROM unnest(f.confkey) WITH ORDINALITY AS k (number, place) JOIN pg_attribute a ON a.attrelid = f.confrelid AND a.attnum = k.number ORDER BY k.place),
		ARRAY(SELECT format('OPERATOR(%I.%s)', n.nspname, o.oprname) FROM unnest(f.conpfeqop) WITH ORDINALITY AS k (id, place) JOIN pg_operator o ON o.oid = k.id JOIN pg_namespace n ON n.oid = o.oprnamespace ORDER BY k.place),
		ARRAY(SELECT format('OPERATOR(%I.%s)', n.nspname, o.oprname) FROM unnest(f.conppeqop) WITH ORDINALITY AS k (id, place) JOIN pg_operator o ON o.oid = k.id JOIN pg_namespace n ON n.oid = o.oprnamespace ORDER BY k.place)
	FROM pg_constraint f JOIN pg_class fc ON fc.oid = f.conrelid JOIN pg_namespace fn ON fn.oid = fc.relnamespace
		JOIN pg_class tc ON tc.oid = f.confrelid JOIN pg_namespace tn ON tn.oid = tc.relnamespace
	WHERE f.contype = 'f' AND f.conparentid = 0 AND (f.conrelid = $1::text::regclass OR f.confrelid = $1::text::regclass)
	ORDER BY fn.nspname, fc.relname, f.conname`

// checkReferences is for the end of a repair, when all tables of the transaction are mended. It refuses one after which a foreign key would not hold that
// does now: PostgreSQL does not look while rows are carried.
func (r *CopyRepair) checkReferences(ctx context.Context) error {
	rows, err := r.tx.Query(ctx, foreignKeysQuery, r.Definition.Table.String())
	if err != nil {
		return err
	}
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[foreignKey])
	if err != nil {
		return err
	}
	for _, key := range keys {
		if key.to() == r.Definition.Table {
			err = r.checkReferring(ctx, key)
		}
		if err == nil && key.from() == r.Definition.Table {
			err = r.checkReferred(ctx, key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkReferring refuses to take a row away to which others refer.
func (r *CopyRepair) checkReferring(ctx context.Context, key foreignKey) error {
	gone := fmt.Sprintf("SELECT o.* FROM %s AS o WHERE NOT EXISTS (SELECT FROM ONLY %s AS p WHERE %s)",
		r.temporary("old"), r.Definition.Table, matched("p", key.Referenced, key.AmongThem, "o", key.Referenced))
	var any bool
	if err := r.tx.QueryRow(ctx, "SELECT EXISTS ("+gone+")").Scan(&any); err != nil || !any {
		return err // and nobody has to read the other table, which may be large
	}
	var left int64
	err := r.tx.QueryRow(ctx, fmt.Sprintf("WITH gone AS MATERIALIZED (%s) SELECT count(*) FROM %s AS c WHERE EXISTS (SELECT FROM gone AS o WHERE %s)", //nolint:misspell // it is SQL
		gone, key.from(), matched("o", key.Referenced, key.Pairs, "c", key.Columns))).Scan(&left)
	if err != nil || left == 0 {
		return err
	}
	return pgerr.New(pgerr.ForeignKeyViolation, "rows of table %s refer to rows that this shard's copy of %s has and the home shard does not have", key.from(), r.Definition.Table).
		WithDetail("%d rows would refer to nothing, going by foreign key %q.", left, key.Name).
		WithHint("Insert the rows of %s that are needed, through a router and with ON CONFLICT DO NOTHING, or change the rows that refer to them; then repair it again.", r.Definition.Table)
}

// checkReferred refuses to bring a row that refers to one that the shard does not have.
func (r *CopyRepair) checkReferred(ctx context.Context, key foreignKey) error {
	known := make([]string, len(key.Columns))
	for i, c := range newColumns("c", key.Columns) {
		known[i] = c + " IS NOT NULL"
	}
	var lost int64
	err := r.tx.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM %s AS c WHERE c.ctid IN (SELECT there FROM %s) AND %s AND NOT EXISTS (SELECT FROM %s AS p WHERE %s)",
		r.temporary("right"), r.temporary("differing"), strings.Join(known, " AND "), key.to(), matched("p", key.Referenced, key.Pairs, "c", key.Columns))).Scan(&lost)
	if err != nil || lost == 0 {
		return err
	}
	return pgerr.New(pgerr.ForeignKeyViolation, "rows that the copy of %s lacks refer to rows of table %s that the shard does not have", r.Definition.Table, key.to()).
		WithDetail("%d rows would refer to nothing, going by foreign key %q.", lost, key.Name).
		WithHint("Repair table %s too, or first.", key.to())
}

// matched says that columns of two rows are equal, pair by pair.
func matched(left string, leftColumns, operators []string, right string, rightColumns []string) string {
	pairs := make([]string, len(operators))
	for i, operator := range operators {
		pairs[i] = fmt.Sprintf("%s.%s %s %s.%s", left, sqltext.QuoteIdentifier(leftColumns[i]), operator, right, sqltext.QuoteIdentifier(rightColumns[i]))
	}
	return strings.Join(pairs, " AND ")
}
