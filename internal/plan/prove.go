package plan

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// prove finds the shards of a statement that names sharded tables, by the keys of all of them. What makes it right to run the
// statement on the shards of these keys alone: rows with other keys cannot matter to it, and what it reads besides are reference
// tables, which every shard has.
func (v *survey) prove() {
	v.refuseTables()
	if v.s.Sources > maxSources {
		v.out.refuse("too-many-sources", pgerr.New(pgerr.ProgramLimitExceeded, "a statement with more than %d tables and subqueries in its FROM clauses is not supported on sharded tables", maxSources))
	}
	if v.s.AtCursor {
		v.out.refuse("current-of", pgerr.New(pgerr.FeatureNotSupported, "WHERE CURRENT OF is not supported yet on a sharded table").
			WithDetail("The cursor is on one shard.").WithHint("Use the row's key and its primary key."))
	}
	if v.out.Refusal != nil {
		return
	}
	if v.drawsKey() {
		return
	}
	x := newProof(v)
	x.build(v.s.Query, place{})
	v.refuseForms(x)
	if v.out.Refusal != nil {
		return
	}
	for _, o := range x.occurrences {
		o.parts = v.keyParts(o.r)
	}
	if v.out.Refusal != nil {
		return
	}
	x.spread()
	x.induce()
	x.leaveMade()
	x.bindIDs()
	v.decide(x)
	v.p.plan.Uncacheable = v.p.plan.Uncacheable || x.byLiteral
}

// refuseTables refuses sharded tables of which too little is known, or too much happens behind them.
func (v *survey) refuseTables() {
	first := &v.tables[v.sharded[0]]
	for _, i := range v.sharded {
		r := &v.tables[i]
		switch {
		case r.relation == nil:
			v.out.refuse("not-known-yet", pgerr.New(pgerr.FeatureNotSupported, "sharded table %s is not known yet", r.title()).
				WithDetail("It was declared a moment ago, or it is missing on the home shard.").WithHint("Try again."))
		case r.relation.HasRules:
			v.out.refuse("rules", pgerr.New(pgerr.FeatureNotSupported, "rules on a sharded table are not supported").
				WithDetail("%s has rewrite rules.", r.title()).WithHint("Drop them, or use triggers."))
		case r.table.Keyspace() != first.table.Keyspace():
			v.out.refuse("two-keyspaces", pgerr.New(pgerr.FeatureNotSupported, "a statement over sharded tables of several keyspaces is not supported yet").
				WithDetail("%s is in keyspace %s, %s in keyspace %s.", first.title(), first.table.Keyspace().Name(), r.title(), r.table.Keyspace().Name()).
				WithHint("Tables that are used together can be declared with colocate_with."))
		}
	}
}

// refuseForms refuses forms of queries of which the proof can say nothing.
func (v *survey) refuseForms(x *proof) {
	found := map[int]bool{}
	for _, o := range x.occurrences {
		found[o.index] = true
	}
	for _, i := range v.sharded {
		if !found[i] {
			v.out.refuse("role", pgerr.New(pgerr.FeatureNotSupported, "%s is not supported yet on a sharded table", v.s.Name).WithDetail("It names %s.", v.tables[i].title()))
		}
	}
	if x.unknownMerge {
		v.out.refuse("merge-by-source", pgerr.New(pgerr.FeatureNotSupported, "WHEN NOT MATCHED BY SOURCE is not supported yet on a sharded table").
			WithDetail("It concerns rows that the ON condition does not choose, on all shards.").WithHint("Use DELETE or UPDATE for those rows."))
	}
	v.s.Query.Walk(func(b *facts.Block) bool {
		if b.Command == facts.Insert && v.tables[b.Target.Table].class == sharded {
			v.refuseInsert(b, &v.tables[b.Target.Table])
		}
		return true
	})
}

// keyParts says what the key columns of a table are.
func (v *survey) keyParts(r *resolved) []KeyPart {
	names := r.table.KeyColumns()
	parts := make([]KeyPart, 0, len(names))
	for _, name := range names {
		part, ok := v.keyPart(r, name)
		if !ok {
			return nil
		}
		parts = append(parts, part)
	}
	return parts
}

