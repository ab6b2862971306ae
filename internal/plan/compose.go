package plan

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/compose"
	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// composable are the reasons to refuse a query that do not hold if its tables' rows are brought together first.
var composable = []string{"key-not-bound", "two-keyspaces", "sharded-with-home", "sharded-with-single", "two-shards"}

// composableWrites are those of statements that write.
var composableWrites = []string{"assigns-key", "insert-select", "insert-computed-key", "reference-write", "reference-write-volatile"}

// targetHasRules says whether something else may happen than what the statement says.
func (v *survey) targetHasRules() bool {
	target := v.s.Query.Target
	return target != nil && v.tables[target.Table].relation != nil && v.tables[target.Table].relation.HasRules
}

// writesKey says whether rows get other keys, so that they would have to be moved.
func (v *survey) writesKey() bool {
	q := v.s.Query
	if q.Target == nil || v.tables[q.Target.Table].class != sharded {
		return false
	}
	keys := v.tables[q.Target.Table].table.KeyColumns()
	sets := func(assigned []facts.Assignment) bool {
		return slices.ContainsFunc(assigned, func(a facts.Assignment) bool { return slices.Contains(keys, a.Column) })
	}
	return sets(q.Assigned) || q.Merged != nil && slices.ContainsFunc(q.Merged.When, func(w facts.When) bool { return sets(w.Assigned) })
}

// compose finds how a query is answered in steps that no shard can answer alone: by its keys, or because they may be on several shards.
func (v *survey) compose() {
	writes := v.s.Query.Command != facts.Select
	switch {
	case v.p.Map.ShardCount() < 2 || v.p.Alone:
		return
	case v.out.Refusal != nil && !slices.Contains(composable, v.out.Rule) && (!writes || !slices.Contains(composableWrites, v.out.Rule)):
		return
	case writes && v.targetHasRules():
		return
	case writes && v.writesKey() && v.s.Query.Command != facts.Update:
		return
	case v.misfires():
		return
	case v.out.Refusal == nil && !v.mayNeedSteps():
		return
	case v.names(missing), v.p.unfolded != nil && v.p.unfolded.writes:
		return
	case v.mustNotMove() != "":
		return
	}
	c, err := v.split()
	if err != nil {
		return // as refused as before
	}
	v.out.Composition = c
	v.p.plan.Uncacheable = v.p.plan.Uncacheable || c.ByLiteral
	v.p.plan.shapedBy(c.Shaping)
	if v.out.Refusal != nil {
		v.out.Route = Route{Level: Composed, Why: v.out.Refusal.Detail}
		v.out.Refusal, v.out.Rule = nil, ""
	}
	if target := v.s.Query.Target; target != nil {
		switch r := &v.tables[target.Table]; {
		case r.relation != nil:
			v.out.Target = RelationName{r.relation.Schema, r.relation.Name}
		case r.class == temporary:
			v.out.Target = RelationName{r.Schema, r.Name}
		}
	}
	if c.Kind == compose.Routed {
		r := &v.tables[v.s.Query.Target.Table]
		v.out.Route.Keyspace, v.out.Route.Table = r.table.Keyspace().Name(), r.title()
		v.out.InsertedKey = v.keyParts(r)
		for i := range v.out.InsertedKey {
			v.out.InsertedKey[i].Store = true
		}
	}
}

// misfires says whether triggers of users' would not run as often as they do on one server, or for other reasons: rows that get other keys are
// deleted and inserted, and rows that one copy of a reference table was written are written to the others as they have become.
func (v *survey) misfires() bool {
	target := v.s.Query.Target
	if target == nil {
		return false
	}
	r := &v.tables[target.Table]
	return r.relation != nil && r.relation.HasTriggers && (r.class == reference || v.writesKey())
}

// mayNeedSteps says whether a query that has a route may turn out not to be answered by it: its keys are on several shards.
func (v *survey) mayNeedSteps() bool {
	r := &v.out.Route
	return r.Level == Several && (r.Parts == Whole || r.Skips != nil)
}

// names says whether the statement names a relation of that class.
func (v *survey) names(class class) bool {
	return slices.ContainsFunc(v.tables, func(r resolved) bool { return r.class == class })
}

