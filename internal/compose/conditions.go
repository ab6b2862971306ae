package compose

import (
	"slices"
	"strings"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// conditions finds, for every table, conditions that its rows must meet to matter, and that can be asked where the table is. In the final
// statement they are met.
func (s *splitter) conditions() {
	each(s.root, func(m proto.Message) bool {
		if q, isQuery := m.(*pgquery.SelectStmt); isQuery && q.Larg == nil {
			s.conditionsOf(q)
		}
		return true
	})
	s.correlate(s.root, nil)
}

// correlate notes columns that are asked to be equal to those of a query around theirs. The scopes are of the queries around, outer ones first.
func (s *splitter) correlate(root proto.Message, scopes [][]item) {
	each(root, func(m proto.Message) bool {
		q, isQuery := m.(*pgquery.SelectStmt)
		if !isQuery {
			return true
		}
		var items []item
		kept := map[*occurrence]bool{}
		for _, from := range q.FromClause {
			items = append(items, s.items(from)...)
		}
		for _, from := range q.FromClause {
			s.keptTables(from, kept)
		}
		for _, c := range conjuncts(q.WhereClause) {
			s.correlated(c, items, kept, scopes)
		}
		inner := append(slices.Clone(scopes), items)
		q.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
			inner := inner
			switch field.Name() {
			case "with_clause": // which sees nothing of it
				inner = scopes
			case "from_clause": // of which some see their neighbours, whose names come before those around
				inner = nil
			}
			switch {
			case field.Message() == nil:
			case field.IsList():
				for i := range value.List().Len() {
					s.correlate(value.List().Get(i).Message().Interface(), inner)
				}
			default:
				s.correlate(value.Message().Interface(), inner)
			}
			return true
		})
		return false
	})
}

// keptTables are the tables of a FROM clause that no outer join fills with NULLs.
func (s *splitter) keptTables(from *pgquery.Node, kept map[*occurrence]bool) {
	switch n := from.GetNode().(type) {
	case *pgquery.Node_RangeVar:
		if o := s.occurrence(n.RangeVar); o != nil {
			kept[o] = true
		}
	case *pgquery.Node_JoinExpr:
		if t := n.JoinExpr.Jointype; t == pgquery.JoinType_JOIN_INNER || t == pgquery.JoinType_JOIN_LEFT {
			s.keptTables(n.JoinExpr.Larg, kept)
		}
		if t := n.JoinExpr.Jointype; t == pgquery.JoinType_JOIN_INNER || t == pgquery.JoinType_JOIN_RIGHT {
			s.keptTables(n.JoinExpr.Rarg, kept)
		}
	}
}

// correlated notes an equality between a column of these tables and one of a query around.
func (s *splitter) correlated(c *pgquery.Node, items []item, kept map[*occurrence]bool, scopes [][]item) {
	e := c.GetAExpr()
	if !isEquality(c) || len(e.Name) != 1 || !s.q.SteadyOperator("", "=") {
		return
	}
	for _, sides := range [][2]*pgquery.Node{{e.Lexpr, e.Rexpr}, {e.Rexpr, e.Lexpr}} {
		own, other := sides[0].GetColumnRef(), sides[1].GetColumnRef()
		if own == nil || other == nil {
			continue
		}
		o := s.owner(own, items)
		if o == nil || !kept[o] || s.mayBeOf(other, items) {
			continue
		}
		for i := len(scopes) - 1; i >= 0; i-- {
			if outer := s.owner(other, scopes[i]); outer != nil {
				s.equal = append(s.equal, equal{side{o, last(own.Fields)}, side{outer, last(other.Fields)}, false})
				break
			}
			if s.mayBeOf(other, scopes[i]) {
				break
			}
		}
	}
}

// mayBeOf says whether a column may be one of these items.
func (s *splitter) mayBeOf(c *pgquery.ColumnRef, items []item) bool {
	parts, _ := names(c.Fields)
	return slices.ContainsFunc(items, func(i item) bool {
		if len(parts) > 1 {
			return i.name == parts[len(parts)-2]
		}
		return i.table == nil || i.table.renamed || len(parts) == 1 && i.table.has(parts[0])
	})
}

// item is what stands in a FROM clause under one name.
type item struct {
	name string
	// table is nil for what is no table; columns are those of a query, as far as they are known.
	table   *occurrence
	columns []string
}

