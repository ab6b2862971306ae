package differential_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// value is an expression, with what has to be known of it.
type value struct {
	*node
	kind
	wild, inexact bool
	// isColumn: it is the name of a column, which can stand in ORDER BY and GROUP BY where a literal would be a position.
	isColumn bool
}

// relation is what a name in FROM stands for.
type relation struct {
	alias   string
	columns []column
	// unique are columns that no two of its rows have in common, all of them if it has none; equal rows cannot be told apart.
	unique []column
	table  *table
	alone  bool // there is no other whose columns could be meant
}

// scope is what can be seen from a place.
type scope struct {
	relations []*relation
	outer     *scope
	// commons are the common table expressions.
	commons []*relation
	// Of a query with groups: only these values can be used, and aggregates over the rows below.
	grouped []value
	below   *scope
	inSets  bool // they are grouped in several ways
	// windows: functions over windows can be used, and windows can be given names here.
	windows *[]*node
}

// visibleCommons are the common table expressions that can be named.
func (s *scope) visibleCommons() []*relation {
	if s == nil {
		return nil
	}
	return append(slices.Clone(s.commons), s.outer.visibleCommons()...)
}

// labelOf is the label of expressions of a family.
func labelOf(f family) string { return fmt.Sprint("value ", int(f)) }

func (g *maker) made(k kind, n *node) value {
	n.label = labelOf(k.family)
	if n.simple == "" && n.param == nil && len(n.parts) > 0 {
		n.simple = constant(basics[k.family], pools[k.family][1])
	}
	return value{node: n, kind: k}
}

// operation makes an expression of a family's usual type.
func (g *maker) operation(f family, format string, parts ...value) value {
	nodes := make([]*node, len(parts))
	for i, p := range parts {
		nodes[i] = p.node
	}
	v := g.made(basics[f], phrase(format, nodes...))
	v.inexact = f == numerics
	if f == texts {
		v.collation = g.collation(parts)
		if v.collation == conflict {
			return g.collate(v)
		}
	}
	return v
}

// conflict is the collation of an expression whose parts have several.
const conflict = "?"

// collation is that of an expression with these parts.
func (g *maker) collation(parts []value) string {
	found := ""
	for _, p := range parts {
		switch {
		case p.family != texts || p.collation == "" || p.collation == found:
		case found == "":
			found = p.collation
		default:
			return conflict
		}
	}
	return found
}

// collate gives a text a collation.
func (g *maker) collate(v value) value {
	name := pick(g, "C", "und-x-icu", "C")
	collated := g.made(v.kind, phrase(`(% collate "`+name+`")`, v.node))
	collated.collation = name
	return collated
}

// alike gives two texts that are compared one collation.
func (g *maker) alike(a, b value) (value, value) {
	if g.collation([]value{a, b}) == conflict {
		return g.collate(a), b
	}
	return a, b
}

// exact writes equal values alike, for places where one of several equal values is shown.
func (g *maker) exact(v value) value {
	if !v.inexact {
		return v
	}
	return value{node: g.made(v.kind, phrase("trim_scale(%)", v.node)).node, kind: v.kind}
}

// family picks one, the common ones more often.
func (g *maker) family() family {
	return pick(g, integers, integers, integers, integers, numerics, numerics, floats, texts, texts, texts, booleans, dates, times, uuids, binaries, arrays, documents, moods)
}

// value makes up an expression of the family.
func (g *maker) value(s *scope, f family, depth int) value {
	if depth <= 0 || g.chance(50) {
		return g.atom(s, f)
	}
	if s.windows != nil && g.chance(40) {
		return g.window(s, f)
	}
	switch n := g.IntN(100); {
	case n < 10:
		return g.choice(s, f, depth)
	case n < 20:
		return g.conditional(s, f, depth)
	case n < 32:
		return g.scalar(s, f, depth)
	default:
		return g.computed(s, f, depth)
	}
}

