package plan

import (
	"slices"

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
		"ReindexStmt": planUpkeep, "RefreshMatViewStmt": planUpkeep,

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
	*out = inner
	out.Name, out.Start, out.End, out.Rows = s.Name, s.Start, s.End, true
	out.Explains = s.Options.Format == "" || s.Options.Format == "text"
	if s.Options.Runs || out.Command == Execute {
		return
	}
	out.Reads, out.Schema, out.Pin, out.Taints, out.mayDefine, out.Creates, out.NoBlock = true, false, "", false, false, nil, false
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

// planDeclare plans DECLARE: a cursor is where its query runs.
func planDeclare(p *planner, s *facts.Statement, out *Statement) {
	inner := p.inner(s, out)
	*out = inner
	out.Name, out.Start, out.End, out.Rows, out.Reads = s.Name, s.Start, s.End, false, false
	out.keepWhole("a cursor")
	if s.Options.Hold {
		out.Pin = pinHold
	}
}

// keepWhole sees to it that what cannot be put together from parts runs on one shard.
func (s *Statement) keepWhole(what string) {
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

// planCursor plans FETCH, MOVE and CLOSE.
func planCursor(_ *planner, s *facts.Statement, out *Statement) {
	out.Cursor, out.Route = true, Route{Level: Anywhere, Why: "where the cursor is"}
	out.Rows = s.Kind == "FetchStmt" && !s.Options.Move
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
		out.keepWhole("COPY")
	} else {
		p.copyTable(s, out)
	}
	out.Rows, out.Copy = false, s.Options.Client
	out.Binary = slices.ContainsFunc(s.Load.Options, func(o facts.LoadOption) bool { return o.Name == "format" && o.Value == "binary" })
	if !s.Options.Client && out.Refusal == nil && out.Load == nil {
		out.copyFile(p.Home)
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