// refuseInsert refuses rows whose key is missing or cannot be known.
func (v *survey) refuseInsert(b *facts.Block, r *resolved) {
	if b.Parts || b.Inserted != nil && b.Inserted.Spread {
		v.out.refuse("insert-parts", pgerr.New(pgerr.FeatureNotSupported, "INSERT into parts of columns of a sharded table is not supported yet").
			WithDetail("Which value becomes the key cannot be told from the statement.").WithHint("Name the columns, and give each of them one value."))
		return
	}
	for _, name := range r.table.KeyColumns() {
		column := r.relation.column(name)
		if column == nil {
			return // it is refused for that
		}
		switch {
		case r.isMade(name) && (b.Inserted == nil || insertedAt(b.Columns, r, name) < 0):
		case b.Inserted == nil:
			v.defaultKey(r, column)
		case len(b.Inserted.Rows) > 0:
			v.refuseRows(b, r, column)
		case insertedAt(b.Columns, r, name) < 0:
			v.defaultKey(r, column)
		}
	}
}

func (v *survey) refuseRows(b *facts.Block, r *resolved, column *Column) {
	at := insertedAt(b.Columns, r, column.Name)
	if wrong := wrongLength(b, r); wrong != nil {
		v.out.refuse("insert-lengths", wrong)
		return
	}
	for _, row := range b.Inserted.Rows {
		if len(row) != len(b.Inserted.Rows[0]) {
			v.out.refuse("insert-lengths", pgerr.New(pgerr.SyntaxError, "VALUES lists must all be the same length"))
			return
		}
		if at < 0 || at >= len(row) {
			if !r.isMade(column.Name) {
				v.defaultKey(r, column)
			}
			return
		}
		switch operand, _ := v.p.operandOf(row[at]); operand.Kind {
		case IsDefault:
			if !r.isMade(column.Name) {
				v.defaultKey(r, column)
			}
		case IsNull:
			v.out.refuse("insert-null-key", nullKey(r, column.Name))
		case Unknowable:
			v.out.refuse("insert-computed-key", pgerr.New(pgerr.FeatureNotSupported, "a computed value for key column %q of sharded table %s is not supported yet", column.Name, r.title()).
				WithDetail("Only PostgreSQL can tell its value, and the shard has to be known before.").WithHint("Use a literal or a parameter."))
		default:
		}
	}
}

// wrongLength is what PostgreSQL says of rows that have more values than there are columns, or fewer than are named.
func wrongLength(b *facts.Block, r *resolved) *pgerr.Error {
	columns := len(b.Columns)
	if columns == 0 {
		columns = len(r.relation.Columns)
	}
	switch values := len(b.Inserted.Rows[0]); {
	case values > columns:
		return pgerr.New(pgerr.SyntaxError, "INSERT has more expressions than target columns")
	case values < len(b.Columns):
		return pgerr.New(pgerr.SyntaxError, "INSERT has more target columns than expressions")
	default:
		return nil
	}
}

