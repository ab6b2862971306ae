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
	// Persistence is p, or u for an unlogged table, as in the catalogue.
	Persistence string `json:"persistence"`
	// RowSecurity: the policies hold; ForceRowSecurity: for the owner too.
	RowSecurity      bool        `json:"row_security"`
	ForceRowSecurity bool        `json:"force_row_security"`
	Policies         []Policy    `json:"policies"`
	Triggers         []Trigger   `json:"triggers"`
	Statistics       []Statistic `json:"statistics"`
	// Sequences are those that its columns own.
	Sequences []Sequence `json:"sequences"`
	// PartitionKey is what PARTITION BY says; empty if it is not partitioned.
	PartitionKey string      `json:"partition_key"`
	Partitions   []Partition `json:"partitions"`
	// Schema is that of the table, made on other shards if they do not have it.
	Schema SchemaOwner `json:"-"`
	facts  tableFacts
	needs  needs
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
	// Statistics are the targets of its columns that have one of their own, by their numbers.
	Statistics map[int]int `json:"statistics"`
}

// Policy of row-level security.
type Policy struct {
	Name       string `json:"name"`
	Permissive bool   `json:"permissive"`
	Command    string `json:"command"` // r, a, w, d or *, as in the catalogue
	// Roles are quoted; PUBLIC is everybody.
	Roles   []string `json:"roles"`
	Using   string   `json:"using"`
	Check   string   `json:"check"`
	Comment string   `json:"comment"`
}

// Trigger of a table, as PostgreSQL prints it.
type Trigger struct {
	Name       string `json:"name"`
	Definition string `json:"definition"`
	Enabled    string `json:"enabled"` // O, D, R or A, as in the catalogue
	Comment    string `json:"comment"`
}

// Statistic is an extended statistics object, as PostgreSQL prints it.
type Statistic struct {
	Name       string `json:"name"` // quoted, with its schema
	Definition string `json:"definition"`
	Owner      string `json:"owner"`
	Target     int    `json:"target"`
	Comment    string `json:"comment"`
}

// SchemaOwner is what a schema is made with.
type SchemaOwner struct {
	Owner  string  `json:"owner"`
	Grants []Grant `json:"grants"`
}

// tableFacts are what stands in the way of declaring a table.
type tableFacts struct {
	Kind          string      `json:"kind"`
	Partition     bool        `json:"partition"`
	Inherits      bool        `json:"inherits"`
	Typed         bool        `json:"typed"`
	AccessMethod  string      `json:"access_method"`
	Tablespace    bool        `json:"tablespace"`
	Rules         []string    `json:"rules"`
	Publications  []string    `json:"publications"`
	Labels        bool        `json:"labels"`
	Referenced    []reference `json:"referenced"`
	DefaultGrants bool        `json:"default_grants"`
	Extension     string      `json:"extension"`
	// Parts are the table itself, its indexes, defaults, constraints, triggers, policies and statistics.
	Parts []objectID `json:"parts"`
}

// reference is a foreign key of another table to this one.
type reference struct {
	Schema     string `json:"schema"`
	Table      string `json:"table"`
	Constraint string `json:"constraint"`
}

func (r reference) table() topology.TableName {
	return topology.TableName{Schema: r.Schema, Name: r.Table}
}

// Describe reads a table's definition. A table that is not there is an error with SQLSTATE 42P01.
func Describe(ctx context.Context, on querier, table topology.TableName) (*Definition, error) {
	d, err := describe(ctx, on, table)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, pgerr.New(pgerr.UndefinedTable, "relation %q does not exist", table.String()).
			WithHint("Create it first; a table is declared after it was created.")
	}
	if err != nil {
		return nil, fmt.Errorf("read the definition of table %s: %w", table, err)
	}
	return d, nil
}

// DescribeThere reads the definitions of tables, as far as a shard has them.
func DescribeThere(ctx context.Context, on querier, tables []topology.TableName) (definitions Definitions, err error) {
	for _, table := range tables {
		d, err := describe(ctx, on, table)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the definition of table %s: %w", table, err)
		}
		definitions = append(definitions, d)
	}
	return definitions, nil
}

func describe(ctx context.Context, on querier, table topology.TableName) (*Definition, error) {
	var oid uint32
	err := on.QueryRow(ctx, "SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2",
		table.Schema, table.Name).Scan(&oid)
	if err != nil {
		return nil, err
	}
	d := &Definition{Table: table}
	parts := []any{d, &d.facts, &d.Columns, &d.Constraints, &d.Indexes, &d.Schema, &d.Policies, &d.Triggers, &d.Statistics, &d.Sequences, &d.Partitions}
	contents := make([][]byte, len(parts))
	into := make([]any, len(parts))
	for i := range contents {
		into[i] = &contents[i]
	}
	if err := on.QueryRow(ctx, definitionQuery, oid).Scan(into...); err != nil {
		return nil, err
	}
	for i, part := range parts {
		if err := json.Unmarshal(contents[i], part); err != nil {
			return nil, err
		}
	}
	d.DefaultGrants = d.facts.DefaultGrants
	if d.needs, err = findNeeds(ctx, on, d.facts.Parts); err != nil {
		return nil, err
	}
	return d, nil
}

