package compose

import (
	"slices"
	"strconv"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

// Kind is how a composition ends.
type Kind uint8

// The kinds of compositions.
const (
	// Reads: the final statement is a query, which any server can run that has what was pulled.
	Reads Kind = iota
	// Broadcast: the final statement writes, and runs wherever the table is that it writes to. What was pulled is given to all of these shards.
	Broadcast
	// Copied: the final statement writes to one copy of a table, and returns the rows that it has written behind what the client asked for; other
	// copies get these rows.
	Copied
	// Routed: the final statement inserts what the only pull gives, which is any query. Each row goes to the shard that owns it.
	Routed
)

// Target is the table that a statement writes to.
type Target struct {
	// Columns are its columns in order, Keys those that say on which shard a row is; none if it is not sharded.
	Columns, Keys []string
	// Copied: every shard has a copy of it. Moves: rows get other keys.
	Copied, Moves bool
	// Generated are columns that nobody may set.
	Generated []string
}

// Written says what becomes of other copies of a table of which one was written to.
type Written struct {
	Command Command
	// Conflicts: rows that are inserted may be there already, in other forms.
	Conflicts bool
	// Assigned are the columns that an UPDATE sets, or ON CONFLICT DO UPDATE.
	Assigned []string
}

// Command is what a statement does to rows.
type Command uint8

// The commands.
const (
	Insert Command = iota
	Update
	Delete
)

// write takes a statement apart that writes.
func (s *splitter) write() error {
	if _, merges := s.root.GetNode().(*pgquery.Node_MergeStmt); s.q.Target != nil && s.q.Target.Copied && !merges {
		return s.writeCopy()
	}
	switch n := s.root.GetNode().(type) {
	case *pgquery.Node_InsertStmt:
		return s.insert(n.InsertStmt)
	case *pgquery.Node_UpdateStmt:
		u := n.UpdateStmt
		if s.q.Target.Moves {
			return s.move(u)
		}
		return s.change(u.Relation, u.FromClause, u.WhereClause, u.ReturningList)
	case *pgquery.Node_DeleteStmt:
		d := n.DeleteStmt
		return s.change(d.Relation, d.UsingClause, d.WhereClause, d.ReturningList)
	case *pgquery.Node_MergeStmt:
		return s.merge(n.MergeStmt)
	default:
		return ErrForm
	}
}

// insert: the query is one of its own, and what it gives is inserted.
func (s *splitter) insert(insert *pgquery.InsertStmt) error {
	query := insert.SelectStmt.GetSelectStmt()
	if query == nil || s.q.Target == nil || leavesOut(query) {
		return ErrForm
	}
	if len(s.out.Pulls) > 0 { // of what common table expressions have written
		if len(s.q.Target.Keys) > 0 {
			return ErrForm
		}
		return s.change(insert.Relation, nil, nil, insert.ReturningList)
	}
	around := slices.Concat(insert.ReturningList, []*pgquery.Node{{Node: &pgquery.Node_OnConflictClause{OnConflictClause: insert.OnConflictClause}}})
	if insert.OnConflictClause == nil {
		around = insert.ReturningList
	}
	if hasQueries(around) {
		return ErrForm
	}
	asQuery(query)
	if insert.WithClause != nil {
		if query.WithClause != nil {
			return ErrForm
		}
		query.WithClause, insert.WithClause = insert.WithClause, nil
	}
	if len(s.q.Target.Columns) == 0 {
		return s.insertUnknown(query)
	}
	columns := s.q.Target.Columns
	if len(insert.Cols) > 0 {
		columns = nil
		for _, c := range insert.Cols {
			if len(c.GetResTarget().GetIndirection()) > 0 {
				return ErrForm
			}
			columns = append(columns, c.GetResTarget().GetName())
		}
	}
	for _, key := range s.q.Target.Keys {
		at := slices.Index(columns, key)
		if at < 0 {
			return ErrForm
		}
		s.out.KeyColumns = append(s.out.KeyColumns, at)
	}
	s.castLiterals(query, columns)
	sql, err := write(asNode(query))
	if err != nil {
		return err
	}
	s.out.Kind, s.out.Inserted, s.out.Written.Conflicts = Routed, columns, insert.OnConflictClause != nil
	if len(s.q.Target.Keys) == 0 {
		s.out.Kind = Broadcast
	}
	s.out.Pulls = []Pull{{SQL: sql, Numbered: true, Any: true, Why: "the query is run first, and its rows are inserted where they belong"}}
	insert.Cols = []*pgquery.Node{{Node: &pgquery.Node_ResTarget{ResTarget: &pgquery.ResTarget{Name: insertedMark, Location: -1}}}}
	insert.SelectStmt = asNode(&pgquery.SelectStmt{
		TargetList: []*pgquery.Node{outputNode(columnNode(visibleMark(0)), "")}, FromClause: fromPull(0),
		LimitOption: pgquery.LimitOption_LIMIT_OPTION_DEFAULT, Op: pgquery.SetOperation_SETOP_NONE,
	})
	s.order = nil
	return nil
}

// asQuery makes VALUES of one row, and nothing else, a query without FROM, as PostgreSQL does: a function in it may return a set.
func asQuery(query *pgquery.SelectStmt) {
	if len(query.ValuesLists) != 1 || query.WithClause != nil || len(query.SortClause)+len(query.LockingClause) > 0 || query.LimitCount != nil || query.LimitOffset != nil {
		return
	}
	for _, value := range query.ValuesLists[0].GetList().GetItems() {
		query.TargetList = append(query.TargetList, outputNode(value, ""))
	}
	query.ValuesLists = nil
}

// insertUnknown is insert into a table whose columns nobody knows, such as a temporary one: nothing may depend on their types.
func (s *splitter) insertUnknown(query *pgquery.SelectStmt) error {
	bare := false
	s.eachOutput(query, func(n *pgquery.Node, _ int) *pgquery.Node {
		bare = bare || isBare(n)
		return n
	})
	if bare {
		return ErrForm
	}
	s.out.Kind = Broadcast
	if err := s.anyPull(query); err != nil {
		return err
	}
	s.order = nil
	return nil
}

// move is for an UPDATE that gives rows other keys: they are deleted where they are, and inserted where they belong.
func (s *splitter) move(u *pgquery.UpdateStmt) error {
	if leavesOut(&pgquery.SelectStmt{TargetList: u.TargetList}) || len(u.ReturningList) > 0 && len(u.FromClause) > 0 || hasQueries(u.ReturningList) || len(s.out.Pulls) > 0 {
		return ErrForm
	}
	assigned := map[string]*pgquery.Node{}
	for _, n := range u.TargetList {
		t := n.GetResTarget()
		if t == nil || len(t.Indirection) > 0 || t.Val.GetMultiAssignRef() != nil {
			return ErrForm
		}
		assigned[t.Name] = t.Val
	}
	gone := &pgquery.DeleteStmt{Relation: u.Relation, UsingClause: u.FromClause, WhereClause: u.WhereClause, WithClause: u.WithClause}
	var columns []string
	for i, name := range s.q.Target.Columns {
		if slices.Contains(s.q.Target.Generated, name) {
			continue
		}
		value := columnNode(nameOf(u.Relation), name)
		if set := assigned[name]; set != nil {
			if value = set; isBare(set) {
				value = castToMark(set, targetMark(i))
			}
		}
		columns = append(columns, name)
		gone.ReturningList = append(gone.ReturningList, outputNode(value, ""))
	}
	for _, key := range s.q.Target.Keys {
		s.out.KeyColumns = append(s.out.KeyColumns, slices.Index(columns, key))
	}
	sql, err := write(clone(&pgquery.Node{Node: &pgquery.Node_DeleteStmt{DeleteStmt: gone}}))
	if err != nil {
		return err
	}
	s.out.Kind, s.out.Inserted, s.out.Moves, s.out.Written.Assigned = Routed, columns, true, assignedIn(u.TargetList)
	s.out.Pulls = []Pull{{SQL: sql, Numbered: true, Any: true, Writes: true, Why: "rows get other keys: they are taken from where they are, and inserted where they belong"}}
	s.root.Node = &pgquery.Node_InsertStmt{InsertStmt: &pgquery.InsertStmt{
		Relation: u.Relation, Cols: []*pgquery.Node{{Node: &pgquery.Node_ResTarget{ResTarget: &pgquery.ResTarget{Name: insertedMark, Location: -1}}}},
		SelectStmt: asNode(&pgquery.SelectStmt{
			TargetList: []*pgquery.Node{outputNode(columnNode(visibleMark(0)), "")}, FromClause: fromPull(0),
			LimitOption: pgquery.LimitOption_LIMIT_OPTION_DEFAULT, Op: pgquery.SetOperation_SETOP_NONE,
		}),
		ReturningList: u.ReturningList, Override: pgquery.OverridingKind_OVERRIDING_SYSTEM_VALUE,
	}}
	s.order = nil
	return nil
}

// leavesOut says whether a value is left to its default, which only an INSERT can do.
func leavesOut(query *pgquery.SelectStmt) bool {
	found := false
	each(query, func(m proto.Message) bool {
		_, is := m.(*pgquery.SetToDefault)
		found = found || is
		return !found
	})
	return found
}

// castLiterals gives literals and parameters the types of the columns that they are for: an INSERT reads them so.
func (s *splitter) castLiterals(query *pgquery.SelectStmt, columns []string) {
	cast := func(n *pgquery.Node, column int) *pgquery.Node {
		if column >= len(columns) || !isBare(n) {
			return n
		}
		return castToMark(n, targetMark(slices.Index(s.q.Target.Columns, columns[column])))
	}
	s.eachOutput(query, cast)
}

// eachOutput puts other expressions into the place of those whose types are what they are inserted into.
func (s *splitter) eachOutput(query *pgquery.SelectStmt, other func(n *pgquery.Node, column int) *pgquery.Node) {
	for _, row := range query.ValuesLists {
		items := row.GetList().GetItems()
		for i := range items {
			items[i] = other(items[i], i)
		}
	}
	if query.Larg != nil || hasStars(query.TargetList) || len(query.DistinctClause) > 0 {
		return
	}
	groups := leavesOf(query.GroupClause)
	for i, t := range query.TargetList {
		output := t.GetResTarget()
		if slices.ContainsFunc(groups, func(n *pgquery.Node) bool { return s.standsFor(n, i, output) }) { // it becomes a text there
			continue
		}
		output.Val = other(output.Val, i)
	}
}

// standsFor says whether a term of GROUP BY may stand for an output.
func (s *splitter) standsFor(n *pgquery.Node, at int, output *pgquery.ResTarget) bool {
	if n.GetAConst() != nil {
		return s.ordinal(n) == at+1
	}
	name := singleName(n)
	return name != "" && name == outputName(output) || spelled(n) == spelled(output.Val)
}

// isBare says whether an expression is nothing but a string, a parameter or NULL, whose type is what it is used for.
func isBare(n *pgquery.Node) bool {
	if n.GetParamRef() != nil {
		return true
	}
	c := n.GetAConst()
	return c != nil && (c.Isnull || c.GetSval() != nil)
}

func castToMark(n *pgquery.Node, to string) *pgquery.Node {
	name := &pgquery.TypeName{Names: []*pgquery.Node{text(to)}, Typemod: -1, Location: -1}
	return &pgquery.Node{Node: &pgquery.Node_TypeCast{TypeCast: &pgquery.TypeCast{Arg: n, TypeName: name, Location: -1}}}
}

// insertedMark stands for the columns that are inserted, targetMark for the type of one of the table's.
const insertedMark = mark + "I0" + mark

func targetMark(column int) string { return mark + "C" + strconv.Itoa(column) + mark }

// change is for statements that change rows of a table by those of others: the others are pulled.
func (s *splitter) change(target *pgquery.RangeVar, from []*pgquery.Node, where *pgquery.Node, returning []*pgquery.Node) error {
	s.out.Kind = Broadcast
	if err := s.anyPulls(content(s.root)); err != nil {
		return err
	}
	s.needs()
	s.wholeOfReturned(returning, from)
	s.conditions()
	s.joints = nil
	items := []item{{name: nameOf(target), table: s.occurrence(target)}}
	for _, f := range from {
		items = append(items, s.items(f)...)
	}
	kept := map[*occurrence]bool{}
	for _, f := range from {
		s.keptBelow(f, items, kept)
	}
	s.ask(conjuncts(where), items, kept)
	return s.pulls()
}

// merge is change for MERGE. Rows that it inserts would have to be sent where they belong.
func (s *splitter) merge(m *pgquery.MergeStmt) error {
	for _, n := range m.MergeWhenClauses {
		if n.GetMergeWhenClause().GetMatchKind() == pgquery.MergeMatchKind_MERGE_WHEN_NOT_MATCHED_BY_SOURCE { // rows that no row of the source goes to
			return ErrForm
		}
	}
	for _, n := range m.MergeWhenClauses {
		if n.GetMergeWhenClause().GetCommandType() == pgquery.CmdType_CMD_INSERT && s.q.Target != nil && len(s.q.Target.Keys) > 0 {
			return s.mergeRouted(m)
		}
	}
	s.out.Kind = Broadcast
	if err := s.anyPulls(m); err != nil {
		return err
	}
	s.needs()
	s.conditions()
	s.joints = nil
	for _, r := range m.ReturningList {
		if _, star := names(r.GetResTarget().GetVal().GetColumnRef().GetFields()); star {
			s.wholeBelow(m.SourceRelation)
		}
	}
	return s.pulls()
}

// mergeRouted is merge where rows are inserted: each row of the source goes to the shard of the key that it is matched by, and is inserted under.
func (s *splitter) mergeRouted(m *pgquery.MergeStmt) error {
	if len(s.out.Pulls) > 0 || hasQueries([]*pgquery.Node{m.JoinCondition}) || hasQueries(m.MergeWhenClauses) || hasQueries(m.ReturningList) || m.WithClause != nil {
		return ErrForm
	}
	source, columns := s.mergeSource(m.SourceRelation)
	if source == nil {
		return ErrForm
	}
	for _, key := range s.q.Target.Keys {
		column := s.matchedBy(m, key, columns)
		if column == "" || !insertsUnder(m, key, column) {
			return ErrForm
		}
		s.out.KeyColumns = append(s.out.KeyColumns, slices.Index(columns, column))
	}
	sql, err := write(clone(source))
	if err != nil {
		return err
	}
	s.out.Kind = Routed
	s.out.Pulls = []Pull{{SQL: sql, Any: true, Why: "rows of the source go where the rows are that they are matched with"}}
	alias := &pgquery.Alias{Aliasname: sourceAlias(m.SourceRelation), Colnames: m.SourceRelation.GetRangeSubselect().GetAlias().GetColnames()}
	m.SourceRelation = fromPull(0)[0]
	m.SourceRelation.GetRangeVar().Alias = alias
	s.order = nil
	return nil
}

// mergeSource is a query for all rows of a source, with the names of its columns; nil if these are not known.
func (s *splitter) mergeSource(n *pgquery.Node) (*pgquery.Node, []string) {
	if v := n.GetRangeVar(); v != nil {
		o := s.occurrence(v)
		if o == nil || o.table.Unknown || v.Alias != nil && len(v.Alias.Colnames) > 0 {
			return nil, nil
		}
		q := &pgquery.SelectStmt{FromClause: []*pgquery.Node{n}, LimitOption: pgquery.LimitOption_LIMIT_OPTION_DEFAULT, Op: pgquery.SetOperation_SETOP_NONE}
		for _, c := range o.table.Columns {
			q.TargetList = append(q.TargetList, outputNode(columnNode(o.name(), c), ""))
		}
		return asNode(q), o.table.Columns
	}
	r := n.GetRangeSubselect()
	if r == nil || hasStars(r.Subquery.GetSelectStmt().GetTargetList()) {
		return nil, nil
	}
	return r.Subquery, outputNames(r)
}

func sourceAlias(n *pgquery.Node) string {
	if v := n.GetRangeVar(); v != nil {
		return nameOf(v)
	}
	return n.GetRangeSubselect().GetAlias().GetAliasname()
}

// matchedBy is the column of the source that the ON condition asks to be equal to a key column; empty if there is none.
func (s *splitter) matchedBy(m *pgquery.MergeStmt, key string, columns []string) string {
	target, source := nameOf(m.Relation), sourceAlias(m.SourceRelation)
	is := func(n *pgquery.Node, table string) string {
		parts, star := names(n.GetColumnRef().GetFields())
		if star || len(parts) != 2 || parts[0] != table {
			return ""
		}
		return parts[1]
	}
	for _, c := range conjuncts(m.JoinCondition) {
		e := c.GetAExpr()
		if !isEquality(c) || !s.q.SteadyOperator("", "=") {
			continue
		}
		for _, sides := range [][2]*pgquery.Node{{e.Lexpr, e.Rexpr}, {e.Rexpr, e.Lexpr}} {
			if column := is(sides[1], source); is(sides[0], target) == key && slices.Contains(columns, column) {
				return column
			}
		}
	}
	return ""
}

// insertsUnder says whether all rows that are inserted get a column of the source as that key column.
func insertsUnder(m *pgquery.MergeStmt, key, column string) bool {
	for _, n := range m.MergeWhenClauses {
		w := n.GetMergeWhenClause()
		if w.CommandType != pgquery.CmdType_CMD_INSERT {
			continue
		}
		at := slices.IndexFunc(w.TargetList, func(t *pgquery.Node) bool { return t.GetResTarget().GetName() == key })
		if at < 0 || at >= len(w.Values) {
			return false
		}
		parts, _ := names(w.Values[at].GetColumnRef().GetFields())
		if len(parts) == 0 || parts[len(parts)-1] != column || len(parts) == 2 && parts[0] != sourceAlias(m.SourceRelation) {
			return false
		}
	}
	return true
}

// writeCopy has one copy of a table written to, and the rows that were written returned.
func (s *splitter) writeCopy() error {
	s.out.Kind = Copied
	var target *pgquery.RangeVar
	var returning *[]*pgquery.Node
	switch n := s.root.GetNode().(type) {
	case *pgquery.Node_InsertStmt:
		target, returning = n.InsertStmt.Relation, &n.InsertStmt.ReturningList
		s.out.Written = Written{Command: Insert, Conflicts: n.InsertStmt.OnConflictClause != nil, Assigned: assignedIn(n.InsertStmt.GetOnConflictClause().GetTargetList())}
		columns := s.q.Target.Columns
		if len(n.InsertStmt.Cols) > 0 {
			columns = nil
			for _, c := range n.InsertStmt.Cols {
				columns = append(columns, c.GetResTarget().GetName())
			}
		}
		if query := n.InsertStmt.SelectStmt.GetSelectStmt(); query != nil && len(query.ValuesLists) == 0 {
			s.castLiterals(query, columns)
		}
	case *pgquery.Node_UpdateStmt:
		target, returning = n.UpdateStmt.Relation, &n.UpdateStmt.ReturningList
		s.out.Written.Command = Update
		s.out.Written.Assigned = assignedIn(n.UpdateStmt.TargetList)
		s.wholeOfReturned(n.UpdateStmt.ReturningList, n.UpdateStmt.FromClause)
	case *pgquery.Node_DeleteStmt:
		target, returning = n.DeleteStmt.Relation, &n.DeleteStmt.ReturningList
		s.out.Written.Command = Delete
		s.wholeOfReturned(n.DeleteStmt.ReturningList, n.DeleteStmt.UsingClause)
	default:
		return ErrForm
	}
	if err := s.anyPulls(content(s.root)); err != nil {
		return err
	}
	s.needs()
	*returning = append(*returning, outputNode(pgquery.MakeColumnRefNode([]*pgquery.Node{text(nameOf(target)), pgquery.MakeAStarNode()}, -1), ""))
	return s.pulls()
}

// wholeOfReturned marks the tables of a FROM clause if all of their columns are returned.
func (s *splitter) wholeOfReturned(returning, from []*pgquery.Node) {
	for _, r := range returning {
		if parts, star := names(r.GetResTarget().GetVal().GetColumnRef().GetFields()); star && len(parts) == 0 {
			for _, f := range from {
				s.wholeBelow(f)
			}
		}
	}
}

// assignedIn are the columns that are set.
func assignedIn(targets []*pgquery.Node) []string {
	var columns []string
	for _, t := range targets {
		columns = append(columns, t.GetResTarget().GetName())
	}
	return columns
}

// nameOf is what a table is called.
func nameOf(v *pgquery.RangeVar) string {
	if v.Alias != nil {
		return v.Alias.Aliasname
	}
	return v.Relname
}
