package plan

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// planDefinition plans what makes or changes something: where that thing is, if it is nothing that several shards have.
func planDefinition(p *planner, s *facts.Statement, out *Statement) {
	d := &definition{p: p, s: s, out: out}
	for _, t := range s.Tables {
		d.table(t)
	}
	for _, name := range s.Object.Names {
		d.name(name)
	}
	d.finish()
	d.evaluate()
	refuseKeptSetConfig(s, out)
	p.keepTriggersOnLater(s, out)
	out.Schema = true
	out.Beyond = out.Beyond || reachesBeyond(s)
	out.NoBlock = runsOutsideBlocks(s)
	if out.PasswordAt = s.Object.PasswordAt; out.PasswordAt > 0 {
		p.plan.Uncacheable = true // the place depends on what stands before it
	}
	out.noteCreated(p, s)
}

// reachesBeyond says whether a definition may be about tables that it does not name.
func reachesBeyond(s *facts.Statement) bool {
	switch s.Object.Type {
	case "ALL IN SCHEMA":
		return true
	case "SCHEMA":
		return s.Kind == "DropStmt" || s.Kind == "RenameStmt"
	case "STATISTICS": // their name does not tell of which table
		return s.Kind != "CreateStatsStmt"
	}
	return slices.Contains([]facts.Kind{"ReassignOwnedStmt", "DropOwnedStmt", "AlterStatsStmt"}, s.Kind)
}

// definition is the planning of a statement that is no query.
type definition struct {
	p   *planner
	s   *facts.Statement
	out *Statement
	// home and shard say where the things are that it names; one of both at most can hold.
	home  string
	shard string
	// missing is a name that nothing has; every shard says so.
	missing string
	// tables are declared ones that it is about.
	tables []resolved
	// views are those that every shard has.
	views []resolved
}

// table adds what a relation in the statement asks for.
func (d *definition) table(t facts.Table) {
	r := d.p.resolve(t)
	if t.Role == facts.Created {
		r = d.p.resolveNew(t, d.s.Options.Temporary)
	}
	if d.s.Kind == "TruncateStmt" {
		refuseHiddenWrite(&r, d.out)
	}
	switch r.class {
	case ours:
		d.refuseRouters()
	case sharded, reference:
		d.declared(&r)
	case reaching:
		d.out.Beyond = d.out.Beyond || r.isView()
		d.reaching(&r)
	case single:
		d.isOn(r.shard)
		d.refuseRenamed(&r)
	case unclear:
		d.out.refuse("unclear-name", unclearName(&r))
	case temporary:
		d.home = r.title()
		if d.s.Kind == "DropStmt" {
			d.out.Drops = append(d.out.Drops, r.Name)
		}
	default:
		if served := d.ofSequence(&r); served != nil {
			d.tables = append(d.tables, *served)
			return
		}
		if r.relation == nil && !r.dropped && (t.Role == facts.Referenced || d.s.Kind == "DropStmt") {
			d.missing = r.title()
			return
		}
		d.home = r.title()
	}
}

func (d *definition) isOn(shard string) {
	if d.shard != "" && d.shard != shard {
		d.out.refuse("two-shards", pgerr.New(pgerr.FeatureNotSupported, "%s over tables on several shards is not supported yet", d.s.Name).
			WithDetail("Something is on shard %s, and something on shard %s.", d.shard, shard).WithHint("%s", onePerStatement))
	}
	d.shard = shard
}

// refuseRenamed refuses another name for a table that the home shard does not have: where it is, the map knows by its name.
func (d *definition) refuseRenamed(r *resolved) {
	if r.table == nil || r.shard == d.p.Home || d.s.Kind != "RenameStmt" && d.s.Kind != "AlterObjectSchemaStmt" || !slices.Contains(relationTypes, d.s.Object.Type) {
		return
	}
	d.out.refuse("renamed-away", pgerr.New(pgerr.FeatureNotSupported, "%s is not supported for a table that is not on the home shard", d.s.Name).
		WithDetail("%s is on shard %s, and known there by that name.", r.title(), r.shard).WithHint("Move it to the home shard first: SELECT cleave.move_tables(…)"))
}

func (d *definition) refuseRouters() {
	d.out.refuse("router-schema", pgerr.New(pgerr.InsufficientPrivilege, "%s is not possible in schema %s", d.s.Name, routerSchema).
		WithDetail("The schema belongs to the router."))
}

