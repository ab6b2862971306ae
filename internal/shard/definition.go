package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// Definition is all of a table that is carried over to other shards. Two that are equal describe tables that cannot be told
// apart, so what was made of a definition is read back and compared with it: what is not carried over is noticed.
type Definition struct {
	Table   topology.TableName `json:"-"`
	Owner   string             `json:"owner"`
	Comment string             `json:"comment"`
	// Options and ToastOptions are storage parameters, such as fillfactor=70.
	Options      []string `json:"options"`
	ToastOptions []string `json:"toast_options"`
	// Identity is the replica identity as PostgreSQL's catalogue has it, IdentityIndex the index that it names.
	Identity      string       `json:"identity"`
	IdentityIndex string       `json:"identity_index"`
	ClusterIndex  string       `json:"cluster_index"`
	DefaultGrants bool         `json:"-"`
	Grants        []Grant      `json:"grants"`
	Columns       []Column     `json:"columns"`
	Constraints   []Constraint `json:"constraints"`
	Indexes       []Index      `json:"indexes"`
	// Schema is that of the table, made on other shards if they do not have it.
	Schema SchemaOwner `json:"-"`
	facts  tableFacts
}

// Grant is a privilege, of a table, a column or a schema.
type Grant struct {
	Privilege string `json:"privilege"`
	// To is a role, PUBLIC for everybody, and By who gave it.
	To         string `json:"to"`
	By         string `json:"by"`
	WithOption bool   `json:"with_option"`
}

// Column is one column of a table. Expressions and types are in SQL, with the schema wherever it is not the system's.
type Column struct {
	Name        string   `json:"name"`
	Type        string   `json:"type"`
	TypeOID     uint32   `json:"type_oid"`
	Collation   string   `json:"collation"`
	Plain       bool     `json:"plain"` // its collation is built in and deterministic, or it has none
	NotNull     bool     `json:"not_null"`
	Default     string   `json:"default"`
	Generated   string   `json:"generated"`
	Identity    string   `json:"identity"`
	Sequence    string   `json:"sequence"` // the sequence that its default reads
	Storage     string   `json:"storage"`
	TypeStorage string   `json:"type_storage"`
	Compression string   `json:"compression"`
	Statistics  int      `json:"statistics"`
	Options     []string `json:"options"`
	Comment     string   `json:"comment"`
	Grants      []Grant  `json:"grants"`
}

// Constraint of a table, as PostgreSQL prints it.
type Constraint struct {
	Name       string `json:"name"`
	Kind       string `json:"kind"` // c, u, p, x or f, as in the catalogue
	Definition string `json:"definition"`
	Comment    string `json:"comment"`
	// Columns in order, and what a foreign key refers to.
	Columns       []string `json:"columns"`
	TargetSchema  string   `json:"target_schema"`
	TargetTable   string   `json:"target_table"`
	TargetColumns []string `json:"target_columns"`
	// Equal are the columns of an exclusion constraint that are compared by equality.
	Equal []string `json:"equal"`
}

// Index of a table, as PostgreSQL prints it.
type Index struct {
	Name       string   `json:"name"`
	Definition string   `json:"definition"`
	Comment    string   `json:"comment"`
	Unique     bool     `json:"unique"`
	Constraint string   `json:"constraint"` // the constraint that it belongs to
	Columns    []string `json:"columns"`    // the keys that are plain columns
	Options    []string `json:"options"`
	Valid      bool     `json:"valid"`
}

// SchemaOwner is what a schema is made with.
type SchemaOwner struct {
	Owner  string  `json:"owner"`
	Grants []Grant `json:"grants"`
}

// tableFacts are what stands in the way of declaring a table.
type tableFacts struct {
	Kind          string   `json:"kind"`
	Persistence   string   `json:"persistence"`
	Partition     bool     `json:"partition"`
	Inherits      bool     `json:"inherits"`
	Typed         bool     `json:"typed"`
	AccessMethod  string   `json:"access_method"`
	Tablespace    bool     `json:"tablespace"`
	RowSecurity   bool     `json:"row_security"`
	Rules         []string `json:"rules"`
	Triggers      []string `json:"triggers"`
	Statistics    []string `json:"statistics"`
	Publications  []string `json:"publications"`
	Labels        bool     `json:"labels"`
	Referenced    []string `json:"referenced"` // tables with foreign keys to it
	Strange       []string `json:"strange"`    // things of a user's that it is made of
	DefaultGrants bool     `json:"default_grants"`
	Extension     string   `json:"extension"`
}

