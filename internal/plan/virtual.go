package plan

import (
	"regexp"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// ownViews and ownFunctions are what the router itself answers.
var (
	ownViews     = []string{"automation", "automation_events", "automation_proposals", "keyspaces", "moves", "pins", "pools", "ranges", "rollouts", "routers", "sagas", "sessions", "shards", "stat_activity", "statements", "table_sizes", "tables", "transactions"}
	ownFunctions = []string{
		"check_reference_table", "create_distributed_table", "create_reference_table", "merge_ranges", "move_cancel", "move_finish", "move_pause", "move_resume", "move_rollback", "move_start", "move_switch", "move_tables", "move_throttle",
		"rebalance_apply", "rebalance_plan", "reference_table", "reference_tables", "repair_reference_table", "resolve_transaction", "rollout_begin", "rollout_finish", "rollout_next",
		"rollout_undo", "shard_local_function", "shard_of", "shard_table", "shard_tables", "split_range", "tenant_isolate", "transaction_outcome", "undistribute_table", "verify", "version",
	}
)

// changesMap are those of them behind which names may mean something else.
var changesMap = map[string]bool{
	"create_distributed_table": true, "create_reference_table": true, "reference_table": true, "reference_tables": true, "shard_table": true,
	"shard_tables": true, "undistribute_table": true, "shard_local_function": true, "rollout_begin": true, "rollout_finish": true, "rollout_next": true, "rollout_undo": true,
}

// runsAlone says whether a function of the router has to be called by itself: it changes the cluster, or keeps everybody from tables for a while.
func runsAlone(name string) bool {
	return changesMap[name] || name == "check_reference_table" || name == "repair_reference_table" || name == "verify"
}

// unqualifiedOwn are those that are known by their name alone, if no function of the database has it.
var unqualifiedOwn = []string{"create_distributed_table", "create_reference_table"}

// isOurs says whether a call means a function of the router.
func (p *planner) isOurs(c facts.Call) bool {
	return c.Schema == routerSchema ||
		c.Schema == "" && slices.Contains(unqualifiedOwn, c.Name) && len(p.known.Functions[FunctionName{Name: c.Name}]) == 0
}

// ownView notes that a view of the router is read.
func (v *survey) ownView(r *resolved) {
	v.needsHome("view cleave." + r.Name)
	switch {
	case !slices.Contains(ownViews, r.Name):
		v.out.refuse("unknown-router-view", pgerr.New(pgerr.UndefinedTable, "relation \"cleave.%s\" does not exist", r.Name).
			WithHint("The views of the router are cleave.%s.", strings.Join(ownViews, ", cleave.")))
	case r.Written || r.Locked || r.Role == facts.Created:
		v.out.refuse("router-view-write", pgerr.New(pgerr.WrongObjectType, "cannot change view \"cleave.%s\"", r.Name).
			WithDetail("It shows what the router knows."))
	case r.Sampled:
		v.out.refuse("router-view-sample", pgerr.New(pgerr.WrongObjectType, "TABLESAMPLE clause can only be applied to tables and materialized views")) //nolint:misspell // PostgreSQL's words
	case slices.Contains(v.s.Qualifiers, routerSchema):
		v.out.refuse("router-view-column", pgerr.New(pgerr.FeatureNotSupported, "a column of \"cleave.%s\" cannot be written with its schema", r.Name).
			WithDetail("The router puts what the view shows in its place, which is called \"%s\" alone.", r.visibleName()).
			WithHint("Write %s.column.", r.visibleName()))
	default:
		// What takes the place of TABLE cleave.x is a query of its own, which needs no alias.
		v.out.Virtual = append(v.out.Virtual, Virtual{
			Name: r.Name, Start: r.WideStart, End: r.WideEnd, FromClause: !r.Command, Aliased: r.Alias != "" || r.Command,
		})
	}
}

// ownCall notes that a function of the router is called.
func (v *survey) ownCall(c facts.Call) {
	v.needsHome("function cleave." + c.Name)
	v.changes = v.changes || runsAlone(c.Name)
	inside := slices.ContainsFunc(v.out.Virtual, func(other Virtual) bool { return other.Start <= c.Start && c.Start < other.End })
	switch {
	case !slices.Contains(ownFunctions, c.Name):
		v.out.refuse("unknown-router-function", pgerr.New(pgerr.UndefinedFunction, "function cleave.%s does not exist", c.Name).
			WithHint("The functions of the router are cleave.%s.", strings.Join(ownFunctions, ", cleave.")))
	case runsAlone(c.Name) && (c.Place != facts.Alone || v.p.inside):
		v.out.refuse("router-function-alone", pgerr.New(pgerr.FeatureNotSupported, "function cleave.%s is not supported in this place", c.Name).
			WithDetail("It changes the cluster, and the statement may run it later, several times or not at all.").
			WithHint("Call it by itself: SELECT cleave.%s(…).", c.Name))
	case c.End <= c.Start || inside || c.Place == facts.InRowsFrom || c.Modified:
		v.out.refuse("router-function-place", pgerr.New(pgerr.FeatureNotSupported, "function cleave.%s is not supported in this place", c.Name).
			WithDetail("The router answers it once, before the statement runs.").WithHint("Call it in the list of columns or in FROM, by itself."))
	default:
		v.out.Virtual = append(v.out.Virtual, Virtual{
			Function: true, Name: c.Name, Start: c.Start, End: c.End, FromClause: c.Place == facts.InFrom, Aliased: c.Aliased,
			Arguments: v.ownArguments(c), ArgumentNames: c.ArgumentNames,
		})
	}
}

// ownArguments are the arguments of a function of the router. Names of tables are often cast to regclass, which says no more
// than that they are names of tables.
func (v *survey) ownArguments(c facts.Call) []Operand {
	arguments := make([]Operand, len(c.Arguments))
	for i, argument := range c.Arguments {
		if c.Name == "shard_of" && i > 0 && c.ArgumentNames[i] == "" {
			arguments[i] = v.keyArgument(argument)
			continue
		}
		argument.Casts = slices.DeleteFunc(slices.Clone(argument.Casts), func(t facts.Type) bool {
			return t.Name == "regclass" || t.Name == "text" || t.Name == "name"
		})
		arguments[i] = v.p.operand(argument)
	}
	return arguments
}

// keyArgument is a value of a key that is told by its text alone. So a cast must leave the text as it is, and a number must be
// written as PostgreSQL would write it: in a column of text, 007 is stored as 7.
func (v *survey) keyArgument(argument facts.Operand) Operand {
	unknowable := Operand{CastMod: -1}
	for _, t := range argument.Casts {
		form, known := plainForms[t.Name]
		if !known || t.HasMods || t.Array || t.Schema != "pg_catalog" && (t.Schema != "" || !v.p.trustsBuiltins()) {
			return unknowable
		}
		if form != nil && (argument.Kind != facts.Constant || !form.MatchString(argument.Text)) {
			return unknowable
		}
	}
	argument.Casts = nil
	operand := v.p.operand(argument)
	if operand.Kind != FromLiteral || !argument.Number {
		return operand
	}
	literal := v.p.Literals[operand.Literal]
	written := v.p.text[literal.Start:literal.End]
	if !plainNumber.MatchString(written) || operand.Negative && !strings.ContainsAny(written, "123456789") {
		return unknowable
	}
	return operand
}

// plainForms are types to which a text is cast without a change, and the form that it must have, nil for any.
var plainForms = map[string]*regexp.Regexp{
	"text": nil, "varchar": nil, "int2": plainInteger, "int4": plainInteger, "int8": plainInteger,
	"uuid": regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`),
}

var plainInteger = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

// plainNumber is a number as PostgreSQL writes it.
var plainNumber = regexp.MustCompile(`^(0|[1-9][0-9]*)(\.[0-9]+)?$`)

// ownIn are the catalogues in which there is something of the router's own.
var ownIn = []string{"pg_class", "pg_namespace", "pg_proc", "pg_rewrite", "pg_sequence", "pg_trigger", "pg_type"}

// SequencePrefix stands before the name of a sequence, as SQL writes it, that a dump reads as a table.
const SequencePrefix = "sequence "

// dumpedSequence has a sequence read as it would stand if one server gave all its numbers.
func (v *survey) dumpedSequence(r *resolved) {
	if r.WideEnd > r.WideStart && !r.Written && !r.Locked && !r.Command {
		name := sqltext.QuoteIdentifier(r.relation.Schema) + "." + sqltext.QuoteIdentifier(r.relation.Name)
		v.out.Virtual = append(v.out.Virtual, Virtual{Name: SequencePrefix + name, Start: r.WideStart, End: r.WideEnd, FromClause: true, Aliased: r.Alias != ""})
	}
}

// ViewDefinition stands for the name of PostgreSQL's function that tells the query of a view, in a dump.
const ViewDefinition = "definition of a view"

// dumpedDefinition has the query of a materialised view told as the client wrote it, whatever the router has made of it.
func (v *survey) dumpedDefinition(c *facts.Call) {
	if open := v.p.opening(c); c.Name == "pg_get_viewdef" && len(c.Arguments) == 1 && open > 0 && v.p.isSystem(*c) {
		v.out.Virtual = append(v.out.Virtual, Virtual{Name: ViewDefinition, Start: c.Start, End: open, Aliased: true})
	}
}

// withoutOwn has a catalogue read without what is the router's own.
func (v *survey) withoutOwn(r *resolved) {
	if slices.Contains(ownIn, r.Name) && r.WideEnd > r.WideStart && !r.Written && !r.Locked && !r.Command {
		v.out.Virtual = append(v.out.Virtual, Virtual{Name: "pg_catalog." + r.Name, Start: r.WideStart, End: r.WideEnd, FromClause: true, Aliased: r.Alias != ""})
	}
}
