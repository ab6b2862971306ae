package shard

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

// While a shard takes part in a move it has rows that it does not own. Views show what it owns, for statements that are not bound to keys.

const (
	ownedViewPrefix    = "owned_"
	ownsFunctionPrefix = "owns_"
)

// pinsLookedUp lets the condition of views look a pin up, which nobody else may read.
const pinsLookedUp = `
	CREATE FUNCTION cleave.pinned(of_keyspace text, of_hash bigint, of_key bytea[]) RETURNS boolean
	LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $pinned$
		SELECT p.here FROM cleave.guard_pins p WHERE p.keyspace = of_keyspace AND p.hash = of_hash AND p.key = of_key
	$pinned$;
	COMMENT ON FUNCTION cleave.pinned(text, bigint, bytea[]) IS 'whether a key is pinned to this shard, or away from it; null if it goes where its range says';`

// OwnedView names the view that shows what a shard owns of a table, or through a view of the user's.
func OwnedView(table topology.TableName) topology.TableName {
	return topology.TableName{Schema: "cleave", Name: ownedViewPrefix + tableDigest(table)}
}

// ownsFunction is the function that says whether a shard takes a key: what the views have as their condition. It is inlined, and replaced without a lock on any table.
type ownsFunction struct {
	name, source string
	types        []key.Type
	// left: nothing of the keyspace moves, so the function need not be there; if it is, it has to be right.
	left bool
}

func ownsName(keyspace string) string { return ownsFunctionPrefix + nameDigest(keyspace) }

// mostListedPins is up to how many pins the function has a list of their hashes, so that it need not look each key up.
const mostListedPins = 1000

func (k keyspaceShares) owns(number int) (ownsFunction, error) {
	o := k.ownership(number)
	types := families(k.keyspace)
	columns := make([]string, len(types))
	for i := range types {
		columns[i] = "$" + strconv.Itoa(i+1)
	}
	belongs, err := o.belongs(columns)
	if err != nil {
		return ownsFunction{}, err
	}
	f := ownsFunction{name: ownsName(k.keyspace.Name()), types: types, source: "SELECT " + belongs.sql}
	if o.here+o.away == 0 {
		return f, nil
	}
	hash, err := hashSQL(k.keyspace, columns)
	if err != nil {
		return ownsFunction{}, err
	}
	pinned := fmt.Sprintf("coalesce(cleave.pinned(%s, %s, ARRAY[%s]), %s)", sqltext.QuoteLiteral(k.keyspace.Name()), hash, list(o.sent(columns)), belongs.sql)
	if hashes := k.pinHashes(number); len(hashes) <= mostListedPins {
		pinned = fmt.Sprintf("CASE WHEN %s OPERATOR(pg_catalog.=) ANY ('{%s}'::bigint[]) THEN %s ELSE %s END", hash, strings.Join(hashes, ","), pinned, belongs.sql)
	}
	f.source = "SELECT " + pinned
	return f, nil
}

// pinHashes are those of the pins that do not go where their range says.
func (k keyspaceShares) pinHashes(number int) []string {
	var hashes []string
	for _, e := range k.shares[number].exceptions {
		hashes = append(hashes, strconv.FormatInt(int64(e.hash), 10))
	}
	slices.Sort(hashes)
	return slices.Compact(hashes)
}

func (f ownsFunction) create() string {
	types := make([]string, len(f.types))
	for i, t := range f.types {
		types[i] = typeSQL(t)
	}
	volatility := "IMMUTABLE"
	if strings.Contains(f.source, "cleave.pinned(") {
		volatility = "STABLE"
	}
	return fmt.Sprintf("CREATE OR REPLACE FUNCTION cleave.%s(%s) RETURNS boolean LANGUAGE sql %s PARALLEL SAFE AS %s", f.name, list(types), volatility, sqltext.QuoteLiteral(f.source))
}

