package plan

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// open is what a statement that comes first leaves open for those behind it, which were looked up before it ran.
type open struct {
	// by is its command, empty if nothing is open.
	by    string
	reach reach
	// before: it stood in the same transaction, but not in the same text.
	before bool
}

// reach is how much is open, a set of what follows.
type reach uint8

const (
	// openPath: which tables, functions, operators and types are meant by names without a schema.
	openPath reach = 1 << iota
	// openCode: which functions run, also behind tables, operators and types. Tables stay what they are.
	openCode
	// openNames: which tables are meant by any name.
	openNames

	settled reach = 0
	openAll       = openPath | openCode | openNames
)

// goneRelation is a relation that was dropped or has another name now, so that its old name may mean another one.
type goneRelation struct{ by, schema string }

// refusal says why a statement must not run.
func (o *open) refusal(s *facts.Statement) *pgerr.Error {
	where, when, hint := "text", "has run", "Send the statements one by one."
	if o.before {
		where, when, hint = "transaction", "is committed", "Commit first."
	}
	return pgerr.New(pgerr.FeatureNotSupported, "%s behind %s in the same %s is not supported", s.Name, o.by, where).
		WithDetail("What its names mean, and which code they run, is known only after %s %s.", o.by, when).WithHint("%s", hint)
}

// opener returns what stands before a statement and leaves open what it means; nil if nothing does.
func (p *planner) opener(s *facts.Statement) *open {
	if s.Inner != nil {
		if inner := p.opener(s.Inner); inner != nil {
			return inner
		}
	}
	if p.isOpen(s) {
		return &p.open
	}
	for _, t := range s.Tables {
		if !byPath(t) {
			continue
		}
		if gone, is := p.gone[t.Name]; is {
			return &open{by: gone.by, reach: openPath}
		}
		if p.ended != "" && p.isTemporary(t.Name) {
			return &open{by: p.ended, reach: openPath}
		}
	}
	return nil
}

// byPath says whether the search path decides which relation is meant.
func byPath(t facts.Table) bool { return t.Schema == "" && t.Role != facts.Created }

func (p *planner) isOpen(s *facts.Statement) bool {
	switch reach := p.open.reach; {
	case reach&openNames != 0 && len(s.Tables) > 0:
		return true
	case reach&openPath != 0 && (slices.ContainsFunc(s.Tables, byPath) || p.sharded && p.namesOthers(s)):
		return true
	default:
		return reach&openCode != 0 && !p.runsNothing(s) && (len(s.Tables) > 0 || p.sharded && mayRunOthers(s))
	}
}

// namesOthers says whether the statement names, without a schema, a function, an operator or a type that is not only
// PostgreSQL's own: with another search path it is another one.
func (p *planner) namesOthers(s *facts.Statement) bool {
	isOther := func(kind NameKind, schema, name string) bool {
		overloads := p.known.Functions[FunctionName{Name: name, Kind: kind}]
		return schema == "" && (len(overloads) == 0 || slices.ContainsFunc(overloads, func(f Function) bool { return !f.System }))
	}
	v := &survey{p: p, s: s}
	for _, t := range s.Tables {
		v.tables = append(v.tables, p.resolve(t))
	}
	return slices.ContainsFunc(s.Calls, func(c facts.Call) bool { return isOther(OfFunction, c.Schema, c.Name) }) ||
		slices.ContainsFunc(s.Operators, func(o facts.Name) bool { return isOther(OfOperator, o.Schema, o.Name) }) ||
		slices.ContainsFunc(s.Types, func(t facts.Name) bool {
			return t.Schema == "" && typeOIDs[t.Name] == 0 || isOther(OfType, t.Schema, t.Name)
		}) ||
		slices.ContainsFunc(s.Fields, func(field string) bool { return !v.isColumn(field) })
}

// mayRunOthers says whether code that somebody has just made may run: an operator, a cast or an overload may be new. Only
// PostgreSQL's functions of plain values, named with their schema, are the same as ever, and so are the router's.
func mayRunOthers(s *facts.Statement) bool {
	return len(s.Types)+len(s.Operators)+len(s.Fields) > 0 || slices.ContainsFunc(s.Calls, func(c facts.Call) bool {
		computed := slices.ContainsFunc(c.Arguments, func(o facts.Operand) bool { return o.Kind == facts.Expression })
		return c.Schema != routerSchema && (c.Schema != "pg_catalog" || computed)
	})
}

