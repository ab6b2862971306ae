package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// installLock is the advisory lock of all who create, claim or drop the schema. It is a number like any other, chosen once.
const installLock = 0x636c65617665 // "cleave"

// step is one change of the schema. A step that was released is never changed: the next one mends it.
type step struct {
	name string
	sql  string
}

// steps in their order; the first is version 1.
var steps = []step{
	{"identity", `
		CREATE TABLE cleave.identity (
			only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
			cluster           text NOT NULL,
			shard             text NOT NULL,
			number            integer NOT NULL,
			entry             jsonb NOT NULL,
			map_version       bigint NOT NULL CHECK (map_version >= 0),
			minimum_version   bigint NOT NULL CHECK (minimum_version >= 0),
			last_shard_number integer NOT NULL DEFAULT 0,
			members           jsonb NOT NULL DEFAULT '[]',
			tables_digest     bytea NOT NULL DEFAULT '',
			claimed_at        timestamptz NOT NULL DEFAULT now(),
			recorded_at       timestamptz
		);
		COMMENT ON TABLE cleave.identity IS 'to which cluster and shard this database belongs; map_version 0: nothing has been recorded yet';
		REVOKE ALL ON cleave.identity FROM PUBLIC;`},
	// The keys of ranges and pins are digests of their content: a key of the map may be longer than an index can hold.
	{"what the shard owns", `
		CREATE TABLE cleave.keyspaces (
			name       text PRIMARY KEY,
			definition jsonb NOT NULL,
			digest     bytea NOT NULL
		);
		CREATE TABLE cleave.ranges (
			keyspace text NOT NULL,
			id       bytea NOT NULL,
			lower    jsonb,
			upper    jsonb,
			state    text NOT NULL CHECK (state IN ('owned', 'incoming', 'leaving')),
			held     boolean NOT NULL,
			PRIMARY KEY (keyspace, id)
		);
		CREATE TABLE cleave.pins (
			keyspace text NOT NULL,
			id       bytea NOT NULL,
			key      jsonb NOT NULL,
			state    text NOT NULL CHECK (state IN ('owned', 'incoming', 'leaving')),
			held     boolean NOT NULL,
			PRIMARY KEY (keyspace, id)
		);
		CREATE TABLE cleave.tables (
			name       text PRIMARY KEY,
			definition jsonb NOT NULL
		);
		COMMENT ON TABLE cleave.keyspaces IS 'all keyspaces of the cluster';
		COMMENT ON TABLE cleave.ranges IS 'the ranges that this shard owns or has a copy of; no lower bound: from the beginning, no upper one: to the end';
		COMMENT ON TABLE cleave.pins IS 'the pinned keys that this shard owns or has a copy of';
		COMMENT ON TABLE cleave.tables IS 'all tables of the cluster';
		REVOKE ALL ON cleave.keyspaces, cleave.ranges, cleave.pins, cleave.tables FROM PUBLIC;`},
}

// Install creates the schema cleave or brings it up to date, and returns its version before and after; 0 is none. Each step
// is a transaction of its own, so whoever is interrupted goes on where it ended, and under a lock, so that several may
// install at once. A schema that a newer program has upgraded is a [NewerSchemaError], one that is not ours a
// [SchemaTakenError].
func Install(ctx context.Context, conn *pgx.Conn) (from, to int, err error) {
	return install(ctx, conn, steps)
}

func install(ctx context.Context, conn *pgx.Conn, steps []step) (from, to int, err error) {
	from, to, err = advance(ctx, conn, steps)
	for err == nil && to < len(steps) {
		_, to, err = advance(ctx, conn, steps)
	}
	if err != nil {
		return from, to, fmt.Errorf("install the schema cleave: %w", err)
	}
	return from, to, nil
}

// advance takes the next step, if there is one, from wherever the schema stands: somebody else may be installing too.
func advance(ctx context.Context, conn *pgx.Conn, steps []step) (from, to int, err error) {
	err = locked(ctx, conn, func(tx pgx.Tx) error {
		if err := ensureSchema(ctx, tx); err != nil {
			return err
		}
		if from, err = installedVersion(ctx, tx); err != nil {
			return err
		}
		to = from
		switch {
		case from > len(steps):
			return &NewerSchemaError{Installed: from, Known: len(steps)}
		case from == len(steps):
			return nil
		}
		next := steps[from]
		if _, err := tx.Exec(ctx, next.sql); err != nil {
			return fmt.Errorf("step %d, %s: %w", from+1, next.name, err)
		}
		to = from + 1
		_, err := tx.Exec(ctx, "INSERT INTO cleave.migrations (version, name) VALUES ($1, $2)", to, next.name)
		return err
	})
	return from, to, err
}

// locked runs work in a transaction that no other one of its kind runs beside.
func locked(ctx context.Context, conn *pgx.Conn, work func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(installLock)); err != nil {
			return err
		}
		return work(tx)
	})
}

// ensureSchema makes the schema and the list of its steps. A schema that is there already may have been made for us by
// somebody who may create schemas where we may not.
func ensureSchema(ctx context.Context, tx pgx.Tx) error {
	schema, err := schemaState(ctx, tx)
	switch {
	case err != nil:
		return err
	case schema.Installed:
		return nil
	case schema.Foreign != "":
		return &SchemaTakenError{Object: schema.Foreign}
	case !schema.Exists:
		if _, err := tx.Exec(ctx, "CREATE SCHEMA cleave"); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, `
		REVOKE ALL ON SCHEMA cleave FROM PUBLIC;
		COMMENT ON SCHEMA cleave IS 'what this shard of a Cleave cluster remembers of it';
		CREATE TABLE cleave.migrations (
			version    integer PRIMARY KEY,
			name       text NOT NULL,
			applied_at timestamptz NOT NULL DEFAULT now()
		);
		COMMENT ON TABLE cleave.migrations IS 'the steps that made this schema';
		REVOKE ALL ON cleave.migrations FROM PUBLIC;`)
	return err
}

func installedVersion(ctx context.Context, tx pgx.Tx) (version int, err error) {
	err = tx.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM cleave.migrations").Scan(&version)
	return version, err
}

// rowQuerier is a connection or a transaction.
type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, arguments ...any) pgx.Row
}

// schemaState looks at the schema cleave through the catalogue, which everybody may read.
func schemaState(ctx context.Context, on rowQuerier) (Schema, error) {
	const query = `
		SELECT has_schema_privilege(n.oid, 'USAGE'), pg_has_role(n.nspowner, 'USAGE'),
		       EXISTS (SELECT FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'version'
		               WHERE c.relnamespace = n.oid AND c.relname = 'migrations' AND c.relkind = 'r'),
		       coalesce((SELECT 'a relation named ' || min(relname) FROM pg_class WHERE relnamespace = n.oid),
		                (SELECT 'a function named ' || min(proname) FROM pg_proc WHERE pronamespace = n.oid),
		                (SELECT 'a type named ' || min(typname) FROM pg_type WHERE typnamespace = n.oid), '')
		FROM pg_namespace n WHERE n.nspname = 'cleave'`
	schema := Schema{Exists: true}
	err := on.QueryRow(ctx, query).Scan(&schema.Usable, &schema.Owned, &schema.Installed, &schema.Foreign)
	if errors.Is(err, pgx.ErrNoRows) {
		return Schema{}, nil
	}
	if schema.Installed {
		schema.Foreign = ""
	}
	return schema, err
}
