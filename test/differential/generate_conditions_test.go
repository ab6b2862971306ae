package differential_test

import (
	"fmt"
	"slices"
)

// condition makes up a condition.
func (g *maker) condition(s *scope, depth int) *node {
	n := g.anyCondition(s, depth)
	n.label, n.simple = labelOf(booleans), "true"
	return n
}

func (g *maker) anyCondition(s *scope, depth int) *node {
	if depth > 0 {
		switch n := g.IntN(100); {
		case n < 10:
			return filled("(%)", pick(g, " or ", " and "), g.condition(s, depth-1), g.condition(s, depth-1))
		case n < 14:
			return phrase("not (%)", g.condition(s, depth-1))
		case n < 40:
			return g.subqueryCondition(s, depth)
		}
	}
	f := g.family()
	switch n := g.IntN(100); {
	case n < 18 && s.below == nil:
		return g.keyCondition(s)
	case n < 55:
		return g.comparison(s, f, depth)
	case n < 65:
		return phrase(pick(g, "% is null", "% is not null"), g.value(s, f, depth-1).node)
	case n < 72:
		a, b := g.alike(g.value(s, f, depth-1), g.value(s, f, depth-1))
		return phrase(pick(g, "% is distinct from %", "% is not distinct from %"), a.node, b.node)
	case n < 80:
		return g.listCondition(s, f, depth)
	case n < 85:
		a := g.value(s, f, depth-1)
		a, low := g.alike(a, g.constant(f))
		return phrase(pick(g, "% between % and %", "% not between % and %"), a.node, low.node, g.constant(f).node)
	case n < 91:
		pattern := pick(g, "like 'a%'", "not like '%a'", "ilike 'A%'", "~ '^[a-z]'", "like '_'", "like '%' || 'b' || '%'")
		return phrase("% %", g.value(s, texts, depth-1).node, leaf(pattern))
	case n < 95:
		return g.rowComparison(s, depth)
	default:
		return g.atom(s, booleans).node
	}
}

func (g *maker) comparison(s *scope, f family, depth int) *node {
	operators := []string{"=", "=", "=", "<", ">", "<=", ">=", "<>"}
	if f == arrays || f == documents {
		operators = append(operators, "@>", "<@")
	}
	if v, found := g.column(s, f, false); found && s.below == nil && g.chance(40) {
		return phrase("% "+pick(g, operators...)+" %", v.node, g.loose(f).node)
	}
	a := g.value(s, f, depth-1)
	b := g.constant(f)
	if g.chance(55) {
		b = g.value(s, f, depth-1)
	}
	a, b = g.alike(a, b)
	return phrase("% "+pick(g, operators...)+" %", a.node, b.node)
}

func (g *maker) rowComparison(s *scope, depth int) *node {
	f, h := g.family(), g.family()
	a, c := g.alike(g.value(s, f, depth-1), g.value(s, f, depth-1))
	b, d := g.alike(g.value(s, h, depth-1), g.value(s, h, depth-1))
	return phrase("(%, %) "+pick(g, "=", "<", ">=", "<>", "is distinct from")+" (%, %)", a.node, b.node, c.node, d.node)
}

func (g *maker) listCondition(s *scope, f family, depth int) *node {
	a := g.value(s, f, depth-1)
	items := make([]*node, 1+g.IntN(4))
	for i := range items {
		items[i] = g.constant(f).node
		if a.isColumn {
			items[i] = g.loose(f).node
		}
	}
	if g.chance(25) {
		return phrase("% = any (array[%])", a.node, filled("%", ", ", items...))
	}
	return phrase(pick(g, "% in (%)", "% in (%)", "% not in (%)"), a.node, filled("%", ", ", items...))
}

// sharded lists the relations of a scope that are sharded tables.
func (s *scope) sharded() []*relation {
	var found []*relation
	for _, r := range s.relations {
		if r.table != nil && r.table.isSharded() {
			found = append(found, r)
		}
	}
	return found
}

// keyCondition is about a whole shard key.
func (g *maker) keyCondition(s *scope) *node {
	found := s.sharded()
	if len(found) == 0 {
		return g.comparison(s, g.family(), 0)
	}
	r := pick(g, found...)
	switch n := g.IntN(100); {
	case n < 55:
		return g.keyEquals(r, g.constantKey(r.table.space))
	case n < 80:
		return g.keyIn(r)
	case n < 90:
		c := r.table.space.columns[0]
		return phrase(r.alias+"."+c.name+pick(g, " < ", " > ", " <= ", " >= ")+"%", g.constantKey(r.table.space)[0].node)
	default:
		return filled("(%)", " or ", g.keyEquals(r, g.constantKey(r.table.space)), g.keyEquals(r, g.constantKey(r.table.space)))
	}
}

