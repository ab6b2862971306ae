package facts

import (
	"slices"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// topSelect reads the outermost query of a statement.
func (w *walker) topSelect(s *pgquery.SelectStmt) {
	q := &Query{Command: Select, SetOperation: isSetOperation(s), Returns: into(s) == nil}
	w.out.Query = q
	for _, call := range onlyCalls(s) {
		w.places[call] = place{where: Alone}
	}
	w.with(s.WithClause)
	if q.SetOperation {
		w.selectRest(s)
		return
	}
	visible := w.fromClause(s.FromClause, locking(s.LockingClause), From)
	w.conditions(s.WhereClause, visible)
	w.selectRest(s)
}

func isSetOperation(s *pgquery.SelectStmt) bool {
	return s.Larg != nil || s.Rarg != nil
}

// onlyCalls returns the columns of a query that has calls as its columns and nothing else; none if it is another one.
func onlyCalls(s *pgquery.SelectStmt) []*pgquery.FuncCall {
	bare := true
	s.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		switch field.Name() {
		case "target_list", "limit_option", "op": // the grammar fills in the others of these even if there is neither
		default:
			bare = false
		}
		return bare
	})
	if !bare {
		return nil
	}
	calls := make([]*pgquery.FuncCall, len(s.TargetList))
	for i, column := range s.TargetList {
		if calls[i] = column.GetResTarget().GetVal().GetFuncCall(); calls[i] == nil {
			return nil
		}
	}
	return calls
}

// into returns what SELECT INTO makes, nil if it is none. In a set operation the first arm says it.
func into(s *pgquery.SelectStmt) *pgquery.IntoClause {
	for s.Larg != nil {
		s = s.Larg
	}
	return s.IntoClause
}

// nestedSelect walks a query inside of another; locked says that the outer one locks its rows.
func (w *walker) nestedSelect(s *pgquery.SelectStmt, locked bool) {
	w.nested(func() {
		w.with(s.WithClause)
		locks := locking(s.LockingClause)
		locks.all = locks.all || locked
		w.fromClause(s.FromClause, locks, Nested)
		w.selectRest(s)
	})
}

// selectRest walks all of a query but its WITH and FROM.
func (w *walker) selectRest(s *pgquery.SelectStmt) {
	if s.WithClause != nil {
		w.skipped[s.WithClause] = true
	}
	for _, item := range s.FromClause {
		w.skipped[item] = true
	}
	w.fields(s.ProtoReflect())
}

// with walks common table expressions and makes their names known. Without RECURSIVE each sees only those before it.
func (w *walker) with(clause *pgquery.WithClause) {
	if clause == nil {
		return
	}
	if clause.Recursive {
		for _, cte := range clause.Ctes {
			w.names = &scope{cte.GetCommonTableExpr().GetCtename(), w.names}
		}
	}
	for _, cte := range clause.Ctes {
		w.visit(cte)
		if !clause.Recursive {
			w.names = &scope{cte.GetCommonTableExpr().GetCtename(), w.names}
		}
	}
}

// locks says which relations of a FROM clause FOR UPDATE and its like lock.
type locks struct {
	all   bool
	names []string
}

func locking(clauses []*pgquery.Node) locks {
	var l locks
	for _, clause := range clauses {
		named := clause.GetLockingClause().GetLockedRels()
		l.all = l.all || len(named) == 0
		for _, v := range named {
			l.names = append(l.names, v.GetRangeVar().GetRelname())
		}
	}
	return l
}

func (l locks) reach(name string) bool {
	return l.all || slices.Contains(l.names, name)
}

// fromClause walks FROM and returns the tables whose columns can be seen from WHERE.
func (w *walker) fromClause(items []*pgquery.Node, l locks, role Role) []int {
	var visible []int
	for _, item := range items {
		visible = append(visible, w.fromItem(item, l, role)...)
	}
	return visible
}

func (w *walker) fromItem(item *pgquery.Node, l locks, role Role) []int {
	if w.level++; w.level > maxLevels {
		w.tooDeep = true
	}
	defer func() { w.level-- }()
	switch f := content(item).(type) {
	case *pgquery.RangeVar:
		return w.fromTable(f, l, role)
	case *pgquery.RangeTableSample:
		w.visitAll(f.Args)
		w.visit(f.Repeatable)
		sampled := w.fromItem(f.Relation, l, role)
		for _, i := range sampled {
			w.out.Tables[i].Sampled = true
		}
		return sampled
	case *pgquery.JoinExpr:
		return w.join(f, l, role)
	case *pgquery.RangeSubselect:
		if s := f.Subquery.GetSelectStmt(); s != nil {
			w.nestedSelect(s, l.reach(f.GetAlias().GetAliasname()))
			return nil
		}
	}
	w.visit(item)
	return nil
}