// runsNothing says whether a definition is only written down, so that it does not matter yet which code it means.
func (p *planner) runsNothing(s *facts.Statement) bool {
	switch s.Kind {
	case "CreateStmt":
		return !s.Options.Bounds && !s.Options.Temporary
	case "IndexStmt":
		return len(s.Calls)+len(s.Operators)+len(s.Types) == 0
	case "AlterTableStmt":
		return len(s.Calls)+len(s.Operators) == 0 && !evaluatesKept(s) && isAlteredOnly(s) &&
			!slices.ContainsFunc(s.Types, func(t facts.Name) bool { return !p.isBuiltinType(t) })
	case "CreateSeqStmt", "CreateEnumStmt", "CommentStmt", "CreateTrigStmt", "CreatePolicyStmt", "RuleStmt", "GrantStmt", "CreateFunctionStmt":
		return true
	case "DropStmt":
		return !s.Options.Cascade
	}
	return false
}

// isBuiltinType says whether a type is one of PostgreSQL's common ones, whatever else was made.
func (p *planner) isBuiltinType(t facts.Name) bool {
	return typeOIDs[t.Name] != 0 && (t.Schema == "pg_catalog" || t.Schema == "" && p.trustsBuiltins())
}

// remember notes what a statement leaves open for those behind it.
func (p *planner) remember(s *facts.Statement, out *Statement) {
	for _, name := range out.Creates {
		p.made[name] = true
	}
	for _, v := range out.Virtual {
		if v.Function && changesMap[v.Name] {
			p.leave("cleave."+v.Name, openAll)
			p.sharded, p.declared = true, true
		}
	}
	if !p.matters() {
		return
	}
	p.leave(s.Name, p.leaves(s, out))
	if p.ended == "" && p.endsTemporary(s, out) {
		p.ended = s.Name
	}
	if out.Schema {
		p.altered = true
		p.noteGone(s)
	}
}

// leave adds to what is open.
func (p *planner) leave(by string, more reach) {
	if p.open.reach == settled {
		p.open.by = by
	}
	p.open.reach |= more
}

// matters says whether it makes a difference which table a name means: not as long as all are on the home shard.
func (p *planner) matters() bool {
	return p.Map.TableCount() > 0 || slices.ContainsFunc(p.Map.Keyspaces(), func(k *topology.Keyspace) bool { return k.Strategy() == topology.BySchema })
}

// leaves says how much a statement leaves open.
func (p *planner) leaves(s *facts.Statement, out *Statement) reach {
	switch {
	case out.Command == Execute || out.mayDefine: // code that nobody sees may define something
		return openAll
	case (out.Command == Rollback || out.Command == RollbackTo) && (p.altered || p.Altered):
		return openAll
	case !out.Schema && p.changesPath(out):
		return openPath
	case !out.Schema:
		return settled
	case p.takesDeclaredName(s):
		return openAll
	case definesCode(s):
		return openCode
	case !definesData(s):
		return openAll
	case !p.runsKnown(s):
		return openCode
	default:
		return settled
	}
}

// changesPath says whether names without a schema may mean something else behind this statement.
func (p *planner) changesPath(out *Statement) bool {
	switch out.Command {
	case ResetAll, DiscardAll:
		return true
	case Commit, Rollback, RollbackTo:
		return p.PathIsLocal
	case ShowVariable:
		return false
	default:
	}
	return slices.ContainsFunc(out.Settings, func(s Setting) bool {
		return s.Name == "search_path" || s.Name == "role" || s.Name == "session_authorization"
	})
}

// endsTemporary says whether temporary relations may be gone behind this statement, so that their names mean others again.
func (p *planner) endsTemporary(s *facts.Statement, out *Statement) bool {
	switch out.Command {
	case DiscardAll, DiscardTemp, Commit, Rollback, RollbackTo:
		return true
	default:
	}
	return out.Schema && slices.ContainsFunc(s.Tables, func(t facts.Table) bool {
		r := p.resolve(t)
		return t.Role == facts.Subject && r.class == temporary
	})
}