// Describe reads a table's definition. A table that is not there is an error with SQLSTATE 42P01.
func Describe(ctx context.Context, on querier, table topology.TableName) (*Definition, error) {
	d, err := describe(ctx, on, table)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, pgerr.New(pgerr.UndefinedTable, "relation %q does not exist", table.String()).
			WithHint("Create it first; a table is declared after it was created, while it is empty.")
	}
	if err != nil {
		return nil, fmt.Errorf("read the definition of table %s: %w", table, err)
	}
	return d, nil
}

func describe(ctx context.Context, on querier, table topology.TableName) (*Definition, error) {
	var oid uint32
	err := on.QueryRow(ctx, "SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2",
		table.Schema, table.Name).Scan(&oid)
	if err != nil {
		return nil, err
	}
	d := &Definition{Table: table}
	for _, part := range []struct {
		query string
		into  any
	}{
		{tableQuery, d}, {factsQuery, &d.facts}, {columnsQuery, &d.Columns}, {constraintsQuery, &d.Constraints}, {indexesQuery, &d.Indexes}, {schemaQuery, &d.Schema},
	} {
		var content []byte
		if err := on.QueryRow(ctx, part.query, oid).Scan(&content); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(content, part.into); err != nil {
			return nil, err
		}
	}
	d.DefaultGrants = d.facts.DefaultGrants
	return d, nil
}

// grantsOf is SQL for the grants of an access list, sorted.
func grantsOf(list string) string {
	return `(SELECT coalesce(json_agg(json_build_object('privilege', g.privilege_type, 'to', CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END,
			'by', quote_ident(pg_get_userbyid(g.grantor)), 'with_option', g.is_grantable)
			ORDER BY pg_get_userbyid(g.grantee) COLLATE "C", g.privilege_type COLLATE "C"), '[]') FROM aclexplode(` + list + `) g)`
}