// declared adds what a sharded or reference table asks for.
func (d *definition) declared(r *resolved) {
	kind := string(r.table.Kind())
	switch {
	case r.Role == facts.Like:
		d.home = r.title()
	case r.Role == facts.Referenced && (r.class == reference || len(d.tables) > 0):
		// The home shard has all rows of a reference table; the constraints of a table that is changed are looked at by themselves.
	case r.Role == facts.Referenced:
		d.out.refuse("foreign-key-to-declared", pgerr.New(pgerr.FeatureNotSupported, "a foreign key to a %s table is not supported yet", kind).
			WithDetail("The rows of %s are not all where the key would be checked, or change on all shards together.", r.title()).
			WithHint("Create the table without it, declare it, and then add the foreign key with ALTER TABLE."))
	case r.Role == facts.Parent && d.addsPartition(r):
		d.tables = append(d.tables, *r)
	case r.relation != nil && r.relation.PartitionOf != nil && !slices.Contains(partitionKinds, d.s.Kind):
		d.out.refuse("changes-partition", pgerr.New(pgerr.FeatureNotSupported, "%s on a partition of a sharded table is not supported yet", d.s.Name).
			WithDetail("What a partition has of its own would not be given to new shards.").WithHint("Change the table that it is a part of, %s.", r.title()))
	case r.Role == facts.Parent && d.s.Options.Bounds:
		d.out.refuse("child-of-declared", pgerr.New(pgerr.FeatureNotSupported, "a partition of a %s table is not supported in this form", kind).
			WithDetail("It must be the same on all shards that have %s: nothing of its own, bounds that are constants, no IF NOT EXISTS.", r.title()).
			WithHint("CREATE TABLE name PARTITION OF %s FOR VALUES … with literals, and no columns or constraints.", r.title()))
	case r.Role == facts.Parent:
		d.out.refuse("child-of-declared", pgerr.New(pgerr.FeatureNotSupported, "a child of a %s table is not supported yet", kind).
			WithDetail("%s is the parent, and rows of the child would be its rows too, on this shard alone.", r.title()).
			WithHint("Make a table without a parent, and declare it: SELECT cleave.shard_table(…, colocate_with => …)."))
	default:
		d.tables = append(d.tables, *r)
	}
}

// partitionKinds are the statements that may be about one partition of a declared table.
var partitionKinds = []facts.Kind{"DropStmt", "TruncateStmt", "VacuumStmt", "LockStmt"}

// addsPartition says whether the statement makes a partition of a sharded table, with nothing of its own.
func (d *definition) addsPartition(r *resolved) bool {
	d.p.plan.Uncacheable = d.p.plan.Uncacheable || d.s.Options.Bounds // literals decide
	return r.class == sharded && d.s.Kind == "CreateStmt" && d.s.Options.Bounds && !d.s.Options.Elements && !d.s.Options.Temporary &&
		!d.s.Options.IfNotExists && len(d.s.Calls) == 0 && !d.s.Moments && !d.variesInTime() && r.relation != nil && r.relation.Kind == 'p'
}

// variesInTime says whether a literal may mean another moment on every shard, as 'now' does.
func (d *definition) variesInTime() bool {
	return slices.ContainsFunc(d.p.Literals, func(l sqltext.Literal) bool {
		return VariesInTime([]byte(strings.Trim(d.p.text[l.Start:l.End], "'")))
	})
}

// reaching refuses what uses a declared table by way of another relation; dropping a view touches the view alone.
func (d *definition) reaching(r *resolved) {
	if r.isView() && slices.Contains(viewChanges, d.s.Kind) {
		if r.relation.View.Everywhere {
			d.views = append(d.views, *r)
		} else { // and so is every view that reads it
			d.home = r.title()
		}
		return
	}
	if d.s.Kind == "DropStmt" && !d.s.Options.Cascade && (r.relation.Kind == 'v' || r.relation.Kind == 'm') {
		d.home = r.title()
		return
	}
	if owner := d.ofDeclared(r); owner != nil {
		d.tables = append(d.tables, *owner)
		return
	}
	if d.isDescribedOnly(r) {
		d.home = r.title()
		return
	}
	d.out.refuse("reaches-declared", reachesDeclared(r))
}

