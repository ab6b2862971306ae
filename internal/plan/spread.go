package plan

import (
	"slices"

	"github.com/cleavedb/cleave/internal/facts"
)

// context is a clause that rows must meet to count. In it, what is known of one side of an equality is known of the other; but only
// of the sources first to last, last not included, does it say something outside of the clause: rows of these that do not meet
// it can be taken away, and an equality is never true of the NULLs that an outer join puts in their place. Of others it holds as
// long as the clause is looked at: a LEFT JOIN b ON a.k = b.k AND a.k = 5 says of b that k is 5, and of a nothing.
type context struct {
	where       string
	first, last int
	pairs       [][2]*column
	given       []given
	// here is what is known of other sources' columns in this clause.
	here map[*column][]finding
}

// given is what the text says of a column.
type given struct {
	column *column
	fact   *fact
}

func (c *context) isEmpty() bool { return len(c.pairs)+len(c.given) == 0 }

// keep adds a context that says something.
func (x *proof) keep(c *context) {
	if !c.isEmpty() {
		x.contexts = append(x.contexts, c)
	}
}

// require makes a context of a condition that all rows of the sources must meet.
func (x *proof) require(f *facts.Condition, s *scope, where string, first, last int) {
	c := &context{where: where, first: first, last: last}
	x.conditions(f, s, c)
	x.keep(c)
}

// maxClauses is how many parts of a condition are followed up. What is left out could only tell more.
const maxClauses = 1000

// conditions takes a condition apart.
func (x *proof) conditions(f *facts.Condition, s *scope, c *context) {
	if len(c.pairs)+len(c.given) > maxClauses {
		return
	}
	switch f.Kind {
	case facts.AllOf:
		for i := range f.Parts {
			x.conditions(&f.Parts[i], s, c)
		}
	case facts.Compares:
		x.comparison(f, s, c)
	case facts.AnyOf, facts.OneOf:
		x.list(f, s, c)
	default:
	}
}

// comparison adds a comparison of a column with a value or another column.
func (x *proof) comparison(f *facts.Condition, s *scope, c *context) {
	left := s.resolve(f.Left.Column)
	if left == nil {
		return
	}
	if f.Right.IsColumn() {
		if f.Operator == "=" {
			x.equal(c, left, s.resolve(f.Right.Column), f.Builtin)
		}
		return
	}
	how := relations[f.Operator]
	if isBareNull(&f.Right.Value) {
		return
	}
	if how != equals && (!x.bounded || left.family == texts) { // the order of texts is their collation's
		return
	}
	if x.trusts(f.Operator, f.Builtin, left) && x.isListable(&f.Right.Value, 1) {
		c.given = append(c.given, given{left, &fact{relation: how, members: []member{{value: f.Right.Value}}}})
	}
}

// isBareNull says whether a value is the word NULL. With transform_null_equals, what is equal to that is NULL itself, and so are columns
// that an outer join filled.
func isBareNull(o *facts.Operand) bool { return o.Kind == facts.Null && len(o.Casts) == 0 }

// equal adds an equality of two columns. Only within a family does it follow that what one equals the other does too.
func (x *proof) equal(c *context, a, b *column, builtin bool) {
	if a == nil || b == nil || a == b || a.computed && b.computed {
		return
	}
	if a.family != b.family && !a.computed && !b.computed {
		return
	}
	known := a
	if a.computed {
		known = b
	}
	if x.trusts("=", builtin, known) {
		c.pairs = append(c.pairs, [2]*column{a, b})
	}
}

// trusts says whether an operator is PostgreSQL's own for values of a column.
func (x *proof) trusts(operator string, builtin bool, c *column) bool {
	switch {
	case c.family == noFamily || c.computed:
		return false
	case builtin:
		return true
	case !x.p.trustsBuiltins():
		return false
	case x.p.overridden(operator, c.family):
		x.overridden = true
		return false
	default:
		return true
	}
}

// maxRows is how many combinations of values are followed up, maxBounds how many bounds of each.
const (
	maxRows   = 1000
	maxBounds = 32
)

// bound is a column with a value, or an equality of two columns, in one of several cases.
type bound struct {
	column, other *column
	member        member
}

