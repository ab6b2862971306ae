package plan_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// inventor makes up statements over the tables of schema toy, in which all columns are integers and many have the same name. What
// PostgreSQL refuses among them is no loss: it must be refused on every shard too.
type inventor struct {
	*rand.Rand
	aliases int
	// values are those of the parameters.
	values []string
}

// named is a relation that can be seen, with its columns.
type named struct {
	name    string
	columns []string
}

// sight is what can be seen from a place, the innermost first.
type sight struct {
	relations []named
	outer     *sight
}

var toys = []named{
	{"a", []string{"k", "x", "i"}}, {"b", []string{"k", "x", "y"}}, {"c", []string{"x", "k"}}, {"r", []string{"x", "y"}}, {"q", []string{"k", "x"}},
}

func (g *inventor) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g *inventor, of []T) T { return of[g.IntN(len(of))] }

func (g *inventor) alias() string {
	g.aliases++
	return pick(g, []string{"t", "u", "v", "a", "b"}) + strconv.Itoa(g.aliases)
}

// column writes a column that can be seen.
func (g *inventor) column(s *sight) string {
	for s.outer != nil && (len(s.relations) == 0 || len(s.outer.relations) > 0 && g.chance(25)) {
		s = s.outer
	}
	if len(s.relations) == 0 {
		return "1"
	}
	r := pick(g, s.relations)
	c := pick(g, r.columns)
	if g.chance(70) && slices.Contains(r.columns, "k") {
		c = "k"
	}
	if g.chance(25) && slices.Contains(r.columns, "i") {
		c = "i"
	}
	if g.chance(10) {
		return c
	}
	return r.name + "." + c
}

// value writes a value: mostly one of a few parameters, so that keys meet.
func (g *inventor) value() string {
	if g.chance(25) {
		return strconv.Itoa(g.IntN(6))
	}
	return "$" + strconv.Itoa(1+g.IntN(2))
}

// whole writes a condition on all columns that may be a key, of one relation or of two.
func (g *inventor) whole(s *sight) string {
	for s.outer != nil && len(s.relations) == 0 {
		s = s.outer
	}
	if len(s.relations) == 0 {
		return "true"
	}
	one, other := pick(g, s.relations).name, pick(g, s.relations).name
	switch g.IntN(4) {
	case 0:
		return "(" + one + ".k, " + one + ".x) = (" + g.value() + ", " + g.value() + ")"
	case 1:
		return "(" + one + ".k, " + one + ".x) in ((" + g.value() + ", " + g.value() + "), (" + g.value() + ", " + g.value() + "))"
	case 2:
		return "((" + one + ".k = " + g.value() + " and " + one + ".x = " + g.value() + ") or (" + one + ".x = " + g.value() + " and " + one + ".k = any ($3)))"
	default:
		return one + ".k = " + other + ".k and " + one + ".x = " + other + ".x"
	}
}

func (g *inventor) condition(s *sight, depth int) string {
	if g.chance(12) {
		return g.whole(s)
	}
	switch n := g.IntN(100); {
	case n < 36:
		return g.column(s) + " = " + g.value()
	case n < 66:
		return g.column(s) + " = " + g.column(s)
	case n < 69:
		return g.column(s) + " in (" + g.value() + ", " + g.value() + ")"
	case n < 71:
		return g.column(s) + " = any ($3)"
	case n < 74:
		return g.column(s) + pick(g, []string{" < ", " >= ", " <> "}) + g.value()
	case n < 76:
		return g.column(s) + " is null"
	case n < 78:
		return "(" + g.column(s) + ", " + g.column(s) + ") = (" + g.value() + ", " + g.column(s) + ")"
	case n < 84:
		return "(" + g.condition(s, depth-1) + pick(g, []string{" or ", " or ", " and "}) + g.condition(s, depth-1) + ")"
	case n < 86:
		return "not (" + g.condition(s, depth-1) + ")"
	case depth <= 0:
		return "true"
	case n < 95:
		sql, _ := g.query(s, nil, depth-1, 1)
		return "exists (" + sql + ")"
	default:
		sql, _ := g.query(s, nil, depth-1, 1)
		return g.column(s) + " in (" + sql + ")"
	}
}

// conditions writes several that AND joins.
func (g *inventor) conditions(s *sight, depth int) string {
	parts := []string{g.condition(s, depth)}
	for g.chance(40) {
		parts = append(parts, g.condition(s, depth))
	}
	return strings.Join(parts, " and ")
}

