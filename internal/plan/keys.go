package plan

import (
	"slices"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/placement/key"
)

func (r *Relation) column(name string) *Column {
	for i := range r.Columns {
		if r.Columns[i].Name == name {
			return &r.Columns[i]
		}
	}
	return nil
}

// bind finds where the key of the only sharded table comes from. What makes it right to run the statement on that key's shard
// alone: the table is named once, so every row of the result, every group and every row that is written is made of rows with
// that key and of reference tables, and that shard has all of both.
func (v *survey) bind(r *resolved, index int) {
	if r.relation == nil {
		v.out.refuse("not-known-yet", pgerr.New(pgerr.FeatureNotSupported, "sharded table %s is not known yet", r.title()).
			WithDetail("It was declared a moment ago, or it is missing on the home shard.").WithHint("Try again."))
		return
	}
	if r.relation.HasRules {
		v.out.refuse("rules", pgerr.New(pgerr.FeatureNotSupported, "rules on a sharded table are not supported").
			WithDetail("%s has rewrite rules.", r.title()).WithHint("Drop them, or use triggers."))
		return
	}
	if column := v.assignedKey(r); column != "" {
		v.out.refuse("assigns-key", pgerr.New(pgerr.FeatureNotSupported, "changing key column %q of sharded table %s is not supported yet", column, r.title()).
			WithDetail("A row with another key may belong on another shard.").WithHint("Delete the row and insert it again."))
		return
	}
	route := Route{Level: Keyed, Keyspace: r.table.Keyspace().Name(), Table: r.title(), Why: "key of " + r.title()}
	var inserted bool
	if inserted = v.s.Query.Command == facts.Insert; inserted && !v.insertable(r) {
		return
	}
	for _, name := range r.table.KeyColumns() {
		part, ok := v.keyPart(r, name)
		if !ok {
			return
		}
		if inserted {
			part.Store = true
			ok = v.insertedKey(r, &part)
		} else {
			ok = v.comparedKey(r, index, &part)
		}
		if !ok {
			return
		}
		route.Key = append(route.Key, part)
	}
	v.out.Route = route
}

// assignedKey returns a key column that the statement sets; empty if it sets none.
func (v *survey) assignedKey(r *resolved) string {
	if r.Role != facts.Target {
		return ""
	}
	for _, column := range r.table.KeyColumns() {
		if slices.Contains(v.s.Query.Assigned, column) {
			return column
		}
	}
	return ""
}

// keyPart says what a key column is.
func (v *survey) keyPart(r *resolved, name string) (KeyPart, bool) {
	column := r.relation.column(name)
	if column == nil {
		v.out.refuse("key-column-missing", pgerr.New(pgerr.FeatureNotSupported, "key column %q of sharded table %s does not exist", name, r.title()).
			WithDetail("The table was changed after it was declared."))
		return KeyPart{}, false
	}
	part, known := r.relation.KeyPart(name)
	if !known || !sameFamily(part.Type, v.keyspaceType(r, name)) {
		v.out.refuse("key-column-type", pgerr.New(pgerr.FeatureNotSupported, "key column %q of sharded table %s has a type or collation that cannot be a key", name, r.title()).
			WithDetail("The table was changed after it was declared."))
		return KeyPart{}, false
	}
	return part, true
}

// KeyPart says what a column is as a part of a key; false if there is no such column, or it cannot be in a key.
func (r *Relation) KeyPart(name string) (KeyPart, bool) {
	if r == nil {
		return KeyPart{}, false
	}
	column := r.column(name)
	if column == nil || column.Nondeterministic || column.Generated {
		return KeyPart{}, false
	}
	t, known := keyTypes[column.TypeOID]
	return KeyPart{Column: name, Type: t, TypeMod: column.TypeMod}, known
}

// IsInteger says whether the column's type is one of the integers.
func (k *KeyPart) IsInteger() bool { return sameFamily(k.Type, key.Bigint) }

func (v *survey) keyspaceType(r *resolved, name string) key.Type {
	return r.table.Keyspace().KeyTypes()[slices.Index(r.table.KeyColumns(), name)]
}

// sameFamily says whether equal values of two types have the same hash.
func sameFamily(a, b key.Type) bool {
	family := func(t key.Type) key.Type {
		switch t {
		case key.Integer, key.Smallint:
			return key.Bigint
		case key.Varchar:
			return key.Text
		default:
			return t
		}
	}
	return family(a) == family(b)
}

