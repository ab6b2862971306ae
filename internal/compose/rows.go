package compose

import (
	"slices"
	"strconv"

	pgquery "github.com/pganalyze/pg_query_go/v6"
)

// Merge says that the rows of the only pull can be brought into their order by whoever pulls them, if the order of the keys' types is known there.
type Merge struct {
	// Keys are the first columns of the pull, which are not shown.
	Keys []Key
	// Limit and Offset are nil if there is none. Ties: rows that are equal to the last one in the order are given too.
	Limit, Offset *Count
	Ties          bool
}

// Key is one term of an order.
type Key struct{ Descending, NullsFirst bool }

// Count is a number of rows: a literal of the text, or a parameter, which has a number from 1 on.
type Count struct {
	Literal  int
	Param    int
	Negative bool
}

// sortKey is one term of ORDER BY: the expression, or an output.
type sortKey struct {
	by     *pgquery.Node
	output int // -1: none
	sort   *pgquery.SortBy
}

// rows rewrites a block whose rows are put in order, made distinct and cut off, and no more.
func (b *block) rows() bool {
	if b.q.WithClause != nil && hasQueries([]*pgquery.Node{b.q.LimitCount, b.q.LimitOffset}) {
		return false // they may name what goes to the shards
	}
	b.expandStars()
	keys, ok := b.sortKeys()
	if !ok {
		return false
	}
	switch {
	case len(b.q.DistinctClause) == 0:
		return b.plainRows(keys)
	case isDistinctOn(b.q):
		return b.columns()
	default:
		return b.distinctRows(keys)
	}
}

// isDistinctOn says whether DISTINCT names expressions.
func isDistinctOn(q *pgquery.SelectStmt) bool {
	return len(q.DistinctClause) > 0 && q.DistinctClause[0].GetNode() != nil
}

// sortKeys finds out what the terms of ORDER BY mean.
func (b *block) sortKeys() ([]sortKey, bool) {
	keys := make([]sortKey, 0, len(b.q.SortClause))
	for _, n := range b.q.SortClause {
		sort := n.GetSortBy()
		if sort == nil || sort.SortbyDir == pgquery.SortByDir_SORTBY_USING {
			return nil, false
		}
		k := sortKey{by: sort.Node, output: -1, sort: sort}
		var ok bool
		if k.output, ok = b.output(sort.Node); !ok {
			return nil, false
		}
		if k.output >= 0 {
			k.by = b.q.TargetList[k.output].GetResTarget().GetVal()
		}
		keys = append(keys, k)
	}
	return keys, true
}

// output returns which output a term of ORDER BY means, by its number or its name; -1 if it is an expression.
func (b *block) output(n *pgquery.Node) (output int, ok bool) {
	if n.GetAConst() != nil {
		at := b.s.ordinal(n)
		if at < 1 || at > len(b.q.TargetList) || hasStars(b.q.TargetList) {
			return 0, false
		}
		return at - 1, true
	}
	name := singleName(n)
	if name == "" {
		return -1, true
	}
	for i, t := range b.q.TargetList {
		if !isStar(t) && outputName(t.GetResTarget()) == name {
			return i, true
		}
	}
	return -1, true
}

// steady says whether an expression has the same value each time it is computed for a row.
func (b *block) steady(n *pgquery.Node) bool {
	return b.s.subjectless(n)
}

