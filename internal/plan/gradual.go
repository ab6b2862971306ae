package plan

import (
	"errors"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
)

// A change of the schema may go from shard to shard only if every statement is right on both forms of the table: with shards that have
// it and others that do not, at the same time. Whatever is not known to be so is refused.

// Gradual is a statement that shards may run one after the other, with clients at work on all of them.
type Gradual struct {
	// Name is PostgreSQL's name of the kind of statement, SQL the statement.
	Name, SQL string
	// Outside: PostgreSQL runs it outside a transaction block only.
	Outside bool
	Does    GradualKind
	// Table is the table that it is about, as it is written; empty where Index or Statistics say what it is about.
	Table RelationName
	// Index, Statistics and Constraint are what it makes, drops or is about. An index that is made is in its table's schema.
	Index, Statistics RelationName
	Constraint        string
}

// GradualKind is what a statement does, as far as somebody has to know who runs it again or takes it back.
type GradualKind uint8

// The kinds of changes.
const (
	// Adjusts: running it again comes to the same.
	Adjusts GradualKind = iota
	// MakesIndex and DropsIndex are about an index that is not unique; MakesStatistics and DropsStatistics about statistics.
	MakesIndex
	DropsIndex
	MakesStatistics
	DropsStatistics
	// AddsCheck and DropsConstraint are about check constraints; which kind is dropped only the catalogue knows.
	AddsCheck
	DropsConstraint
	// Rebuilds: it leaves the schema as it is.
	Rebuilds
)

// GradualChange reads a change that is to go from shard to shard. It fails with a [*pgerr.Error] that says why it cannot.
func GradualChange(text string) ([]Gradual, error) {
	alterations, err := facts.Alterations(text)
	var syntax *facts.SyntaxError
	if errors.As(err, &syntax) {
		return nil, pgerr.New(pgerr.SyntaxError, "%s", syntax.Message).WithDetail("In the change: %s", text)
	}
	if err != nil {
		return nil, err
	}
	var changes []Gradual
	for i := range alterations {
		a := &alterations[i]
		made, refused := gradually(a, text[a.Start:a.End])
		if refused != nil {
			return nil, refused
		}
		changes = append(changes, made...)
	}
	for i := range changes {
		if changes[i].Outside && len(alterations) > 1 {
			return nil, pgerr.New(pgerr.FeatureNotSupported, "%s … CONCURRENTLY must be the only statement of a change", changes[i].Name).
				WithDetail("It runs outside transactions, so it cannot be applied together with the others.").WithHint("Make a roll-out of its own for it.")
		}
	}
	return changes, nil
}

// gradually reads one statement. ALTER TABLE with several actions gives one for each, of which the first has the text.
func gradually(a *facts.Alteration, sql string) ([]Gradual, *pgerr.Error) {
	if why := vague(a); why != "" {
		return nil, notGradual(a.Name, why)
	}
	g := Gradual{Name: a.Name, SQL: sql, Outside: a.Concurrently}
	switch a.Kind {
	case "IndexStmt":
		return g.index(a)
	case "CreateStatsStmt":
		g.Does, g.Table, g.Statistics = MakesStatistics, RelationName(a.Table), RelationName(a.Subject)
		if a.Subject.Name == "" || a.Table.Name == "" {
			return nil, notGradual(a.Name, "Statistics need a name, by which they are found on every shard, and one table.")
		}
	case "AlterStatsStmt":
		g.Statistics = RelationName(a.Subject)
	case "DropStmt":
		return g.drop(a)
	case "CommentStmt":
		return g.comment(a)
	case "ReindexStmt":
		return g.reindex(a)
	case "AlterTableStmt":
		return g.alter(a)
	default:
		return nil, notGradual(a.Name, reasonFor(a))
	}
	return []Gradual{g}, nil
}

// vague says what is wrong with forms that leave open what they do.
func vague(a *facts.Alteration) string {
	conditional, cascade := a.Conditional, a.Cascade
	for _, action := range a.Actions {
		conditional, cascade = conditional || action.Conditional, cascade || action.Cascade
	}
	switch {
	case conditional:
		return "With IF EXISTS or IF NOT EXISTS nobody can tell what it has done on a shard, and so what would take it back. The roll-out itself sees to it that it is applied once."
	case cascade:
		return "With CASCADE it may drop more than it names."
	}
	return ""
}

func notGradual(name, why string) *pgerr.Error {
	return pgerr.New(pgerr.FeatureNotSupported, "%s cannot go from shard to shard", name).WithDetail("%s", why).
		WithHint("Run it as an ordinary statement: it changes all shards in one transaction.")
}

func (g Gradual) index(a *facts.Alteration) ([]Gradual, *pgerr.Error) {
	switch {
	case a.Unique:
		return nil, notGradual("CREATE UNIQUE INDEX", onConflict)
	case a.Subject.Name == "":
		return nil, notGradual(a.Name, "The index needs a name, by which it is found on every shard.")
	}
	g.Does, g.Table, g.Index = MakesIndex, RelationName(a.Table), RelationName(a.Subject)
	return []Gradual{g}, nil
}

