package shard

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// StrayTable finds rows of a sharded table that are on a shard where they have no business to be, and mends them. Rows are named by their places, which is all that every row has; a place is
// worth something only in the transaction in which it was read, or locked.
type StrayTable struct {
	Definition *Definition
	table      *topology.Table
	columns    []string // that rows are carried with
	// key has the columns of the primary key, and equal the operators that compare them; none: rows cannot be told apart.
	key, equal []string
	references []foreignKey
}

// keyOperatorsQuery finds the operators by which the columns of a primary key are compared.
const keyOperatorsQuery = `
	SELECT format('OPERATOR(%I.%s)', n.nspname, o.oprname)
	FROM pg_index x CROSS JOIN LATERAL unnest(x.indclass) WITH ORDINALITY AS c (id, place) JOIN pg_opclass f ON f.oid = c.id
		JOIN pg_amop a ON a.amopfamily = f.opcfamily AND a.amoplefttype = f.opcintype AND a.amoprighttype = f.opcintype AND a.amopstrategy = 3
		JOIN pg_operator o ON o.oid = a.amopopr JOIN pg_namespace n ON n.oid = o.oprnamespace
	WHERE x.indrelid = $1::text::regclass AND x.indisprimary ORDER BY c.place`

// DescribeStrays reads what has to be known of a sharded table.
func DescribeStrays(ctx context.Context, on querier, t *topology.Table) (*StrayTable, error) {
	definition, err := Describe(ctx, on, t.Name())
	if err != nil {
		return nil, err
	}
	s := &StrayTable{Definition: definition, table: t, columns: definition.carried(), key: definition.primaryKey()}
	rows, err := on.Query(ctx, keyOperatorsQuery, t.Name().String())
	if err == nil {
		s.equal, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return nil, fmt.Errorf("read the primary key of table %s: %w", t.Name(), err)
	}
	if len(s.equal) != len(s.key) {
		return nil, fmt.Errorf("the primary key of table %s has %d columns and %d operators", t.Name(), len(s.key), len(s.equal))
	}
	rows, err = on.Query(ctx, foreignKeysQuery, t.Name().String())
	if err == nil {
		s.references, err = pgx.CollectRows(rows, pgx.RowToStructByPos[foreignKey])
	}
	if err != nil {
		return nil, fmt.Errorf("read the foreign keys of table %s: %w", t.Name(), err)
	}
	s.references = slices.DeleteFunc(s.references, func(f foreignKey) bool { return f.from() != t.Name() })
	return s, nil
}

// RefersTo lists the tables that this one has foreign keys to.
func (s *StrayTable) RefersTo() []topology.TableName {
	var tables []topology.TableName
	for _, f := range s.references {
		tables = append(tables, f.to())
	}
	return tables
}

// HasKey says whether rows can be told apart: a copy of a row from another one that is equal to it.
func (s *StrayTable) HasKey() bool { return len(s.key) > 0 }

// MayReplace says whether a row can be given the values of another one with the same primary key.
func (s *StrayTable) MayReplace() bool {
	return s.HasKey() && !slices.ContainsFunc(s.Definition.Columns, func(c Column) bool { return c.Identity == "a" && !slices.Contains(s.key, c.Name) })
}

// Look reads some pages of a leaf, and returns how many rows they have and the places of those that are not in the part. Below 0: up to the end.
func (s *StrayTable) Look(ctx context.Context, on querier, leaf topology.TableName, from, to int64, part Part) (rows int64, places []string, err error) {
	others, err := part.others()
	if err != nil {
		return 0, nil, err
	}
	err = on.QueryRow(ctx, fmt.Sprintf("SELECT count(*), coalesce(array_agg(t.ctid::text) FILTER (WHERE %s), '{}') FROM ONLY %s AS %s WHERE %s", others, leaf, rowAlias, PagesSQL(from, to))).Scan(&rows, &places)
	if err != nil {
		return 0, nil, fmt.Errorf("look for rows of table %s that do not belong there: %w", leaf, err)
	}
	return rows, places, nil
}

// StrayRow is a row that is not in a shard's part.
type StrayRow struct {
	Place string
	// Key has the values of the shard key as texts, of which one may be null, and PrimaryKey those of the primary key.
	Key        []*string
	PrimaryKey []string
}

// Read returns those rows at some places of a leaf that are not in the part now, and locks them if that is wanted.
func (s *StrayTable) Read(ctx context.Context, on querier, leaf topology.TableName, places []string, part Part, lock bool) ([]StrayRow, error) {
	others, err := part.others()
	if err != nil {
		return nil, err
	}
	locking := ""
	if lock {
		locking = " FOR UPDATE OF " + rowAlias
	}
	rows, err := on.Query(ctx, fmt.Sprintf("SELECT t.ctid::text, ARRAY[%s], ARRAY[%s]::text[] FROM ONLY %s AS %s WHERE t.ctid = ANY (%s) AND %s%s",
		list(asTexts(newColumns(rowAlias, s.table.KeyColumns()))), list(asTexts(newColumns(rowAlias, s.key))), leaf, rowAlias, placesSQL(places), others, locking))
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[StrayRow])
	if err != nil {
		return nil, fmt.Errorf("read rows of table %s that do not belong there: %w", leaf, err)
	}
	return found, nil
}

func asTexts(expressions []string) []string {
	cast := make([]string, len(expressions))
	for i, e := range expressions {
		cast[i] = "(" + e + ")::text"
	}
	return cast
}

// placesSQL is an array of places.
func placesSQL(places []string) string {
	return sqltext.QuoteLiteral(`{"`+strings.Join(places, `","`)+`"}`) + "::tid[]"
}

// ReadSQL streams the rows at some places of a leaf out, each with its place.
func (s *StrayTable) ReadSQL(leaf topology.TableName, places []string) string {
	return fmt.Sprintf("COPY (SELECT t.ctid::text, %s FROM ONLY %s AS %s WHERE t.ctid = ANY (%s)) TO STDOUT %s",
		list(newColumns(rowAlias, s.columns)), leaf, rowAlias, placesSQL(places), s.Definition.copyOptions())
}

// Lock keeps the table from being changed until the transaction ends, and lets everybody who waits for writers wait for it.
func (s *StrayTable) Lock(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, fmt.Sprintf("LOCK TABLE %s IN ROW EXCLUSIVE MODE", s.table.Name()))
	return err
}

// Delete removes rows that were locked in the transaction.
func (s *StrayTable) Delete(ctx context.Context, tx pgx.Tx, leaf topology.TableName, places []string) error {
	if len(places) == 0 {
		return nil
	}
	done, err := tx.Exec(ctx, fmt.Sprintf("DELETE FROM ONLY %s AS %s WHERE t.ctid = ANY (%s)", leaf, rowAlias, placesSQL(places)))
	if err == nil && done.RowsAffected() != int64(len(places)) {
		err = fmt.Errorf("%d rows were to go, and %d are there", len(places), done.RowsAffected())
	}
	if err != nil {
		return fmt.Errorf("delete rows of table %s that do not belong there: %w", leaf, err)
	}
	return nil
}
