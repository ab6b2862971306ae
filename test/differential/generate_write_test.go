package differential_test

import (
	"slices"
	"strconv"
	"strings"
)

// write makes up a statement that writes. What it does must not depend on the order of rows: a row is written once at most, or
// always in the same way.
func (g *maker) write() *statement {
	g.bound = g.chance(35)
	target := g.pickTable()
	st := &statement{targets: []*table{target}, outputs: list("%", ", ")}
	switch n := g.IntN(100); {
	case n < 22:
		st.root = g.insertValues(target)
	case n < 38:
		st.root = g.insertQuery(target)
	case n < 43:
		st.root = g.insertGroups(target)
	case n < 62:
		st.root = g.update(target)
	case n < 78:
		st.root = g.delete(target)
	case n < 90:
		st.root = g.merge(target)
	default:
		g.writingCommon(st, target)
	}
	return st
}

// self is the target as the statement names it.
func self(t *table) *relation {
	return &relation{alias: "target", columns: t.columns, unique: t.unique(), table: t}
}

// returning is RETURNING with columns of the target alone.
func (g *maker) returning(t *table) *node {
	if g.chance(50) {
		return nothing()
	}
	if g.chance(25) {
		return optional(" returning target.*")
	}
	g.shape("returning")
	parts := make([]*node, 1+g.IntN(2))
	for i := range parts {
		parts[i] = g.value(&scope{relations: []*relation{self(t)}}, g.family(), 1).node
	}
	return list(" returning %", ", ", parts...)
}

