package facts

import (
	"slices"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

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

// inBlock walks a query, and gives back its block.
func (w *walker) inBlock(command Command, walk func(b *Block)) *Block {
	block, queries, windows, calling := w.block, w.queries, w.windows, w.calling
	for _, call := range calling[max(0, len(calling)-maxCalling):] {
		w.out.Calls[call].Queries = true
	}
	b := &Block{Command: command}
	w.block, w.queries, w.windows, w.calling = b, &b.Queries, nil, nil
	walk(b)
	w.block, w.queries, w.windows, w.calling = block, queries, windows, calling
	return b
}

// selection walks a SELECT, VALUES or set operation; locked says that an outer query locks its rows.
func (w *walker) selection(s *pgquery.SelectStmt, role Role, locked bool) *Block {
	return w.inBlock(Select, func(b *Block) {
		w.with(s.WithClause, b)
		b.Returns = into(s) == nil
		w.windows = s.WindowClause
		if s.Larg != nil || s.Rarg != nil {
			b.Operation = operations[s.Op]
			b.Arms = []*Block{w.arm(s.Larg), w.arm(s.Rarg)}
		} else {
			locks := locking(s.LockingClause)
			locks.all = locks.all || locked
			b.From = w.fromClause(s.FromClause, locks, role)
			w.namedByCalls(s.TargetList)
			b.selects(s)
		}
		b.Sorted, b.Locks = len(s.SortClause) > 0, len(s.LockingClause) > 0
		b.limits(s)
		w.selectRest(s)
	})
}

// limits notes how many rows there can be, and which are left out.
func (b *Block) limits(s *pgquery.SelectStmt) {
	if s.LimitOption == pgquery.LimitOption_LIMIT_OPTION_WITH_TIES {
		b.AtMost = &Operand{}
	} else if !leavesOutNone(s.LimitCount) {
		b.AtMost = new(operandOf(s.LimitCount))
	}
	if !leavesOutNone(s.LimitOffset) {
		b.Skips = new(operandOf(s.LimitOffset))
	}
	b.Limited = b.AtMost != nil || b.Skips != nil
}

// leavesOutNone says whether a LIMIT or OFFSET is not there, or is NULL, as LIMIT ALL is too.
func leavesOutNone(count *pgquery.Node) bool {
	return count == nil || count.GetAConst().GetIsnull()
}

var operations = map[pgquery.SetOperation]SetOperation{
	pgquery.SetOperation_SETOP_UNION: Union, pgquery.SetOperation_SETOP_INTERSECT: Intersect, pgquery.SetOperation_SETOP_EXCEPT: Except,
}

// arm walks a side of a set operation.
func (w *walker) arm(s *pgquery.SelectStmt) *Block {
	if w.level++; w.level > maxLevels || s == nil {
		w.tooDeep = true
		return &Block{}
	}
	defer func() { w.level-- }()
	w.skipped[s] = true
	return w.nested(func() *Block { return w.selection(s, Nested, false) })
}

// selects notes what a SELECT or VALUES says besides its FROM.
func (b *Block) selects(s *pgquery.SelectStmt) {
	b.Where = conditionOf(s.WhereClause)
	b.Output = outputsOf(s.TargetList)
	b.Having = s.HavingClause != nil
	b.Grouped = len(s.GroupClause) > 0
	b.GroupingSets = slices.ContainsFunc(s.GroupClause, func(n *pgquery.Node) bool { return n.GetGroupingSet() != nil })
	b.GroupBy = termsOf(s.GroupClause)
	b.Distinct = len(s.DistinctClause) > 0
	if b.Distinct && content(s.DistinctClause[0]) != nil {
		b.DistinctOn = termsOf(s.DistinctClause)
	}
	for _, row := range s.ValuesLists {
		values := row.GetList().GetItems()
		b.Rows = append(b.Rows, operandsOf(values))
		b.Spread = b.Spread || slices.ContainsFunc(values, isStar)
	}
}

// selectRest walks all of a query but its WITH, its FROM and its arms.
func (w *walker) selectRest(s *pgquery.SelectStmt) {
	w.rest(s, s.WithClause, s.FromClause)
}

// with walks common table expressions and makes their names known. Without RECURSIVE each sees only those before it.
func (w *walker) with(clause *pgquery.WithClause, b *Block) {
	if clause == nil {
		return
	}
	for _, node := range clause.Ctes {
		cte := node.GetCommonTableExpr()
		b.With = append(b.With, &Common{
			Name: cte.GetCtename(), Columns: texts(cte.GetAliascolnames()), Extended: cte.GetSearchClause() != nil || cte.GetCycleClause() != nil,
		})
	}
	if clause.Recursive {
		for _, common := range b.With {
			w.names = &scope{common, w.names}
		}
	}
	for i, node := range clause.Ctes {
		common := b.With[i]
		before := common.References
		var queries []*Block
		w.into(&queries, func() { w.visit(node) })
		if len(queries) == 1 {
			common.Query = queries[0]
		}
		if common.Recursive = common.References > before; common.Recursive {
			w.out.Recursive = append(w.out.Recursive, common)
		}
		if !clause.Recursive {
			w.names = &scope{common, w.names}
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

// insert, update, delete and merge walk a query that writes. Common table expressions never are what is written, whatever their
// names.
func (w *walker) insert(i *pgquery.InsertStmt, role Role) *Block {
	return w.inBlock(Insert, func(b *Block) {
		w.with(i.WithClause, b)
		b.Target = w.target(i.Relation, role)
		b.Columns, b.ValuesAt = columnsOf(i.Cols), -1
		b.Parts = slices.ContainsFunc(i.Cols, hasParts)
		b.Overrides = i.Override == pgquery.OverridingKind_OVERRIDING_USER_VALUE || i.Override == pgquery.OverridingKind_OVERRIDING_SYSTEM_VALUE
		if s := i.SelectStmt.GetSelectStmt(); s != nil {
			b.Inserted = w.nested(func() *Block { return w.selection(s, Nested, false) })
			w.skipped[s] = true
			if len(s.ValuesLists) > 0 {
				b.ValuesAt = w.tokens.valuesAfter(w.out.Tables[b.Target.Table].End)
			}
		}
		if i.OnConflictClause != nil {
			b.Conflict = DoNothing
			if i.OnConflictClause.Action == pgquery.OnConflictAction_ONCONFLICT_UPDATE {
				b.Conflict = DoUpdate
			}
			b.Assigned = assignmentsOf(i.OnConflictClause.TargetList)
		}
		w.returning(b, i.ReturningList)
		w.rest(i, i.WithClause, nil)
	})
}

func (w *walker) update(u *pgquery.UpdateStmt, role Role) *Block {
	return w.inBlock(Update, func(b *Block) {
		w.with(u.WithClause, b)
		b.From = w.fromClause(u.FromClause, locks{}, fromBeside(role))
		b.Target = w.target(u.Relation, role)
		b.Where = conditionOf(u.WhereClause)
		b.Assigned = assignmentsOf(u.TargetList)
		w.returning(b, u.ReturningList)
		w.rest(u, u.WithClause, u.FromClause)
	})
}

func (w *walker) delete(d *pgquery.DeleteStmt, role Role) *Block {
	return w.inBlock(Delete, func(b *Block) {
		w.with(d.WithClause, b)
		b.From = w.fromClause(d.UsingClause, locks{}, fromBeside(role))
		b.Target = w.target(d.Relation, role)
		b.Where = conditionOf(d.WhereClause)
		w.returning(b, d.ReturningList)
		w.rest(d, d.WithClause, d.UsingClause)
	})
}

func (w *walker) merge(m *pgquery.MergeStmt) *Block {
	return w.inBlock(Merge, func(b *Block) {
		w.with(m.WithClause, b)
		b.Target = w.target(m.Relation, Nested)
		b.Merged = &Merged{On: conditionOf(m.JoinCondition), Source: w.fromItem(m.SourceRelation, locks{}, Nested)}
		for _, node := range m.MergeWhenClauses {
			b.Merged.When = append(b.Merged.When, whenOf(node.GetMergeWhenClause()))
		}
		w.returning(b, m.ReturningList)
		w.rest(m, m.WithClause, []*pgquery.Node{m.SourceRelation})
	})
}

var matches = map[pgquery.MergeMatchKind]Match{
	pgquery.MergeMatchKind_MERGE_WHEN_MATCHED: Matched, pgquery.MergeMatchKind_MERGE_WHEN_NOT_MATCHED_BY_TARGET: NotMatchedByTarget,
	pgquery.MergeMatchKind_MERGE_WHEN_NOT_MATCHED_BY_SOURCE: NotMatchedBySource,
}

func whenOf(c *pgquery.MergeWhenClause) When {
	when := When{Match: matches[c.GetMatchKind()], Conditional: c.Condition != nil}
	switch c.GetCommandType() {
	case pgquery.CmdType_CMD_INSERT:
		when.Command = Insert
		when.Columns, when.Values = columnsOf(c.TargetList), termsOf(c.Values)
		when.Parts = slices.ContainsFunc(c.TargetList, hasParts) || slices.ContainsFunc(c.Values, isStar)
	case pgquery.CmdType_CMD_UPDATE:
		when.Command = Update
		when.Assigned = assignmentsOf(c.TargetList)
	case pgquery.CmdType_CMD_DELETE:
		when.Command = Delete
	case pgquery.CmdType_CMD_NOTHING:
	default:
		when.Match = OtherMatch
	}
	return when
}

func fromBeside(role Role) Role {
	if role == Target {
		return From
	}
	return Nested
}

// target writes down the table that is written.
func (w *walker) target(v *pgquery.RangeVar, role Role) *Source {
	i := w.table(v, role)
	w.out.Tables[i].Written = true
	w.skipped[v] = true
	return w.tableSource(v, i)
}

// returning notes the columns of RETURNING and walks what is in them.
func (w *walker) returning(b *Block, list []*pgquery.Node) {
	w.namedByCalls(list)
	b.Output = outputsOf(list)
	b.Returns = len(list) > 0
	w.into(&b.Returned, func() { w.visitAll(list) })
	for _, node := range list {
		w.skipped[node] = true
	}
}

// rest walks what a query has besides its WITH, its FROM and what else was seen to.
func (w *walker) rest(message proto.Message, with *pgquery.WithClause, from []*pgquery.Node) {
	if with != nil {
		w.skipped[with] = true
	}
	for _, item := range from {
		w.skipped[item] = true
	}
	w.fields(message.ProtoReflect())
}

// columnsOf returns the names of columns that are assigned to.
func columnsOf(list []*pgquery.Node) []string {
	var names []string
	for _, node := range list {
		names = append(names, node.GetResTarget().GetName())
	}
	return names
}

// hasParts says whether a part of a column is assigned to.
func hasParts(node *pgquery.Node) bool { return len(node.GetResTarget().GetIndirection()) > 0 }

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
