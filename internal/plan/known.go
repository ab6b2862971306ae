package plan

import "github.com/cleavedb/cleave/internal/sqltext"

// RelationName is the name of a table, view, sequence or index as a statement writes it. Schema is empty where the
// search path decides.
type RelationName struct{ Schema, Name string }

// Quoted is the name as SQL writes it; that of a temporary relation has no schema.
func (n RelationName) Quoted() string {
	if n.Schema == "" {
		return sqltext.QuoteIdentifier(n.Name)
	}
	return sqltext.QuoteIdentifier(n.Schema) + "." + sqltext.QuoteIdentifier(n.Name)
}

// FunctionName is the name, as a statement writes it, of a function or procedure, or of something that runs functions. Schema
// is empty where the search path decides.
type FunctionName struct {
	Schema, Name string
	// Kind is what has that name.
	Kind NameKind
}

// NameKind is what has a name behind which there are functions.
type NameKind uint8

// The kinds of names.
const (
	// OfFunction: a function, procedure or aggregate.
	OfFunction NameKind = iota
	// OfOperator: an operator, which is computed by a function.
	OfOperator
	// OfType: a type. Its values are read by an input function, a domain's are checked, casts from and to it are computed.
	OfType
)

// Known is what the catalogue says of the names in a text. It is never changed after it was made.
type Known struct {
	// Relations by the name that a statement uses; nil for a name that nothing has. A name without schema is resolved as
	// PostgreSQL does it: pg_catalog first unless the search path places it elsewhere, then the path in order. Temporary
	// relations are not looked for: they are the session's, see [Context].
	Relations map[RelationName]*Relation
	// Functions by the name that a statement uses, every overload of every schema that the search path reaches; none for a
	// name that nothing has, and with them the users' functions that a call of one runs besides: defaults of its arguments, casts
	// and checks of users' types that it takes or returns. For an operator they are the functions that compute it, of which PostgreSQL's own are shown by
	// one; for a type, its input function and all others that a cast from or to it may run, also for its parts.
	Functions map[FunctionName][]Function
}

// Relation is what has a place in pg_class.
type Relation struct {
	// Schema and Name are those of the catalogue, whatever the statement called it.
	Schema, Name string
	// Kind is pg_class.relkind: r table, p partitioned table, v view, m materialised view, f foreign table, S sequence, i
	// and I index, t TOAST table, c composite type.
	Kind byte
	// Temporary: it belongs to one session.
	Temporary bool
	// System: it is in pg_catalog, information_schema or pg_toast.
	System bool
	// Columns in order, without dropped ones and without system columns.
	Columns []Column
	// PartitionOf is the table that it is a partition of, at any level; nil if it is none.
	PartitionOf *RelationName
	// Inherits: it has parents or children in an inheritance tree, not as a partition.
	Inherits bool
	// ReachesDeclared: it is not declared itself, but whoever uses it reads or writes a sharded or reference table by it: a
	// view, a rule, a parent or a child in an inheritance tree, a parent of partitions, an index of such a table.
	ReachesDeclared bool
	// Reaches is one of the tables that it reaches, schema.name, for messages.
	Reaches string
	// Serves are the tables that own it or have it in a default, if it is a sequence, and the one that it is of, if it is an index.
	Serves []RelationName
	// WritesRun is what runs when its rows are written and may reach a sharded or reference table, for messages: a function
	// that a trigger, a default, a constraint or a domain calls, or a table that a foreign key changes too. Reading it runs
	// nothing of that. It is pg_catalog.pg_settings if writing to it sets parameters. Empty if nothing does.
	WritesRun string
	// ReadsRun is a function that runs when rows of a declared table are read, in a policy, and may reach sharded tables. Empty if none does.
	ReadsRun string
	// RowSecurity: policies say which of its rows a role sees.
	RowSecurity bool
	// ColumnRights: somebody has rights to single columns of it.
	ColumnRights bool
	// View is what a view shows; nil if it is none, or PostgreSQL's own.
	View *View
	// VaryingTrigger is a function that a trigger of users' runs, and that need not do the same everywhere; empty if there is none.
	VaryingTrigger string
	// RunsUnseen: a function runs when it is read or written of which nobody can tell what it uses, whatever the map says of tables.
	RunsUnseen bool
	// HasRules: it has rewrite rules, other than the one that makes a view a view. HasTriggers: it has triggers of users'.
	HasRules, HasTriggers bool
}

// View is what a view of users' shows.
type View struct {
	// SQL is its query, as PostgreSQL writes it for who has no other schema than pg_catalog in the search path. Its columns have the view's names.
	SQL string
	// Owner is the role by whose rights its query runs, unless Invoker: by those of who reads it.
	Owner   string
	Invoker bool
	// Everywhere: every shard has it, because every shard has all tables that it reads.
	Everywhere bool
}

// Column is one column of a relation.
type Column struct {
	Name string
	// TypeOID and TypeMod are pg_attribute's; TypeMod is -1 for none.
	TypeOID uint32
	TypeMod int32
	// NotNull: NULL is refused. HasDefault: what is missing becomes something else than NULL. Generated: it is computed
	// from other columns. IdentityAlways: GENERATED ALWAYS AS IDENTITY.
	NotNull, HasDefault, Generated, IdentityAlways bool
	// DefaultVaries: its default is not the same everywhere and always.
	DefaultVaries bool
	// Fixed is its default as a text, if that is a constant which everybody reads in the same way; nil for any other.
	Fixed *string
	// Sequence is the one whose next number is its default, as SQL writes it; empty if its default is anything else, or no other value is taken.
	Sequence string
	// Timed is its default, if that is computed from the current time, as SQL for who has no other schema than pg_catalog in the search path; empty
	// for any other.
	Timed string
	// RandomUUID: its default is a random UUID.
	RandomUUID bool
	// Counts: its default may take a number from a sequence.
	Counts bool
	// Nondeterministic: texts that differ can be equal under its collation.
	Nondeterministic bool
}

// Function is one overload of a function, procedure or aggregate.
type Function struct {
	Schema, Name string
	// System: it is in pg_catalog and PostgreSQL brought it.
	System bool
	// Kind is pg_proc.prokind: f function, p procedure, a aggregate, w window function; 0 counts as f.
	Kind byte
	// Language is its language's name: internal, c, sql, plpgsql …
	Language string
	// Volatility is pg_proc.provolatile: i immutable, s stable, v volatile.
	Volatility byte
	// ExtensionMember: an extension brought it.
	ExtensionMember bool
	// ShardLocal: it was declared to use only rows of the shard that it runs on.
	ShardLocal bool
	// TakesOwn: an argument of its is of a domain, or a row.
	TakesOwn bool
	// Overrides: it computes an operator that is not PostgreSQL's own but takes one of PostgreSQL's types, so that it may be
	// chosen where one of PostgreSQL's was meant.
	Overrides bool
}
