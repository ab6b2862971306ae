package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// objectID is an object's place in PostgreSQL's catalogue.
type objectID struct {
	Class string `json:"class"`
	ID    uint32 `json:"id"`
}

// need is something of a user's that a table is made of: a type, a function, an extension …
type need struct {
	objectID
	// Kind and Identity name it the same way on every server.
	Kind     string `json:"kind"`
	Identity string `json:"identity"`
	Schema   string `json:"schema"`
	Words    string `json:"words"` // for people
	// Extension that it belongs to, which then has to be there.
	Extension string `json:"extension"`
	// Relation is set for a relation: what kind it is, and its name.
	Relation string `json:"relation"`
	Name     string `json:"name"`
	// Type is set for a type: what kind it is.
	Type string `json:"type"`
	// model is what is made of it elsewhere.
	model model
}

// needs of a table, each after those that it needs itself, and the schemas that they are in.
type needs struct {
	all     []need
	schemas map[string]SchemaOwner
}

// dependenciesQuery lists what objects depend on directly: what has no pinned place in the catalogue is a user's. A domain also depends on
// what its constraints do.
const dependenciesQuery = `
	WITH asking (class, id) AS (SELECT class::regclass, id::oid FROM unnest($1::text[], $2::bigint[]) AS asked (class, id)),
	sources (class, id, of_class, of_id) AS (
		SELECT class, id, class, id FROM asking
		UNION ALL SELECT 'pg_constraint'::regclass, c.oid, a.class, a.id FROM asking a JOIN pg_constraint c ON c.contypid = a.id AND a.class = 'pg_type'::regclass)
	SELECT coalesce(json_agg(json_build_object('class', n.class::regclass::text, 'id', n.id::bigint, 'kind', o.type, 'identity', o.identity, 'schema', coalesce(s.nspname, (parse_ident(o.schema))[1], ''),
		'words', pg_describe_object(n.class, n.id, 0), 'relation', coalesce(r.relkind::text, ''), 'name', coalesce(r.relname, ''),
		'extension', coalesce((SELECT e.extname FROM pg_depend m JOIN pg_extension e ON e.oid = m.refobjid WHERE m.classid = n.class AND m.objid = n.id AND m.deptype = 'e'),
			(SELECT extname FROM pg_extension WHERE n.class = 'pg_extension'::regclass AND oid = n.id), ''),
		'type', coalesce(CASE WHEN t.typsubscript = 'array_subscript_handler'::regproc THEN 'array' ELSE t.typtype::text END, ''))
		ORDER BY o.identity COLLATE "C"), '[]')
	FROM (SELECT DISTINCT d.refclassid AS class, d.refobjid AS id FROM pg_depend d JOIN sources q ON d.classid = q.class AND d.objid = q.id
		WHERE d.refobjid >= 16384 AND d.refclassid <> 'pg_namespace'::regclass AND d.deptype <> 'e') AS n
	CROSS JOIN LATERAL pg_identify_object(n.class, n.id, 0) AS o
	LEFT JOIN pg_class r ON n.class = 'pg_class'::regclass AND r.oid = n.id LEFT JOIN pg_namespace s ON s.oid = r.relnamespace
	LEFT JOIN pg_type t ON n.class = 'pg_type'::regclass AND t.oid = n.id`

// findNeeds follows what the parts of a table depend on.
func findNeeds(ctx context.Context, on querier, parts []objectID) (needs, error) {
	f := needFinder{on: on, known: map[objectID]bool{}, found: needs{schemas: map[string]SchemaOwner{}}}
	for _, p := range parts {
		f.known[p] = true
	}
	err := f.follow(ctx, parts)
	return f.found, err
}

type needFinder struct {
	on    querier
	known map[objectID]bool
	found needs
}

