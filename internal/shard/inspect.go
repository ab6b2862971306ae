package shard

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/topology"
)

// leastMajor is the oldest PostgreSQL that can be a shard: publications filter rows from then on, which moves need.
const leastMajor = 15

// Report is what [Inspect] found. Of a server that is too old to be a shard it has the version alone.
type Report struct {
	// Version as the server prints it, and as a number: 150018 is 15.18.
	Version       string
	VersionNumber int
	// InRecovery: it is a replica.
	InRecovery bool
	// SystemIdentifier is the same for a server and all that were copied from it.
	SystemIdentifier uint64
	Database         string
	DatabaseOID      uint32
	// Encoding of the database, such as UTF8.
	Encoding  string
	Collation Collation
	// CollationVersions are those of collations that queries often name, as the operating system has them now, by name
	// and provider.
	CollationVersions map[string]string
	Settings          Settings
	Role              Role
	// Tables are the user's, without those of extensions and without partitions.
	Tables []topology.TableName
	Schema Schema
	// Guarded are those of them that have a guard.
	Guarded []topology.TableName
	// Identity is whom the database belongs to, nil if nobody has claimed it or it cannot be read.
	Identity *Identity
	// TimeZones is a digest of the offsets of all time zones at many instants.
	TimeZones string
	// Probes are hashes that the server computed. There are none if its encoding is not UTF8.
	Probes []Probe
}

// Major returns the server's major version.
func (r *Report) Major() int { return r.VersionNumber / 10000 }

// Collation is the default collation of a database.
type Collation struct {
	// Provider is "libc", "icu" or "builtin".
	Provider string
	// Collate and Ctype are libc's locale, Locale is that of the other providers.
	Collate, Ctype, Locale string
	// Recorded is the version with which the database was made, Actual the one that the operating system has now.
	Recorded, Actual string
}

// name identifies the collation without its version.
func (c Collation) name() string {
	return fmt.Sprintf("%s %s/%s %s", c.Provider, c.Collate, c.Ctype, c.Locale)
}

// Settings are those of the server that matter to a shard.
type Settings struct {
	WALLevel                     string
	MaxConnections               int
	MaxPreparedTransactions      int
	MaxReplicationSlots          int
	MaxWALSenders                int
	MaxLogicalReplicationWorkers int
	MaxWorkerProcesses           int
	BlockSize                    int
	IntegerDatetimes             bool
}

// Role is what the role of the connection may do.
type Role struct {
	Name                   string
	Superuser, Replication bool
	// CreatesSchemas: it may create a schema in the database.
	CreatesSchemas bool
	// MemberOf are the roles whose rights it has, directly or not.
	MemberOf []string
}