// list adds that one of several cases holds: IN, = ANY, OR. A column that has a value in each of them has one of these.
func (x *proof) list(f *facts.Condition, s *scope, c *context) {
	cases := x.cases(f, s)
	if len(cases) == 0 || len(cases) > maxRows {
		return
	}
	for i := range cases {
		cases[i] = closed(cases[i])
	}
	list := &choice{}
	for _, b := range cases[0] {
		if b.other != nil || slices.ContainsFunc(c.given, func(g given) bool { return g.column == b.column && g.fact.choice == list }) {
			continue
		}
		members := membersOf(cases, b.column)
		switch {
		case members == nil:
		case len(members) == 1:
			c.given = append(c.given, given{b.column, &fact{members: members}})
		default:
			c.given = append(c.given, given{b.column, &fact{members: members, choice: list}})
		}
	}
}

// membersOf returns the value of a column in each case; nil if it does not have one in all.
func membersOf(cases [][]bound, c *column) []member {
	members := make([]member, 0, len(cases))
	for _, bounds := range cases {
		at := slices.IndexFunc(bounds, func(b bound) bool { return b.column == c && b.other == nil })
		if at < 0 {
			return nil
		}
		members = append(members, bounds[at].member)
	}
	return members
}

// closed adds what follows from equalities of columns within one case.
func closed(bounds []bound) []bound {
	for changed := true; changed; {
		changed = false
		for _, pair := range bounds {
			if pair.other == nil {
				continue
			}
			for _, ends := range [][2]*column{{pair.column, pair.other}, {pair.other, pair.column}} {
				from := slices.IndexFunc(bounds, func(b bound) bool { return b.column == ends[0] && b.other == nil })
				to := slices.IndexFunc(bounds, func(b bound) bool { return b.column == ends[1] && b.other == nil })
				if from >= 0 && to < 0 && !ends[1].computed {
					bounds = append(bounds, bound{column: ends[1], member: bounds[from].member})
					changed = true
				}
			}
		}
	}
	return bounds
}

// cases says in which cases a condition is true: in each of them, all of its bounds hold. A case without bounds says nothing.
func (x *proof) cases(f *facts.Condition, s *scope) [][]bound {
	switch f.Kind {
	case facts.AnyOf:
		var all [][]bound
		for i := range f.Parts {
			all = append(all, x.cases(&f.Parts[i], s)...)
			if len(all) > maxRows {
				break
			}
		}
		return all
	case facts.AllOf:
		return x.allCases(f.Parts, s)
	case facts.Compares:
		return [][]bound{x.compared(f, s)}
	case facts.OneOf:
		return x.listed(f, s)
	default:
		return [][]bound{nil}
	}
}

// allCases combines the cases of conditions that hold together.
func (x *proof) allCases(parts []facts.Condition, s *scope) [][]bound {
	all := [][]bound{nil}
	for i := range parts {
		more := x.cases(&parts[i], s)
		if len(more) == 0 || len(all)*len(more) > maxRows || len(all[0])+len(more[0]) > maxBounds {
			continue // what is left out could only make it narrower
		}
		combined := make([][]bound, 0, len(all)*len(more))
		for _, a := range all {
			for _, b := range more {
				combined = append(combined, slices.Concat(a, b))
			}
		}
		all = combined
	}
	return all
}

// compared is the bound that an equality is; none if it says nothing.
func (x *proof) compared(f *facts.Condition, s *scope) []bound {
	left := s.resolve(f.Left.Column)
	if f.Operator != "=" || left == nil {
		return nil
	}
	if !f.Right.IsColumn() {
		if !isBareNull(&f.Right.Value) && x.trusts("=", f.Builtin, left) && x.isListable(&f.Right.Value, 1) {
			return []bound{{column: left, member: member{value: f.Right.Value}}}
		}
		return nil
	}
	var c context
	x.equal(&c, left, s.resolve(f.Right.Column), f.Builtin)
	bounds := make([]bound, 0, len(c.pairs))
	for _, pair := range c.pairs {
		bounds = append(bounds, bound{column: pair[0], other: pair[1]})
		for _, end := range pair {
			if end.computed && len(end.known) == 1 && end.known[0].fact.isOne() {
				bounds = append(bounds, bound{column: end, member: end.known[0].fact.members[0]})
			}
		}
	}
	return bounds
}

