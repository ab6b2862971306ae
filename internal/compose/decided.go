package compose

import (
	"slices"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

// A query that is grouped by a table's primary key may name the table's other columns beside its groups, since the key decides them.
// PostgreSQL knows that of tables, but not of what was pulled. So such a query is grouped by all columns that it names, which makes no
// other groups: it was valid as the client wrote it, which the server has been asked before.

// groupByDecided has all queries that are grouped by columns alone grouped by the others that they name, too. Where expressions are grouped by,
// a column may be a part of one.
func (s *splitter) groupByDecided() {
	each(s.root, func(m proto.Message) bool {
		if q, isQuery := m.(*pgquery.SelectStmt); isQuery && len(q.GroupClause) > 0 {
			b := &block{s: s, q: q}
			b.expandStars()
			if grouped, plain := b.groupedBy(); plain {
				b.addGroups(grouped)
			}
		}
		return true
	})
}

// groupedBy is what a query is grouped by, as it is spelled. Plain: that is columns alone.
func (b *block) groupedBy() (grouped map[string]bool, plain bool) {
	q := clone(b.q)
	if hasStars(q.TargetList) || !b.writeOutGroups(q) {
		return nil, false
	}
	grouped, plain = map[string]bool{}, true
	for _, n := range q.GroupClause {
		plain = plain && n.GetGroupingSet() == nil
	}
	(&grouping{b: b}).leaves(q.GroupClause, func(n *pgquery.Node) *pgquery.Node {
		plain = plain && n.GetColumnRef() != nil
		grouped[spelled(n)] = true
		return n
	})
	return grouped, plain
}

// addGroups groups by the columns outside of aggregates that are not grouped by yet.
func (b *block) addGroups(grouped map[string]bool) {
	add := func(c *pgquery.ColumnRef) {
		column := &pgquery.Node{Node: &pgquery.Node_ColumnRef{ColumnRef: clone(c)}}
		if name := spelled(column); !grouped[name] {
			grouped[name] = true
			b.q.GroupClause = append(b.q.GroupClause, column)
		}
	}
	for _, n := range slices.Concat(b.q.TargetList, []*pgquery.Node{b.q.HavingClause}, b.q.WindowClause) {
		b.eachUngrouped(n, add)
	}
	for _, n := range slices.Concat(b.q.SortClause, b.q.DistinctClause) {
		by := n
		if sort := n.GetSortBy(); sort != nil {
			by = sort.Node
		}
		if output, ok := b.output(by); ok && output < 0 {
			b.eachUngrouped(by, add)
		}
	}
}

// eachUngrouped visits the columns in an expression that are in no aggregate. In a query inside of it, these are columns of tables around it.
func (b *block) eachUngrouped(n *pgquery.Node, visit func(*pgquery.ColumnRef)) {
	each(n, func(m proto.Message) bool {
		switch e := m.(type) {
		case *pgquery.SelectStmt:
			b.eachOuter(e, visit)
			return false
		case *pgquery.ColumnRef:
			if _, star := names(e.Fields); !star {
				visit(e)
			}
		}
		return !b.isAggregate(m)
	})
}

// eachOuter visits the columns in a query that surely are of the tables around it.
func (b *block) eachOuter(inside *pgquery.SelectStmt, visit func(*pgquery.ColumnRef)) {
	around := map[string]bool{}
	for _, from := range b.q.FromClause {
		for _, i := range b.s.items(from) {
			around[i.name] = true
		}
	}
	each(inside, func(m proto.Message) bool {
		switch n := m.(type) {
		case *pgquery.RangeVar:
			delete(around, n.Relname)
		case *pgquery.Alias:
			delete(around, n.Aliasname)
		}
		return true
	})
	each(inside, func(m proto.Message) bool {
		if c, isColumn := m.(*pgquery.ColumnRef); isColumn {
			if parts, star := names(c.Fields); !star && len(parts) > 1 && around[parts[len(parts)-2]] {
				visit(c)
			}
		}
		return !b.isAggregate(m)
	})
}