const onConflict = "ON CONFLICT would find it on some shards and fail with 42P10 on others, and equal rows would be refused on some and taken on others."

func (g Gradual) drop(a *facts.Alteration) ([]Gradual, *pgerr.Error) {
	if a.Concurrently && len(a.Others) > 0 {
		return nil, notGradual(a.Name, "DROP INDEX CONCURRENTLY drops one index at a time.")
	}
	made := []Gradual{}
	for _, name := range append([]facts.Name{a.Subject}, a.Others...) {
		one := g
		switch a.Type {
		case "INDEX":
			one.Does, one.Index = DropsIndex, RelationName(name)
		case "STATISTICS":
			one.Does, one.Statistics = DropsStatistics, RelationName(name)
		default:
			return nil, notGradual(a.Name, reasonFor(a))
		}
		if len(made) > 0 {
			one.SQL = ""
		}
		made = append(made, one)
	}
	return made, nil
}

func (g Gradual) comment(a *facts.Alteration) ([]Gradual, *pgerr.Error) {
	switch a.Type {
	case "TABLE", "COLUMN", "CONSTRAINT":
		g.Table = RelationName(a.Subject)
	case "INDEX":
		g.Index = RelationName(a.Subject)
	case "STATISTICS":
		g.Statistics = RelationName(a.Subject)
	}
	if a.Subject.Name == "" || g.Table == g.Index && g.Index == g.Statistics {
		return nil, notGradual(a.Name, "It is not about a table, and what belongs to no table is the same on all shards.")
	}
	return []Gradual{g}, nil
}

func (g Gradual) reindex(a *facts.Alteration) ([]Gradual, *pgerr.Error) {
	if others := slices.DeleteFunc(slices.Clone(a.Options), func(o string) bool { return o == "verbose" }); len(others) > 0 {
		return nil, notGradual(a.Name, "Option "+strings.ToUpper(others[0])+" says where files are, which is each server's own business.")
	}
	g.Does = Rebuilds
	switch a.Type {
	case "TABLE":
		g.Table = RelationName(a.Subject)
	case "INDEX":
		g.Index = RelationName(a.Subject)
	default:
		return nil, notGradual(a.Name, "It does not name one table or index.")
	}
	return []Gradual{g}, nil
}

// harmlessActions are those of ALTER TABLE under which every answer stays as it is: how much is known of a column, and how it is stored.
var harmlessActions = []string{"SetStatistics", "SetStorage", "SetCompression", "SetOptions", "ResetOptions", "SetRelOptions", "ResetRelOptions", "ValidateConstraint"}

func (g Gradual) alter(a *facts.Alteration) ([]Gradual, *pgerr.Error) {
	switch a.Type {
	case "TABLE":
		g.Table = RelationName(a.Subject)
	case "INDEX":
		g.Index = RelationName(a.Subject)
	default:
		return nil, notGradual(a.Name, "It is about neither a table nor an index.")
	}
	var made []Gradual
	for _, action := range a.Actions {
		one := g
		if strings.HasSuffix(action.Action, "Constraint") {
			one.Constraint = action.Name
		}
		switch {
		case action.Action == "AddConstraint" && action.Constraint == "CHECK" && action.Name != "":
			one.Does = AddsCheck
		case action.Action == "AddConstraint" && action.Constraint == "CHECK":
			return nil, notGradual(a.Name+" … ADD CHECK", "The constraint needs a name, by which it is found on every shard: ADD CONSTRAINT name CHECK (…).")
		case action.Action == "DropConstraint":
			one.Does = DropsConstraint
		case slices.Contains(harmlessActions, action.Action):
			if option := foreignOption(action.Options); option != "" && strings.HasSuffix(action.Action, "RelOptions") {
				return nil, notGradual(a.Name, "Of storage parameter "+option+" it is not known that it changes no answer.")
			}
			if action.Action == "ValidateConstraint" {
				one.Does = Rebuilds
			}
		default:
			return nil, notGradual(a.Name, reasonForAction(action))
		}
		if len(made) > 0 {
			one.SQL = ""
		}
		made = append(made, one)
	}
	return made, nil
}

// knownOptions are storage parameters of tables and indexes that change how fast something is, and nothing else; of those with a star
// all that begin so.
var knownOptions = []string{
	"fillfactor", "toast_tuple_target", "parallel_workers", "autovacuum_*", "vacuum_*", "log_autovacuum_*", "toast.autovacuum_*", "toast.vacuum_*", "toast.log_autovacuum_*",
	"deduplicate_items", "buffering", "fastupdate", "gin_pending_list_limit", "pages_per_range", "autosummarize",
}

// foreignOption returns a storage parameter that is none of those.
func foreignOption(options []string) string {
	for _, option := range options {
		if !slices.ContainsFunc(knownOptions, func(known string) bool {
			prefix, open := strings.CutSuffix(known, "*")
			return option == known || open && strings.HasPrefix(option, prefix)
		}) {
			return option
		}
	}
	return ""
}

