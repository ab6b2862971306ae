package plan

import (
	"slices"

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

// IsText says whether the column's type is one of the texts.
func (k *KeyPart) IsText() bool { return sameFamily(k.Type, key.Text) }

func (v *survey) keyspaceType(r *resolved, name string) key.Type {
	return r.table.Keyspace().KeyTypes()[slices.Index(r.table.KeyColumns(), name)]
}

// overridden says whether an operator may mean one of users' for values of PostgreSQL's own types. As long as the search path is not
// known, it may for texts: PostgreSQL has no operator for varchar of its own, so that any other fits better.
func (p *planner) overridden(operator string, of family) bool {
	return p.open.reach&openPath != 0 && of == texts ||
		slices.ContainsFunc(p.known.Functions[FunctionName{Name: operator, Kind: OfOperator}], func(f Function) bool { return f.Overrides })
}

// defaultKey refuses rows whose key is left to its default.
func (v *survey) defaultKey(r *resolved, column *Column) {
	if column.HasDefault {
		hint := "Give the key a value."
		if column.Sequence != "" || column.IdentityAlways {
			hint = "Give the key a value, or declare the table anew: a key column that is numbered then gets numbers that belong on the shard which stores the row."
		}
		v.out.refuse("insert-default-key", pgerr.New(pgerr.FeatureNotSupported, "a default value for key column %q of sharded table %s is not supported yet", column.Name, r.title()).
			WithDetail("The shard has to be known before the default is computed.").WithHint("%s", hint))
		return
	}
	v.out.refuse("insert-null-key", nullKey(r, column.Name))
}

func nullKey(r *resolved, column string) *pgerr.Error {
	return pgerr.New(pgerr.NotNullViolation, "null value in column \"%s\" of relation \"%s\" violates not-null constraint", column, r.relation.Name).
		OfColumn(r.relation.Schema, r.relation.Name, column)
}