// comparedKey finds an equality that every row of the table must meet.
func (v *survey) comparedKey(r *resolved, index int, part *KeyPart) bool {
	if r.ColumnAliases {
		v.out.refuse("column-aliases", pgerr.New(pgerr.FeatureNotSupported, "other names for the columns of a sharded table are not supported yet").
			WithDetail("%s has a list of column names behind its alias.", r.title()))
		return false
	}
	overridden := false
	for _, c := range v.s.Query.Conditions {
		if !slices.Contains(c.Tables, index) || !c.Builtin && !v.p.trustsBuiltins() || !v.means(c.Column, r, part.Column) {
			continue
		}
		if !c.Builtin && v.p.equalityOverridden(part) {
			overridden = true
			continue
		}
		if part.Operand = v.p.operand(c.Value); part.Operand.Kind != Unknowable {
			return true
		}
	}
	switch {
	case overridden && v.p.open.reach&openPath != 0:
		v.out.refuse("unsettled-names", v.p.open.refusal(v.s))
		return false
	case overridden:
		v.out.refuse("equality-overridden", pgerr.New(pgerr.FeatureNotSupported, "operator = of PostgreSQL is not the only one for key column %q of sharded table %s", part.Column, r.title()).
			WithDetail("A schema of the search path has an operator = of its own that may be meant, and what it holds for equal may be on several shards.").
			WithHint("Write %s OPERATOR(pg_catalog.=) …, or take that schema out of the search path.", part.Column))
		return false
	}
	v.out.refuse("key-not-bound", pgerr.New(pgerr.FeatureNotSupported, "a statement over several shards is not supported yet").
		WithDetail("Key column %q of sharded table %s is not bound to one value.", part.Column, r.title()).
		WithHint("Add %s = … to the WHERE clause, with a literal or a parameter, joined by AND.", part.Column))
	return false
}

// equalityOverridden says whether = may mean an operator of users' for values of PostgreSQL's own types. As long as the search
// path is not known, it may for texts: PostgreSQL has no operator for varchar of its own, so that any other fits better.
func (p *planner) equalityOverridden(part *KeyPart) bool {
	return p.open.reach&openPath != 0 && sameFamily(part.Type, key.Text) ||
		slices.ContainsFunc(p.known.Functions[FunctionName{Name: "=", Kind: OfOperator}], func(f Function) bool { return f.Overrides })
}

// means says whether a column as it is written is that column of that table. Without a qualifier it is, since the table has one
// of that name: had another relation of the same query one too, PostgreSQL would call it ambiguous, on every shard. Only columns
// that USING or NATURAL merges can be two tables' at once.
func (v *survey) means(written []string, r *resolved, column string) bool {
	if written[len(written)-1] != column {
		return false
	}
	switch len(written) {
	case 1:
		return !v.s.Query.Natural && !slices.Contains(v.s.Query.Merged, column)
	case 2:
		return written[0] == r.visibleName()
	case 3:
		return r.Alias == "" && written[0] == r.relation.Schema && written[1] == r.relation.Name
	default:
		return false
	}
}

// insertable says whether an INSERT has the form in which keys can be found.
func (v *survey) insertable(r *resolved) bool {
	inserted := &v.s.Query.Inserted
	switch {
	case inserted.Defaults || inserted.Rows == 1 && !inserted.Parts:
		return true
	case inserted.Rows > 1:
		v.out.refuse("insert-rows", pgerr.New(pgerr.FeatureNotSupported, "INSERT of several rows into a sharded table is not supported yet").
			WithDetail("Rows of %s may belong on several shards.", r.title()).WithHint("Insert them one by one."))
	case inserted.Parts:
		v.out.refuse("insert-parts", pgerr.New(pgerr.FeatureNotSupported, "INSERT into parts of columns of a sharded table is not supported yet"))
	default:
		v.out.refuse("insert-select", pgerr.New(pgerr.FeatureNotSupported, "INSERT … SELECT into a sharded table is not supported yet").
			WithDetail("Rows of %s may belong on several shards.", r.title()).WithHint("Insert rows one by one, with VALUES."))
	}
	return false
}

// insertedKey finds the value that is stored in a key column.
func (v *survey) insertedKey(r *resolved, part *KeyPart) bool {
	value, given := v.insertedValue(r, part.Column)
	if given {
		part.Operand = v.p.operand(value)
	}
	column := r.relation.column(part.Column)
	switch {
	case !given || part.Operand.Kind == IsDefault:
		return v.defaultKey(r, column)
	case part.Operand.Kind == IsNull:
		v.out.refuse("insert-null-key", nullKey(r, column.Name))
		return false
	case part.Operand.Kind == Unknowable:
		v.out.refuse("insert-computed-key", pgerr.New(pgerr.FeatureNotSupported, "a computed value for key column %q of sharded table %s is not supported yet", column.Name, r.title()).
			WithDetail("Only PostgreSQL can tell its value, and the shard has to be known before.").WithHint("Use a literal or a parameter."))
		return false
	}
	return true
}

// insertedValue returns what the only row has for a column.
func (v *survey) insertedValue(r *resolved, column string) (facts.Operand, bool) {
	inserted := &v.s.Query.Inserted
	place := slices.Index(inserted.Columns, column)
	if len(inserted.Columns) == 0 {
		place = slices.IndexFunc(r.relation.Columns, func(c Column) bool { return c.Name == column })
	}
	if place < 0 || place >= len(inserted.Values) {
		return facts.Operand{}, false
	}
	return inserted.Values[place], true
}

func (v *survey) defaultKey(r *resolved, column *Column) bool {
	if column.HasDefault {
		v.out.refuse("insert-default-key", pgerr.New(pgerr.FeatureNotSupported, "a default value for key column %q of sharded table %s is not supported yet", column.Name, r.title()).
			WithDetail("The shard has to be known before the default is computed.").WithHint("Give the key a value."))
		return false
	}
	v.out.refuse("insert-null-key", nullKey(r, column.Name))
	return false
}

func nullKey(r *resolved, column string) *pgerr.Error {
	return pgerr.New(pgerr.NotNullViolation, "null value in column %q of relation %q violates not-null constraint", column, r.relation.Name)
}