// atom is a column, an aggregate, a literal or a parameter.
func (g *maker) atom(s *scope, f family) value {
	if s.below != nil {
		return g.groupedAtom(s, f)
	}
	if v, found := g.column(s, f, false); found && g.chance(85) {
		return v
	}
	return g.constant(f)
}

// column refers to a column of the family that can be seen, mostly to one that is near.
func (g *maker) column(s *scope, f family, tame bool) (value, bool) {
	var found []value
	for at := s; at != nil && (len(found) == 0 || g.chance(15)); at = at.outer {
		if at.below != nil {
			continue
		}
		for _, r := range at.relations {
			for _, c := range r.columns {
				if c.family == f && (!tame || !c.wild) {
					found = append(found, g.reference(r, c))
				}
			}
		}
	}
	if len(found) == 0 {
		return value{}, false
	}
	return pick(g, found...), true
}

func (g *maker) reference(r *relation, c column) value {
	v := g.made(c.kind, leaf(r.alias+"."+c.name))
	if r.alone && g.chance(20) {
		v.format = c.name
	}
	v.wild, v.inexact, v.isColumn = c.wild, c.inexact, true
	return v
}

// constant is a literal or a parameter.
func (g *maker) constant(f family) value {
	k := basics[f]
	if f == integers && g.chance(15) {
		k.sql, k.wire = "bigint", "int8"
	}
	k.collation = ""
	text := pick(g, pools[f]...)
	switch {
	case g.chance(6):
		return g.made(k, leaf("null::"+k.sql))
	case !g.literal && g.chance(30):
		v := g.made(k, &node{param: &param{typeName: k.wire, value: &text}})
		if g.chance(4) {
			v.param.value = nil
		}
		if k.wire == "?" || g.chance(30) {
			v.param.typeName = "?"
			v = g.made(k, phrase("%::"+k.sql, v.node))
		}
		return v
	case f == texts && g.chance(15):
		return g.made(k, leaf(quote(text)))
	default:
		return g.made(k, leaf(constant(k, text)))
	}
}

// loose is a constant whose type has to be found out, where it is compared with something.
func (g *maker) loose(f family) value {
	text := pick(g, pools[f]...)
	switch {
	case g.chance(65):
		return g.constant(f)
	case !g.literal && g.chance(50):
		return g.made(basics[f], &node{param: &param{typeName: "?", value: &text}}).silent()
	default:
		return g.made(basics[f], leaf(quote(text))).silent()
	}
}

// tame is a value with which operations do not fail.
func (g *maker) tame(s *scope, f family, depth int) value {
	for range 6 {
		if v := g.value(s, f, depth); !v.wild {
			return v
		}
	}
	return g.constant(f)
}

// mixed says what a value made of several is like.
func mixed(v value, parts ...value) value {
	for _, p := range parts {
		v.wild = v.wild || p.wild
		if p.family == integers && p.sql == "bigint" && v.family == integers {
			v.sql, v.wire = "bigint", "int8"
		}
	}
	return v
}

// choice picks one of several values.
func (g *maker) choice(s *scope, f family, depth int) value {
	a, b := g.exact(g.value(s, f, depth-1)), g.exact(g.value(s, f, depth-1))
	a, b = g.alike(a, b)
	return mixed(g.operation(f, pick(g, "coalesce(%, %)", "nullif(%, %)", "greatest(%, %)", "least(%, %)", "coalesce(%, %)"), a, b), a, b)
}

func (g *maker) conditional(s *scope, f family, depth int) value {
	if g.chance(30) {
		h := g.family()
		subject, other := g.alike(g.value(s, h, 0), g.constant(h))
		a, b := g.alike(g.value(s, f, depth-1), g.value(s, f, depth-1))
		return mixed(g.operation(f, "case % when % then % else % end", subject.silent(), other.silent(), a, b), a, b)
	}
	condition := g.condition(s, depth-1)
	a, b := g.alike(g.value(s, f, depth-1), g.value(s, f, depth-1))
	v := mixed(g.operation(f, "case when % then % else % end", value{node: condition, kind: basics[booleans]}, a, b), a, b)
	return v
}

