package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
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
	GeneratedPrimaryKey  HindranceCode = "generated_primary_key"
	GeneratedIdentity    HindranceCode = "generated_identity"
	LargeObjectColumn    HindranceCode = "large_object_column"
	Subscribed           HindranceCode = "subscribed"
	ReplicatedTrigger    HindranceCode = "replicated_trigger"
)

// String is the hindrance in one line.
func (h Hindrance) String() string { return fmt.Sprintf("%s: %s (%s)", h.Table, h.Message, h.Hint) }

// hindranceTexts are the messages, and the hints with a place for the table.
var hindranceTexts = map[HindranceCode][2]string{
	Unlogged:             {"it is unlogged: nothing tells of its changes", "ALTER TABLE %s SET LOGGED writes the table anew, and keeps everybody from it meanwhile"},
	Inherits:             {"it inherits from another table", "ALTER TABLE %s NO INHERIT …"},
	NoPrimaryKey:         {"it has no primary key: each changed row would have to be looked for in all of the table", "CREATE UNIQUE INDEX CONCURRENTLY, then ALTER TABLE %s ADD PRIMARY KEY USING INDEX"},
	DeferrablePrimaryKey: {"its primary key is deferrable, and PostgreSQL takes no such for telling rows apart", "CREATE UNIQUE INDEX CONCURRENTLY, then ALTER TABLE %s DROP CONSTRAINT …, ADD PRIMARY KEY USING INDEX"},
	GeneratedPrimaryKey:  {"its primary key has a generated column, and replication does not carry what is generated", "CREATE UNIQUE INDEX CONCURRENTLY on columns that are not generated, then ALTER TABLE %s DROP CONSTRAINT …, ADD PRIMARY KEY USING INDEX"},
	GeneratedIdentity:    {"the replica identity of it, or of a partition, has a generated column, and replication does not carry what is generated", "ALTER TABLE %s REPLICA IDENTITY DEFAULT, and the same for its partitions"},
	LargeObjectColumn:    {"a column refers to large objects, which no shard shares", "keep what %s refers to in a bytea column"},
	Subscribed:           {"a subscription brings rows to it, past the routers, and would not know where it has moved", "on the server that publishes take %s out of the publication, then ALTER SUBSCRIPTION … REFRESH PUBLICATION, or drop the subscription"},
	ReplicatedTrigger:    {"a trigger of it, or of a partition, fires for replicated rows, so moving rows would run it", "ALTER TABLE %s ENABLE TRIGGER …, and the same for its partitions"},
}

// hindrancesQuery asks of each table whether it is so.
var hindrancesQuery = fmt.Sprintf(`
	SELECT t.name, h.code FROM unnest($1::text[]) WITH ORDINALITY AS t (name, place) JOIN pg_class c ON c.oid = t.name::regclass
	CROSS JOIN LATERAL (SELECT array_agg(p.oid) AS parts, array_agg(x.indexrelid) FILTER (WHERE x.indisprimary) AS keys, array_agg(x.indexrelid) FILTER (WHERE x.indisreplident AND p.relreplident = 'i') AS identities
		FROM (SELECT c.oid UNION SELECT relid FROM pg_partition_tree(c.oid)) AS tree JOIN pg_class p USING (oid) LEFT JOIN pg_index x ON x.indrelid = p.oid AND (x.indisprimary OR x.indisreplident)) AS own
	CROSS JOIN LATERAL (VALUES
		(1, '%s', c.relpersistence <> 'p'),
		(2, '%s', EXISTS (SELECT FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent WHERE i.inhrelid = c.oid AND p.relkind <> 'p')),
		(3, '%s', NOT EXISTS (SELECT FROM pg_index x WHERE x.indrelid = c.oid AND x.indisprimary AND x.indisvalid)),
		(4, '%s', EXISTS (SELECT FROM pg_index x WHERE x.indrelid = c.oid AND x.indisprimary AND NOT x.indimmediate)),
		(5, '%s', `+hasGenerated("own.keys")+`),
		(6, '%s', `+hasGenerated("own.identities")+`),
		(7, '%s', EXISTS (SELECT FROM pg_attribute a JOIN pg_type y ON y.oid = a.atttypid WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND y.typname = 'lo') OR t.name = ANY ($2)),
		(8, '%s', EXISTS (SELECT FROM pg_subscription_rel r JOIN pg_subscription s ON s.oid = r.srsubid WHERE r.srrelid = ANY (own.parts) AND NOT `+isOfMoveSQL("s.subname")+`)),
		(9, '%s', EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = ANY (own.parts) AND g.tgenabled IN ('A', 'R')))
	) AS h (place, code, is_so) WHERE h.is_so ORDER BY t.place, h.place`, Unlogged, Inherits, NoPrimaryKey, DeferrablePrimaryKey, GeneratedPrimaryKey, GeneratedIdentity, LargeObjectColumn, Subscribed, ReplicatedTrigger)

