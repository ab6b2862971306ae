package plan

import (
	"slices"

	"github.com/cleavedb/cleave/internal/compose"
	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
)

// kinds says how each kind of statement is planned. A kind that is not here is refused.
var kinds map[facts.Kind]func(*planner, *facts.Statement, *Statement)

func init() { // the rules call each other through this table
	kinds = map[facts.Kind]func(*planner, *facts.Statement, *Statement){
		"SelectStmt": planQuery, "InsertStmt": planQuery, "UpdateStmt": planQuery, "DeleteStmt": planQuery, "MergeStmt": planQuery,

		"TransactionStmt": planTransaction, "VariableSetStmt": planSet, "VariableShowStmt": planShow, "DiscardStmt": planDiscard,
		"PrepareStmt": planPrepare, "ExecuteStmt": planExecute, "DeallocateStmt": planDeallocate,

		"ExplainStmt": planExplain, "DeclareCursorStmt": planDeclare, "FetchStmt": planCursor, "ClosePortalStmt": planCursor,
		"CopyStmt": planCopy, "CallStmt": planOpaque, "DoStmt": planOpaque, "ListenStmt": planListen, "UnlistenStmt": planListen,
		"NotifyStmt": planListen, "LoadStmt": planLoad, "ConstraintsSetStmt": planConstraints, "CheckPointStmt": planEverySetting,
		"AlterSystemStmt": planHome,

		"LockStmt": planUpkeep, "TruncateStmt": planUpkeep, "VacuumStmt": planUpkeep, "ClusterStmt": planUpkeep,
		"ReindexStmt": planUpkeep, "RefreshMatViewStmt": planRefresh,

		"CreateTableAsStmt": planMakeFrom, "ViewStmt": planMakeFrom,

		"DropStmt": planDrop, "DropOwnedStmt": planDropOwned, "ReassignOwnedStmt": planWide, "AlterTableMoveAllStmt": planWide,
		"DropdbStmt": planWide, "AlterTypeStmt": planWide, "AlterEnumStmt": planWide, "AlterDomainStmt": planWide,
		"AlterCollationStmt": planWide, "CreatePublicationStmt": planPublication, "AlterPublicationStmt": planPublication,
		"RenameStmt": planAlterNamed, "AlterOwnerStmt": planAlterNamed, "AlterObjectSchemaStmt": planAlterNamed, "GrantStmt": planAlterNamed,
		"AlterTableStmt":   planAlterNamed,
		"CreateSchemaStmt": planCreateSchema, "CreateEventTrigStmt": planEventTrigger,
	}
	for _, kind := range definitions {
		kinds[kind] = planDefinition
	}
}

// definitions are the kinds of statements that make or change something on the home shard, or where the thing is, and are
// refused as soon as they name a sharded or reference table.
var definitions = []facts.Kind{
	"CreateStmt", "CreateForeignTableStmt", "CreateSeqStmt", "AlterSeqStmt", "IndexStmt", "CreateStatsStmt", "AlterStatsStmt",
	"RuleStmt", "CreateTrigStmt", "CreatePolicyStmt", "AlterPolicyStmt", "CreateFunctionStmt", "AlterFunctionStmt", "DefineStmt",
	"CompositeTypeStmt", "CreateEnumStmt", "CreateRangeStmt", "CreateDomainStmt", "CreateCastStmt", "CreateTransformStmt",
	"CreateConversionStmt", "CreateOpClassStmt", "CreateOpFamilyStmt", "AlterOpFamilyStmt", "AlterOperatorStmt", "CreateAmStmt",
	"CreatePLangStmt", "CreateExtensionStmt", "AlterExtensionStmt", "AlterExtensionContentsStmt", "CreateFdwStmt", "AlterFdwStmt",
	"CreateForeignServerStmt", "AlterForeignServerStmt", "CreateUserMappingStmt", "AlterUserMappingStmt", "DropUserMappingStmt",
	"ImportForeignSchemaStmt", "AlterEventTrigStmt", "CreateRoleStmt", "AlterRoleStmt", "AlterRoleSetStmt",
	"DropRoleStmt", "GrantRoleStmt", "AlterDefaultPrivilegesStmt", "CommentStmt", "SecLabelStmt", "AlterObjectDependsStmt",
	"CreatedbStmt", "AlterDatabaseStmt", "AlterDatabaseSetStmt", "AlterDatabaseRefreshCollStmt", "CreateTableSpaceStmt",
	"DropTableSpaceStmt", "AlterTableSpaceOptionsStmt", "CreateSubscriptionStmt", "AlterSubscriptionStmt", "DropSubscriptionStmt",
	"AlterTSDictionaryStmt", "AlterTSConfigurationStmt",
}

// planHome plans what concerns one server as a whole.
func planHome(p *planner, s *facts.Statement, out *Statement) {
	out.Route = Route{Level: Home, Why: s.Name}
	p.keepTriggersOnLater(s, out)
	out.NoBlock = s.Kind == "AlterSystemStmt"
}