// isDescribedOnly says whether a statement leaves alone what whoever reads a relation would reach. What is behind a table and no table itself,
// a function of a policy, runs in queries alone; locking a view locks what it reads.
func (d *definition) isDescribedOnly(r *resolved) bool {
	switch d.s.Kind {
	case "GrantStmt", "CommentStmt", "SecLabelStmt":
		return r.relation.Kind == 'v' || r.relation.Kind == 'm' || reachesCode(r)
	case "LockStmt", "VacuumStmt", "CreatePolicyStmt", "AlterPolicyStmt", "IndexStmt", "ReindexStmt":
		return reachesCode(r)
	case "DropStmt":
		return reachesCode(r) && !d.s.Options.Cascade
	case "AlterTableStmt":
		return reachesCode(r) && !slices.ContainsFunc(d.s.Object.Actions, func(action string) bool {
			return action != "ChangeOwner" && !strings.Contains(action, "RowSecurity") && !slices.Contains(harmlessActions, action)
		})
	default:
		return false
	}
}

// reachesCode says whether it is a table by which no other table is reached, but a function that may do anything.
func reachesCode(r *resolved) bool {
	return (r.relation.Kind == 'r' || r.relation.Kind == 'p') && strings.HasSuffix(r.relation.Reaches, "()")
}

// name adds what a thing asks for that is no relation.
func (d *definition) name(n facts.Name) {
	schema := n.Schema
	ofSchema := d.s.Object.Type == "SCHEMA" || d.s.Object.Type == "ALL IN SCHEMA"
	if ofSchema && schema == "" {
		schema = n.Name
	}
	if schema == routerSchema {
		d.refuseRouters()
	}
	if schema == "" && len(d.p.placedAway()) > 0 && !slices.Contains(withoutSchema, d.s.Object.Type) {
		d.out.refuse("unclear-name", pgerr.New(pgerr.FeatureNotSupported, "it cannot be told where %q is", n.Name).
			WithDetail("The search path has a schema on another shard.").WithHint("Write the name with its schema."))
	}
	place, keyspace := d.p.Map.LocateSchema(schema)
	switch {
	case isTemporarySchema(schema), schema == "" && isTemporarySchema(d.p.newSchema()):
		d.home, d.out.Pin = n.Name, pinTemporary
		if d.s.Kind == "CreateDomainStmt" {
			d.out.refuse("temporary-domain", pgerr.New(pgerr.FeatureNotSupported, "a temporary domain is not supported").
				WithDetail("Its name would hide others without a schema, and what its checks run is not known to the router.").WithHint("Make it in another schema."))
		}
	case keyspace == nil:
		d.home = n.Name
	case d.s.Object.Type == "SCHEMA":
		d.out.refuse("placed-schema", pgerr.New(pgerr.FeatureNotSupported, "%s is not supported yet for a schema that a keyspace places", d.s.Name).
			WithDetail("Keyspace %s places schema %q on shard %s.", keyspace.Name(), schema, place.Shard.Name()).WithHint("Connect to that shard for it."))
	default:
		d.isOn(place.Shard.Name())
		d.out.InSchemas = append(d.out.InSchemas, schema)
	}
}

// withoutSchema are kinds of things that are in no schema.
var withoutSchema = []string{
	"ACCESS METHOD", "CAST", "DATABASE", "EVENT TRIGGER", "EXTENSION", "FOREIGN DATA WRAPPER", "LANGUAGE", "LARGE OBJECT",
	"PARAMETER ACL", "PUBLICATION", "ROLE", "SERVER", "SUBSCRIPTION", "TABLESPACE", "TRANSFORM", "USER MAPPING",
}

// finish decides where the statement runs.
func (d *definition) finish() {
	if d.home == "" && len(d.tables)+len(d.views) == 0 {
		d.home = d.missing
	}
	switch {
	case len(d.tables) > 0:
		d.onDeclared()
		d.holdViews()
	case len(d.views) > 0:
		d.onViews()
	case d.shard == "" && isGlobal(d.s) && d.out.Pin == "":
		d.everywhere("every shard has it")
	case d.shard == "":
		d.out.Route = Route{Level: Home, Why: "definitions are the home shard's"}
	case d.home != "" && d.shard != d.p.Home:
		d.out.refuse("two-shards", pgerr.New(pgerr.FeatureNotSupported, "%s over things on several shards is not supported yet", d.s.Name).
			WithDetail("Something is on shard %s, and %s is on the home shard %s.", d.shard, d.home, d.p.Home).WithHint("%s", onePerStatement))
	default:
		d.out.Route = Route{Level: OnShard, Shard: d.shard, Why: "definitions on shard " + d.shard}
	}
}

