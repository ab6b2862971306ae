package facts

// Block is one query: SELECT, VALUES, a set operation, INSERT, UPDATE, DELETE or MERGE. Every query in a statement is a block,
// and every block hangs on the one that it stands in, so that the outermost one leads to all.
type Block struct {
	Command Command
	// Returns: it has rows as its result.
	Returns bool
	// With are its common table expressions, in order.
	With []*Common

	// Operation joins Arms, of which there are two then; all that follows to Queries is empty but Sorted, Limited and Locks.
	Operation SetOperation
	Arms      []*Block
	// From are the items of FROM or, in DELETE, of USING.
	From []*Source
	// Where is what must be true of rows that count.
	Where Condition
	// Output are the columns of the result, for INSERT, UPDATE, DELETE and MERGE those of RETURNING.
	Output []Output
	// Rows are those of VALUES. Spread: a value stands for several, as (row).* does.
	Rows   [][]Operand
	Spread bool
	// Grouped: GROUP BY, whose terms are GroupBy unless GroupingSets, which ROLLUP and CUBE are too.
	Grouped, GroupingSets bool
	GroupBy               []Term
	Having                bool
	// Distinct: DISTINCT or DISTINCT ON, the latter if there are terms.
	Distinct   bool
	DistinctOn []Term
	// Sorted: ORDER BY; Limited: LIMIT, OFFSET or FETCH, unless that is NULL or ALL, which leaves out no row; Locks: FOR UPDATE and its like.
	Sorted, Limited, Locks bool
	// AtMost is how many rows there are at most, an expression if WITH TIES lets in more; nil if any number. Skips is how many of them OFFSET
	// leaves out; nil if none.
	AtMost, Skips *Operand
	// Windows are the terms of PARTITION BY for each call over a window; none for one without, or whose window is not to be found.
	Windows [][]Term

	// Calls are the indexes in Statement.Calls of those that stand in this block and in no other one inside of it.
	Calls []int
	// Queries are those in expressions that can see all of From and the target. Returned are those in RETURNING.
	Queries, Returned []*Block

	// Target is the table that is written.
	Target *Source
	// Assigned are the columns that UPDATE or ON CONFLICT DO UPDATE sets.
	Assigned []Assignment
	// Columns is the list of columns of an INSERT; none if there is none. Parts: columns and values do not stand for each other
	// one by one, as with a[1].
	Columns []string
	Parts   bool
	// Inserted is the query whose rows are inserted; nil for DEFAULT VALUES. ValuesAt is, if that is VALUES, which of the words
	// VALUES of the whole text begins it, from 0; -1 if it could not be found.
	Inserted *Block
	ValuesAt int
	// Overrides: an INSERT OVERRIDING values of identity columns.
	Overrides bool
	// Conflict is what ON CONFLICT does.
	Conflict Conflict
	// Merged is set for MERGE.
	Merged *Merged
}

// SetOperation is what joins two queries.
type SetOperation uint8

// The set operations.
const (
	NoOperation SetOperation = iota
	Union
	Intersect
	Except
)

// Conflict is what an INSERT does with a row that is there already.
type Conflict uint8

// The ways to deal with a conflict.
const (
	NoConflict Conflict = iota
	DoNothing
	DoUpdate
)

// Common is a common table expression.
type Common struct {
	Name string
	// Columns are other names for its columns, from the first.
	Columns []string
	Query   *Block
	// Recursive: it names itself. Extended: SEARCH or CYCLE adds columns.
	Recursive, Extended bool
	// References is how often it is named, by itself too.
	References int
}

// SourceKind is what stands in a FROM clause.
type SourceKind uint8

// The kinds of sources.
const (
	// OpaqueSource: a function or something else of which the columns are not known.
	OpaqueSource SourceKind = iota
	TableSource
	QuerySource
	CommonSource
	JoinSource
)

// Source is an item of a FROM clause, or a part of one.
type Source struct {
	Kind SourceKind
	// Table is the index in Statement.Tables, Query and Common are what their kinds say.
	Table  int
	Query  *Block
	Common *Common
	// Name is what it is called in its query, empty if it has no name; Nameless: it has one that is not known here.
	Name     string
	Nameless bool
	// Columns are other names for its columns, from the first. Lateral: it sees what stands before it.
	Columns []string
	Lateral bool

	// Join says how Left and Right are joined. On is the condition; Using are the columns that are merged, Natural: all that both
	// sides have. UsingName is a name for the merged ones alone.
	Join        JoinKind
	Left, Right *Source
	On          Condition
	Using       []string
	Natural     bool
	UsingName   string

	// Queries are those in the condition of a join, which see its two sides, or in the arguments of a function.
	Queries []*Block
}

