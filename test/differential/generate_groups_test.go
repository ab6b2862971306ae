package differential_test

import (
	"slices"
	"strconv"
	"strings"
)

// groupedAtom is a value by which rows are grouped, or an aggregate.
func (g *maker) groupedAtom(s *scope, f family) value {
	var keys []value
	for _, v := range s.grouped {
		if v.family == f {
			keys = append(keys, v)
		}
	}
	switch {
	case s.inSets && f == integers && g.chance(30):
		return g.operation(f, "grouping(%)", pick(g, s.grouped...))
	case len(keys) > 0 && g.chance(50):
		return pick(g, keys...)
	case g.chance(88):
		return g.aggregate(s.below, f)
	default:
		return g.constant(f)
	}
}

// aggregate makes up an aggregate over the rows of a scope, whose arguments have columns of that scope alone: otherwise it would
// belong to a query further out.
func (g *maker) aggregate(s *scope, f family) value {
	rows := &scope{relations: s.relations, commons: s.visibleCommons()}
	arg := func(f family) value { return g.exact(g.value(rows, f, pick(g, 0, 0, 1))) }
	column := func(f family) value {
		if v, found := g.column(rows, f, false); found {
			return g.exact(v)
		}
		return g.constant(f)
	}
	filter := nothing()
	if g.chance(15) {
		filter = optional(" filter (where %)", g.condition(rows, 1))
	}
	call := func(format string, parts ...value) value { return g.filtered(f, format, filter, parts) }
	distinct := pick(g, "", "", "", "distinct ")
	switch f {
	case integers:
		return g.integerAggregate(call, arg, column, distinct)
	case numerics:
		a := arg(pick(g, numerics, integers))
		if a.family == integers && a.sql != "bigint" { // its sum is no numeric
			return call(pick(g, "avg("+distinct+"%)", "variance(%)", "stddev_pop(%)", "sum("+distinct+"%)#::numeric"), a)
		}
		return call(pick(g, "sum("+distinct+"%)", "avg("+distinct+"%)", "min(%)", "max(%)", "var_pop(%)", "stddev(%)", "sum(%)"), a)
	case floats:
		if g.chance(25) {
			return call(pick(g, "percentile_cont(0.5) within group (order by %)", "percentile_disc(0.25) within group (order by %)"), column(f))
		}
		return call(pick(g, "sum("+distinct+"%)", "avg("+distinct+"%)", "min(%)", "max(%)"), arg(f))
	case texts:
		a := arg(f)
		switch g.IntN(4) {
		case 1:
			v := call(pick(g, "(array_agg(% order by %)#)::text", "(array_agg(distinct % order by %)#)::text"), twice(column(pick(g, moods, texts, numerics, dates, booleans, floats)))...)
			v.collation = "default"
			return v
		case 0:
			return call(pick(g, "string_agg(%, ',' order by %)", "string_agg(distinct %, '' order by %)", "string_agg(%, '-' order by % desc)"), a, a)
		default:
			return call(pick(g, "min(%)", "max(%)", "mode() within group (order by %)"), a)
		}
	case booleans:
		return call(pick(g, "bool_and(%)", "bool_or(%)", "every(%)"), arg(f))
	case dates, times, moods:
		a := column(f)
		return mixed(call(pick(g, "min(%)", "max(%)", "mode() within group (order by %)", "percentile_disc(0.5) within group (order by %)"), a), a)
	case uuids:
		return call(pick(g, "(array_agg(% order by %)#)[1]", "(array_agg(% order by % desc)#)[2]"), twice(column(f))...)
	case binaries:
		return call(`string_agg(%, '\x00'::bytea order by %)`, twice(column(f))...)
	case arrays:
		if g.chance(50) {
			return call(pick(g, "array_agg(% order by %)", "array_agg(distinct % order by % desc)"), twice(g.small(rows))...)
		}
		return call(pick(g, "min(%)", "max(%)"), column(f))
	default:
		return call(pick(g, "jsonb_agg(% order by %)", "jsonb_agg(distinct % order by % nulls first)", "to_jsonb(array_agg(% order by %)#)"), twice(column(pick(g, integers, texts, documents, dates)))...)
	}
}

// filtered puts FILTER where the format has #, or at its end.
func (g *maker) filtered(f family, format string, filter *node, parts []value) value {
	before, after, _ := strings.Cut(format, "#")
	at := strings.Count(before, "%")
	return g.operation(f, before+"%"+after, slices.Insert(slices.Clone(parts), at, value{node: filter, kind: basics[booleans]})...)
}

func twice(v value) []value { return []value{v, v} }

func (g *maker) integerAggregate(call func(string, ...value) value, arg, column func(family) value, distinct string) value {
	big := func(v value) value {
		v.sql, v.wire = "bigint", "int8"
		return v
	}
	switch g.IntN(8) {
	case 0, 1:
		return big(call("count(*)"))
	case 2:
		if g.chance(15) {
			return big(call("count("+distinct+"(%, %))", column(g.family()), column(g.family())))
		}
		return big(call("count("+distinct+"%)", arg(g.family())))
	case 3, 4:
		a := arg(integers)
		if a.sql == "bigint" {
			return call("length((sum("+distinct+"%)#)::text)", a) // it may be too large for a bigint
		}
		return big(call("sum("+distinct+"%)", a))
	case 5:
		a := column(integers)
		v := mixed(call(pick(g, "mode() within group (order by %)", "percentile_disc(0.5) within group (order by %)"), a), a)
		return v
	case 6:
		return big(call("rank(1) within group (order by %)", column(integers)))
	default:
		a := arg(integers)
		return mixed(call(pick(g, "min(%)", "max(%)", "max(%)", "bit_and(%)", "bit_or(%)"), a), a)
	}
}