// noteCreated notes temporary relations that the statement makes.
func (s *Statement) noteCreated(p *planner, f *facts.Statement) {
	for _, t := range f.Tables {
		if t.Role == facts.Created && (f.Options.Temporary || isTemporarySchema(t.Schema) || t.Schema == "" && isTemporarySchema(p.newSchema())) {
			s.Creates = append(s.Creates, t.Name)
			s.Pin = pinTemporary
			if s.Route.Level == OnShard && s.Route.Shard != p.Home {
				s.refuse("temporary-elsewhere", pgerr.New(pgerr.FeatureNotSupported, "temporary tables are supported on the home shard only"))
			}
			if s.Makes == nil {
				s.Route = Route{Level: Home, Why: "temporary tables are the home shard's"}
			}
		}
	}
}

// runsOutsideBlocks says whether PostgreSQL runs the statement outside a transaction block only.
func runsOutsideBlocks(s *facts.Statement) bool {
	switch s.Kind {
	case "CreatedbStmt", "DropdbStmt", "CreateTableSpaceStmt", "DropTableSpaceStmt", "CreateSubscriptionStmt", "DropSubscriptionStmt":
		return true
	case "IndexStmt", "DropStmt", "AlterTableStmt":
		return s.Options.Concurrently
	case "ReindexStmt":
		return s.Options.Concurrently || s.Object.Type != "TABLE" && s.Object.Type != "INDEX"
	case "VacuumStmt":
		return s.Options.Vacuum
	case "ClusterStmt":
		return len(s.Tables) == 0
	}
	return false
}

// planUpkeep plans what works on the rows or files of tables without changing what they are.
func planUpkeep(p *planner, s *facts.Statement, out *Statement) {
	planDefinition(p, s, out)
	out.Schema, out.Upkeep = false, true
	if len(s.Tables) == 0 && out.Refusal == nil {
		out.Route = Route{Level: Everywhere, Parts: Copies, Why: "every shard has tables"}
	}
	if s.Options.Cascade && out.Route.Level != Everywhere {
		p.refuseIfDeclared(out, s.Name+" … CASCADE", "It may reach sharded or reference tables, on one shard only.", "Name all the tables, without CASCADE.")
	}
}

// planWide plans what may reach declared tables without naming them.
func planWide(p *planner, s *facts.Statement, out *Statement) {
	planDefinition(p, s, out)
	if out.Route.Level != Everywhere {
		p.refuseIfDeclared(out, s.Name, "It may reach sharded or reference tables, on one shard only.", oneByOne)
	}
}

const oneByOne = "Name the things that it is about, with a statement for each."

// planDropOwned plans DROP OWNED: what a role has, and what it was granted, is on every shard; but the shard map would keep the
// declared tables that it drops.
func planDropOwned(p *planner, s *facts.Statement, out *Statement) {
	planDefinition(p, s, out)
	p.refuseIfDeclared(out, s.Name, "It may drop sharded or reference tables, and the shard map would still have them.",
		"DROP what the role owns by its name, or REASSIGN OWNED BY it, and REVOKE what it was granted.")
}

// planEventTrigger plans CREATE EVENT TRIGGER. What it calls, nobody sees.
func planEventTrigger(p *planner, s *facts.Statement, out *Statement) {
	planDefinition(p, s, out)
	p.refuseIfDeclared(out, s.Name, "It would fire on one shard only, and what it runs may read or write sharded or reference tables there.",
		"If it reads and writes no tables, create it on every shard itself.")
}

// planPublication plans publications.
func planPublication(p *planner, s *facts.Statement, out *Statement) {
	planDefinition(p, s, out)
	if s.Options.AllTables {
		p.refuseIfDeclared(out, s.Name+" for all tables", "It would publish the tables of one shard only.", "Name the tables, or create it on every shard itself.")
	}
}

