package facts

import "math"

// Statement is what is known of one statement.
type Statement struct {
	// Kind is the grammar's name for it, such as SelectStmt.
	Kind Kind
	// Name is PostgreSQL's command tag, such as SELECT or CREATE TABLE.
	Name string
	// Start and End are its bytes in the text, without the semicolon and what stands around it.
	Start, End int

	// Tables are all relations that it names, in the order of the text, without names of common table expressions. Those of
	// Inner are not among them.
	Tables []Table
	// Calls are all calls of functions, but those of Inner.
	Calls []Call
	// Fields are names that stand behind a dot, each once: o.total may be a column, but also a call of total(o).
	Fields []string
	// Alone are names of columns that are written without anything before them, each once: one may be that of a table, and stand for a whole row.
	Alone []string
	// Qualifiers are the first names of columns that are written with a schema, as in schema.table.column, each once.
	Qualifiers []string
	// Qualified are the places of columns that are written so.
	Qualified []Qualified
	// Types are the types that it casts to or makes columns of, each once.
	Types []Name
	// Operators are those that it applies, each once, also where the grammar has a word for one, as IN and BETWEEN have.
	Operators []Name
	// ComputedCasts are those of Types that something computed is cast to, rather than a literal or a parameter, each once.
	ComputedCasts []Name
	// Query is set for SELECT, VALUES, INSERT, UPDATE, DELETE and MERGE.
	Query *Block
	// Recursive are the common table expressions that name themselves, inner ones first.
	Recursive []*Common
	// Sources is how many tables, subqueries and the like all its FROM clauses have.
	Sources int
	// Inner is the statement inside of EXPLAIN, DECLARE, COPY (query) TO, CREATE TABLE AS and CREATE VIEW. What PREPARE
	// prepares is a text of its own.
	Inner *Statement
	// Locks: rows are locked by FOR UPDATE or its like.
	Locks bool
	// Moments: it uses CURRENT_TIMESTAMP, CURRENT_USER or another word for something that is asked of the server.
	Moments bool
	// Clocks is how many of these words are for the current time. TimeNames: one of them, or a call of now or its like, stands in an output without a name, or where
	// a table stands, so that something else in its place might be called otherwise.
	Clocks    int
	TimeNames bool
	// Physical: it uses a name that tables have as a system column, such as ctid.
	Physical bool
	// Placed: one of them is used for more than the name of the relation that a row is in, tableoid::regclass::text, so that every server
	// would say something else.
	Placed bool
	// AtCursor: WHERE CURRENT OF a cursor.
	AtCursor bool
	// Cursor is set for DECLARE, FETCH, MOVE, CLOSE and WHERE CURRENT OF.
	Cursor Cursor

	// Object is what a statement about something that is no query is about.
	Object Object
	// Transaction is set for TransactionStmt.
	Transaction Transaction
	// Settings are set for VariableSetStmt and VariableShowStmt, and for definitions that have servers set something later.
	Settings []Setting
	// Prepared is set for PrepareStmt, ExecuteStmt and DeallocateStmt.
	Prepared Prepared
	// Options are what else can be told from words in the text.
	Options Options
	// Load is set for COPY of a table.
	Load *Load
	// ByLiteral: something here besides the values of operands comes from a literal.
	ByLiteral bool
}

// Options are the words of a statement that change what it means.
type Options struct {
	// Runs: EXPLAIN runs its statement. Format is that of its answer, in lower case; empty if none is named.
	Runs   bool
	Format string
	// Client: COPY to or from the client; From: COPY … FROM.
	Client, From bool
	// Cascade: DROP … CASCADE, TRUNCATE … CASCADE.
	Cascade bool
	// Concurrently: CREATE INDEX, DROP INDEX, REINDEX, DETACH PARTITION.
	Concurrently bool
	// Temporary: what it makes belongs to the session.
	Temporary bool
	// Vacuum: VACUUM rather than statistics alone.
	Vacuum bool
	// Discard is what DISCARD names: ALL, PLANS, TEMP, SEQUENCES.
	Discard string
	// Elements: CREATE SCHEMA with tables or views inside, CREATE TABLE with columns or constraints.
	Elements bool
	// AllTables: a publication FOR ALL TABLES, or for all of a schema.
	AllTables bool
	// Replace: CREATE OR REPLACE VIEW.
	Replace bool
	// IfNotExists: CREATE TABLE IF NOT EXISTS.
	IfNotExists bool
	// Bounds: CREATE TABLE … PARTITION OF with bounds, which are computed at once.
	Bounds bool
	// NoData: CREATE TABLE AS and its like WITH NO DATA.
	NoData bool
}