// silent is the value without its collation, for a place where that has no effect on what comes out.
func (v value) silent() value {
	v.collation = ""
	return v
}

// scalar is a subquery with one row at most: of an aggregate, or the first in an order that has one.
func (g *maker) scalar(s *scope, f family, depth int) value {
	g.shape("scalar subquery")
	query, columns := g.single(s, f, depth-1)
	v := g.made(columns[0].kind, phrase("(%)", query))
	v.simple = "null::" + basics[f].sql
	v.wild = columns[0].wild
	return v
}

// computed applies an operator or a function.
func (g *maker) computed(s *scope, f family, depth int) value {
	v := func(f family) value { return g.value(s, f, depth-1) }
	t := func(f family) value { return g.tame(s, f, depth-1) }
	switch f {
	case integers:
		return g.computedInteger(v, t)
	case numerics:
		switch g.IntN(6) {
		case 0:
			return g.operation(f, "(% + %)", v(f), v(f))
		case 1:
			return g.operation(f, "(% - %)", v(f), v(f))
		case 2:
			return g.operation(f, "(% * %)", v(f), g.constant(f))
		case 3:
			return g.operation(f, "round(%, 1)", v(f))
		case 4:
			return g.operation(f, "(% / 4)", v(f))
		default:
			return g.operation(f, "(%)::numeric", v(integers))
		}
	case floats:
		switch g.IntN(4) {
		case 0:
			return g.operation(f, "(% + %)", v(f), v(f))
		case 1:
			return g.operation(f, "(% * 2)", v(f))
		case 2:
			return g.operation(f, "abs(%)", v(f))
		default:
			return g.operation(f, "(%)::float8", t(integers))
		}
	case texts:
		return g.computedText(s, v, t)
	case booleans:
		return g.made(basics[f], g.condition(s, depth-1))
	case dates:
		return g.operation(f, pick(g, "(% + 1)", "(% - 31)"), t(f))
	case times:
		return g.operation(f, pick(g, "date_trunc('day', %)", "(% + interval '1 day')", "date_trunc('month', %)"), t(f))
	case arrays:
		switch g.IntN(4) {
		case 2:
			g.shape("array subquery")
			query, _ := g.query(s, []family{integers}, depth-1)
			return g.operation(f, "array(select (q.c1)::integer from (%) as q where q.c1 between -1000 and 1000 order by q.c1)", value{node: query})
		case 0:
			return g.operation(f, "(% || %)", v(f), v(f))
		case 1:
			return g.operation(f, "array[%, %]::integer[]", g.small(s), g.small(s))
		default:
			return g.operation(f, "array_append(%, %)", v(f), g.small(s))
		}
	case documents:
		return g.operation(f, pick(g, "jsonb_build_object('v', %)", "to_jsonb(%)", "jsonb_build_array(%, null)"), g.exact(v(pick(g, integers, texts, booleans, dates, numerics))))
	case binaries:
		return g.operation(f, pick(g, "(% || '\\x01'::bytea)", "substring(% from 1 for 1)"), v(f))
	default:
		return g.atom(s, f)
	}
}

// small is an integer that fits into an array of them.
func (g *maker) small(s *scope) value {
	for range 6 {
		if v, found := g.column(s, integers, true); found && v.sql == "integer" && s.below == nil {
			return v
		}
	}
	return g.made(basics[integers], leaf(strconv.Itoa(g.IntN(6))))
}

func (g *maker) computedInteger(v, t func(family) value) value {
	const f = integers
	switch g.IntN(10) {
	case 0, 1:
		a, b := t(f), t(f)
		return mixed(g.operation(f, pick(g, "(% + %)", "(% - %)"), a, b), a, b)
	case 2:
		a := t(f)
		return mixed(g.operation(f, "(% * 2)", a), a)
	case 3:
		a := t(f)
		return mixed(g.operation(f, pick(g, "mod(%, 3)", "mod(%, 2)", "abs(%)", "(% / 3)", "- %"), a), a)
	case 4:
		return g.operation(f, "length(%)", v(texts))
	case 5:
		return g.operation(f, pick(g, "cardinality(%)", "(%)[1]", "array_length(%, 1)"), v(arrays))
	case 6:
		return g.operation(f, pick(g, "extract(day from %)::integer", "extract(year from %)::integer"), t(pick(g, dates, times)))
	case 7:
		return g.operation(f, pick(g, "length(%)", "octet_length(%)"), v(binaries))
	case 8:
		return g.operation(f, "(%)::integer", v(booleans))
	default:
		return g.operation(f, "(% ->> 'n')::integer", g.exactDocument(v(documents)))
	}
}