// takesDeclaredName says whether a relation comes, goes or is renamed that has the name of a declared table, in whichever
// schema: names without a schema may mean the other one then.
func (p *planner) takesDeclaredName(s *facts.Statement) bool {
	return slices.ContainsFunc(p.movedNames(s), func(name string) bool {
		return slices.ContainsFunc(p.Map.Tables(), func(t *topology.Table) bool { return t.Name().Name == name })
	})
}

// movedNames are the names of relations that the statement makes, drops or renames. Of temporary ones there is a record.
func (p *planner) movedNames(s *facts.Statement) []string {
	var names []string
	for _, t := range s.Tables {
		r := p.resolve(t)
		if t.Role == facts.Created {
			r = p.resolveNew(t, s.Options.Temporary)
		}
		if r.class != temporary && (t.Role == facts.Created || takesAway(s)) {
			names = append(names, t.Name, s.Object.NewName)
		}
	}
	if s.Kind == "IndexStmt" {
		names = append(names, s.Object.NewName)
	}
	return names
}

// keepDropped refuses to give the name of a declared table that the transaction has dropped to something else: the shard map knows that table until
// the transaction is committed, so statements would go by it.
func (p *planner) keepDropped(s *facts.Statement, out *Statement) {
	if len(p.Dropped) == 0 || out.Refusal != nil {
		return
	}
	var made []string
	for _, t := range s.Tables {
		if t.Role == facts.Created && !slices.Contains(out.Creates, t.Name) {
			made = append(made, t.Name)
		}
	}
	switch s.Kind {
	case "RenameStmt":
		if slices.Contains(relationTypes, s.Object.Type) {
			made = append(made, s.Object.NewName)
		}
	case "AlterObjectSchemaStmt":
		for _, t := range s.Tables {
			made = append(made, t.Name)
		}
	}
	isDropped := func(name string) bool {
		return slices.ContainsFunc(p.Dropped, func(t topology.TableName) bool { return t.Name == name })
	}
	if i := slices.IndexFunc(made, isDropped); i >= 0 {
		out.refuse("name-of-dropped", pgerr.New(pgerr.FeatureNotSupported, "%s with the name of a sharded or reference table that the transaction has dropped is not supported", s.Name).
			WithDetail("The shard map has table %q until the transaction is committed.", made[i]).WithHint("Commit DROP TABLE first, or choose another name."))
	}
}

// takesAway says whether the relations that the statement is about lose their names.
func takesAway(s *facts.Statement) bool {
	return (s.Kind == "DropStmt" || s.Kind == "RenameStmt") && slices.Contains(relationTypes, s.Object.Type)
}

// noteGone notes which relations have lost their names, and which of these names mean something again.
func (p *planner) noteGone(s *facts.Statement) {
	for _, t := range s.Tables {
		switch {
		case t.Role == facts.Created && t.Schema == "":
			delete(p.gone, t.Name) // it is in the first schema of the path, so nothing hides it
		case takesAway(s):
			p.noteGoneRelation(s, t)
		}
	}
}

func (p *planner) noteGoneRelation(s *facts.Statement, t facts.Table) {
	r := p.resolve(t)
	if r.relation == nil || r.class == temporary {
		return
	}
	p.gone[t.Name] = goneRelation{s.Name, r.relation.Schema}
	if p.gone[s.Object.NewName].schema == r.relation.Schema {
		delete(p.gone, s.Object.NewName) // it takes the place of one that has gone
	}
}

// codeKinds are the definitions that change which code runs and no table's name.
var codeKinds = []facts.Kind{
	"CreateFunctionStmt", "AlterFunctionStmt", "CreateTrigStmt", "CreatePolicyStmt", "AlterPolicyStmt", "RuleStmt", "CreateCastStmt", "DefineStmt",
	"CreateDomainStmt", "CreateRangeStmt", "CompositeTypeStmt", "CreateOpClassStmt", "CreateOpFamilyStmt", "AlterOpFamilyStmt", "AlterOperatorStmt",
	"CreateExtensionStmt", "ViewStmt",
}