// groupKey is something to group by, written the same wherever it stands.
func (g *maker) groupKey(s *scope) value {
	r := pick(g, s.relations...)
	v := g.reference(r, pick(g, r.columns...))
	if v.wild || g.chance(65) {
		return g.exact(v)
	}
	f := v.family
	switch f {
	case integers:
		return mixed(g.operation(f, pick(g, "mod(%, 3)", "(% + 1)", "(% / 2)"), v), v)
	case texts:
		return g.operation(f, pick(g, "lower(%)", "left(%, 1)"), v)
	case dates, times:
		return g.operation(times, "date_trunc('month', %)", v)
	default:
		return g.operation(booleans, pick(g, "(% is null)", "(% is not null)"), v)
	}
}

// groups writes GROUP BY of the keys, one by one or in sets.
func (g *maker) groups(keys []value) (groups *node, inSets bool) {
	nodes := make([]*node, len(keys))
	for i, k := range keys {
		nodes[i] = k.node
	}
	if g.chance(70) || len(keys) == 0 {
		return filled(" group by %", ", ", nodes...), false
	}
	g.shape("grouping sets")
	if g.chance(60) {
		return phrase(" group by "+pick(g, "rollup", "cube")+" (%)", filled("%", ", ", nodes...)), true
	}
	sets := []*node{leaf("()"), phrase("(%)", filled("%", ", ", nodes...))}
	for _, n := range nodes {
		if g.chance(60) {
			sets = append(sets, phrase("(%)", n))
		}
	}
	return phrase(" group by grouping sets (%)", filled("%", ", ", sets...)), true
}

// window is a function over a window. Where it depends on the order of rows, the order tells them all apart.
func (g *maker) window(s *scope, f family) value {
	g.shape("window")
	rows := *s
	rows.windows = nil
	inner := &rows
	partition := nothing()
	if g.chance(60) {
		partition = optional("partition by %", g.value(inner, g.family(), 0).node)
	}
	if (f == integers || f == numerics) && s.below == nil && g.chance(20) {
		if v, found := g.rangeWindow(inner, f); found {
			return v
		}
	}
	call, isTotal, framed := g.windowCall(inner, f)
	var keys []value
	if g.chance(60) || isTotal {
		keys = append(keys, g.exact(g.value(inner, g.family(), 0)))
	}
	if isTotal {
		keys = append(keys, g.total(inner)...)
	}
	frame := nothing()
	if framed && len(keys) > 0 {
		frame = g.frame()
	}
	window := phrase("%%%", partition, g.orderBy(keys), frame)
	v := g.made(call.kind, phrase("% over (%)", call.node, window))
	if g.chance(15) {
		name := g.name("named")
		*s.windows = append(*s.windows, phrase(name+" as (%)", window))
		v = g.made(call.kind, phrase("% over "+name, call.node))
	}
	v.wild, v.inexact = call.wild, call.inexact
	return v
}

// rangeWindow is an aggregate over rows whose values are near, whatever their order is.
func (g *maker) rangeWindow(s *scope, f family) (value, bool) {
	key, found := g.column(s, integers, true)
	if !found {
		return value{}, false
	}
	call := g.made(basics[integers], leaf("count(*)"))
	call.sql, call.wire = "bigint", "int8"
	if f == numerics {
		call = g.operation(f, pick(g, "sum(%)", "max(%)"), g.exact(g.value(s, f, 0)))
	}
	bounds := pick(g, "1 preceding and current row", "2 preceding and 1 following", "unbounded preceding and current row", "current row and unbounded following")
	v := g.made(call.kind, phrase("% over (order by % range between "+bounds+pick(g, "", "", " exclude current row", " exclude group")+")", call.node, g.sorted(key.node)))
	v.inexact = call.inexact
	return v, true
}

// frame needs an order that tells all rows apart if it counts rows.
func (g *maker) frame() *node {
	if g.chance(50) {
		return nothing()
	}
	return optional(pick(g, " rows", " groups") + " between " + pick(g, "unbounded preceding", "1 preceding", "current row", "2 preceding") + " and " +
		pick(g, "unbounded following", "1 following", "current row") + pick(g, "", "", " exclude current row", " exclude ties", " exclude group"))
}

// windowCall is the function, whether it needs a total order, and whether a frame means something to it.
func (g *maker) windowCall(s *scope, f family) (v value, isTotal, framed bool) {
	if f == integers && g.chance(45) {
		name := pick(g, "row_number()", "rank()", "dense_rank()", "ntile(3)", "count(*)")
		v := g.made(basics[f], leaf(name))
		if name != "ntile(3)" {
			v.sql, v.wire = "bigint", "int8"
		}
		return v, name == "row_number()" || name == "ntile(3)", false
	}
	if f == floats && g.chance(50) {
		return g.made(basics[f], leaf(pick(g, "percent_rank()", "cume_dist()"))), false, false
	}
	if (f == numerics || f == floats || f == integers) && g.chance(45) {
		a := g.exact(g.value(s, f, 0))
		call := pick(g, "sum(%)", "min(%)", "max(%)")
		if f == integers {
			call = pick(g, "min(%)", "max(%)")
		}
		v := mixed(g.operation(f, call, a), a)
		return v, true, true
	}
	a := g.exact(g.value(s, f, 0))
	call := pick(g, "lag(%)", "lead(%)", "lag(%, 2)", "first_value(%)", "last_value(%)", "nth_value(%, 2)")
	v = g.made(a.kind, phrase(call, a.node))
	v.wild = a.wild
	return v, true, true
}

func (g *maker) positiveCount(most int) string { return strconv.Itoa(1 + g.IntN(most)) }