// unlikeActions say why actions of ALTER TABLE cannot be made on one shard after the other.
var unlikeActions = map[string]string{
	"AddColumn":        "SELECT * and INSERT without a list of columns would mean something else on shards that have the column than on those that have not.",
	"DropColumn":       "SELECT * and INSERT without a list of columns would mean something else on shards that have the column than on those that have not.",
	"AlterColumnType":  "One statement would get values of two types, and clients are told one.",
	"ColumnDefault":    "The same INSERT would store other values on some shards than on others.",
	"SetExpression":    "The same INSERT would store other values on some shards than on others.",
	"DropExpression":   "The same INSERT would store other values on some shards than on others.",
	"AddIdentity":      "The same INSERT would store other values on some shards than on others.",
	"SetIdentity":      "The same INSERT would store other values on some shards than on others.",
	"DropIdentity":     "The same INSERT would store other values on some shards than on others.",
	"SetNotNull":       "The catalogue tells all of a column whether it can be null, and shards would differ. A check constraint can go from shard to shard: ADD CONSTRAINT name CHECK (column IS NOT NULL) NOT VALID.",
	"DropNotNull":      "The catalogue tells all of a column whether it can be null, and shards would differ.",
	"ChangeOwner":      "Who may do what must be the same on all shards.",
	"ReplicaIdentity":  "It says which rows of a table can be carried to another shard.",
	"ClusterOn":        "CLUSTER would work on some shards and fail on others.",
	"DropCluster":      "CLUSTER would work on some shards and fail on others.",
	"EnableTrig":       "The same statement would do other things on some shards than on others.",
	"DisableTrig":      "The same statement would do other things on some shards than on others.",
	"EnableAlwaysTrig": "The same statement would do other things on some shards than on others.",
	"SetLogged":        "What a crash leaves of the table would be everything on some shards and nothing on others.",
	"SetUnLogged":      "What a crash leaves of the table would be everything on some shards and nothing on others.",
}

func reasonForAction(action facts.AlterAction) string {
	if action.Action == "AddConstraint" {
		switch action.Constraint {
		case "UNIQUE", "PRIMARY", "EXCLUSION":
			return onConflict
		case "FOREIGN":
			return "Deleting a row would be refused, or would delete others, on some shards and not on others."
		}
	}
	if strings.Contains(action.Action, "RowSecurity") {
		return "Who sees which rows must be the same on all shards."
	}
	if why := unlikeActions[action.Action]; why != "" {
		return why
	}
	return unproven
}

const unproven = "Some shards would have it and others not, and it is not known that every statement gives the same answer on both."

// unlikeKinds say why other statements cannot run on one shard after the other.
var unlikeKinds = map[facts.Kind]string{
	"CreateFunctionStmt": "A statement over several shards would get some of its answers from the old function and some from the new one, and the planner goes by the home shard's.",
	"AlterFunctionStmt":  "A statement over several shards would get some of its answers from the old function and some from the new one, and the planner goes by the home shard's.",
	"CreateTrigStmt":     "The same statement would do other things on some shards than on others.",
	"CreatePolicyStmt":   "Who sees which rows must be the same on all shards.",
	"AlterPolicyStmt":    "Who sees which rows must be the same on all shards.",
	"GrantStmt":          "Who may do what must be the same on all shards.",
	"GrantRoleStmt":      "Who may do what must be the same on all shards.",
	"AlterOwnerStmt":     "Who may do what must be the same on all shards.",
	"RenameStmt":         "Statements know it by one name, which only some shards would have.",
	"CreateStmt":         "A new table is declared on all shards at once.",
	"AlterEnumStmt":      "A value would be known on some shards and unknown on others.",
	"AlterTypeStmt":      "Values of the type would have two forms.",
	"AlterDomainStmt":    "Values of the domain would be right on some shards and wrong on others.",
	"TruncateStmt":       "It changes rows, not the schema.",
	"InsertStmt":         "It changes rows, not the schema.",
	"UpdateStmt":         "It changes rows, not the schema.",
	"DeleteStmt":         "It changes rows, not the schema.",
	"MergeStmt":          "It changes rows, not the schema.",
	"SelectStmt":         "It changes nothing, as far as one can tell.",
	"VacuumStmt":         "It changes nothing of the schema, and runs shard by shard as it is.",
	"TransactionStmt":    "Each shard applies the change in one transaction of its own.",
	"VariableSetStmt":    "Set parameters before the roll-out goes on.",
}

func reasonFor(a *facts.Alteration) string {
	if why := unlikeKinds[a.Kind]; why != "" {
		return why
	}
	if a.Kind == "DropStmt" {
		switch a.Type {
		case "TABLE":
			return "Statements on the table would work on some shards and fail on others."
		case "TRIGGER", "RULE":
			return "The same statement would do other things on some shards than on others."
		case "POLICY":
			return "Who sees which rows must be the same on all shards."
		}
	}
	return unproven
}
