package plan

import (
	"slices"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/topology"
)

// proof finds out, of a statement that names sharded tables, which of their rows can matter to it.
//
// It builds what the queries of the statement are made of: sources with their columns, and contexts, which are clauses that rows
// must meet. Then facts spread (spread.go) until nothing new is found. What makes a step right is said where it is made; all of
// them keep to this: rows that do not have the value that was found could be taken from the table without a change of the answer.
type proof struct {
	p *planner
	s *facts.Statement
	// tables are what the survey found.
	tables []resolved
	// occurrences are the places where sharded tables are named, and keys that are stored, in the order of building.
	occurrences []*occurrence
	// made are keys that the shard makes which stores them, so that they ask for no shard.
	made     []*occurrence
	contexts []*context
	links    []link
	unions   []union
	stores   []store
	commons  map[*facts.Common]*commonBlock
	built    map[*facts.Block]*block
	// sources counts those that were made.
	sources int
	// bounded: comparisons with < and > are of use, since a keyspace by range is concerned.
	bounded bool
	// overridden: there is a comparison that an operator of users' may have another meaning for.
	overridden bool
	// unknownMerge: MERGE has a form of which nothing follows.
	unknownMerge bool
	// byLiteral: it matters which number stands in GROUP BY, or in OFFSET.
	byLiteral bool
}

// occurrence is a sharded table in one place of the statement, or a key that is stored in it there.
type occurrence struct {
	r     *resolved
	index int
	// key are the columns that hold its key, in the keyspace's order; nil where nothing is known.
	key []*column
	// parts are what its key columns are.
	parts []KeyPart
	// stores: the key is that of rows that are stored, rather than looked for. moves: they are there already under another key.
	stores, moves bool
	// makes: the shard that stores the rows makes the key.
	makes bool
	// updates: that is all that happens to these rows, and so it can be seen afterwards where there were any.
	updates bool
	// obstacle is why its rows cannot be told apart in the answer, so that parts of it could be computed alone; empty if they can.
	obstacle string
	// ids are its columns whose numbers carry the slot of the row's key, and slots the ids that one of them can have: any of these
	// tuples of one part. None if nothing is known of them.
	ids   []idColumn
	slots [][]KeyPart
	// slotsWhy is the predicate.
	slotsWhy string
}

// block is what is known of a query.
type block struct {
	f     *facts.Block
	exits []exit
	// certain is how many of the exits are surely at their places; open: there may be more than these.
	certain int
	open    bool
	// first is the number of the first source inside of it.
	first int
	scope *scope
}

// exit is a column of a query's result.
type exit struct {
	name   string
	column *column
	// pushes: rows with other values of this column could be taken from the query's tables without a change of those with the
	// value in question.
	pushes bool
}

// commonBlock is a common table expression and where it stands.
type commonBlock struct {
	block *block
	// outer is what can be seen around the query that has it.
	outer *scope
	// building: it is being looked at, so that it names itself if it is met.
	building bool
}

// maxSources is how many relations the FROM clauses of a statement may have. What is in scope is copied for every join, so that
// many more would take long.
const maxSources = 200

func newProof(v *survey) *proof {
	x := &proof{p: v.p, s: v.s, tables: v.tables, built: map[*facts.Block]*block{}}
	for _, i := range v.sharded {
		x.bounded = x.bounded || v.tables[i].table.Keyspace().Strategy() == topology.ByRange
	}
	return x
}

// place is where a block stands.
type place struct {
	outer *scope
	// obstacle is what keeps rows of its sources from being told apart in the answer.
	obstacle string
}

// Obstacles that no clause of a query is.
const (
	inExpression    = "a subquery in an expression"
	filledByJoin    = "an outer join that keeps the rows of its other side"
	usedTwice       = "a common table expression that is used more than once"
	inRecursion     = "a recursive common table expression"
	inWritingCommon = "a common table expression that writes"
)

// build makes what is known of a query.
func (x *proof) build(f *facts.Block, at place) *block {
	b := &block{f: f, first: x.sources}
	x.built[f] = b
	x.with(f, at)
	if at.obstacle == "" {
		at.obstacle = x.obstacleOf(f)
	}
	switch {
	case f.Operation != facts.NoOperation:
		x.operation(b, at, nil)
	case f.Command == facts.Insert:
		x.insert(b, at)
	case f.Command == facts.Merge:
		x.merge(b, at)
	case f.Command == facts.Update || f.Command == facts.Delete:
		x.change(b, at)
	case len(f.Rows) > 0:
		x.values(b, at)
	default:
		x.selection(b, at)
	}
	return b
}

// with makes the common table expressions of a query known. They see what is around that query.
func (x *proof) with(f *facts.Block, at place) {
	for _, common := range f.With {
		if x.commons == nil {
			x.commons = map[*facts.Common]*commonBlock{}
		}
		x.commons[common] = &commonBlock{outer: at.outer}
	}
}

// unused builds the common table expressions that nobody has read: if they write they run nevertheless.
func (x *proof) unused(f *facts.Block) {
	for _, common := range f.With {
		x.common(common, inExpression)
	}
}

