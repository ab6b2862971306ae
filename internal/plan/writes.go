package plan

import (
	"slices"

	"github.com/cleavedb/cleave/internal/facts"
)

// change builds UPDATE and DELETE. The target is joined with FROM as by an inner join, and WHERE holds for both.
func (x *proof) change(b *block, at place) {
	f := b.f
	first := x.sources
	target, occurs := x.target(f.Target, at.obstacle)
	beside := at
	if beside.obstacle == "" {
		beside.obstacle = besideTarget
	}
	shown := x.from(f.From, beside)
	s := &scope{outer: at.outer, view: x.targetView(f.Target, target).join(shown)}
	b.scope = s
	x.require(&f.Where, s, "WHERE", first, x.sources)
	if occurs != nil {
		if o := x.moved(occurs, f.Assigned, s); o != nil {
			o.updates = true
		}
	}
	x.inside(f.Queries, s)
	x.unused(f)
	after := x.after(b, target)
	returned := &scope{outer: at.outer, view: x.targetView(f.Target, after).join(shown)}
	x.inside(f.Returned, returned)
	x.exits(b, f.Output, returned)
}

// besideTarget: rows of the target are told apart, not those of what it is joined with.
const besideTarget = "a table that is read beside the one that is written"

// target builds the table that is written; its occurrence is nil if it is not sharded, and the source if it is not known.
func (x *proof) target(f *facts.Source, obstacle string) (*source, *occurrence) {
	r := &x.tables[f.Table]
	if r.relation == nil {
		return nil, nil
	}
	s := x.tableSource(f)
	if r.class != sharded {
		return s, nil
	}
	return s, x.occur(s, r, f.Table, obstacle)
}

func (x *proof) targetView(f *facts.Source, s *source) view {
	if s == nil {
		return x.opaque(f)
	}
	return s.view(f, s.table)
}

// after is the target as RETURNING sees it: columns that are set have other values, of which nothing is known.
func (x *proof) after(b *block, target *source) *source {
	if target == nil || len(b.f.Assigned) == 0 {
		return target
	}
	s := &source{number: target.number, title: target.title, names: target.names, table: target.table, x: x, made: make([]*column, len(target.names))}
	for i, name := range s.names {
		if slices.ContainsFunc(b.f.Assigned, func(a facts.Assignment) bool { return a.Column == name }) {
			s.made[i] = &column{title: s.title + "." + name, number: -1}
			continue
		}
		s.made[i] = target.column(i)
	}
	return s
}

// moved notes the key that rows of the target get, and returns it; nil if it is not set.
func (x *proof) moved(of *occurrence, assigned []facts.Assignment, s *scope) *occurrence {
	o := &occurrence{r: of.r, index: of.index, key: slices.Clone(of.key), stores: true, moves: true, obstacle: inExpression}
	changes := false
	for i, name := range of.r.table.KeyColumns() {
		for j := range assigned {
			if assigned[j].Column != name {
				continue
			}
			from := x.termColumn(&assigned[j].Value, s)
			if from == of.key[i] && from != nil {
				continue
			}
			o.key[i] = x.store(from, of.r, name)
			changes = true
		}
	}
	if !changes {
		return nil
	}
	x.occurrences = append(x.occurrences, o)
	return o
}

// termColumn is the column that a term is, or whose only value it is; nil if neither can be told.
func (x *proof) termColumn(t *facts.Term, s *scope) *column {
	if t.IsColumn() {
		return s.resolve(t.Column)
	}
	return x.operandColumn(&t.Value)
}

// store makes a column of what another one's values become when they are stored in a column of a table.
func (x *proof) store(from *column, r *resolved, name string) *column {
	c := r.relation.column(name)
	part, known := r.relation.KeyPart(name)
	if from == nil || c == nil || !known {
		return nil
	}
	to := &column{title: r.visibleName() + "." + name, family: c.family(), oid: c.TypeOID, mod: c.TypeMod, number: -1}
	x.stores = append(x.stores, store{from: from, to: to, part: part})
	return to
}

