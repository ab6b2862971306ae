package plan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
)

// survey is what the tables and functions of one statement ask for, before it is decided where it runs.
type survey struct {
	p   *planner
	s   *facts.Statement
	out *Statement

	// tables are the statement's, in its order.
	tables []resolved
	// sharded are the indexes of sharded ones.
	sharded []int
	// referenceRead, referenceWritten and referenceLocked are names of reference tables.
	referenceRead, referenceWritten, referenceLocked string
	// shard is the one that has what is single, singleName the relation.
	shard, singleName string
	// homeWhy is why it must run on the home shard, preferred why it should if nothing asks for another.
	homeWhy, preferred string
	// changes: it may change something; taints: it may leave something in the backend's session that nobody tracks.
	changes, taints bool
	// mayDefine: code runs that may do anything, so it taints too.
	mayDefine bool
	// local is a function that uses the rows of one shard.
	local string
	// homeHint says what to do about homeWhy; empty: the tables are in the way.
	homeHint string
	// dropped is a table that the transaction has dropped.
	dropped string
}

// planQuery plans SELECT, VALUES, INSERT, UPDATE, DELETE and MERGE.
func planQuery(p *planner, s *facts.Statement, out *Statement) {
	v := p.survey(s, out)
	v.s = v.withDefaults()
	v.route()
	v.compose()
	out.Rows = s.Query.Returns
	if s.AtCursor {
		out.CurrentOf = s.Cursor.Name
	}
	out.Taints, out.mayDefine = v.taints, v.mayDefine
	out.Reads = s.Query.Command == facts.Select && !v.changes && !s.Locks
	out.TellsNumbers = v.tells()
	v.takes()
	if out.Route.Level == Home && v.onlySets() {
		out.Route.Parts = Copies
	}
	if v.makes() {
		out.Schema = true
		out.noteCreated(p, s)
		(&definition{p: p, s: s, out: out}).refuseHiddenBehindTemporary()
	}
}

// survey looks at all tables and functions of a statement.
func (p *planner) survey(s *facts.Statement, out *Statement) *survey {
	v := &survey{p: p, s: s, out: out}
	for _, t := range s.Tables {
		r := p.resolve(t)
		if t.Role == facts.Created {
			r = p.resolveNew(t, s.Options.Temporary)
		}
		v.tables = append(v.tables, r)
	}
	for i := range v.tables {
		v.table(i)
	}
	v.calls(s)
	out.Temporary = v.names(temporary)
	out.Missing = slices.ContainsFunc(v.tables, func(r resolved) bool { return r.class == missing && r.Role != facts.Created })
	return v
}

// makes says whether the statement makes a relation: SELECT INTO.
func (v *survey) makes() bool { return v.made() >= 0 }

// made is the place of the relation that it makes; below 0 if it makes none.
func (v *survey) made() int {
	return slices.IndexFunc(v.tables, func(r resolved) bool { return r.Role == facts.Created })
}

func (v *survey) needsHome(why string) {
	if v.homeWhy == "" {
		v.homeWhy = why
	}
}

// callNeedsHome is needsHome for a function.
func (v *survey) callNeedsHome(why string) {
	if v.homeWhy == "" {
		v.homeHint = "Call the function in a statement of its own, with values that another one has read before."
	}
	v.needsHome(why)
}

func (v *survey) prefersHome(why string) {
	if v.preferred == "" {
		v.preferred = why
	}
}

