package adopt

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/shard"
)

// sessionSettings make the session independent of what was set for the role or the database. Names are looked up in the system's schema
// alone, so that whatever is printed carries its schema.
var sessionSettings = map[string]string{
	"application_name": "cleave/adopt", "search_path": "pg_catalog", "client_encoding": "UTF8", "timezone": "UTC", "datestyle": "ISO, YMD",
	"statement_timeout": "60s", "lock_timeout": "10s", "default_transaction_read_only": "off", "default_transaction_isolation": "read committed",
	"idle_in_transaction_session_timeout": "60s", "jit": "off",
}

// Connect connects to the database that the text names, as PostgreSQL's own programs would. Hear is told what the server notices.
func Connect(ctx context.Context, dsn string, hear func(string)) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("read the connection string: %w", err)
	}
	for name, value := range sessionSettings {
		config.RuntimeParams[name] = value
	}
	config.OnNotice = hearing(hear)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return conn, nil
}

// Read reads the catalogue. It changes nothing.
func Read(ctx context.Context, conn *pgx.Conn) (*Catalogue, error) {
	c := &Catalogue{Server: serverOf(conn), Database: conn.Config().Database}
	var content []byte
	err := conn.QueryRow(ctx, catalogueQuery).Scan(&content, &c.SystemIdentifier)
	if err == nil {
		err = json.Unmarshal(content, c)
	}
	if err != nil {
		return nil, fmt.Errorf("read the catalogue of database %s: %w", c.Database, err)
	}
	return c, c.readHindrances(ctx, conn)
}

// readPatience is for how long a table is read for numbers of large objects: a move looks again, and takes its time.
const readPatience = 5 * time.Second

// readHindrances asks what would keep rows of the tables from being moved.
func (c *Catalogue) readHindrances(ctx context.Context, conn *pgx.Conn) error {
	names, tables := make([]string, len(c.Tables)), map[string]*Table{}
	for i, t := range c.Tables {
		names[i], tables[t.String()] = t.String(), t
	}
	found, err := shard.Hindrances(ctx, conn, names, readPatience)
	for _, h := range found {
		tables[h.Table].Hindrances = append(tables[h.Table].Hindrances, h)
	}
	return err
}

// serverOf is where a connection leads.
func serverOf(conn *pgx.Conn) string {
	config := conn.Config()
	return net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
}

// adoptSchema is where what is made for the time of the adoption is.
const adoptSchema = "cleave_adopt"

// columnNames is SQL for the names of columns that an array of numbers names, in its order.
func columnNames(table, numbers string) string {
	return `(SELECT coalesce(json_agg(a.attname ORDER BY k.place), '[]') FROM unnest(` + numbers + `) WITH ORDINALITY AS k (number, place)
		JOIN pg_attribute a ON a.attrelid = ` + table + ` AND a.attnum = k.number)`
}

