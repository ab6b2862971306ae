package plan

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

// idColumn is a column of a sharded table whose numbers, from the floor on, have the slot of their row's key in them.
type idColumn struct {
	column *column
	part   KeyPart
}

// idColumns are those of a table. One that takes NULL is none: rows without a number may be anywhere, and INTERSECT finds them.
func (s *source) idColumns(r *resolved) []idColumn {
	var found []idColumn
	for _, id := range r.table.IDs() {
		c := r.relation.column(id.Column)
		if c != nil && c.NotNull && c.TypeOID == oidInt8 {
			found = append(found, idColumn{s.named(id.Column), KeyPart{Column: id.Column, Type: key.Bigint, TypeMod: -1, Floor: id.Floor}})
		}
	}
	return found
}

// bindIDs finds the occurrences of which ids are known, and what follows for others.
//
// Why it is right: the guard sees to it that a row whose number is the floor or greater has the slot of its key in that number. So
// rows with other ids cannot matter, and those that can have a key of these slots. That is known of the key as a list of values would
// be, and goes where such a list would go. A key of several columns is left where it is: of a list, each column would say less than all.
func (x *proof) bindIDs() {
	found := false
	for _, o := range x.occurrences {
		if o.slots, o.slotsWhy = x.slots(o); o.slots != nil && len(o.key) == 1 && o.key[0] != nil {
			found = o.key[0].add(finding{fact: &fact{slotsOf: o}}) || found
		}
	}
	if found {
		x.spread()
		x.induce()
	}
}

// slots are the ids that an occurrence can have, with the predicate that says so; none if that is not known.
func (x *proof) slots(o *occurrence) (tuples [][]KeyPart, why string) {
	for _, id := range o.ids {
		var best *fact
		var by finding
		for _, k := range id.column.known {
			if f := k.fact; f.isKey() && f.stored == nil && (best == nil || rank(f) < rank(best)) {
				best, by = f, k
			}
		}
		if best == nil {
			continue
		}
		for m := range best.members {
			tuples = append(tuples, []KeyPart{x.filled(id.part, best, m)})
		}
		return tuples, reason(id.column, by) + ", which carries the slot of its key"
	}
	return nil, ""
}

// slotted returns the occurrence whose ids say in which slots the keys of this one are; nil if none does.
func (x *proof) slotted(o *occurrence) *occurrence {
	if o.slots != nil {
		return o
	}
	if len(o.key) > 1 || o.key[0] == nil {
		return nil
	}
	if at := slices.IndexFunc(o.key[0].known, func(k finding) bool { return k.fact.slotsOf != nil }); at >= 0 {
		return o.key[0].known[at].fact.slotsOf
	}
	return nil
}

// places returns the keys of several occurrences, or where there are none the ids; one of which neither is known is returned.
func (x *proof) places(of []*occurrence) (places [][]KeyPart, unbound *occurrence) {
	for _, o := range of {
		tuples, unknown := x.keys([]*occurrence{o})
		if unknown != nil {
			by := x.slotted(o)
			if by == nil {
				return nil, o
			}
			tuples = by.slots
		}
		for _, t := range tuples {
			if len(places) > maxCompared || !slices.ContainsFunc(places, func(p []KeyPart) bool { return sameTuple(p, t) }) {
				places = append(places, t)
			}
		}
	}
	return places, nil
}

// whyPlace says which predicates bound an occurrence, by its key or by its ids.
func (x *proof) whyPlace(o *occurrence) string {
	if _, unknown := x.keys([]*occurrence{o}); unknown == nil {
		return x.why(o)
	}
	if by := x.slotted(o); by != nil {
		return by.slotsWhy
	}
	return ""
}

// isMade says whether a shard makes the values of a key column that are left to their default.
func (r *resolved) isMade(name string) bool {
	return r.table != nil && slices.Contains(r.table.MadeKeys(), name)
}

// isLeftMade says whether the rows that an INSERT stores leave a column of the key, which the shard makes then, to its default.
func (r *resolved) isLeftMade(of func(name string) bool) bool {
	return slices.ContainsFunc(r.table.KeyColumns(), func(name string) bool { return r.isMade(name) && of(name) })
}

// drawsKey routes an INSERT of rows whose key is left out and is a random UUID by default. The session draws it: any shard will do that owns
// something, if the key is one of those that belong there.
func (v *survey) drawsKey() bool {
	q := v.s.Query
	if q.Command != facts.Insert || len(v.sharded) > 1 || q.Inserted == nil || len(q.Inserted.Rows) == 0 || q.ValuesAt < 0 || q.Parts ||
		len(q.With)+len(q.Inserted.With) > 0 || q.Inserted.Spread || q.Inserted.Sorted || q.Inserted.Limited || q.Inserted.Locks {
		return false
	}
	r := &v.tables[q.Target.Table]
	if r.class != sharded || len(r.table.KeyColumns()) != 1 || r.table.Keyspace().Strategy() != topology.ByHash {
		return false
	}
	name := r.table.KeyColumns()[0]
	column := r.relation.column(name)
	if column == nil || !column.RandomUUID || slices.ContainsFunc(q.Assigned, func(a facts.Assignment) bool { return a.Column == name }) {
		return false
	}
	at := insertedAt(q.Columns, r, name)
	if at < 0 && len(q.Columns) == 0 || at >= 0 && slices.ContainsFunc(q.Inserted.Rows, func(row []facts.Operand) bool { return at >= len(row) || row[at].Kind != facts.Default }) {
		return false
	}
	if _, ok := v.keyPart(r, name); !ok {
		return true // it is refused
	}
	v.out.Route = Route{
		Level: AnyOwner, Keyspace: r.table.Keyspace().Name(), Table: r.title(), Numbers: []Number{{Column: name, Place: at + 1}}, ValuesAt: q.ValuesAt,
		Why: "the router draws " + name + " of " + r.title(),
	}
	return true
}

// leaveMade takes out the keys that ask for no shard: those that are made where the statement runs, and those that are equal to such a
// one. A key of several columns is told by all of them, so only its own is.
func (x *proof) leaveMade() {
	isMade := func(o *occurrence) bool {
		return o.makes || len(o.key) == 1 && o.key[0] != nil && slices.ContainsFunc(o.key[0].known, func(k finding) bool { return k.fact.made })
	}
	for _, o := range x.occurrences {
		if isMade(o) {
			x.made = append(x.made, o)
		}
	}
	x.occurrences = slices.DeleteFunc(x.occurrences, isMade)
}

// byMaking is the route of a statement all of whose keys are made by the shard that runs it.
func (x *proof) byMaking() Route {
	o := x.made[0]
	return Route{
		Level: AnyOwner, Keyspace: o.r.table.Keyspace().Name(), Table: o.r.title(),
		Why: "a shard makes " + strings.Join(o.r.table.MadeKeys(), ", ") + " of " + o.r.title(),
	}
}