// listed returns the cases of IN and = ANY.
func (x *proof) listed(f *facts.Condition, s *scope) [][]bound {
	if len(f.Rows) > maxRows {
		return [][]bound{nil}
	}
	columns := make([]*column, len(f.Columns))
	for i := range f.Columns {
		if c := s.resolve(f.Columns[i].Column); f.Columns[i].IsColumn() && c != nil && x.trusts("=", f.Builtin, c) {
			columns[i] = c
		}
	}
	if len(f.Rows) == 0 {
		if element, known := x.element(f.Array); known && columns[0] != nil {
			return [][]bound{{{column: columns[0], member: member{value: element, each: true}}}}
		}
		return [][]bound{nil}
	}
	cases := make([][]bound, len(f.Rows))
	for i, c := range columns {
		if c == nil || slices.ContainsFunc(f.Rows, func(row []facts.Operand) bool { return !x.isListable(&row[i], len(f.Rows)) }) {
			continue
		}
		for j, row := range f.Rows {
			cases[j] = append(cases[j], bound{column: c, member: member{value: row[i], listed: len(f.Rows) > 1}})
		}
	}
	return cases
}

// element is an operand that is an array, with its cast as that of an element.
func (x *proof) element(array facts.Operand) (element facts.Operand, known bool) {
	switch {
	case len(array.Casts) == 1 && array.Casts[0].Array:
		cast := array.Casts[0]
		cast.Array = false
		array.Casts = []facts.Type{cast}
	case len(array.Casts) > 0:
		return array, false
	}
	operand, _ := x.p.operandOf(array)
	isTyped := operand.CastOID == 0 || arrayOIDs[operand.CastOID] != 0 && operand.CastMod < 0
	return array, (operand.Kind == FromLiteral || operand.Kind == FromParam) && isTyped
}

// link says that a column of a source is one of the result that the source stands for: what is known of that is known of this, and
// the other way too if it pushes.
type link struct {
	result, column *column
	pushes         bool
	// lists are those of the source, in the place of the result's, if there are other sources that stand for the same result: a row of
	// one is not the row of another, so that what their columns are is not said in parallel. Else nil.
	lists map[*choice]*choice
	// made are the facts that were made of others.
	made map[*fact]*fact
}

// own returns a fact about the result as one about the source.
func (l *link) own(f *fact) *fact {
	if l.lists == nil || f.choice == nil {
		return f
	}
	if l.made[f] == nil {
		if l.lists[f.choice] == nil {
			l.lists[f.choice] = &choice{}
		}
		made := *f
		made.choice = l.lists[f.choice]
		if l.made == nil {
			l.made = map[*fact]*fact{}
		}
		l.made[f] = &made
	}
	return l.made[f]
}

// union says that a column of a set operation has the values of both its arms' columns.
type union struct {
	operation           facts.SetOperation
	left, right, to     *column
	pushLeft, pushRight bool
	// recursive is the operation, if its right arm reads the result: then what the left one says is a guess until it is proven.
	recursive *facts.Block
	// joined is the list of what both arms are, once it is made.
	joined *fact
}

// spread carries facts along until nothing new is found.
func (x *proof) spread() {
	for changed := true; changed; {
		changed = false
		for _, c := range x.contexts {
			changed = c.spread() || changed
		}
		for i := range x.links {
			changed = x.links[i].spread() || changed
		}
		for i := range x.unions {
			changed = x.unions[i].spread() || changed
		}
		for i := range x.stores {
			changed = x.stores[i].spread() || changed
		}
	}
}

func (c *context) spread() bool {
	changed := false
	for _, g := range c.given {
		changed = c.find(g.column, finding{fact: g.fact, where: c.where}) || changed
	}
	for _, pair := range c.pairs {
		changed = c.carry(pair[0], pair[1]) || changed
		changed = c.carry(pair[1], pair[0]) || changed
	}
	return changed
}