// plainRows: every shard gives its rows in order, with what they are ordered by before them.
func (b *block) plainRows(keys []sortKey) bool {
	var outputs []*pgquery.Node
	for i, k := range keys {
		if k.output >= 0 && !b.steady(k.by) {
			return false // what is shown would be another value than what the rows are ordered by
		}
		outputs = append(outputs, outputNode(clone(k.by), "cleave_key_"+strconv.Itoa(i)))
	}
	for _, t := range b.q.TargetList {
		outputs = append(outputs, clone(t))
	}
	core := b.core(outputs)
	if len(b.q.LockingClause) > 0 {
		if b.q.LimitCount != nil || b.q.LimitOffset != nil { // every shard would lock as many
			return false
		}
		core.LockingClause = b.q.LockingClause
	}
	worker := clone(core)
	worker.SortClause = ordinals(keys)
	merge, cuts := b.limits(worker)
	made := func(q *pgquery.SelectStmt) *pgquery.SelectStmt { return q }
	if shown, all := b.shownKeys(keys); cuts && all {
		made = func(q *pgquery.SelectStmt) *pgquery.SelectStmt { return keysOfFew(q, keys, shown) }
	}
	number, ok := b.pullAs(core, worker, made, b.whyRows(cuts))
	if !ok {
		return false
	}
	b.s.locked = b.s.locked || len(core.LockingClause) > 0
	b.s.out.Pulls[number].Hidden = len(keys)
	b.collated(number, core.TargetList)
	final := &pgquery.SelectStmt{
		TargetList: []*pgquery.Node{outputNode(columnNode(visibleMark(number)), "")}, FromClause: fromPull(number), LimitCount: b.q.LimitCount, LimitOffset: b.q.LimitOffset,
		LimitOption: b.q.LimitOption, Op: pgquery.SetOperation_SETOP_NONE,
	}
	for i, k := range keys {
		final.SortClause = append(final.SortClause, sortNode(pulledColumn(i), k.sort))
	}
	if merge != nil {
		for _, k := range keys {
			merge.Keys = append(merge.Keys, keyOf(k.sort))
		}
		if b.q == b.s.root.GetSelectStmt() {
			b.s.out.Merge = merge
		}
	}
	b.become(final)
	return true
}

// shownKeys returns which outputs the rows are ordered by, if they are ordered by outputs, and all outputs are columns.
func (b *block) shownKeys(keys []sortKey) (shown []int, all bool) {
	for _, k := range keys {
		at := k.output
		if at < 0 {
			at = b.spelledOutput(k.by)
		}
		if at < 0 {
			return nil, false
		}
		shown = append(shown, at)
	}
	return shown, len(keys) > 0 && !slices.ContainsFunc(b.q.TargetList, func(t *pgquery.Node) bool {
		return isStar(t) || t.GetResTarget().GetVal().GetColumnRef() == nil
	})
}

// keysOfFew has a query that begins with the keys of its rows compute these for the rows alone that it gives: a server would compute them for all that it sorts, and so
// make a new row of each, where it can sort the rows of a table as they are.
func keysOfFew(q *pgquery.SelectStmt, keys []sortKey, shown []int) *pgquery.SelectStmt {
	const alias = "cleave_rows"
	few := clone(q)
	few.TargetList = few.TargetList[len(keys):]
	for i, s := range few.SortClause {
		s.GetSortBy().Node = pgquery.MakeAConstIntNode(int64(shown[i]+1), -1)
	}
	var columns, outputs []*pgquery.Node
	for i := range few.TargetList {
		columns = append(columns, text(columnName(i)))
	}
	for i, at := range shown {
		outputs = append(outputs, outputNode(columnNode(alias, columnName(at)), outputName(q.TargetList[i].GetResTarget())))
	}
	for i, t := range few.TargetList {
		outputs = append(outputs, outputNode(columnNode(alias, columnName(i)), outputName(t.GetResTarget())))
	}
	return &pgquery.SelectStmt{
		TargetList: outputs, FromClause: []*pgquery.Node{{Node: &pgquery.Node_RangeSubselect{RangeSubselect: &pgquery.RangeSubselect{
			Subquery: asNode(few), Alias: &pgquery.Alias{Aliasname: alias, Colnames: columns},
		}}}}, SortClause: ordinals(keys), LimitOption: pgquery.LimitOption_LIMIT_OPTION_DEFAULT, Op: pgquery.SetOperation_SETOP_NONE,
	}
}

// whyRows is why the rows of a block can be computed by every shard alone.
func (b *block) whyRows(cuts bool) string {
	why := "each row is made of one shard's rows"
	if len(b.q.SortClause) > 0 {
		why += "; every shard sorts its own, and they are merged"
	}
	if cuts {
		why += "; the first rows of all are among the first of each"
	}
	return why
}