// conditionsOf looks at one query: conditions of WHERE hold for what the query reads, unless an outer join may fill it with NULLs.
func (s *splitter) conditionsOf(q *pgquery.SelectStmt) {
	var items []item
	for _, from := range q.FromClause {
		items = append(items, s.items(from)...)
	}
	kept := map[*occurrence]bool{} // whose rows are in the query's only as they are
	for _, from := range q.FromClause {
		s.keptBelow(from, items, kept)
	}
	s.query = q
	s.ask(conjuncts(q.WhereClause), items, kept)
	s.joint(conjuncts(q.WhereClause), items, kept)
	s.imply(conjuncts(q.WhereClause), items, kept)
	s.equalities(conjuncts(q.WhereClause), items, kept)
	s.look(conjuncts(q.WhereClause), items)
	for _, from := range q.FromClause {
		s.jointBelow(from, items, kept)
	}
}

// jointBelow notes the conditions of inner joins whose tables are all there as they are.
func (s *splitter) jointBelow(from *pgquery.Node, items []item, kept map[*occurrence]bool) {
	j := from.GetJoinExpr()
	if j == nil || j.Alias != nil {
		return
	}
	s.jointBelow(j.Larg, items, kept)
	s.jointBelow(j.Rarg, items, kept)
	if j.Jointype == pgquery.JoinType_JOIN_INNER {
		s.joint(conjuncts(j.Quals), items, kept)
		s.equalities(conjuncts(j.Quals), items, kept)
	}
}

// joint notes conditions that are about several of these tables.
func (s *splitter) joint(conditions []*pgquery.Node, items []item, of map[*occurrence]bool) {
	for _, c := range conditions {
		var tables []*occurrence
		fits := s.isSteady(c, func(column *pgquery.ColumnRef) bool {
			o := s.owner(column, items)
			if o != nil && !slices.Contains(tables, o) {
				tables = append(tables, o)
			}
			return o != nil && of[o] && !o.renamed && !o.table.Own && !o.table.Stays && o.sample == nil
		})
		switch {
		case fits && len(tables) > 1:
			s.joints = append(s.joints, joint{q: s.query, condition: c, tables: tables})
		case !fits && hasQueries([]*pgquery.Node{c}):
			s.nestedJoint(c, items, of)
		}
	}
}

// nestedJoint notes a condition with queries in it, if what it names of this query are these tables.
func (s *splitter) nestedJoint(c *pgquery.Node, items []item, of map[*occurrence]bool) {
	var tables []*occurrence
	fits := true
	outside := func(column *pgquery.ColumnRef) {
		o := s.owner(column, items)
		fits = fits && o != nil && of[o] && !o.renamed && !o.table.Own && !o.table.Stays && o.sample == nil
		if !slices.Contains(tables, o) {
			tables = append(tables, o)
		}
	}
	each(c, func(m proto.Message) bool {
		switch n := m.(type) {
		case *pgquery.SelectStmt:
			known := s.strangers(n, nil, outside) // first: it may find what does not fit
			fits = fits && known
			return false
		case *pgquery.ColumnRef:
			outside(n)
		}
		return fits
	})
	each(c, func(m proto.Message) bool {
		switch n := m.(type) {
		case *pgquery.FuncCall:
			schema, name := qualified(n.Funcname)
			fits = fits && (name == parentheses || s.q.Steady(schema, name))
		case *pgquery.A_Expr:
			fits = fits && s.steadyOperator(n)
		case *pgquery.RangeVar:
			fits = fits && s.occurrence(n) != nil
		}
		return fits
	})
	if fits && len(tables) > 0 {
		s.joints = append(s.joints, joint{q: s.query, condition: c, tables: tables, nested: true, left: true})
	}
}

// imply gives tables conditions that follow from a choice of others, each of which says something of the table.
func (s *splitter) imply(conditions []*pgquery.Node, items []item, of map[*occurrence]bool) {
	for _, c := range conditions {
		either := c.GetBoolExpr()
		if either == nil || either.Boolop != pgquery.BoolExprType_OR_EXPR {
			continue
		}
		for o := range of {
			if o.renamed || o.table.Own || o.table.Stays || s.subject(c, items) == o {
				continue
			}
			if implied := s.impliedFor(o, either, items); implied != nil {
				o.implied = append(o.implied, implied)
			}
		}
	}
}

// impliedFor is what a choice says of one table; nil if one of the choices says nothing.
func (s *splitter) impliedFor(o *occurrence, either *pgquery.BoolExpr, items []item) *pgquery.Node {
	var choices []*pgquery.Node
	for _, choice := range either.Args {
		var about []*pgquery.Node
		for _, c := range conjuncts(choice) {
			if s.subject(c, items) == o {
				about = append(about, clone(c))
			}
		}
		if len(about) == 0 {
			return nil
		}
		choices = append(choices, allOf(about))
	}
	return pgquery.MakeBoolExprNode(pgquery.BoolExprType_OR_EXPR, choices, -1)
}

