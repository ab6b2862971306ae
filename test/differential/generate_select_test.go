package differential_test

import (
	"fmt"
	"slices"
)

// selection is a SELECT without order and limit.
type selection struct {
	*node
	values  []value
	outputs *node
	scope   *scope // that ORDER BY sees
	// isFixed: ORDER BY has to name outputs. isNamed: these are called c1, c2 …
	isFixed, isNamed bool
	// isSorted: it has an ORDER BY already, which is this.
	isSorted bool
	order    *node
}

// wish is what a SELECT is to be like. isExact: equal values of its columns are written alike; isNamed: columns are called c1, c2 …; twins are the
// numbers of its columns.
type wish struct {
	families         []family
	twins            []int
	isExact, isNamed bool
}

func (g *maker) wish(want []family) wish {
	return wish{families: want, twins: g.someTwins(len(want)), isExact: true, isNamed: true}
}

func columnsFor(values []value) []column {
	columns := make([]column, len(values))
	for i, v := range values {
		columns[i] = column{name: columnName(i), kind: v.kind, wild: v.wild, inexact: v.inexact}
	}
	return columns
}

func columnName(i int) string { return fmt.Sprint("c", i+1) }

func queryLabel(width int) string { return fmt.Sprint("query ", width) }

// query makes up a query with columns c1, c2 … of these families, for a place inside of another. Equal values of its columns are
// written alike, and if it is cut short it is clear where.
func (g *maker) query(outer *scope, want []family, depth int) (*node, []column) {
	n, values := g.body(outer, g.wish(want), depth)
	n.label = queryLabel(len(want))
	return n, columnsFor(values)
}

func (g *maker) body(outer *scope, want wish, depth int) (*node, []value) {
	if depth > 0 && g.chance(12) {
		sel := g.combined(outer, want, depth)
		return sel.node, sel.values
	}
	if depth > 0 && g.chance(8) {
		with, inner := g.commons(outer, depth)
		sel := g.selection(inner, want, depth-1)
		return phrase("%%", with, sel.node), sel.values
	}
	sel := g.selection(outer, want, depth)
	if sel.isSorted || !g.chance(12) {
		return sel.node, sel.values
	}
	g.shape("limit inside")
	return phrase("%%"+g.cut(), sel.node, g.orderBy(sel.ordinals())), sel.values
}

// ordinals are the places of all outputs.
func (sel *selection) ordinals() []value {
	all := make([]value, len(sel.values))
	for i := range all {
		all[i] = value{node: &node{position: sel.outputs.parts[i], within: sel.outputs}}
	}
	return all
}

// cut writes a limit.
func (g *maker) cut() string {
	const ties = " fetch first 3 rows with ties"
	cut := pick(g, " limit 3", " limit 1", " offset 1 limit 4", " fetch first 2 rows only", " limit 10", " offset 2", ties)
	if cut == ties {
		g.shape(withTies)
	}
	return cut
}

// withTies is a word about statements.
const withTies = "with ties"

// commons writes WITH and returns the scope in which it holds.
func (g *maker) commons(outer *scope, depth int) (*node, *scope) {
	g.shape("with")
	inner := &scope{outer: outer}
	items := make([]*node, 1+g.IntN(2))
	keyword := " "
	for i := range items {
		name := g.name("w")
		if g.chance(18) {
			n, r := g.recursive(name)
			items[i], keyword = n, " recursive "
			inner.commons = append(inner.commons, r)
			continue
		}
		want := g.families(1 + g.IntN(3))
		query, columns := g.query(inner, want, depth-1)
		kept := pick(g, "", "", "materialized ", "not materialized ") //nolint:misspell // SQL has it so
		items[i] = phrase(name+" as "+kept+"(%)", query)
		inner.commons = append(inner.commons, &relation{alias: name, columns: columns, unique: columns})
	}
	return filled("with"+keyword+"% ", ", ", items...), inner
}

