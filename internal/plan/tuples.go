package plan

import (
	"slices"
)

// keyed returns the key that all occurrences have, if they provably have one: each of its columns is the same operand everywhere.
func (x *proof) keyed() []KeyPart {
	first := x.occurrences[0]
	route := make([]KeyPart, len(first.key))
	for i := range first.key {
		found := false
		for _, candidate := range x.parts(first, i) {
			if route[i], found = x.shared(candidate, i); found {
				break
			}
		}
		if !found {
			return nil
		}
	}
	return route
}

// parts are the single operands that a key column of an occurrence equals.
func (x *proof) parts(o *occurrence, i int) []KeyPart {
	if o.key[i] == nil {
		return nil
	}
	var found []KeyPart
	for _, k := range o.key[i].known {
		if k.fact.isKey() && k.fact.isOne() {
			found = append(found, x.part(o, i, k.fact, 0))
		}
	}
	return found
}

// part is what a member of a fact says of a key column.
func (x *proof) part(o *occurrence, i int, f *fact, m int) KeyPart {
	part := o.parts[i]
	if f.stored != nil {
		part.Type, part.TypeMod, part.Store = f.stored.Type, f.stored.TypeMod, true
	}
	return x.filled(part, f, m)
}

// filled is a part with what a member of a fact says of it.
func (x *proof) filled(part KeyPart, f *fact, m int) KeyPart {
	part.Operand = x.p.operand(f.members[m].value)
	part.Each, part.Listed = f.members[m].each, f.members[m].listed
	if part.Each {
		part.Operand.CastOID = arrayOIDs[part.Operand.CastOID]
	}
	return part
}

// shared returns the part as all occurrences have it. What is stored and what is compared are the same if storing changes nothing;
// then what compares is the one that says which types fit.
func (x *proof) shared(part KeyPart, i int) (KeyPart, bool) {
	for _, o := range x.occurrences[1:] {
		same := -1
		parts := x.parts(o, i)
		for j := range parts {
			if samePart(&part, &parts[j]) {
				same = j
				break
			}
		}
		if same < 0 {
			return KeyPart{}, false
		}
		if part.Store && !parts[same].Store {
			part.Store, part.Type, part.TypeMod = false, parts[same].Type, parts[same].TypeMod
		}
	}
	return part, true
}

func samePart(a, b *KeyPart) bool {
	if a.Operand != b.Operand || a.Each != b.Each || a.Floor != b.Floor || !sameFamily(a.Type, b.Type) {
		return false
	}
	switch {
	case a.Store && b.Store:
		return a.TypeMod == b.TypeMod
	case a.Store:
		return a.TypeMod == -1
	case b.Store:
		return b.TypeMod == -1
	default:
		return true
	}
}

// tuples returns the keys that an occurrence can have; false if they are not known.
func (x *proof) tuples(o *occurrence) ([][]KeyPart, bool) {
	chosen := x.chosen(o)
	if chosen == nil {
		return nil, false
	}
	tuples := [][]KeyPart{make([]KeyPart, len(o.key))}
	for i, f := range chosen {
		if slices.ContainsFunc(chosen[:i], func(g *fact) bool { return inParallel(f, g) }) {
			continue
		}
		if len(tuples)*len(f.members) > maxRows {
			return nil, false
		}
		more := make([][]KeyPart, 0, len(tuples)*len(f.members))
		for _, tuple := range tuples {
			for m := range f.members {
				more = append(more, x.fill(o, tuple, chosen, i, m))
			}
		}
		tuples = more
	}
	return tuples, true
}

// fill returns the tuple with a member of one column's fact, and of those that are in parallel.
func (x *proof) fill(o *occurrence, tuple []KeyPart, chosen []*fact, i, m int) []KeyPart {
	filled := slices.Clone(tuple)
	for j := i; j < len(chosen); j++ {
		if j == i || inParallel(chosen[i], chosen[j]) {
			filled[j] = x.part(o, j, chosen[j], m)
		}
	}
	return filled
}

// inParallel says whether two facts are columns of the same list.
func inParallel(f, g *fact) bool { return f.choice != nil && f.choice == g.choice }

// chosen returns a fact for each key column: one with a single value, else one that is in parallel with another column's, else the
// one with the fewest values; nil if there is none for some column.
func (x *proof) chosen(o *occurrence) []*fact {
	chosen := make([]*fact, len(o.key))
	for i, c := range o.key {
		if c == nil {
			return nil
		}
		for _, k := range c.known {
			if k.fact.isKey() && (chosen[i] == nil || x.isBetter(o, i, k.fact, chosen[i])) {
				chosen[i] = k.fact
			}
		}
		if chosen[i] == nil {
			return nil
		}
	}
	return chosen
}

func (x *proof) isBetter(o *occurrence, i int, f, than *fact) bool {
	if f.isOne() != than.isOne() {
		return f.isOne()
	}
	if parallel := x.hasParallel(o, i, f); parallel != x.hasParallel(o, i, than) {
		return parallel
	}
	return rank(f) < rank(than)
}

func (x *proof) hasParallel(o *occurrence, i int, f *fact) bool {
	for j, c := range o.key {
		if j != i && c != nil && slices.ContainsFunc(c.known, func(k finding) bool { return inParallel(k.fact, f) }) {
			return true
		}
	}
	return false
}

// rank is how many values a fact allows; of an array nobody knows.
func rank(f *fact) int {
	if slices.ContainsFunc(f.members, func(m member) bool { return m.each }) {
		return maxRows + len(f.members)
	}
	return len(f.members)
}

// keys returns the keys of several occurrences, each once; false if those of one are not known, which is returned.
func (x *proof) keys(of []*occurrence) (keys [][]KeyPart, unbound *occurrence) {
	for _, o := range of {
		tuples, known := x.tuples(o)
		if !known {
			return nil, o
		}
		for _, t := range tuples {
			if !slices.ContainsFunc(keys, func(k []KeyPart) bool { return sameTuple(k, t) }) || len(keys) > maxCompared {
				keys = append(keys, t)
			}
		}
	}
	return keys, nil
}

// maxCompared is up to how many keys it is worth while to look for ones that are there already.
const maxCompared = 64

func sameTuple(a, b []KeyPart) bool {
	return slices.EqualFunc(a, b, func(p, q KeyPart) bool { return samePart(&p, &q) && p.Store == q.Store })
}

// bounds returns what is known of the interval in which the first key column is.
func (x *proof) bounds(o *occurrence) []Bound {
	var bounds []Bound
	for _, k := range o.key[0].known {
		var b Bound
		switch k.fact.relation {
		case below, atMost:
			b = Bound{Upper: true, Inclusive: k.fact.relation == atMost}
		case above, atLeast:
			b = Bound{Inclusive: k.fact.relation == atLeast}
		default:
			continue
		}
		b.Part = x.part(o, 0, k.fact, 0)
		bounds = append(bounds, b)
	}
	return bounds
}

// unboundColumn returns the first key column of an occurrence of which no value is known.
func (o *occurrence) unboundColumn() string {
	for i, c := range o.key {
		if c == nil || !slices.ContainsFunc(c.known, func(k finding) bool { return k.fact.isKey() }) {
			return o.parts[i].Column
		}
	}
	return o.parts[0].Column
}
