package facts

import (
	"slices"
	"strconv"
	"strings"

	pgquery "github.com/pganalyze/pg_query_go/v6"
)

// Constraint is one that a statement adds to a table.
type Constraint struct {
	Kind ConstraintKind
	// Columns are those that it is about; none if they are expressions, or those of an index that is named.
	Columns []string
	// ByIndex: it becomes the constraint of a unique index that is there.
	ByIndex bool
	// Target is the table that a foreign key refers to, among Statement.Tables; -1 if there is none. TargetColumns are its
	// columns; none means its primary key.
	Target        int
	TargetColumns []string
}

// ConstraintKind is what a constraint asks for.
type ConstraintKind uint8

// The kinds of constraints.
const (
	// CheckKind asks something of one row.
	CheckKind ConstraintKind = iota
	// UniqueKind: no two rows are equal in the columns; ExclusionKind: or conflict in another way.
	UniqueKind
	ExclusionKind
	// ForeignKind: there is such a row in another table.
	ForeignKind
)

// AddedColumn is a column that ALTER TABLE adds.
type AddedColumn struct {
	Name string
	Type Type
	// Default: rows that are there get a value that is computed; Counted: its values come from a sequence.
	Default, Counted bool
}

// ofConstraint reads a constraint; column is the one that it stands behind, if any.
func (w *walker) ofConstraint(c *pgquery.Constraint, column string) {
	read := Constraint{Target: -1, Columns: texts(c.Keys), ByIndex: c.Indexname != ""}
	switch c.Contype {
	case pgquery.ConstrType_CONSTR_PRIMARY, pgquery.ConstrType_CONSTR_UNIQUE:
		read.Kind = UniqueKind
	case pgquery.ConstrType_CONSTR_EXCLUSION:
		read.Kind, read.Columns = ExclusionKind, equalColumns(c.Exclusions)
	case pgquery.ConstrType_CONSTR_FOREIGN:
		read.Kind, read.Columns, read.TargetColumns = ForeignKind, texts(c.FkAttrs), texts(c.PkAttrs)
		w.foreign = append(w.foreign, foreignKey{c.Pktable, len(w.out.Object.Constraints)})
	default:
		return
	}
	if column != "" {
		read.Columns = []string{column}
	}
	w.out.Object.Constraints = append(w.out.Object.Constraints, read)
}

// equalColumns are those columns that must be equal, as they are, for two rows to exclude each other.
func equalColumns(exclusions []*pgquery.Node) []string {
	var columns []string
	for _, node := range exclusions {
		parts := node.GetList().GetItems()
		if len(parts) != 2 {
			continue
		}
		element, operator := parts[0].GetIndexElem(), texts(parts[1].GetList().GetItems())
		isEqual := slices.Equal(operator, []string{"="}) || slices.Equal(operator, []string{"pg_catalog", "="})
		if isEqual && element.GetName() != "" && len(element.Collation)+len(element.Opclass) == 0 {
			columns = append(columns, element.Name)
		}
	}
	return columns
}

// foreignKey is a constraint whose table is to be found among those of the statement.
type foreignKey struct {
	table      *pgquery.RangeVar
	constraint int
}

// linkForeign finds the tables of foreign keys, once all tables are written down.
func (w *walker) linkForeign() {
	for _, f := range w.foreign {
		for i, t := range w.out.Tables {
			if t.Role == Referenced && t.Start == int(f.table.GetLocation()) && t.Name == f.table.GetRelname() {
				w.out.Object.Constraints[f.constraint].Target = i
			}
		}
	}
}

