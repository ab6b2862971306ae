package compose

import (
	"slices"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

// A block is one query of those that a statement is made of. If its FROM and WHERE can be computed by every shard alone, so that each
// row of them is some shard's and no other's, then its rows need not be brought together as they are in the tables: what the shards make of
// them is pulled, and the block is computed over that. How much a shard can make of them depends on what follows them in the block:
//
//   - rows: nothing but an order, DISTINCT or a limit follows. A shard's first rows are enough.
//   - groups: aggregates follow that can be computed from partial ones. A shard gives a row for each of its groups.
//   - columns: anything else. A shard gives the columns that are needed.

// blocks looks for blocks in the whole query, outer ones first, and rewrites those that can be.
func (s *splitter) blocks() {
	if s.q.Divides == nil {
		return
	}
	s.blocksIn(s.root.GetSelectStmt(), true)
}

// blocksIn rewrites a query, or what is inside of it. Closed: it can only name what it reads itself.
func (s *splitter) blocksIn(q *pgquery.SelectStmt, closed bool) {
	if q == nil {
		return
	}
	if q.Larg != nil { // an arm cannot see what the whole has before it, unless that is a common table expression
		s.commons(q, closed)
		for _, arm := range []*pgquery.SelectStmt{q.Larg, q.Rarg} {
			if !hasUntyped(arm) {
				s.blocksIn(arm, closed)
			}
		}
		return
	}
	if closed && s.isAlone(q) && s.block(q) {
		return
	}
	s.commons(q, closed)
	for _, from := range q.FromClause {
		s.blocksFrom(from, closed)
	}
}

// blocksInside rewrites the queries in an expression that name nothing of the one around them.
func (s *splitter) blocksInside(n *pgquery.Node) {
	each(n, func(m proto.Message) bool {
		q, isQuery := m.(*pgquery.SelectStmt)
		if !isQuery {
			return true
		}
		if !s.asWritten[q] && s.isClosed(q) {
			s.blocksIn(q, true)
		}
		return false
	})
}

// keepAsWritten finds the queries in outputs, groups and orders of others that have some in their groups or orders: PostgreSQL compares those expressions, so one that stands
// in two places must stay the same in both.
func (s *splitter) keepAsWritten() {
	each(s.root, func(m proto.Message) bool {
		q, isQuery := m.(*pgquery.SelectStmt)
		if !isQuery || !hasQueries(slices.Concat(q.GroupClause, q.SortClause, q.DistinctClause)) {
			return true
		}
		for _, n := range slices.Concat(q.TargetList, []*pgquery.Node{q.HavingClause}, q.GroupClause, q.SortClause, q.DistinctClause, q.WindowClause) {
			each(n, func(m proto.Message) bool {
				if inside, isQuery := m.(*pgquery.SelectStmt); isQuery {
					s.asWritten[inside] = true
				}
				return true
			})
		}
		return true
	})
}

// hasUntyped says whether an arm has an output that has no type of its own, but gets that of the other arm's.
func hasUntyped(arm *pgquery.SelectStmt) bool {
	return slices.ContainsFunc(arm.TargetList, func(t *pgquery.Node) bool {
		value := t.GetResTarget().GetVal()
		for value.GetCollateClause() != nil {
			value = value.GetCollateClause().Arg
		}
		return value != nil && isBare(value)
	})
}

// commons rewrites common table expressions.
func (s *splitter) commons(q *pgquery.SelectStmt, closed bool) {
	for _, n := range q.GetWithClause().GetCtes() {
		s.blocksIn(n.GetCommonTableExpr().GetCtequery().GetSelectStmt(), closed)
	}
}

// blocksFrom rewrites the queries in a FROM clause; one that is LATERAL may see its neighbours.
func (s *splitter) blocksFrom(from *pgquery.Node, closed bool) {
	switch n := from.GetNode().(type) {
	case *pgquery.Node_RangeSubselect:
		s.blocksIn(n.RangeSubselect.Subquery.GetSelectStmt(), closed && !n.RangeSubselect.Lateral)
	case *pgquery.Node_JoinExpr:
		s.blocksFrom(n.JoinExpr.Larg, closed)
		s.blocksFrom(n.JoinExpr.Rarg, closed)
	}
}

// isAlone says whether a query reads tables, and names no common table expression that is not its own.
func (s *splitter) isAlone(q *pgquery.SelectStmt) bool {
	own := map[string]bool{}
	each(q, func(m proto.Message) bool {
		if c, isCommon := m.(*pgquery.CommonTableExpr); isCommon {
			own[c.Ctename] = true
		}
		return true
	})
	reads, alone := false, true
	around := s.commonsAround(q)
	each(q, func(m proto.Message) bool {
		switch n := m.(type) {
		case *pgquery.RangeVar:
			if o := s.occurrence(n); o == nil {
				alone = alone && own[n.Relname] && !around[n.Relname]
			} else {
				reads, alone = true, alone && !o.table.Own
			}
		case *pgquery.WithClause:
			alone = alone && !n.Recursive
		}
		return alone
	})
	return reads && alone
}

// commonsAround are the names of all common table expressions that are not inside of a part of the statement. Where one inside has the same name, it would have to be
// looked at which one is meant.
func (s *splitter) commonsAround(part proto.Message) map[string]bool {
	around := map[string]bool{}
	each(s.root, func(m proto.Message) bool {
		if c, isCommon := m.(*pgquery.CommonTableExpr); isCommon {
			around[c.Ctename] = true
		}
		return m != part
	})
	return around
}

// block rewrites one query if its FROM and WHERE can be computed shard by shard.
func (s *splitter) block(q *pgquery.SelectStmt) bool {
	if len(q.FromClause) == 0 || len(q.ValuesLists) > 0 {
		return false
	}
	b := &block{s: s, q: q}
	if b.isGrouped() {
		return b.groups() || b.columns()
	}
	if b.hasWindows() {
		return b.columns()
	}
	return b.rows()
}

// block is the rewriting of one query.
type block struct {
	s *splitter
	q *pgquery.SelectStmt
}

// isGrouped says whether rows are brought together in groups.
func (b *block) isGrouped() bool {
	return len(b.q.GroupClause) > 0 || b.q.HavingClause != nil || b.contains(b.afterWhere(), func(m proto.Message) bool { return b.isAggregate(m) })
}

func (b *block) hasWindows() bool {
	return b.contains(b.afterWhere(), func(m proto.Message) bool {
		f, isCall := m.(*pgquery.FuncCall)
		agg, isAgg := m.(*pgquery.JsonAggConstructor)
		return isCall && f.Over != nil || isAgg && agg.Over != nil
	})
}

// afterWhere is everything that follows the WHERE clause, or is computed after it.
func (b *block) afterWhere() []*pgquery.Node {
	return slices.Concat(b.q.TargetList, b.q.GroupClause, []*pgquery.Node{b.q.HavingClause}, b.q.WindowClause, b.q.SortClause, b.q.DistinctClause, []*pgquery.Node{b.q.LimitCount, b.q.LimitOffset})
}

// contains says whether one of the messages in the nodes is such, queries in them left out.
func (b *block) contains(nodes []*pgquery.Node, is func(proto.Message) bool) bool {
	found := false
	for _, n := range nodes {
		each(n, func(m proto.Message) bool {
			if _, isQuery := m.(*pgquery.SelectStmt); isQuery {
				return false
			}
			found = found || is(m)
			return !found
		})
	}
	return found
}

func (b *block) isAggregate(m proto.Message) bool {
	switch n := m.(type) {
	case *pgquery.FuncCall:
		schema, name := qualified(n.Funcname)
		return n.Over == nil && name != parentheses && (n.AggStar || n.AggDistinct || n.AggWithinGroup || len(n.AggOrder) > 0 || n.AggFilter != nil || b.s.q.Aggregate(schema, name))
	case *pgquery.JsonObjectAgg, *pgquery.JsonArrayAgg:
		return true
	default:
		return false
	}
}

// hasQueries says whether there are queries in nodes.
func hasQueries(nodes []*pgquery.Node) bool {
	found := false
	for _, n := range nodes {
		each(n, func(m proto.Message) bool {
			_, isQuery := m.(*pgquery.SelectStmt)
			found = found || isQuery
			return !found
		})
	}
	return found
}

// core is the query without all that follows its FROM and WHERE, but for these outputs.
func (b *block) core(outputs []*pgquery.Node) *pgquery.SelectStmt {
	core := &pgquery.SelectStmt{
		FromClause: b.q.FromClause, WhereClause: b.q.WhereClause, WithClause: b.q.WithClause, TargetList: outputs,
		LimitOption: pgquery.LimitOption_LIMIT_OPTION_DEFAULT, Op: pgquery.SetOperation_SETOP_NONE,
	}
	return clone(core)
}

func asNode(q *pgquery.SelectStmt) *pgquery.Node {
	return &pgquery.Node{Node: &pgquery.Node_SelectStmt{SelectStmt: q}}
}

// pull makes a pull of a query, if every shard can compute its core alone, and puts the place for it into the block's FROM.
func (b *block) pull(core, query *pgquery.SelectStmt, why string) (number int, ok bool) {
	return b.pullAs(core, query, func(q *pgquery.SelectStmt) *pgquery.SelectStmt { return q }, why)
}

// pullAs is pull of what is made of the query in the end.
func (b *block) pullAs(core, query *pgquery.SelectStmt, made func(*pgquery.SelectStmt) *pgquery.SelectStmt, why string) (number int, ok bool) {
	if b.givesRows(query) {
		return 0, false
	}
	coreText, divides := b.s.divides(core)
	if !divides {
		if core, query = clone(core), clone(query); !memberships(core) || !memberships(query) {
			return 0, false
		}
		if coreText, divides = b.s.divides(core); !divides {
			return 0, false
		}
	}
	text, err := write(asNode(made(query)))
	if err != nil {
		return 0, false
	}
	number = len(b.s.out.Pulls)
	b.s.repeated[number] = b.s.repeats(query)
	b.s.out.Pulls = append(b.s.out.Pulls, Pull{Table: b.firstTable(), SQL: text, Core: coreText, Numbered: true, Where: core.WhereClause != nil, Why: why})
	b.forget()
	return number, true
}

// forget leaves out the tables that were pulled. LIMIT and OFFSET stay in the final statement, with the queries in them.
func (b *block) forget() {
	limits := []*pgquery.Node{b.q.LimitCount, b.q.LimitOffset}
	b.q.LimitCount, b.q.LimitOffset = nil, nil
	b.s.forget(b.q)
	b.q.LimitCount, b.q.LimitOffset = limits[0], limits[1]
	for _, limit := range limits {
		b.s.blocksInside(limit)
	}
}

// givesRows says whether an output of a query may be a row that is put together in it: such a value cannot be handed on, since its type has no name.
func (b *block) givesRows(query *pgquery.SelectStmt) bool {
	found := false
	nameless := b.namelessRows()
	for _, target := range query.TargetList {
		each(target, func(m proto.Message) bool {
			switch n := m.(type) {
			case *pgquery.A_Expr: // compares rows, if there are any
				return !isComparison(n)
			case *pgquery.RowExpr:
				found = true
			case *pgquery.ColumnRef:
				parts, _ := names(n.Fields)
				found = found || len(parts) == 1 && nameless[parts[0]]
			}
			return !found
		})
	}
	return found
}

// namelessRows are the names of what the block reads that is no table: as a whole, a row of it is put together by the block.
func (b *block) namelessRows() map[string]bool {
	found := map[string]bool{}
	for _, i := range b.items() {
		if i.table == nil && i.name != "" {
			found[i.name] = true
		}
	}
	return found
}

// isComparison says whether an operator gives a truth value whatever it compares.
func isComparison(e *pgquery.A_Expr) bool {
	return slices.Contains([]string{"=", "<>", "<", "<=", ">", ">="}, last(e.Name))
}

// divides says whether every shard can compute a query for its own rows, and returns its text.
func (s *splitter) divides(q *pgquery.SelectStmt) (Text, bool) {
	sql, err := write(asNode(q))
	if err != nil {
		return Text{}, false
	}
	return sql, s.q.Divides(sql.Fill(Places{Literal: s.literal, Moment: "'2000-01-01 00:00:00+00'"}))
}

// firstTable is the first table that the block reads.
func (b *block) firstTable() int {
	first := -1
	each(b.q, func(m proto.Message) bool {
		if v, isTable := m.(*pgquery.RangeVar); isTable && first < 0 {
			if o := b.s.occurrence(v); o != nil {
				first = o.index
			}
		}
		return first < 0
	})
	return first
}

// forget leaves out the tables of a query that is pulled as a whole.
func (s *splitter) forget(q *pgquery.SelectStmt) {
	each(q, func(m proto.Message) bool {
		if v, isTable := m.(*pgquery.RangeVar); isTable {
			if o := s.occurrence(v); o != nil {
				delete(s.tables, int(v.Location))
				s.order = slices.DeleteFunc(s.order, func(other *occurrence) bool { return other == o })
			}
		}
		return true
	})
}

// literal is one of the text's.
func (s *splitter) literal(number int) string {
	l := s.q.Literals[number-s.q.First]
	return s.q.Text[l.Start:l.End]
}

// pulledAlias is what a pull is called where it stands for a block's FROM.
const pulledAlias = "p"

// fromPull is a FROM clause with a pull in it.
func fromPull(number int) []*pgquery.Node {
	return []*pgquery.Node{{Node: &pgquery.Node_RangeVar{RangeVar: &pgquery.RangeVar{Relname: pullMark(number), Inh: true, Relpersistence: "p", Alias: &pgquery.Alias{Aliasname: pulledAlias}, Location: -1}}}}
}

// pulledColumn is a column of a pull.
func pulledColumn(column int) *pgquery.Node { return columnNode(pulledAlias, columnName(column)) }