// look notes columns of tables by which single rows are looked for: those that are compared with something of a query around this one.
func (s *splitter) look(conditions []*pgquery.Node, items []item) {
	for _, c := range conditions {
		e := c.GetAExpr()
		if !isEquality(c) {
			continue
		}
		for _, sides := range [][2]*pgquery.Node{{e.Lexpr, e.Rexpr}, {e.Rexpr, e.Lexpr}} {
			own, other := sides[0].GetColumnRef(), sides[1].GetColumnRef()
			if own == nil || other == nil {
				continue
			}
			o := s.owner(own, items)
			if o == nil || s.owner(other, items) != nil {
				continue
			}
			if column := last(own.Fields); !slices.Contains(o.indexed, column) {
				o.indexed = append(o.indexed, column)
			}
		}
	}
}

// items lists what a part of a FROM clause shows to the query.
func (s *splitter) items(from *pgquery.Node) []item {
	switch n := from.Node.(type) {
	case *pgquery.Node_RangeVar:
		if o := s.occurrence(n.RangeVar); o != nil && !o.table.Unknown {
			return []item{{name: o.name(), table: o}}
		}
		name := n.RangeVar.Relname
		if n.RangeVar.Alias != nil {
			name = n.RangeVar.Alias.Aliasname
		}
		return []item{{name: name}}
	case *pgquery.Node_RangeTableSample:
		return s.items(n.RangeTableSample.Relation)
	case *pgquery.Node_JoinExpr:
		if n.JoinExpr.Alias != nil {
			return []item{{name: n.JoinExpr.Alias.Aliasname}}
		}
		items := append(s.items(n.JoinExpr.Larg), s.items(n.JoinExpr.Rarg)...)
		if using := n.JoinExpr.JoinUsingAlias; using != nil {
			items = append(items, item{name: using.Aliasname})
		}
		return items
	case *pgquery.Node_RangeSubselect:
		return []item{{name: n.RangeSubselect.GetAlias().GetAliasname(), columns: outputNames(n.RangeSubselect)}}
	default: // a function, or what nobody thought of: it may have any columns
		return []item{{}}
	}
}

// outputNames are the columns of a query in FROM that are surely there.
func outputNames(r *pgquery.RangeSubselect) []string {
	if found, _ := names(r.GetAlias().GetColnames()); len(found) > 0 {
		return found
	}
	q := r.Subquery.GetSelectStmt()
	for q.GetLarg() != nil {
		q = q.Larg
	}
	var found []string
	for _, t := range q.GetTargetList() {
		if !isStar(t) {
			found = append(found, outputName(t.GetResTarget()))
		}
	}
	return found
}

// keptBelow notes the tables in a part of a FROM clause that no outer join fills with NULLs, and asks what conditions of joins ask for.
func (s *splitter) keptBelow(from *pgquery.Node, items []item, kept map[*occurrence]bool) {
	switch n := from.Node.(type) {
	case *pgquery.Node_RangeVar:
		if o := s.occurrence(n.RangeVar); o != nil {
			kept[o] = true
		}
	case *pgquery.Node_RangeTableSample:
		s.keptBelow(n.RangeTableSample.Relation, items, kept)
	case *pgquery.Node_JoinExpr:
		s.keptByJoin(n.JoinExpr, items, kept)
	}
}

func (s *splitter) keptByJoin(j *pgquery.JoinExpr, items []item, kept map[*occurrence]bool) {
	if j.Alias != nil { // names inside of it are hidden
		return
	}
	left, right := map[*occurrence]bool{}, map[*occurrence]bool{}
	s.keptBelow(j.Larg, items, left)
	s.keptBelow(j.Rarg, items, right)
	on := conjuncts(j.Quals)
	switch j.Jointype {
	case pgquery.JoinType_JOIN_INNER:
		add(kept, left)
		add(kept, right)
		both := map[*occurrence]bool{}
		add(both, left)
		add(both, right)
		s.ask(on, items, both)
	case pgquery.JoinType_JOIN_LEFT:
		add(kept, left)
		s.ask(on, items, right) // a row that does not meet it has no partner
	case pgquery.JoinType_JOIN_RIGHT:
		add(kept, right)
		s.ask(on, items, left)
	default: // FULL: all rows of both sides matter
	}
}

func add(to, from map[*occurrence]bool) {
	for o := range from {
		to[o] = true
	}
}

// ask gives every condition that is about one of these tables alone to that table.
func (s *splitter) ask(conditions []*pgquery.Node, items []item, of map[*occurrence]bool) {
	for _, c := range conditions {
		if o := s.subject(c, items); o != nil && of[o] && !o.renamed && !o.table.Own && !o.table.Stays {
			o.conditions = append(o.conditions, c)
		}
	}
}

