package shard

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// View is a view that every shard has, because every shard has all tables that it reads.
type View struct {
	Schema  string   `json:"schema"`
	Name    string   `json:"name"`
	SQL     string   `json:"sql"`
	Options []string `json:"options"`
	common
	// Columns are those that are granted one by one.
	Columns []struct {
		Name   string  `json:"name"`
		Grants []Grant `json:"grants"`
	} `json:"columns"`
	// Reads are the relations that it reads itself.
	Reads []viewRead `json:"reads"`
	// Place is where it stands in the catalogue, with its rule.
	Place []objectID `json:"place"`
	needs needs
}

// viewRead is a relation that a view reads: r, p, f, m, v and S as in the catalogue. Of a partition it is the table that it is a part of.
type viewRead struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
	Kind   string `json:"kind"`
}

// Views of users, as the home shard has them, those first that others were made of.
var viewsQuery = `
	SELECT coalesce(json_agg(json_build_object('schema', n.nspname, 'name', o.relname, 'sql', pg_get_viewdef(o.oid), 'options', coalesce(to_json(o.reloptions), '[]'),
		'columns', (SELECT coalesce(json_agg(json_build_object('name', a.attname, 'grants', ` + grantsOf("a.attacl") + `) ORDER BY a.attnum), '[]')
			FROM pg_attribute a WHERE a.attrelid = o.oid AND a.attnum > 0 AND a.attacl IS NOT NULL),
		'reads', (SELECT coalesce(json_agg(DISTINCT jsonb_build_object('schema', s.nspname, 'name', c.relname, 'kind', c.relkind)), '[]')
			FROM pg_depend d JOIN pg_class c ON d.refclassid = 'pg_class'::regclass AND c.oid = coalesce(pg_partition_root(d.refobjid), d.refobjid) JOIN pg_namespace s ON s.oid = c.relnamespace
			WHERE d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refobjid <> o.oid AND c.oid >= 16384 AND c.relkind IN ('r', 'p', 'f', 'm', 'v', 'S')),
		'place', json_build_array(json_build_object('class', 'pg_class', 'id', o.oid::bigint), json_build_object('class', 'pg_rewrite', 'id', r.oid::bigint)),
		` + commonOf("rel", "pg_class", "r") + `) ORDER BY o.oid), '[]')
	FROM pg_class o JOIN pg_namespace n ON n.oid = o.relnamespace JOIN pg_rewrite r ON r.ev_class = o.oid AND r.rulename = '_RETURN'
	WHERE o.relkind = 'v' AND o.oid >= 16384 AND o.relpersistence = 'p' AND n.nspname NOT IN ('cleave', 'information_schema')
	AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = o.oid AND d.deptype = 'e')`

// Views reads which views all shards have if these tables are declared, each after those that it reads.
func Views(ctx context.Context, on querier, declared func(topology.TableName) bool) ([]*View, error) {
	var content []byte
	if err := on.QueryRow(ctx, viewsQuery).Scan(&content); err != nil {
		return nil, fmt.Errorf("read the views: %w", err)
	}
	var all, carried []*View
	if err := json.Unmarshal(content, &all); err != nil {
		return nil, fmt.Errorf("understand the views: %w", err)
	}
	has := map[topology.TableName]bool{}
	for more := true; more; { // a view may have been made anew after those that read it
		more = false
		for _, v := range all {
			if name := v.table(); !has[name] && v.isOf(declared, has) {
				has[name], more = true, true
				carried = append(carried, v)
			}
		}
	}
	for _, v := range carried {
		var err error
		if v.needs, err = findNeeds(ctx, on, v.Place); err != nil {
			return nil, fmt.Errorf("read what view %s needs: %w", v.table(), err)
		}
		v.Place = nil // it is another one if the view is made anew, which makes no difference
	}
	return carried, nil
}

func (v *View) table() topology.TableName {
	return topology.TableName{Schema: v.Schema, Name: v.Name}
}

// isOf says whether a view reads something, and nothing but declared tables and views that are carried over.
func (v *View) isOf(declared func(topology.TableName) bool, views map[topology.TableName]bool) bool {
	return len(v.Reads) > 0 && !slices.ContainsFunc(v.Reads, func(r viewRead) bool {
		name := topology.TableName{Schema: r.Schema, Name: r.Name}
		if r.Kind == "v" {
			return !views[name]
		}
		return !declared(name)
	})
}

// CreateViews makes views on a shard, whose tables are there.
func CreateViews(ctx context.Context, tx pgx.Tx, views []*View, shard string) error {
	for _, v := range views {
		if err := v.needs.ensure(ctx, tx, shard); err != nil {
			return v.failed(err, shard)
		}
		if err := executeAll(ctx, tx, v.statements()); err != nil {
			return v.failed(err, shard)
		}
	}
	return nil
}

func (v *View) failed(err error, shard string) error {
	return pgerr.New(pgerr.FeatureNotSupported, "view %s cannot be made on shard %q", v.table(), shard).WithDetail("All tables that it reads are on that shard, so that the view has to be there too: %v", err).
		WithHint("Make on that shard what it needs, or drop the view.")
}

func (v *View) statements() []string {
	name := v.table().String()
	sql := "CREATE OR REPLACE VIEW " + name
	if len(v.Options) > 0 {
		sql += " WITH (" + optionList(v.Options) + ")"
	}
	statements := []string{sql + " AS " + v.SQL, fmt.Sprintf("ALTER VIEW %s OWNER TO %s", name, sqltext.QuoteIdentifier(v.Owner))}
	statements = append(statements, commentOn("VIEW "+name, v.Comment)...)
	if !v.DefaultGrants {
		statements = append(statements, fmt.Sprintf("REVOKE ALL ON TABLE %s FROM PUBLIC, %s", name, sqltext.QuoteIdentifier(v.Owner)))
		statements = append(statements, grantStatements("TABLE "+name, "", v.Grants)...)
	}
	for _, c := range v.Columns {
		statements = append(statements, grantStatements("TABLE "+name, " ("+sqltext.QuoteIdentifier(c.Name)+")", c.Grants)...)
	}
	return statements
}

// SameViews says whether views are what others were.
func SameViews(a, b []*View) bool {
	text := func(views []*View) string {
		content, _ := json.Marshal(views) //nolint:errchkjson // nothing in them cannot be written
		return string(content)
	}
	return text(a) == text(b)
}

// DropViewsOf drops the views of users that read tables, by other views too, so that the tables can be dropped.
func DropViewsOf(ctx context.Context, tx pgx.Tx, tables []topology.TableName) error {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = t.String()
	}
	rows, err := tx.Query(ctx, `
		WITH RECURSIVE readers (oid) AS (
			SELECT to_regclass(name)::oid FROM unnest($1::text[]) AS name
			UNION
			SELECT r.ev_class FROM readers u JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = u.oid AND d.classid = 'pg_rewrite'::regclass
			JOIN pg_rewrite r ON r.oid = d.objid)
		SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) FROM readers u JOIN pg_class c ON c.oid = u.oid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'v' ORDER BY 1`, names)
	if err != nil {
		return fmt.Errorf("look for views of the tables: %w", err)
	}
	views, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil && len(views) > 0 {
		_, err = tx.Exec(ctx, "DROP VIEW "+list(views))
	}
	if err != nil {
		return fmt.Errorf("drop the views of the tables: %w", err)
	}
	return nil
}
