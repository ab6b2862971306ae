package shard

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/topology"
)

// Selection is a set of keys of a keyspace: whole ranges, but for keys that are pinned, and pinned keys. It says in SQL which rows have such a key.
type Selection struct {
	ownership ownership
	// in are the pins that are in the set, out those inside of the ranges that are not.
	in, out []string
	// all: every row, whatever its key is.
	all bool
}

// Everything is all rows of a table.
func Everything() Selection { return Selection{all: true} }

// mostSelectedPins is how many pinned keys a condition lists.
const mostSelectedPins = 10_000

// Select returns the set of the ranges and pins of a map's keyspace that fit.
func Select(k *topology.Keyspace, inRange func(topology.Range) bool, isPin func(topology.Pin) bool) (Selection, error) {
	s := Selection{ownership: ownership{keyspace: k}}
	for r := range k.Ranges() {
		if inRange(r) {
			s.ownership.ranges = append(s.ownership.ranges, r)
		}
	}
	for p := range k.Pins() {
		switch {
		case isPin(p):
			s.in = append(s.in, p.Encoded)
		case s.covers(p.Encoded):
			s.out = append(s.out, p.Encoded)
		}
	}
	slices.Sort(s.in)
	slices.Sort(s.out)
	if len(s.in)+len(s.out) > mostSelectedPins {
		return Selection{}, fmt.Errorf("%d pinned keys are concerned, and a condition lists %d at most: move fewer ranges or pins at a time", len(s.in)+len(s.out), mostSelectedPins)
	}
	return s, nil
}

// covers says whether a key is in one of the ranges, which are in order.
func (s Selection) covers(encoded string) bool {
	k, ranges := s.ownership.keyspace, s.ownership.ranges
	hash, byHash := k.Hash(valuesOf(k, encoded)...), k.Hashes() != nil
	at := sort.Search(len(ranges), func(i int) bool {
		if byHash {
			return ranges[i].Hash.Lo > hash
		}
		return ranges[i].Key.Lo > encoded
	}) - 1
	return at >= 0 && (byHash && ranges[at].Hash.Contains(hash) || !byHash && ranges[at].Key.Contains(encoded))
}

// Condition is true for rows with a key in the set. Columns are those of the key, as SQL; the condition is one that a publication can have as its filter.
func (s Selection) Condition(columns []string) (string, error) {
	if s.all {
		return "true", nil
	}
	var alternatives []string
	if len(s.ownership.ranges) > 0 {
		belongs, err := s.ownership.belongs(columns)
		if err != nil {
			return "", err
		}
		inside := "(" + belongs.sql + ")"
		if len(s.out) > 0 {
			listed, err := s.listed(columns, s.out)
			if err != nil {
				return "", err
			}
			inside = "(" + inside + " AND NOT (" + listed + "))"
		}
		alternatives = append(alternatives, inside)
	}
	if len(s.in) > 0 {
		listed, err := s.listed(columns, s.in)
		if err != nil {
			return "", err
		}
		alternatives = append(alternatives, "("+listed+")")
	}
	if len(alternatives) == 0 {
		return "false", nil
	}
	return strings.Join(alternatives, " OR "), nil
}

// OfTable is the condition for rows of a table under an alias.
func (s Selection) OfTable(t *topology.Table, alias string) (string, error) {
	return s.Condition(newColumns(alias, t.KeyColumns()))
}

// Filter is the condition as a publication has it.
func (s Selection) Filter(t *topology.Table) (string, error) {
	return s.Condition(quoted(t.KeyColumns()))
}

// listed is true for keys of a list.
func (s Selection) listed(columns []string, keys []string) (string, error) {
	k := s.ownership.keyspace
	cast, types := familyCasts(k, columns), families(k)
	rows := make([]string, len(keys))
	for i, encoded := range keys {
		values, err := boundValues(k, types, encoded)
		if err != nil {
			return "", err
		}
		if rows[i] = values[0]; len(columns) > 1 {
			equal := make([]string, len(values))
			for j, value := range values {
				equal[j] = cast[j] + " OPERATOR(pg_catalog.=) " + value
			}
			rows[i] = "(" + strings.Join(equal, " AND ") + ")"
		}
	}
	if len(columns) > 1 {
		return strings.Join(rows, " OR "), nil
	}
	return cast[0] + " OPERATOR(pg_catalog.=) ANY (ARRAY[" + list(rows) + "])", nil
}

// Leaf is a table that has rows of its own: a table that is not partitioned, or a partition.
type Leaf struct {
	Name  topology.TableName
	Pages int64
	// Rows is an estimate.
	Rows int64
}

// Leaves are a table's own rows, or those of its partitions.
func Leaves(ctx context.Context, on querier, table topology.TableName) ([]Leaf, error) {
	rows, err := on.Query(ctx, `
		SELECT n.nspname, c.relname, pg_relation_size(c.oid) / current_setting('block_size')::bigint, greatest(c.reltuples, 0)::bigint
		FROM pg_partition_tree($1::text::regclass) t RIGHT JOIN (SELECT $1::text::regclass AS root) r ON true
			JOIN pg_class c ON c.oid = coalesce(t.relid, r.root) JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE coalesce(t.isleaf, true) ORDER BY 1, 2`, table.String())
	if err != nil {
		return nil, fmt.Errorf("read the partitions of table %s: %w", table, err)
	}
	leaves, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Leaf, err error) {
		err = row.Scan(&l.Name.Schema, &l.Name.Name, &l.Pages, &l.Rows)
		return l, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the partitions of table %s: %w", table, err)
	}
	return leaves, nil
}

// PagesSQL is the condition for rows t of a leaf that are on some of its pages; below 0: up to the end.
func PagesSQL(from, to int64) string {
	where := fmt.Sprintf("%s.ctid >= '(%d,0)'::tid", rowAlias, from)
	if to >= 0 {
		where += fmt.Sprintf(" AND %s.ctid < '(%d,0)'::tid", rowAlias, to)
	}
	return where
}

// ReadPartSQL streams those rows of a leaf out that fit a condition over t.
func (d *Definition) ReadPartSQL(leaf topology.TableName, where string) string {
	return fmt.Sprintf("COPY (SELECT %s FROM ONLY %s AS %s WHERE %s) TO STDOUT %s", d.copyColumns(), leaf, rowAlias, where, d.copyOptions())
}

// conninfo writes a connection string of libpq's.
func conninfo(settings [][2]string) string {
	var parts []string
	for _, s := range settings {
		if s[1] != "" {
			parts = append(parts, s[0]+"='"+strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s[1])+"'")
		}
	}
	return strings.Join(parts, " ")
}