func (w *walker) fromTable(v *pgquery.RangeVar, l locks, role Role) []int {
	w.roles[v] = role
	i := w.relation(v)
	if i < 0 {
		return nil
	}
	name := v.Relname
	if v.Alias != nil {
		name = v.Alias.Aliasname
	}
	w.out.Tables[i].Locked = l.reach(name)
	return []int{i}
}

// join walks a join and returns the tables that can be seen from outside. Its condition counts for a table if rows of that
// table which do not meet it are nowhere in the result: for both sides of an inner join, for the side that an outer join fills
// up with NULL, for none of a full join.
func (w *walker) join(j *pgquery.JoinExpr, l locks, role Role) []int {
	left := w.fromItem(j.Larg, l, role)
	right := w.fromItem(j.Rarg, l, role)
	if j.IsNatural || len(j.UsingClause) > 0 {
		w.equals()
	}
	if role == From {
		w.joinFacts(j, left, right)
	}
	w.visit(j.Quals)
	if j.Alias != nil {
		return nil // it hides the names of what it joins
	}
	return append(left, right...)
}

func (w *walker) joinFacts(j *pgquery.JoinExpr, left, right []int) {
	q := w.out.Query
	q.Natural = q.Natural || j.IsNatural
	q.Merged = append(q.Merged, texts(j.UsingClause)...)
	switch j.Jointype {
	case pgquery.JoinType_JOIN_INNER:
		w.conditions(j.Quals, slices.Concat(left, right))
	case pgquery.JoinType_JOIN_LEFT:
		w.conditions(j.Quals, right)
	case pgquery.JoinType_JOIN_RIGHT:
		w.conditions(j.Quals, left)
	default:
	}
}

// conditions writes down the equalities that AND joins.
func (w *walker) conditions(node *pgquery.Node, tables []int) {
	if len(tables) == 0 {
		return
	}
	switch c := content(node).(type) {
	case *pgquery.BoolExpr:
		if c.Boolop == pgquery.BoolExprType_AND_EXPR {
			for _, part := range c.Args {
				w.conditions(part, tables)
			}
		}
	case *pgquery.A_Expr:
		w.comparison(c, tables)
	}
}

func (w *walker) comparison(c *pgquery.A_Expr, tables []int) {
	schema, operator := qualified(c.Name)
	if operator != "=" || len(c.Name) > 2 || schema != "" && schema != "pg_catalog" {
		return
	}
	builtin := schema != ""
	switch c.Kind {
	case pgquery.A_Expr_Kind_AEXPR_OP:
		w.equality(c.Lexpr, c.Rexpr, builtin, tables)
	case pgquery.A_Expr_Kind_AEXPR_IN:
		if items := c.Rexpr.GetList().GetItems(); len(items) == 1 {
			w.equality(c.Lexpr, items[0], builtin, tables)
		}
	default:
	}
}

// equality writes down that a column equals a value, whichever stands on the left; rows are compared column by column.
func (w *walker) equality(left, right *pgquery.Node, builtin bool, tables []int) {
	if left == nil || right == nil {
		return
	}
	if l, r := left.GetRowExpr(), right.GetRowExpr(); l != nil && r != nil {
		if len(l.Args) == len(r.Args) {
			for i := range l.Args {
				w.equality(l.Args[i], r.Args[i], builtin, tables)
			}
		}
		return
	}
	if left.GetColumnRef() == nil {
		left, right = right, left
	}
	column := left.GetColumnRef()
	if column == nil {
		return
	}
	name := texts(column.Fields)
	value := operandOf(right)
	if len(name) != len(column.Fields) || value.Kind == Expression || value.Kind == Default {
		return
	}
	w.out.Query.Conditions = append(w.out.Query.Conditions, Condition{Column: name, Builtin: builtin, Value: value, Tables: tables})
}

