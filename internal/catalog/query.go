package catalog

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/topology"
)

// question asks for everything in one statement, so that all of it is of one moment: $1 and $2 are the relations' schemas and
// names, $3 and $4 the functions'. The answer names each by its place in the arrays.
const question = `
WITH RECURSIVE
wanted AS (
	SELECT w.place, c.oid, n.nspname, c.relname, c.relkind, c.relpersistence
	FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (schema, name, place)
	JOIN pg_namespace n ON n.nspname = w.schema::name
	JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name::name
),
-- What is used by whoever uses a relation: by rules and policies, as a child, as an index's table; and what functions and
-- operators use in turn, as far as PostgreSQL knows.
uses (root, class, object) AS (
	SELECT oid, 'pg_class'::regclass::oid, oid FROM wanted WHERE oid >= 16384
	UNION
	SELECT u.root, next.class, next.object
	FROM uses u CROSS JOIN LATERAL (
		SELECT d.refclassid, d.refobjid FROM pg_rewrite r JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
		WHERE u.class = 'pg_class'::regclass AND r.ev_class = u.object
		UNION ALL
		SELECT d.refclassid, d.refobjid FROM pg_policy p JOIN pg_depend d ON d.classid = 'pg_policy'::regclass AND d.objid = p.oid
		WHERE u.class = 'pg_class'::regclass AND p.polrelid = u.object
		UNION ALL
		SELECT 'pg_class'::regclass, i.inhrelid FROM pg_inherits i WHERE u.class = 'pg_class'::regclass AND i.inhparent = u.object
		UNION ALL
		SELECT 'pg_class'::regclass, x.indrelid FROM pg_index x WHERE u.class = 'pg_class'::regclass AND x.indexrelid = u.object
		UNION ALL
		SELECT d.refclassid, d.refobjid FROM pg_depend d
		WHERE u.class IN ('pg_proc'::regclass, 'pg_operator'::regclass) AND d.classid = u.class AND d.objid = u.object
	) AS next (class, object)
	WHERE next.class IN ('pg_class'::regclass, 'pg_proc'::regclass, 'pg_operator'::regclass) AND next.object >= 16384
),
-- A partition's rows are its parent's too.
above (root, object) AS (
	SELECT u.root, i.inhparent FROM uses u JOIN pg_inherits i ON i.inhrelid = u.object WHERE u.class = 'pg_class'::regclass
	UNION
	SELECT a.root, i.inhparent FROM above a JOIN pg_inherits i ON i.inhrelid = a.object
),
reached AS (
	SELECT r.root, json_agg(json_build_object('Schema', n.nspname, 'Name', c.relname) ORDER BY n.nspname, c.relname) AS tables
	FROM (SELECT root, object FROM uses WHERE class = 'pg_class'::regclass AND object <> root UNION SELECT root, object FROM above) r
	JOIN pg_class c ON c.oid = r.object JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE c.relkind IN ('r', 'p', 'f', 'm') GROUP BY r.root
),
opaque AS (
	SELECT u.root, min(format('%I.%I()', n.nspname, p.proname)) AS name
	FROM uses u JOIN pg_proc p ON p.oid = u.object JOIN pg_language l ON l.oid = p.prolang JOIN pg_namespace n ON n.oid = p.pronamespace
	WHERE u.class = 'pg_proc'::regclass AND l.lanname NOT IN ('internal', 'c') AND p.provolatile <> 'i' AND p.prosqlbody IS NULL
	GROUP BY u.root
)
SELECT json_build_object(
	'Relations', (SELECT json_agg(json_build_object(
		'Place', w.place, 'Schema', w.nspname, 'Name', w.relname, 'Kind', w.relkind::text, 'Temporary', w.relpersistence = 't',
		'System', w.nspname IN ('pg_catalog', 'information_schema', 'pg_toast'),
		'HasRules', EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = w.oid AND r.rulename <> '_RETURN'),
		'Reaches', reached.tables, 'Opaque', opaque.name,
		'Columns', (SELECT json_agg(json_build_object(
			'Name', a.attname, 'TypeOID', a.atttypid::bigint, 'TypeMod', a.atttypmod,
			'NotNull', a.attnotnull OR t.typtype = 'd' AND t.typnotnull,
			'HasDefault', a.attgenerated = '' AND (a.atthasdef OR a.attidentity <> '' OR t.typtype = 'd' AND t.typdefault IS NOT NULL),
			'Generated', a.attgenerated <> '', 'IdentityAlways', a.attidentity = 'a',
			'Nondeterministic', NOT coalesce(l.collisdeterministic, true)) ORDER BY a.attnum)
			FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_collation l ON l.oid = a.attcollation
			WHERE a.attrelid = w.oid AND a.attnum > 0 AND NOT a.attisdropped)))
		FROM wanted w LEFT JOIN reached ON reached.root = w.oid LEFT JOIN opaque ON opaque.root = w.oid),
	'Functions', (SELECT json_agg(json_build_object(
		'Place', w.place, 'Schema', n.nspname, 'Name', p.proname, 'System', n.nspname = 'pg_catalog' AND p.oid < 16384,
		'Kind', p.prokind::text, 'Language', l.lanname, 'Volatility', p.provolatile::text,
		'ExtensionMember', EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'))
		ORDER BY p.oid)
		FROM unnest($3::text[], $4::text[]) WITH ORDINALITY AS w (schema, name, place)
		JOIN pg_namespace n ON n.nspname = w.schema::name
		JOIN pg_proc p ON p.pronamespace = n.oid AND p.proname = w.name::name
		JOIN pg_language l ON l.oid = p.prolang))`