// decide turns what was found into a route.
func (v *survey) decide(x *proof) {
	if len(x.occurrences) == 0 {
		v.out.Route = x.byMaking()
		return
	}
	first := x.occurrences[0]
	route := Route{Keyspace: first.r.table.Keyspace().Name(), Table: first.r.title()}
	if route.Key = x.keyed(); route.Key != nil {
		route.Level, route.Why = Keyed, x.whyKeyed(first, route.Key)
		v.out.Route = route
		return
	}
	if x.overridden && v.p.open.reach&openPath != 0 {
		v.out.refuse("unsettled-names", v.p.open.refusal(v.s))
		return
	}
	if v.p.HintKey && slices.ContainsFunc(x.occurrences, func(o *occurrence) bool { return !o.stores }) {
		if _, unbound := x.keys(x.occurrences); unbound != nil {
			v.out.Route = byHintedKey(route, first)
			return
		}
	}
	route.Level = Several
	if rows := v.byRow(x); rows != nil {
		route.Keys, route.RowKeys, route.Parts, route.ValuesAt = rows, len(rows), ByRow, v.s.Query.ValuesAt
		route.Why = strings.Join(first.r.table.KeyColumns(), ", ") + " of each of " + strconv.Itoa(len(rows)) + " rows"
		v.out.Route = route
		return
	}
	driver, obstacle := v.dividedBy(x.driver)
	if driver != nil {
		v.out.Route = x.divided(route, driver)
		return
	}
	if _, keyless := x.keys(x.occurrences); keyless != nil && v.keepKey(x, route) {
		return
	}
	keys, unbound := x.places(x.occurrences)
	switch bounds := x.onlyBounds(first); {
	case unbound == nil:
		route.Keys, route.Why = keys, x.whyAll()
	case len(bounds) > 0:
		route.Bounds, route.Why = bounds, "bounds of "+first.key[0].title
	default:
		v.refuseUnbound(x, unbound, obstacle)
		return
	}
	route.Undivided = x.undivided(obstacle)
	v.out.Route = route
}

// byHintedKey is the route of a statement that the client says is meant for the shard of the key that it has set.
func byHintedKey(route Route, o *occurrence) Route {
	route.Level, route.Hinted, route.Why = Keyed, true, "the key that the client has set"
	for i, part := range o.parts {
		part.Operand = Operand{Kind: FromSetting, Literal: i, CastMod: -1}
		route.Key = append(route.Key, part)
	}
	return route
}

// onlyBounds returns the bounds of the only occurrence; none if there are others, or their order is not that of the keyspace.
func (x *proof) onlyBounds(o *occurrence) []Bound {
	if len(x.occurrences) > 1 || o.stores || o.r.table.Keyspace().Strategy() != topology.ByRange {
		return nil
	}
	return x.bounds(o)
}

// dividedBy finds what divides a statement, unless a function in it wants one shard.
func (v *survey) dividedBy(driver func() (*occurrence, string)) (*occurrence, string) {
	switch {
	case v.local != "":
		return nil, "function " + v.local + ", which uses the rows of one shard"
	case v.out.Pin != "" || len(v.out.Settings) > 0:
		return nil, "set_config"
	case v.p.oneTime:
		return nil, "the current time in a view"
	case v.s.Placed: // every shard has rows of its own at the same places
		return nil, "a system column"
	case v.changes && v.s.Query.AtMost != nil: // on rows that are left out too
		return nil, limiting
	default:
		return driver()
	}
}

// keepKey routes an UPDATE that sets the key and looks for rows by something else, such as an id of their own, as programs do that save
// whole rows. It runs on all shards, or on those that the id tells. That it leaves no row where it does not belong is seen from what each has changed: on the shard of
// the new key rows may stay, and if another one had any, all is undone.
func (v *survey) keepKey(x *proof, route Route) bool {
	at := slices.IndexFunc(x.occurrences, func(o *occurrence) bool { return o.updates })
	if at < 0 || v.s.Query.Command != facts.Update {
		return false
	}
	kept := x.occurrences[at]
	keys, unbound := x.keys([]*occurrence{kept})
	driver, _ := v.dividedBy(func() (*occurrence, string) { return x.driverBut(kept) })
	if driver == nil || unbound != nil || len(keys) != 1 || slices.ContainsFunc(keys[0], func(p KeyPart) bool { return p.Each }) {
		return false
	}
	route.Keys, route.All, route.Parts = keys, true, Kept
	route.Why = "all rows of " + driver.r.title() + ", which get the key of one shard"
	if by := x.slotted(driver); by != nil {
		route.Keys, route.All, route.Why = slices.Concat(keys, by.slots), false, by.slotsWhy
	}
	v.out.Route = route
	return true
}

