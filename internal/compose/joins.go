package compose

import (
	"slices"
	"strconv"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

// joint is a condition that is about several tables of one query's FROM clause, all of which are there as they are.
type joint struct {
	q         *pgquery.SelectStmt
	condition *pgquery.Node
	tables    []*occurrence
	// nested: there are queries in it. left: it is not asked where the tables are.
	nested, left bool
}

// isWithin says whether a condition is about none but these tables.
func (j *joint) isWithin(set []*occurrence) bool {
	return !slices.ContainsFunc(j.tables, func(o *occurrence) bool { return !slices.Contains(set, o) })
}

// isSeenTo takes a condition out of the final statement, with all tables in it.
func (s *splitter) isSeenTo(condition *pgquery.Node) {
	each(condition, func(m proto.Message) bool {
		if v, isTable := m.(*pgquery.RangeVar); isTable {
			s.drop(v)
		}
		return true
	})
	isMet(condition)
}

// joins finds tables that every shard can join for its own rows, and has it do that: what is pulled is the join, and in the final statement each
// table is a part of that. Conditions and names stay as they are there.
func (s *splitter) joins() error {
	if s.q.Divides == nil {
		return nil
	}
	var queries []*pgquery.SelectStmt
	each(s.root, func(m proto.Message) bool {
		if q, isQuery := m.(*pgquery.SelectStmt); isQuery && !s.asWritten[q] {
			queries = append(queries, q)
		}
		return true
	})
	for _, q := range queries { // outer ones first: a join may take queries in its conditions with it
		s.joints = slices.DeleteFunc(s.joints, func(j joint) bool {
			return slices.ContainsFunc(j.tables, func(o *occurrence) bool { return !slices.Contains(s.order, o) })
		})
		if slices.ContainsFunc(s.joints, func(j joint) bool { return j.q == q }) {
			if err := s.joinsOf(q); err != nil {
				return err
			}
		}
		for _, n := range slices.Concat(q.TargetList, []*pgquery.Node{q.WhereClause, q.HavingClause}) {
			s.blocksInside(n)
		}
	}
	return nil
}

// joinsOf looks at the joins of one query.
func (s *splitter) joinsOf(q *pgquery.SelectStmt) error {
	(&block{s: s, q: q}).expandStars()
	if hasStars(q.TargetList) {
		return nil
	}
	var sets [][]*occurrence
	find := func(o *occurrence) int {
		return slices.IndexFunc(sets, func(set []*occurrence) bool { return slices.Contains(set, o) })
	}
	for _, j := range s.joints {
		if j.q != q {
			continue
		}
		if s.occurrence(j.tables[0].v) == nil { // the query is in a condition that shards have checked
			return nil
		}
		for _, o := range j.tables {
			if find(o) < 0 {
				sets = append(sets, []*occurrence{o})
			}
		}
	}
	for _, j := range s.joints {
		if j.q != q || len(j.tables) != 2 || !isEquality(j.condition) {
			continue
		}
		a, b := find(j.tables[0]), find(j.tables[1])
		if a == b {
			continue
		}
		both := slices.Concat(sets[a], sets[b])
		if s.joinsAlone(q, both) {
			sets[a] = both
			sets = slices.Delete(sets, b, b+1)
		}
	}
	for _, set := range sets {
		nested := s.nestedWithin(q, set)
		if len(set) > 1 || nested {
			if err := s.joinPull(q, set); err != nil {
				return err
			}
		}
	}
	return nil
}

// nestedWithin finds out which conditions with queries in them every shard can check for its own rows of these tables, and says whether there are any.
func (s *splitter) nestedWithin(q *pgquery.SelectStmt, set []*occurrence) bool {
	found := false
	for i := range s.joints {
		j := &s.joints[i]
		if j.q != q || !j.nested || !j.isWithin(set) {
			continue
		}
		j.left = false
		if j.left = !s.joinsAlone(q, set); !j.left {
			found = true
		}
	}
	return found
}

// isEquality says whether a condition asks for two things to be equal.
func isEquality(n *pgquery.Node) bool {
	e := n.GetAExpr()
	return e != nil && e.Kind == pgquery.A_Expr_Kind_AEXPR_OP && last(e.Name) == "="
}

// joinsAlone says whether every shard can join these tables for its own rows.
func (s *splitter) joinsAlone(q *pgquery.SelectStmt, set []*occurrence) bool {
	_, divides := s.divides(s.joinQuery(q, set, []*pgquery.Node{outputNode(pgquery.MakeAConstIntNode(1, -1), "")}))
	return divides
}

// joinQuery joins tables by all conditions that are about them alone.
func (s *splitter) joinQuery(q *pgquery.SelectStmt, set []*occurrence, outputs []*pgquery.Node) *pgquery.SelectStmt {
	join := &pgquery.SelectStmt{TargetList: outputs, LimitOption: pgquery.LimitOption_LIMIT_OPTION_DEFAULT, Op: pgquery.SetOperation_SETOP_NONE}
	var conditions []*pgquery.Node
	for _, o := range set {
		join.FromClause = append(join.FromClause, &pgquery.Node{Node: &pgquery.Node_RangeVar{RangeVar: clone(o.v)}})
		for _, c := range o.conditions {
			conditions = append(conditions, clone(c))
		}
	}
	for _, j := range s.joints {
		if j.q == q && j.isWithin(set) && !j.left {
			condition := clone(j.condition)
			asExists(condition)
			conditions = append(conditions, condition)
		}
	}
	for _, o := range set {
		for _, c := range o.implied {
			conditions = append(conditions, clone(c))
		}
	}
	join.WhereClause = allOf(conditions)
	return join
}

// joinPull pulls a join, and makes its tables parts of it.
func (s *splitter) joinPull(q *pgquery.SelectStmt, set []*occurrence) error {
	join := s.joinQuery(q, set, nil)
	for _, j := range s.joints {
		if j.q == q && j.isWithin(set) && !j.left {
			s.isSeenTo(j.condition)
		}
	}
	for _, o := range set {
		for _, c := range o.conditions {
			isMet(c)
		}
	}
	used := s.usedNames()
	number := len(s.out.Pulls)
	alias := "cleave_join_" + strconv.Itoa(number)
	var outputs []*pgquery.Node
	parts := make([]*pgquery.SelectStmt, len(set))
	for i, o := range set {
		o.number, o.columnAt = number, map[string]int{}
		parts[i] = &pgquery.SelectStmt{LimitOption: pgquery.LimitOption_LIMIT_OPTION_DEFAULT, Op: pgquery.SetOperation_SETOP_NONE}
		for _, c := range o.table.Columns {
			if !o.whole && !used[c] {
				continue
			}
			o.columnAt[c] = len(outputs)
			parts[i].TargetList = append(parts[i].TargetList, outputNode(columnNode(alias, joinedName(len(outputs))), c))
			outputs = append(outputs, outputNode(columnNode(o.name(), c), ""))
		}
	}
	join.TargetList = outputs
	sql, err := write(asNode(join))
	if err != nil {
		return err // its conditions are taken for met already
	}
	s.out.Pulls = append(s.out.Pulls, Pull{Table: set[0].index, SQL: sql, Numbered: true, Where: true, Why: "tables that are joined by what says on which shard their rows are, or that every shard has"})
	for i, o := range set {
		s.becomePart(q, o, parts[i])
		delete(s.tables, int(o.v.Location))
		s.order = slices.DeleteFunc(s.order, func(other *occurrence) bool { return other == o })
	}
	joined := fromPull(number)
	joined[0].GetRangeVar().Alias = &pgquery.Alias{Aliasname: alias}
	for i := range outputs { // names that the query has not
		joined[0].GetRangeVar().Alias.Colnames = append(joined[0].GetRangeVar().Alias.Colnames, text(joinedName(i)))
	}
	q.FromClause = append(joined, q.FromClause...)
	return nil
}

// joinedName is what a column of a join is called, beside those that the query names.
func joinedName(column int) string { return "cleave_" + columnName(column) }

// becomePart replaces a table in a query's FROM by a part of a row that stands before it.
func (s *splitter) becomePart(q *pgquery.SelectStmt, o *occurrence, part *pgquery.SelectStmt) {
	for _, from := range q.FromClause {
		each(from, func(m proto.Message) bool {
			if n, isNode := m.(*pgquery.Node); isNode && n.GetRangeVar() == o.v {
				n.Node = &pgquery.Node_RangeSubselect{RangeSubselect: &pgquery.RangeSubselect{
					Lateral: true, Subquery: asNode(part), Alias: &pgquery.Alias{Aliasname: o.name()},
				}}
				return false
			}
			return true
		})
	}
}

// side is one side of an equality: a column of a table.
type side struct {
	table  *occurrence
	column string
}

// equal is an equality between columns of two tables. Both: rows of either matter only if the other has an equal one; else those of the first.
type equal struct {
	a, b side
	both bool
}

// equalities notes which columns of tables are asked to be equal.
func (s *splitter) equalities(conditions []*pgquery.Node, items []item, of map[*occurrence]bool) {
	for _, c := range conditions {
		e := c.GetAExpr()
		if !isEquality(c) || len(e.Name) != 1 || !s.q.SteadyOperator("", "=") || e.Lexpr.GetColumnRef() == nil || e.Rexpr.GetColumnRef() == nil {
			continue
		}
		a, b := s.owner(e.Lexpr.GetColumnRef(), items), s.owner(e.Rexpr.GetColumnRef(), items)
		if a == nil || b == nil || a == b || !of[a] || !of[b] {
			continue
		}
		s.equal = append(s.equal, equal{side{a, last(e.Lexpr.GetColumnRef().Fields)}, side{b, last(e.Rexpr.GetColumnRef().Fields)}, true})
	}
}

// link says of pulls what is known of their tables.
func (s *splitter) link() {
	for _, e := range s.equal {
		s.linkSides(e.a, e.b)
		if e.both {
			s.linkSides(e.b, e.a)
		}
	}
}

// linkSides says that rows of a pull matter only if another one has an equal value, if that holds for all tables that the pull stands for.
func (s *splitter) linkSides(to, from side) {
	made, ok := linkOf(to, from)
	if !ok || slices.Contains(s.out.Links, made) {
		return
	}
	for _, o := range s.order {
		if o.number == made.Pull && !s.isLinked(o, made) {
			return
		}
	}
	s.out.Links = append(s.out.Links, made)
}

// isLinked says whether rows of a table matter only if they are equal to what a link says.
func (s *splitter) isLinked(o *occurrence, as Link) bool {
	return slices.ContainsFunc(s.equal, func(e equal) bool {
		if one, ok := linkOf(e.a, e.b); ok && e.a.table == o && one == as {
			return true
		}
		one, ok := linkOf(e.b, e.a)
		return ok && e.both && e.b.table == o && one == as
	})
}

// linkOf is the link that an equality makes of two sides; false if it makes none.
func linkOf(to, from side) (Link, bool) {
	if to.table.number < 0 || from.table.number < 0 || to.table.number == from.table.number || to.table.sample != nil {
		return Link{}, false
	}
	at, known := to.table.columnAt[to.column]
	other, otherKnown := from.table.columnAt[from.column]
	return Link{to.table.number, at, from.table.number, other}, known && otherKnown
}