// call is the condition over the columns of a table.
func (f ownsFunction) call(k *topology.Keyspace, columns []string) string {
	return fmt.Sprintf("cleave.%s(%s)", f.name, list(familyCasts(k, columns)))
}

// ownsOf returns the functions of all keyspaces. While one moves every shard has its function, for the views and for guards.
func (p *Plan) ownsOf(s *topology.Shard) ([]ownsFunction, error) {
	var functions []ownsFunction
	for _, k := range p.keyspaces {
		if k.keyspace.Strategy() == topology.BySchema {
			continue
		}
		f, err := k.owns(s.Number())
		if err != nil {
			return nil, fmt.Errorf("keyspace %q: %w", k.keyspace.Name(), err)
		}
		f.left = !k.keyspace.IsMoving()
		functions = append(functions, f)
	}
	return functions, nil
}

// mendOwns makes the functions anew that are not as they should be.
func mendOwns(ctx context.Context, tx pgx.Tx, functions []ownsFunction) (mended int, err error) {
	for _, f := range functions {
		var same bool
		err := tx.QueryRow(ctx, "SELECT coalesce((SELECT p.prosrc = $2 FROM pg_proc p WHERE p.pronamespace = 'cleave'::regnamespace AND p.proname = $1), $3)", f.name, f.source, f.left).Scan(&same)
		if err == nil && !same {
			mended++
			_, err = tx.Exec(ctx, f.create())
		}
		if err != nil {
			return mended, fmt.Errorf("make function %s: %w", f.name, err)
		}
	}
	return mended, nil
}

// tableAsViewQuery describes a table as a view of it has to be: its owner, its rights, and whether policies look at who reads.
var tableAsViewQuery = `
	SELECT json_build_object('options', CASE WHEN o.relrowsecurity THEN '["security_invoker=true"]'::json ELSE '[]'::json END,
		'columns', (SELECT coalesce(json_agg(json_build_object('name', a.attname, 'grants', ` + grantsOf("a.attacl") + `) ORDER BY a.attnum), '[]')
			FROM pg_attribute a WHERE a.attrelid = o.oid AND a.attnum > 0 AND a.attacl IS NOT NULL), ` + commonOf("rel", "pg_class", "r") + `),
		ARRAY(SELECT a.attname FROM pg_attribute a WHERE a.attrelid = o.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum),
		ARRAY(SELECT format('ALTER COLUMN %I SET DEFAULT %s', a.attname, pg_get_expr(d.adbin, d.adrelid)) FROM pg_attribute a JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
			WHERE a.attrelid = o.oid AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum)
	FROM pg_class o WHERE o.oid = to_regclass($1)`

// Renaming rewrites the query of a view so that it reads other relations under the names of those that it read.
type Renaming func(sql string, renamed map[topology.TableName]topology.TableName) (string, error)

// MakeOwnedViews makes, on one shard, the views of all tables of a keyspace, and of the user's views that read them, with what they need. What is there already is made anew.
func (p *Plan) MakeOwnedViews(ctx context.Context, tx pgx.Tx, shard, keyspace string, rename Renaming) error {
	at := slices.IndexFunc(p.keyspaces, func(k keyspaceShares) bool { return k.keyspace.Name() == keyspace })
	s := p.m.Shard(shard)
	if at < 0 || s == nil {
		return &topology.NotFoundError{Kind: "keyspace or shard", Name: keyspace + ", " + shard}
	}
	if err := DropOwnedViews(ctx, tx, keyspace); err != nil {
		return err
	}
	owns, err := p.keyspaces[at].owns(s.Number())
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, owns.create()); err != nil {
		return fmt.Errorf("make the function for what shard %q owns: %w", shard, err)
	}
	renamed := map[topology.TableName]topology.TableName{}
	for _, t := range p.m.Tables() {
		if t.Kind() != topology.Sharded || t.Keyspace().Name() != keyspace {
			continue
		}
		names, err := withPartitions(ctx, tx, t.Name())
		if err != nil {
			return fmt.Errorf("read the partitions of table %s: %w", t.Name(), err)
		}
		for _, name := range names {
			if err := makeOwnedView(ctx, tx, name, t, owns); err != nil {
				return fmt.Errorf("make the view of what shard %q owns of table %s: %w", shard, name, err)
			}
			renamed[name] = OwnedView(name)
		}
	}
	return makeOwnedReaders(ctx, tx, renamed, rename)
}

