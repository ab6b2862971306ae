package plan

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// sessionsOwn is the route of what the session sees to itself, wherever it happens to be.
var sessionsOwn = Route{Level: Anywhere, Why: "the session's own"}

// planTransaction plans transaction control.
func planTransaction(p *planner, s *facts.Statement, out *Statement) {
	out.Route = sessionsOwn
	out.Transaction = Transaction{Savepoint: s.Transaction.Savepoint, Chain: s.Transaction.Chain, Serializable: s.Transaction.Serializable}
	switch s.Transaction.Kind {
	case facts.Begin:
		out.Command = Begin
	case facts.Commit:
		out.Command = Commit
	case facts.Rollback:
		out.Command = Rollback
	case facts.Savepoint:
		out.Command = Savepoint
	case facts.Release:
		out.Command = ReleaseSavepoint
	case facts.RollbackTo:
		out.Command = RollbackTo
	case facts.PrepareTransaction, facts.CommitPrepared, facts.RollbackPrepared:
		out.Route = Route{Level: Home, Why: "prepared transactions are the home shard's"}
		out.NoBlock = s.Transaction.Kind != facts.PrepareTransaction
		p.refuseIfSharded(out, s.Name, "The transaction may be on any shard, and which one is not kept with its name.", "Use COMMIT, which is atomic over all shards.")
	default:
		out.refuse("kind", pgerr.New(pgerr.FeatureNotSupported, "%s is not supported", s.Name))
	}
}

// refuseIfSharded refuses what cannot be right as soon as some table is sharded.
func (p *planner) refuseIfSharded(out *Statement, name, reason, hint string) {
	if p.sharded {
		out.refuse("while-sharded", pgerr.New(pgerr.FeatureNotSupported, "%s is not supported while %s", name, p.while).WithDetail("%s", reason).WithHint("%s", hint))
	}
}

// refuseIfDeclared refuses what cannot be right as soon as some table is sharded or a reference table.
func (p *planner) refuseIfDeclared(out *Statement, name, reason, hint string) {
	if p.declared {
		out.refuse("while-declared", pgerr.New(pgerr.FeatureNotSupported, "%s is not supported yet while there are sharded or reference tables", name).WithDetail("%s", reason).WithHint("%s", hint))
	}
}

// planSet plans SET and RESET.
func planSet(p *planner, s *facts.Statement, out *Statement) {
	p.plan.Uncacheable = true
	out.Route = sessionsOwn
	out.Command = SetVariable
	for _, setting := range s.Settings {
		if setting.Opaque {
			out.refuse("set-form", pgerr.New(pgerr.FeatureNotSupported, "this form of SET %s is not supported", strings.ToUpper(setting.Name)).
				WithDetail("The router has to know the value, and cannot compute it.").WithHint("Use SET name TO value with literals."))
		}
		if setting.Default {
			out.Command = ResetVariable
		}
		p.keepTriggersOn(out, setting.Name, setting.Values)
		if setting.Default && setting.Name == "all" {
			out.Command = ResetAll
			return
		}
		out.Settings = append(out.Settings, Setting{
			Name: setting.Name, Local: setting.Local, Default: setting.Default, SQL: setting.SQL, Values: setting.Values,
		})
	}
}

// triggersParameter says whether ordinary triggers fire.
const triggersParameter = "session_replication_role"

// keepTriggersOn refuses to switch ordinary triggers off for a session: guards are among them.
func (p *planner) keepTriggersOn(out *Statement, parameter string, values []string) {
	if parameter != triggersParameter || !p.declared || len(values) != 1 || !strings.EqualFold(values[0], "replica") {
		return
	}
	out.refuse("triggers-off", pgerr.New(pgerr.FeatureNotSupported, "%s = replica is not supported while there are sharded or reference tables", triggersParameter).
		WithDetail("It switches triggers off, those among them that keep rows off shards which do not own them.").
		WithHint("ALTER TABLE … DISABLE TRIGGER name switches off a trigger of your own."))
}

// keepTriggersOnLater refuses definitions that have servers switch ordinary triggers off, when a role logs in or while a function runs, or that
// set what is between the router and the shards.
func (p *planner) keepTriggersOnLater(s *facts.Statement, out *Statement) {
	for _, setting := range s.Settings {
		p.plan.Uncacheable = p.plan.Uncacheable || setting.Name == triggersParameter // its value may be a literal
		if isRouters(setting.Name) {
			out.refuse("own-parameter-later", pgerr.New(pgerr.FeatureNotSupported, "%s cannot be set for later", setting.Name).
				WithDetail("Parameters whose names begin with %s. are the router's, or are between it and the shards.", routerSchema).
				WithHint("Set the router's own with SET in the session; that a function uses rows of its own shard alone is told by cleave.shard_local_function."))
		}
		p.keepTriggersOn(out, setting.Name, setting.Values)
	}
}