// planDrop plans DROP of everything that has no statement of its own.
func planDrop(p *planner, s *facts.Statement, out *Statement) {
	planDefinition(p, s, out)
	p.refuseSchemas(s, out)
	seen := []string{"TABLE", "VIEW", "MATERIALIZED VIEW", "FOREIGN TABLE", "INDEX", "TRIGGER", "RULE", "POLICY"} //nolint:misspell // it is SQL
	if s.Options.Cascade && !slices.Contains(seen, s.Object.Type) && (out.Route.Level != Everywhere || s.Object.Type == "EXTENSION") {
		p.refuseIfDeclared(out, s.Name+" … CASCADE", "It may reach sharded or reference tables, on one shard only.", "Drop or change first what depends on it, and then use it without CASCADE.")
	}
}

// refuseSchemas refuses what changes a schema that has declared tables.
func (p *planner) refuseSchemas(s *facts.Statement, out *Statement) {
	if s.Object.Type != "SCHEMA" || s.Kind == "GrantStmt" {
		return
	}
	hint := "Bring the tables back with cleave.undistribute_table, change the schema, and declare them again."
	if s.Kind == "DropStmt" {
		hint = "Drop its sharded and reference tables first."
	}
	for _, name := range s.Object.Names {
		if name.Schema == "" && p.hasDeclared(name.Name) {
			out.refuse("schema-of-declared", pgerr.New(pgerr.FeatureNotSupported, "%s is not supported yet on a schema that has sharded or reference tables", s.Name).
				WithDetail("The shard map knows the tables of schema %q by its name.", name.Name).WithHint("%s", hint))
		}
		if away := p.awayIn(name.Name); name.Schema == "" && s.Kind == "RenameStmt" && away != nil {
			out.refuse("renamed-away", pgerr.New(pgerr.FeatureNotSupported, "%s is not supported for a schema of which a table is not on the home shard", s.Name).
				WithDetail("%s is on shard %s, and known there by that name.", away.Name(), away.Shard().Name()).WithHint("Move it to the home shard first: SELECT cleave.move_tables(…)"))
		}
	}
}

// planAlterNamed plans ALTER … RENAME, OWNER, SET SCHEMA, and GRANT: of schemas and types also by what is in them.
func planAlterNamed(p *planner, s *facts.Statement, out *Statement) {
	planDefinition(p, s, out)
	p.refuseSchemas(s, out)
	switch s.Object.Type {
	case "TYPE", "DOMAIN", "ATTRIBUTE", "COLLATION":
		if s.Kind != "GrantStmt" && out.Route.Level != Everywhere {
			p.refuseIfDeclared(out, s.Name, "Sharded or reference tables may use it, and it would change on one shard only.", oneByOne)
		}
	}
	switch s.Kind {
	case "AlterObjectSchemaStmt":
		p.refusePlacedTarget(s, out)
	case "RenameStmt":
		p.noteRenamed(s, out)
	}
}

// noteRenamed sees to the new name of a relation: of a temporary one it hides others, and none may take the name of a table
// that is declared to be elsewhere.
func (p *planner) noteRenamed(s *facts.Statement, out *Statement) {
	if len(s.Tables) == 0 || !slices.Contains(relationTypes, s.Object.Type) {
		return
	}
	r := p.resolve(s.Tables[0])
	if r.class == temporary {
		out.Creates, out.Drops, out.Pin = append(out.Creates, s.Object.NewName), append(out.Drops, r.Name), pinTemporary
		return
	}
	if r.relation != nil {
		p.refuseTaken(out, r.relation.Schema, s.Object.NewName)
	}
}

var relationTypes = []string{"TABLE", "VIEW", "MATERIALIZED VIEW", "SEQUENCE", "FOREIGN TABLE", "INDEX"} //nolint:misspell // it is SQL

// refuseTaken refuses a name that a declared table has, which PostgreSQL cannot know if it is on another shard.
func (p *planner) refuseTaken(out *Statement, schema, name string) {
	if t := p.Map.Table(schema, name); t != nil && t.Kind() == topology.Single {
		out.refuse("taken-name", pgerr.New(duplicateTable, "relation %q already exists", name).
			WithDetail("It is declared to be on shard %s.", t.Shard().Name()))
	}
}

// duplicateTable is PostgreSQL's SQLSTATE for a name that is taken.
const duplicateTable = "42P07"

