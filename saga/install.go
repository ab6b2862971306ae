package saga

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Querier runs statements: a connection, a pool or a transaction of pgx.
type Querier interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, arguments ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, arguments ...any) pgx.Row
}

// InstallOptions say where sagas are to live.
type InstallOptions struct {
	// Keyspace is the one whose shards have the sagas: that of the tables which SQL steps change. Its key must be of one column. Default: the keyspace
	// that tables with keys of the type share if they name none. On a plain PostgreSQL there are no keyspaces.
	Keyspace string
	// KeyType is the type of a saga's key: bigint, integer, smallint, text, uuid, date, timestamptz or bytea. Default: that of the
	// keyspace if one is named, otherwise bigint.
	KeyType string
}

// keyTypes are the types of keys, and what PostgreSQL calls them.
var keyTypes = map[string]string{
	"bigint": "bigint", "integer": "integer", "smallint": "smallint", "text": "text", "uuid": "uuid", "date": "date", "bytea": "bytea",
	"timestamptz": "timestamp with time zone",
}

// objects are what Install makes, in this order. %s is the type of the key.
var objects = []struct{ name, sql string }{
	{"sagas.sagas", `CREATE TABLE IF NOT EXISTS sagas.sagas (
		key %s NOT NULL,
		id uuid NOT NULL,
		type text NOT NULL,
		idempotency_key text NOT NULL,
		state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'compensating', 'stuck', 'completed', 'compensated', 'abandoned')),
		step text,
		attempts integer NOT NULL DEFAULT 0,
		due_at timestamptz DEFAULT clock_timestamp(),
		holder text,
		lease uuid,
		epoch bigint NOT NULL DEFAULT 0,
		last_error text,
		failed_step text,
		failure text,
		note text,
		input json NOT NULL,
		created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
		updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
		ended_at timestamptz,
		PRIMARY KEY (key, id),
		UNIQUE (key, type, idempotency_key),
		CHECK ((due_at IS NOT NULL) = (state IN ('running', 'compensating'))),
		CHECK ((ended_at IS NOT NULL) = (state IN ('completed', 'compensated', 'abandoned'))),
		CHECK ((lease IS NULL) = (holder IS NULL))
	)`},
	{"sagas.steps", `CREATE TABLE IF NOT EXISTS sagas.steps (
		key %s NOT NULL,
		saga_id uuid NOT NULL,
		name text NOT NULL,
		position integer NOT NULL,
		state text NOT NULL CHECK (state IN ('done', 'in_doubt', 'compensated')),
		attempts integer NOT NULL,
		result json,
		done_at timestamptz NOT NULL DEFAULT clock_timestamp(),
		compensation_attempts integer,
		compensation_result json,
		compensated_at timestamptz,
		PRIMARY KEY (key, saga_id, name),
		UNIQUE (key, saga_id, position),
		FOREIGN KEY (key, saga_id) REFERENCES sagas.sagas (key, id) ON DELETE CASCADE
	)`},
	{"sagas.sagas_due", "CREATE INDEX IF NOT EXISTS sagas_due ON sagas.sagas (due_at) WHERE state IN ('running', 'compensating')"},
	{"sagas.sagas_open", "CREATE INDEX IF NOT EXISTS sagas_open ON sagas.sagas (created_at) WHERE ended_at IS NULL"},
	{"sagas.sagas_ended", "CREATE INDEX IF NOT EXISTS sagas_ended ON sagas.sagas (ended_at) WHERE ended_at IS NOT NULL"},
}

// Install makes the schema sagas with its tables and, through a router, declares them as sharded tables of one keyspace. What is
// there already stays; what an earlier Install did not come to is completed, and several at once do no harm. It must not be called in a
// transaction. Other roles than the one that installs need USAGE on the schema and SELECT, INSERT, UPDATE and DELETE on its tables.
func Install(ctx context.Context, db Querier, options InstallOptions) error {
	const tries, pause = 10, 100 * time.Millisecond
	for try := 1; ; try++ {
		err := install(ctx, db, options)
		if err == nil || try == tries || !isRace(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(try) * pause): // somebody else installs
		}
	}
}

func install(ctx context.Context, db Querier, options InstallOptions) error {
	router, err := isRouter(ctx, db)
	if err != nil {
		return err
	}
	keyType, err := options.keyType(ctx, db, router)
	if err != nil {
		return err
	}
	if err := create(ctx, db, keyType); err != nil {
		return err
	}
	if err := checkKeyType(ctx, db, keyType); err != nil {
		return err
	}
	if !router {
		return nil
	}
	return declare(ctx, db, options.Keyspace)
}

// isRouter tells a router from a plain PostgreSQL.
func isRouter(ctx context.Context, db Querier) (bool, error) {
	var version string
	err := db.QueryRow(ctx, "SELECT cleave.version()").Scan(&version)
	switch code := sqlState(err); {
	case err == nil:
		return true, nil
	case code == invalidSchemaName:
		return false, nil
	case code == undefinedFunction:
		return false, errors.New("this is a shard of a cluster: connect to a router, so that sagas are made on every shard")
	default:
		return false, fmt.Errorf("ask whether this is a router: %w", err)
	}
}

