package facts

import (
	"strings"

	pgquery "github.com/pganalyze/pg_query_go/v6"
)

// Alteration is what a statement does to a table or to something that belongs to one, in more detail than [Statement] has: for those
// who decide whether shards may make a change one after the other.
type Alteration struct {
	Kind Kind
	// Name is PostgreSQL's name of the kind of statement; Start and End are its bytes in the text, without the semicolon.
	Name       string
	Start, End int
	// Type is what it is about: TABLE, INDEX, STATISTICS, COLUMN …; Subject its name, or that of the table which a column or
	// constraint belongs to. Statements that make something name the table in Table, and the new thing in Subject.
	Type           string
	Subject, Table Name
	// Others are further things of that type that it names.
	Others []Name
	// Actions are those of ALTER TABLE and ALTER INDEX.
	Actions []AlterAction
	// Unique is about indexes; Concurrently: shards go on meanwhile; Conditional: IF EXISTS or IF NOT EXISTS; Cascade: what depends on it goes too.
	Unique, Concurrently, Conditional, Cascade bool
	// Options are those of REINDEX, in lower case.
	Options []string
}

// AlterAction is one action of ALTER TABLE.
type AlterAction struct {
	// Action is the grammar's name: AddColumn, SetRelOptions …; Name that of the column or constraint.
	Action, Name string
	// Constraint is what kind of constraint is added, in the grammar's word: CHECK, UNIQUE, FOREIGN …
	Constraint string
	// Options are the storage parameters that are set or reset, with their namespace if they have one, as in toast.autovacuum_enabled.
	Options              []string
	Conditional, Cascade bool
}

// Alterations reads the statements of a text as [Of] does, and fails as it does.
func Alterations(text string) ([]Alteration, error) {
	statements, err := Of(text)
	if err != nil {
		return nil, err
	}
	tree, err := pgquery.Parse(text)
	if err != nil {
		return nil, refusalOf(err)
	}
	read := make([]Alteration, len(statements))
	for i, raw := range tree.Stmts {
		s := &statements[i]
		read[i] = Alteration{Kind: s.Kind, Name: s.Name, Start: s.Start, End: s.End}
		read[i].read(raw.Stmt)
	}
	return read, nil
}

// read fills in what is particular about the kind; of kinds that it does not know there is no more to tell than the kind.
func (a *Alteration) read(node *pgquery.Node) {
	switch s := content(node).(type) {
	case *pgquery.IndexStmt:
		a.Type, a.Table = "INDEX", relationOf(s.Relation)
		a.Subject = Name{Name: s.Idxname}
		a.Unique, a.Concurrently, a.Conditional = s.Unique || s.Primary || len(s.ExcludeOpNames) > 0, s.Concurrent, s.IfNotExists
	case *pgquery.CreateStatsStmt:
		a.Type, a.Conditional = "STATISTICS", s.IfNotExists
		a.Subject.Schema, a.Subject.Name = qualified(s.Defnames)
		if len(s.Relations) == 1 {
			a.Table = relationOf(s.Relations[0].GetRangeVar())
		}
	case *pgquery.AlterStatsStmt:
		a.Type, a.Conditional = "STATISTICS", s.MissingOk
		a.Subject.Schema, a.Subject.Name = qualified(s.Defnames)
	case *pgquery.DropStmt:
		a.Type, a.Conditional, a.Concurrently = objectType(s.RemoveType), s.MissingOk, s.Concurrent
		a.Cascade = s.Behavior == pgquery.DropBehavior_DROP_CASCADE
		a.named(s.Objects...)
	case *pgquery.CommentStmt:
		a.Type = objectType(s.Objtype)
		a.commented(s)
	case *pgquery.ReindexStmt:
		a.Type, a.Subject = strings.TrimPrefix(s.Kind.String(), "REINDEX_OBJECT_"), relationOf(s.Relation)
		a.reindexed(s)
	case *pgquery.AlterTableStmt:
		a.Type, a.Subject, a.Conditional = objectType(s.Objtype), relationOf(s.Relation), s.MissingOk
		for _, command := range s.Cmds {
			if c := command.GetAlterTableCmd(); c != nil {
				a.Actions = append(a.Actions, actionOf(c))
			}
		}
	}
}

func relationOf(v *pgquery.RangeVar) Name { return Name{v.GetSchemaname(), v.GetRelname()} }

// named reads names that are lists of parts.
func (a *Alteration) named(objects ...*pgquery.Node) {
	for i, object := range objects {
		var name Name
		name.Schema, name.Name = qualified(object.GetList().GetItems())
		if i == 0 {
			a.Subject = name
			continue
		}
		a.Others = append(a.Others, name)
	}
}

// commented reads what COMMENT is about: of a column or constraint the table.
func (a *Alteration) commented(s *pgquery.CommentStmt) {
	parts := s.Object.GetList().GetItems()
	switch s.Objtype {
	case pgquery.ObjectType_OBJECT_COLUMN, pgquery.ObjectType_OBJECT_TABCONSTRAINT:
		parts = parts[:max(len(parts)-1, 0)]
	case pgquery.ObjectType_OBJECT_DOMCONSTRAINT: // is no table's
		return
	default: // it is the thing itself
	}
	a.Subject.Schema, a.Subject.Name = qualified(parts)
}

func (a *Alteration) reindexed(s *pgquery.ReindexStmt) {
	for _, node := range s.Params {
		option := node.GetDefElem()
		name := strings.ToLower(option.GetDefname())
		if name == "concurrently" {
			a.Concurrently = !isFalse(option.GetArg())
			continue
		}
		a.Options = append(a.Options, name)
	}
}

func actionOf(c *pgquery.AlterTableCmd) AlterAction {
	action := AlterAction{
		Action: strings.TrimPrefix(c.Subtype.String(), "AT_"), Name: c.Name, Conditional: c.MissingOk, Cascade: c.Behavior == pgquery.DropBehavior_DROP_CASCADE,
	}
	if constraint := c.GetDef().GetConstraint(); constraint != nil {
		action.Name, action.Constraint = constraint.Conname, strings.TrimPrefix(constraint.Contype.String(), "CONSTR_")
	}
	for _, node := range c.GetDef().GetList().GetItems() {
		if option := node.GetDefElem(); option != nil {
			name := strings.ToLower(option.Defname)
			if option.Defnamespace != "" {
				name = strings.ToLower(option.Defnamespace) + "." + name
			}
			action.Options = append(action.Options, name)
		}
	}
	return action
}