// divided is the route of a statement whose parts are independent.
func (x *proof) divided(route Route, driver *occurrence) Route {
	route.Parts, route.Table = Same, driver.r.title()
	if n := x.s.Query.AtMost; n != nil {
		route.AtMost = new(x.p.operand(*n))
	}
	if n := x.s.Query.Skips; n != nil {
		route.Skips = new(x.p.operand(*n))
	}
	keys, unbound := x.keys([]*occurrence{driver})
	if unbound == nil {
		route.Keys, route.Why = keys, x.why(driver)
		return route
	}
	if by := x.slotted(driver); by != nil {
		route.Keys, route.Why = by.slots, by.slotsWhy
		return route
	}
	if driver.r.table.Keyspace().Strategy() == topology.ByRange {
		route.Bounds = x.bounds(driver)
	}
	if len(route.Bounds) > 0 {
		route.Why = "bounds of " + driver.key[0].title
		return route
	}
	route.All, route.Why = true, "all rows of "+driver.r.title()
	return route
}

// byRow returns the key of each row of an INSERT that can be divided by rows; nil if this is none.
func (v *survey) byRow(x *proof) [][]KeyPart {
	q := v.s.Query
	if q.Command != facts.Insert || q.Inserted == nil || len(q.Inserted.Rows) < 2 || q.ValuesAt < 0 || len(q.With)+len(q.Inserted.With) > 0 ||
		q.Inserted.Sorted || q.Inserted.Limited || q.Inserted.Locks || len(x.occurrences) > 1 || v.local != "" || v.out.Pin != "" {
		return nil
	}
	if slices.ContainsFunc(slices.Concat(q.Queries, q.Returned), func(b *facts.Block) bool { return x.varies(b) || x.anywhere(b) != "" || x.aggregatesOutside(b) }) {
		return nil
	}
	stored := x.occurrences[0]
	rows := make([][]KeyPart, len(q.Inserted.Rows))
	for i := range rows {
		for _, part := range stored.parts {
			part.Store = true
			part.Operand = v.p.operand(q.Inserted.Rows[i][insertedAt(q.Columns, stored.r, part.Column)])
			rows[i] = append(rows[i], part)
		}
	}
	return rows
}

// undivided is why a statement must not run if its keys are on several shards.
func (x *proof) undivided(obstacle string) *pgerr.Error {
	if at := slices.IndexFunc(x.occurrences, func(o *occurrence) bool { return o.moves }); at >= 0 {
		return pgerr.New(pgerr.FeatureNotSupported, "moving a row to another shard is not supported yet").
			WithDetail("A row of %s gets a key that is on another shard.", x.occurrences[at].r.title()).WithHint("Delete the row and insert it again.")
	}
	return pgerr.New(pgerr.FeatureNotSupported, "a statement over several shards is not supported yet").
		WithDetail("Its keys are on several shards, and its parts cannot be computed alone. In the way: %s.", obstacle).
		WithHint("Run it for the keys of one shard at a time.")
}

// refuseUnbound refuses a statement of which a key is not known.
func (v *survey) refuseUnbound(x *proof, o *occurrence, obstacle string) {
	column := o.unboundColumn()
	switch {
	case o.moves:
		v.out.refuse("assigns-key", pgerr.New(pgerr.FeatureNotSupported, "changing key column %q of sharded table %s is not supported yet", column, o.r.title()).
			WithDetail("A row with another key may belong on another shard.").WithHint("Delete the row and insert it again."))
	case o.stores:
		v.out.refuse("insert-select", pgerr.New(pgerr.FeatureNotSupported, "%s into a sharded table is not supported yet in this form", v.s.Name).
			WithDetail("Which values key column %q of %s gets cannot be told from the statement. In the way of dividing it: %s.", column, o.r.title(), obstacle).
			WithHint("Insert rows with VALUES, or restrict what is read by the key."))
	case x.overridden:
		v.out.refuse("equality-overridden", pgerr.New(pgerr.FeatureNotSupported, "operator = of PostgreSQL is not the only one for key column %q of sharded table %s", column, o.r.title()).
			WithDetail("A schema of the search path has an operator = of its own that may be meant, and what it holds for equal may be on several shards.").
			WithHint("Write %s OPERATOR(pg_catalog.=) …, or take that schema out of the search path.", column))
	default:
		v.out.refuse("key-not-bound", pgerr.New(pgerr.FeatureNotSupported, "a statement over several shards is not supported yet").
			WithDetail("Key column %q of sharded table %s is not bound to values, and the statement's parts cannot be computed alone. In the way: %s.", column, o.r.title(), obstacle).
			WithHint("Add %s = … to the WHERE clause, with a literal or a parameter, joined by AND.", column))
	}
}