// The parts of the catalogue's query, each about the table c.
var (
	columnsPart = `
		(SELECT coalesce(json_agg(json_build_object('name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'type_oid', CASE WHEN a.atttypid < 16384 THEN a.atttypid::bigint ELSE 0 END,
			'not_null', a.attnotnull, 'default', CASE WHEN a.attgenerated = '' THEN coalesce(pg_get_expr(d.adbin, d.adrelid), '') ELSE '' END, 'generated', a.attgenerated <> '',
			'sequence', coalesce(q.name, ''), 'sequence_owned', coalesce(q.owned, false),
			'null_fraction', coalesce((SELECT s.null_frac FROM pg_stats s WHERE s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = a.attname ORDER BY s.inherited DESC LIMIT 1), -1)) ORDER BY a.attnum), '[]')
		FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		LEFT JOIN LATERAL (
			SELECT quote_ident(sn.nspname) || '.' || quote_ident(s.relname) AS name,
				EXISTS (SELECT FROM pg_depend o WHERE o.classid = 'pg_class'::regclass AND o.objid = s.oid AND o.refobjid = a.attrelid AND o.refobjsubid = a.attnum AND o.deptype IN ('a', 'i')) AS owned
			FROM pg_class s JOIN pg_namespace sn ON sn.oid = s.relnamespace
			WHERE s.relkind = 'S' AND (
				EXISTS (SELECT FROM pg_depend u WHERE u.classid = 'pg_attrdef'::regclass AND u.objid = d.oid AND u.refclassid = 'pg_class'::regclass AND u.refobjid = s.oid)
				OR EXISTS (SELECT FROM pg_depend i WHERE i.classid = 'pg_class'::regclass AND i.objid = s.oid AND i.refobjid = a.attrelid AND i.refobjsubid = a.attnum AND i.deptype = 'i'))
			LIMIT 1) AS q ON a.attidentity <> '' OR d.oid IS NOT NULL
		WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)`

	uniquesPart = `
		(SELECT coalesce(json_agg(json_build_object('name', coalesce(k.conname, x.relname), 'index', x.relname, 'kind', coalesce(k.contype::text, ''), 'definition', pg_get_indexdef(i.indexrelid),
			'usual', NOT EXISTS (SELECT FROM unnest(i.indoption::int2[]) AS o WHERE o <> 0) AND NOT EXISTS (SELECT FROM unnest(i.indclass::oid[]) AS k JOIN pg_opclass o ON o.oid = k WHERE NOT o.opcdefault)
				AND NOT EXISTS (SELECT FROM unnest(i.indkey::int2[], i.indcollation::oid[]) AS e (number, collated) JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = e.number WHERE e.collated <> a.attcollation),
			'valid', i.indisvalid AND i.indisready, 'plain', i.indexprs IS NULL AND i.indpred IS NULL, 'deferrable', coalesce(k.condeferrable, false), 'deferred', coalesce(k.condeferred, false),
			'columns', (SELECT coalesce(json_agg(a.attname ORDER BY e.place), '[]') FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS e (number, place)
				JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = e.number WHERE e.place <= i.indnkeyatts)) ORDER BY coalesce(k.contype, 'z') <> 'p', x.relname COLLATE "C"), '[]')
		FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid LEFT JOIN pg_constraint k ON k.conindid = i.indexrelid AND k.conrelid = i.indrelid AND k.contype IN ('u', 'p', 'x')
		WHERE i.indrelid = c.oid AND (i.indisunique OR i.indisexclusion))`

	foreignKeysPart = `
		(SELECT coalesce(json_agg(json_build_object('name', f.conname, 'columns', ` + columnNames("f.conrelid", "f.conkey") + `, 'target_schema', tn.nspname, 'target_table', t.relname,
			'target_columns', ` + columnNames("f.confrelid", "f.confkey") + `, 'on_update', f.confupdtype, 'on_delete', f.confdeltype, 'set_columns', ` + columnNames("f.conrelid", "f.confdelsetcols") + `,
			'deferrable', f.condeferrable, 'deferred', f.condeferred, 'valid', f.convalidated) ORDER BY f.conname COLLATE "C"), '[]')
		FROM pg_constraint f JOIN pg_class t ON t.oid = f.confrelid JOIN pg_namespace tn ON tn.oid = t.relnamespace
		WHERE f.conrelid = c.oid AND f.contype = 'f' AND f.conparentid = 0)`

	// functionsPart leaves out what the planner trusts: what is immutable, belongs to the system, is written in C, or was declared to use one shard's rows.
	functionsPart = `
		(SELECT coalesce(json_agg(json_build_object('identity', p.oid::regprocedure::text, 'source', p.prosrc, 'trigger', r.is_trigger) ORDER BY p.oid::regprocedure::text), '[]')
		FROM (
			SELECT t.tgfoid AS oid, true AS is_trigger FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled <> 'D'
			UNION SELECT e.refobjid, false FROM pg_attrdef d JOIN pg_depend e ON e.classid = 'pg_attrdef'::regclass AND e.objid = d.oid WHERE d.adrelid = c.oid AND e.refclassid = 'pg_proc'::regclass
			UNION SELECT e.refobjid, false FROM pg_constraint k JOIN pg_depend e ON e.classid = 'pg_constraint'::regclass AND e.objid = k.oid
				WHERE k.conrelid = c.oid AND k.contype IN ('c', 'x') AND e.refclassid = 'pg_proc'::regclass) AS r
		JOIN pg_proc p ON p.oid = r.oid JOIN pg_language l ON l.oid = p.prolang
		WHERE p.oid >= 16384 AND l.lanname NOT IN ('internal', 'c') AND p.provolatile <> 'i' AND p.prosqlbody IS NULL
			AND NOT coalesce('cleave.shard_local=on' = ANY (p.proconfig), false) AND p.pronamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname IN ('cleave', 'pg_catalog')))`

	// rowsPart is what ANALYZE has found, or what the statistics of use count where it was never run.
	rowsPart = `
		(SELECT coalesce(sum(CASE WHEN p.reltuples >= 0 THEN p.reltuples ELSE coalesce(u.n_live_tup, 0) END), 0)::bigint
		FROM pg_class p LEFT JOIN pg_stat_all_tables u ON u.relid = p.oid
		WHERE p.relkind = 'r' AND (p.oid = c.oid OR c.relkind = 'p' AND p.oid IN (SELECT relid FROM pg_partition_tree(c.oid) WHERE isleaf)))`

	bytesPart = `
		(SELECT coalesce(sum(pg_total_relation_size(p.oid)), 0)::bigint FROM pg_class p
		WHERE p.relkind = 'r' AND (p.oid = c.oid OR c.relkind = 'p' AND p.oid IN (SELECT relid FROM pg_partition_tree(c.oid) WHERE isleaf)))`

	catalogueQuery = `
		WITH relations AS (
			SELECT c.*, n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition AND c.relpersistence <> 't'
				AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast', 'cleave', '` + adoptSchema + `')
				AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'))
		SELECT json_build_object(
			'tables', (SELECT coalesce(json_agg(json_build_object('schema', n.nspname, 'name', c.relname, 'owner', pg_get_userbyid(c.relowner), 'partitioned', c.relkind = 'p',
				'rows', ` + rowsPart + `, 'bytes', ` + bytesPart + `, 'columns', ` + columnsPart + `, 'uniques', ` + uniquesPart + `, 'foreign_keys', ` + foreignKeysPart + `,
				'checks', (SELECT coalesce(json_agg(json_build_object('name', k.conname, 'valid', k.convalidated) ORDER BY k.conname), '[]') FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'c'),
				'triggers', (SELECT coalesce(json_agg(t.tgname ORDER BY t.tgname), '[]') FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal),
				'functions', ` + functionsPart + `) ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C"), '[]')
				FROM relations c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p')),
			'views', (SELECT count(*) FROM relations WHERE relkind = 'v'), 'materialised_views', (SELECT count(*) FROM relations WHERE relkind = 'm'),
			'foreign_tables', (SELECT count(*) FROM relations WHERE relkind = 'f'), 'large_objects', (SELECT count(*) FROM pg_largeobject_metadata),
			'subscriptions', (SELECT coalesce(json_agg(s.subname ORDER BY s.subname), '[]') FROM pg_subscription s WHERE s.subdbid = (SELECT oid FROM pg_database WHERE datname = current_database()))),
			(SELECT system_identifier::text FROM pg_control_system())`
)