// distinctRows: every shard gives each of its rows once.
func (b *block) distinctRows(keys []sortKey) bool {
	for i := range keys {
		if keys[i].output < 0 {
			keys[i].output = b.spelledOutput(keys[i].by)
		}
		if keys[i].output < 0 {
			return false
		}
	}
	core := b.core(b.q.TargetList)
	worker := clone(core)
	worker.DistinctClause = []*pgquery.Node{{}}
	for _, k := range keys {
		worker.SortClause = append(worker.SortClause, sortNode(pgquery.MakeAConstIntNode(int64(k.output+1), -1), k.sort))
	}
	_, cuts := b.limits(worker)
	number, ok := b.pull(core, worker, "each row is made of one shard's rows; every shard leaves out what it has twice, and what several have is left out after that"+map[bool]string{true: "; the first rows of all are among the first of each"}[cuts])
	if !ok {
		return false
	}
	b.collated(number, core.TargetList)
	final := &pgquery.SelectStmt{
		DistinctClause: []*pgquery.Node{{}}, TargetList: []*pgquery.Node{outputNode(columnNode(visibleMark(number)), "")}, FromClause: fromPull(number),
		LimitCount: b.q.LimitCount, LimitOffset: b.q.LimitOffset, LimitOption: b.q.LimitOption, Op: pgquery.SetOperation_SETOP_NONE,
	}
	for _, k := range keys {
		final.SortClause = append(final.SortClause, sortNode(pgquery.MakeAConstIntNode(int64(k.output+1), -1), k.sort))
	}
	b.become(final)
	return true
}

// collated notes the outputs of a pull that name a collation.
func (b *block) collated(number int, outputs []*pgquery.Node) {
	if hasStars(outputs) { // nobody knows which columns they are
		return
	}
	for i, o := range outputs {
		if collationIn(o) != nil {
			b.s.out.Pulls[number].Collated = append(b.s.out.Pulls[number].Collated, i)
		}
	}
}

// spelledOutput finds the output that is spelled like an expression; -1 if none is.
func (b *block) spelledOutput(n *pgquery.Node) int {
	want := spelled(n)
	for i, t := range b.q.TargetList {
		if !isStar(t) && want != "" && spelled(t.GetResTarget().GetVal()) == want {
			return i
		}
	}
	return -1
}

// become makes the block another query.
func (b *block) become(final *pgquery.SelectStmt) {
	q := b.q
	q.DistinctClause, q.TargetList, q.FromClause, q.WhereClause, q.GroupClause, q.GroupDistinct = final.DistinctClause, final.TargetList, final.FromClause, nil, final.GroupClause, final.GroupDistinct
	q.HavingClause, q.WindowClause, q.SortClause, q.WithClause = final.HavingClause, final.WindowClause, final.SortClause, nil
	q.LimitCount, q.LimitOffset, q.LimitOption = final.LimitCount, final.LimitOffset, final.LimitOption
	q.LockingClause = nil
}

// ordinals orders by the first outputs.
func ordinals(keys []sortKey) []*pgquery.Node {
	var sorts []*pgquery.Node
	for i, k := range keys {
		sorts = append(sorts, sortNode(pgquery.MakeAConstIntNode(int64(i+1), -1), k.sort))
	}
	return sorts
}

func sortNode(by *pgquery.Node, like *pgquery.SortBy) *pgquery.Node {
	return pgquery.MakeSortByNode(by, like.SortbyDir, like.SortbyNulls, -1)
}

func keyOf(s *pgquery.SortBy) Key {
	k := Key{Descending: s.SortbyDir == pgquery.SortByDir_SORTBY_DESC}
	switch s.SortbyNulls {
	case pgquery.SortByNulls_SORTBY_NULLS_FIRST:
		k.NullsFirst = true
	case pgquery.SortByNulls_SORTBY_NULLS_LAST:
	default:
		k.NullsFirst = k.Descending
	}
	return k
}

// halfOfAll is a number of rows that no table has, and that can be added to another without going beyond what a number can be.
const halfOfAll = "4611686018427387903"