// Inspect looks at the server and its database. It changes nothing, and works on a replica too.
func Inspect(ctx context.Context, conn *pgx.Conn) (*Report, error) {
	r := &Report{}
	err := conn.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('server_version_num')::int, pg_is_in_recovery()`).
		Scan(&r.Version, &r.VersionNumber, &r.InRecovery)
	if err != nil {
		return nil, fmt.Errorf("inspect the server: ask for its version: %w", err)
	}
	if r.Major() < leastMajor {
		return r, nil
	}
	for _, look := range []struct {
		at   string
		look func(context.Context, *pgx.Conn, *Report) error
	}{
		{"the database", inspectDatabase}, {"its settings", inspectSettings}, {"the role", inspectRole},
		{"collations", inspectCollations}, {"tables", inspectTables}, {"the schema cleave", inspectSchema},
		{"time zones", inspectTimeZones}, {"hashes", inspectHashes},
	} {
		if err := look.look(ctx, conn, r); err != nil {
			return nil, fmt.Errorf("inspect the server: look at %s: %w", look.at, err)
		}
	}
	return r, nil
}

// inspectDatabase reads the catalogue's row as JSON, because columns have other names in other versions.
func inspectDatabase(ctx context.Context, conn *pgx.Conn, r *Report) error {
	const query = `
		SELECT s.system_identifier, d.oid, d.datname, pg_encoding_to_char(d.encoding), d.datcollate, d.datctype,
		       CASE j ->> 'datlocprovider' WHEN 'c' THEN 'libc' WHEN 'i' THEN 'icu' WHEN 'b' THEN 'builtin' ELSE 'unknown' END,
		       coalesce(j ->> 'datlocale', j ->> 'daticulocale', ''), coalesce(j ->> 'datcollversion', ''),
		       coalesce(pg_database_collation_actual_version(d.oid), '')
		FROM pg_database d, to_jsonb(d) j, pg_control_system() s
		WHERE d.datname = current_database()`
	var identifier int64 // unsigned in truth, but the server has no such type
	c := &r.Collation
	err := conn.QueryRow(ctx, query).Scan(&identifier, &r.DatabaseOID, &r.Database, &r.Encoding, &c.Collate, &c.Ctype, &c.Provider, &c.Locale, &c.Recorded, &c.Actual)
	r.SystemIdentifier = uint64(identifier)
	return err
}

func inspectSettings(ctx context.Context, conn *pgx.Conn, r *Report) error {
	const query = `
		SELECT current_setting('wal_level'), current_setting('max_connections')::int, current_setting('max_prepared_transactions')::int,
		       current_setting('max_replication_slots')::int, current_setting('max_wal_senders')::int,
		       current_setting('max_logical_replication_workers')::int, current_setting('max_worker_processes')::int,
		       current_setting('block_size')::int, current_setting('integer_datetimes')::bool`
	s := &r.Settings
	return conn.QueryRow(ctx, query).Scan(&s.WALLevel, &s.MaxConnections, &s.MaxPreparedTransactions, &s.MaxReplicationSlots,
		&s.MaxWALSenders, &s.MaxLogicalReplicationWorkers, &s.MaxWorkerProcesses, &s.BlockSize, &s.IntegerDatetimes)
}

func inspectRole(ctx context.Context, conn *pgx.Conn, r *Report) error {
	const query = `
		WITH RECURSIVE reached (role) AS (
			SELECT oid FROM pg_roles WHERE rolname = current_user
			UNION SELECT m.roleid FROM pg_auth_members m JOIN reached ON m.member = reached.role)
		SELECT rolname, rolsuper, rolreplication, has_database_privilege(current_database(), 'CREATE'),
		       ARRAY(SELECT g.rolname FROM pg_roles g JOIN reached ON g.oid = reached.role WHERE g.rolname <> current_user ORDER BY 1)
		FROM pg_roles WHERE rolname = current_user`
	o := &r.Role
	return conn.QueryRow(ctx, query).Scan(&o.Name, &o.Superuser, &o.Replication, &o.CreatesSchemas, &o.MemberOf)
}

// commonCollations are those that queries name most; all of one library change together, so a few of each tell.
var commonCollations = []string{
	"C.utf8", "en_US.utf8", "en_GB.utf8", "de_DE.utf8", "fr_FR.utf8", "und-x-icu", "en-x-icu", "en-US-x-icu", "de-x-icu", "unicode", "pg_c_utf8",
}

func inspectCollations(ctx context.Context, conn *pgx.Conn, r *Report) error {
	const query = `
		SELECT collname || ' ' || collprovider::text, pg_collation_actual_version(oid)
		FROM pg_collation
		WHERE collnamespace = 'pg_catalog'::regnamespace AND collname = ANY ($1) AND pg_collation_actual_version(oid) IS NOT NULL`
	rows, err := conn.Query(ctx, query, commonCollations)
	if err != nil {
		return err
	}
	r.CollationVersions = map[string]string{}
	var name, version string
	_, err = pgx.ForEachRow(rows, []any{&name, &version}, func() error {
		r.CollationVersions[name] = version
		return nil
	})
	return err
}

// Tables are the user's tables that a server has, foreign ones too, without those of extensions and without partitions.
func Tables(ctx context.Context, on querier) ([]topology.TableName, error) {
	const query = `
		SELECT n.nspname, c.relname
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p', 'f') AND NOT c.relispartition AND c.relpersistence <> 't'
		  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast', 'cleave')
		  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
		ORDER BY 1, 2`
	rows, err := on.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[topology.TableName])
}

func inspectTables(ctx context.Context, conn *pgx.Conn, r *Report) (err error) {
	if r.Tables, err = Tables(ctx, conn); err != nil {
		return err
	}
	standing, err := standingGuards(ctx, conn)
	for table := range standing {
		r.Guarded = append(r.Guarded, table)
	}
	return err
}

func inspectSchema(ctx context.Context, conn *pgx.Conn, r *Report) error {
	schema, err := schemaState(ctx, conn)
	if err != nil {
		return err
	}
	r.Schema = schema
	if !schema.Installed || !schema.Usable {
		return nil
	}
	r.Identity, err = readIdentity(ctx, conn)
	return err
}

// inspectTimeZones computes a digest on the server: what all zones make of instants that are dense where laws change often. Names that say nothing, or the same
// again in another folder, are left out. The instants are few, and their local times added up as the hashes that partitions go by, in all versions alike: there are six hundred zones, and a cluster is made and looked at by asking every server.
func inspectTimeZones(ctx context.Context, conn *pgx.Conn, r *Report) error {
	const query = "WITH instants AS MATERIALIZED (" + /* or it is made for every zone anew */ //nolint:misspell // it is SQL
		`	SELECT make_timestamptz(year, month, 15, 12, 0, 0, 'UTC') AS instant
			FROM generate_series(1900, 2037) AS year, (VALUES (1), (7)) AS half (month)
			WHERE year % 20 = 0 OR year >= 2010 AND year % 2 = 0 OR year = 2037),
		zones AS (
			SELECT name FROM pg_timezone_names
			WHERE name NOT LIKE 'posix/%' AND name NOT LIKE 'right/%' AND name NOT IN ('localtime', 'posixrules', 'Factory')),
		lines AS (
			SELECT name || ' ' || (SELECT sum(timestamp_hash_extended(instant AT TIME ZONE name, 0)) FROM instants) AS line FROM zones)
		SELECT coalesce(encode(sha256(convert_to(string_agg(line, E'\n' ORDER BY line COLLATE "C"), 'UTF8')), 'hex'), 'none') FROM lines`
	return conn.QueryRow(ctx, query).Scan(&r.TimeZones)
}