// item writes an item of FROM. Before is what stands before it.
func (g *inventor) item(outer *sight, before []named, commons []named, depth int) (string, []named) {
	switch n := g.IntN(100); {
	case depth > 0 && n < 22:
		return g.derived(outer, before, commons, depth)
	case depth > 0 && n < 50:
		return g.join(outer, before, commons, depth)
	case len(commons) > 0 && g.chance(40):
		r, alias := pick(g, commons), g.alias()
		return r.name + " as " + alias, []named{{alias, r.columns}}
	case g.chance(5):
		alias := g.alias()
		return "(values (" + g.value() + "::bigint, 1), (" + g.value() + ", 2)) as " + alias + "(k, x)", []named{{alias, []string{"k", "x"}}}
	}
	r := pick(g, toys)
	alias := g.alias()
	if g.chance(10) {
		return r.name + " as " + alias + "(z, k)", []named{{alias, append([]string{"z", "k"}, r.columns[2:]...)}}
	}
	return r.name + " as " + alias, []named{{alias, r.columns}}
}

func (g *inventor) derived(outer *sight, before, commons []named, depth int) (string, []named) {
	alias, lateral, s := g.alias(), "", outer
	if g.chance(35) && len(before) > 0 {
		lateral, s = "lateral ", &sight{before, outer}
	}
	sql, columns := g.query(s, commons, depth-1, 1+g.IntN(2))
	return lateral + "(" + sql + ") as " + alias, []named{{alias, columns}}
}

func (g *inventor) join(outer *sight, before, commons []named, depth int) (string, []named) {
	left, l := g.item(outer, before, commons, depth-1)
	right, r := g.item(outer, slices.Concat(before, l), commons, depth-1)
	both := slices.Concat(l, r)
	kind := pick(g, []string{" join ", " join ", " left join ", " left join ", " right join ", " full join "})
	switch n := g.IntN(100); {
	case n < 8:
		return "(" + left + kind + right + " using (k))", both
	case n < 10:
		return "(" + left + " natural" + kind + right + ")", both
	case n < 30 && kind != " full join ":
		on := l[0].name + "." + l[0].columns[0] + " = " + r[0].name + "." + r[0].columns[0]
		return "(" + left + kind + right + " on " + on + ")", both
	}
	s := &sight{both, outer}
	if kind == " full join " { // PostgreSQL supports equalities there alone
		return "(" + left + kind + right + " on " + l[0].name + ".k = " + r[0].name + ".k)", both
	}
	return "(" + left + kind + right + " on " + g.conditions(s, depth-1) + ")", both
}

// query writes a query with so many columns, and returns their names.
func (g *inventor) query(outer *sight, commons []named, depth, width int) (string, []string) {
	with := ""
	if depth > 0 && g.chance(12) {
		name := g.alias()
		sql, columns := g.query(outer, commons, depth-1, 1+g.IntN(2))
		with = "with " + name + " as (" + sql + ") "
		commons = append(slices.Clone(commons), named{name, columns})
	}
	if depth > 0 && g.chance(6) {
		name, first, second := g.alias(), g.alias(), g.alias()
		base, columns := g.selection(outer, commons, 0, 2)
		step := "select " + g.column(&sight{relations: []named{{second, []string{"k", "x"}}, {first, columns}}}) + ", " + second + ".x + 1 from a as " + second +
			" join " + name + " as " + first + " on " + g.conditions(&sight{relations: []named{{second, []string{"k", "x"}}, {first, columns}}}, 0) + " where " + second + ".x < 4"
		with = "with recursive " + name + " as ((" + base + ") union " + step + ") "
		commons = append(slices.Clone(commons), named{name, columns})
	}
	if depth > 0 && g.chance(12) {
		left, columns := g.query(outer, commons, depth-1, width)
		right, _ := g.query(outer, commons, depth-1, width)
		operation := pick(g, []string{" union ", " union all ", " except ", " intersect ", " except all "})
		return with + "(" + left + ")" + operation + "(" + right + ")" + g.limit(width, 8), columns
	}
	sql, columns := g.selection(outer, commons, depth, width)
	return with + sql, columns
}

// limit sorts by all columns before it cuts, so that there is one answer.
func (g *inventor) limit(width, percent int) string {
	if !g.chance(percent) {
		return ""
	}
	places := make([]string, width)
	for i := range places {
		places[i] = strconv.Itoa(i + 1)
	}
	return " order by " + strings.Join(places, ", ") + pick(g, []string{"", " limit 2", " offset 1"})
}