// Cursor is what a statement says of a cursor.
type Cursor struct {
	// Name of the cursor. All: CLOSE ALL.
	Name string
	All  bool
	// Hold, Scroll, NoScroll and Binary are options of DECLARE.
	Hold, Scroll, NoScroll, Binary bool
	// Move: MOVE rather than FETCH. Both go that way, so many rows, or to the row of that number; Count is AllRows for ALL.
	Move      bool
	Direction Direction
	Count     int64
}

// AllRows is how many rows FETCH ALL fetches.
const AllRows = math.MaxInt64

// Direction is where FETCH and MOVE go.
type Direction uint8

// The directions. A number below 0 means the other one of Forward and Backward, and of Absolute that rows are counted from the last.
const (
	Forward Direction = iota
	Backward
	Absolute
	Relative
)

// Role is what a relation is to a statement.
type Role uint8

// The roles.
const (
	// Nested: in a subquery, a common table expression, an arm of a set operation, an expression, or wherever no other role
	// fits.
	Nested Role = iota
	// From: in the FROM clause of the outermost query, or USING of its DELETE.
	From
	// Target: of the outermost INSERT, UPDATE, DELETE or MERGE.
	Target
	// Subject: a statement that is no query is about it.
	Subject
	// Created: the statement makes it.
	Created
	// Like: CREATE TABLE (LIKE it).
	Like
	// Parent: INHERITS or PARTITION OF.
	Parent
	// Referenced: a foreign key points to it.
	Referenced
)

// Table is one place where a relation is named.
type Table struct {
	Catalog, Schema, Name string
	Role                  Role
	// Alias is what it is called in its query; empty if it has no other name.
	Alias string
	// Written: its rows are inserted, updated, deleted or merged. Locked: its rows are locked.
	Written, Locked bool
	// Start and End are the bytes of its name in the text; 0 and 0 where only its parts are known. WideStart and WideEnd take in
	// ONLY, parentheses and * around it, and the word TABLE if it is what Command says.
	Start, End         int
	WideStart, WideEnd int
	// Command: it is all of a query, as in TABLE t. Sampled: TABLESAMPLE follows; SampledEvenly: by one of PostgreSQL's own methods, which take
	// each row or page as likely as any other, whatever others there are.
	Command, Sampled, SampledEvenly bool
}

// Qualified is a column that is written with a schema. Start and End are the bytes of the schema and of the dot behind it.
type Qualified struct {
	Schema, Table string
	Start, End    int
}

// Call is one call of a function.
type Call struct {
	Schema, Name string
	// Start and End are its bytes in the text, to the closing parenthesis.
	Start, End int
	// Names: its name is that of a column of the result, since nobody gave it another one.
	Names bool
	// Arguments, and their names where given by name.
	Arguments     []Operand
	ArgumentNames []string
	Place         CallPlace
	// Aliased: an alias follows it in FROM.
	Aliased bool
	// Word: the grammar has syntax of its own for it. Servers that are older than the grammar read it as a call of a function
	// of that name, which somebody may have made; others have no such function.
	Word bool
	// Modified: more belongs to it than its arguments: DISTINCT, VARIADIC, FILTER, OVER, WITH ORDINALITY, a list of columns …
	Modified bool
	// Over: it is computed over a window.
	Over bool
	// Columns are those that its arguments name, as written, without those inside of queries; Queries: there are such.
	Columns [][]string
	Queries bool
}

// CallPlace is where a call stands.
type CallPlace uint8

// The places of a call.
const (
	// InExpression: somewhere in an expression.
	InExpression CallPlace = iota
	// InFrom: it stands where a table stands.
	InFrom
	// InRowsFrom: among others in ROWS FROM.
	InRowsFrom
	// Alone: it is a column of a SELECT that has calls as its columns and nothing else, so it runs exactly once if the
	// statement is run to its end.
	Alone
)