// JoinKind is a kind of join.
type JoinKind uint8

// The kinds of joins. A left join fills up the right side with NULL where nothing meets the condition, a full one both.
const (
	InnerJoin JoinKind = iota
	LeftJoin
	RightJoin
	FullJoin
)

// Term is an expression as far as it is simple: a column, a value, a star; none of it if it is not.
type Term struct {
	// Column as it is written: the last is the column's name. With Star it is what stands before the star, if anything.
	Column []string
	Star   bool
	// Value is none if its kind is Expression.
	Value Operand
}

// IsColumn says whether the term is a column.
func (t *Term) IsColumn() bool { return len(t.Column) > 0 && !t.Star }

// Output is a column of a result.
type Output struct {
	Term
	// Name is what it is called; empty if that is not known here.
	Name string
}

// Assignment is a column that is set.
type Assignment struct {
	Column string
	// Value is nothing simple if a part of the column is set, as in a[1].
	Value Term
}

// Merged is what MERGE says.
type Merged struct {
	Source *Source
	On     Condition
	When   []When
}

// When is one clause of MERGE.
type When struct {
	Match Match
	// Command is what it does; Select for DO NOTHING.
	Command Command
	// Conditional: it is for some of these rows only, by a condition that has to be computed.
	Conditional bool
	// Columns and Values are those of INSERT, neither for DEFAULT VALUES; Assigned those of UPDATE. Parts: columns and values do
	// not stand for each other one by one.
	Columns  []string
	Values   []Term
	Parts    bool
	Assigned []Assignment
}

// Match is which rows a clause of MERGE is for.
type Match uint8

// The kinds of matches.
const (
	// OtherMatch: one that is not known here.
	OtherMatch Match = iota
	Matched
	NotMatchedByTarget
	NotMatchedBySource
)

// Condition is what must be true, as far as it is simple.
type Condition struct {
	Kind ConditionKind
	// Parts are those of AllOf and AnyOf.
	Parts []Condition
	// Operator is =, <, <=, > or >= for Compares, and = for OneOf. Builtin: it is written OPERATOR(pg_catalog.=).
	Operator string
	Builtin  bool
	// Left is a column and Right what it is compared with, a column or a value.
	Left, Right Term
	// Columns equal one of Rows, each of which has a value for every column; or, if there are no rows, one element of Array.
	Columns []Term
	Rows    [][]Operand
	Array   Operand
}

// ConditionKind is what a condition is.
type ConditionKind uint8

// The kinds of conditions.
const (
	// Anything: nothing is known of it, or there is none.
	Anything ConditionKind = iota
	// AllOf: AND; AnyOf: OR.
	AllOf
	AnyOf
	Compares
	OneOf
)

// Walk calls visit for the block and for all that hang on it, outer ones first, as long as it says true of the one they are in.
func (b *Block) Walk(visit func(*Block) bool) {
	if b == nil || !visit(b) {
		return
	}
	for _, common := range b.With {
		common.Query.Walk(visit)
	}
	lists := [][]*Block{b.Arms, {b.Inserted}, b.Queries, b.Returned}
	for _, list := range lists {
		for _, inner := range list {
			inner.Walk(visit)
		}
	}
	for _, s := range b.sources() {
		s.walk(visit)
	}
}

// sources are what the block itself reads and writes.
func (b *Block) sources() []*Source {
	sources := b.From[:len(b.From):len(b.From)]
	if b.Target != nil {
		sources = append(sources, b.Target)
	}
	if b.Merged != nil {
		sources = append(sources, b.Merged.Source)
	}
	return sources
}

func (s *Source) walk(visit func(*Block) bool) {
	if s == nil {
		return
	}
	s.Query.Walk(visit)
	s.Left.walk(visit)
	s.Right.walk(visit)
	for _, q := range s.Queries {
		q.Walk(visit)
	}
}

// Reads calls visit for every source of the block itself, joined ones one by one, and says whether it said true of one.
func (b *Block) Reads(visit func(*Source) bool) bool {
	for _, s := range b.sources() {
		if s.reads(visit) {
			return true
		}
	}
	return false
}

func (s *Source) reads(visit func(*Source) bool) bool {
	if s == nil {
		return false
	}
	if s.Kind == JoinSource {
		return s.Left.reads(visit) || s.Right.reads(visit)
	}
	return visit(s)
}