// withPartitions is a table with its partitions, at any level: statements may name these too.
func withPartitions(ctx context.Context, tx pgx.Tx, table topology.TableName) ([]topology.TableName, error) {
	rows, err := tx.Query(ctx, `SELECT n.nspname, c.relname FROM pg_partition_tree($1::regclass) t JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE t.level > 0`, table.String())
	if err != nil {
		return nil, err
	}
	partitions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[topology.TableName])
	return append([]topology.TableName{table}, partitions...), err
}

// makeOwnedView makes the view of a table, or of one of its partitions.
func makeOwnedView(ctx context.Context, tx pgx.Tx, of topology.TableName, t *topology.Table, owns ownsFunction) error {
	var described []byte
	var columns, defaults []string
	if err := tx.QueryRow(ctx, tableAsViewQuery, of.String()).Scan(&described, &columns, &defaults); err != nil {
		return err
	}
	var v View
	if err := json.Unmarshal(described, &v); err != nil {
		return err
	}
	name := OwnedView(of)
	v.Schema, v.Name, v.Comment = name.Schema, name.Name, "what this shard owns of table "+of.String()
	v.SQL = fmt.Sprintf("SELECT %s FROM %s AS %s WHERE %s", list(newColumns(rowAlias, columns)), of, rowAlias, owns.call(t.Keyspace(), newColumns(rowAlias, t.KeyColumns())))
	statements := v.statements()
	if len(defaults) > 0 { // or UPDATE … SET column = DEFAULT would set it to null
		statements = append(statements, fmt.Sprintf("ALTER VIEW %s %s", name, list(defaults)))
	}
	return executeAll(ctx, tx, statements)
}

// makeOwnedReaders makes views of the user's once more that read what was renamed, reading the others; which may be views of that kind themselves.
func makeOwnedReaders(ctx context.Context, tx pgx.Tx, renamed map[topology.TableName]topology.TableName, rename Renaming) error {
	var content []byte
	if err := tx.QueryRow(ctx, viewsQuery).Scan(&content); err != nil {
		return fmt.Errorf("read the views: %w", err)
	}
	var left []*View
	if err := json.Unmarshal(content, &left); err != nil {
		return fmt.Errorf("understand the views: %w", err)
	}
	for more := true; more; {
		more = false
		for _, v := range left {
			if _, done := renamed[v.table()]; done || !v.readsOneOf(renamed) || v.awaits(left, renamed) {
				continue
			}
			if err := v.makeOwned(ctx, tx, renamed, rename); err != nil {
				return fmt.Errorf("make the view of what the shard owns of view %s: %w", v.table(), err)
			}
			renamed[v.table()] = OwnedView(v.table())
			more = true
		}
	}
	return nil
}

func (v *View) readsOneOf(renamed map[topology.TableName]topology.TableName) bool {
	return slices.ContainsFunc(v.Reads, func(r viewRead) bool {
		_, is := renamed[topology.TableName{Schema: r.Schema, Name: r.Name}]
		return is
	})
}

// awaits says whether one of the views that it reads is still to be made.
func (v *View) awaits(all []*View, renamed map[topology.TableName]topology.TableName) bool {
	return slices.ContainsFunc(v.Reads, func(r viewRead) bool {
		name := topology.TableName{Schema: r.Schema, Name: r.Name}
		at := slices.IndexFunc(all, func(other *View) bool { return other.table() == name })
		if _, done := renamed[name]; done || at < 0 {
			return false
		}
		return all[at].readsOneOf(renamed) || all[at].awaits(all, renamed)
	})
}

