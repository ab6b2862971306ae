package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// TablesIn lists the tables of a schema, but for partitions.
func TablesIn(ctx context.Context, on querier, schema string) ([]topology.TableName, error) {
	rows, err := on.Query(ctx, "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 2", schema)
	if err != nil {
		return nil, fmt.Errorf("list the tables of schema %q: %w", schema, err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[topology.TableName])
}

// leftQuery lists what is in a schema and neither one of some tables, nor a part of one, nor one of the objects that are named by class and number, nor of an extension that is named.
const leftQuery = `
	WITH moving AS (SELECT name::regclass::oid AS oid FROM unnest($2::text[]) AS name)
	SELECT DISTINCT pg_describe_object(f.classid, f.objid, 0) FROM pg_depend f JOIN pg_namespace n ON n.oid = f.refobjid
	WHERE f.refclassid = 'pg_namespace'::regclass AND n.nspname = $1 AND NOT (f.classid = 'pg_class'::regclass AND f.objid IN (TABLE moving))
		AND NOT EXISTS (SELECT FROM pg_depend p WHERE p.classid = f.classid AND p.objid = f.objid AND p.refclassid = 'pg_class'::regclass AND p.refobjid IN (TABLE moving) AND p.deptype IN ('a', 'i'))
		AND NOT EXISTS (SELECT FROM unnest($3::text[], $4::bigint[]) AS c (class, id) WHERE c.class::regclass = f.classid AND c.id = f.objid::bigint)
		AND NOT EXISTS (SELECT FROM pg_depend e WHERE e.classid = f.classid AND e.objid = f.objid AND e.deptype = 'e')
		AND NOT EXISTS (SELECT FROM pg_extension e WHERE f.classid = 'pg_extension'::regclass AND e.oid = f.objid AND e.extname = ANY ($5))
	ORDER BY 1`

// LeftInSchema says what would be left of a schema if these tables moved to another shard with all that they need: views, functions, types and so on, of which nothing else is carried over.
func LeftInSchema(ctx context.Context, on querier, schema string, tables Definitions) (problems []string, err error) {
	var needed []need
	for _, d := range tables {
		needed = append(needed, d.needs.all...)
	}
	left, err := inSchema(ctx, on, schema, tables, needed)
	for _, what := range left {
		problems = append(problems, fmt.Sprintf("%s is in schema %s too, and would stay behind: drop it, and make it anew where the schema will be", what, sqltext.QuoteIdentifier(schema)))
	}
	return problems, err
}

// inSchema lists what is in a schema besides some tables and what is needed.
func inSchema(ctx context.Context, on querier, schema string, tables Definitions, needed []need) ([]string, error) {
	names, classes, ids, extensions := []string{}, []string{}, []int64{}, []string{}
	for _, d := range tables {
		names = append(names, d.Table.String())
	}
	for _, n := range needed {
		classes, ids, extensions = append(classes, n.Class), append(ids, int64(n.ID)), append(extensions, n.Extension)
	}
	rows, err := on.Query(ctx, leftQuery, schema, names, classes, ids, extensions)
	if err != nil {
		return nil, fmt.Errorf("see what is in schema %q: %w", schema, err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// SizeOfSchema is how many things are in a schema. It fails with [pgerr.LockNotAvailable] while somebody makes a table there: whoever does has the schema locked until he commits. Who makes a type or a function has not.
func SizeOfSchema(ctx context.Context, on querier, schema string) (size int, err error) {
	var busy bool
	err = on.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
				WHERE l.locktype = 'object' AND l.classid = 'pg_namespace'::regclass AND l.objid = n.oid AND l.pid IS DISTINCT FROM pg_backend_pid()),
			(SELECT count(*) FROM pg_depend WHERE refclassid = 'pg_namespace'::regclass AND refobjid = n.oid)
		FROM pg_namespace n WHERE n.nspname = $1`, schema).Scan(&busy, &size)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("count what is in schema %q: %w", schema, err)
	case busy:
		return 0, pgerr.New(pgerr.LockNotAvailable, "a table is being made in schema %s", sqltext.QuoteIdentifier(schema)).WithHint("Commit the transaction that does, or roll it back.")
	}
	return size, nil
}

// CarrySchema makes a schema on another shard as it is on this one, if it is not there. It has no tables.
func CarrySchema(ctx context.Context, from querier, to pgx.Tx, name string) error {
	owner, err := describeSchema(ctx, from, name)
	if errors.Is(err, pgx.ErrNoRows) { // and so nothing to be carried
		return nil
	}
	if err != nil {
		return fmt.Errorf("read what schema %q is made with: %w", name, err)
	}
	return ensureSchemaOf(ctx, to, name, owner)
}