// table adds what one table asks for.
func (v *survey) table(i int) {
	r := &v.tables[i]
	v.changes = v.changes || r.Written || r.Role == facts.Created
	if r.Catalog != "" && r.class >= single {
		v.out.refuse("database-in-name", pgerr.New(pgerr.FeatureNotSupported, "the name of a database before %s is not supported", r.title()).
			WithDetail("The tables of a cluster are in one database, and a shard's may have another name.").WithHint("Leave it out."))
	}
	if r.Written {
		refuseHiddenWrite(r, v.out)
	}
	if r.relation != nil && r.relation.ReadsRun != "" {
		v.out.refuse("read-runs-function", pgerr.New(pgerr.FeatureNotSupported, "reading %s is not supported", r.title()).
			WithDetail("A policy runs %s, which may read sharded tables unseen, on one shard only.", r.relation.ReadsRun).WithHint("%s", immutableHint))
	}
	switch r.class {
	case ours:
		v.ownView(r)
	case temporary:
		v.needsHome("temporary table " + r.Name)
	case system:
		v.needsHome("system catalogue")
		if v.p.Dumps {
			v.withoutOwn(r)
		}
		if r.Name == settingsView && r.Written {
			v.out.refuse("writes-settings", settingsViewRefusal())
		}
	case missing:
		v.needsHome("unknown table " + r.title())
		v.changes = true
		if r.dropped {
			v.dropped = r.title()
		}
	case plain:
		v.needsHome("table " + r.title() + " is not declared")
		if v.p.Dumps && r.relation != nil && r.relation.Kind == 'S' {
			v.dumpedSequence(r)
		}
		v.changes = v.changes || r.relation == nil || r.relation.Kind == 'v' || r.relation.Kind == 'f'
	case single:
		v.single(r)
	case reference:
		v.reference(r)
	case sharded:
		v.sharded = append(v.sharded, i)
	case reaching:
		v.out.refuse("reaches-declared", reachesDeclared(r))
	default:
		v.out.refuse("unclear-name", unclearName(r))
	}
}

func unclearName(r *resolved) *pgerr.Error {
	return pgerr.New(pgerr.FeatureNotSupported, "it cannot be told which relation %q means", r.Name).
		WithDetail("A temporary table, or a schema of the search path that is on another shard, may hide one that is elsewhere.").
		WithHint("Write the name with its schema; pg_temp is the schema of temporary tables.")
}

func reachesDeclared(r *resolved) *pgerr.Error {
	what := map[byte]string{'v': "view", 'm': "materialized view", 'i': "index", 'I': "index", 'f': "foreign table"}[r.relation.Kind] //nolint:misspell // PostgreSQL's word
	if what == "" {
		what = "table"
	}
	reached := r.relation.Reaches
	if reached == "" {
		reached = "a sharded or reference table"
	}
	refusal := pgerr.New(pgerr.FeatureNotSupported, "%s %q is not supported yet", what, r.Name)
	if isFunction(reached) {
		return refusal.WithDetail("It runs %s, which may read or write sharded tables unseen, on one shard only.", reached).WithHint("%s", immutableHint)
	}
	return refusal.WithDetail("It reads or writes %s, which is on several shards.", reached).WithHint("Use %s itself.", reached)
}

const immutableHint = "Declare that function IMMUTABLE if it reads no tables, and for a reference table does the same on every shard; or, if it uses only rows that are on one shard with those of the statement: SELECT cleave.shard_local_function(…)."

// isFunction says whether what a relation reaches is a function rather than a table.
func isFunction(reached string) bool { return strings.HasSuffix(reached, "()") }

// refuseHiddenWrite refuses to write to a relation if that runs what may reach declared tables, or sets parameters.
func refuseHiddenWrite(r *resolved, out *Statement) {
	if r.relation == nil || r.relation.WritesRun == "" || r.class == reaching {
		return
	}
	run := r.relation.WritesRun
	refusal := pgerr.New(pgerr.FeatureNotSupported, "writing to %s is not supported while there are sharded or reference tables", r.title())
	switch {
	case run == "pg_catalog."+settingsView:
		out.refuse("writes-settings", settingsViewRefusal())
	case isFunction(run):
		out.refuse("write-runs-function", refusal.
			WithDetail("A trigger, default, constraint or domain runs %s, which may read or write sharded tables unseen, on one shard only.", run).WithHint("%s", immutableHint))
	default:
		out.refuse("write-reaches-declared", refusal.WithDetail("A foreign key or default reads or writes %s, which is on several shards.", run).
			WithHint("Declare this table beside it: SELECT cleave.shard_table(…, colocate_with => …)."))
	}
}

func (v *survey) single(r *resolved) {
	v.changes = v.changes || r.relation == nil || r.relation.Kind == 'v' || r.relation.Kind == 'f'
	if v.shard != "" && v.shard != r.shard {
		v.out.refuse("two-shards", pgerr.New(pgerr.FeatureNotSupported, "a statement over tables on several shards is not supported yet").
			WithDetail("%s is on shard %s, %s on shard %s.", v.singleName, v.shard, r.title(), r.shard).WithHint("%s", onePerStatement))
	}
	v.shard, v.singleName = r.shard, r.title()
}