// NoOwnedViewError says that nothing can stand in for a view while rows move.
type NoOwnedViewError struct {
	View   topology.TableName
	Reason error
}

func (e *NoOwnedViewError) Error() string {
	return fmt.Sprintf("view %s cannot be read while rows of its tables move: %v", e.View, e.Reason)
}

func (e *NoOwnedViewError) Unwrap() error { return e.Reason }

func (v *View) makeOwned(ctx context.Context, tx pgx.Tx, renamed map[topology.TableName]topology.TableName, rename Renaming) error {
	sql, err := rename(v.SQL, renamed)
	if err != nil {
		return &NoOwnedViewError{View: v.table(), Reason: err}
	}
	owned, name := *v, OwnedView(v.table())
	owned.Schema, owned.Name, owned.SQL, owned.Comment = name.Schema, name.Name, sql, "what this shard owns of view "+v.table().String()
	err = executeAll(ctx, tx, owned.statements())
	if strings.HasPrefix(CodeOf(err), "42") { // it groups by a primary key, which no view has, or calls a function of a table's rows
		return &NoOwnedViewError{View: v.table(), Reason: err}
	}
	return err
}

// DropOwnedViews drops the views of what a shard owns in a keyspace, and its function. No router may use them any more.
func DropOwnedViews(ctx context.Context, tx pgx.Tx, keyspace string) error {
	err := dropMatching(ctx, tx, "DROP VIEW ", `
		WITH RECURSIVE readers (oid) AS (
			SELECT r.ev_class FROM pg_proc f JOIN pg_depend d ON d.refclassid = 'pg_proc'::regclass AND d.refobjid = f.oid AND d.classid = 'pg_rewrite'::regclass JOIN pg_rewrite r ON r.oid = d.objid
			WHERE f.pronamespace = 'cleave'::regnamespace AND f.proname = $1
			UNION
			SELECT r.ev_class FROM readers u JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = u.oid AND d.classid = 'pg_rewrite'::regclass JOIN pg_rewrite r ON r.oid = d.objid)
		SELECT c.oid::regclass::text FROM readers u JOIN pg_class c ON c.oid = u.oid WHERE c.relnamespace = 'cleave'::regnamespace AND c.relkind = 'v' ORDER BY 1`, ownsName(keyspace))
	if err == nil {
		err = dropFunction(ctx, tx, ownsName(keyspace))
	}
	if err != nil {
		return fmt.Errorf("drop the views of keyspace %q: %w", keyspace, stillInUse(err))
	}
	return nil
}

// dropFunction drops a function of this name in our schema, whatever it takes.
func dropFunction(ctx context.Context, tx pgx.Tx, name string) error {
	return dropMatching(ctx, tx, "DROP FUNCTION ", "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'cleave'::regnamespace AND p.proname = $1", name)
}

// dropAllOwned drops the views of all keyspaces, and their functions.
func dropAllOwned(ctx context.Context, tx pgx.Tx) error {
	if err := dropMatching(ctx, tx, "DROP VIEW ", "SELECT c.oid::regclass::text FROM pg_class c WHERE c.relnamespace = 'cleave'::regnamespace AND c.relkind = 'v' AND c.relname ~ $1", "^"+ownedViewPrefix+anyDigest+"$"); err != nil {
		return stillInUse(err)
	}
	return dropMatching(ctx, tx, "DROP FUNCTION ", "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'cleave'::regnamespace AND p.proname ~ $1", "^"+ownsFunctionPrefix+anyDigest+"$")
}

// dropMatching drops all that a query names, in one statement, since they may depend on each other.
func dropMatching(ctx context.Context, tx pgx.Tx, drop, query, argument string) error {
	rows, err := tx.Query(ctx, query, argument)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil && len(names) > 0 {
		_, err = tx.Exec(ctx, drop+list(names))
	}
	return err
}