// recursive is a common table expression that calls itself: it counts, or walks along rows until there are no new ones.
func (g *maker) recursive(name string) (*node, *relation) {
	g.shape("recursive")
	columns := []column{{name: "c1", kind: basics[integers]}}
	r := &relation{alias: name, columns: columns, unique: columns}
	t := pick(g, g.tables...)
	at := slices.IndexFunc(t.columns, func(c column) bool { return c.sql == "integer" && c.name != "id" && !c.isKey })
	if at < 0 || g.chance(35) {
		return leaf(name + " (c1) as (select 1 union all select c1 + 1 from " + name + " where c1 < " + g.positiveCount(6) + ")"), r
	}
	c := t.columns[at].name
	return leaf(fmt.Sprintf("%s (c1) as (select 1 union select mod(t.%s + t.id, 8) from %s join %s t on t.%s = %s.c1)", name, c, name, t.name, pick(g, c, "id"), name)), r
}

func (g *maker) families(count int) []family {
	all := make([]family, count)
	for i := range all {
		all[i] = g.family()
	}
	return all
}

// combined is a set operation. Its outputs are those of the selection that stands first.
func (g *maker) combined(outer *scope, want wish, depth int) *selection {
	g.shape("set operation")
	side := func() *selection {
		if depth > 1 && g.chance(25) {
			return g.combined(outer, want, depth-1)
		}
		return g.selection(outer, want, depth-1)
	}
	left, right := side(), side()
	all := &selection{outputs: left.outputs, values: slices.Clone(left.values), scope: left.scope, isFixed: true, isNamed: want.isNamed}
	for i, v := range right.values {
		all.values[i] = mixed(all.values[i], v)
		if v.family == texts && v.collation != all.values[i].collation {
			output := left.outputs.parts[i] // which collation its column has is not clear without this
			output.parts[0] = phrase(`(% collate "C")`, output.parts[0])
			all.values[i].collation = "C"
		}
	}
	operator := pick(g, "union", "union all", "union all", "intersect", "except", "intersect all", "except all")
	all.node = phrase("(%) "+operator+" (%)", left.node, right.node)
	for _, sel := range []*selection{left, right, all} {
		sel.label = queryLabel(len(want.families))
	}
	return all
}

// single is a query with one row at most.
func (g *maker) single(outer *scope, f family, depth int) (*node, []column) {
	from, s := g.source(outer, depth)
	where := g.where(s, depth)
	if g.chance(65) {
		v := g.aggregate(s, f)
		return phrase("select % as c1%%", v.node, from, where), columnsFor([]value{v})
	}
	v := g.exact(g.value(s, f, 1))
	output := phrase("% as c1", v.node)
	order := g.orderBy([]value{{node: leaf("1")}})
	return phrase("select %%%% limit 1", output, from, where, order), columnsFor([]value{v})
}

// source writes FROM and returns what can be seen behind it.
func (g *maker) source(outer *scope, depth int) (*node, *scope) {
	from, relations := g.from(outer, depth)
	relations[0].alone = len(relations) == 1 && (outer == nil || outer.outer == nil && len(outer.relations) == 0)
	return phrase(" from %", from), &scope{relations: relations, outer: outer}
}

func (g *maker) where(s *scope, depth int) *node {
	var parts []*node
	if g.bound {
		for _, r := range s.sharded() {
			if g.chance(85) {
				parts = append(parts, g.keyEquals(r, g.boundKey(r.table.space)))
			}
		}
	}
	for g.chance(30) && len(parts) < 4 {
		parts = append(parts, g.condition(s, depth))
	}
	return list(" where %", " and ", parts...)
}

// boundKey is the key that a statement asks for.
func (g *maker) boundKey(space *keyspace) []value {
	only := *space
	if g.keys == nil {
		g.keys = map[*keyspace][]string{}
	}
	if g.keys[space] == nil {
		g.keys[space] = pick(g, space.samples...)
	}
	only.samples = [][]string{g.keys[space]}
	return g.constantKey(&only)
}

