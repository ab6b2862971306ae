package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/topology"
)

// question asks for everything in one statement, so that all of it is of one moment: $1 and $2 are the relations' schemas and
// names; $3, $4 and $5 those of the functions and what else has them behind it, with the kind. The answer names each by its place
// in the arrays.
const question = `
WITH RECURSIVE
wanted AS (
	SELECT w.place, c.oid, n.nspname, c.relname, c.relkind, c.relpersistence, c.relispartition, c.relrowsecurity, c.relowner, c.reloptions
	FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (schema, name, place)
	JOIN pg_namespace n ON n.nspname = w.schema::name
	JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name::name
),
named AS (
	SELECT w.place, w.kind, n.oid AS schema, w.name::name AS name
	FROM unnest($3::text[], $4::text[], $5::int[]) WITH ORDINALITY AS w (schema, name, kind, place)
	JOIN pg_namespace n ON n.nspname = w.schema::name
),
named_type AS (
	SELECT w.place, t.oid, t.typinput FROM named w JOIN pg_type t ON t.typnamespace = w.schema AND t.typname = w.name WHERE w.kind = 2
),
named_function AS (
	SELECT w.place, p.oid FROM named w JOIN pg_proc p ON p.pronamespace = w.schema AND p.proname = w.name WHERE w.kind = 0
),
-- Casts that users made, by the types that tell of them: those of users if there is one among the two, since its values do not
-- come from nowhere. Between types of PostgreSQL that are named, a cast may also be one that has to be written out.
own_cast (type, function, written_out) AS (
	SELECT side, castfunc, castcontext = 'e' AND side < 16384 FROM pg_cast CROSS JOIN unnest(ARRAY[castsource, casttarget]) AS side
	WHERE oid >= 16384 AND castfunc <> 0 AND (side >= 16384 OR castsource < 16384 AND casttarget < 16384)
),
-- What is used by whoever uses a relation: by rules and policies, as a child, as an index's table, by casts of its columns; by
-- whoever writes to it besides: by triggers, defaults, constraints, domains, foreign keys that change the rows that refer to it.
-- Then what functions, operators and types use in turn, as far as PostgreSQL knows. Roots below 0 are types, and
-- functions with the types that they take and return and the defaults of their arguments, which the caller computes. Only those that
-- are read are seen by reads; those that are written, or made if they are types, have writes. A materialised view has its rows itself.
uses (root, reads, writes, class, object) AS (
	SELECT w.place, s.reads, NOT s.reads, 'pg_class'::regclass::oid, w.oid FROM wanted w CROSS JOIN (VALUES (true), (false)) AS s (reads) WHERE w.oid >= 16384
	UNION
	SELECT -place, true, true, 'pg_type'::regclass::oid, oid FROM named_type
	UNION
	SELECT -place, true, true, 'pg_proc'::regclass::oid, oid FROM named_function WHERE oid >= 16384
	UNION
	SELECT u.root, u.reads, next.writes, next.class, next.object
	FROM uses u CROSS JOIN LATERAL (
		SELECT u.writes OR r.ev_type <> '1' OR d.refclassid = 'pg_type'::regclass, d.refclassid, d.refobjid
		FROM pg_rewrite r JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
		WHERE u.class = 'pg_class'::regclass AND r.ev_class = u.object AND NOT EXISTS (SELECT FROM pg_class m WHERE m.oid = u.object AND m.relkind = 'm')
		UNION ALL
		SELECT d.refclassid = 'pg_type'::regclass, d.refclassid, d.refobjid
		FROM pg_policy p JOIN pg_depend d ON d.classid = 'pg_policy'::regclass AND d.objid = p.oid
		WHERE u.class = 'pg_class'::regclass AND p.polrelid = u.object
		UNION ALL
		SELECT u.writes, 'pg_class'::regclass, i.inhrelid FROM pg_inherits i WHERE u.class = 'pg_class'::regclass AND i.inhparent = u.object
		UNION ALL
		SELECT u.writes, 'pg_class'::regclass, x.indrelid FROM pg_index x WHERE u.class = 'pg_class'::regclass AND x.indexrelid = u.object
		UNION ALL
		SELECT u.writes, 'pg_type'::regclass, c.reltype FROM pg_class c WHERE u.class = 'pg_class'::regclass AND c.oid = u.object
		UNION ALL
		SELECT true, d.refclassid, d.refobjid FROM pg_trigger t JOIN pg_depend d ON d.classid = 'pg_trigger'::regclass AND d.objid = t.oid
		WHERE u.class = 'pg_class'::regclass AND u.writes AND t.tgrelid = u.object AND t.tgenabled <> 'D'
		UNION ALL
		SELECT true, d.refclassid, d.refobjid FROM pg_attrdef f JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid
		WHERE u.class = 'pg_class'::regclass AND u.writes AND f.adrelid = u.object
		UNION ALL
		SELECT true, d.refclassid, d.refobjid FROM pg_constraint c JOIN pg_depend d ON d.classid = 'pg_constraint'::regclass AND d.objid = c.oid
		WHERE u.class = 'pg_class'::regclass AND u.writes AND c.conrelid = u.object AND c.contype IN ('c', 'x')
		UNION ALL
		SELECT true, 'pg_class'::regclass, c.conrelid
		FROM pg_depend d JOIN pg_constraint c ON c.oid = d.objid AND c.contype = 'f' AND c.confrelid = d.refobjid
		WHERE u.class = 'pg_class'::regclass AND u.writes AND d.refclassid = 'pg_class'::regclass AND d.refobjid = u.object
		AND d.classid = 'pg_constraint'::regclass AND (c.confdeltype IN ('c', 'n', 'd') OR c.confupdtype IN ('c', 'n', 'd'))
		UNION ALL
		SELECT true, 'pg_proc'::regclass, c.function FROM own_cast c WHERE u.class = 'pg_type'::regclass AND u.object = c.type AND (u.root < 0 OR NOT c.written_out)
		UNION ALL
		SELECT u.writes, 'pg_type'::regclass, part FROM pg_type t CROSS JOIN unnest(ARRAY[t.typbasetype, t.typelem]) AS part
		WHERE u.class = 'pg_type'::regclass AND t.oid = u.object
		UNION ALL
		SELECT u.writes, 'pg_type'::regclass, a.atttypid FROM pg_type t JOIN pg_attribute a ON a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE u.class = 'pg_type'::regclass AND t.oid = u.object
		UNION ALL
		SELECT u.writes, 'pg_type'::regclass, r.rngsubtype FROM pg_range r WHERE u.class = 'pg_type'::regclass AND u.object IN (r.rngtypid, r.rngmultitypid)
		UNION ALL
		SELECT true, d.refclassid, d.refobjid FROM pg_constraint c JOIN pg_depend d ON d.classid = 'pg_constraint'::regclass AND d.objid = c.oid
		WHERE u.class = 'pg_type'::regclass AND u.writes AND c.contypid = u.object
		UNION ALL
		SELECT true, d.refclassid, d.refobjid FROM pg_depend d
		WHERE u.class = 'pg_type'::regclass AND u.writes AND d.classid = u.class AND d.objid = u.object AND d.refclassid = 'pg_proc'::regclass
		UNION ALL
		SELECT true, d.refclassid, d.refobjid FROM pg_depend d
		WHERE u.class IN ('pg_proc'::regclass, 'pg_operator'::regclass) AND d.classid = u.class AND d.objid = u.object
	) AS next (writes, class, object)
	WHERE next.class IN ('pg_class'::regclass, 'pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass)
	AND (next.object >= 16384 OR next.object = 'pg_settings'::regclass
		OR next.class = 'pg_type'::regclass AND next.object IN (SELECT type FROM own_cast))
),
-- A partition's rows are its parent's too.
above (root, reads, object) AS (
	SELECT u.root, u.reads, i.inhparent FROM uses u JOIN pg_inherits i ON i.inhrelid = u.object WHERE u.class = 'pg_class'::regclass
	UNION
	SELECT a.root, a.reads, i.inhparent FROM above a JOIN pg_inherits i ON i.inhrelid = a.object
),
reached AS (
	SELECT r.root, r.reads, json_agg(json_build_object('Schema', n.nspname, 'Name', c.relname) ORDER BY n.nspname, c.relname) AS tables
	FROM (SELECT root, reads, coalesce(pg_partition_root(object), object) AS object FROM uses WHERE class = 'pg_class'::regclass UNION SELECT root, reads, object FROM above) r
	JOIN wanted w ON w.place = r.root AND w.oid <> r.object
	JOIN pg_class c ON c.oid = r.object JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE c.relkind IN ('r', 'p', 'f', 'm', 'S') GROUP BY r.root, r.reads
),
-- The router's own functions watch over declared tables and are known.
opaque AS (
	SELECT u.root, u.reads, min(format('%I.%I()', n.nspname, p.proname)) AS name,
		min(format('%I.%I()', n.nspname, p.proname)) FILTER (WHERE NOT coalesce('cleave.shard_local=on' = ANY (p.proconfig), false)) AS anywhere
	FROM uses u JOIN pg_proc p ON p.oid = u.object JOIN pg_language l ON l.oid = p.prolang JOIN pg_namespace n ON n.oid = p.pronamespace
	WHERE u.class = 'pg_proc'::regclass AND l.lanname NOT IN ('internal', 'c') AND p.provolatile <> 'i' AND p.prosqlbody IS NULL AND n.nspname <> 'cleave'
	GROUP BY u.root, u.reads
),
-- Operators of users that take a type of PostgreSQL's own may come before those that PostgreSQL brought.
named_operator AS (
	SELECT w.place, o.oid, o.oprcode::oid AS function, o.oid >= 16384 AND least(o.oprleft, o.oprright) < 16384 AS overrides
	FROM named w JOIN pg_operator o ON o.oprnamespace = w.schema AND o.oprname = w.name WHERE w.kind = 1
),
-- What extensions put behind types and functions is trusted; behind names of types, the planner sees to it.
functions (place, oid, overrides) AS (
	SELECT place, oid, false FROM named_function
	UNION
	(SELECT DISTINCT ON (place, overrides, greatest(function::bigint, 16383)) place, function, overrides
	FROM named_operator ORDER BY place, overrides, greatest(function::bigint, 16383), oid)
	UNION
	SELECT place, typinput::oid, false FROM named_type
	UNION
	SELECT -u.root, u.object, false FROM uses u WHERE u.root < 0 AND u.class = 'pg_proc'::regclass
	AND (EXISTS (SELECT FROM named_type t WHERE t.place = -u.root)
		OR NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = u.class AND d.objid = u.object AND d.deptype = 'e'))
)
SELECT json_build_object(
	'Relations', (SELECT json_agg(json_build_object(
		'Place', w.place, 'Schema', w.nspname, 'Name', w.relname, 'Kind', w.relkind::text, 'Temporary', w.relpersistence = 't',
		'System', w.nspname IN ('pg_catalog', 'information_schema', 'pg_toast'),
		'HasRules', EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = w.oid AND r.rulename <> '_RETURN'),
		'HasTriggers', EXISTS (SELECT FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid WHERE g.tgrelid = w.oid AND NOT g.tgisinternal
			AND p.pronamespace IS DISTINCT FROM to_regnamespace('cleave')::oid),
		'VaryingTrigger', (SELECT min(p.oid::regproc::text) FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid WHERE g.tgrelid = w.oid AND NOT g.tgisinternal AND g.tgenabled <> 'D'
			AND p.provolatile <> 'i' AND p.pronamespace NOT IN ('pg_catalog'::regnamespace, coalesce(to_regnamespace('cleave')::oid, 0))),
		'Inherits', w.relkind IN ('r', 'f') AND NOT w.relispartition AND EXISTS (SELECT FROM pg_inherits i WHERE w.oid IN (i.inhrelid, i.inhparent)),
		'PartitionOf', (SELECT json_build_object('Schema', n.nspname, 'Name', c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE w.relispartition AND w.relkind IN ('r', 'p') AND c.oid = pg_partition_root(w.oid)),
		-- Of a sequence, the tables that own it or have it in a default; of an index, its table.
		'Serves', (SELECT json_agg(json_build_object('Schema', n.nspname, 'Name', c.relname) ORDER BY n.nspname, c.relname)
			FROM (SELECT d.refobjid FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = w.oid AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0 AND w.relkind = 'S'
				UNION SELECT f.adrelid FROM pg_depend d JOIN pg_attrdef f ON f.oid = d.objid WHERE d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = w.oid AND w.relkind = 'S'
				UNION SELECT i.indrelid FROM pg_index i WHERE i.indexrelid = w.oid
			) AS served JOIN pg_class c ON c.oid = served.refobjid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE w.relkind IN ('S', 'i', 'I')),
		'RowSecurity', w.relrowsecurity,
		'ColumnRights', EXISTS (SELECT FROM pg_attribute x WHERE x.attrelid = w.oid AND x.attacl IS NOT NULL),
		'View', CASE WHEN w.relkind = 'v' AND w.oid >= 16384 THEN json_build_object('SQL', rtrim(pg_get_viewdef(w.oid), '; '), 'Owner', pg_get_userbyid(w.relowner),
			'Invoker', coalesce((SELECT option_value::boolean FROM pg_options_to_table(w.reloptions) WHERE option_name = 'security_invoker'), false)) END,
		'Reaches', (SELECT tables FROM reached WHERE root = w.place AND reads), 'Opaque', (SELECT name FROM opaque WHERE root = w.place AND reads),
		'OpaqueAnywhere', (SELECT anywhere FROM opaque WHERE root = w.place AND reads), 'WritesOpaqueAnywhere', (SELECT anywhere FROM opaque WHERE root = w.place AND NOT reads),
		'WritesReach', (SELECT tables FROM reached WHERE root = w.place AND NOT reads), 'WritesOpaque', (SELECT name FROM opaque WHERE root = w.place AND NOT reads),
		'SetsParameters', EXISTS (SELECT FROM uses WHERE root = w.place AND class = 'pg_class'::regclass AND object = 'pg_settings'::regclass),
		'Columns', (SELECT json_agg(json_build_object(
			'Name', a.attname, 'TypeOID', a.atttypid::bigint, 'TypeMod', a.atttypmod,
			'NotNull', a.attnotnull OR t.typtype = 'd' AND t.typnotnull,
			'HasDefault', a.attgenerated = '' AND (a.atthasdef OR a.attidentity <> '' OR t.typtype = 'd' AND t.typdefault IS NOT NULL),
			-- A default is the same everywhere if it is a constant; what functions it calls does not stand in the catalogue if they are PostgreSQL's.
			'DefaultVaries', a.attgenerated = '' AND (a.attidentity <> '' OR coalesce(pg_get_expr(d.adbin, d.adrelid), CASE WHEN t.typtype = 'd' THEN t.typdefault END, '0')
				!~ $constant$^(-?[0-9.]+|'([^']|'')*'|true|false|NULL)(::("?[a-z_ ]+"?\.)?"?[a-z_0-9 ]+"?(\([0-9, ]+\))?[][]*)*$$constant$),
			'Fixed', CASE WHEN a.attgenerated = '' AND a.attidentity = '' AND a.atttypid = ANY ('{int2,int4,int8,text,varchar,uuid}'::regtype[]) AND pg_get_expr(d.adbin, d.adrelid) !~ '[^ -~]'
				AND strpos(pg_get_expr(d.adbin, d.adrelid), chr(92)) = 0 THEN -- a backslash is written as the session reads one
				coalesce(substring(pg_get_expr(d.adbin, d.adrelid) FROM $fixed$^-?[0-9]+$$fixed$),
					replace(substring(pg_get_expr(d.adbin, d.adrelid) FROM $fixed$^'((?:[^']|'')*)'::[a-z ]+$$fixed$), $fixed$''$fixed$, $fixed$'$fixed$)) END,
			-- The sequence of a serial column, or of an identity that takes other values too.
			'Sequence', CASE
				WHEN a.attidentity = 'd' THEN (SELECT quote_ident(n.nspname) || '.' || quote_ident(q.relname) FROM pg_depend e JOIN pg_class q ON q.oid = e.objid JOIN pg_namespace n ON n.oid = q.relnamespace
					WHERE e.refclassid = 'pg_class'::regclass AND e.refobjid = a.attrelid AND e.refobjsubid = a.attnum AND e.classid = 'pg_class'::regclass AND e.deptype = 'i' AND q.relkind = 'S')
				WHEN a.attgenerated = '' AND pg_get_expr(d.adbin, d.adrelid) ~ $sequence$^nextval\('([^']|'')+'::regclass\)$$sequence$
				THEN (SELECT quote_ident(n.nspname) || '.' || quote_ident(q.relname) FROM pg_depend e JOIN pg_class q ON q.oid = e.refobjid JOIN pg_namespace n ON n.oid = q.relnamespace
					WHERE e.classid = 'pg_attrdef'::regclass AND e.objid = d.oid AND e.refclassid = 'pg_class'::regclass AND q.relkind = 'S') END,
			'Counts', a.attgenerated = '' AND (a.attidentity <> '' OR coalesce(pg_get_expr(d.adbin, d.adrelid), CASE WHEN t.typtype = 'd' THEN t.typdefault END, '') ~ 'nextval'
				OR EXISTS (SELECT FROM pg_depend e WHERE e.classid = 'pg_attrdef'::regclass AND e.objid = d.oid AND e.refclassid = 'pg_proc'::regclass)),
			'Timed', CASE WHEN a.attgenerated = '' AND coalesce(pg_get_expr(d.adbin, d.adrelid), CASE WHEN t.typtype = 'd' THEN pg_get_expr(t.typdefaultbin, 0) END)
				~ $timed$\m(now|transaction_timestamp)\(\)|\m(CURRENT_(DATE|TIME|TIMESTAMP)|LOCALTIME|LOCALTIMESTAMP)\M$timed$
				THEN coalesce(pg_get_expr(d.adbin, d.adrelid), pg_get_expr(t.typdefaultbin, 0)) END,
			'RandomUUID', a.attgenerated = '' AND a.atttypid = 'uuid'::regtype AND coalesce(pg_get_expr(d.adbin, d.adrelid), '') = 'gen_random_uuid()',
			'Generated', a.attgenerated <> '', 'IdentityAlways', a.attidentity = 'a',
			'Nondeterministic', NOT coalesce(l.collisdeterministic, true)) ORDER BY a.attnum)
			FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_collation l ON l.oid = a.attcollation
			LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
			WHERE a.attrelid = w.oid AND a.attnum > 0 AND NOT a.attisdropped)))
		FROM wanted w),
	'Functions', (SELECT json_agg(json_build_object(
		'Place', f.place, 'Schema', n.nspname, 'Name', p.proname, 'System', n.nspname = 'pg_catalog' AND p.oid < 16384,
		'Kind', p.prokind::text, 'Overrides', f.overrides, 'ShardLocal', coalesce('cleave.shard_local=on' = ANY (p.proconfig), false), 'Language', l.lanname, 'Volatility', p.provolatile::text,
		'TakesOwn', p.oid >= 16384 AND EXISTS (SELECT FROM pg_type t WHERE t.oid = ANY (p.proargtypes) AND (t.typtype IN ('c', 'd') OR t.oid = 'record'::regtype)),
		'ExtensionMember', EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'))
		ORDER BY p.oid)
		FROM functions f JOIN pg_proc p ON p.oid = f.oid JOIN pg_namespace n ON n.oid = p.pronamespace JOIN pg_language l ON l.oid = p.prolang))`

