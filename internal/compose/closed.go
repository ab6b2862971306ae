package compose

import (
	"slices"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

// isClosed says whether a query surely names nothing but columns of what it reads itself, so that it can be run alone.
func (s *splitter) isClosed(q *pgquery.SelectStmt) bool {
	return s.isAlone(q) && s.resolves(q)
}

// resolves says whether all columns that a query names are surely those of what it reads.
func (s *splitter) resolves(q *pgquery.SelectStmt) bool {
	own := true
	known := s.strangers(q, nil, func(*pgquery.ColumnRef) { own = false })
	return known && own
}

// strangers tells of the columns that a query names which are not surely those of what it reads, or of what queries around it read, which are in the scopes. It
// is known if all of the query can be looked at.
func (s *splitter) strangers(q *pgquery.SelectStmt, scopes [][]item, tell func(*pgquery.ColumnRef)) (known bool) {
	for _, n := range q.GetWithClause().GetCtes() {
		inside := n.GetCommonTableExpr().GetCtequery().GetSelectStmt()
		if inside == nil || !s.strangers(inside, scopes, tell) {
			return false
		}
	}
	if q.Larg != nil {
		return s.strangers(q.Larg, scopes, tell) && s.strangers(q.Rarg, scopes, tell)
	}
	var own []item
	for _, from := range q.FromClause {
		own = append(own, s.items(from)...)
	}
	inner := append(slices.Clone(scopes), own)
	known = true
	look := func(m proto.Message) {
		each(m, func(m proto.Message) bool {
			switch n := m.(type) {
			case *pgquery.RangeSubselect:
				around := scopes
				if n.Lateral {
					around = inner
				}
				known = known && s.strangers(n.Subquery.GetSelectStmt(), around, tell)
				return false
			case *pgquery.SelectStmt:
				known = known && s.strangers(n, inner, tell)
				return false
			case *pgquery.ColumnRef:
				if !s.isIn(n, inner) {
					tell(n)
				}
				return false
			}
			return known
		})
	}
	for _, from := range q.FromClause {
		look(from)
	}
	for _, n := range slices.Concat(q.TargetList, []*pgquery.Node{q.WhereClause, q.HavingClause, q.LimitCount, q.LimitOffset}, q.WindowClause, q.ValuesLists) {
		look(n)
	}
	for _, n := range slices.Concat(q.GroupClause, q.SortClause, q.DistinctClause) {
		by := n
		if sort := n.GetSortBy(); sort != nil {
			by = sort.Node
		}
		if name := singleName(by); name != "" && slices.ContainsFunc(q.TargetList, func(t *pgquery.Node) bool { return !isStar(t) && outputName(t.GetResTarget()) == name }) {
			continue
		}
		look(n)
	}
	return known
}

// isIn says whether a column surely is one of the items in some scope.
func (s *splitter) isIn(c *pgquery.ColumnRef, scopes [][]item) bool {
	parts, star := names(c.Fields)
	for i := len(scopes) - 1; i >= 0; i-- {
		for _, it := range scopes[i] {
			switch {
			case len(parts) == 0: // all of the innermost
				return true
			case len(parts) > 1 || star:
				if it.name == parts[max(0, len(parts)-2)] || star && it.name == parts[len(parts)-1] {
					return true
				}
			case it.table != nil && !it.table.renamed && it.table.has(parts[0]): // its name alone is its row only if no query around has such a column
				return true
			case it.table == nil && slices.Contains(it.columns, parts[0]):
				return true
			}
		}
	}
	return len(parts) == 0
}

// anyPulls pulls the queries inside of a statement that writes which can be run alone: their answers are the same for all shards that way.
func (s *splitter) anyPulls(root proto.Message) error {
	var failure error
	each(root, func(m proto.Message) bool {
		q, isQuery := m.(*pgquery.SelectStmt)
		if !isQuery || failure != nil {
			return failure == nil
		}
		if q.Larg == nil && len(q.FromClause) == 0 || !s.isClosed(q) || !s.readsPulled(q) {
			return true
		}
		failure = s.anyPull(q)
		return false
	})
	return failure
}

// readsPulled says whether a query reads a table that has to be pulled, or may give another answer each time.
func (s *splitter) readsPulled(q *pgquery.SelectStmt) bool {
	found := false
	each(q, func(m proto.Message) bool {
		if v, isTable := m.(*pgquery.RangeVar); isTable {
			if o := s.occurrence(v); o != nil {
				found = found || !s.q.Target.Copied || !o.table.Stays
			}
		}
		return !found
	})
	return found
}

// anyPull pulls one query as a whole.
func (s *splitter) anyPull(q *pgquery.SelectStmt) error {
	sql, err := write(asNode(q))
	if err != nil {
		return err
	}
	number := len(s.out.Pulls)
	s.out.Pulls = append(s.out.Pulls, Pull{SQL: sql, Numbered: true, Any: true, Why: "the query is run first, once for all shards"})
	s.forget(q)
	b := &block{s: s, q: q}
	if q.Larg != nil {
		q.Op, q.All, q.Larg, q.Rarg = pgquery.SetOperation_SETOP_NONE, false, nil, nil
	}
	q.ValuesLists = nil
	b.become(&pgquery.SelectStmt{
		TargetList: []*pgquery.Node{outputNode(columnNode(visibleMark(number)), "")}, FromClause: fromPull(number), LimitOption: pgquery.LimitOption_LIMIT_OPTION_DEFAULT,
	})
	return nil
}
