package adopt

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/topology"
)

// references returns the foreign keys of a table to others and to itself: those that it has, and those that only the names of columns imply, as
// applications leave them that check references themselves.
func (c *Catalogue) references(t *Table) []ForeignKey {
	found := slices.Clone(t.ForeignKeys)
	for _, column := range t.Columns {
		if slices.ContainsFunc(t.ForeignKeys, func(f ForeignKey) bool { return slices.Contains(f.Columns, column.Name) }) {
			continue
		}
		if implied, is := c.implied(t, column); is {
			found = append(found, implied)
		}
	}
	return found
}

// implied is the reference that a column's name stands for: post_id for the table posts.
func (c *Catalogue) implied(t *Table, column Column) (ForeignKey, bool) {
	thing, is := strings.CutSuffix(column.Name, "_id")
	if !is || thing == "" || column.family() == "" {
		return ForeignKey{}, false
	}
	for _, name := range plurals(thing) {
		target := c.Table(topology.TableName{Schema: t.Schema, Name: name})
		if target == nil || target == t {
			continue
		}
		id := target.rowID()
		if id == nil || id.family() != column.family() {
			continue
		}
		return ForeignKey{Columns: []string{column.Name}, TargetSchema: target.Schema, TargetTable: target.Name, TargetColumns: []string{id.Name}, Valid: true}, true
	}
	return ForeignKey{}, false
}

// plurals are the names that a table of such things may have.
func plurals(thing string) []string {
	names := []string{thing, thing + "s", thing + "es"}
	if stem, is := strings.CutSuffix(thing, "y"); is {
		names = append(names, stem+"ies")
	}
	return append(names, map[string]string{"person": "people", "child": "children"}[thing])
}

// rowID is the column by which others refer to rows: the primary key, or what it was before the shard key was added to it.
func (t *Table) rowID() *Column {
	primary := t.primaryKey()
	switch {
	case primary == nil:
		return nil
	case len(primary.Columns) == 1:
		return t.Column(primary.Columns[0])
	case slices.Contains(primary.Columns, "id"):
		return t.Column("id")
	default:
		return nil
	}
}

// mayBeNull says whether rows may have no value in one of the columns, and hasNulls whether some are known to have none.
func (t *Table) mayBeNull(columns []string) (may, hasNulls bool) {
	for _, name := range columns {
		if column := t.Column(name); column != nil && !column.NotNull {
			may, hasNulls = true, hasNulls || column.NullFraction > 0
		}
	}
	return may, hasNulls
}
