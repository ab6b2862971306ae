package plan

import (
	"slices"
	"strconv"

	"github.com/cleavedb/cleave/internal/facts"
)

func itoa(n int) string { return strconv.Itoa(n) }

// from builds a FROM clause and returns what it shows.
func (x *proof) from(items []*facts.Source, at place) view {
	var all view
	for _, f := range items {
		all = all.join(x.source(f, at, &all))
	}
	return all
}

// source builds an item of FROM. Before is what stands before it, which it can see if it is LATERAL.
func (x *proof) source(f *facts.Source, at place, before *view) view {
	switch f.Kind {
	case facts.TableSource:
		x.inside(f.Queries, &scope{view: *before, outer: at.outer})
		return x.table(f, at.obstacle)
	case facts.QuerySource:
		inner := at
		if f.Lateral {
			inner.outer = &scope{view: *before, outer: at.outer}
		}
		return x.derived(f, x.build(f.Query, inner), nil)
	case facts.CommonSource:
		b := x.common(f.Common, at.obstacle)
		if b == nil {
			return x.opaque(f)
		}
		return x.derived(f, b, f.Common)
	case facts.JoinSource:
		return x.join(f, at, before)
	default:
		x.inside(f.Queries, &scope{view: *before, outer: at.outer})
		return x.opaque(f)
	}
}

// opaque is a source whose columns are not known but for names that it is given.
func (x *proof) opaque(f *facts.Source) view {
	list := make([]visible, len(f.Columns))
	for i, name := range f.Columns {
		list[i] = visible{name: name}
	}
	columns := [][]visible{list}
	return view{items: []item{{name: f.Name, columns: columns, open: true}}, columns: columns, open: true, nameless: f.Nameless}
}

func (x *proof) newSource(title string) *source {
	s := &source{number: x.sources, title: title, x: x}
	x.sources++
	return s
}

// table builds a table that is named.
func (x *proof) table(f *facts.Source, obstacle string) view {
	r := &x.tables[f.Table]
	if r.relation == nil {
		return x.opaque(f)
	}
	s := x.tableSource(f)
	if r.class == sharded {
		x.occur(s, r, f.Table, obstacle)
	}
	return s.view(f, r)
}

func (x *proof) tableSource(f *facts.Source) *source {
	s := x.newSource(f.Name)
	s.table = &x.tables[f.Table]
	s.names = make([]string, len(s.table.relation.Columns))
	for i := range s.names {
		s.names[i] = s.table.relation.Columns[i].Name
	}
	return s
}

func (s *source) view(f *facts.Source, r *resolved) view {
	columns := [][]visible{s.visible(f.Columns)}
	it := item{name: f.Name, columns: columns}
	if r != nil && r.Alias == "" {
		it.table = r
	}
	return view{items: []item{it}, columns: columns}
}

// occur notes that a sharded table is named.
func (x *proof) occur(s *source, r *resolved, index int, obstacle string) *occurrence {
	o := &occurrence{r: r, index: index, obstacle: obstacle}
	for _, name := range r.table.KeyColumns() {
		o.key = append(o.key, s.named(name))
	}
	if r.Sampled && !r.SampledEvenly && o.obstacle == "" {
		o.obstacle = "TABLESAMPLE"
	}
	o.ids = s.idColumns(r)
	x.occurrences = append(x.occurrences, o)
	return o
}

// named returns its column of a name; nil if there is none.
func (s *source) named(name string) *column {
	for i := range s.names {
		if s.names[i] == name {
			return s.column(i)
		}
	}
	return nil
}

// derived builds a source that stands for a query's result.
func (x *proof) derived(f *facts.Source, b *block, common *facts.Common) view {
	var renamed []string
	open := b.open
	if common != nil {
		renamed, open = common.Columns, open || common.Extended
	}
	if max(len(f.Columns), len(renamed)) > b.certain {
		return x.opaque(f) // which columns these names are for is not known
	}
	s := x.newSource(f.Name)
	s.block, s.common = b, common
	if common != nil && common.References > 1 && !x.commons[common].building {
		s.lists = map[*choice]*choice{}
	}
	for i := range b.exits {
		name := b.exits[i].name
		if i < len(renamed) {
			name = renamed[i]
		}
		open = open || name == ""
		s.names = append(s.names, name)
	}
	v := s.view(f, nil)
	v.open, v.items[0].open = open, open
	return v
}