// definitionQuery reads all parts at once, in the order in which [describe] takes them.
var definitionQuery = "SELECT (" + strings.Join([]string{
	tableQuery, factsQuery, columnsQuery, constraintsQuery, indexesQuery, schemaQuery, policiesQuery, triggersQuery, statisticsQuery, sequencesQuery, partitionsQuery,
}, "), (") + ")"

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
			'persistence', c.relpersistence, 'row_security', c.relrowsecurity, 'force_row_security', c.relforcerowsecurity,
			'options', coalesce(to_json(c.reloptions), '[]'),
			'toast_options', coalesce((SELECT to_json(t.reloptions) FROM pg_class t WHERE t.oid = c.reltoastrelid), '[]'),
			'identity', c.relreplident, 'partition_key', coalesce(pg_get_partkeydef(c.oid), ''),
			'identity_index', coalesce((SELECT x.relname FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid WHERE i.indrelid = c.oid AND i.indisreplident), ''),
			'cluster_index', coalesce((SELECT x.relname FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid WHERE i.indrelid = c.oid AND i.indisclustered), ''),
			'grants', ` + grantsOf("coalesce(c.relacl, acldefault('r', c.relowner))") + `)
		FROM pg_class c WHERE c.oid = $1`

	columnsQuery = `
		SELECT coalesce(json_agg(json_build_object('name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'type_oid', CASE WHEN a.atttypid < 16384 THEN a.atttypid::bigint ELSE 0 END,
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
			'statistics', (SELECT json_object_agg(s.attnum, s.target) FROM (SELECT a.attnum, (to_jsonb(a) ->> 'attstattarget')::int AS target FROM pg_attribute a WHERE a.attrelid = i.indexrelid ORDER BY a.attnum) AS s WHERE s.target >= 0),
			'columns', (SELECT coalesce(json_agg(a.attname ORDER BY k.place), '[]') FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
				JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number WHERE k.place <= i.indnkeyatts)) ORDER BY x.relname COLLATE "C"), '[]')
		FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.conrelid = i.indrelid AND c.contype IN ('u', 'p', 'x')
		WHERE i.indrelid = $1`

	schemaQuery = `
		SELECT json_build_object('owner', pg_get_userbyid(n.nspowner), 'grants', ` + grantsOf("n.nspacl") + `)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1`

	policiesQuery = `
		SELECT coalesce(json_agg(json_build_object('name', p.polname, 'permissive', p.polpermissive, 'command', p.polcmd,
			'roles', (SELECT json_agg(CASE r.oid WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(r.oid)) END ORDER BY pg_get_userbyid(r.oid) COLLATE "C") FROM unnest(p.polroles) AS r (oid)),
			'using', coalesce(pg_get_expr(p.polqual, p.polrelid), ''), 'check', coalesce(pg_get_expr(p.polwithcheck, p.polrelid), ''),
			'comment', coalesce(obj_description(p.oid, 'pg_policy'), '')) ORDER BY p.polname COLLATE "C"), '[]')
		FROM pg_policy p WHERE p.polrelid = $1`

	triggersQuery = `
		SELECT coalesce(json_agg(json_build_object('name', t.tgname, 'definition', pg_get_triggerdef(t.oid), 'enabled', t.tgenabled,
			'comment', coalesce(obj_description(t.oid, 'pg_trigger'), '')) ORDER BY t.tgname COLLATE "C"), '[]')
		FROM pg_trigger t WHERE t.tgrelid = $1 AND ` + usersTrigger

	statisticsQuery = `
		SELECT coalesce(json_agg(json_build_object('name', quote_ident(n.nspname) || '.' || quote_ident(s.stxname), 'definition', pg_get_statisticsobjdef(s.oid),
			'owner', pg_get_userbyid(s.stxowner), 'target', coalesce((to_jsonb(s) ->> 'stxstattarget')::int, -1),
			'comment', coalesce(obj_description(s.oid, 'pg_statistic_ext'), '')) ORDER BY n.nspname COLLATE "C", s.stxname COLLATE "C"), '[]')
		FROM pg_statistic_ext s JOIN pg_namespace n ON n.oid = s.stxnamespace WHERE s.stxrelid = $1`

	factsQuery = `
		SELECT json_build_object('kind', c.relkind, 'partition', c.relispartition, 'typed', c.reloftype <> 0,
			'inherits', EXISTS (SELECT FROM pg_inherits WHERE inhrelid = c.oid OR inhparent = c.oid),
			'access_method', coalesce((SELECT amname FROM pg_am WHERE oid = c.relam), ''),
			'tablespace', c.reltablespace <> 0 OR EXISTS (SELECT FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid WHERE i.indrelid = c.oid AND x.reltablespace <> 0),
			'rules', (SELECT coalesce(json_agg(rulename), '[]') FROM pg_rewrite WHERE ev_class = c.oid),
			'publications', (SELECT coalesce(json_agg(p.pubname), '[]') FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE r.prrelid = c.oid),
			'labels', EXISTS (SELECT FROM pg_seclabel WHERE classoid = 'pg_class'::regclass AND objoid = c.oid),
			'referenced', (SELECT coalesce(json_agg(json_build_object('schema', n.nspname, 'table', o.relname, 'constraint', f.conname) ORDER BY n.nspname, o.relname, f.conname), '[]')
				FROM pg_constraint f JOIN pg_class o ON o.oid = f.conrelid JOIN pg_namespace n ON n.oid = o.relnamespace
				WHERE f.confrelid = c.oid AND f.conrelid <> c.oid AND f.contype = 'f'),
			'default_grants', c.relacl IS NULL,
			'extension', coalesce((SELECT pg_describe_object(refclassid, refobjid, 0) FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid AND deptype = 'e'), ''),
			'parts', (SELECT json_agg(json_build_object('class', p.class, 'id', p.id)) FROM (
				SELECT 'pg_class', c.oid::bigint
				UNION ALL SELECT 'pg_class', indexrelid::bigint FROM pg_index WHERE indrelid = c.oid
				UNION ALL SELECT 'pg_attrdef', oid::bigint FROM pg_attrdef WHERE adrelid = c.oid
				UNION ALL SELECT 'pg_constraint', oid::bigint FROM pg_constraint WHERE conrelid = c.oid AND contype <> 't'
				UNION ALL SELECT 'pg_trigger', t.oid::bigint FROM pg_trigger t WHERE t.tgrelid = c.oid AND ` + usersTrigger + `
				UNION ALL SELECT 'pg_policy', oid::bigint FROM pg_policy WHERE polrelid = c.oid
				UNION ALL SELECT 'pg_statistic_ext', oid::bigint FROM pg_statistic_ext WHERE stxrelid = c.oid) AS p (class, id)))
		FROM pg_class c WHERE c.oid = $1`
)

// usersTrigger is true for a trigger t that is neither PostgreSQL's nor a guard's.
const usersTrigger = `NOT t.tgisinternal AND NOT EXISTS (SELECT FROM pg_proc p WHERE p.oid = t.tgfoid AND p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cleave'))`

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
		{"being unlogged", d.Persistence, other.Persistence}, {"the triggers", d.Triggers, other.Triggers}, {"the statistics", d.Statistics, other.Statistics},
		{"row-level security", []any{d.RowSecurity, d.ForceRowSecurity, d.Policies}, []any{other.RowSecurity, other.ForceRowSecurity, other.Policies}},
		{"the sequences", d.Sequences, other.Sequences},
		{"the partitions", []any{d.PartitionKey, d.Partitions}, []any{other.PartitionKey, other.Partitions}},
	} {
		if !equalJSON(part.a, part.b) {
			parts = append(parts, part.name)
		}
	}
	return parts
}

// DiffersOn says in what a table is not the same on another shard.
func (d *Definition) DiffersOn(ctx context.Context, other querier) ([]string, error) {
	there, err := Describe(ctx, other, d.Table)
	if err != nil {
		return nil, err
	}
	return d.differsFrom(there), nil
}

// roles returns the roles that must be there for the table to be made.
func (d *Definition) roles(withSchema bool) []string {
	roles := []string{sqltext.QuoteIdentifier(d.Owner)}
	grants := slices.Clone(d.Grants)
	for _, c := range d.Columns {
		grants = append(grants, c.Grants...)
	}
	for _, s := range d.Sequences {
		grants = append(grants, s.Grants...)
	}
	for _, p := range d.Policies {
		for _, r := range p.Roles {
			grants = append(grants, Grant{To: r})
		}
	}
	for _, s := range d.Statistics {
		roles = append(roles, sqltext.QuoteIdentifier(s.Owner))
	}
	for _, p := range d.Partitions {
		roles = append(roles, sqltext.QuoteIdentifier(p.Owner))
		grants = append(grants, p.Grants...)
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

// IsTable says whether it is a table, which can be locked.
func (d *Definition) IsTable() bool { return d.facts.Kind == "r" || d.IsPartitioned() }