// alterCommand reads one action of ALTER TABLE.
func (w *walker) alterCommand(c *pgquery.AlterTableCmd) {
	o := &w.out.Object
	switch c.Subtype {
	case pgquery.AlterTableType_AT_AddColumn:
		if column := c.GetDef().GetColumnDef(); column != nil {
			w.columnDef(column)
		}
	case pgquery.AlterTableType_AT_AddConstraint:
		if constraint := c.GetDef().GetConstraint(); constraint != nil {
			w.ofConstraint(constraint, "")
		}
	case pgquery.AlterTableType_AT_DropColumn, pgquery.AlterTableType_AT_AlterColumnType, pgquery.AlterTableType_AT_SetExpression,
		pgquery.AlterTableType_AT_AddIdentity:
		o.Columns = append(o.Columns, c.Name)
	case pgquery.AlterTableType_AT_SetIdentity:
		w.counting(c.GetDef().GetList().GetItems())
	case pgquery.AlterTableType_AT_EnableTrig, pgquery.AlterTableType_AT_DisableTrig, pgquery.AlterTableType_AT_EnableAlwaysTrig,
		pgquery.AlterTableType_AT_EnableReplicaTrig:
		o.Triggers = append(o.Triggers, c.Name)
	default: // their names say enough
	}
}

// columnDef reads a column that is added, with its constraints.
func (w *walker) columnDef(c *pgquery.ColumnDef) {
	added := AddedColumn{Name: c.Colname, Type: typeOf(c.TypeName)}
	added.Counted = strings.Contains(added.Type.Name, "serial")
	for _, node := range c.Constraints {
		constraint := node.GetConstraint()
		switch constraint.GetContype() {
		case pgquery.ConstrType_CONSTR_DEFAULT:
			added.Default = operandOf(constraint.RawExpr).Kind == Expression
		case pgquery.ConstrType_CONSTR_GENERATED: // from the row itself, so it is the same on every shard
		case pgquery.ConstrType_CONSTR_IDENTITY:
			added.Counted = true
		default:
			w.ofConstraint(constraint, c.Colname)
		}
	}
	w.out.Object.Added = append(w.out.Object.Added, added)
}

// index reads CREATE INDEX.
func (w *walker) index(s *pgquery.IndexStmt) {
	w.out.Options.Concurrently = s.Concurrent
	w.out.Object.NewName = s.Idxname
	if !s.Unique {
		return
	}
	unique := Constraint{Kind: UniqueKind, Target: -1}
	for _, param := range s.IndexParams {
		if element := param.GetIndexElem(); element.GetName() != "" && comparesBytes(texts(element.Collation)) {
			unique.Columns = append(unique.Columns, element.Name)
		}
	}
	w.out.Object.Constraints = append(w.out.Object.Constraints, unique)
}

// comparesBytes says whether texts are equal under a collation only if they are the same, as far as its name tells; the column's own is known.
func comparesBytes(collation []string) bool {
	return len(collation) == 0 || slices.Contains([]string{"C", "POSIX", "ucs_basic", "default"}, collation[len(collation)-1])
}

// Load is what COPY FROM says of its data.
type Load struct {
	Columns []string
	Options []LoadOption
}

// LoadOption is an option of COPY: exactly one of Value, List, Star and Bare says what was given.
type LoadOption struct {
	Name, Value string
	List        []string
	Star, Bare  bool
}

// load reads the options of COPY.
func (w *walker) load(s *pgquery.CopyStmt) {
	w.out.Load = &Load{Columns: texts(s.Attlist)}
	for _, node := range s.Options {
		option := node.GetDefElem()
		w.out.ByLiteral = true
		w.out.Load.Options = append(w.out.Load.Options, loadOption(option))
	}
}

func loadOption(option *pgquery.DefElem) LoadOption {
	read := LoadOption{Name: strings.ToLower(option.GetDefname())}
	switch v := content(option.GetArg()).(type) {
	case nil:
		read.Bare = true
	case *pgquery.A_Star:
		read.Star = true
	case *pgquery.List:
		read.List = texts(v.Items)
	case *pgquery.Boolean:
		read.Value = strconv.FormatBool(v.Boolval)
	case *pgquery.Integer:
		read.Value = strconv.Itoa(int(v.Ival))
	case *pgquery.Float:
		read.Value = v.Fval
	case *pgquery.String:
		read.Value = v.Sval
	}
	return read
}

// password notes where a role's password is given.
func (w *walker) password(options []*pgquery.Node) {
	for _, node := range options {
		if option := node.GetDefElem(); option.GetDefname() == "password" && option.GetArg().GetString_() != nil {
			w.out.Object.PasswordAt = int(option.Location) + 1
			w.out.ByLiteral = true
		}
	}
}
