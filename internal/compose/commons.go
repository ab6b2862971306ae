package compose

import (
	"slices"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

// writingCommons takes out common table expressions that write: each is run by itself, before the rest, and what it returns is pulled. In
// PostgreSQL all parts of a statement see what was there before it; so this is right only if no other part has to do with the table that is written.
func (s *splitter) writingCommons() error {
	with := withOf(s.root)
	if with == nil {
		return nil
	}
	var kept []*pgquery.Node
	for _, n := range with.Ctes {
		common := n.GetCommonTableExpr()
		target := targetOf(common.Ctequery)
		if target == nil {
			kept = append(kept, n)
			continue
		}
		if with.Recursive || !s.isApart(common, target) {
			return ErrForm
		}
		number, returns, err := s.pullWrite(common)
		if err != nil {
			return err
		}
		if returns {
			common.Ctequery = asNode(&pgquery.SelectStmt{
				TargetList: []*pgquery.Node{outputNode(columnNode(visibleMark(number)), "")}, FromClause: fromPull(number),
				LimitOption: pgquery.LimitOption_LIMIT_OPTION_DEFAULT, Op: pgquery.SetOperation_SETOP_NONE,
			})
			kept = append(kept, n)
		}
	}
	with.Ctes = kept
	if len(kept) == 0 {
		forgetWith(s.root)
	}
	return nil
}

// pullWrite makes a pull of a common table expression that writes.
func (s *splitter) pullWrite(common *pgquery.CommonTableExpr) (number int, returns bool, err error) {
	sql, err := write(common.Ctequery)
	if err != nil {
		return 0, false, err
	}
	number = len(s.out.Pulls)
	s.out.Pulls = append(s.out.Pulls, Pull{SQL: sql, Numbered: true, Any: true, Writes: true, Why: "it writes to a table that nothing else has to do with, so it is run first"})
	each(common.Ctequery, func(m proto.Message) bool {
		if v, isTable := m.(*pgquery.RangeVar); isTable {
			s.drop(v)
		}
		return true
	})
	return number, len(returningOf(common.Ctequery)) > 0, nil
}

// drop forgets a table that is seen to.
func (s *splitter) drop(v *pgquery.RangeVar) {
	if o := s.occurrence(v); o != nil {
		delete(s.tables, int(v.Location))
		s.order = slices.DeleteFunc(s.order, func(other *occurrence) bool { return other == o })
	}
}

// isApart says whether nothing but a common table expression itself has to do with the table that it writes to, and it names no other one.
func (s *splitter) isApart(common *pgquery.CommonTableExpr, target *pgquery.RangeVar) bool {
	written := s.occurrence(target)
	if written == nil {
		return false
	}
	inside := map[*pgquery.RangeVar]bool{}
	own := map[string]bool{}
	apart := true
	add := common.Ctequery.GetInsertStmt()
	onlyAdds := add != nil && add.OnConflictClause == nil && !written.table.Runs // no foreign key does anything then
	each(common.Ctequery, func(m proto.Message) bool {
		switch n := m.(type) {
		case *pgquery.CommonTableExpr:
			own[n.Ctename] = true
		case *pgquery.RangeVar:
			inside[n] = true
		}
		return true
	})
	around := s.commonsAround(common)
	each(s.root, func(m proto.Message) bool {
		v, isTable := m.(*pgquery.RangeVar)
		if !isTable {
			return apart
		}
		o := s.occurrence(v)
		switch {
		case inside[v] && o == nil:
			apart = apart && own[v.Relname] && !around[v.Relname]
		case !inside[v] && o != nil: // what a foreign key or a trigger does to another table must not be seen either
			apart = apart && (onlyAdds || v == insertTarget(s.root)) && !o.table.sharesRows(written.table)
		}
		return apart
	})
	return apart
}

// insertTarget is the table that an INSERT adds rows to; nil for any other statement.
func insertTarget(n *pgquery.Node) *pgquery.RangeVar { return n.GetInsertStmt().GetRelation() }

// targetOf is the table that a statement writes to; nil if it writes to none.
func targetOf(n *pgquery.Node) *pgquery.RangeVar {
	switch s := n.GetNode().(type) {
	case *pgquery.Node_InsertStmt:
		return s.InsertStmt.Relation
	case *pgquery.Node_UpdateStmt:
		return s.UpdateStmt.Relation
	case *pgquery.Node_DeleteStmt:
		return s.DeleteStmt.Relation
	case *pgquery.Node_MergeStmt:
		return s.MergeStmt.Relation
	default:
		return nil
	}
}

func returningOf(n *pgquery.Node) []*pgquery.Node {
	switch s := n.GetNode().(type) {
	case *pgquery.Node_InsertStmt:
		return s.InsertStmt.ReturningList
	case *pgquery.Node_UpdateStmt:
		return s.UpdateStmt.ReturningList
	case *pgquery.Node_DeleteStmt:
		return s.DeleteStmt.ReturningList
	case *pgquery.Node_MergeStmt:
		return s.MergeStmt.ReturningList
	default:
		return nil
	}
}

// withOf is the WITH clause of a statement; nil if it has none.
func withOf(n *pgquery.Node) *pgquery.WithClause {
	switch s := n.GetNode().(type) {
	case *pgquery.Node_SelectStmt:
		return s.SelectStmt.WithClause
	case *pgquery.Node_InsertStmt:
		return s.InsertStmt.WithClause
	case *pgquery.Node_UpdateStmt:
		return s.UpdateStmt.WithClause
	case *pgquery.Node_DeleteStmt:
		return s.DeleteStmt.WithClause
	case *pgquery.Node_MergeStmt:
		return s.MergeStmt.WithClause
	default:
		return nil
	}
}

func forgetWith(n *pgquery.Node) {
	switch s := n.GetNode().(type) {
	case *pgquery.Node_SelectStmt:
		s.SelectStmt.WithClause = nil
	case *pgquery.Node_InsertStmt:
		s.InsertStmt.WithClause = nil
	case *pgquery.Node_UpdateStmt:
		s.UpdateStmt.WithClause = nil
	case *pgquery.Node_DeleteStmt:
		s.DeleteStmt.WithClause = nil
	case *pgquery.Node_MergeStmt:
		s.MergeStmt.WithClause = nil
	}
}