// hasGenerated is SQL that says whether one of some indexes has a generated column among those that tell rows apart.
func hasGenerated(indexes string) string {
	return "EXISTS (SELECT FROM pg_index x JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = ANY ((x.indkey::int2[])[0:x.indnkeyatts - 1]) WHERE x.indexrelid = ANY (" + indexes + ") AND a.attgenerated <> '')"
}

// largeObjectsQuery gives for tables with columns of type oid, or of domains over it, a statement that says whether a value there is the number of a large object: that is what JDBC makes of a @Lob, and any number might be one. It gives nothing where
// the database has no large objects, and passes over columns of type lo, which are for nothing else, over what the role may not read, which it cannot copy either, and over what has partitions elsewhere, which is never declared. Reading a partitioned table reads its partitions, and the first row that is found ends it.
const largeObjectsQuery = `
	WITH RECURSIVE numbers (type) AS (SELECT 'oid'::regtype::oid UNION ALL SELECT y.oid FROM numbers n JOIN pg_type y ON y.typbasetype = n.type WHERE y.typtype = 'd')
	SELECT t.name, 'SELECT ' || string_agg(format('EXISTS (SELECT FROM %s AS t WHERE EXISTS (SELECT FROM pg_largeobject_metadata o WHERE o.oid = t.%I))', a.attrelid::regclass, a.attname), ' OR ' ORDER BY a.attnum)
	FROM unnest($1::text[]) WITH ORDINALITY AS t (name, place) JOIN pg_attribute a ON a.attrelid = t.name::regclass AND a.attnum > 0 AND NOT a.attisdropped JOIN pg_type y ON y.oid = a.atttypid
	WHERE EXISTS (SELECT FROM pg_largeobject_metadata) AND a.atttypid IN (SELECT type FROM numbers) AND y.typname <> 'lo' AND has_column_privilege(a.attrelid, a.attnum, 'SELECT')
		AND NOT EXISTS (SELECT FROM pg_partition_tree(a.attrelid) JOIN pg_class p ON p.oid = relid WHERE p.relkind = 'f')
	GROUP BY t.name, t.place, a.attrelid ORDER BY t.place`

// beginner is a connection, or a transaction in which another one begins.
type beginner interface {
	querier
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Hindrances says why rows of tables cannot be moved; nothing if all can. A move asks before it touches anything, and whoever lets a table become a sharded one says it then. Patience is for how long each table may be read for numbers of large objects, 0 for
// as long as it takes: a move has to know, and who only foretells what it would say keeps nobody waiting for that.
func Hindrances(ctx context.Context, on beginner, tables []string, patience time.Duration) ([]Hindrance, error) {
	referring, err := referringTables(ctx, on, tables, patience)
	if err != nil {
		return nil, fmt.Errorf("see whether tables refer to large objects: %w", err)
	}
	rows, err := on.Query(ctx, hindrancesQuery, tables, referring)
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

// referringTables are those of the tables in which a number of a large object was found.
func referringTables(ctx context.Context, on beginner, tables []string, patience time.Duration) ([]string, error) {
	rows, err := on.Query(ctx, largeObjectsQuery, tables)
	if err != nil {
		return nil, err
	}
	type question struct{ Table, SQL string }
	questions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[question])
	if err != nil {
		return nil, err
	}
	referring := []string{}
	for _, q := range questions {
		refers, err := answerWithin(ctx, on, q.SQL, patience)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", q.Table, err)
		}
		if refers {
			referring = append(referring, q.Table)
		}
	}
	return referring, nil
}

// answerWithin asks a server something, and takes it for no if that takes too long. What it sets for that goes with a transaction of its own, inside that of whoever asks.
func answerWithin(ctx context.Context, on beginner, sql string, patience time.Duration) (is bool, err error) {
	tx, err := on.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, tx.Rollback(ctx)) }()
	if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL statement_timeout = %d", patience.Milliseconds())); err != nil {
		return false, err
	}
	err = tx.QueryRow(ctx, sql).Scan(&is)
	if patience > 0 && slices.Contains([]string{pgerr.QueryCanceled, pgerr.LockNotAvailable}, CodeOf(err)) {
		return false, nil
	}
	return is, err
}