// topUpdate, topDelete and topInsert read the outermost query of a statement that writes.
func (w *walker) topUpdate(u *pgquery.UpdateStmt) {
	w.out.Query = &Query{Command: Update, Returns: len(u.ReturningList) > 0, Assigned: targets(u.TargetList)}
	visible := w.update(u, Target)
	w.conditions(u.WhereClause, visible)
}

func (w *walker) topDelete(d *pgquery.DeleteStmt) {
	w.out.Query = &Query{Command: Delete, Returns: len(d.ReturningList) > 0}
	visible := w.delete(d, Target)
	w.conditions(d.WhereClause, visible)
}

func (w *walker) topInsert(i *pgquery.InsertStmt) {
	q := &Query{Command: Insert, Returns: len(i.ReturningList) > 0, Inserted: insertedBy(i)}
	if i.OnConflictClause != nil {
		q.Assigned = targets(i.OnConflictClause.TargetList)
	}
	w.out.Query = q
	w.insert(i, Target)
}

// update walks an UPDATE and returns the tables that WHERE sees. Common table expressions never are what is written, whatever
// their names.
func (w *walker) update(u *pgquery.UpdateStmt, role Role) []int {
	w.with(u.WithClause)
	visible := w.fromClause(u.FromClause, locks{}, fromBeside(role))
	visible = append(visible, w.target(u.Relation, role))
	w.rest(u, u.WithClause, u.FromClause)
	return visible
}

func (w *walker) delete(d *pgquery.DeleteStmt, role Role) []int {
	w.with(d.WithClause)
	visible := w.fromClause(d.UsingClause, locks{}, fromBeside(role))
	visible = append(visible, w.target(d.Relation, role))
	w.rest(d, d.WithClause, d.UsingClause)
	return visible
}

func (w *walker) insert(i *pgquery.InsertStmt, role Role) {
	w.with(i.WithClause)
	w.target(i.Relation, role)
	w.rest(i, i.WithClause, nil)
}

func (w *walker) merge(m *pgquery.MergeStmt) {
	w.with(m.WithClause)
	w.target(m.Relation, Nested)
	w.rest(m, m.WithClause, nil)
}

func fromBeside(role Role) Role {
	if role == Target {
		return From
	}
	return Nested
}

// target writes down the table that is written.
func (w *walker) target(v *pgquery.RangeVar, role Role) int {
	i := w.table(v, role)
	w.out.Tables[i].Written = true
	w.skipped[v] = true
	return i
}

// rest walks what a query that writes has besides its WITH, its FROM and its target.
func (w *walker) rest(message proto.Message, with *pgquery.WithClause, from []*pgquery.Node) {
	if with != nil {
		w.skipped[with] = true
	}
	for _, item := range from {
		w.skipped[item] = true
	}
	w.fields(message.ProtoReflect())
}

// targets returns the names of columns that are assigned to.
func targets(list []*pgquery.Node) []string {
	var names []string
	for _, node := range list {
		names = append(names, node.GetResTarget().GetName())
	}
	return names
}

// insertedBy says what is inserted.
func insertedBy(i *pgquery.InsertStmt) Inserted {
	inserted := Inserted{Columns: targets(i.Cols), Defaults: i.SelectStmt == nil}
	inserted.Parts = slices.ContainsFunc(i.Cols, func(n *pgquery.Node) bool { return len(n.GetResTarget().GetIndirection()) > 0 })
	values := i.SelectStmt.GetSelectStmt()
	if values == nil || len(values.SortClause) > 0 || values.LimitCount != nil || values.LimitOffset != nil || len(values.LockingClause) > 0 {
		return inserted
	}
	inserted.Rows = len(values.ValuesLists)
	if inserted.Rows == 1 {
		for _, value := range values.ValuesLists[0].GetList().GetItems() {
			inserted.Values = append(inserted.Values, operandOf(value))
			inserted.Parts = inserted.Parts || isStar(value)
		}
	}
	return inserted
}

// isStar says whether a value stands for several, as (row).* does.
func isStar(node *pgquery.Node) bool {
	var path []*pgquery.Node
	switch n := content(node).(type) {
	case *pgquery.ColumnRef:
		path = n.Fields
	case *pgquery.A_Indirection:
		path = n.Indirection
	}
	return slices.ContainsFunc(path, func(n *pgquery.Node) bool { return n.GetAStar() != nil })
}
