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

// collectUngroupable takes the columns that cannot be grouped by from any row of their group: the key decides them, so all rows have the same.
func (s *splitter) collectUngroupable() {
	each(s.root, func(m proto.Message) bool {
		q, isQuery := m.(*pgquery.SelectStmt)
		if !isQuery || len(q.GroupClause) == 0 {
			return true
		}
		b := &block{s: s, q: q}
		items := slices.DeleteFunc(b.items(), func(i item) bool { return i.table == nil || i.table.renamed || len(i.table.table.Ungroupable) == 0 })
		if len(items) == 0 {
			return true
		}
		b.expandStars()
		if _, plain := b.groupedBy(); plain {
			b.collect(func(c *pgquery.ColumnRef) bool {
				parts, star := names(c.Fields)
				return !star && slices.ContainsFunc(items, func(i item) bool { return i.isUngroupable(parts) })
			})
		}
		return true
	})
}

// isUngroupable says whether a name is that of such a column, or of the table itself, whose rows have one.
func (i item) isUngroupable(parts []string) bool {
	last := parts[len(parts)-1]
	if len(parts) == 1 && last == i.name && !i.table.has(last) {
		return true
	}
	return (len(parts) == 1 || parts[len(parts)-2] == i.name) && slices.Contains(i.table.table.Ungroupable, last)
}

// collect takes columns outside of aggregates from any row of their group.
func (b *block) collect(isOne func(*pgquery.ColumnRef) bool) {
	ones := map[*pgquery.ColumnRef]bool{}
	for _, n := range slices.Concat(b.q.TargetList, []*pgquery.Node{b.q.HavingClause}, b.q.SortClause) {
		b.eachUngrouped(n, func(c *pgquery.ColumnRef) { ones[c] = isOne(c) })
		each(n, func(m proto.Message) bool {
			switch e := m.(type) {
			case *pgquery.ResTarget:
				if c := e.Val.GetColumnRef(); e.Name == "" && ones[c] {
					e.Name = last(c.Fields)
				}
			case *pgquery.Node:
				if c := e.GetColumnRef(); ones[c] {
					e.Node = firstOf(c).Node
					return false
				}
			}
			return true
		})
	}
}

// items are what the block's FROM shows to it.
func (b *block) items() []item {
	var items []item
	for _, from := range b.q.FromClause {
		items = append(items, b.s.items(from)...)
	}
	return items
}

// firstOf is some value of a column in a group.
func firstOf(c *pgquery.ColumnRef) *pgquery.Node {
	all := &pgquery.FuncCall{
		Funcname: []*pgquery.Node{text("pg_catalog"), text("array_agg")}, Args: []*pgquery.Node{{Node: &pgquery.Node_ColumnRef{ColumnRef: c}}},
		Funcformat: pgquery.CoercionForm_COERCE_EXPLICIT_CALL, Location: -1,
	}
	first := &pgquery.A_Indices{Uidx: pgquery.MakeAConstIntNode(1, -1)}
	return &pgquery.Node{Node: &pgquery.Node_AIndirection{AIndirection: &pgquery.A_Indirection{
		Arg:         &pgquery.Node{Node: &pgquery.Node_FuncCall{FuncCall: all}},
		Indirection: []*pgquery.Node{{Node: &pgquery.Node_AIndices{AIndices: first}}},
	}}}
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
	items, around := b.items(), map[string]bool{}
	for _, i := range items {
		around[i.name] = true
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
	strangers, known := b.s.surelyStrange(inside)
	each(inside, func(m proto.Message) bool {
		if c, isColumn := m.(*pgquery.ColumnRef); isColumn {
			switch parts, star := names(c.Fields); {
			case star || len(parts) == 0:
			case len(parts) == 1 && strangers[c] && b.s.isIn(c, [][]item{items}), len(parts) > 1 && around[parts[len(parts)-2]]:
				visit(c)
			}
		}
		if b.isAggregate(m) { // it is one of the query inside only if it is about columns of its own
			return known && namesOthers(m, strangers)
		}
		return true
	})
}

// namesOthers says whether columns are named in a tree that are not among these.
func namesOthers(m proto.Message, columns map[*pgquery.ColumnRef]bool) bool {
	found := false
	each(m, func(m proto.Message) bool {
		c, isColumn := m.(*pgquery.ColumnRef)
		found = found || isColumn && !columns[c]
		return !found
	})
	return found
}

// surelyStrange are the columns that a query names which are not of what it reads. That is known where it reads nothing but tables.
func (s *splitter) surelyStrange(q *pgquery.SelectStmt) (strangers map[*pgquery.ColumnRef]bool, known bool) {
	known = true
	each(q, func(m proto.Message) bool {
		if inside, isQuery := m.(*pgquery.SelectStmt); isQuery {
			for _, from := range inside.FromClause {
				known = known && !slices.ContainsFunc(s.items(from), func(i item) bool { return i.table == nil || i.table.renamed })
			}
		}
		return known
	})
	strangers = map[*pgquery.ColumnRef]bool{}
	if known && s.strangers(q, nil, func(c *pgquery.ColumnRef) { strangers[c] = true }) {
		return strangers, true
	}
	return nil, false
}