// subject returns the only table that a condition is about; nil if there is none, or the condition cannot be asked where that is.
func (s *splitter) subject(condition *pgquery.Node, items []item) *occurrence {
	var subject *occurrence
	fits := s.isSteady(condition, func(c *pgquery.ColumnRef) bool {
		o := s.owner(c, items)
		fits := o != nil && (subject == nil || subject == o)
		subject = o
		return fits
	})
	if !fits {
		return nil
	}
	return subject
}

// subjectless says whether an expression has the same value for the same row each time.
func (s *splitter) subjectless(n *pgquery.Node) bool {
	return s.isSteady(n, func(*pgquery.ColumnRef) bool { return true })
}

// isSteady says whether an expression is made of what gives the same answer each time, and of columns that fit.
func (s *splitter) isSteady(n *pgquery.Node, fitting func(*pgquery.ColumnRef) bool) bool {
	fits := true
	each(n, func(m proto.Message) bool {
		switch n := m.(type) {
		case *pgquery.Node, *pgquery.String, *pgquery.A_Const, *pgquery.Integer, *pgquery.Float, *pgquery.Boolean, *pgquery.ParamRef, *pgquery.BoolExpr, *pgquery.NullTest, *pgquery.BooleanTest,
			*pgquery.List, *pgquery.A_ArrayExpr, *pgquery.CaseExpr, *pgquery.CaseWhen, *pgquery.CoalesceExpr, *pgquery.MinMaxExpr, *pgquery.TypeCast, *pgquery.RowExpr,
			*pgquery.CollateClause:
		case *pgquery.TypeName:
			_, name := qualified(n.Names)
			fits = fits && !strings.HasPrefix(name, "reg") // numbers of the same thing differ from server to server
			return false
		case *pgquery.A_Expr:
			fits = fits && s.steadyOperator(n)
		case *pgquery.FuncCall:
			fits = fits && s.steadyCall(n)
		case *pgquery.ColumnRef:
			fits = fits && fitting(n)
			return false
		default:
			fits = false
		}
		return fits
	})
	return fits
}

func (s *splitter) steadyOperator(e *pgquery.A_Expr) bool {
	switch e.Kind {
	case pgquery.A_Expr_Kind_AEXPR_BETWEEN, pgquery.A_Expr_Kind_AEXPR_BETWEEN_SYM:
		return s.q.SteadyOperator("", ">=") && s.q.SteadyOperator("", "<=")
	case pgquery.A_Expr_Kind_AEXPR_NOT_BETWEEN, pgquery.A_Expr_Kind_AEXPR_NOT_BETWEEN_SYM:
		return s.q.SteadyOperator("", "<") && s.q.SteadyOperator("", ">")
	default:
	}
	parts, _ := names(e.Name)
	switch len(parts) {
	case 0:
		return true
	case 1:
		return s.q.SteadyOperator("", parts[0])
	default:
		return s.q.SteadyOperator(parts[len(parts)-2], parts[len(parts)-1])
	}
}

func (s *splitter) steadyCall(f *pgquery.FuncCall) bool {
	if f.AggStar || f.AggFilter != nil || f.Over != nil || len(f.AggOrder) > 0 || f.AggDistinct {
		return false
	}
	schema, name := qualified(f.Funcname)
	return name == parentheses || s.q.Steady(schema, name)
}

// qualified takes a list of names apart: schema and name.
func qualified(nodes []*pgquery.Node) (schema, name string) {
	parts, _ := names(nodes)
	switch len(parts) {
	case 0:
		return "", ""
	case 1:
		return "", parts[0]
	default:
		return parts[len(parts)-2], parts[len(parts)-1]
	}
}

// owner returns the table that a column surely belongs to; nil if that is not sure.
func (s *splitter) owner(c *pgquery.ColumnRef, items []item) *occurrence {
	parts, star := names(c.Fields)
	if star || len(parts) == 0 || len(parts) > 2 {
		return nil
	}
	column := parts[len(parts)-1]
	var found *occurrence
	for _, i := range items {
		if len(parts) == 2 {
			if i.name != parts[0] {
				continue
			}
			if i.table == nil || found != nil || !i.table.has(column) {
				return nil
			}
			found = i.table
			continue
		}
		if i.table == nil || i.table.renamed || i.name == column { // it may have such a column, or the row of a table is meant
			return nil
		}
		if i.table.has(column) {
			if found != nil {
				return nil
			}
			found = i.table
		}
	}
	return found
}