// keyType is the type that the key's column gets.
func (o InstallOptions) keyType(ctx context.Context, db Querier, router bool) (string, error) {
	chosen := o.KeyType
	if o.Keyspace != "" {
		if !router {
			return "", fmt.Errorf("keyspace %q: this is a plain PostgreSQL, which has none", o.Keyspace)
		}
		var types []string
		err := db.QueryRow(ctx, "SELECT key_types FROM cleave.keyspaces WHERE name = $1", o.Keyspace).Scan(&types)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return "", fmt.Errorf("there is no keyspace %q: SELECT name FROM cleave.keyspaces lists them", o.Keyspace)
		case err != nil:
			return "", fmt.Errorf("look for keyspace %q: %w", o.Keyspace, err)
		case len(types) != 1:
			return "", fmt.Errorf("keyspace %q has keys of %d columns (%s): sagas need one of a single column", o.Keyspace, len(types), strings.Join(types, ", "))
		case chosen == "":
			chosen = types[0]
		}
	}
	if chosen == "" {
		chosen = "bigint"
	}
	if keyTypes[chosen] == "" {
		return "", fmt.Errorf("key type %q: it can be bigint, integer, smallint, text, uuid, date, timestamptz or bytea", chosen)
	}
	return chosen, nil
}

// create makes what is missing.
func create(ctx context.Context, db Querier, keyType string) error {
	var there bool
	if err := db.QueryRow(ctx, "SELECT to_regnamespace('sagas') IS NOT NULL").Scan(&there); err != nil {
		return fmt.Errorf("look for schema sagas: %w", err)
	}
	if !there {
		if _, err := db.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS sagas"); err != nil {
			return fmt.Errorf("create schema sagas: %w", err)
		}
	}
	for _, o := range objects {
		if err := db.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", o.name).Scan(&there); err != nil {
			return fmt.Errorf("look for %s: %w", o.name, err)
		}
		if there {
			continue
		}
		if _, err := db.Exec(ctx, strings.Replace(o.sql, "%s", keyType, 1)); err != nil {
			return fmt.Errorf("create %s: %w", o.name, err)
		}
	}
	return nil
}

// checkKeyType refuses tables that were made for keys of another type.
func checkKeyType(ctx context.Context, db Querier, keyType string) error {
	var found string
	err := db.QueryRow(ctx, "SELECT coalesce(max(format_type(atttypid, atttypmod)), '') FROM pg_attribute WHERE attrelid = to_regclass('sagas.sagas') AND attname = 'key'").Scan(&found)
	if err != nil {
		return fmt.Errorf("look at sagas.sagas: %w", err)
	}
	if found != keyTypes[keyType] {
		return fmt.Errorf("sagas.sagas is there already, with keys of type %q and not %q", found, keyType)
	}
	return nil
}

// declare makes both tables sharded ones.
func declare(ctx context.Context, db Querier, keyspace string) error {
	rows, err := db.Query(ctx, "SELECT table_name, coalesce(keyspace, '') FROM cleave.tables WHERE schema_name = 'sagas' AND table_name IN ('sagas', 'steps')")
	if err != nil {
		return fmt.Errorf("look where sagas are: %w", err)
	}
	declared := map[string]string{}
	var table, in string
	if _, err := pgx.ForEachRow(rows, []any{&table, &in}, func() error { declared[table] = in; return nil }); err != nil {
		return fmt.Errorf("look where sagas are: %w", err)
	}
	switch {
	case len(declared) == 0:
	case len(declared) == 1 || declared["sagas"] != declared["steps"] || declared["sagas"] == "":
		return fmt.Errorf("sagas.sagas and sagas.steps are not sharded together: %v; bring them back with cleave.undistribute_table and install again", declared)
	case keyspace != "" && declared["sagas"] != keyspace:
		return fmt.Errorf("sagas are in keyspace %q already, not in %q", declared["sagas"], keyspace)
	default:
		return nil
	}
	sql := "SELECT cleave.shard_tables('sagas.sagas(key), sagas.steps(key)'"
	if keyspace != "" {
		sql += ", keyspace => '" + strings.ReplaceAll(keyspace, "'", "''") + "'"
	}
	if _, err := db.Exec(ctx, sql+")"); err != nil {
		return fmt.Errorf("declare the tables of sagas: %w", err)
	}
	return nil
}

// SQLSTATEs that decide something.
const (
	invalidSchemaName = "3F000"
	undefinedFunction = "42883"
	undefinedTable    = "42P01"
	undefinedColumn   = "42703"
)

// races are what who installs may hear while somebody else does: things that are there after all, or are being changed.
var races = []string{"23505", "42P06", "42P07", "42710", "40001", "40P01", "55000", "55006", "55P03", "XX000", undefinedTable, invalidSchemaName}

func isRace(err error) bool { return slices.Contains(races, sqlState(err)) }

// sqlState is the code of a server's error.
func sqlState(err error) string {
	var answered *pgconn.PgError
	if errors.As(err, &answered) {
		return answered.Code
	}
	return ""
}