// follow adds what the objects depend on, and before that what those depend on.
func (f *needFinder) follow(ctx context.Context, of []objectID) error {
	classes, ids := make([]string, len(of)), make([]int64, len(of))
	for i, o := range of {
		classes[i], ids[i] = o.Class, int64(o.ID)
	}
	var content []byte
	if err := f.on.QueryRow(ctx, dependenciesQuery, classes, ids).Scan(&content); err != nil {
		return err
	}
	var found []need
	if err := json.Unmarshal(content, &found); err != nil {
		return err
	}
	for _, n := range found {
		if f.known[n.objectID] {
			continue
		}
		f.known[n.objectID] = true
		if err := f.add(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (f *needFinder) add(ctx context.Context, n need) (err error) {
	if n.Extension == "" && n.Relation == "" {
		if err := f.follow(ctx, []objectID{n.objectID}); err != nil {
			return err
		}
	}
	if n.Relation == "c" { // of a composite type, whose attributes depend on their types
		return f.follow(ctx, []objectID{n.objectID})
	}
	if n.model, err = modelOf(ctx, f.on, n); err != nil {
		return err
	}
	if err := f.addSchema(ctx, n); err != nil {
		return err
	}
	f.found.all = append(f.found.all, n)
	return nil
}

func (f *needFinder) addSchema(ctx context.Context, n need) error {
	if _, known := f.found.schemas[n.Schema]; known || n.Schema == "" || n.model.statements == nil {
		return nil
	}
	owner, err := describeSchema(ctx, f.on, n.Schema)
	f.found.schemas[n.Schema] = owner
	return err
}

// describeSchema reads what a schema is made with.
func describeSchema(ctx context.Context, on querier, name string) (owner SchemaOwner, err error) {
	var content []byte
	query := `SELECT json_build_object('owner', pg_get_userbyid(n.nspowner), 'grants', ` + grantsOf("n.nspacl") + `) FROM pg_namespace n WHERE n.nspname = $1`
	if err := on.QueryRow(ctx, query, name).Scan(&content); err != nil {
		return owner, err
	}
	err = json.Unmarshal(content, &owner)
	return owner, err
}

// checkNeeds refuses what cannot be carried over. Tables that something reads must be the same everywhere.
func (d *Definition) checkNeeds(isReference func(topology.TableName) bool) error {
	targets := map[topology.TableName]bool{}
	for _, c := range d.Constraints {
		targets[topology.TableName{Schema: c.TargetSchema, Name: c.TargetTable}] = true
	}
	for _, n := range d.needs.all {
		relation := topology.TableName{Schema: n.Schema, Name: n.Name}
		switch {
		case n.Extension != "", n.model.statements != nil, n.Type == "array", n.Type == "m",
			n.Relation == "S", // of which the columns tell
			n.Relation == "i", // of the target of a foreign key
			n.Relation == "r" && (targets[relation] || isReference(relation)):
			continue
		case n.Relation == "r":
			return d.unsupported(fmt.Sprintf("It, a trigger or a policy of it reads %s, of which a shard does not have all rows.", n.Words), "Make that table a reference table first, or do without.")
		}
		return d.unsupported(fmt.Sprintf("It is made of things that other shards may not have, or have differently: %s.", n.Words),
			"Use types, functions and collations that are PostgreSQL's own, belong to an extension, or are enums, domains, composite types, ranges and plain functions.")
	}
	return nil
}

// ensure makes what is missing on another shard, and compares what is there.
func (s needs) ensure(ctx context.Context, tx pgx.Tx, shard string) error {
	for name, owner := range s.schemas {
		if err := ensureSchemaOf(ctx, tx, name, owner); err != nil {
			return err
		}
	}
	for _, n := range s.all {
		var err error
		switch {
		case n.Extension != "":
			err = n.ensureExtension(ctx, tx, shard)
		case n.model.statements != nil:
			err = n.ensureObject(ctx, tx, shard)
		}
		if err != nil {
			return fmt.Errorf("make %s: %w", n.Words, err)
		}
	}
	return nil
}

func ensureSchemaOf(ctx context.Context, tx pgx.Tx, name string, owner SchemaOwner) error {
	var there bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", name).Scan(&there); err != nil || there {
		return err
	}
	return executeAll(ctx, tx, schemaStatements(name, owner))
}

func executeAll(ctx context.Context, tx pgx.Tx, statements []string) error {
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

func (n need) ensureExtension(ctx context.Context, tx pgx.Tx, shard string) error {
	var version string
	err := tx.QueryRow(ctx, "SELECT extversion FROM pg_extension WHERE extname = $1", n.Extension).Scan(&version)
	name := sqltext.QuoteIdentifier(n.Extension)
	create := fmt.Sprintf("CREATE EXTENSION %s VERSION %s", name, sqltext.QuoteLiteral(n.model.version))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		if err := ensureSchemaOf(ctx, tx, n.model.schema, SchemaOwner{Owner: n.model.owner}); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf("CREATE EXTENSION %s SCHEMA %s VERSION %s", name, sqltext.QuoteIdentifier(n.model.schema), sqltext.QuoteLiteral(n.model.version))); err != nil {
			return pgerr.New(pgerr.FeatureNotSupported, "extension %s cannot be made on shard %q", name, shard).WithDetail("%s is a part of it: %v", n.Words, err).
				WithHint("Install it on that server, and then run there: %s", create)
		}
		return nil
	case err != nil:
		return err
	case version != n.model.version:
		return pgerr.New(pgerr.FeatureNotSupported, "extension %s has version %s on shard %q, and %s on the home shard", name, version, shard, n.model.version).
			WithHint("Run there: ALTER EXTENSION %s UPDATE TO %s", name, sqltext.QuoteLiteral(n.model.version))
	}
	return nil
}

func (n need) ensureObject(ctx context.Context, tx pgx.Tx, shard string) error {
	there, found, err := n.modelThere(ctx, tx)
	if err != nil {
		return err
	}
	if !found {
		if err := executeAll(ctx, tx, n.model.statements); err != nil {
			return err
		}
		if there, found, err = n.modelThere(ctx, tx); err != nil {
			return err
		}
	}
	if !found || there.model.text != n.model.text {
		return pgerr.New(pgerr.FeatureNotSupported, "shard %q has another %s", shard, n.Words).
			WithDetail("A table that is to be there is made of it, so it has to be the same as on the home shard, with its owner and privileges.").
			WithHint("Drop it there, so that it is made anew, or make it the same.")
	}
	return nil
}

// modelThere looks for the same on another shard.
func (n need) modelThere(ctx context.Context, on querier) (there need, found bool, err error) {
	function := "to_regtype"
	if n.Class == "pg_proc" {
		function = "to_regprocedure"
	}
	var id *uint32
	if err := on.QueryRow(ctx, "SELECT "+function+"($1)::oid", n.Identity).Scan(&id); err != nil || id == nil {
		return need{}, false, err
	}
	there = n
	there.ID = *id
	there.model, err = modelOf(ctx, on, there)
	return there, err == nil, err
}

// model is all of an object that has to be the same on every shard, and how it is made.
type model struct {
	text       string
	statements []string
	// schema, version and owner are for extensions.
	schema, version, owner string
}

// modelOf reads one; what is not carried over has none.
func modelOf(ctx context.Context, on querier, n need) (model, error) {
	switch {
	case n.Extension != "":
		var m model
		err := on.QueryRow(ctx, "SELECT n.nspname, e.extversion, pg_get_userbyid(n.nspowner) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = $1", n.Extension).
			Scan(&m.schema, &m.version, &m.owner)
		return m, err
	case n.Class == "pg_proc":
		return modelFrom[functionModel](ctx, on, functionQuery, n)
	case n.Class != "pg_type":
		return model{}, nil
	}
	switch n.Type {
	case "e":
		return modelFrom[enumModel](ctx, on, enumQuery, n)
	case "d":
		return modelFrom[domainModel](ctx, on, domainQuery, n)
	case "c":
		return modelFrom[compositeModel](ctx, on, compositeQuery, n)
	case "r":
		return modelFrom[rangeModel](ctx, on, rangeQuery, n)
	default:
		return model{}, nil
	}
}

// modelled is a kind of object that can be made elsewhere.
type modelled interface {
	// statements make it; none if it cannot be carried over.
	statements(identity string) []string
}

func modelFrom[T modelled](ctx context.Context, on querier, query string, n need) (model, error) {
	var content []byte
	if err := on.QueryRow(ctx, query, n.ID).Scan(&content); err != nil {
		if errors.Is(err, pgx.ErrNoRows) {
			return model{}, nil
		}
		return model{}, err
	}
	var object T
	if err := json.Unmarshal(content, &object); err != nil {
		return model{}, err
	}
	text, err := json.Marshal(object)
	return model{text: string(text), statements: object.statements(n.Identity)}, err
}

// common is what all of them have.
type common struct {
	Owner         string  `json:"owner"`
	Comment       string  `json:"comment"`
	DefaultGrants bool    `json:"default_grants"`
	Grants        []Grant `json:"grants"`
}

// finish is what follows after an object was made: its owner, comment and privileges.
func (c common) finish(kind, identity string) []string {
	on := kind + " " + identity
	statements := []string{fmt.Sprintf("ALTER %s OWNER TO %s", on, sqltext.QuoteIdentifier(c.Owner))}
	statements = append(statements, commentOn(on, c.Comment)...)
	if !c.DefaultGrants {
		if kind == "DOMAIN" {
			on = "TYPE " + identity
		}
		statements = append(statements, fmt.Sprintf("REVOKE ALL ON %s FROM PUBLIC, %s", on, sqltext.QuoteIdentifier(c.Owner)))
		statements = append(statements, grantStatements(on, "", c.Grants)...)
	}
	return statements
}

// commonOf is SQL for the common fields of a row of the catalogue.
func commonOf(prefix, catalogue string, acl string) string {
	return fmt.Sprintf("'owner', pg_get_userbyid(o.%[1]sowner), 'comment', coalesce(obj_description(o.oid, '%[2]s'), ''), 'default_grants', o.%[1]sacl IS NULL, 'grants', %[3]s",
		prefix, catalogue, grantsOf(fmt.Sprintf("coalesce(o.%sacl, acldefault('%s', o.%sowner))", prefix, acl, prefix)))
}

type functionModel struct {
	common
	Definition string `json:"definition"`
}

var functionQuery = `
	SELECT json_build_object('definition', pg_get_functiondef(o.oid), ` + commonOf("pro", "pg_proc", "f") + `)
	FROM pg_proc o WHERE o.oid = $1 AND o.prokind IN ('f', 'w')`

func (f functionModel) statements(identity string) []string {
	return append([]string{f.Definition}, f.finish("FUNCTION", identity)...)
}

type enumModel struct {
	common
	Labels []string `json:"labels"`
}

var enumQuery = `
	SELECT json_build_object('labels', (SELECT coalesce(json_agg(e.enumlabel ORDER BY e.enumsortorder), '[]') FROM pg_enum e WHERE e.enumtypid = o.oid), ` + commonOf("typ", "pg_type", "T") + `)
	FROM pg_type o WHERE o.oid = $1`

func (e enumModel) statements(identity string) []string {
	labels := make([]string, len(e.Labels))
	for i, l := range e.Labels {
		labels[i] = sqltext.QuoteLiteral(l)
	}
	return append([]string{fmt.Sprintf("CREATE TYPE %s AS ENUM (%s)", identity, list(labels))}, e.finish("TYPE", identity)...)
}

type domainModel struct {
	common
	Base        string `json:"base"`
	Collation   string `json:"collation"`
	NotNull     bool   `json:"not_null"`
	Default     string `json:"default"`
	Constraints []struct {
		Name       string `json:"name"`
		Definition string `json:"definition"`
	} `json:"constraints"`
}

var domainQuery = `
	SELECT json_build_object('base', format_type(o.typbasetype, o.typtypmod), 'not_null', o.typnotnull, 'default', coalesce(o.typdefault, ''),
		'collation', (SELECT CASE WHEN o.typcollation <> b.typcollation THEN quote_ident(n.nspname) || '.' || quote_ident(l.collname) ELSE '' END
			FROM pg_type b LEFT JOIN pg_collation l ON l.oid = o.typcollation LEFT JOIN pg_namespace n ON n.oid = l.collnamespace WHERE b.oid = o.typbasetype),
		'constraints', (SELECT coalesce(json_agg(json_build_object('name', c.conname, 'definition', pg_get_constraintdef(c.oid)) ORDER BY c.conname COLLATE "C"), '[]')
			FROM pg_constraint c WHERE c.contypid = o.oid AND c.contype = 'c'), ` + commonOf("typ", "pg_type", "T") + `)
	FROM pg_type o WHERE o.oid = $1`

func (d domainModel) statements(identity string) []string {
	sql := fmt.Sprintf("CREATE DOMAIN %s AS %s", identity, d.Base)
	if d.Collation != "" {
		sql += " COLLATE " + d.Collation
	}
	if d.Default != "" {
		sql += " DEFAULT " + d.Default
	}
	if d.NotNull {
		sql += " NOT NULL"
	}
	statements := []string{sql}
	for _, c := range d.Constraints {
		statements = append(statements, fmt.Sprintf("ALTER DOMAIN %s ADD CONSTRAINT %s %s", identity, sqltext.QuoteIdentifier(c.Name), c.Definition))
	}
	return append(statements, d.finish("DOMAIN", identity)...)
}

type compositeModel struct {
	common
	Attributes []struct {
		Name      string `json:"name"`
		Type      string `json:"type"`
		Collation string `json:"collation"`
	} `json:"attributes"`
}

// compositeQuery finds nothing for the row type of a table.
var compositeQuery = `
	SELECT json_build_object('attributes', (SELECT coalesce(json_agg(json_build_object('name', a.attname, 'type', format_type(a.atttypid, a.atttypmod),
			'collation', CASE WHEN a.attcollation <> t.typcollation THEN quote_ident(n.nspname) || '.' || quote_ident(l.collname) ELSE '' END) ORDER BY a.attnum), '[]')
		FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_collation l ON l.oid = a.attcollation LEFT JOIN pg_namespace n ON n.oid = l.collnamespace
		WHERE a.attrelid = o.typrelid AND NOT a.attisdropped), ` + commonOf("typ", "pg_type", "T") + `)
	FROM pg_type o JOIN pg_class c ON c.oid = o.typrelid AND c.relkind = 'c' WHERE o.oid = $1`

func (c compositeModel) statements(identity string) []string {
	attributes := make([]string, len(c.Attributes))
	for i, a := range c.Attributes {
		attributes[i] = sqltext.QuoteIdentifier(a.Name) + " " + a.Type
		if a.Collation != "" {
			attributes[i] += " COLLATE " + a.Collation
		}
	}
	return append([]string{fmt.Sprintf("CREATE TYPE %s AS (%s)", identity, list(attributes))}, c.finish("TYPE", identity)...)
}

type rangeModel struct {
	common
	Subtype    string `json:"subtype"`
	Class      string `json:"class"`
	Collation  string `json:"collation"`
	Difference string `json:"difference"`
	Multirange string `json:"multirange"`
}

// rangeQuery finds nothing for a range with a function that makes values canonical: that one needs the type before the type is made.
var rangeQuery = `
	SELECT json_build_object('subtype', format_type(r.rngsubtype, NULL),
		'class', (SELECT quote_ident(n.nspname) || '.' || quote_ident(k.opcname) FROM pg_opclass k JOIN pg_namespace n ON n.oid = k.opcnamespace WHERE k.oid = r.rngsubopc),
		'collation', coalesce((SELECT quote_ident(n.nspname) || '.' || quote_ident(l.collname) FROM pg_collation l JOIN pg_namespace n ON n.oid = l.collnamespace WHERE l.oid = r.rngcollation), ''),
		'difference', CASE WHEN r.rngsubdiff = 0 THEN '' ELSE (SELECT quote_ident(n.nspname) || '.' || quote_ident(f.proname) FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace WHERE f.oid = r.rngsubdiff) END,
		'multirange', (SELECT quote_ident(n.nspname) || '.' || quote_ident(t.typname) FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.oid = r.rngmultitypid), ` +
	commonOf("typ", "pg_type", "T") + `)
	FROM pg_type o JOIN pg_range r ON r.rngtypid = o.oid AND r.rngcanonical = 0 WHERE o.oid = $1`

func (r rangeModel) statements(identity string) []string {
	options := []string{"SUBTYPE = " + r.Subtype, "SUBTYPE_OPCLASS = " + r.Class, "MULTIRANGE_TYPE_NAME = " + r.Multirange}
	if r.Collation != "" {
		options = append(options, "COLLATION = "+r.Collation)
	}
	if r.Difference != "" {
		options = append(options, "SUBTYPE_DIFF = "+r.Difference)
	}
	return append([]string{fmt.Sprintf("CREATE TYPE %s AS RANGE (%s)", identity, list(options))}, r.finish("TYPE", identity)...)
}
