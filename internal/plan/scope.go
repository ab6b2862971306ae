package plan

import "github.com/cleavedb/cleave/internal/facts"

// scope is what names of columns mean in one place of a statement, as PostgreSQL resolves them.
type scope struct {
	view
	// outer is what can be seen around the query.
	outer *scope
}

// view is what a FROM clause, or a part of it, shows.
type view struct {
	// items are the relations by their names, columns the columns that need no qualifier, in the order of *.
	items   []item
	columns [][]visible
	// open: there may be more columns than these. nameless: there is a relation whose name is not known.
	open, nameless bool
}

// item is a relation that columns can be qualified with.
type item struct {
	name string
	// table is set if it is a table without an alias, so that its schema can stand before it.
	table   *resolved
	columns [][]visible
	open    bool
}

// visible is a column that can be named. Without a source, nothing is known of it.
type visible struct {
	name   string
	source *source
	index  int
}

func (v visible) column() *column {
	if v.source == nil {
		return nil
	}
	return v.source.column(v.index)
}

// join shows two views side by side.
func (v view) join(other view) view {
	return view{
		items: append(v.items[:len(v.items):len(v.items)], other.items...), columns: append(v.columns[:len(v.columns):len(v.columns)], other.columns...),
		open: v.open || other.open, nameless: v.nameless || other.nameless,
	}
}

// find returns the columns of a name.
func find(columns [][]visible, name string) (found visible, count int) {
	for _, list := range columns {
		for i := range list {
			if list[i].name == name {
				found = list[i]
				count++
			}
		}
	}
	return found, count
}

// resolve returns the column that a name means; nil if that cannot be told, or nothing is known of it. Within one query a name
// that two relations have is an error on every shard. From there to the query around it goes only a name that surely is in none.
func (s *scope) resolve(written []string) *column {
	switch len(written) {
	case 1:
		return s.resolvePlain(written[0])
	case 2, 3:
		return s.resolveQualified(written[:len(written)-1], written[len(written)-1])
	default:
		return nil
	}
}

func (s *scope) resolvePlain(name string) *column {
	for ; s != nil; s = s.outer {
		found, count := find(s.columns, name)
		switch {
		case count == 1:
			return found.column()
		case count > 1, s.open:
			return nil
		}
	}
	return nil
}

// local returns the column of this query alone that a plain name means.
func (s *scope) local(name string) (found *column, exists bool) {
	here, count := find(s.columns, name)
	if count == 1 {
		return here.column(), true
	}
	return nil, count > 1 || s.open
}

func (s *scope) resolveQualified(qualifier []string, name string) *column {
	for ; s != nil; s = s.outer {
		it, count := s.item(qualifier)
		switch {
		case count == 1:
			if found, times := find(it.columns, name); times == 1 {
				return found.column()
			}
			return nil
		case count > 1, s.nameless:
			return nil
		}
	}
	return nil
}

// item returns the relation that a qualifier means, of this query alone.
func (s *scope) item(qualifier []string) (found *item, count int) {
	for i := range s.items {
		if s.items[i].is(qualifier) {
			found = &s.items[i]
			count++
		}
	}
	return found, count
}

func (it *item) is(qualifier []string) bool {
	if len(qualifier) == 1 {
		return it.name == qualifier[0] && it.name != ""
	}
	return it.table != nil && it.table.relation != nil && it.table.relation.Schema == qualifier[0] && it.table.relation.Name == qualifier[1]
}

// source is a relation in a FROM clause, or the target of a write.
type source struct {
	number int
	title  string
	names  []string
	// table is what it is; or block and common what it stands for; neither if nothing is known of it.
	table  *resolved
	block  *block
	common *facts.Common
	// lists are its own, if other sources stand for the same; see [link].
	lists map[*choice]*choice
	// made are its columns, as far as somebody has asked for them.
	made []*column
	x    *proof
}

// column returns one of its columns; nil if nothing is known of it.
func (s *source) column(i int) *column {
	if s.made == nil {
		s.made = make([]*column, len(s.names))
	}
	if s.made[i] == nil {
		s.made[i] = s.make(i)
	}
	return s.made[i]
}

func (s *source) make(i int) *column {
	title := s.title + "." + s.names[i]
	if s.table != nil {
		c := &s.table.relation.Columns[i]
		return &column{title: title, family: c.family(), oid: c.TypeOID, mod: c.TypeMod, number: s.number}
	}
	exit := s.block.exits[i]
	if exit.column == nil {
		return nil
	}
	c := &column{title: title, family: exit.column.family, computed: exit.column.computed, oid: exit.column.oid, mod: exit.column.mod, number: s.number}
	s.x.links = append(s.x.links, link{result: exit.column, column: c, pushes: exit.pushes && s.takesBack(), lists: s.lists})
	return c
}

// takesBack says whether what is known of this source's rows may be said of the query that it stands for: if nobody else reads it.
func (s *source) takesBack() bool {
	return s.common == nil || s.common.References == 1 && !s.common.Recursive
}

// visible lists its columns, those that are renamed first.
func (s *source) visible(renamed []string) []visible {
	list := make([]visible, len(s.names))
	for i, name := range s.names {
		if i < len(renamed) {
			name = renamed[i]
		}
		list[i] = visible{name, s, i}
	}
	return list
}