// carry takes what is known of one column to another that equals it.
func (c *context) carry(from, to *column) bool {
	changed := false
	for _, f := range from.known {
		changed = c.find(to, finding{f.fact, from, c.where}) || changed
	}
	for _, f := range c.here[from] {
		changed = c.find(to, finding{f.fact, from, c.where}) || changed
	}
	return changed
}

// find notes a finding, of other sources' columns for this clause only.
func (c *context) find(to *column, f finding) bool {
	switch {
	case to.computed:
		return false
	case to.number >= c.first && to.number < c.last:
		return to.add(f)
	case to.has(f.fact) || len(c.here[to]) >= maxKnown || slices.ContainsFunc(c.here[to], func(k finding) bool { return k.fact.same(f.fact) }):
		return false
	}
	if c.here == nil {
		c.here = map[*column][]finding{}
	}
	c.here[to] = append(c.here[to], f)
	return true
}

func (l *link) spread() bool {
	changed := false
	for _, f := range l.result.known {
		f.fact = l.own(f.fact)
		changed = l.column.add(f) || changed
	}
	if !l.pushes {
		return changed
	}
	for _, f := range l.column.known {
		changed = l.result.add(f) || changed
	}
	return changed
}

func (u *union) spread() bool {
	changed := false
	switch {
	case u.recursive != nil:
		return false
	case u.operation == facts.Union:
		changed = u.spreadUnion()
	default:
		for _, f := range u.left.known {
			changed = u.to.add(f) || changed
		}
		if u.operation == facts.Intersect {
			for _, f := range u.right.known {
				changed = u.to.add(f) || changed
			}
		}
	}
	for _, f := range u.to.known {
		changed = u.pushLeft && u.left.add(f) || changed
		changed = u.pushRight && u.right.add(f) || changed
	}
	return changed
}

// spreadUnion: the result has what both arms have, or one of their values.
func (u *union) spreadUnion() bool {
	changed, shared := false, false
	for _, f := range u.left.known {
		if u.right.has(f.fact) {
			changed = u.to.add(f) || changed
			shared = shared || f.fact.isKey()
		}
	}
	if shared || u.joined != nil {
		return changed
	}
	l, r := firstKey(u.left), firstKey(u.right)
	if u.to.family == noFamily || l == nil || r == nil || len(l.members)+len(r.members) > maxRows || l.stored != nil || r.stored != nil {
		return changed
	}
	u.joined = &fact{members: slices.Concat(l.members, r.members), choice: &choice{}}
	return u.to.add(finding{fact: u.joined}) || changed
}

func firstKey(c *column) *fact {
	for _, f := range c.known {
		if f.fact.isKey() {
			return f.fact
		}
	}
	return nil
}

// store says that values of one column are stored in another.
type store struct {
	from, to *column
	part     KeyPart
	// made are the facts that were made of others.
	made map[*fact]*fact
}

// spread: what is stored is what is known, if the column takes it as it is. An operand becomes what the column's type makes of it.
func (s *store) spread() bool {
	changed := false
	for _, f := range s.from.known {
		taken := f.fact
		switch {
		case s.from.computed && taken.stored == nil:
			taken = s.assigned(taken)
		case !s.isExact(taken):
			continue
		}
		changed = s.to.add(finding{fact: taken, from: s.from, where: f.where}) || changed
	}
	return changed
}

// isExact says whether the column takes a value as it is: its type has no modifier, or the value has been in such a column.
func (s *store) isExact(f *fact) bool {
	if s.from.family != s.to.family {
		return false
	}
	if f.stored != nil {
		return s.part.TypeMod == -1 || f.stored.Type == s.part.Type && f.stored.TypeMod == s.part.TypeMod
	}
	return s.to.mod == -1 || s.from.oid == s.to.oid && s.from.mod == s.to.mod
}

// assigned is a fact about an operand that is assigned to the column.
func (s *store) assigned(f *fact) *fact {
	if s.made[f] == nil {
		if s.made == nil {
			s.made = map[*fact]*fact{}
		}
		made := *f
		made.stored = &s.part
		s.made[f] = &made
	}
	return s.made[f]
}
