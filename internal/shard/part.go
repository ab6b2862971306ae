package shard

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// Part is the rows of a table that a shard owns, as a condition in SQL.
type Part struct {
	table     topology.TableName
	ownership ownership
	columns   []string
	pins      []guardPin
	all       bool
}

// Part returns which rows of a table of the plan's map a shard has to have: of a reference table all.
func (p *Plan) Part(shard string, table topology.TableName) (Part, error) {
	s, t := p.m.Shard(shard), p.m.Table(table.Schema, table.Name)
	switch {
	case s == nil:
		return Part{}, &topology.NotFoundError{Kind: "shard", Name: shard}
	case t == nil:
		return Part{}, &topology.NotFoundError{Kind: "table", Name: table.String()}
	case t.Kind() != topology.Sharded:
		return Part{table: table, all: true}, nil
	}
	at := slices.IndexFunc(p.keyspaces, func(k keyspaceShares) bool { return k.keyspace.Name() == t.Keyspace().Name() })
	shares := p.keyspaces[at]
	part := Part{table: table, ownership: shares.ownership(s.Number()), columns: newColumns(rowAlias, t.KeyColumns())}
	for _, pin := range shares.guardPins(s.Number()) {
		part.pins = append(part.pins, pin)
	}
	return part, nil
}

// rowAlias stands for the table in the statements of a part.
const rowAlias = "t"

// recordedPins and carriedPins are where a condition finds the shard's pins: on the shard itself once it has recorded them, and where
// [Part.CarryPins] has put them on another one.
const (
	recordedPins = "cleave.guard_pins"
	carriedPins  = "pg_temp.cleave_part_pins"
)

// condition is the SQL condition over a row of the table.
func (p Part) condition(pins string) (string, error) {
	if p.all {
		return "true", nil
	}
	belongs, err := p.ownership.belongs(p.columns)
	if err != nil || len(p.pins) == 0 {
		return belongs.sql, err
	}
	hash, err := hashSQL(p.ownership.keyspace, p.columns)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("coalesce((SELECT p.here FROM %s p WHERE p.keyspace OPERATOR(pg_catalog.=) %s AND p.hash OPERATOR(pg_catalog.=) %s AND p.key OPERATOR(pg_catalog.=) ARRAY[%s]), %s)",
		pins, sqltext.QuoteLiteral(p.ownership.keyspace.Name()), hash, list(p.ownership.sent(p.columns)), belongs.sql), nil
}

// CarryPins brings the shard's pins to another shard's session, before rows are read there: only that session sees them.
func (p Part) CarryPins(ctx context.Context, conn *pgx.Conn) error {
	if len(p.pins) == 0 {
		return nil
	}
	_, err := conn.Exec(ctx, "DROP TABLE IF EXISTS "+carriedPins+"; CREATE TEMPORARY TABLE cleave_part_pins (keyspace text, hash bigint, key bytea[], here boolean)")
	if err == nil {
		_, err = conn.CopyFrom(ctx, pgx.Identifier{"pg_temp", "cleave_part_pins"}, []string{"keyspace", "hash", "key", "here"},
			pgx.CopyFromSlice(len(p.pins), func(i int) ([]any, error) {
				return []any{p.ownership.keyspace.Name(), p.pins[i].Hash, p.pins[i].Key, p.pins[i].Here}, nil
			}))
	}
	if err == nil {
		_, err = conn.Exec(ctx, "CREATE INDEX ON "+carriedPins+" (hash); ANALYZE "+carriedPins)
	}
	if err != nil {
		return fmt.Errorf("carry the pins of keyspace %q: %w", p.ownership.keyspace.Name(), err)
	}
	return nil
}

// ReadSQL streams the rows of the part out of another shard's table, in the definition's form for copies.
func (p Part) ReadSQL(d *Definition) (string, error) {
	where, err := p.condition(carriedPins)
	if err != nil {
		return "", err
	}
	return d.readSQL(where), nil
}

// DeleteOthers removes the rows of the shard's own table that are not in its part, and says how many those were. Of a keyspace with pins
// the shard must have recorded them.
func (p Part) DeleteOthers(ctx context.Context, tx pgx.Tx) (int64, error) {
	if p.all {
		return 0, nil
	}
	where, err := p.condition(recordedPins)
	if err != nil {
		return 0, err
	}
	deleted, err := tx.Exec(ctx, fmt.Sprintf("DELETE FROM %s AS %s WHERE (%s) IS NOT TRUE", p.table, rowAlias, where))
	if err != nil {
		return 0, fmt.Errorf("delete the rows of table %s that are elsewhere now: %w", p.table, err)
	}
	return deleted.RowsAffected(), nil
}