// selection makes up a SELECT.
func (g *maker) selection(outer *scope, want wish, depth int) *selection {
	if depth > 0 && g.chance(4) {
		return g.rowsOfValues(want, outer)
	}
	from, s := g.source(outer, depth)
	where := g.where(s, depth)
	sel := &selection{scope: s, isNamed: want.isNamed}
	distinct, groups, having := nothing(), nothing(), nothing()
	var windows []*node
	switch n := g.IntN(100); {
	case n < 22:
		groups, having = g.group(sel, s, depth)
		if !sel.scope.inSets && g.chance(12) {
			sel.scope.windows = &windows
		}
	case n < 30:
		g.shape("aggregate")
		sel.scope = &scope{below: s, outer: outer}
		having = g.having(sel.scope, depth, 20)
	case n < 40:
		g.shape("distinct")
		distinct, sel.isFixed, want.isExact = leaf("distinct "), true, true
	case n < 46:
		g.shape("distinct on")
		sel.isFixed, sel.isSorted, want.isExact = true, true, true
	case n < 60:
		windowed := *s
		windowed.windows = &windows
		sel.scope = &windowed
	}
	g.fill(sel, want, depth)
	sel.order = nothing()
	if sel.isSorted {
		distinct, sel.order = g.distinctOn(sel)
	}
	g.byPosition(groups, sel)
	sel.node = phrase("select %%%%%%%%", distinct, sel.outputs, from, where, groups, having, list(" window %", ", ", windows...), sel.order)
	sel.scope = &scope{relations: sel.scope.relations, outer: sel.scope.outer, grouped: sel.scope.grouped, below: sel.scope.below}
	return sel
}

// distinctOn leaves the first of the rows that are equal in some outputs.
func (g *maker) distinctOn(sel *selection) (distinct, order *node) {
	keys := sel.ordinals()
	g.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return phrase("distinct on (%) ", commas(keys[:1+g.IntN(len(keys))])), g.orderBy(keys)
}

// group groups the rows, and returns GROUP BY and HAVING.
func (g *maker) group(sel *selection, s *scope, depth int) (groups, having *node) {
	g.shape("group by")
	keys := make([]value, 1+g.IntN(2))
	for i := range keys {
		keys[i] = g.groupKey(s)
	}
	sel.scope = &scope{below: s, outer: s.outer, grouped: keys}
	groups, sel.scope.inSets = g.groups(keys)
	return groups, g.having(sel.scope, depth, 25)
}

func (g *maker) having(s *scope, depth, percent int) *node {
	if !g.chance(percent) {
		return nothing()
	}
	return optional(" having %", g.condition(s, depth-1))
}

// byPosition names some of the values in GROUP BY by the position of the output that they are.
func (g *maker) byPosition(groups *node, sel *selection) {
	if !groups.isList {
		return
	}
	for i, key := range groups.parts {
		at := slices.IndexFunc(sel.values, func(v value) bool { return v.node == key })
		if at >= 0 && g.chance(50) {
			groups.parts[i] = &node{position: sel.outputs.parts[at], within: sel.outputs}
		}
	}
}

// fill makes up the outputs.
func (g *maker) fill(sel *selection, want wish, depth int) {
	parts := make([]*node, len(want.families))
	sel.values = make([]value, len(parts))
	for i, f := range want.families {
		v := g.output(sel, f, min(depth+1, 2))
		if want.isExact {
			v = g.exact(v)
		}
		sel.values[i] = v
		parts[i] = phrase("%", v.node)
		if want.isNamed {
			parts[i].format = "% as " + columnName(i)
		}
		parts[i].twin = want.twins[i]
	}
	sel.outputs = filled("%", ", ", parts...)
}

// output is a value, or now and then several: a function in the SELECT list that returns rows.
func (g *maker) output(sel *selection, f family, depth int) value {
	if f != integers || !g.chance(3) || sel.scope.below != nil {
		return g.value(sel.scope, f, depth)
	}
	g.shape("function in select list")
	if v, found := g.column(sel.scope, arrays, false); found && g.chance(60) {
		return g.operation(f, "unnest(%)", v)
	}
	return g.operation(f, "generate_series(1, %)", g.made(basics[f], leaf(g.positiveCount(3))))
}