// exactDocument leaves only documents whose n is an integer.
func (g *maker) exactDocument(v value) value {
	if len(v.parts) > 0 {
		return g.made(basics[documents], leaf(`'{"n": 3}'::jsonb`))
	}
	return v
}

func (g *maker) computedText(s *scope, v, t func(family) value) value {
	const f = texts
	switch g.IntN(12) {
	case 9:
		if s.below == nil && len(s.relations) > 0 {
			if r := pick(g, s.relations...); r.table != nil {
				return g.operation(f, "(%)::text", g.made(basics[texts], leaf(r.alias)))
			}
		}
		return v(f)
	case 10:
		return g.operation(f, "(% at time zone 'Europe/Berlin')::text", t(times))
	case 11:
		return g.operation(f, "(% - %)::text", t(times), t(times))
	case 0, 1:
		return g.operation(f, "(% || %)", v(f), v(f))
	case 2:
		return g.operation(f, pick(g, "upper(%)", "lower(%)", "md5(%)", "trim(%)", "reverse(%)"), v(f))
	case 3:
		return g.operation(f, pick(g, "left(%, 1)", "substr(%, 2)", "right(%, 1)"), v(f))
	case 4:
		return g.operation(f, "to_char(%, 'YYYY-MM')", v(pick(g, dates, times)))
	case 5:
		return g.operation(f, "(% ->> 's')", v(documents))
	case 6:
		return g.collate(v(f))
	default:
		v := g.operation(f, "(%)::text", v(pick(g, integers, numerics, floats, booleans, uuids, arrays, documents, moods, dates)))
		v.collation = "default"
		return v
	}
}

// total lists what tells all rows of a scope apart, as far as they can be told apart.
func (g *maker) total(s *scope) []value {
	if s.below != nil {
		return slices.Clone(s.grouped)
	}
	var all []value
	for _, r := range s.relations {
		for _, c := range r.unique {
			all = append(all, g.exact(g.reference(r, c)))
		}
	}
	return all
}

// sorted writes a key of an order with a direction.
func (g *maker) sorted(v *node) *node {
	return phrase("%"+pick(g, "", "", " desc", " asc", " nulls first", " desc nulls last", " nulls last", " desc nulls first"), v)
}

// orderBy writes an order by these values, nothing if there are none.
func (g *maker) orderBy(values []value) *node {
	keys := make([]*node, len(values))
	for i, v := range values {
		keys[i] = g.sorted(v.node)
	}
	return list(" order by %", ", ", keys...)
}

// commas writes values with commas between them.
func commas(values []value) *node {
	nodes := make([]*node, len(values))
	for i, v := range values {
		nodes[i] = v.node
	}
	return filled("%", ", ", nodes...)
}

// constantKey is a key of the table's keyspace, a value for each of its columns.
func (g *maker) constantKey(space *keyspace) []value {
	sample := pick(g, space.samples...)
	values := make([]value, len(sample))
	for i, text := range sample {
		c := space.columns[i]
		k := keyedColumn(c).kind
		switch {
		case !g.literal && g.chance(50):
			p := &param{typeName: c.wire, value: &sample[i]}
			if g.chance(30) {
				p.typeName = "?"
			}
			values[i] = g.made(k, &node{param: p})
		default:
			literal := c.literal(text)
			if strings.HasPrefix(literal, "-") {
				literal = "(" + literal + ")"
			}
			values[i] = g.made(k, leaf(literal))
		}
	}
	return values
}