// planShow plans SHOW.
func planShow(_ *planner, s *facts.Statement, out *Statement) {
	out.Command, out.Route, out.Rows, out.Reads = ShowVariable, sessionsOwn, true, true
	for _, setting := range s.Settings {
		out.Settings = append(out.Settings, Setting{Name: setting.Name})
	}
}

// planDiscard plans DISCARD.
func planDiscard(_ *planner, s *facts.Statement, out *Statement) {
	out.Route = sessionsOwn
	switch s.Options.Discard {
	case "ALL":
		out.Command, out.NoBlock = DiscardAll, true
	case "PLANS":
		out.Command = DiscardPlans
	case "TEMP":
		out.Command = DiscardTemp
	case "SEQUENCES":
		out.Command = DiscardSequences
	default:
		out.refuse("kind", pgerr.New(pgerr.FeatureNotSupported, "%s is not supported", s.Name))
	}
}

// planPrepare plans PREPARE. What it prepares is planned when it is needed, as a text of its own.
func planPrepare(p *planner, s *facts.Statement, out *Statement) {
	out.Command, out.Route = Prepare, sessionsOwn
	out.Prepared = p.prepared(s)
	if out.Prepared.BodyEnd == 0 {
		out.refuse("prepare-form", pgerr.New(pgerr.FeatureNotSupported, "this form of PREPARE is not supported"))
	}
	if slices.Contains(s.Prepared.Schemas, routerSchema) {
		out.refuse("prepare-router-view", pgerr.New(pgerr.FeatureNotSupported, "PREPARE is not supported over a view or function of the router").
			WithDetail("No shard has them; the router puts its answer into each statement.").
			WithHint("Send the statement itself, or prepare it by the protocol, as drivers do."))
	}
}

// planExecute plans EXECUTE. Its route is that of the prepared statement, with the arguments as parameters.
func planExecute(p *planner, s *facts.Statement, out *Statement) {
	out.Command, out.Route, out.Rows = Execute, Route{Level: Anywhere, Why: "as the prepared statement"}, true
	out.Prepared = p.prepared(s)
	v := p.survey(s, &Statement{})
	if v.out.Refusal != nil || v.homeWhy != "" || v.out.Pin != "" || len(v.out.Virtual) > 0 || len(v.tables) > 0 {
		out.refuse("execute-arguments", pgerr.New(pgerr.FeatureNotSupported, "arguments of EXECUTE that depend on a shard are not supported").
			WithDetail("They may say where the statement belongs, and would have to be computed before.").WithHint("Compute them first, and use literals."))
	}
	out.Taints, out.mayDefine = v.taints, v.mayDefine
}

// planDeallocate plans DEALLOCATE.
func planDeallocate(p *planner, s *facts.Statement, out *Statement) {
	out.Command, out.Route = Deallocate, sessionsOwn
	out.Prepared = p.prepared(s)
}

func (p *planner) prepared(s *facts.Statement) Prepared {
	p.plan.Uncacheable = true // places in the text depend on what stands before them
	f := &s.Prepared
	out := Prepared{
		Name: f.Name, NameStart: f.NameStart, NameEnd: f.NameEnd, All: f.All, TypesSQL: p.text[f.TypesStart:f.TypesEnd],
		TypeCount: f.TypeCount, BodyStart: f.BodyStart, BodyEnd: f.BodyEnd,
	}
	for _, argument := range f.Arguments {
		out.Arguments = append(out.Arguments, p.operand(argument))
	}
	return out
}

// lists are the parameters whose value is a list of names.
var lists = map[string]bool{"search_path": true, "temp_tablespaces": true, "session_preload_libraries": true, "local_preload_libraries": true}

// valuesOf takes a value of set_config apart, which holds a list as one text.
func valuesOf(name, value string) []string {
	if !lists[strings.ToLower(name)] {
		return []string{value}
	}
	names, _ := sqltext.SplitNames(value, ',') // what is no list, the server refuses
	return names
}

// settingSQL writes a value of set_config so that SET takes it.
func settingSQL(name, value string) string {
	values := valuesOf(name, value)
	if len(values) == 0 {
		return "''"
	}
	written := make([]string, len(values))
	for i, v := range values {
		written[i] = facts.Literal(v, false)
	}
	return strings.Join(written, ", ")
}