// someColumns are the key, the id, and some other columns of a table.
func (g *maker) someColumns(t *table) []column {
	chosen := []column{}
	for _, c := range t.columns {
		if c.isKey || c.name == "id" || g.chance(40) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// columnList writes names in parentheses, each a twin of its values.
func columnList(columns []column, twins []int) *node {
	names := make([]*node, len(columns))
	for i, c := range columns {
		names[i] = leaf(c.name)
		names[i].twin = twins[i]
	}
	return filled(" (%)", ", ", names...)
}

// stored is a value that a column can hold.
func (g *maker) stored(c column) *node {
	if g.chance(8) {
		return leaf("null")
	}
	if g.chance(4) {
		return leaf("default")
	}
	text := g.text(c)
	if !g.literal && g.chance(30) {
		p := param{typeName: c.wire, value: &text}
		if g.chance(30) {
			p.typeName = "?"
		}
		return &node{param: &p, label: labelOf(c.family)}
	}
	k := c.kind
	k.sql, _, _ = strings.Cut(k.sql, " collate")
	return &node{format: constant(k, text), label: labelOf(c.family)}
}

// insertValues writes some rows.
func (g *maker) insertValues(t *table) *node {
	g.shape("insert values")
	columns := g.someColumns(t)
	twins := g.someTwins(len(columns))
	rows := make([]*node, 1+g.IntN(4))
	for i := range rows {
		rows[i] = g.newRow(t, columns, twins, i)
	}
	return phrase("insert into "+t.name+" as target% values %%%", columnList(columns, twins), filled("%", ", ", rows...), g.onConflict(t), g.returning(t))
}

// newRow is a row whose id is new, or now and then one that is there.
func (g *maker) newRow(t *table, columns []column, twins []int, i int) *node {
	var key []value
	if t.isSharded() {
		key = g.constantKey(t.space)
		if g.bound {
			key = g.boundKey(t.space)
		}
	}
	parts := make([]*node, len(columns))
	for j, c := range columns {
		switch {
		case c.isKey:
			parts[j] = key[t.space.place(c.name)].node
		case c.name == "id" && g.chance(25):
			parts[j] = leaf(strconv.Itoa(1 + i))
		case c.name == "id":
			parts[j] = leaf(strconv.Itoa(1000 + i))
		default:
			parts[j] = g.stored(c)
		}
		parts[j] = phrase("%", parts[j])
		parts[j].twin = twins[j]
	}
	return filled("(%)", ", ", parts...)
}

// onConflict is an UPSERT, or nothing.
func (g *maker) onConflict(t *table) *node {
	if g.chance(55) {
		return nothing()
	}
	g.shape("on conflict")
	names := []string{"id"}
	if t.isSharded() {
		for _, c := range t.space.columns {
			names = append(names, c.name)
		}
	}
	place := " on conflict (" + strings.Join(names, ", ") + ") do "
	if g.chance(45) {
		return optional(pick(g, place+"nothing", " on conflict do nothing"))
	}
	c, found := g.settable(t)
	if !found {
		return optional(place + "nothing")
	}
	s := &scope{relations: []*relation{self(t), {alias: "excluded", columns: t.columns, unique: t.unique()}}}
	where := nothing()
	if g.chance(25) {
		where = optional(" where %", g.condition(s, 0))
	}
	return optional(place+"update set "+c.name+" = %%", g.assigned(s, c), where)
}

// settable picks a column that is neither key nor id.
func (g *maker) settable(t *table) (column, bool) {
	rest := slices.DeleteFunc(slices.Clone(t.columns), func(c column) bool { return c.isKey || c.name == "id" })
	if len(rest) == 0 {
		return column{}, false
	}
	return pick(g, rest...), true
}

// assigned is a value for a column, computed from what can be seen.
func (g *maker) assigned(s *scope, c column) *node {
	if c.name == "lvl" || c.name == "vtxt" || c.name == "price" || g.chance(30) {
		return g.stored(c)
	}
	v := g.tame(s, c.family, 1)
	if v.sql == "bigint" && c.sql != "bigint" {
		return g.stored(c)
	}
	return v.node
}

// insertQuery inserts what a query over one table gives: every row of it once, so that ids do not meet.
func (g *maker) insertQuery(t *table) *node {
	g.shape("insert select")
	source := g.pickTable()
	from := &relation{alias: "source", columns: source.columns, unique: source.unique(), table: source}
	s := &scope{relations: []*relation{from}}
	columns := g.someColumns(t)
	twins := g.someTwins(len(columns))
	key := g.keyFrom(t, from)
	parts := make([]*node, len(columns))
	for i, c := range columns {
		switch {
		case c.isKey:
			parts[i] = key[t.space.place(c.name)]
		case c.name == "id":
			parts[i] = leaf("source.id + " + pick(g, "1000", "1000", "1000", "0"))
		default:
			if parts[i] = g.assigned(s, c); parts[i].format == "default" {
				parts[i] = leaf("null")
			}
		}
		parts[i] = phrase("%", parts[i])
		parts[i].twin = twins[i]
	}
	order := nothing()
	if g.chance(10) {
		order = optional(" order by source.id limit 4")
	}
	return phrase("insert into "+t.name+" as target% select % from "+source.name+" as source%%%%",
		columnList(columns, twins), filled("%", ", ", parts...), g.where(s, 1), order, g.onConflict(t), g.returning(t))
}

// insertGroups inserts a row for each key of a table, or one for all of its rows.
func (g *maker) insertGroups(t *table) *node {
	g.shape("insert groups")
	source := g.pickTable()
	from := &relation{alias: "source", columns: source.columns, unique: source.unique(), table: source}
	s := &scope{relations: []*relation{from}}
	names, parts, groups := []string{"id"}, []*node{leaf("coalesce(max(source.id), 0) + 2000")}, []*node(nil)
	if t.isSharded() {
		key := g.keyFrom(t, from)
		for i, c := range t.space.columns {
			names, parts = append(names, c.name), append(parts, key[i])
			if len(key[i].parts) == 0 {
				groups = append(groups, key[i])
			}
		}
	}
	if c, found := g.settable(t); found && c.name != "lvl" && c.name != "vtxt" && c.name != "price" {
		if v := g.aggregate(s, c.family); v.sql == c.sql {
			names, parts = append(names, c.name), append(parts, v.node)
		}
	}
	return phrase("insert into "+t.name+" as target ("+strings.Join(names, ", ")+") select % from "+source.name+" as source%%%",
		filled("%", ", ", parts...), g.where(s, 0), list(" group by %", ", ", groups...), g.returning(t))
}

// keyFrom is where an inserted row's key comes from: the source's own key if it can be one, or a constant.
func (g *maker) keyFrom(t *table, source *relation) []*node {
	if !t.isSharded() {
		return nil
	}
	nodes := make([]*node, len(t.space.columns))
	constants := g.constantKey(t.space)
	if g.bound {
		constants = g.boundKey(t.space)
	}
	taken := source.table.isSharded() && sameTypes(t.space, source.table.space) && g.chance(75)
	for i := range nodes {
		nodes[i] = phrase("%::"+t.space.columns[i].sql, constants[i].node)
		if taken {
			nodes[i] = leaf("source." + source.table.space.columns[i].name)
		}
	}
	return nodes
}

// sameTypes says whether keys of one keyspace can be those of another.
func sameTypes(a, b *keyspace) bool {
	return slices.EqualFunc(a.columns, b.columns, func(c, d keyColumn) bool { return c.sql == d.sql })
}

// update sets columns, from the row itself, or from one other row that has the same id.
func (g *maker) update(t *table) *node {
	g.shape("update")
	s := &scope{relations: []*relation{self(t)}}
	values := s
	from, meet := nothing(), []*node(nil)
	if g.chance(40) {
		g.shape("update from")
		values = &scope{relations: s.relations}
		from, meet = g.partner(t, values)
	}
	var sets []*node
	for range 1 + g.IntN(2) {
		if c, found := g.settable(t); found && !slices.ContainsFunc(sets, func(n *node) bool { return strings.HasPrefix(n.format, c.name+" ") }) {
			sets = append(sets, phrase(c.name+" = %", g.assigned(values, c)))
		}
	}
	if len(sets) == 0 || g.chance(12) {
		sets = append(sets, g.setKey(t)...)
	}
	where := g.where(s, 1)
	where.parts = append(where.parts, meet...)
	return phrase("update "+t.name+" as target set %%%%", filled("%", ", ", sets...), from, where, g.returning(t))
}

// setKey changes the id, or the key of a row.
func (g *maker) setKey(t *table) []*node {
	if !t.isSharded() || g.chance(40) {
		return []*node{leaf("id = target.id + 500")}
	}
	g.shape("update key")
	key := g.constantKey(t.space)
	sets := make([]*node, len(key))
	for i, v := range key {
		sets[i] = phrase(t.space.columns[i].name+" = %", v.node)
	}
	return sets
}

// partner is another table in FROM or USING, of which one row at most meets each row of the target.
func (g *maker) partner(t *table, values *scope) (from *node, meet []*node) {
	other := g.pickTable()
	r := &relation{alias: "other", columns: other.columns, unique: other.unique(), table: other}
	values.relations = append(slices.Clone(values.relations), r)
	meet = []*node{leaf("other.id = target.id")}
	if t.isSharded() && other.isSharded() && g.chance(75) {
		if n := g.keysMeet(self(t), r); n != nil {
			meet = append(meet, n)
		}
	}
	return phrase(" from " + other.name + " as other"), meet
}

// delete deletes rows that meet a condition, or rows of another table.
func (g *maker) delete(t *table) *node {
	g.shape("delete")
	s := &scope{relations: []*relation{self(t)}}
	using, meet := nothing(), []*node(nil)
	if g.chance(35) {
		g.shape("delete using")
		other := g.pickTable()
		r := &relation{alias: "other", columns: other.columns, unique: other.unique(), table: other}
		using = leaf(" using " + other.name + " as other")
		meet = []*node{g.join(s.relations, []*relation{r}, nil, 1)}
	}
	where := g.where(s, 1)
	where.parts = append(where.parts, meet...)
	return phrase("delete from "+t.name+" as target%%%", using, where, g.returning(t))
}

// merge joins another table, of which one row at most meets each of the target's.
func (g *maker) merge(t *table) *node {
	g.shape("merge")
	source := g.pickTable()
	r := &relation{alias: "source", columns: source.columns, unique: source.unique(), table: source}
	both := &scope{relations: []*relation{self(t), r}}
	on := []*node{leaf("target.id = source.id")}
	if t.isSharded() {
		if n := g.mergeKey(t, r); n != nil {
			on = append(on, n)
		}
	}
	var whens []*node
	if c, found := g.settable(t); found {
		whens = append(whens, phrase(" when matched% then update set "+c.name+" = %", g.also(both), g.assigned(both, c)))
	}
	if g.chance(40) {
		whens = append(whens, phrase(" when matched% then "+pick(g, "delete", "do nothing"), g.also(both)))
	}
	if g.chance(60) {
		whens = append(whens, g.mergeInsert(t, r))
	}
	if len(whens) == 0 {
		whens = []*node{leaf(" when matched then delete")}
	}
	return phrase("merge into "+t.name+" as target using "+source.name+" as source on %%", filled("%", " and ", on...), filled("%", "", whens...))
}

// mergeKey binds the target's key, to the source's or to a constant.
func (g *maker) mergeKey(t *table, source *relation) *node {
	if source.table.isSharded() && g.chance(80) {
		if n := g.keysMeet(self(t), source); n != nil {
			return n
		}
	}
	if g.chance(60) {
		return g.keyEquals(self(t), g.boundKey(t.space))
	}
	return nil
}

func (g *maker) also(s *scope) *node {
	if g.chance(60) {
		return nothing()
	}
	return optional(" and %", g.condition(s, 0))
}

func (g *maker) mergeInsert(t *table, source *relation) *node {
	columns := slices.DeleteFunc(slices.Clone(t.columns), func(c column) bool { return !c.isKey && c.name != "id" })
	twins := g.someTwins(len(columns))
	key := g.keyFrom(t, source)
	parts := make([]*node, len(columns))
	for i, c := range columns {
		parts[i] = leaf("source.id + 1000")
		if c.isKey {
			parts[i] = key[t.space.place(c.name)]
		}
	}
	return phrase(" when not matched% then insert% values (%)", g.also(&scope{relations: []*relation{source}}), columnList(columns, twins), filled("%", ", ", parts...))
}

// writingCommon is a statement with a common table expression that writes, which another part reads, or writes elsewhere.
func (g *maker) writingCommon(st *statement, t *table) {
	g.shape("writing with")
	var inner *node
	switch g.IntN(3) {
	case 0:
		inner = g.insertValues(t)
	case 1:
		inner = g.update(t)
	default:
		inner = g.delete(t)
	}
	inner.parts[len(inner.parts)-1] = leaf(" returning target.*")
	columns := t.columns
	w := &relation{alias: "w", columns: columns, unique: t.unique()}
	other := g.pickTable()
	if g.chance(35) && !other.isSharded() && other != t {
		st.targets = append(st.targets, other)
		st.root = phrase("with w as (%) insert into "+other.name+" (id) select distinct w.id + 3000 from w", inner)
		return
	}
	s := &scope{commons: []*relation{w}}
	want := g.families(1 + g.IntN(2))
	sel := g.selection(s, g.wish(want), 0)
	st.outputs = sel.outputs
	st.root = phrase("with w as (%) %", inner, sel.node)
}

// place says which of the key's columns this is.
func (k *keyspace) place(name string) int {
	at := slices.IndexFunc(k.columns, func(c keyColumn) bool { return c.name == name })
	if at < 0 {
		panic("the key has no column " + name)
	}
	return at
}
