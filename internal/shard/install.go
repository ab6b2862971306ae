package shard

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/sqltext"
)

// installLock is the advisory lock of all who create, claim or drop the schema. It is a number like any other, chosen once.
const installLock = 0x636c65617665 // "cleave"

// step is one change of the schema. A step that was released is never changed: the next one mends it.
type step struct {
	name string
	sql  string
	// made are the objects that it creates, so that they can be told from others and dropped again.
	made []Object
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
		REVOKE ALL ON cleave.identity FROM PUBLIC;`,
		tablesNamed("identity")},
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
		REVOKE ALL ON cleave.keyspaces, cleave.ranges, cleave.pins, cleave.tables FROM PUBLIC;`,
		tablesNamed("keyspaces", "ranges", "pins", "tables")},
	{"hello and guards", helloAndGuards, append(tablesNamed("guard_pins"), guardFunctions...)},
	{"strangers are asked in the function", strangersAskedInFunction, nil},
	{"declarations under way", `
		CREATE TABLE cleave.declarations (
			id      text PRIMARY KEY,
			version bigint NOT NULL,
			tables  jsonb NOT NULL,
			hold    text NOT NULL,
			state   text NOT NULL CHECK (state IN ('pending', 'decided', 'undone')),
			at      timestamptz NOT NULL DEFAULT now()
		);
		COMMENT ON TABLE cleave.declarations IS 'on the home shard: what becomes of which tables in declarations that are under way, or were undone';
		REVOKE ALL ON cleave.declarations FROM PUBLIC;`,
		tablesNamed("declarations")},
	{"routers write to reference tables", referencesWrittenByRouters, nil},
	{"blocks of numbers", `
		CREATE TABLE cleave.number_blocks (
			sequence text PRIMARY KEY,
			next     bigint NOT NULL
		);
		COMMENT ON TABLE cleave.number_blocks IS 'on the home shard: from which number on nothing has been given to a shard yet, of each sequence whose numbers are integers';
		REVOKE ALL ON cleave.number_blocks FROM PUBLIC;`,
		tablesNamed("number_blocks")},
	{"roll-outs", rolloutsNoted, append(tablesNamed("rollouts"), rolloutFunctions...)},
	{"numbers of sharded tables", numbersOfShardedTables, numberObjects()},
	{"transactions over several shards", commitsNoted, append(tablesNamed("commits", "sweeps"), commitFunctions...)},
	{"copies of reference tables", copiesNoted, tablesNamed("copies", "copy_differences")},
	{"materialised views over several shards", stagedRows, []Object{{Kind: "function", Name: "cleave.staged_rows()"}, {Kind: "function", Name: "cleave.plain_viewdef(pg_catalog.oid)"}}},
	{"moves", movesNoted, tablesNamed("backends")},
	{"what a shard owns", pinsLookedUp, []Object{{Kind: "function", Name: "cleave.pinned(pg_catalog.text,bigint,pg_catalog.bytea[])"}}},
	{"marks", marksLeft, tablesNamed("marks")},
	{"hello tells the minimum version", minimumTold, nil},
	{"notes of moves", notesOfMoves, tablesNamed("move_notes")},
}

// Install creates the schema cleave or brings it up to date, and returns its version before and after; 0 is none. Each step
// is a transaction of its own, so whoever is interrupted goes on where it ended, and under a lock, so that several may
// install at once. A schema that a newer program has upgraded is a [NewerSchemaError], one that is not ours a
// [SchemaTakenError].
//
// If the role is itself named cleave, the schema is the first that PostgreSQL looks into for it, and creates tables in, by
// its usual search_path. So Install sets the role's search_path in this database to public, unless somebody has set one for
// the role or for the database.
func Install(ctx context.Context, conn *pgx.Conn) (from, to int, err error) {
	return install(ctx, conn, steps)
}

func install(ctx context.Context, conn *pgx.Conn, steps []step) (from, to int, err error) {
	from, to, err = advance(ctx, conn, steps)
	for err == nil && to < len(steps) {
		_, to, err = advance(ctx, conn, steps)
	}
	if err == nil {
		err = keepOffSearchPath(ctx, conn)
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
		// Who falls asleep with the lock must not keep it for long.
		if _, err := tx.Exec(ctx, "SELECT set_config('idle_in_transaction_session_timeout', '10s', true), pg_advisory_xact_lock($1)", int64(installLock)); err != nil {
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
	case len(schema.Foreign) > 0:
		return &SchemaTakenError{Object: schema.Foreign[0].String()}
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

// keepOffSearchPath sees to it that tables which the role creates do not end up among ours by accident. What was set for the
// role, for the database or for everybody is left as it is.
func keepOffSearchPath(ctx context.Context, conn *pgx.Conn) error {
	const query = `
		SELECT d.datname, r.rolname = 'cleave' AND NOT EXISTS (
			SELECT FROM pg_db_role_setting s, unnest(s.setconfig) AS setting
			WHERE s.setdatabase IN (0, d.oid) AND s.setrole IN (0, r.oid) AND setting LIKE 'search_path=%')
		FROM pg_database d, pg_roles r WHERE d.datname = current_database() AND r.rolname = current_user`
	return locked(ctx, conn, func(tx pgx.Tx) error {
		var database string
		var due bool
		if err := tx.QueryRow(ctx, query).Scan(&database, &due); err != nil || !due {
			return err
		}
		if _, err := tx.Exec(ctx, "ALTER ROLE CURRENT_USER IN DATABASE "+sqltext.QuoteIdentifier(database)+" SET search_path = public"); err != nil {
			return fmt.Errorf("take the schema off the search_path of its role: %w", err)
		}
		return nil
	})
}