// mustNotMove is what keeps a query from being finished elsewhere than where its tables are; empty if nothing does.
func (v *survey) mustNotMove() string {
	switch {
	case v.makes():
		return "a new table"
	case v.local != "":
		return "function " + v.local
	case v.s.Physical:
		return "a system column"
	case v.s.AtCursor:
		return "a cursor"
	case slices.ContainsFunc(v.tables, func(r resolved) bool { return r.class == sharded && r.Sampled && !r.SampledEvenly }):
		return "TABLESAMPLE"
	case slices.ContainsFunc(v.out.Virtual, func(own Virtual) bool { return own.Function }):
		return "a function of the router"
	}
	for i := range v.s.Calls {
		if c := &v.s.Calls[i]; v.changesSomething(c) && !v.drawsForCopies(c) {
			return "function " + c.Name
		}
	}
	return v.choosesByType()
}

// choosesByType names a function that may be another one, or say something else, for values that were pulled: a value of a domain is then one of the type below it, and
// a whole row is a record.
func (v *survey) choosesByType() string {
	chooses := func(name FunctionName) bool {
		overloads := v.p.known.Functions[name]
		return len(overloads) > 1 && slices.ContainsFunc(overloads, func(f Function) bool { return f.TakesOwn })
	}
	for _, c := range v.s.Calls {
		if c.Name == "pg_typeof" || chooses(FunctionName{Schema: c.Schema, Name: c.Name}) {
			return "function " + c.Name
		}
	}
	for _, field := range v.s.Fields {
		if !v.isColumn(field) && chooses(FunctionName{Name: field}) {
			return "function " + field
		}
	}
	return ""
}

// drawsForCopies says whether a function takes the next number of a sequence for rows of a reference table: the home shard has the sequence, and
// writes to its copy first.
func (v *survey) drawsForCopies(c *facts.Call) bool {
	target := v.s.Query.Target
	return c.Name == "nextval" && target != nil && v.tables[target.Table].class == reference && v.p.isSystem(*c)
}

// changesSomething says whether a function may do more than compute a value of its arguments, wherever it runs.
func (v *survey) changesSomething(c *facts.Call) bool {
	switch effectOf(c.Name) {
	case locksSession, locksTransaction, unlocks, usesSequence, asksSession, setsParameter, runsSQL, isHome, largeObject:
		return true
	default:
	}
	same := effectOf(c.Name)
	return slices.ContainsFunc(v.p.overloads(c), func(f Function) bool {
		return f.Volatility == 'v' && (!f.System || same != sameEverywhere)
	})
}

// composedQuery is the query as package compose wants it.
func (v *survey) composedQuery() compose.Query {
	start, end := v.s.Start, v.s.End
	if end == 0 { // it is inside of another one
		start, end = v.p.start, v.p.end
	}
	q := compose.Query{Aggregate: func(schema, name string) bool { return v.p.mayAggregate(&facts.Call{Schema: schema, Name: name}) }, Divides: v.divides, Text: v.p.text[start:end], Steady: v.steady(OfFunction), SteadyOperator: v.steady(OfOperator), Builtin: func(schema, name string) bool {
		return v.p.isSystem(facts.Call{Schema: schema, Name: name})
	}}
	for _, l := range v.p.Literals {
		switch {
		case l.Start < start:
			q.First++
		case l.End <= end:
			q.Literals = append(q.Literals, sqltext.Literal{Kind: l.Kind, Start: l.Start - start, End: l.End - start})
		}
	}
	if v.p.unfolded != nil {
		for _, given := range v.p.unfolded.spans {
			q.Given = append(q.Given, compose.Span{Start: given.start - start, End: given.end - start})
		}
	}
	target := missing
	if v.s.Query.Target != nil {
		written := &v.tables[v.s.Query.Target.Table]
		target, q.Target = written.class, &compose.Target{}
		if written.relation != nil {
			for _, c := range written.relation.Columns {
				q.Target.Columns = append(q.Target.Columns, c.Name)
			}
		}
		if target == sharded {
			q.Target.Keys = written.table.KeyColumns()
		}
		q.Target.Copied, q.Target.Moves = target == reference, v.writesKey()
		if written.relation != nil {
			for _, c := range written.relation.Columns {
				if c.Generated {
					q.Target.Generated = append(q.Target.Generated, c.Name)
				}
			}
		}
	}
	for i := range v.tables {
		r := &v.tables[i]
		t := compose.Table{Start: r.Start - start, Name: r.title(), Own: r.class == ours, Unknown: r.relation == nil}
		t.Stays = v.s.Query.Target != nil && (i == v.s.Query.Target.Table || target == sharded && r.class == reference || target == plain && r.class == plain ||
			target == reference && v.s.Query.Command != facts.Merge && (r.class == reference || r.class == plain))
		if r.relation != nil {
			for _, c := range r.relation.Columns {
				t.Columns = append(t.Columns, c.Name)
				if ungroupable[c.TypeOID] {
					t.Ungroupable = append(t.Ungroupable, c.Name)
				}
			}
			t.Runs = r.relation.HasTriggers || r.relation.HasRules
		}
		if reads, known := v.p.rowsOf(r, nil); known {
			t.Reads = reads
		}
		q.Tables = append(q.Tables, t)
	}
	return q
}