// answer is the form of what the question returns.
type answer struct {
	Relations []struct {
		plan.Relation
		Place   int
		Kind    letter
		Reaches []topology.TableName
		Opaque  string
		// OpaqueAnywhere is one that was not declared to use the rows of one shard only.
		OpaqueAnywhere       string
		WritesOpaqueAnywhere string
		WritesReach          []topology.TableName
		WritesOpaque         string
		SetsParameters       bool
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

// asker runs the question with its arguments, which are arrays as PostgreSQL writes them, and returns the answer.
type asker func(question string, arguments ...string) ([]byte, error)

// on asks on a connection of the catalogue's own.
func on(ctx context.Context, conn *pgx.Conn) asker {
	return func(question string, arguments ...string) ([]byte, error) {
		values := make([]any, len(arguments))
		for i, argument := range arguments {
			values[i] = argument
		}
		var text []byte
		if err := conn.QueryRow(ctx, question, values...).Scan(&text); err != nil {
			return nil, fmt.Errorf("look names up: %w", err)
		}
		return text, nil
	}
}

// ask reads what the names stand for. Names with no row in the answer stand for nothing.
func (ask asker) ask(n names) (answers, error) {
	text, err := ask(question, n.arguments()...)
	if err != nil {
		return answers{}, err
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return answers{}, fmt.Errorf("understand what the names stand for: %w", err)
	}
	read := newAnswers()
	for _, r := range n.relations {
		read.relations[r] = relation{}
	}
	for _, f := range n.functions {
		read.functions[f] = nil
	}
	return read, a.into(read, n)
}

// arguments are the question's.
func (n names) arguments() []string {
	relationSchemas, relationNames := make([]string, len(n.relations)), make([]string, len(n.relations))
	functionSchemas, functionNames, kinds := make([]string, len(n.functions)), make([]string, len(n.functions)), make([]string, len(n.functions))
	for i, r := range n.relations {
		relationSchemas[i], relationNames[i] = r.Schema, r.Name
	}
	for i, f := range n.functions {
		functionSchemas[i], functionNames[i], kinds[i] = f.Schema, f.Name, strconv.Itoa(int(f.Kind))
	}
	return []string{array(relationSchemas), array(relationNames), array(functionSchemas), array(functionNames), array(kinds)}
}

// escapes are the characters that have a meaning between the quotes of an array's element.
var escapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// array writes texts as an array. All are quoted, so that no comma, brace or NULL among them means anything.
func array(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = `"` + escapes.Replace(text) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

// into puts the answer to the names that were asked for.
func (a *answer) into(read answers, n names) error {
	for i := range a.Relations {
		r := &a.Relations[i]
		if r.Place < 1 || r.Place > len(n.relations) {
			return fmt.Errorf("relation %d was not asked for", r.Place)
		}
		found := r.Relation
		found.Kind, found.RunsUnseen = byte(r.Kind), r.Opaque != "" || r.WritesOpaque != ""
		read.relations[n.relations[r.Place-1]] = relation{
			Relation: &found, read: effects{r.Reaches, r.Opaque, r.OpaqueAnywhere}, written: effects{r.WritesReach, r.WritesOpaque, r.WritesOpaqueAnywhere}, setsParameters: r.SetsParameters,
		}
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