// refusePlacedTarget refuses to move something into a schema that is elsewhere or the router's.
func (p *planner) refusePlacedTarget(s *facts.Statement, out *Statement) {
	schema := s.Object.Names[len(s.Object.Names)-1].Name // the new schema is noted last
	if _, keyspace := p.Map.LocateSchema(schema); keyspace != nil || schema == routerSchema {
		out.refuse("placed-schema", pgerr.New(pgerr.FeatureNotSupported, "%s is not supported for schema %q", s.Name, schema).
			WithDetail("A keyspace places the schema on a shard, and the shard map has its name.").WithHint("Use a schema that no keyspace places."))
	}
	for _, t := range s.Tables {
		p.refuseTaken(out, schema, t.Name)
	}
}

// planCreateSchema plans CREATE SCHEMA.
func planCreateSchema(p *planner, s *facts.Statement, out *Statement) {
	planDefinition(p, s, out)
	if s.Options.Elements {
		p.refuseIfDeclared(out, s.Name+" with tables or views inside", "They may reach sharded or reference tables.", "Create the schema first, and then what is in it.")
	}
}

// planMakeFrom plans CREATE TABLE AS, CREATE VIEW and its like.
func planMakeFrom(p *planner, s *facts.Statement, out *Statement) {
	if s.Kind == "ViewStmt" && p.readsDeclared(s.Inner) {
		planView(p, s, out)
		return
	}
	planDefinition(p, s, out)
	own := out.Route
	if declared := p.declaredIn(s.Inner); s.Kind == "ViewStmt" && declared != "" {
		out.refuse("makes-from-declared", pgerr.New(pgerr.FeatureNotSupported, "%s is not supported yet over a sharded or reference table", s.Name).
			WithDetail("It reads %s.", declared).WithHint("%s", insteadOfView))
	}
	inner := p.inner(s, out)
	if s.Kind == "ViewStmt" && s.Inner != nil {
		refuseKeptSetConfig(s.Inner, out)
	}
	if len(inner.Virtual) > 0 {
		out.refuse("makes-from-router-view", makesFromRouters(s))
	}
	if out.Refusal != nil {
		return
	}
	if s.Kind == "CreateTableAsStmt" { // a view runs nothing yet
		out.Taints, out.mayDefine, out.NeedsSession = inner.Taints, inner.mayDefine, inner.NeedsSession
		if inner.Pin != "" {
			out.Pin = inner.Pin
		}
	}
	if inner.Command == Execute {
		if p.declared { // what was prepared may read anything
			p.makeInSteps(s, out, own, inner.Route)
			return
		}
		out.Command, out.Prepared = Execute, inner.Prepared
	}
	p.placeMade(s, out, own, inner.Route)
}

func makesFromRouters(s *facts.Statement) *pgerr.Error {
	return pgerr.New(pgerr.FeatureNotSupported, "%s is not supported over a view or function of the router", s.Name).
		WithDetail("No shard has them; the router puts its answer into each statement.").WithHint("Read them in each statement.")
}

// insteadOfView says what can be done instead of making a view.
const insteadOfView = "Write the query of the view itself into the statements."

// declaredIn returns a sharded or reference table that a query names; empty if there is none.
func (p *planner) declaredIn(s *facts.Statement) string {
	if s == nil {
		return ""
	}
	for _, t := range s.Tables {
		if r := p.resolve(t); r.class == sharded || r.class == reference {
			return r.title()
		}
	}
	return ""
}

// placeMade decides where something is made out of a query: where both the new thing and what is read can be.
func (p *planner) placeMade(s *facts.Statement, out *Statement, own, read Route) {
	temporaryInside := slices.ContainsFunc(s.Inner.Tables, func(t facts.Table) bool { r := p.resolve(t); return r.class == temporary })
	if s.Kind == "ViewStmt" && temporaryInside {
		for _, t := range s.Tables {
			out.Creates, out.Pin = append(out.Creates, t.Name), pinTemporary // a view over temporary tables is one itself
		}
	}
	place := func(r Route) string {
		if r.Level == OnShard {
			return r.Shard
		}
		return p.Home
	}
	if s.Kind == "CreateTableAsStmt" && read.Level > OnShard {
		p.makeInSteps(s, out, own, read)
		return
	}
	if read.Level != Anywhere && place(own) != place(read) {
		out.refuse("two-shards", pgerr.New(pgerr.FeatureNotSupported, "%s over tables on several shards is not supported yet", s.Name).
			WithDetail("It would be made on shard %s from tables on shard %s.", place(own), place(read)).WithHint("Make it beside the tables that it is made from."))
	}
}

// onePerStatement is what to do about statements over several shards.
const onePerStatement = "Use a statement for what is on each shard."