// ungroupable are the types of PostgreSQL's without an operator class for equality: json, xml, point, lseg, path, box, polygon, line and circle.
var ungroupable = map[uint32]bool{114: true, 142: true, 600: true, 601: true, 602: true, 603: true, 604: true, 628: true, 718: true}

// rowsOf adds the names of the tables whose rows a relation has: itself, the table that it is a partition of, or those behind a view. Known: these are all.
func (p *planner) rowsOf(r *resolved, names []string) (all []string, known bool) {
	switch {
	case r.table != nil, r.class == ours:
		return append(names, r.title()), true
	case r.relation == nil, r.relation.Inherits:
		return nil, false
	case r.relation.PartitionOf != nil:
		return append(names, topology.TableName(*r.relation.PartitionOf).String()), true
	}
	switch r.relation.Kind {
	case 'r', 'p', 'm', 'S':
		return append(names, r.title()), true
	case 'v':
		return p.rowsBehind(r.relation, names)
	default:
		return nil, false
	}
}

// rowsBehind adds the names of the tables that a view reads, itself or by others.
func (p *planner) rowsBehind(view *Relation, names []string) (all []string, known bool) {
	if view.View == nil || view.View.SQL == "" || len(names) > maxUnfolded {
		return nil, false
	}
	statements, err := facts.Of(view.View.SQL)
	if err != nil || len(statements) != 1 {
		return nil, false
	}
	for _, t := range tablesInside(&statements[0]) {
		r := p.resolve(t)
		if names, known = p.rowsOf(&r, names); !known {
			return nil, false
		}
	}
	return append(names, topology.TableName{Schema: view.Schema, Name: view.Name}.String()), true
}

// steady returns a function that says whether what has a name gives the same answer throughout a statement, on every shard.
func (v *survey) steady(kind NameKind) func(schema, name string) bool {
	return func(schema, name string) bool {
		if kind == OfFunction && isServersOwn(name) {
			return false
		}
		found := v.p.known.Functions[FunctionName{Schema: schema, Name: name, Kind: kind}]
		return len(found) > 0 && !slices.ContainsFunc(found, func(f Function) bool { return f.Volatility == 'v' || !f.System && !f.ExtensionMember })
	}
}

// isServersOwn says whether a function of PostgreSQL's tells something of the server or the session that it runs in, as one of that name may: it gives the same answer throughout a statement,
// and another one on each shard.
func isServersOwn(name string) bool {
	switch name {
	case "statement_timestamp", "current_setting", "version", "format_type", "obj_description", "col_description", "shobj_description":
		return true
	}
	return slices.ContainsFunc([]string{"pg_", "inet_", "txid_", "to_reg", "has_"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// divides says whether every shard can answer a query for its own rows, such that all answers together are that of the whole.
func (v *survey) divides(sql string) bool {
	statements, err := facts.Of(sql)
	if err != nil || len(statements) != 1 {
		return false
	}
	var scan sqltext.Normalized
	if scan.Scan([]byte(sql), true) != nil {
		return false
	}
	context := v.p.Context
	context.Literals, context.Alone = scan.Literals, true
	p := newPlanner(sql, v.p.known, context)
	st := p.statement(&statements[0])
	return st.isDivided()
}