// answer is the form of what the question returns.
type answer struct {
	Relations []struct {
		plan.Relation
		Place   int
		Kind    letter
		Reaches []topology.TableName
		Opaque  string
	}
	Functions []struct {
		plan.Function
		Place      int
		Kind       letter
		Volatility letter
	}
}

// letter is a value of PostgreSQL's type "char".
type letter byte

// UnmarshalJSON reads a text of one letter.
func (l *letter) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	if len(text) != 1 {
		return fmt.Errorf("%q is not one letter", text)
	}
	*l = letter(text[0])
	return nil
}

// ask reads what the names stand for. Names with no row in the answer stand for nothing.
func ask(ctx context.Context, conn *pgx.Conn, n names) (answers, error) {
	relationSchemas, relationNames := make([]string, len(n.relations)), make([]string, len(n.relations))
	functionSchemas, functionNames := make([]string, len(n.functions)), make([]string, len(n.functions))
	read := newAnswers()
	for i, r := range n.relations {
		relationSchemas[i], relationNames[i] = r.Schema, r.Name
		read.relations[r] = relation{}
	}
	for i, f := range n.functions {
		functionSchemas[i], functionNames[i] = f.Schema, f.Name
		read.functions[f] = nil
	}
	var text []byte
	if err := conn.QueryRow(ctx, question, relationSchemas, relationNames, functionSchemas, functionNames).Scan(&text); err != nil {
		return answers{}, fmt.Errorf("look names up: %w", err)
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return answers{}, fmt.Errorf("understand what the names stand for: %w", err)
	}
	return read, a.into(read, n)
}

// into puts the answer to the names that were asked for.
func (a *answer) into(read answers, n names) error {
	for i := range a.Relations {
		r := &a.Relations[i]
		if r.Place < 1 || r.Place > len(n.relations) {
			return fmt.Errorf("relation %d was not asked for", r.Place)
		}
		found := r.Relation
		found.Kind = byte(r.Kind)
		read.relations[n.relations[r.Place-1]] = relation{Relation: &found, reaches: r.Reaches, opaque: r.Opaque}
	}
	for i := range a.Functions {
		f := &a.Functions[i]
		if f.Place < 1 || f.Place > len(n.functions) {
			return fmt.Errorf("function %d was not asked for", f.Place)
		}
		found, name := f.Function, n.functions[f.Place-1]
		found.Kind, found.Volatility = byte(f.Kind), byte(f.Volatility)
		read.functions[name] = append(read.functions[name], found)
	}
	return nil
}
