package shard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/sqltext"
)

// AtOwner is what the shard that owns a row's key has of it.
type AtOwner string

// What it may have.
const (
	// Absent: there is no row with this primary key.
	Absent AtOwner = "absent"
	// Equal: it has the very same row.
	Equal AtOwner = "equal"
	// Differs: it has a row with the same primary key and the same shard key, and other values.
	Differs AtOwner = "differs"
	// Taken: the primary key does not contain the shard key, and belongs to another row there.
	Taken AtOwner = "taken"
)

// StrayVisit is rows of a table that were brought along to the shard that owns them, in a transaction there that has the [CopySettings]. They are in a temporary table, and the table itself is
// changed by [StrayVisit.Bring] and [StrayVisit.Replace] alone.
type StrayVisit struct {
	*StrayTable
	tx pgx.Tx
}

const (
	visitors     = "pg_temp.cleave_strays"
	visitorPlace = "cleave_place"
)

// Visit begins one. What [StrayTable.ReadSQL] gives has to be written with [StrayVisit.WriteSQL].
func (s *StrayTable) Visit(ctx context.Context, tx pgx.Tx) (*StrayVisit, error) {
	sql := fmt.Sprintf("CREATE TEMPORARY TABLE %s ON COMMIT DROP AS SELECT ''::text AS %s, %s FROM ONLY %s AS %s WITH NO DATA",
		visitors, visitorPlace, list(newColumns(rowAlias, s.columns)), s.Definition.Table, rowAlias)
	if s.HasKey() { // there are few, and each is found by the index
		sql += "; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off"
	}
	if _, err := tx.Exec(ctx, sql); err != nil {
		return nil, fmt.Errorf("make room for rows of table %s: %w", s.Definition.Table, err)
	}
	return &StrayVisit{s, tx}, nil
}

// WriteSQL takes in what [StrayTable.ReadSQL] streams out.
func (v *StrayVisit) WriteSQL() string {
	return fmt.Sprintf("COPY %s (%s, %s) FROM STDIN %s", visitors, visitorPlace, list(quoted(v.columns)), v.Definition.copyOptions())
}

// same says that the row t of the table has the primary key of the visitor r.
func (v *StrayVisit) same() string { return matched("t", v.key, v.equal, "r", v.key) }

// Judge says of each place what the shard has of its row. Without a primary key nothing but an equal row can be found.
func (v *StrayVisit) Judge(ctx context.Context) (map[string]AtOwner, error) {
	keys := v.table.KeyColumns()
	query := fmt.Sprintf("SELECT r.%s, CASE WHEN t.tableoid IS NULL THEN '%s' WHEN %s = %s THEN '%s' WHEN %s = %s THEN '%s' ELSE '%s' END FROM %s AS r LEFT JOIN %s AS t ON %s",
		visitorPlace, Absent, textOf(v.columns), textIn("r", v.columns), Equal, textOf(keys), textIn("r", keys), Differs, Taken, visitors, v.Definition.Table, v.same())
	if !v.HasKey() {
		query = fmt.Sprintf("SELECT r.%s, CASE WHEN EXISTS (SELECT FROM %s AS t WHERE %s = %s AND %s = %s) THEN '%s' ELSE '%s' END FROM %s AS r",
			visitorPlace, v.Definition.Table, textOf(keys), textIn("r", keys), textOf(v.columns), textIn("r", v.columns), Equal, Absent, visitors)
	}
	rows, err := v.tx.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	judged := map[string]AtOwner{}
	var place string
	var is AtOwner
	_, err = pgx.ForEachRow(rows, []any{&place, &is}, func() error {
		judged[place] = is
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("compare rows of table %s with those of their owner: %w", v.Definition.Table, err)
	}
	return judged, nil
}

// Orphans returns the foreign key by which a row refers to one that is not there, by place. Rows that are referred to are locked until the transaction ends, so that they stay.
func (v *StrayVisit) Orphans(ctx context.Context) (map[string]string, error) {
	orphans := map[string]string{}
	for _, f := range v.references {
		missing, err := v.refersToNothing(ctx, f)
		if err != nil {
			return nil, fmt.Errorf("see what rows of table %s refer to: %w", v.Definition.Table, err)
		}
		for place := range missing {
			orphans[place] = f.Name
		}
	}
	return orphans, nil
}

func (v *StrayVisit) refersToNothing(ctx context.Context, f foreignKey) (map[string]bool, error) {
	known := make([]string, len(f.Columns))
	for i, c := range newColumns("r", f.Columns) {
		known[i] = c + " IS NOT NULL"
	}
	where := strings.Join(known, " AND ")
	missing, err := v.places(ctx, fmt.Sprintf("SELECT r.%s FROM %s AS r WHERE %s", visitorPlace, visitors, where))
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	found, err := v.places(ctx, fmt.Sprintf("SELECT r.%s FROM %s AS r JOIN %s AS p ON %s FOR KEY SHARE OF p", visitorPlace, visitors, f.to(), matched("p", f.Referenced, f.Pairs, "r", f.Columns)))
	if err == nil && f.to() == f.from() { // or to one that comes along
		var beside map[string]bool
		beside, err = v.places(ctx, fmt.Sprintf("SELECT r.%s FROM %s AS r JOIN %s AS p ON %s", visitorPlace, visitors, visitors, matched("p", f.Referenced, f.Pairs, "r", f.Columns)))
		maps.Copy(found, beside)
	}
	maps.DeleteFunc(missing, func(place string, _ bool) bool { return found[place] })
	return missing, err
}

func (v *StrayVisit) places(ctx context.Context, query string) (map[string]bool, error) {
	rows, err := v.tx.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	var place string
	_, err = pgx.ForEachRow(rows, []any{&place}, func() error {
		found[place] = true
		return nil
	})
	return found, err
}

// Bring inserts the rows of some places. One that somebody else has inserted meanwhile, or that collides with another by a unique constraint, is left out: what is there is asked of
// [StrayVisit.Judge] afterwards.
func (v *StrayVisit) Bring(ctx context.Context, places []string) error {
	columns := list(quoted(v.columns))
	return v.change(ctx, places, fmt.Sprintf("INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s AS r WHERE r.%s = ANY ($1) ON CONFLICT DO NOTHING",
		v.Definition.Table, columns, list(newColumns("r", v.columns)), visitors, visitorPlace))
}

// Replace gives the table's rows the values of the visitors of some places. They are updated and not inserted anew, so that who waits for one of them goes on with it.
func (v *StrayVisit) Replace(ctx context.Context, places []string) error {
	var assignments []string
	for _, name := range v.columns {
		if !slices.Contains(v.key, name) {
			assignments = append(assignments, fmt.Sprintf("%[1]s = r.%[1]s", sqltext.QuoteIdentifier(name)))
		}
	}
	return v.change(ctx, places, fmt.Sprintf("UPDATE %s AS t SET %s FROM %s AS r WHERE r.%s = ANY ($1) AND %s", v.Definition.Table, list(assignments), visitors, visitorPlace, v.same()))
}

func (v *StrayVisit) change(ctx context.Context, places []string, sql string) error {
	if len(places) == 0 {
		return nil
	}
	if _, err := v.tx.Exec(ctx, sql, places); err != nil {
		return fmt.Errorf("bring rows of table %s to their owner: %w", v.Definition.Table, err)
	}
	return nil
}
