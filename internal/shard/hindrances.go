package shard

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Hindrance is why rows of a table cannot be moved to another shard.
type Hindrance struct {
	Table string
	Code  HindranceCode
	// Message says what the table is like, and Hint how that is changed.
	Message, Hint string
}

// HindranceCode is short and stable, for programs.
type HindranceCode string

// What hinders moves.
const (
	Unlogged             HindranceCode = "unlogged"
	Inherits             HindranceCode = "inherits"
	NoPrimaryKey         HindranceCode = "no_primary_key"
	DeferrablePrimaryKey HindranceCode = "deferrable_primary_key"
	LargeObjectColumn    HindranceCode = "large_object_column"
)

// String is the hindrance in one line.
func (h Hindrance) String() string { return fmt.Sprintf("%s: %s (%s)", h.Table, h.Message, h.Hint) }

// hindranceTexts are the messages, and the hints with a place for the table.
var hindranceTexts = map[HindranceCode][2]string{
	Unlogged:             {"it is unlogged: nothing tells of its changes", "ALTER TABLE %s SET LOGGED writes the table anew, and keeps everybody from it meanwhile"},
	Inherits:             {"it inherits from another table", "ALTER TABLE %s NO INHERIT …"},
	NoPrimaryKey:         {"it has no primary key: each changed row would have to be looked for in all of the table", "CREATE UNIQUE INDEX CONCURRENTLY, then ALTER TABLE %s ADD PRIMARY KEY USING INDEX"},
	DeferrablePrimaryKey: {"its primary key is deferrable, and PostgreSQL takes no such for telling rows apart", "CREATE UNIQUE INDEX CONCURRENTLY, then ALTER TABLE %s DROP CONSTRAINT …, ADD PRIMARY KEY USING INDEX"},
	LargeObjectColumn:    {"a column refers to large objects, which no shard shares", "keep what %s refers to in a bytea column"},
}

// hindrancesQuery asks of each table whether it is so.
var hindrancesQuery = fmt.Sprintf(`
	SELECT t.name, h.code FROM unnest($1::text[]) WITH ORDINALITY AS t (name, place) JOIN pg_class c ON c.oid = t.name::regclass
	CROSS JOIN LATERAL (VALUES
		(1, '%s', c.relpersistence <> 'p'),
		(2, '%s', EXISTS (SELECT FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent WHERE i.inhrelid = c.oid AND p.relkind <> 'p')),
		(3, '%s', NOT EXISTS (SELECT FROM pg_index x WHERE x.indrelid = c.oid AND x.indisprimary AND x.indisvalid)),
		(4, '%s', EXISTS (SELECT FROM pg_index x WHERE x.indrelid = c.oid AND x.indisprimary AND NOT x.indimmediate)),
		(5, '%s', EXISTS (SELECT FROM pg_attribute a JOIN pg_type y ON y.oid = a.atttypid WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND y.typname = 'lo'))
	) AS h (place, code, is_so) WHERE h.is_so ORDER BY t.place, h.place`, Unlogged, Inherits, NoPrimaryKey, DeferrablePrimaryKey, LargeObjectColumn)

// Hindrances says why rows of tables cannot be moved; nothing if all can. A move asks before it touches anything, and whoever lets a table become a sharded one says it then.
func Hindrances(ctx context.Context, on querier, tables []string) ([]Hindrance, error) {
	rows, err := on.Query(ctx, hindrancesQuery, tables)
	if err != nil {
		return nil, fmt.Errorf("see whether rows of tables can be moved: %w", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h Hindrance, err error) {
		err = row.Scan(&h.Table, &h.Code)
		texts := hindranceTexts[h.Code]
		h.Message, h.Hint = texts[0], fmt.Sprintf(texts[1], h.Table)
		return h, err
	})
	if err != nil {
		return nil, fmt.Errorf("see whether rows of tables can be moved: %w", err)
	}
	return found, nil
}
