package compose

import (
	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

// usedNames are all names in the query that may be those of columns. A column that is not among them is needed only where a table is
// needed whole.
func (s *splitter) usedNames() map[string]bool {
	used := map[string]bool{}
	add := func(nodes []*pgquery.Node) {
		found, _ := names(nodes)
		for _, name := range found {
			used[name] = true
		}
	}
	each(s.root, func(m proto.Message) bool {
		switch n := m.(type) {
		case *pgquery.ColumnRef:
			add(n.Fields)
		case *pgquery.A_Indirection:
			add(n.Indirection)
		case *pgquery.JoinExpr:
			add(n.UsingClause)
		}
		return true
	})
	return used
}

// needs finds the tables of which all columns are needed.
func (s *splitter) needs() {
	beside := map[*pgquery.SelectStmt]bool{} // of EXISTS, whose columns nobody sees
	each(s.root, func(m proto.Message) bool {
		switch n := m.(type) {
		case *pgquery.SubLink:
			if n.SubLinkType == pgquery.SubLinkType_EXISTS_SUBLINK {
				if inside := n.Subselect.GetSelectStmt(); inside != nil && inside.Larg == nil && len(inside.DistinctClause) == 0 {
					beside[inside] = true
				}
			}
		case *pgquery.SelectStmt:
			if !beside[n] {
				s.needsOfStars(n)
			}
		case *pgquery.JoinExpr:
			if n.IsNatural || n.Alias != nil { // its name stands for all columns
				s.wholeBelow(n)
			}
		case *pgquery.ColumnRef:
			s.needsOfColumn(n)
		}
		return true
	})
}

func (s *splitter) occurrence(v *pgquery.RangeVar) *occurrence {
	if o := s.tables[int(v.Location)]; o != nil && o.v == v {
		return o
	}
	return nil
}

// needsOfStars marks the tables that a star of a query stands for.
func (s *splitter) needsOfStars(q *pgquery.SelectStmt) {
	for _, target := range q.TargetList {
		column := target.GetResTarget().GetVal().GetColumnRef()
		if column == nil {
			continue
		}
		if parts, star := names(column.Fields); star && len(parts) == 0 {
			for _, item := range q.FromClause {
				s.wholeBelow(item)
			}
		}
	}
}

// wholeBelow marks the tables of a FROM clause, but not those of queries in it, which say for themselves what they give.
func (s *splitter) wholeBelow(from proto.Message) {
	each(from, func(m proto.Message) bool {
		switch n := m.(type) {
		case *pgquery.SelectStmt:
			return false
		case *pgquery.RangeVar:
			if o := s.occurrence(n); o != nil {
				o.whole = true
			}
		}
		return true
	})
}

// needsOfColumn marks tables whose rows are meant as values: t, t.*, or t.x where x is a function of the row.
func (s *splitter) needsOfColumn(c *pgquery.ColumnRef) {
	parts, star := names(c.Fields)
	for _, o := range s.order {
		switch {
		case len(parts) == 0:
		case star && parts[len(parts)-1] == o.name(), !star && parts[len(parts)-1] == o.name():
			o.whole = true
		case !star && len(parts) > 1 && parts[len(parts)-2] == o.name() && !o.has(parts[len(parts)-1]):
			o.whole = true
		}
	}
}

// has says whether the table has such a column.
func (o *occurrence) has(column string) bool {
	for _, c := range o.table.Columns {
		if c == column {
			return true
		}
	}
	return false
}