// join builds a join.
func (x *proof) join(f *facts.Source, at place, before *view) view {
	left, right := at, at
	if at.obstacle == "" {
		if f.Join == facts.RightJoin || f.Join == facts.FullJoin {
			left.obstacle = filledByJoin
		}
		if f.Join == facts.LeftJoin || f.Join == facts.FullJoin {
			right.obstacle = filledByJoin
		}
	}
	first := x.sources
	l := x.source(f.Left, left, before)
	middle := x.sources
	beforeRight := before.join(l)
	r := x.source(f.Right, right, &beforeRight)
	both := l.join(r)
	s := &scope{view: both, outer: at.outer}
	x.inside(f.Queries, s)
	c := x.onClause(f, first, middle)
	x.conditions(&f.On, s, c)
	merged := x.mergeColumns(f, &both, l, r, c)
	x.keep(c)
	if f.Name == "" {
		if f.UsingName != "" {
			both.items = append(both.items, item{name: f.UsingName, columns: [][]visible{merged}})
		}
		return both
	}
	return renamed(f, &both)
}

// renamed shows a join under its own name, which hides the names of what it joins.
func renamed(f *facts.Source, both *view) view {
	var list []visible
	for _, columns := range both.columns {
		list = append(list, columns...)
	}
	open := both.open
	for i, name := range f.Columns {
		if i < len(list) {
			list[i].name = name
		}
	}
	if both.open && len(f.Columns) > 0 { // which columns these names are for is not known
		list = nil
	}
	columns := [][]visible{list}
	return view{items: []item{{name: f.Name, columns: columns, open: open}}, columns: columns, open: open}
}

// onClause is the context of a join's condition. Rows of a side that do not meet it can be taken away if the join does not keep
// them: those of both sides of an inner join, of the side that an outer join fills up with NULL; of no side of a full join.
func (x *proof) onClause(f *facts.Source, first, middle int) *context {
	switch f.Join {
	case facts.InnerJoin:
		return &context{where: "ON", first: first, last: x.sources}
	case facts.LeftJoin:
		return &context{where: "ON", first: middle, last: x.sources}
	case facts.RightJoin:
		return &context{where: "ON", first: first, last: middle}
	default:
		return &context{where: "ON"}
	}
}

// mergeColumns merges the columns of USING and NATURAL: they come first, and are those of the side that is never filled with NULL.
// It returns them.
func (x *proof) mergeColumns(f *facts.Source, both *view, l, r view, c *context) []visible {
	names := f.Using
	if f.Natural {
		names = commonNames(l.columns, r.columns)
	}
	if f.Natural && (l.open || r.open) { // any column may be merged with one that is not known
		both.columns = unknown(both.columns)
		return nil
	}
	if len(names) == 0 {
		return nil
	}
	merged := make([]visible, 0, len(names))
	for _, name := range names {
		left, inLeft := find(l.columns, name)
		right, inRight := find(r.columns, name)
		v := visible{name: name}
		if inLeft == 1 && inRight == 1 {
			a, b := left.column(), right.column()
			x.equal(c, a, b, false)
			v = mergedColumn(f, left, right, a, b)
		}
		merged = append(merged, v)
	}
	both.columns = append([][]visible{merged}, without(append(l.columns[:len(l.columns):len(l.columns)], r.columns...), names)...)
	return merged
}

// mergedColumn is the column that two merged ones are. Types of one family do not change its value.
func mergedColumn(f *facts.Source, left, right visible, a, b *column) visible {
	none := visible{name: left.name}
	if a == nil || b == nil || a.family != b.family || a.family == noFamily || a.computed || b.computed {
		return none
	}
	switch f.Join {
	case facts.InnerJoin, facts.LeftJoin:
		return left
	case facts.RightJoin:
		return right
	default:
		return none
	}
}

// unknown shows columns by their names only.
func unknown(columns [][]visible) [][]visible {
	lists := make([][]visible, len(columns))
	for i, list := range columns {
		for _, v := range list {
			lists[i] = append(lists[i], visible{name: v.name})
		}
	}
	return lists
}

func commonNames(left, right [][]visible) []string {
	var names []string
	for _, list := range left {
		for _, v := range list {
			if _, count := find(right, v.name); count > 0 && v.name != "" {
				names = append(names, v.name)
			}
		}
	}
	return names
}

// without leaves columns of some names out.
func without(columns [][]visible, names []string) [][]visible {
	rest := make([][]visible, 0, len(columns))
	for _, list := range columns {
		kept := make([]visible, 0, len(list))
		for _, v := range list {
			if !slices.Contains(names, v.name) {
				kept = append(kept, v)
			}
		}
		rest = append(rest, kept)
	}
	return rest
}
