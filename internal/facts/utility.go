package facts

import (
	"strings"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

// The bits in DECLARE's options.
const (
	cursorBinary   = 0x01
	cursorScroll   = 0x02
	cursorNoScroll = 0x04
	cursorHold     = 0x20
)

// directions are those of the grammar.
var directions = map[pgquery.FetchDirection]Direction{
	pgquery.FetchDirection_FETCH_FORWARD: Forward, pgquery.FetchDirection_FETCH_BACKWARD: Backward,
	pgquery.FetchDirection_FETCH_ABSOLUTE: Absolute, pgquery.FetchDirection_FETCH_RELATIVE: Relative,
}

// utility reads what is particular about a statement that is no query. All that is the same for every kind, which relations
// and functions it names, is seen by the walk that follows.
func (w *walker) utility(message proto.Message) {
	o := &w.out.Options
	switch s := message.(type) {
	case *pgquery.ExplainStmt:
		w.explain(s)
	case *pgquery.DeclareCursorStmt:
		is := func(option int32) bool { return s.Options&option != 0 }
		w.out.Cursor = Cursor{Name: s.Portalname, Hold: is(cursorHold), Scroll: is(cursorScroll), NoScroll: is(cursorNoScroll), Binary: is(cursorBinary)}
		w.inner(s.Query)
	case *pgquery.CopyStmt:
		o.Client, o.From = s.Filename == "" && !s.IsProgram, s.IsFrom
		w.load(s)
		if s.Query != nil {
			w.inner(s.Query)
		}
	case *pgquery.CreateTableAsStmt:
		o.NoData = s.Into.GetSkipData()
		w.inner(s.Query)
	case *pgquery.RefreshMatViewStmt:
		o.NoData = s.SkipData
	case *pgquery.ViewStmt:
		o.Replace = s.Replace
		w.created(s.View)
		w.inner(s.Query)
	case *pgquery.FetchStmt:
		w.out.Cursor = Cursor{Name: s.Portalname, Move: s.Ismove, Direction: directions[s.Direction], Count: s.HowMany}
	case *pgquery.ClosePortalStmt:
		w.out.Cursor = Cursor{Name: s.Portalname, All: s.Portalname == ""}
	case *pgquery.TransactionStmt:
		w.transaction(s)
	case *pgquery.VariableSetStmt:
		w.set(s)
	case *pgquery.VariableShowStmt:
		w.out.Settings = []Setting{{Name: strings.ToLower(s.Name)}}
	case *pgquery.DiscardStmt:
		o.Discard = strings.TrimPrefix(s.Target.String(), "DISCARD_")
	case *pgquery.PrepareStmt:
		w.skipped[s.Query] = true
		w.prepare(s)
		w.out.Prepared.Schemas = w.statement(s.Query).schemas()
	case *pgquery.ExecuteStmt:
		w.execute(s)
	case *pgquery.DeallocateStmt:
		w.deallocate(s)
	case *pgquery.VacuumStmt:
		o.Vacuum = s.IsVacuumcmd
	case *pgquery.TruncateStmt:
		o.Cascade = s.Behavior == pgquery.DropBehavior_DROP_CASCADE
	case *pgquery.ConstraintsSetStmt: // names of constraints, not of tables
		w.out.Transaction.Deferred = s.Deferred
		for _, name := range s.Constraints {
			w.skipped[name] = true
			v := name.GetRangeVar()
			w.out.Transaction.Constraints = append(w.out.Transaction.Constraints, Name{v.GetSchemaname(), v.GetRelname()})
			w.out.Transaction.CrossDatabase = w.out.Transaction.CrossDatabase || v.GetCatalogname() != ""
		}
	default:
		w.definition(message)
	}
}

// inner reads the statement inside of this one.
func (w *walker) inner(node *pgquery.Node) {
	w.skipped[node] = true
	w.out.Inner = w.statement(node)
}

func (w *walker) explain(s *pgquery.ExplainStmt) {
	for _, option := range s.Options {
		switch o := option.GetDefElem(); o.GetDefname() {
		case "analyze":
			w.out.Options.Runs = !isFalse(o.Arg)
			w.out.ByLiteral = w.out.ByLiteral || o.Arg != nil
		case "format":
			w.out.Options.Format = strings.ToLower(o.GetArg().GetString_().GetSval())
			w.out.ByLiteral = true
		}
	}
	w.inner(s.Query)
}

// isFalse says whether an option's argument surely means no.
func isFalse(arg *pgquery.Node) bool {
	switch v := content(arg).(type) {
	case *pgquery.String:
		word := strings.ToLower(v.Sval)
		return word == "false" || word == "off"
	case *pgquery.Boolean:
		return !v.Boolval
	case *pgquery.Integer:
		return v.Ival == 0
	}
	return false
}

// keptSettings reads what a definition has servers set later: when a role logs in, or while a function runs.
func (w *walker) keptSettings(message proto.Message) {
	switch s := message.(type) {
	case *pgquery.AlterRoleSetStmt:
		w.set(s.Setstmt)
	case *pgquery.AlterDatabaseSetStmt:
		w.set(s.Setstmt)
	case *pgquery.AlterSystemStmt:
		w.set(s.Setstmt)
	case *pgquery.CreateFunctionStmt:
		w.setWhileRunning(s.Options)
	case *pgquery.AlterFunctionStmt:
		w.setWhileRunning(s.Actions)
	}
}

// setWhileRunning reads the settings among the options of a function.
func (w *walker) setWhileRunning(options []*pgquery.Node) {
	var all []Setting
	for _, option := range options {
		if set := option.GetDefElem().GetArg().GetVariableSetStmt(); set != nil {
			w.set(set)
			all = append(all, w.out.Settings...)
		}
	}
	w.out.Settings = all
}

// definition reads statements that make, change or drop something.
func (w *walker) definition(message proto.Message) {
	w.keptSettings(message)
	o := &w.out.Options
	switch s := message.(type) {
	case *pgquery.CreateStmt:
		w.createTable(s)
		o.Bounds, o.Elements, o.IfNotExists = s.Partbound != nil, len(s.TableElts)+len(s.Constraints) > 0, s.IfNotExists
	case *pgquery.CreateForeignTableStmt:
		w.createTable(s.BaseStmt)
	case *pgquery.CreateSeqStmt:
		w.created(s.Sequence)
		w.ownedBy(s.Options)
	case *pgquery.AlterSeqStmt:
		w.ownedBy(s.Options)
		w.counting(s.Options)
	case *pgquery.CompositeTypeStmt:
		w.created(s.Typevar)
	case *pgquery.IndexStmt:
		w.index(s)
	case *pgquery.ReindexStmt:
		w.reindex(s)
	case *pgquery.AlterTableStmt:
		w.alterTable(s)
	case *pgquery.DropStmt:
		o.Cascade, o.Concurrently = s.Behavior == pgquery.DropBehavior_DROP_CASCADE, s.Concurrent
		w.objects(s.RemoveType, s.Objects...)
	case *pgquery.CommentStmt:
		w.objects(s.Objtype, s.Object)
	case *pgquery.SecLabelStmt:
		w.objects(s.Objtype, s.Object)
	case *pgquery.RenameStmt:
		w.rename(s)
	case *pgquery.AlterObjectSchemaStmt:
		w.objects(s.ObjectType, s.Object)
		w.name("", s.Newschema)
	case *pgquery.AlterOwnerStmt:
		w.objects(s.ObjectType, s.Object)
	case *pgquery.AlterObjectDependsStmt:
		w.objects(s.ObjectType, s.Object)
	case *pgquery.AlterExtensionContentsStmt:
		w.objects(s.Objtype, s.Object)
	case *pgquery.GrantStmt:
		w.grant(s)
	default:
		w.named(message)
	}
}

// named reads the names of things that are no relations.
func (w *walker) named(message proto.Message) {
	o := &w.out.Options
	switch s := message.(type) {
	case *pgquery.CreateSchemaStmt:
		o.Elements = len(s.SchemaElts) > 0
		w.out.Object.Type = "SCHEMA"
		w.name("", s.Schemaname)
	case *pgquery.CreateFunctionStmt:
		w.out.Object.Type = "FUNCTION"
		w.name(qualified(s.Funcname))
	case *pgquery.DefineStmt:
		w.out.Object.Type = objectType(s.Kind)
		w.name(qualified(s.Defnames))
	case *pgquery.CreateEnumStmt:
		w.name(qualified(s.TypeName))
	case *pgquery.CreateRangeStmt:
		w.name(qualified(s.TypeName))
	case *pgquery.CreateDomainStmt:
		w.name(qualified(s.Domainname))
	case *pgquery.AlterDomainStmt:
		o.Cascade = s.Behavior == pgquery.DropBehavior_DROP_CASCADE
		w.name(qualified(s.TypeName))
	case *pgquery.AlterEnumStmt:
		w.name(qualified(s.TypeName))
	case *pgquery.AlterTypeStmt:
		w.name(qualified(s.TypeName))
	case *pgquery.AlterFunctionStmt:
		w.name(qualified(s.GetFunc().GetObjname()))
	case *pgquery.CreateRoleStmt:
		w.password(s.Options)
	case *pgquery.AlterRoleStmt:
		w.password(s.Options)
	case *pgquery.CreateStatsStmt:
		w.name(qualified(s.Defnames))
	case *pgquery.CreateTrigStmt:
		w.out.Object.Triggers = []string{s.Trigname}
	case *pgquery.CreatePublicationStmt:
		o.AllTables = s.ForAllTables || wholeSchemas(s.Pubobjects)
	case *pgquery.AlterPublicationStmt:
		o.AllTables = s.ForAllTables || wholeSchemas(s.Pubobjects)
	}
}

func wholeSchemas(objects []*pgquery.Node) bool {
	for _, object := range objects {
		if object.GetPublicationObjSpec().GetPubtable() == nil {
			return true
		}
	}
	return false
}

// name writes down a name of something that is no relation.
func (w *walker) name(schema, name string) {
	w.out.Object.Names = append(w.out.Object.Names, Name{schema, name})
}

func (w *walker) createTable(s *pgquery.CreateStmt) {
	w.created(s.Relation)
	for _, parent := range s.InhRelations {
		if v := parent.GetRangeVar(); v != nil {
			w.roles[v] = Parent
		}
	}
}

func (w *walker) alterTable(s *pgquery.AlterTableStmt) {
	o := &w.out.Options
	w.out.Object.Type = objectType(s.Objtype)
	for _, node := range s.Cmds {
		command := node.GetAlterTableCmd()
		o.Concurrently = o.Concurrently || command.GetDef().GetPartitionCmd().GetConcurrent()
		o.Cascade = o.Cascade || command.GetBehavior() == pgquery.DropBehavior_DROP_CASCADE
		w.out.Object.Actions = append(w.out.Object.Actions, strings.TrimPrefix(command.GetSubtype().String(), "AT_"))
		if command != nil {
			w.alterCommand(command)
		}
	}
}

// ownedBy reads the table out of OWNED BY table.column.
func (w *walker) ownedBy(options []*pgquery.Node) {
	for _, option := range options {
		if o := option.GetDefElem(); o.GetDefname() == "owned_by" {
			w.subject(withoutLast(texts(o.Arg.GetList().GetItems())))
		}
	}
}

// counting reads which options of a sequence are changed.
func (w *walker) counting(options []*pgquery.Node) {
	for _, option := range options {
		if o := option.GetDefElem(); o != nil {
			w.out.Object.Counting = append(w.out.Object.Counting, strings.ToLower(o.Defname))
		}
	}
}

func (w *walker) reindex(s *pgquery.ReindexStmt) {
	w.out.Object.Type = strings.TrimPrefix(s.Kind.String(), "REINDEX_OBJECT_")
	if s.Relation == nil {
		w.name("", s.Name)
	}
	for _, option := range s.Params {
		w.out.Options.Concurrently = w.out.Options.Concurrently || option.GetDefElem().GetDefname() == "concurrently"
	}
}

func (w *walker) rename(s *pgquery.RenameStmt) {
	w.out.Options.Cascade = s.Behavior == pgquery.DropBehavior_DROP_CASCADE
	w.objects(s.RenameType, s.Object)
	w.out.Object.NewName = s.Newname
	if s.RenameType == pgquery.ObjectType_OBJECT_COLUMN {
		w.out.Object.Columns = []string{s.Subname}
	}
	if s.RenameType == pgquery.ObjectType_OBJECT_TRIGGER {
		w.out.Object.Triggers = []string{s.Subname, s.Newname}
	}
	if s.RenameType == pgquery.ObjectType_OBJECT_SCHEMA {
		w.name("", s.Subname)
		w.name("", s.Newname)
	}
}

func (w *walker) grant(s *pgquery.GrantStmt) {
	w.out.Options.Cascade = s.Behavior == pgquery.DropBehavior_DROP_CASCADE
	w.out.Object.Type = objectType(s.Objtype)
	if s.Targtype == pgquery.GrantTargetType_ACL_TARGET_ALL_IN_SCHEMA {
		w.out.Object.Type = allInSchema
	}
	for _, object := range s.Objects {
		switch o := content(object).(type) {
		case *pgquery.String:
			w.name("", o.Sval)
		case *pgquery.ObjectWithArgs:
			w.name(qualified(o.Objname))
		}
	}
}

// allInSchema is the type of object of GRANT … ON ALL … IN SCHEMA.
const allInSchema = "ALL IN SCHEMA"

// objects reads names in the forms that DROP, COMMENT, ALTER … OWNER and others give them.
func (w *walker) objects(kind pgquery.ObjectType, objects ...*pgquery.Node) {
	w.out.Object.Type = objectType(kind)
	for _, object := range objects {
		switch o := content(object).(type) {
		case *pgquery.List:
			w.listed(kind, texts(o.Items))
		case *pgquery.String:
			w.name("", o.Sval)
		case *pgquery.TypeName:
			w.name(qualified(o.Names))
		case *pgquery.ObjectWithArgs:
			w.name(qualified(o.Objname))
		}
	}
}

// listed reads a name that is a list of parts.
func (w *walker) listed(kind pgquery.ObjectType, parts []string) {
	switch kind {
	case pgquery.ObjectType_OBJECT_TABLE, pgquery.ObjectType_OBJECT_VIEW, pgquery.ObjectType_OBJECT_MATVIEW,
		pgquery.ObjectType_OBJECT_INDEX, pgquery.ObjectType_OBJECT_SEQUENCE, pgquery.ObjectType_OBJECT_FOREIGN_TABLE:
		w.subject(parts)
	case pgquery.ObjectType_OBJECT_COLUMN, pgquery.ObjectType_OBJECT_TRIGGER, pgquery.ObjectType_OBJECT_RULE,
		pgquery.ObjectType_OBJECT_POLICY, pgquery.ObjectType_OBJECT_TABCONSTRAINT:
		w.subject(withoutLast(parts))
		if kind == pgquery.ObjectType_OBJECT_TRIGGER {
			w.out.Object.Triggers = append(w.out.Object.Triggers, parts[len(parts)-1])
		}
	default:
		if len(parts) > 0 {
			w.name(strings.Join(withoutLast(parts), "."), parts[len(parts)-1])
		}
	}
}

// subject writes down a relation of which only the parts of the name are known.
func (w *walker) subject(parts []string) {
	t := Table{Role: Subject}
	switch len(parts) {
	case 0:
		return
	case 1:
		t.Name = parts[0]
	case 2:
		t.Schema, t.Name = parts[0], parts[1]
	default:
		t.Catalog, t.Schema, t.Name = parts[len(parts)-3], parts[len(parts)-2], parts[len(parts)-1]
	}
	w.out.Tables = append(w.out.Tables, t)
}

func withoutLast(parts []string) []string {
	if len(parts) == 0 {
		return nil
	}
	return parts[:len(parts)-1]
}