func (g *maker) keyEquals(r *relation, values []value) *node {
	parts := make([]*node, len(values))
	for i, c := range r.table.space.columns {
		parts[i] = phrase(r.alias+"."+c.name+" = %", values[i].node)
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return filled("(%)", " and ", parts...)
}

func (g *maker) keyIn(r *relation) *node {
	names := make([]*node, len(r.table.space.columns))
	for i, c := range r.table.space.columns {
		names[i] = leaf(r.alias + "." + c.name)
	}
	items := make([]*node, 1+g.IntN(4))
	for i := range items {
		items[i] = commas(g.constantKey(r.table.space))
		if len(names) > 1 {
			items[i] = phrase("(%)", items[i])
		}
	}
	return phrase("(%) in (%)", list("%", ", ", names...), filled("%", ", ", items...))
}

// join is a condition on which two sides meet: mostly their keys, or columns of one name.
func (g *maker) join(left, right []*relation, outer *scope, depth int) *node {
	both := &scope{relations: append(slices.Clone(left), right...), outer: outer, commons: outer.visibleCommons()}
	equal := g.meeting(left, right)
	switch {
	case equal == nil:
		return g.condition(both, depth-1)
	case g.chance(30):
		return filled("%", " and ", equal, g.condition(both, depth-1))
	case g.chance(8):
		return g.condition(both, depth-1)
	default:
		return equal
	}
}

// meeting says that a column of one side equals one of the other, nil if there are none to compare.
func (g *maker) meeting(left, right []*relation) *node {
	a, b := pick(g, left...), pick(g, right...)
	if a.table != nil && b.table != nil && a.table.isSharded() && b.table.isSharded() && g.chance(65) {
		if n := g.keysMeet(a, b); n != nil {
			return n
		}
	}
	for range 8 {
		c, d := pick(g, a.columns...), pick(g, b.columns...)
		if c.family == d.family && (c.name == d.name || g.chance(40)) {
			x, y := g.alike(g.reference(a, c), g.reference(b, d))
			n := phrase("% = %", x.node, y.node)
			n.label, n.simple = labelOf(booleans), "true"
			return n
		}
	}
	return nil
}

// keysMeet compares whole keys, nil if they cannot be.
func (g *maker) keysMeet(a, b *relation) *node {
	keys, others := a.table.space.columns, b.table.space.columns
	if len(keys) != len(others) || keyFamilies[keys[0].wire] != keyFamilies[others[0].wire] {
		return nil
	}
	parts := make([]*node, len(keys))
	for i := range keys {
		parts[i] = leaf(fmt.Sprintf("%s.%s = %s.%s", a.alias, keys[i].name, b.alias, others[i].name))
	}
	n := filled("%", " and ", parts...)
	n.label, n.simple = labelOf(booleans), "true"
	return n
}

// subqueryCondition has a query inside.
func (g *maker) subqueryCondition(s *scope, depth int) *node {
	f := g.family()
	switch g.IntN(7) {
	case 0, 1:
		g.shape("exists")
		if g.chance(25) {
			from, inner := g.source(s, depth-1)
			return phrase(pick(g, "exists (select%%)", "not exists (select%%)"), from, g.where(inner, depth-1))
		}
		query, _ := g.query(s, []family{integers}, depth-1)
		return phrase(pick(g, "exists (%)", "not exists (%)"), query)
	case 2, 3:
		g.shape("in subquery")
		query, columns := g.query(s, []family{f}, depth-1)
		a := g.fitting(g.value(s, f, 0), columns[0])
		return phrase(pick(g, "% in (%)", "% in (%)", "% not in (%)"), a.node, query)
	case 4:
		g.shape("any subquery")
		query, columns := g.query(s, []family{f}, depth-1)
		a := g.fitting(g.value(s, f, 0), columns[0])
		return phrase("% "+pick(g, "=", "<", ">", "<>", ">=")+pick(g, " any (%)", " all (%)", " some (%)"), a.node, query)
	case 5:
		g.shape("row in subquery")
		h := g.family()
		query, columns := g.query(s, []family{f, h}, depth-1)
		a, b := g.fitting(g.value(s, f, 0), columns[0]), g.fitting(g.value(s, h, 0), columns[1])
		return phrase("(%, %)"+pick(g, " in (%)", " not in (%)", " = any (%)"), a.node, b.node, query)
	default:
		a, b := g.alike(g.value(s, f, 0), g.scalar(s, f, depth))
		return phrase("% "+pick(g, "=", "<", ">=", "<>")+" %", a.node, b.node)
	}
}

// fitting gives a text the collation that it needs to be compared with a column.
func (g *maker) fitting(v value, c column) value {
	v, _ = g.alike(v, value{kind: c.kind})
	return v
}