// planExplain plans EXPLAIN: where its statement would run.
func planExplain(p *planner, s *facts.Statement, out *Statement) {
	inner := p.inner(s, out)
	if out.Rule == explainMakes && !s.Options.Runs && s.Inner.Inner != nil && s.Inner.Inner.Kind == "SelectStmt" { // its plan is that of the query
		query := *s
		query.Inner = s.Inner.Inner
		out.Rule, out.Refusal = "", nil
		inner = p.inner(&query, out)
	}
	*out = inner
	out.Name, out.Start, out.End, out.Rows = s.Name, s.Start, s.End, true
	out.Explains, out.Declares = s.Options.Format == "" || s.Options.Format == "text", nil
	if !out.Explains {
		out.explainWhole()
	}
	if s.Options.Runs || out.Command == Execute {
		return
	}
	out.Reads, out.Schema, out.Pin, out.Taints, out.mayDefine, out.Creates, out.NoBlock = true, false, "", false, false, nil, false
}

// explainWhole sees to it that a plan in another format than text is one shard's: what the router would add are lines.
func (s *Statement) explainWhole() {
	s.Composition = nil
	if s.Route.Level == Composed {
		s.refuse("explain-format", pgerr.New(pgerr.FeatureNotSupported, "EXPLAIN of a statement that is answered in steps is supported in text format only").
			WithDetail("Its plan is put together by the router from those of its steps.").WithHint("Leave FORMAT out."))
	}
}

// inner plans the statement inside of another one. Its refusal becomes the outer one's.
func (p *planner) inner(s *facts.Statement, out *Statement) Statement {
	inner := Statement{Name: s.Name, Start: s.Start, End: s.End}
	if s.Inner == nil {
		inner.refuse("kind", pgerr.New(pgerr.FeatureNotSupported, "this form of %s is not supported", s.Name))
	} else {
		inner.Name = s.Inner.Name
		outer, around := p.inside, p.around
		p.inside, p.around = true, s.Kind
		p.decide(s.Inner, &inner)
		p.inside, p.around = outer, around
	}
	if inner.Refusal != nil {
		out.refuse(inner.Rule, inner.Refusal)
	}
	return inner
}

// planDeclare plans DECLARE: a cursor is where its query runs, and if that is on several shards the session has it.
func planDeclare(p *planner, s *facts.Statement, out *Statement) {
	inner := p.inner(s, out)
	*out = inner
	out.Name, out.Start, out.End, out.Rows, out.Reads = s.Name, s.Start, s.End, false, false
	if r := &out.Route; r.Level > Composed || r.Level == Several && r.Parts != Whole && r.Parts != Same {
		out.keepWhole("a cursor")
	}
	cursor := s.Cursor
	cursor.NoScroll = cursor.NoScroll || !cursor.Scroll && s.Inner != nil && s.Inner.Locks // as in PostgreSQL
	out.Declares = &cursor
	if cursor.Hold {
		out.Pin = pinHold
	}
}

// keepWhole sees to it that what cannot be put together from parts runs on one shard.
func (s *Statement) keepWhole(what string) {
	s.Composition = nil
	refusal := pgerr.New(pgerr.FeatureNotSupported, "%s over several shards is not supported yet", what).
		WithDetail("Its rows would have to be put together from several shards.").WithHint("Bind the key to the values of one shard.")
	switch {
	case s.Refusal != nil, s.Route.Level < Several, s.Route.Level == Several && s.Route.Parts == Whole:
	case s.Route.Level == Several && len(s.Route.Keys) > 0 && s.Route.RowKeys == 0:
		s.Route.Parts, s.Route.Undivided = Whole, refusal
	default:
		s.refuse("not-divided", refusal)
	}
}

// planCursor plans FETCH, MOVE and CLOSE. How far FETCH and MOVE go is a literal.
func planCursor(p *planner, s *facts.Statement, out *Statement) {
	cursor := s.Cursor
	out.Cursor, out.Route = &cursor, Route{Level: Anywhere, Why: "where the cursor is"}
	out.Rows = s.Kind == "FetchStmt" && !cursor.Move
	for i, l := range p.Literals {
		if s.Start <= l.Start && l.End <= s.End {
			p.plan.shapedBy([]int{i})
		}
	}
}

// planOpaque plans CALL and DO, of which nobody knows what they do.
func planOpaque(p *planner, s *facts.Statement, out *Statement) {
	out.Route, out.Taints, out.mayDefine, out.Schema = Route{Level: Home, Why: s.Name + " may do anything"}, true, true, true
	out.Rows = s.Kind == "CallStmt"
	p.refuseIfSharded(out, s.Name, "It may read or write sharded tables unseen, on one shard only.", "Send the statements that it runs themselves.")
	v := p.survey(s, out)
	v.routeIsHome()
}