// whyKeyed says which predicate bound an occurrence to a key.
func (x *proof) whyKeyed(o *occurrence, to []KeyPart) string {
	return x.whyEach(o, func(i int, f *fact) bool {
		if !f.isOne() {
			return false
		}
		part := x.part(o, i, f, 0)
		return samePart(&part, &to[i])
	})
}

// why says which predicates bound the key of an occurrence.
func (x *proof) why(o *occurrence) string {
	chosen := x.chosen(o)
	return x.whyEach(o, func(i int, f *fact) bool { return f == chosen[i] })
}

// whyEach gives the reason for each key column: the first fact that is such.
func (x *proof) whyEach(o *occurrence, is func(i int, f *fact) bool) string {
	var reasons []string
	for i, c := range o.key {
		if at := slices.IndexFunc(c.known, func(k finding) bool { return k.fact.isKey() && is(i, k.fact) }); at >= 0 {
			reasons = append(reasons, reason(c, c.known[at]))
		}
	}
	return strings.Join(reasons, " and ")
}

// whyAll says it of several keys.
func (x *proof) whyAll() string {
	var reasons []string
	for _, o := range x.occurrences {
		if why := x.whyPlace(o); !slices.Contains(reasons, why) && len(reasons) < 3 {
			reasons = append(reasons, why)
		}
	}
	return strings.Join(reasons, "; ")
}

// reason writes the steps by which a fact was found, from the column to the operand, and in which clause each stands. Values of literals are
// not in it, since others share the plan.
func reason(c *column, k finding) string {
	var steps reasons
	for range 4 {
		if k.from == nil {
			break
		}
		if k.from.title != "" && k.from.title != c.title {
			steps.add(c.title+" = "+k.from.title, k.where)
		}
		next := slices.IndexFunc(k.from.known, func(other finding) bool { return other.fact == k.fact || other.fact.same(k.fact) })
		if next < 0 {
			break
		}
		if k.from.title != "" {
			c = k.from
		}
		k = k.from.known[next]
	}
	where := k.where
	if k.from != nil { // of an equality, which has been told; where the fact itself stands is not known
		where = ""
	}
	steps.add(c.title+" "+k.fact.describe(), where)
	return steps.String()
}

// reasons are conditions with the clauses in which they stand.
type reasons struct{ texts, clauses []string }

func (r *reasons) add(text, clause string) {
	r.texts, r.clauses = append(r.texts, text), append(r.clauses, clause)
}

// String names each clause once, behind the last of the conditions in it.
func (r *reasons) String() string {
	var out strings.Builder
	for i, text := range r.texts {
		if i > 0 {
			out.WriteString(", ")
		}
		out.WriteString(text)
		if last := i == len(r.texts)-1 || r.clauses[i+1] != r.clauses[i]; last && r.clauses[i] != "" {
			out.WriteString(" in " + r.clauses[i])
		}
	}
	return out.String()
}

// describe writes a fact behind its column.
func (f *fact) describe() string {
	m := f.members[0]
	switch {
	case len(f.members) > 1:
		return "in a list of " + strconv.Itoa(len(f.members))
	case f.stored != nil:
		return "gets " + describeOperand(&m.value)
	case m.each:
		return "= any of " + describeOperand(&m.value)
	default:
		return "= " + describeOperand(&m.value)
	}
}

func describeOperand(o *facts.Operand) string {
	switch o.Kind {
	case facts.Param:
		return "$" + strconv.Itoa(o.Param)
	case facts.Null:
		return "NULL"
	case facts.True:
		return "true"
	case facts.False:
		return "false"
	case facts.Fixed:
		return "its default"
	default:
		return "literal"
	}
}