// Command is what a query does.
type Command uint8

// The commands of queries.
const (
	Select Command = iota
	Insert
	Update
	Delete
	Merge
)

// Operand is a value in a statement.
type Operand struct {
	Kind OperandKind
	// Start is the constant's place in the text, its minus included.
	Start int
	// Text is the constant's value, Number whether it is a number. Plans are shared by texts with other values, so a planner
	// that looks at it must say so.
	Text   string
	Number bool
	// Param is the number of the parameter.
	Param int
	// Casts are the types it is cast to, the innermost first.
	Casts []Type
}

// OperandKind is what an operand is.
type OperandKind uint8

// The kinds of operands.
const (
	// Expression: something that has to be computed.
	Expression OperandKind = iota
	Constant
	Param
	Null
	Default
	True
	False
	// Fixed: a constant that does not stand in the statement. Its value is Text, in no type yet. A planner puts it where a row leaves a
	// column to a default that is a constant.
	Fixed
)

// Type is the name of a type.
type Type struct {
	Schema, Name string
	// Mods are the modifiers, as in numeric(10, 2); HasMods is true also if they are no whole numbers, and Mods is empty. They
	// come from literals, so a plan that depends on them is right for one text alone.
	Mods    []int32
	HasMods bool
	// Array: of any number of dimensions, or SETOF.
	Array bool
}

// Object is what a statement about one thing, or several of one kind, is about.
type Object struct {
	// Type is PostgreSQL's word for it: TABLE, SCHEMA, FUNCTION …
	Type string
	// Names of things that are no relations: schemas, functions, types, roles.
	Names []Name
	// NewName is what it is renamed to, or what an index is to be called.
	NewName string
	// Actions are what ALTER TABLE does, by the grammar's names: AddColumn, DropColumn …
	Actions []string
	// Columns are those that are dropped, renamed or get another type; Added those that come; Constraints what is asked of rows from
	// now on, by unique indexes too.
	Columns []string
	// Counting are the options that are changed of a sequence, or of the one behind an identity column, by the grammar's names: restart,
	// increment, owned_by …
	Counting []string
	// Triggers are those that are made, dropped, renamed, or switched on or off by name.
	Triggers []string
	// PasswordAt is the place behind which a role's password stands, counted from 1; 0: there is none.
	PasswordAt  int
	Added       []AddedColumn
	Constraints []Constraint
}

// Name is a name with or without a schema.
type Name struct{ Schema, Name string }

// Transaction is what a statement of transaction control says.
type Transaction struct {
	Kind      TransactionKind
	Savepoint string
	Chain     bool
	// Serializable: it names that isolation level.
	Serializable bool
	// Deferred: SET CONSTRAINTS … DEFERRED. Constraints are those that it names; none for ALL. CrossDatabase: a name has that of a database
	// before it.
	Deferred      bool
	Constraints   []Name
	CrossDatabase bool
}

// TransactionKind is which statement of transaction control it is.
type TransactionKind uint8

// The statements of transaction control.
const (
	NoTransaction TransactionKind = iota
	Begin
	Commit
	Rollback
	Savepoint
	Release
	RollbackTo
	PrepareTransaction
	CommitPrepared
	RollbackPrepared
)

// Setting is what SET, RESET and SHOW say of one parameter.
type Setting struct {
	// Name in lower case; all for RESET ALL and SHOW ALL.
	Name  string
	Local bool
	// Default: RESET, or SET … TO DEFAULT.
	Default bool
	// Values are what it becomes, SQL the same as it can be written behind SET name TO.
	Values []string
	SQL    string
	// Opaque: it says something that Values cannot hold, such as FROM CURRENT or an interval.
	Opaque bool
}

// Prepared is what PREPARE, EXECUTE and DEALLOCATE say.
type Prepared struct {
	Name               string
	NameStart, NameEnd int
	All                bool
	// TypesStart and TypesEnd are the list of types with its parentheses; both 0 if there is none.
	TypesStart, TypesEnd int
	TypeCount            int
	// BodyStart and BodyEnd are the statement behind AS.
	BodyStart, BodyEnd int
	// Schemas are those that the body names before tables and functions.
	Schemas   []string
	Arguments []Operand
}