// insert builds INSERT. The key is that of the rows that are inserted.
func (x *proof) insert(b *block, at place) {
	f := b.f
	var inserted *block
	if f.Inserted != nil {
		inserted = x.build(f.Inserted, at)
	}
	target, stored := x.storedKey(f, inserted)
	shown := x.targetView(f.Target, target)
	b.scope = &scope{outer: at.outer, view: shown.join(view{items: []item{{name: "excluded", open: true}}})}
	if stored != nil {
		x.conflicting(stored, f.Assigned, b.scope)
	}
	x.inside(f.Queries, b.scope)
	x.unused(f)
	if stored != nil && f.Conflict != facts.DoUpdate {
		target.take(stored) // no other rows are returned
	}
	returned := &scope{outer: at.outer, view: shown}
	x.inside(f.Returned, returned)
	x.exits(b, f.Output, returned)
}

// storedKey builds the target of an INSERT, and notes the key of the rows that are stored, nil if the table is not sharded. ON
// CONFLICT sees rows of the target of which nothing is known: the one that is in conflict may have another key.
func (x *proof) storedKey(f *facts.Block, inserted *block) (*source, *occurrence) {
	r := &x.tables[f.Target.Table]
	if r.relation == nil {
		return nil, nil
	}
	target := x.tableSource(f.Target)
	if r.class != sharded {
		return target, nil
	}
	o := &occurrence{r: r, index: f.Target.Table, stores: true, obstacle: inExpression}
	o.makes = r.isLeftMade(func(name string) bool { return isLeftOut(f, inserted, r, name) })
	for _, name := range r.table.KeyColumns() {
		o.key = append(o.key, x.store(insertedColumn(f, inserted, r, name), r, name))
	}
	if o.makes && len(o.key) == 1 {
		o.key[0] = x.madeKey(r)
	}
	x.occurrences = append(x.occurrences, o)
	return target, o
}

// isLeftOut says whether all rows that are inserted leave a column to its default.
func isLeftOut(f *facts.Block, inserted *block, r *resolved, name string) bool {
	at := insertedAt(f.Columns, r, name)
	switch {
	case inserted == nil || at < 0:
		return !f.Parts
	case len(f.Inserted.Rows) > 0:
		return !f.Inserted.Spread && !slices.ContainsFunc(f.Inserted.Rows, func(row []facts.Operand) bool { return at < len(row) && row[at].Kind != facts.Default })
	default:
		return !inserted.open && at >= inserted.certain
	}
}

// madeKey is the only key column of rows whose key is made by the shard that stores them.
func (x *proof) madeKey(r *resolved) *column {
	name := r.table.KeyColumns()[0]
	c := r.relation.column(name)
	if c == nil {
		return nil
	}
	return &column{
		title: r.visibleName() + "." + name, family: c.family(), oid: c.TypeOID, mod: c.TypeMod, number: -1, known: []finding{{fact: &fact{made: true}}},
	}
}

// take makes the columns of a stored key those of the target.
func (s *source) take(o *occurrence) {
	if s.made == nil {
		s.made = make([]*column, len(s.names))
	}
	for i, name := range o.r.table.KeyColumns() {
		if at := slices.Index(s.names, name); at >= 0 && o.key[i] != nil {
			s.made[at] = o.key[i]
		}
	}
}

// conflicting notes the key that a row gets which is in conflict with one that was to be inserted. Nothing is known of that row, so
// all of its key must be set.
func (x *proof) conflicting(of *occurrence, assigned []facts.Assignment, s *scope) {
	names := of.r.table.KeyColumns()
	o := &occurrence{r: of.r, index: of.index, key: make([]*column, len(names)), stores: true, moves: true, obstacle: inExpression}
	sets, changes := 0, false
	for i, name := range names {
		at := slices.IndexFunc(assigned, func(a facts.Assignment) bool { return a.Column == name })
		if at < 0 {
			continue
		}
		sets++
		value := &assigned[at].Value
		if value.IsColumn() && slices.Equal(value.Column, []string{"excluded", name}) {
			o.key[i] = of.key[i]
			continue
		}
		o.key[i] = x.store(x.termColumn(value, s), of.r, name)
		changes = true
	}
	if sets > 0 && (changes || sets < len(names)) {
		x.occurrences = append(x.occurrences, o)
	}
}