// rowsOfValues is VALUES.
func (g *maker) rowsOfValues(want wish, outer *scope) *selection {
	g.shape("values")
	n, values := g.valuesList(want.families, want.twins)
	parts := make([]*node, len(values))
	alias := g.name("v")
	for i := range parts {
		parts[i] = phrase("%", leaf(alias+"."+columnName(i)))
		parts[i].twin = want.twins[i]
	}
	sel := &selection{values: values, outputs: filled("%", ", ", parts...), isNamed: true}
	columns := columnsFor(values)
	sel.scope = &scope{relations: []*relation{{alias: alias, columns: columns, unique: columns}}, outer: outer}
	sel.node = phrase("select % from (%) as "+alias+"%", sel.outputs, n, columnNames(want.twins))
	return sel
}

// valuesList writes some rows.
func (g *maker) valuesList(want []family, twins []int) (*node, []value) {
	values := make([]value, len(want))
	rows := make([]*node, 1+g.IntN(4))
	for i := range rows {
		parts := make([]*node, len(want))
		for j, f := range want {
			v := g.constant(f)
			if i == 0 {
				values[j] = v
			}
			values[j] = mixed(values[j], v)
			parts[j] = phrase("%", v.node)
			parts[j].twin = twins[j]
		}
		rows[i] = filled("(%)", ", ", parts...)
	}
	for i := range values {
		values[i].isColumn = true
	}
	return filled("values %", ", ", rows...), values
}

func columnNames(twins []int) *node {
	names := make([]*node, len(twins))
	for i := range names {
		names[i] = leaf(columnName(i))
		names[i].twin = twins[i]
	}
	return list(" (%)", ", ", names...)
}

// from makes up what stands behind FROM.
func (g *maker) from(outer *scope, depth int) (*node, []*relation) {
	n, relations := g.item(outer, depth)
	for len(relations) < 3 && g.chance(38) {
		n, relations = g.joined(n, relations, outer, depth)
	}
	if len(relations) < 2 && g.chance(8) {
		g.shape("comma")
		other, more := g.item(outer, depth)
		n, relations = filled("%", ", ", n, other), append(relations, more...)
	}
	n.label = "from"
	return n, relations
}

// item is one thing in FROM.
func (g *maker) item(outer *scope, depth int) (*node, []*relation) {
	alias := g.name("t")
	commons := outer.visibleCommons()
	switch n := g.IntN(100); {
	case n < 4:
		return g.function(alias)
	case n < 7:
		return g.valuesItem(alias)
	case len(commons) > 0 && n < 45:
		c := pick(g, commons...)
		return item(leaf(c.alias + " as " + alias)), []*relation{{alias: alias, columns: c.columns, unique: c.unique}}
	case depth > 0 && n > 80:
		g.shape("subquery in from")
		query, columns := g.query(outer, g.families(1+g.IntN(3)), depth-1)
		return item(phrase("(%) as "+alias, query)), []*relation{{alias: alias, columns: columns, unique: columns}}
	default:
		t := g.pickTable()
		name := t.name
		if t.view != nil && g.chance(50) {
			g.shape("view")
			name = t.viewName()
		}
		return item(leaf(name + " as " + alias)), []*relation{{alias: alias, columns: t.columns, unique: t.unique(), table: t}}
	}
}

// pickTable prefers sharded tables.
func (g *maker) pickTable() *table {
	t := pick(g, g.tables...)
	if !t.isSharded() && g.chance(50) {
		t = pick(g, g.tables...)
	}
	return t
}

func item(n *node) *node {
	n.label = "from"
	return n
}

// valuesItem is VALUES in FROM.
func (g *maker) valuesItem(alias string) (*node, []*relation) {
	g.shape("values")
	want := g.families(1 + g.IntN(2))
	twins := g.someTwins(len(want))
	rows, values := g.valuesList(want, twins)
	columns := columnsFor(values)
	return item(phrase("(%) as "+alias+"%", rows, columnNames(twins))), []*relation{{alias: alias, columns: columns, unique: columns}}
}