// The queries, each for the OID of a table and with one JSON value as its answer. They name things with their schema,
// because the search_path has no other schema than the system's.
var (
	tableQuery = `
		SELECT json_build_object('owner', pg_get_userbyid(c.relowner), 'comment', coalesce(obj_description(c.oid, 'pg_class'), ''),
			'options', coalesce(to_json(c.reloptions), '[]'),
			'toast_options', coalesce((SELECT to_json(t.reloptions) FROM pg_class t WHERE t.oid = c.reltoastrelid), '[]'),
			'identity', c.relreplident,
			'identity_index', coalesce((SELECT x.relname FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid WHERE i.indrelid = c.oid AND i.indisreplident), ''),
			'cluster_index', coalesce((SELECT x.relname FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid WHERE i.indrelid = c.oid AND i.indisclustered), ''),
			'grants', ` + grantsOf("coalesce(c.relacl, acldefault('r', c.relowner))") + `)
		FROM pg_class c WHERE c.oid = $1`

	columnsQuery = `
		SELECT coalesce(json_agg(json_build_object('name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'type_oid', a.atttypid::bigint,
			'collation', CASE WHEN a.attcollation <> t.typcollation THEN quote_ident(cn.nspname) || '.' || quote_ident(co.collname) ELSE '' END,
			'plain', a.attcollation = 0 OR co.collisdeterministic AND co.oid < 16384,
			'not_null', a.attnotnull, 'default', coalesce(pg_get_expr(d.adbin, d.adrelid), ''), 'generated', a.attgenerated, 'identity', a.attidentity,
			'sequence', coalesce((SELECT s.refobjid::regclass::text FROM pg_depend s JOIN pg_class q ON q.oid = s.refobjid AND q.relkind = 'S'
				WHERE s.classid = 'pg_attrdef'::regclass AND s.objid = d.oid AND s.refclassid = 'pg_class'::regclass LIMIT 1), ''),
			'storage', a.attstorage, 'type_storage', t.typstorage, 'compression', a.attcompression,
			'statistics', coalesce((to_jsonb(a) ->> 'attstattarget')::int, -1), 'options', coalesce(to_json(a.attoptions), '[]'),
			'comment', coalesce(col_description(a.attrelid, a.attnum), ''), 'grants', ` + grantsOf("a.attacl") + `) ORDER BY a.attnum), '[]')
		FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
		LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		LEFT JOIN pg_collation co ON co.oid = a.attcollation LEFT JOIN pg_namespace cn ON cn.oid = co.collnamespace
		WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped`

	constraintsQuery = `
		SELECT coalesce(json_agg(json_build_object('name', c.conname, 'kind', c.contype, 'definition', pg_get_constraintdef(c.oid),
			'comment', coalesce(obj_description(c.oid, 'pg_constraint'), ''), 'columns', ` + columnNames("c.conrelid", "c.conkey") + `,
			'target_schema', coalesce(tn.nspname, ''), 'target_table', coalesce(t.relname, ''), 'target_columns', ` + columnNames("c.confrelid", "c.confkey") + `,
			'equal', (SELECT coalesce(json_agg(a.attname ORDER BY e.place), '[]') FROM unnest(c.conexclop) WITH ORDINALITY AS e (operator, place)
				JOIN pg_operator o ON o.oid = e.operator AND o.oprname = '=' AND o.oid < 16384
				JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[e.place])) ORDER BY c.contype = 'f', c.conname COLLATE "C"), '[]')
		FROM pg_constraint c LEFT JOIN pg_class t ON t.oid = c.confrelid LEFT JOIN pg_namespace tn ON tn.oid = t.relnamespace
		WHERE c.conrelid = $1 AND c.contype IN ('c', 'u', 'p', 'x', 'f')`

	indexesQuery = `
		SELECT coalesce(json_agg(json_build_object('name', x.relname, 'definition', pg_get_indexdef(i.indexrelid), 'comment', coalesce(obj_description(x.oid, 'pg_class'), ''),
			'unique', i.indisunique, 'constraint', coalesce(c.conname, ''), 'options', coalesce(to_json(x.reloptions), '[]'), 'valid', i.indisvalid,
			'columns', (SELECT coalesce(json_agg(a.attname ORDER BY k.place), '[]') FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
				JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number WHERE k.place <= i.indnkeyatts)) ORDER BY x.relname COLLATE "C"), '[]')
		FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.conrelid = i.indrelid AND c.contype IN ('u', 'p', 'x')
		WHERE i.indrelid = $1`

	schemaQuery = `
		SELECT json_build_object('owner', pg_get_userbyid(n.nspowner), 'grants', ` + grantsOf("n.nspacl") + `)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1`

	// Whatever has no pinned place in the catalogue and is neither a part of the table, nor its schema, nor the target of a
	// foreign key, nor a sequence, of which the columns tell, is a user's: a type, a function, an operator …
	factsQuery = `
		WITH parts (class, id) AS (
			SELECT 'pg_class'::regclass, $1::oid
			UNION ALL SELECT 'pg_class', indexrelid FROM pg_index WHERE indrelid = $1
			UNION ALL SELECT 'pg_attrdef', oid FROM pg_attrdef WHERE adrelid = $1
			UNION ALL SELECT 'pg_constraint', oid FROM pg_constraint WHERE conrelid = $1)
		SELECT json_build_object('kind', c.relkind, 'persistence', c.relpersistence, 'partition', c.relispartition, 'typed', c.reloftype <> 0,
			'inherits', EXISTS (SELECT FROM pg_inherits WHERE inhrelid = c.oid OR inhparent = c.oid),
			'access_method', coalesce((SELECT amname FROM pg_am WHERE oid = c.relam), ''),
			'tablespace', c.reltablespace <> 0 OR EXISTS (SELECT FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid WHERE i.indrelid = c.oid AND x.reltablespace <> 0),
			'row_security', c.relrowsecurity OR c.relforcerowsecurity OR EXISTS (SELECT FROM pg_policy WHERE polrelid = c.oid),
			'rules', (SELECT coalesce(json_agg(rulename), '[]') FROM pg_rewrite WHERE ev_class = c.oid),
			'triggers', (SELECT coalesce(json_agg(t.tgname ORDER BY t.tgname), '[]') FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
				WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND p.pronamespace IS DISTINCT FROM (SELECT oid FROM pg_namespace WHERE nspname = 'cleave')),
			'statistics', (SELECT coalesce(json_agg(stxname), '[]') FROM pg_statistic_ext WHERE stxrelid = c.oid),
			'publications', (SELECT coalesce(json_agg(p.pubname), '[]') FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE r.prrelid = c.oid),
			'labels', EXISTS (SELECT FROM pg_seclabel WHERE classoid = 'pg_class'::regclass AND objoid = c.oid),
			'referenced', (SELECT coalesce(json_agg(DISTINCT conrelid::regclass::text), '[]') FROM pg_constraint WHERE confrelid = c.oid AND conrelid <> c.oid AND contype = 'f'),
			'strange', (SELECT coalesce(json_agg(DISTINCT pg_describe_object(d.refclassid, d.refobjid, 0)), '[]') FROM pg_depend d JOIN parts p ON d.classid = p.class AND d.objid = p.id
				WHERE d.refobjid >= 16384 AND d.refclassid <> 'pg_namespace'::regclass
				AND NOT EXISTS (SELECT FROM parts o WHERE o.class = d.refclassid AND o.id = d.refobjid)
				AND NOT (d.refclassid = 'pg_class'::regclass AND (
					EXISTS (SELECT FROM pg_constraint f WHERE f.conrelid = $1 AND f.contype = 'f' AND d.refobjid IN (f.confrelid, f.conindid))
					OR EXISTS (SELECT FROM pg_class s WHERE s.oid = d.refobjid AND s.relkind = 'S')))),
			'default_grants', c.relacl IS NULL,
			'extension', coalesce((SELECT pg_describe_object(refclassid, refobjid, 0) FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid AND deptype = 'e'), ''))
		FROM pg_class c WHERE c.oid = $1`
)