// limits cuts off what a shard need not give, and says how many rows the client gets; nil if that cannot be told from the statement. Cuts: something is cut off.
func (b *block) limits(worker *pgquery.SelectStmt) (merge *Merge, cuts bool) {
	limit, limitKnown := b.count(b.q.LimitCount)
	offset, offsetKnown := b.count(b.q.LimitOffset)
	if !limitKnown || !offsetKnown {
		return nil, false
	}
	merge = &Merge{Limit: limit, Offset: offset, Ties: b.q.LimitOption == pgquery.LimitOption_LIMIT_OPTION_WITH_TIES}
	if limit == nil {
		return merge, false
	}
	worker.LimitOption = b.q.LimitOption
	if offset == nil {
		worker.LimitCount = clone(b.q.LimitCount)
		return merge, true
	}
	both := []*pgquery.Node{castNode(clone(b.q.LimitCount), "int8", -1), castNode(clone(b.q.LimitOffset), "int8", -1)}
	var small, atLeast []*pgquery.Node
	for _, n := range both {
		most := &pgquery.Node{Node: &pgquery.Node_AConst{AConst: &pgquery.A_Const{Val: &pgquery.A_Const_Fval{Fval: &pgquery.Float{Fval: halfOfAll}}, Location: -1}}}
		small = append(small, operatorNode("<=", n, most))
		atLeast = append(atLeast, &pgquery.Node{Node: &pgquery.Node_MinMaxExpr{MinMaxExpr: &pgquery.MinMaxExpr{
			Op: pgquery.MinMaxOp_IS_GREATEST, Args: []*pgquery.Node{clone(n), pgquery.MakeAConstIntNode(0, -1)}, Location: -1,
		}}})
	}
	worker.LimitCount = pgquery.MakeCaseExprNode(nil, []*pgquery.Node{pgquery.MakeCaseWhenNode(allOf(small), operatorNode("+", atLeast[0], atLeast[1]), -1)}, -1)
	worker.LimitOption = b.q.LimitOption
	return merge, true
}

// operatorNode applies one of PostgreSQL's own operators.
func operatorNode(operator string, left, right *pgquery.Node) *pgquery.Node {
	return pgquery.MakeAExprNode(pgquery.A_Expr_Kind_AEXPR_OP, []*pgquery.Node{text("pg_catalog"), text(operator)}, left, right, -1)
}

// count is a number of rows that is a literal or a parameter; nil for none, or ALL. Known: it is one of these.
func (b *block) count(n *pgquery.Node) (count *Count, known bool) {
	switch {
	case n == nil:
		return nil, true
	case n.GetParamRef() != nil:
		return &Count{Literal: -1, Param: int(n.GetParamRef().Number)}, true
	case n.GetAConst() == nil:
		return nil, false
	case n.GetAConst().Isnull:
		return nil, true
	}
	if n.GetAConst().GetIval() != nil && isGiven(b.s.q.Given, int(n.GetAConst().Location)) { // it is no literal of the client's, who gets these rows from a query around them
		return &Count{Literal: -1}, true
	}
	f, isMarked := n.GetAConst().Val.(*pgquery.A_Const_Fval)
	if !isMarked {
		return nil, false
	}
	m := marked.FindStringSubmatch(f.Fval.Fval)
	if m == nil {
		return nil, false
	}
	number, err := strconv.Atoi(m[6])
	return &Count{Literal: number, Negative: m[5] == "N"}, err == nil
}

// expandStars writes out the columns of tables that a star stands for, if these are known.
func (b *block) expandStars() {
	if !hasStars(b.q.TargetList) {
		return
	}
	var items []item
	for _, from := range b.q.FromClause {
		if from.GetJoinExpr() != nil && joinsByName(from) {
			return
		}
		items = append(items, b.s.items(from)...)
	}
	var expanded []*pgquery.Node
	for _, t := range b.q.TargetList {
		parts, star := names(t.GetResTarget().GetVal().GetColumnRef().GetFields())
		if !star {
			if isStar(t) {
				return
			}
			expanded = append(expanded, t)
			continue
		}
		if len(parts) > 1 {
			return
		}
		found := false
		for _, i := range items {
			if len(parts) == 1 && i.name != parts[0] {
				continue
			}
			if i.table == nil || i.table.renamed || i.name == "" {
				return
			}
			found = true
			for _, c := range i.table.table.Columns {
				expanded = append(expanded, outputNode(columnNode(i.name, c), ""))
			}
		}
		if !found {
			return
		}
	}
	if len(expanded) > 0 {
		b.q.TargetList = expanded
	}
}

// joinsByName says whether a join merges columns of the same name, or hides its tables' names.
func joinsByName(n *pgquery.Node) bool {
	j := n.GetJoinExpr()
	return j != nil && (j.IsNatural || len(j.UsingClause) > 0 || j.Alias != nil || joinsByName(j.Larg) || joinsByName(j.Rarg))
}