// function is a function that returns rows.
func (g *maker) function(alias string) (*node, []*relation) {
	g.shape("function in from")
	columns := []column{{name: "c1", kind: basics[integers]}}
	call := pick(g, "generate_series(1, 4)", "unnest(array[1, 2, 2, null])", "generate_series(3, 0, -1)")
	return item(leaf(call + " as " + alias + " (c1)")), []*relation{{alias: alias, columns: columns, unique: columns}}
}

// joined joins something more.
func (g *maker) joined(left *node, relations []*relation, outer *scope, depth int) (*node, []*relation) {
	if g.chance(10) && depth > 0 {
		return g.lateral(left, relations, outer, depth)
	}
	right, more := g.item(outer, depth)
	if g.chance(10) && depth > 0 { // a join in parentheses
		right, more = g.joined(right, more, outer, depth-1)
		right = item(phrase("(%)", right))
	}
	all := append(slices.Clone(relations), more...)
	on := func(words string, condition *node) (*node, []*relation) {
		g.shape(words)
		return item(phrase("% "+words+" % on %", left, right, condition)), all
	}
	switch n := g.IntN(100); {
	case n < 45:
		return on(pick(g, "join", "join", "inner join"), g.join(relations, more, outer, depth))
	case n < 68:
		return on("left join", g.join(relations, more, outer, depth))
	case n < 77:
		return on("right join", g.join(relations, more, outer, depth))
	case n < 86:
		if condition := g.meeting(relations, more); condition != nil {
			return on("full join", condition)
		}
	case n < 94 && len(relations) == 1 && len(more) == 1:
		if n := g.using(left, right, relations[0], more[0]); n != nil {
			return n, all
		}
	}
	g.shape("cross join")
	return item(phrase("% cross join %", left, right)), all
}

// using joins by columns of one name, nil if there are none.
func (g *maker) using(left, right *node, a, b *relation) *node {
	var names []string
	natural := true
	for _, c := range a.columns {
		at := slices.IndexFunc(b.columns, func(d column) bool { return c.name == d.name })
		switch {
		case at < 0:
		case c.family == b.columns[at].family && c.collation == b.columns[at].collation:
			names = append(names, c.name)
		default:
			natural = false
		}
	}
	g.shape("join using")
	switch {
	case len(names) == 0:
		return nil
	case natural && g.chance(20):
		return item(phrase("% natural "+pick(g, "", "left ", "full ")+"join %", left, right))
	}
	names = slices.DeleteFunc(names, func(name string) bool { return len(names) > 2 && !g.chance(40) && name != names[0] })
	nodes := make([]*node, len(names))
	for i, name := range names {
		nodes[i] = leaf(name)
	}
	return item(phrase("% "+pick(g, "", "left ", "right ", "full ")+"join % using (%)", left, right, filled("%", ", ", nodes...)))
}

// lateral joins something that sees what stands before it.
func (g *maker) lateral(left *node, relations []*relation, outer *scope, depth int) (*node, []*relation) {
	g.shape("lateral")
	alias := g.name("t")
	before := &scope{relations: relations, outer: outer}
	if v, found := g.column(before, arrays, false); found && g.chance(30) {
		columns := []column{{name: "c1", kind: basics[integers]}}
		right := phrase("unnest(%) as "+alias+" (c1)", v.node)
		return item(phrase(pick(g, "% cross join %", "% left join % on true", "% cross join lateral %"), left, right)), append(slices.Clone(relations), &relation{alias: alias, columns: columns, unique: columns})
	}
	query, columns := g.query(before, g.families(1+g.IntN(2)), depth-1)
	right := phrase("lateral (%) as "+alias, query)
	return item(phrase(pick(g, "% cross join %", "% left join % on true", "% join % on true"), left, right)), append(slices.Clone(relations), &relation{alias: alias, columns: columns, unique: columns})
}