// common returns what a common table expression is; nil if that is not to be told.
func (x *proof) common(common *facts.Common, obstacle string) *block {
	c := x.commons[common]
	switch {
	case c == nil || common.Query == nil:
		return nil
	case c.block != nil || c.building:
		return c.block
	}
	c.building = true
	switch {
	case common.References == 1 && x.changesAlone(common.Query): // every shard changes its own rows, whatever becomes of them
	case common.Query.Command != facts.Select:
		obstacle = inWritingCommon
	case common.Recursive:
		obstacle = inRecursion
	case common.References > 1:
		obstacle = usedTwice
	}
	at := place{c.outer, obstacle}
	if common.Recursive && common.Query.Operation == facts.Union {
		x.recursive(c, common, at)
	} else {
		c.block = x.build(common.Query, at)
	}
	c.building = false
	return c.block
}

// recursive builds a query that names itself: inside of its second arm it is what its first arm says.
func (x *proof) recursive(c *commonBlock, common *facts.Common, at place) {
	b := &block{f: common.Query, first: x.sources}
	x.built[common.Query] = b
	x.with(common.Query, at)
	x.operation(b, at, func() { c.block = b })
}

// inside builds queries in expressions.
func (x *proof) inside(queries []*facts.Block, outer *scope) {
	for _, q := range queries {
		x.build(q, place{outer, inExpression})
	}
}

// selection builds a plain SELECT.
func (x *proof) selection(b *block, at place) {
	f := b.f
	s := &scope{outer: at.outer, view: x.from(f.From, at)}
	b.scope = s
	x.require(&f.Where, s, "WHERE", b.first, x.sources)
	x.exits(b, f.Output, s)
	x.inside(f.Queries, s)
	x.unused(f)
}

// values builds VALUES.
func (x *proof) values(b *block, at place) {
	f := b.f
	b.scope = &scope{outer: at.outer}
	x.inside(f.Queries, b.scope)
	x.unused(f)
	if b.open = f.Spread; b.open {
		return
	}
	list := &choice{}
	for i := range f.Rows[0] {
		b.exits = append(b.exits, exit{name: "column" + itoa(i+1), column: x.valuesColumn(f.Rows, i, list)})
	}
	b.certain = len(b.exits)
}

// valuesColumn makes a column of VALUES.
func (x *proof) valuesColumn(rows [][]facts.Operand, i int, list *choice) *column {
	members := make([]member, 0, len(rows))
	for _, row := range rows {
		if i >= len(row) || !x.isListable(&row[i], len(rows)) {
			return nil
		}
		members = append(members, member{value: row[i], listed: len(rows) > 1})
	}
	return x.computed(members, list)
}

// isListable says whether a value can be one of so many. With others it decides which type all of them have, and so which operator
// compares them: a NULL that says its type counts as well, though no row has it.
func (x *proof) isListable(o *facts.Operand, among int) bool {
	if o.Kind == facts.Null {
		return among == 1 || len(o.Casts) == 0
	}
	operand, _ := x.p.operandOf(*o)
	return operand.Kind != Unknowable && operand.Kind != IsDefault
}

// computed makes a column of values that stand in the text.
func (x *proof) computed(members []member, list *choice) *column {
	f := &fact{members: members, choice: list}
	if first := members[0]; !slices.ContainsFunc(members, func(m member) bool { return !sameOperand(&m.value, &first.value) }) {
		f = &fact{members: []member{{value: first.value}}}
	}
	c := &column{computed: true, family: x.p.familyOfOperand(&members[0].value), number: -1, mod: -1, known: []finding{{fact: f}}}
	if slices.ContainsFunc(members, func(m member) bool { return x.p.familyOfOperand(&m.value) != c.family }) {
		c.family = noFamily
	}
	return c
}

// operation builds a set operation. Its names are those of its first arm; known is called when they are.
func (x *proof) operation(b *block, at place, known func()) {
	f := b.f
	left := x.build(f.Arms[0], at)
	b.open, b.certain = left.open, left.certain
	for i := range left.exits {
		e := exit{name: left.exits[i].name}
		if i < left.certain && left.exits[i].column != nil {
			c := left.exits[i].column
			e.column = &column{title: c.title, family: c.family, computed: c.computed, oid: c.oid, mod: c.mod, number: -1}
		}
		b.exits = append(b.exits, e)
	}
	if known != nil {
		known()
	}
	right := x.build(f.Arms[1], at)
	b.scope = &scope{outer: at.outer}
	x.inside(f.Queries, b.scope)
	x.unused(f)
	for i := range b.exits {
		x.unite(b, i, left, right)
	}
}

// unite makes a column of a set operation out of those of its arms. They must be of one family, lest their values change in it.
func (x *proof) unite(b *block, i int, left, right *block) {
	e := &b.exits[i]
	if e.column == nil || i >= right.certain || right.exits[i].column == nil {
		e.column = nil
		return
	}
	l, r := left.exits[i], right.exits[i]
	e.column.computed = l.column.computed && r.column.computed
	if l.column.family != r.column.family {
		e.column.family = noFamily
		return
	}
	if l.column.oid != r.column.oid || l.column.mod != r.column.mod {
		e.column.mod = otherType
	}
	e.pushes = !x.limits(b.f) && !b.f.Locks
	x.unions = append(x.unions, union{
		operation: b.f.Operation, left: l.column, right: r.column, to: e.column, pushLeft: e.pushes && l.pushes, pushRight: e.pushes && r.pushes,
		recursive: x.recursiveOperation(b),
	})
}