// routeIsHome refuses what names something that the home shard does not have.
func (v *survey) routeIsHome() {
	v.needsHome(v.s.Name)
	if v.out.Refusal == nil && (len(v.sharded) > 0 || v.shard != "" && v.shard != v.p.Home || len(v.out.Virtual) > 0) {
		v.out.refuse("not-at-home", pgerr.New(pgerr.FeatureNotSupported, "%s is not supported yet with tables of other shards or views of the router", v.s.Name).
			WithDetail("It runs on the home shard, which does not have them.").WithHint("Ask for what it needs first, and give it literals or parameters."))
	}
}

// planListen plans LISTEN, UNLISTEN and NOTIFY.
func planListen(_ *planner, s *facts.Statement, out *Statement) {
	out.Route = Route{Level: Home, Why: "notifications are the home shard's"}
	if s.Kind == "ListenStmt" {
		out.Pin = pinListen
	}
}

// planLoad plans LOAD.
func planLoad(_ *planner, s *facts.Statement, out *Statement) {
	out.Route, out.Pin = Route{Level: Home, Why: s.Name}, pinLoad
}

// planConstraints plans SET CONSTRAINTS, which concerns one transaction on every shard that it reaches. Where the constraints are that it
// names, the session finds out.
func planConstraints(p *planner, s *facts.Statement, out *Statement) {
	out.Route = Route{Level: Home, Why: s.Name}
	named := len(s.Transaction.Constraints) > 0
	if named && (!p.matters() || p.Map.ShardCount() == 1) { // all of them are at home
		return
	}
	if s.Transaction.CrossDatabase {
		out.refuse("database-in-name", pgerr.New(pgerr.FeatureNotSupported, "the name of a database before that of a constraint is not supported").
			WithDetail("The tables of a cluster are in one database.").WithHint("Leave it out."))
	}
	out.Command, out.Transaction.Deferred, out.Transaction.Constraints = SetConstraints, s.Transaction.Deferred, s.Transaction.Constraints
}

// planCopy plans COPY.
func planCopy(p *planner, s *facts.Statement, out *Statement) {
	if s.Inner != nil {
		inner := p.inner(s, out)
		*out = inner
		out.Name, out.Start, out.End = s.Name, s.Start, s.End
		out.copyQuery(s)
	} else {
		p.copyTable(s, out)
	}
	out.Rows, out.Copy = false, s.Options.Client
	out.Binary = slices.ContainsFunc(s.Load.Options, func(o facts.LoadOption) bool { return o.Name == "format" && o.Value == "binary" })
	if !s.Options.Client && out.Refusal == nil {
		out.copyFile(p.Home)
	}
}

// copyQuery sees to it that of a query whose rows are copied, several shards copy each their own, or the session has them copied where it is finished.
func (s *Statement) copyQuery(f *facts.Statement) {
	switch r := &s.Route; {
	case s.Composition != nil && s.Composition.Kind != compose.Reads, r.Level > Composed, r.Level == Several && r.Parts != Whole && r.Parts != Same:
		s.keepWhole("COPY")
	}
	if f.Options.Client {
		s.Load = &Load{Query: true, Options: loadOptions(f)}
	}
}

// copyTable plans COPY of a table.
func (p *planner) copyTable(s *facts.Statement, out *Statement) {
	v := p.survey(s, out)
	if len(out.Virtual) > 0 {
		out.refuse("copy-router-view", pgerr.New(pgerr.FeatureNotSupported, "COPY of a view of the router is not supported").
			WithDetail("The router answers it, and no shard has it.").WithHint("Use COPY (SELECT * FROM …) TO."))
	}
	switch {
	case out.Refusal != nil:
	case len(v.sharded) > 0:
		v.copySharded(&v.tables[v.sharded[0]])
	case v.referenceWritten != "" && v.isLoadOf(&v.tables[0]) && p.Map.ShardCount() > 1:
		v.loadReference(&v.tables[0])
	default:
		v.route()
	}
	out.Taints, out.mayDefine, out.Reads = v.taints, v.mayDefine, !s.Options.From && !v.changes
	if len(v.tables) > 0 && v.tables[0].relation != nil {
		out.Types = v.copiedTypes(&v.tables[0])
	}
}

// copyFile sees to it that COPY with a file or program of the server means the home shard's, as with one server.
func (s *Statement) copyFile(home string) {
	s.Reads = false
	switch {
	case s.Route.Level == Anywhere:
		s.Route = Route{Level: Home, Why: "files are the home shard's"}
	case s.Route.Level == Home, s.Route.Level == OnShard && s.Route.Shard == home:
	default:
		s.refuse("copy-file", pgerr.New(pgerr.FeatureNotSupported, "COPY with a file or program of the server is supported on the home shard only").
			WithDetail("%s", filesOfOneServer).WithHint("Use COPY … TO STDOUT or FROM STDIN."))
	}
}