// read makes up a statement that reads.
func (g *maker) read() *statement {
	depth := pick(g, 0, 0, 1, 1, 1, 2, 2, 3)
	g.bound = g.chance(30)
	with := nothing()
	var outer *scope
	if depth > 0 && g.chance(20) {
		with, outer = g.commons(nil, depth)
	}
	if g.chance(6) {
		return g.star(with, outer, depth)
	}
	sorted := g.chance(55)
	want := g.wish(g.families(1 + g.IntN(4)))
	want.isExact, want.isNamed = sorted, g.chance(60)
	var sel *selection
	if depth > 0 && g.chance(15) {
		want.isExact, want.isNamed = true, true
		sel = g.combined(outer, want, depth)
	} else {
		sel = g.selection(outer, want, depth)
	}
	sel.label = queryLabel(len(want.families))
	st := &statement{outputs: sel.outputs}
	tail := nothing()
	switch {
	case sel.isSorted:
		st.order = sel.order
	case sorted:
		tail = g.order(st, sel)
	case g.chance(4):
		g.shape("limit without order")
		st.counted = true
		tail = g.limit()
	case !sel.isFixed && sel.scope.below == nil && g.chance(4):
		g.shape("for update")
		tail = optional(pick(g, " for update", " for share", " for no key update", " for key share"))
	}
	st.root = phrase("%%%", with, sel.node, tail)
	return st
}

// star is SELECT * with an order that tells all rows apart.
func (g *maker) star(with *node, outer *scope, depth int) *statement {
	g.shape("star")
	from, s := g.source(outer, depth)
	where := g.where(s, depth)
	st := &statement{outputs: list("%", ", "), isTotal: true}
	tail := nothing()
	if g.chance(60) {
		g.shape("order by")
		st.order = g.orderBy(g.total(s))
		tail = st.order
		if g.chance(30) {
			tail = phrase("%%", tail, g.limit())
		}
	}
	what := leaf(pick(g, "*", "*", pick(g, s.relations...).alias+".*"))
	st.root = phrase("%select %%%%", with, what, from, where, tail)
	return st
}

// order writes ORDER BY, and what may follow it.
func (g *maker) order(st *statement, sel *selection) *node {
	g.shape("order by")
	keys := sel.ordinals()
	for i, key := range keys {
		switch v := sel.values[i]; {
		case sel.isNamed && g.chance(30):
			key.shown = leaf(columnName(i))
		case !sel.isFixed && (v.isColumn || len(v.parts) > 0) && g.chance(25):
			key.shown = sel.outputs.parts[i].parts[0]
		}
	}
	g.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	isTotal := true
	switch {
	case !sel.isFixed && g.chance(30):
		g.shape("order by expression")
		keys = append(g.expressions(sel), keys...)
	case g.chance(45) && len(keys) > 1:
		keys = keys[:1+g.IntN(len(keys)-1)]
		isTotal = false
	}
	st.order = g.orderBy(keys)
	switch {
	case isTotal && g.chance(35):
		g.shape("limit")
		return phrase("%%", st.order, g.limit())
	case g.chance(8):
		g.shape(withTies)
		return phrase("%%", st.order, optional(" fetch first "+g.positiveCount(5)+" rows with ties"))
	}
	return st.order
}

func (g *maker) limit() *node {
	count := g.positiveCount(6)
	most := leaf(count)
	if g.chance(30) {
		most = &node{param: &param{typeName: "int8", value: &count}}
	}
	return &node{format: pick(g, " limit %", " offset 2 limit %", " offset 1 rows fetch first (%) rows only", " limit % offset 1"), parts: []*node{most}, optional: true}
}

// expressions are things to sort by that are no outputs.
func (g *maker) expressions(sel *selection) []value {
	var all []value
	for range 1 + g.IntN(2) {
		v := g.exact(g.value(sel.scope, g.family(), 1))
		if v.isColumn || len(v.parts) > 0 && v.param == nil {
			all = append(all, v)
		}
	}
	return all
}