func (g *inventor) selection(outer *sight, commons []named, depth, width int) (string, []string) {
	var items []string
	s := &sight{outer: outer}
	for len(items) == 0 || g.chance(15) {
		sql, relations := g.item(outer, s.relations, commons, depth)
		items = append(items, sql)
		s.relations = append(s.relations, relations...)
	}
	columns, outputs, grouped := make([]string, width), make([]string, width), make([]string, width)
	for i := range columns {
		grouped[i] = g.column(s)
		columns[i] = pick(g, []string{"k", "x", "m", "n"}) + strings.Repeat("_", i)
		outputs[i] = grouped[i] + " as " + columns[i]
	}
	distinct, tail := "", ""
	switch n := g.IntN(100); {
	case n < 8:
		distinct = "distinct "
	case n < 12:
		distinct, tail = "distinct on ("+grouped[0]+") ", " order by "+strings.Join(grouped, ", ")
	case n < 24:
		tail = " group by " + strings.Join(grouped, ", ")
		outputs[width-1] = pick(g, []string{"count(*)", "max(" + g.column(s) + ")", grouped[width-1]}) + " as " + columns[width-1]
	case n < 28:
		outputs[width-1] = pick(g, []string{"count(*)", "sum(" + g.column(s) + ")"}) + " as " + columns[width-1]
	case n < 34:
		outputs[width-1] = "rank() over (partition by " + g.column(s) + " order by " + g.column(s) + ") as " + columns[width-1]
	case n < 40 && depth > 0:
		inner, _ := g.query(s, commons, 0, 1)
		outputs[width-1] = "(select count(*) from (" + inner + ") as w) as " + columns[width-1]
	}
	where := ""
	if g.chance(70) {
		where = " where " + g.conditions(s, depth)
	}
	if tail == "" || strings.HasPrefix(tail, " group") {
		tail += g.limit(width, 8)
	}
	return "select " + distinct + strings.Join(outputs, ", ") + " from " + strings.Join(items, ", ") + where + tail, columns
}

// statement writes a statement of any kind.
func (g *inventor) statement() string {
	target := pick(g, toys[:3])
	s := &sight{relations: []named{target}}
	switch n := g.IntN(100); {
	case n < 70:
		sql, _ := g.query(nowhere, nil, g.IntN(3), 1+g.IntN(2))
		return sql
	case n < 78:
		return g.update(target, s)
	case n < 86:
		using := ""
		if g.chance(50) {
			item, relations := g.item(nowhere, nil, nil, 1)
			using = " using " + item
			s.relations = append(s.relations, relations...)
		}
		return "delete from " + target.name + using + " where " + g.conditions(s, 1) + g.returning(target)
	case n < 93:
		sql, _ := g.query(nowhere, nil, 1, 2)
		return "insert into " + target.name + " (k, x) " + sql + g.returning(target)
	case n < 96:
		return g.merge(target)
	default:
		return g.writingCommon(target)
	}
}

// nowhere is a place from which nothing can be seen.
var nowhere = &sight{}

func (g *inventor) returning(target named) string {
	if g.chance(50) {
		return ""
	}
	if g.chance(30) {
		return " returning " + target.name + ".k, (select count(*) from b as z where z.k = " + target.name + ".k)"
	}
	return " returning " + target.name + ".k"
}

func (g *inventor) update(target named, s *sight) string {
	from := ""
	if g.chance(40) {
		item, relations := g.item(nowhere, nil, nil, 1)
		from = " from " + item
		s.relations = append(s.relations, relations...)
	}
	set := "x = " + target.name + ".x + 1"
	if g.chance(20) {
		set = "k = " + pick(g, []string{g.value(), target.name + ".k"})
	}
	return "update " + target.name + " set " + set + from + " where " + g.conditions(s, 1) + g.returning(target)
}

func (g *inventor) merge(target named) string {
	item, relations := g.item(nowhere, nil, nil, 1)
	s := &sight{relations: append([]named{target}, relations...)}
	when := " when matched then update set x = 9"
	if g.chance(50) {
		when += " when not matched then insert (k, x) values (" + pick(g, []string{g.value(), g.column(&sight{relations: relations})}) + ", 7)"
	}
	return "merge into " + target.name + " using " + item + " on " + target.name + ".k = " + pick(g, []string{g.value(), g.column(&sight{relations: relations})}) + " and " + g.condition(s, 0) + when
}

func (g *inventor) writingCommon(target named) string {
	s := &sight{relations: []named{target}}
	first := pick(g, []string{
		"delete from " + target.name + " where " + g.conditions(s, 1) + " returning k, x",
		"update " + target.name + " set x = 8 where " + g.conditions(s, 1) + " returning k, x",
		"insert into " + target.name + " (k, x) values (" + g.value() + ", 5) returning k, x",
	})
	if g.chance(40) {
		return "with w as (" + first + ") insert into b (k, x) select w.k, w.x from w"
	}
	sql, _ := g.selection(nowhere, []named{{"w", []string{"k", "x"}}}, 1, 1)
	return "with w as (" + first + ") " + sql
}
