package plan

import (
	"slices"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// NumberCall is a call of a function of sequences in whose place the session puts one that knows of the numbers that shards make.
type NumberCall struct {
	// Function is nextval, setval, currval or lastval.
	Function string
	// Start and End are its bytes in the text, Open is where its parenthesis opens.
	Start, Open, End int
	// Names: its name is that of a column of the result.
	Names bool
	// Sequence is the first argument, if that is a literal or a parameter.
	Sequence Operand
}

// Asks says whether it asks what the session was given before.
func (c *NumberCall) Asks() bool { return c.Function == "currval" || c.Function == "lastval" }

// makesNumbers says whether shards make numbers for some table, or the router takes them for copies of one.
func (p *planner) makesNumbers() bool {
	if p.Map.ShardCount() > 1 {
		return p.declared
	}
	for _, t := range p.Map.Tables() {
		if len(t.IDs())+len(t.MadeKeys()) > 0 {
			return true
		}
	}
	return false
}

// numberCall notes a call that the session replaces; false if it cannot.
func (v *survey) numberCall(c *facts.Call) bool {
	if !v.p.makesNumbers() || !v.p.isSystem(*c) {
		return false
	}
	if v.p.inside || v.s.Query == nil {
		v.refuseNumberCall(c)
		return false
	}
	open := v.p.opening(c)
	asks := c.Name == "currval" || c.Name == "lastval"
	named := slices.ContainsFunc(c.ArgumentNames, func(name string) bool { return name != "" })
	if open < 0 || c.Modified || named || c.Place == facts.InRowsFrom || asks && (len(c.Columns) > 0 || c.Queries) || (c.Name == "lastval") != (len(c.Arguments) == 0) {
		v.refuseNumberCall(c)
		return false
	}
	call := NumberCall{Function: c.Name, Start: c.Start, Open: open, End: c.End, Names: c.Names, Sequence: Operand{CastMod: -1}}
	if len(c.Arguments) > 0 {
		sequence := c.Arguments[0]
		sequence.Casts = slices.DeleteFunc(slices.Clone(sequence.Casts), func(t facts.Type) bool { return t.Name == "regclass" || t.Name == "text" })
		call.Sequence = v.p.operand(sequence)
	}
	v.out.Numbers = append(v.out.Numbers, call)
	v.p.plan.Uncacheable = true // it has places in the text
	return true
}

// onlySets says whether the statement sets one sequence and does nothing else, so that shards can do the same if they all have it.
func (v *survey) onlySets() bool {
	if len(v.tables) > 0 || len(v.out.Numbers) != 1 || v.out.Numbers[0].Function != "setval" {
		return false
	}
	set := &v.out.Numbers[0]
	return !slices.ContainsFunc(v.s.Calls, func(c facts.Call) bool {
		return c.Start < set.Start || c.Start >= set.End || c.Start == set.Start && c.Place != facts.Alone || c.Start > set.Start && v.p.isVolatile(&c)
	})
}

// refuseNumberCall refuses a call whose result would be no number that a table can have.
func (v *survey) refuseNumberCall(c *facts.Call) {
	isRun := v.s.Query != nil && !v.p.inside || slices.Contains([]facts.Kind{"CreateTableAsStmt", "DeclareCursorStmt", "CopyStmt"}, v.p.around)
	if c.Name != "nextval" || !isRun { // definitions only name it
		return
	}
	v.out.refuse("number-function-place", pgerr.New(pgerr.FeatureNotSupported, "function %s is not supported in this place", c.Name).
		WithDetail("Shards make the numbers of sharded tables, and the router has to put another function in its place.").
		WithHint("Call it in a SELECT, INSERT, UPDATE or DELETE of its own, and use its result."))
}

// opening is where the parenthesis of a call opens; -1 if that cannot be told.
func (p *planner) opening(c *facts.Call) int {
	if c.End <= c.Start || c.End > len(p.text) {
		return -1
	}
	scanner := sqltext.NewScanner([]byte(p.text[c.Start:c.End]), true)
	for token, more := scanner.Next(); more; token, more = scanner.Next() {
		if p.text[c.Start+token.Start:c.Start+token.End] == "(" {
			return c.Start + token.Start
		}
	}
	return -1
}

// tells says whether all numbers that a query takes from sequences are told to the router: those that shards make, and those that
// it takes itself. Code of users' may take others.
func (v *survey) tells() bool {
	if v.taints || v.mayDefine || v.out.mayDefine || slices.ContainsFunc(v.out.Numbers, func(c NumberCall) bool { return c.Function == "setval" }) {
		return false
	}
	if slices.ContainsFunc(v.s.Calls, func(c facts.Call) bool {
		return effectOf(c.Name) == usesSequence && !slices.ContainsFunc(v.out.Numbers, func(n NumberCall) bool { return n.Start == c.Start })
	}) {
		return false
	}
	for i := range v.tables {
		if r := &v.tables[i]; r.Written && !v.tellsOf(r) {
			return false
		}
	}
	return true
}

// takes notes from which sequences of a table that no shard makes numbers for the rows of an INSERT are numbered.
func (v *survey) takes() {
	q := v.s.Query
	if q.Command != facts.Insert || q.Inserted != nil && len(q.Inserted.Rows) == 0 || len(q.With) > 0 {
		return
	}
	r := &v.tables[q.Target.Table]
	if r.relation == nil || r.relation.HasRules || r.class != plain && r.class != single {
		return
	}
	counting := 0
	for i := range r.relation.Columns {
		c := &r.relation.Columns[i]
		if !c.Counts {
			continue
		}
		counting++
		if c.Sequence != "" && (q.Inserted == nil || insertedAt(q.Columns, r, c.Name) < 0) {
			v.out.Takes = append(v.out.Takes, c.Sequence)
		}
	}
	v.out.TakesLast = counting == 1 && len(v.out.Takes) == 1 && !v.taints && !r.relation.HasTriggers && len(v.s.Calls) == 0
}

// tellsOf says it of one table that is written.
func (v *survey) tellsOf(r *resolved) bool {
	if r.relation == nil || r.relation.HasRules || r.relation.HasTriggers || r.relation.Kind == 'v' || r.relation.PartitionOf != nil { // the trigger that tells is the whole table's
		return false
	}
	for i := range r.relation.Columns {
		c := &r.relation.Columns[i]
		if !c.Counts {
			continue
		}
		isMade := r.isMade(c.Name) || r.table != nil && slices.ContainsFunc(r.table.IDs(), func(id topology.MadeID) bool { return id.Column == c.Name })
		isTaken := slices.ContainsFunc(v.out.Route.Numbers, func(n Number) bool { return n.Column == c.Name })
		if !isMade && !isTaken {
			return false
		}
	}
	return true
}