// insertedColumn returns the column of a query whose values are stored in a column; nil if that cannot be told.
func insertedColumn(f *facts.Block, inserted *block, r *resolved, name string) *column {
	i := insertedAt(f.Columns, r, name)
	if inserted == nil || f.Parts || i < 0 || i >= inserted.certain {
		return nil
	}
	return inserted.exits[i].column
}

// insertedAt returns which of the values of a row is for a column; -1 if none is.
func insertedAt(columns []string, r *resolved, name string) int {
	if len(columns) > 0 {
		return slices.Index(columns, name)
	}
	return slices.IndexFunc(r.relation.Columns, func(c Column) bool { return c.Name == name })
}

// merge builds MERGE. The target is joined to the source: by a left join if there is something to do for rows of the source without
// a match, else by an inner one.
func (x *proof) merge(b *block, at place) {
	f, m := b.f, b.f.Merged
	keeps := slices.ContainsFunc(m.When, func(w facts.When) bool { // a condition may fail, and must not be computed for a row that another shard has a match for
		return w.Match == facts.NotMatchedByTarget && (w.Command != facts.Select || w.Conditional)
	})
	x.unknownMerge = x.unknownMerge || slices.ContainsFunc(m.When, func(w facts.When) bool { return w.Match != facts.Matched && w.Match != facts.NotMatchedByTarget })
	beside, own := at, at.obstacle
	switch {
	case at.obstacle != "":
	case keeps:
		own = filledByJoin
	default:
		beside.obstacle = besideTarget
	}
	first := x.sources
	shown := x.source(m.Source, beside, &view{})
	middle := x.sources
	target, occurs := x.target(f.Target, own)
	s := &scope{outer: at.outer, view: x.targetView(f.Target, target).join(shown)}
	b.scope = s
	if keeps {
		first = middle
	}
	x.require(&m.On, s, "ON", first, x.sources)
	if occurs != nil {
		for i := range m.When {
			x.when(occurs, &m.When[i], s, &scope{outer: at.outer, view: shown})
		}
	}
	x.inside(f.Queries, s)
	x.unused(f)
	returned := &scope{outer: at.outer, view: view{open: true, nameless: true}}
	x.inside(f.Returned, returned)
	x.exits(b, f.Output, returned)
}

// when notes the keys that a clause of MERGE stores.
func (x *proof) when(of *occurrence, w *facts.When, s, source *scope) {
	switch w.Command {
	case facts.Update:
		x.moved(of, w.Assigned, s)
	case facts.Insert:
		o := &occurrence{r: of.r, index: of.index, stores: true, obstacle: inExpression}
		o.makes = of.r.isLeftMade(func(name string) bool { return !w.Parts && mergeLeavesOut(w, insertedAt(w.Columns, of.r, name)) })
		for _, name := range of.r.table.KeyColumns() {
			o.key = append(o.key, x.store(x.mergedValue(of, w, name, source), of.r, name))
		}
		x.occurrences = append(x.occurrences, o)
	default:
	}
}

func (x *proof) mergedValue(of *occurrence, w *facts.When, name string, s *scope) *column {
	i := insertedAt(w.Columns, of.r, name)
	if w.Parts || i < 0 || i >= len(w.Values) {
		return nil
	}
	return x.termColumn(&w.Values[i], s)
}

// mergeLeavesOut says whether a clause of MERGE leaves the column of that place to its default.
func mergeLeavesOut(w *facts.When, at int) bool {
	return at < 0 || at >= len(w.Values) || w.Values[at].Value.Kind == facts.Default
}