// codeTypes are the kinds of things that can be dropped with no other effect than that other code runs.
var codeTypes = []string{"FUNCTION", "PROCEDURE", "ROUTINE", "AGGREGATE", "OPERATOR", "CAST", "TRIGGER", "RULE", "POLICY", "TYPE", "DOMAIN"}

// definesCode says whether a definition changes which code runs, and nothing else.
func definesCode(s *facts.Statement) bool {
	switch s.Kind {
	case "DropStmt":
		return !s.Options.Cascade && slices.Contains(codeTypes, s.Object.Type)
	case "AlterTableStmt":
		return !s.Options.Cascade && !isAlteredOnly(s) && !slices.ContainsFunc(s.Object.Actions, func(action string) bool {
			return action != "ChangeOwner" && !strings.Contains(action, "Trig") && !strings.Contains(action, "Rule") && !strings.Contains(action, "RowSecurity") && !slices.Contains(dataActions, action)
		})
	}
	return slices.Contains(codeKinds, s.Kind)
}

// dataActions are what ALTER TABLE can do to a table that leaves its place, its name and its triggers as they are.
var dataActions = []string{
	"AddColumn", "DropColumn", "ColumnDefault", "AlterColumnType", "SetNotNull", "DropNotNull", "SetExpression", "DropExpression", "AddIdentity", "SetIdentity",
	"DropIdentity", "AddConstraint", "AlterConstraint", "ValidateConstraint", "DropConstraint", "AddIndex", "AddIndexConstraint", "SetStatistics", "SetOptions",
	"ResetOptions", "SetStorage", "SetCompression", "SetRelOptions", "ResetRelOptions", "SetLogged", "SetUnLogged", "ClusterOn", "DropCluster", "ReplicaIdentity",
	"SetTableSpace", "SetAccessMethod",
}

func isAlteredOnly(s *facts.Statement) bool {
	return !slices.ContainsFunc(s.Object.Actions, func(action string) bool { return !slices.Contains(dataActions, action) })
}

// definesData says whether a definition is one of those that most migrations are made of: it makes, changes, renames or drops
// tables, columns, indexes, sequences and enums, and what it means for statements behind it can be told from its text.
func definesData(s *facts.Statement) bool {
	if s.Options.Cascade { // it reaches what it does not name
		return false
	}
	switch s.Kind {
	case "CreateStmt", "CreateTableAsStmt", "SelectStmt", "IndexStmt", "CreateSeqStmt", "AlterSeqStmt", "CreateEnumStmt", "CommentStmt", "CreateStatsStmt":
		return true
	case "CreateSchemaStmt": // there is nothing in it yet
		return !s.Options.Elements
	case "AlterTableStmt":
		return s.Object.Type == "TABLE" && isAlteredOnly(s)
	case "DropStmt":
		return slices.Contains([]string{"TABLE", "INDEX", "SEQUENCE"}, s.Object.Type)
	case "RenameStmt":
		return slices.Contains([]string{"TABLE", "INDEX", "SEQUENCE", "COLUMN", "CONSTRAINT"}, s.Object.Type)
	case "GrantStmt":
		return slices.Contains([]string{"TABLE", "SEQUENCE", "ALL IN SCHEMA"}, s.Object.Type)
	}
	return false
}

// runsKnown says whether what a definition leaves behind runs no code that may reach tables, so that nothing hides behind the
// tables that it makes or changes.
func (p *planner) runsKnown(s *facts.Statement) bool {
	if s.Inner != nil && !p.runsKnown(s.Inner) {
		return false
	}
	v := &survey{p: p, s: s, out: &Statement{}}
	if v.calls(s); v.mayDefine {
		return false
	}
	switch s.Kind {
	case "CommentStmt", "GrantStmt", "DropStmt", "IndexStmt", "CreateStatsStmt": // whatever the table runs, they change nothing of it
		return true
	}
	return !slices.ContainsFunc(s.Tables, func(t facts.Table) bool {
		r := p.resolve(t)
		return t.Role != facts.Created && r.relation != nil && (r.relation.WritesRun != "" || r.relation.ReachesDeclared)
	})
}
