package compose

import (
	"slices"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

// grouping is the rewriting of a block with groups: what a shard gives, and what becomes of the block's expressions.
type grouping struct {
	b      *block
	number int // of the pull
	// outputs are the worker's columns; known are their numbers by how they are spelled. keys are those that the worker groups by.
	outputs []*pgquery.Node
	known   map[string]int
	keys    []*pgquery.Node
	// unlike are columns that must not be of certain types.
	unlike []Unlike
	// plain: the block is grouped by columns alone, so others that it names are decided by those. more are such.
	plain  bool
	more   []*pgquery.Node
	failed bool
}

// Unlike says that a composition is right only if a column of a pull is of none of these types.
type Unlike struct {
	Pull, Column int
	Types        []uint32
}

// groups rewrites a block whose aggregates can be computed from those of each shard's rows.
func (b *block) groups() bool {
	if hasQueries(b.afterWhere()) || isDistinctOn(b.q) || hasStars(b.q.TargetList) {
		return false
	}
	q, ok := b.spelledOut()
	if !ok {
		return false
	}
	g := &grouping{b: b, number: len(b.s.out.Pulls), known: map[string]int{}, plain: true}
	sets := slices.ContainsFunc(q.GroupClause, func(n *pgquery.Node) bool { return n.GetGroupingSet() != nil })
	if sets && g.hasBare(q.GroupClause) { // outputs that are the same constant may be no group's
		return false
	}
	g.leaves(q.GroupClause, func(n *pgquery.Node) *pgquery.Node {
		g.plain = g.plain && n.GetColumnRef() != nil
		return g.key(n)
	})
	q.TargetList = g.rewriteAll(q.TargetList)
	q.HavingClause = g.rewrite(q.HavingClause)
	q.WindowClause = g.rewriteAll(q.WindowClause)
	g.sorts(q)
	if g.failed || sets && len(g.more) > 0 {
		return false
	}
	q.GroupClause = append(q.GroupClause, g.more...)
	core := b.core([]*pgquery.Node{outputNode(pgquery.MakeAConstIntNode(1, -1), "")})
	worker := b.core(g.outputs)
	worker.GroupClause = g.keys
	if len(g.keys) == 0 && len(g.outputs) == 0 {
		return false
	}
	if _, ok := b.pull(core, worker, g.why()); !ok {
		return false
	}
	b.s.out.Unlike = append(b.s.out.Unlike, g.unlike...)
	q.FromClause = fromPull(g.number)
	b.become(q)
	return true
}

func (g *grouping) why() string {
	if len(g.keys) == 0 {
		return "each row is one shard's; every shard aggregates its own, and the results are aggregated again"
	}
	return "each row is one shard's; every shard makes groups of its own, and groups of several shards are brought together"
}

// spelledOut is the query in a form to be taken apart: GROUP BY has no numbers and names of outputs, every output has a name, and every column its table.
func (b *block) spelledOut() (*pgquery.SelectStmt, bool) {
	q := clone(b.q)
	if !b.writeOutGroups(q) {
		return nil, false
	}
	nameOutputs(q)
	b.qualify(q)
	return q, !b.groupsAlike(q)
}

// groupsAlike says whether grouping sets have terms for two outputs which are the same expression, once they are written out: PostgreSQL keeps the outputs apart.
func (b *block) groupsAlike(writtenOut *pgquery.SelectStmt) bool {
	if !slices.ContainsFunc(b.q.GroupClause, func(n *pgquery.Node) bool { return n.GetGroupingSet() != nil }) {
		return false
	}
	before, leaves := leavesOf(b.q.GroupClause), leavesOf(writtenOut.GroupClause)
	terms, alike := map[string]string{}, len(before) != len(leaves)
	for i, n := range leaves {
		if alike {
			break
		}
		term, after := spelled(before[i]), b.s.value(n)
		other, found := terms[after]
		alike = alike || found && other != term
		terms[after] = term
	}
	return alike
}

// leavesOf are the terms of GROUP BY, those in grouping sets too.
func leavesOf(nodes []*pgquery.Node) []*pgquery.Node {
	var found []*pgquery.Node
	(&grouping{}).leaves(nodes, func(n *pgquery.Node) *pgquery.Node {
		found = append(found, n)
		return n
	})
	return found
}

// writeOutGroups replaces numbers and names of outputs in GROUP BY by what they stand for.
func (b *block) writeOutGroups(q *pgquery.SelectStmt) bool {
	ok := true
	g := &grouping{b: b}
	g.leaves(q.GroupClause, func(n *pgquery.Node) *pgquery.Node {
		written, fine := b.writtenOut(n, q)
		ok = ok && fine
		return written
	})
	return ok
}

// writtenOut is what a term of GROUP BY stands for.
func (b *block) writtenOut(n *pgquery.Node, q *pgquery.SelectStmt) (*pgquery.Node, bool) {
	if n.GetAConst() != nil {
		at := b.s.ordinal(n)
		if at < 1 || at > len(q.TargetList) {
			return n, false
		}
		return clone(q.TargetList[at-1].GetResTarget().GetVal()), true
	}
	name := singleName(n)
	if name == "" {
		return n, true
	}
	for _, t := range q.TargetList {
		if t.GetResTarget().GetName() != name || singleName(t.GetResTarget().GetVal()) == name {
			continue
		}
		isInput, known := b.isInput(name)
		switch {
		case !known:
			return n, false
		case !isInput:
			return clone(t.GetResTarget().GetVal()), true
		}
	}
	return n, true
}

// isInput says whether a name is that of a column that the block reads, if that is known.
func (b *block) isInput(name string) (isInput, known bool) {
	for _, from := range b.q.FromClause {
		for _, i := range b.s.items(from) {
			if i.table == nil || i.table.renamed {
				return false, false
			}
			if i.table.has(name) {
				return true, true
			}
		}
	}
	return false, true
}

// qualify writes the table before columns that have none, where it is known, so that the same column is spelled alike everywhere. Names of outputs stay.
func (b *block) qualify(q *pgquery.SelectStmt) {
	var items []item
	for _, from := range b.q.FromClause {
		items = append(items, b.s.items(from)...)
	}
	one := func(n *pgquery.Node) {
		each(n, func(m proto.Message) bool {
			c, isColumn := m.(*pgquery.ColumnRef)
			if !isColumn || len(c.Fields) != 1 || c.Fields[0].GetString_() == nil {
				return true
			}
			if o := b.s.owner(c, items); o != nil {
				c.Fields = []*pgquery.Node{text(o.name()), c.Fields[0]}
			} else if len(items) == 1 && items[0].table == nil && items[0].name != "" && items[0].name != c.Fields[0].GetString_().Sval {
				c.Fields = []*pgquery.Node{text(items[0].name), c.Fields[0]}
			}
			return true
		})
	}
	isOutput := func(name string) bool {
		return name != "" && slices.ContainsFunc(q.TargetList, func(t *pgquery.Node) bool { return t.GetResTarget().GetName() == name })
	}
	for _, n := range slices.Concat(q.TargetList, q.GroupClause, []*pgquery.Node{q.HavingClause}, q.WindowClause) {
		one(n)
	}
	for _, n := range slices.Concat(q.SortClause, q.DistinctClause) {
		if by := n.GetSortBy().GetNode(); by != nil && isOutput(singleName(by)) || isOutput(singleName(n)) {
			continue
		}
		one(n)
	}
}

// nameOutputs gives all outputs the names that they have: their expressions are about to change.
func nameOutputs(q *pgquery.SelectStmt) {
	for _, t := range q.TargetList {
		if r := t.GetResTarget(); r != nil {
			r.Name = outputName(r)
		}
	}
}

// leaves replaces the terms of GROUP BY, also those of grouping sets.
func (g *grouping) leaves(nodes []*pgquery.Node, by func(*pgquery.Node) *pgquery.Node) {
	for i, n := range nodes {
		switch {
		case n.GetGroupingSet() != nil:
			g.leaves(n.GetGroupingSet().Content, by)
		case n.GetRowExpr() != nil && n.GetRowExpr().RowFormat == pgquery.CoercionForm_COERCE_IMPLICIT_CAST:
			g.leaves(n.GetRowExpr().Args, by)
		default:
			nodes[i] = by(n)
		}
	}
}

// hasBare says whether one of the leaves is a constant or a parameter, which would be something else in GROUP BY.
func (g *grouping) hasBare(nodes []*pgquery.Node) bool {
	found := false
	g.leaves(nodes, func(n *pgquery.Node) *pgquery.Node {
		found = found || isConstant(n)
		return n
	})
	return found
}

// column is the number of the worker's output for an expression.
func (g *grouping) column(n *pgquery.Node) int {
	name := g.b.s.value(n)
	if name == "" {
		g.failed = true
		return 0
	}
	if known, found := g.known[name]; found {
		g.sameValue(n, known)
		return known
	}
	number := len(g.outputs)
	g.known[name] = number
	g.outputs = append(g.outputs, outputNode(n, columnName(number)))
	return number
}

// sameValue notes that an expression is taken for the same as a worker's output because the literals in both are equal.
func (g *grouping) sameValue(n *pgquery.Node, output int) {
	other := g.outputs[output].GetResTarget().GetVal()
	if spelled(n) != spelled(other) {
		g.b.s.shapedByAll(n)
		g.b.s.shapedByAll(other)
	}
}

// key has the worker group by an expression, and returns what stands for it.
func (g *grouping) key(n *pgquery.Node) *pgquery.Node {
	if !g.b.steady(n) {
		g.failed = true
		return n
	}
	before := len(g.outputs)
	number := g.column(clone(n))
	if number == before { // it is new
		g.keys = append(g.keys, pgquery.MakeAConstIntNode(int64(number+1), -1))
	}
	if collationIn(n) != nil && n.GetCollateClause() == nil { // whether it counts is not clear
		g.failed = true
	}
	return collatedLike(pulledColumn(number), n)
}

// collatedLike names the collation that an expression names.
func collatedLike(column, n *pgquery.Node) *pgquery.Node {
	c := n.GetCollateClause()
	if c == nil {
		return column
	}
	return &pgquery.Node{Node: &pgquery.Node_CollateClause{CollateClause: &pgquery.CollateClause{Arg: column, Collname: clone(c).Collname, Location: -1}}}
}

// sorts rewrites ORDER BY: numbers and names of outputs stay as they are.
func (g *grouping) sorts(q *pgquery.SelectStmt) {
	for _, n := range q.SortClause {
		sort := n.GetSortBy()
		if sort == nil {
			g.failed = true
			return
		}
		if sort.Node.GetAConst() != nil || g.isOutput(q, singleName(sort.Node)) {
			continue
		}
		sort.Node = g.rewrite(sort.Node)
	}
}

func (g *grouping) isOutput(q *pgquery.SelectStmt, name string) bool {
	return name != "" && slices.ContainsFunc(q.TargetList, func(t *pgquery.Node) bool { return t.GetResTarget().GetName() == name })
}

func (g *grouping) rewriteAll(nodes []*pgquery.Node) []*pgquery.Node {
	for i := range nodes {
		nodes[i] = g.rewrite(nodes[i])
	}
	return nodes
}

// rewrite turns an expression over the block's rows into one over the pull's: what is grouped by becomes a column, an aggregate is computed from
// partial ones, and so on inwards.
func (g *grouping) rewrite(n *pgquery.Node) *pgquery.Node {
	if n == nil || n.GetNode() == nil || g.failed {
		return n
	}
	if _, isTarget := n.GetNode().(*pgquery.Node_ResTarget); !isTarget && n.GetAConst() == nil && n.GetParamRef() == nil && n.GetString_() == nil && n.GetList() == nil && n.GetWindowDef() == nil && n.GetSortBy() == nil {
		if number, found := g.known[g.b.s.value(n)]; found && g.isKey(number) {
			g.sameValue(n, number)
			return collatedLike(pulledColumn(number), n)
		}
	}
	switch e := n.GetNode().(type) {
	case *pgquery.Node_ColumnRef:
		return g.decided(n)
	case *pgquery.Node_FuncCall:
		if g.b.isAggregate(e.FuncCall) {
			return g.aggregate(e.FuncCall)
		}
	case *pgquery.Node_GroupingFunc:
		e.GroupingFunc.Args = g.rewriteAll(e.GroupingFunc.Args)
		return n
	case *pgquery.Node_JsonObjectAgg, *pgquery.Node_JsonArrayAgg:
		g.failed = true
		return n
	}
	g.inside(n)
	return n
}

// decided is for a column that is not grouped by, because those that are decide it: the primary key is among them. Where expressions are
// grouped by, it may also be a part of one that is spelled in another way.
func (g *grouping) decided(n *pgquery.Node) *pgquery.Node {
	if !g.plain {
		g.failed = true
		return n
	}
	column := g.key(n)
	g.more = append(g.more, clone(column))
	return column
}

// isKey says whether the worker groups by an output.
func (g *grouping) isKey(number int) bool {
	return slices.ContainsFunc(g.keys, func(k *pgquery.Node) bool { return int(k.GetAConst().GetIval().GetIval()) == number+1 })
}

// inside rewrites the expressions in another one.
func (g *grouping) inside(n *pgquery.Node) {
	replaceNodes(n, g.rewrite)
}

// replaceNodes replaces the nodes directly below one.
func replaceNodes(n *pgquery.Node, by func(*pgquery.Node) *pgquery.Node) {
	first := true
	each(n, func(m proto.Message) bool {
		node, isNode := m.(*pgquery.Node)
		if !isNode {
			return true
		}
		if first { // n itself
			first = false
			return true
		}
		if replaced := by(node); replaced != node {
			node.Node = replaced.Node
		}
		return false
	})
}

// again are the aggregates that are computed from partial ones by themselves.
var again = []string{"min", "max", "bool_and", "bool_or", "every", "bit_and", "bit_or", "bit_xor"}

// realOID is PostgreSQL's number of the type real, whose average is that of numbers of double precision.
const realOID = 700

// aggregate computes an aggregate from partial ones.
func (g *grouping) aggregate(f *pgquery.FuncCall) *pgquery.Node {
	schema, name := qualified(f.Funcname)
	whole := &pgquery.Node{Node: &pgquery.Node_FuncCall{FuncCall: f}}
	switch {
	case !g.b.s.q.Builtin(schema, name) || f.AggWithinGroup || f.FuncVariadic || f.Over != nil || !g.isSteadyCall(f):
	case f.AggDistinct:
		return g.distinct(f)
	case len(f.AggOrder) > 0 && name != "count" && !slices.Contains(again, name):
	case name == "count":
		sum := callNode("sum", pulledColumn(g.column(clone(whole))))
		none := &pgquery.Node{Node: &pgquery.Node_CoalesceExpr{CoalesceExpr: &pgquery.CoalesceExpr{Args: []*pgquery.Node{sum, pgquery.MakeAConstIntNode(0, -1)}, Location: -1}}}
		return castNode(none, "int8", -1)
	case name == "sum" && len(f.Args) == 1:
		number := g.column(clone(whole))
		return castToType(callNode("sum", pulledColumn(number)), g.number, number)
	case name == "avg" && len(f.Args) == 1:
		sum, count := clone(f), clone(f)
		sum.Funcname, count.Funcname = []*pgquery.Node{text("pg_catalog"), text("sum")}, []*pgquery.Node{text("pg_catalog"), text("count")}
		total := g.column(&pgquery.Node{Node: &pgquery.Node_FuncCall{FuncCall: sum}})
		rows := g.column(&pgquery.Node{Node: &pgquery.Node_FuncCall{FuncCall: count}})
		g.unlike = append(g.unlike, Unlike{Pull: g.number, Column: total, Types: []uint32{realOID}})
		// The average's own sum begins at 0, which makes 0 of -0.
		fromZero := operatorNode("+", callNode("sum", pulledColumn(total)), pgquery.MakeAConstStrNode("0", -1))
		return operatorNode("/", fromZero, callNode("sum", pulledColumn(rows)))
	case slices.Contains(again, name) && len(f.Args) == 1:
		return callNode(name, pulledColumn(g.column(clone(whole))))
	}
	g.failed = true
	return whole
}

// isSteadyCall says whether what an aggregate is computed of has the same value each time.
func (g *grouping) isSteadyCall(f *pgquery.FuncCall) bool {
	for _, a := range f.Args {
		if !g.b.steady(a) {
			return false
		}
	}
	return f.AggFilter == nil || g.b.steady(f.AggFilter)
}

// distinct is for an aggregate of distinct values: the worker groups by them, and the aggregate is computed over that.
func (g *grouping) distinct(f *pgquery.FuncCall) *pgquery.Node {
	if f.AggFilter != nil || len(f.Args) == 0 || isConstant(f.Args[0]) { // without groups, the worker would give a row for no rows
		g.failed = true
	}
	stands := func(n *pgquery.Node) *pgquery.Node {
		if isConstant(n) {
			return n
		}
		return g.key(n)
	}
	for i, a := range f.Args {
		f.Args[i] = stands(a)
	}
	for _, n := range f.AggOrder {
		if sort := n.GetSortBy(); sort != nil {
			sort.Node = stands(sort.Node)
		}
	}
	return &pgquery.Node{Node: &pgquery.Node_FuncCall{FuncCall: f}}
}

// isConstant says whether an expression is a constant or a parameter, without a cast.
func isConstant(n *pgquery.Node) bool { return n.GetAConst() != nil || n.GetParamRef() != nil }

// callNode calls one of PostgreSQL's own functions.
func callNode(name string, arguments ...*pgquery.Node) *pgquery.Node {
	return &pgquery.Node{Node: &pgquery.Node_FuncCall{FuncCall: &pgquery.FuncCall{
		Funcname: []*pgquery.Node{text("pg_catalog"), text(name)}, Args: arguments, Funcformat: pgquery.CoercionForm_COERCE_EXPLICIT_CALL, Location: -1,
	}}}
}

// castToType casts to the type of a pull's column.
func castToType(n *pgquery.Node, pull, column int) *pgquery.Node {
	name := &pgquery.TypeName{Names: []*pgquery.Node{text(typeMark(pull, column))}, Typemod: -1, Location: -1}
	return &pgquery.Node{Node: &pgquery.Node_TypeCast{TypeCast: &pgquery.TypeCast{Arg: n, TypeName: name, Location: -1}}}
}

// columns rewrites a block whose rows are computed by every shard, and all that follows over the columns that are needed of them.
func (b *block) columns() bool {
	if hasQueries(b.afterWhere()) {
		return false
	}
	b.expandStars()
	if hasStars(b.q.TargetList) || b.contains(b.afterWhere(), func(m proto.Message) bool {
		c, isColumn := m.(*pgquery.ColumnRef)
		_, star := names(c.GetFields())
		return isColumn && star
	}) {
		return false
	}
	q, ok := b.spelledOut()
	if !ok {
		return false
	}
	g := &grouping{b: b, number: len(b.s.out.Pulls), known: map[string]int{}}
	if g.hasBare(q.GroupClause) {
		return false
	}
	var by func(n *pgquery.Node) *pgquery.Node
	by = func(n *pgquery.Node) *pgquery.Node {
		if n == nil || n.GetNode() == nil {
			return n
		}
		if n.GetColumnRef() != nil {
			return pulledColumn(g.column(clone(n)))
		}
		replaceNodes(n, by)
		return n
	}
	all := func(nodes []*pgquery.Node) {
		for i := range nodes {
			nodes[i] = by(nodes[i])
		}
	}
	all(q.TargetList)
	all(q.GroupClause)
	all(q.WindowClause)
	q.HavingClause = by(q.HavingClause)
	for _, nodes := range [][]*pgquery.Node{q.SortClause, q.DistinctClause} {
		for i, n := range nodes {
			if sort := n.GetSortBy(); sort != nil {
				if sort.Node.GetAConst() == nil && !g.isOutput(q, singleName(sort.Node)) {
					sort.Node = by(sort.Node)
				}
				continue
			}
			if n.GetAConst() == nil && !g.isOutput(q, singleName(n)) {
				nodes[i] = by(n)
			}
		}
	}
	if g.failed {
		return false
	}
	worker := b.core(g.outputs)
	if _, ok := b.pull(worker, worker, "each row is made of one shard's rows; what follows is computed over the columns that it needs"); !ok {
		return false
	}
	q.FromClause = fromPull(g.number)
	b.become(q)
	return true
}