func (v *survey) reference(r *resolved) {
	switch {
	case r.Written:
		v.referenceWritten = r.title()
		v.out.Cascades = v.out.Cascades || !v.onlyInserts()
	case r.Locked:
		v.referenceLocked = r.title()
	default:
		v.referenceRead = r.title()
	}
}

// onlyInserts says whether the statement does nothing to rows that are there already.
func (v *survey) onlyInserts() bool {
	if v.s.Load != nil {
		return true
	}
	only := v.s.Query != nil
	if only {
		v.s.Query.Walk(func(b *facts.Block) bool {
			only = only && (b.Target == nil || b.Command == facts.Insert && b.Conflict != facts.DoUpdate)
			return only
		})
	}
	return only
}

// route decides where the statement runs.
func (v *survey) route() {
	switch {
	case v.out.Refusal != nil:
	case v.dropped != "" && (v.shard == "" || v.shard == v.p.Home): // whatever else it names, the home shard has it and says what is missing
		v.out.Route = Route{Level: Home, Why: "table " + v.dropped + " was dropped"}
	case v.referenceLocked != "" && v.p.Map.ShardCount() > 1:
		v.refuseReferenceWrite("locking rows of", v.referenceLocked, "All copies have to be locked together.")
	case v.referenceWritten != "" && v.p.Map.ShardCount() > 1:
		v.routeCopies()
	case v.makes() && (len(v.sharded) > 0 || v.referenceRead != ""):
		v.makeInto(&v.tables[v.made()])
	case v.p.HintShard != "":
		v.out.Route = Route{Level: OnShard, Shard: v.p.HintShard, Hinted: true, Why: "the client's hint"}
	case len(v.sharded) > 0:
		v.routeSharded()
	case v.local != "":
		v.refuseLocal()
	case v.shard != "":
		v.routeSingle()
	case v.homeWhy != "":
		v.out.Route = Route{Level: Home, Why: v.homeWhy}
	case v.preferred != "":
		v.out.Route = Route{Level: Home, Why: v.preferred}
	case v.referenceWritten != "" || v.referenceLocked != "":
		v.out.Route = Route{Level: Home, Why: "the only shard"}
	case v.referenceRead != "":
		v.out.Route = Route{Level: Anywhere, Table: v.referenceRead, Why: "reference table " + v.referenceRead}
	default:
		v.out.Route = Route{Level: Anywhere, Why: "no tables"}
	}
}

func (v *survey) routeSingle() {
	if v.homeWhy != "" && v.shard != v.p.Home {
		v.out.refuse("two-shards", pgerr.New(pgerr.FeatureNotSupported, "a statement over tables on several shards is not supported yet").
			WithDetail("%s is on shard %s; something else is needed from the home shard %s: %s.", v.singleName, v.shard, v.p.Home, v.homeWhy).WithHint("%s", onePerStatement))
		return
	}
	v.out.Route = Route{Level: OnShard, Shard: v.shard, Why: v.singleName}
}

// routeSharded sees to it that nothing keeps the statement from running where its keys are.
func (v *survey) routeSharded() {
	first := &v.tables[v.sharded[0]]
	switch {
	case v.p.Map.ShardCount() == 1 && v.s.Query != nil: // whatever keys rows have, they are there, and the table's guard says what it takes
		v.out.Route = Route{Level: Home, Why: "the only shard"}
	case v.shard != "":
		v.mixed(first, "single", v.singleName+" is on shard "+v.shard)
	case v.homeWhy != "":
		v.mixed(first, "home", v.homeWhy)
	case v.s.Query == nil:
		v.out.refuse("role", pgerr.New(pgerr.FeatureNotSupported, "%s is not supported yet on a sharded table", v.s.Name))
	default:
		v.prove()
	}
}

func (v *survey) mixed(r *resolved, rule, reason string) {
	v.out.refuse("sharded-with-"+rule, pgerr.New(pgerr.FeatureNotSupported, "sharded table %s together with what only one shard has is not supported yet", r.title()).
		WithDetail("The other part: %s.", reason).
		WithHint("%s", cmp.Or(v.homeHint, "Tables that are joined with sharded ones can be reference tables.")))
}