// otherType is a modifier that no type has: two types met.
const otherType = -2

// recursiveOperation returns the query if it is that of a common table expression that names itself.
func (x *proof) recursiveOperation(b *block) *facts.Block {
	if slices.ContainsFunc(x.s.Recursive, func(c *facts.Common) bool { return c.Query == b.f }) {
		return b.f
	}
	return nil
}

// exits makes the columns of a query's result.
func (x *proof) exits(b *block, outputs []facts.Output, s *scope) {
	for i := range outputs {
		o := &outputs[i]
		switch {
		case o.Star:
			x.starExits(b, o, s)
		case o.IsColumn():
			b.addExit(exit{o.Name, s.resolve(o.Column), false})
		default:
			b.addExit(exit{name: o.Name, column: x.operandColumn(&o.Value)})
		}
	}
	for i := range b.exits {
		b.exits[i].pushes = x.pushes(b, i)
	}
}

func (b *block) addExit(e exit) {
	b.exits = append(b.exits, e)
	if !b.open {
		b.certain = len(b.exits)
	}
}

// operandColumn is the column that an operand is.
func (x *proof) operandColumn(o *facts.Operand) *column {
	if !x.isListable(o, 1) {
		return nil
	}
	return x.computed([]member{{value: *o}}, nil)
}

// starExits adds what a star stands for.
func (x *proof) starExits(b *block, o *facts.Output, s *scope) {
	columns, open := s.columns, s.open
	if len(o.Column) > 0 {
		it, count := s.item(o.Column)
		if count != 1 {
			b.open = true
			return
		}
		columns, open = it.columns, it.open
	}
	for _, list := range columns {
		for _, v := range list {
			b.addExit(exit{name: v.name, column: v.column()})
		}
	}
	b.open = b.open || open
}

// pushes says whether rows with other values of a column of the result cannot change those with one value: nothing counts rows,
// and what groups them has the column among its terms.
func (x *proof) pushes(b *block, i int) bool {
	f, c := b.f, b.exits[i].column
	if c == nil || c.computed || c.number < b.first || c.number >= x.sources || f.Command != facts.Select || x.limits(f) || f.Locks || f.GroupingSets {
		return false
	}
	if f.Grouped && !slices.ContainsFunc(f.GroupBy, func(t facts.Term) bool { return x.groupTerm(b, &t, i) }) {
		return false
	}
	if len(f.DistinctOn) > 0 && !slices.ContainsFunc(f.DistinctOn, func(t facts.Term) bool { return x.distinctTerm(b, &t, i) }) {
		return false
	}
	return !slices.ContainsFunc(f.Windows, func(partition []facts.Term) bool {
		return !slices.ContainsFunc(partition, func(t facts.Term) bool { return t.IsColumn() && b.scope.resolve(t.Column) == c })
	})
}

// groupTerm says whether a term of GROUP BY is the column of the result. A plain name is a column of FROM before it is one of the
// result, a number is a place in the result.
func (x *proof) groupTerm(b *block, t *facts.Term, i int) bool {
	if !t.IsColumn() {
		return x.isPosition(t, i)
	}
	if len(t.Column) == 1 {
		if found, exists := b.scope.local(t.Column[0]); exists {
			return found == b.exits[i].column
		}
		return b.onlyNamed(t.Column[0], i)
	}
	return b.scope.resolve(t.Column) == b.exits[i].column
}

// distinctTerm says it of a term of DISTINCT ON, where a plain name is a column of the result first.
func (x *proof) distinctTerm(b *block, t *facts.Term, i int) bool {
	switch {
	case !t.IsColumn():
		return x.isPosition(t, i)
	case len(t.Column) > 1:
		return b.scope.resolve(t.Column) == b.exits[i].column
	case slices.ContainsFunc(b.exits, func(e exit) bool { return e.name == t.Column[0] || e.name == "" }) || b.open:
		return b.onlyNamed(t.Column[0], i)
	default:
		found, _ := b.scope.local(t.Column[0])
		return found == b.exits[i].column
	}
}

// onlyNamed says whether a column of the result, and no other one, has a name.
func (b *block) onlyNamed(name string, i int) bool {
	for j := range b.exits {
		if named := b.exits[j].name == name || b.exits[j].name == ""; named != (i == j) {
			return false
		}
	}
	return !b.open
}

// isPosition says whether a term is the number of a column of the result, so that the plan depends on that number.
func (x *proof) isPosition(t *facts.Term, i int) bool {
	is := t.Value.Kind == facts.Constant && t.Value.Number && len(t.Value.Casts) == 0 && t.Value.Text == itoa(i+1)
	x.byLiteral = x.byLiteral || is
	return is
}