// columnNames is SQL for the names of columns that an array of numbers names.
func columnNames(table, numbers string) string {
	return `(SELECT coalesce(json_agg(a.attname ORDER BY k.place), '[]') FROM unnest(` + numbers + `) WITH ORDINALITY AS k (number, place)
				JOIN pg_attribute a ON a.attrelid = ` + table + ` AND a.attnum = k.number)`
}

// differsFrom says in words which parts of two definitions differ.
func (d *Definition) differsFrom(other *Definition) []string {
	var parts []string
	for _, part := range []struct {
		name string
		a, b any
	}{
		{"the columns", d.Columns, other.Columns}, {"the constraints", d.Constraints, other.Constraints}, {"the indexes", d.Indexes, other.Indexes},
		{"the owner", d.Owner, other.Owner}, {"the privileges", d.Grants, other.Grants}, {"the comment", d.Comment, other.Comment},
		{"the storage parameters", slices.Concat(d.Options, d.ToastOptions), slices.Concat(other.Options, other.ToastOptions)},
		{"the replica identity", d.Identity + d.IdentityIndex, other.Identity + other.IdentityIndex}, {"the clustering", d.ClusterIndex, other.ClusterIndex},
	} {
		if !equalJSON(part.a, part.b) {
			parts = append(parts, part.name)
		}
	}
	return parts
}

// roles returns the roles that must be there for the table to be made.
func (d *Definition) roles(withSchema bool) []string {
	roles := []string{sqltext.QuoteIdentifier(d.Owner)}
	grants := slices.Clone(d.Grants)
	for _, c := range d.Columns {
		grants = append(grants, c.Grants...)
	}
	if withSchema {
		roles = append(roles, sqltext.QuoteIdentifier(d.Schema.Owner))
		grants = append(grants, d.Schema.Grants...)
	}
	for _, g := range grants {
		if g.To != "PUBLIC" {
			roles = append(roles, g.To)
		}
	}
	for i, r := range roles {
		roles[i] = strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(r, `"`), `"`), `""`, `"`)
	}
	slices.Sort(roles)
	return slices.Compact(roles)
}

// IsTable says whether it is an ordinary table, which can be locked.
func (d *Definition) IsTable() bool { return d.facts.Kind == "r" }
