package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Schema is what is known of the schema cleave.
type Schema struct {
	Exists bool
	// Usable: the role may use it and read what it says of itself; Owned: the role, or one that it is a member of, owns it.
	Usable, Owned bool
	// Installed: it is ours.
	Installed bool
	// Version is how many of our steps it has; 0 if it is not ours, or if they cannot be read.
	Version int
	// Foreign are the things in it that our steps did not make, tables first. They cannot be told in a schema that a newer
	// program has upgraded.
	Foreign []Object
}

// Object is something in a schema.
type Object struct {
	// Kind in PostgreSQL's words, such as table or function, and Name as SQL takes it, with the schema.
	Kind, Name string
}

func (o Object) String() string { return o.Kind + " " + o.Name }

// moveAway is the command that puts the object where a user's own things belong.
func (o Object) moveAway() string {
	return fmt.Sprintf("ALTER %s %s SET SCHEMA public;", strings.ToUpper(o.Kind), o.Name)
}

func texts(objects []Object) []string {
	all := make([]string, len(objects))
	for i, o := range objects {
		all[i] = o.String()
	}
	return all
}

func tablesNamed(names ...string) []Object {
	objects := make([]Object, len(names))
	for i, name := range names {
		objects[i] = Object{Kind: "table", Name: "cleave." + name}
	}
	return objects
}

// madeBy returns what the first steps made, and the list of steps itself, in the order in which they came to be.
func madeBy(steps []step) []Object {
	made := tablesNamed("migrations")
	for _, s := range steps {
		made = append(made, s.made...)
	}
	return made
}

// querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, arguments ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, arguments ...any) pgx.Row
}

// migrationColumns are those of our list of steps. Lists of steps named migrations are common, so more than the name counts.
var migrationColumns = []string{"version integer", "name text", "applied_at timestamp with time zone"}

// schemaState looks at the schema cleave through the catalogue, which everybody may read, and at the list of its steps if
// the role may.
func schemaState(ctx context.Context, on querier) (Schema, error) {
	const query = `
		SELECT n.oid, has_schema_privilege(n.oid, 'USAGE'), pg_has_role(n.nspowner, 'USAGE'), coalesce(columns = $1, false),
		       coalesce(has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'), false)
		FROM pg_namespace n
		LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = 'migrations' AND c.relkind = 'r'
		LEFT JOIN LATERAL (
			SELECT array_agg(attname::text || ' ' || format_type(atttypid, atttypmod) ORDER BY attnum) AS columns
			FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped) AS a ON true
		WHERE n.nspname = 'cleave'`
	schema := Schema{Exists: true}
	var oid uint32
	var readable bool
	err := on.QueryRow(ctx, query, migrationColumns).Scan(&oid, &schema.Usable, &schema.Owned, &schema.Installed, &readable)
	if errors.Is(err, pgx.ErrNoRows) {
		return Schema{}, nil
	}
	schema.Usable = schema.Usable && (readable || !schema.Installed)
	if err == nil && schema.Installed && readable {
		schema.Version, err = stepsTaken(ctx, on)
		schema.Installed = schema.Version > 0
	}
	if err != nil || schema.Version > len(steps) {
		return schema, err
	}
	schema.Foreign, err = foreignObjects(ctx, on, oid, schema.ours(readable))
	return schema, err
}

// ours returns what may be in the schema; whoever cannot read which steps were taken has to take all of them for possible.
func (s Schema) ours(readable bool) []Object {
	switch {
	case !s.Installed:
		return nil
	case !readable:
		return madeBy(steps)
	}
	return madeBy(steps[:s.Version])
}

// stepsTaken returns how many steps are listed, 0 if the list is not of our steps: ours is never empty.
func stepsTaken(ctx context.Context, on querier) (int, error) {
	rows, err := on.Query(ctx, "SELECT version, name FROM cleave.migrations ORDER BY version")
	if err != nil {
		return 0, err
	}
	taken, ours := 0, true
	var version int
	var name string
	_, err = pgx.ForEachRow(rows, []any{&version, &name}, func() error {
		taken++
		ours = ours && version == taken && (taken > len(steps) || name == steps[taken-1].name)
		return nil
	})
	if notThere(err) || err == nil && !ours {
		return 0, nil // not there: it was released between two looks
	}
	return taken, err
}

// foreignObjects lists what is in the schema beside ours. Whatever has a schema depends on it in the catalogue, except what
// is a part of something else that does: a table's indexes, for example, and its row type.
func foreignObjects(ctx context.Context, on querier, schema uint32, ours []Object) ([]Object, error) {
	const query = `
		SELECT o.type, o.identity
		FROM pg_depend d, pg_identify_object(d.classid, d.objid, 0) AS o
		WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = $1 AND d.deptype = 'n' AND o.identity IS NOT NULL
		ORDER BY o.type <> 'table', 1, 2`
	rows, err := on.Query(ctx, query, schema)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Object])
	return slices.DeleteFunc(all, func(o Object) bool { return slices.Contains(ours, o) || len(ours) > 0 && isMade(o) }), err
}

// dropSchema drops what our steps made, each by its name, and the schema, which must be empty then. Nothing that depends on
// it goes with it: that is a [ForeignObjectsError].
func dropSchema(ctx context.Context, tx pgx.Tx, ours []Object) error {
	for _, o := range slices.Backward(ours) {
		if _, err := tx.Exec(ctx, "DROP "+o.Kind+" "+o.Name); err != nil {
			return stillInUse(err)
		}
	}
	_, err := tx.Exec(ctx, "DROP SCHEMA cleave")
	return stillInUse(err)
}

// stillInUse explains an error about things that depend on what was to be dropped.
func stillInUse(err error) error {
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == codeStillInUse {
		return &ForeignObjectsError{Objects: strings.Split(refused.Detail, "\n")}
	}
	return err
}
