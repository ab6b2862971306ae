package plan

import (
	"slices"

	"github.com/cleavedb/cleave/internal/compose"
	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/placement/key"
)

// Plan is how a text with one statement or several runs, without the values of its keys. It is never changed after it was
// made, so any number of sessions share it.
type Plan struct {
	// Statements are those of the text, in order; none for an empty text.
	Statements []Statement
	// Uncacheable: something in it comes from the value of a literal, so it is right for this text alone and not for others
	// that differ in literals only.
	Uncacheable bool
	// Shaping are the numbers of literals on whose values it depends, in order: it is right for texts that have the same there.
	Shaping []int
}

// shapedBy notes literals on whose values the plan depends.
func (p *Plan) shapedBy(literals []int) {
	for _, l := range literals {
		if !slices.Contains(p.Shaping, l) {
			p.Shaping = append(p.Shaping, l)
		}
	}
	slices.Sort(p.Shaping)
}

// Statement is how one statement runs.
type Statement struct {
	// Command is what the session itself has to do about it; Pass for everything that a shard runs as it is.
	Command Command
	// Name is PostgreSQL's name of the kind of statement, such as SELECT or CREATE TABLE, for messages and statistics.
	Name string
	// Start and End are the bytes of the text that the statement is, without the semicolon.
	Start, End int
	// Plain: nothing follows from its success: it passes, pins nothing, taints nothing, sets nothing, changes no schema.
	Plain bool
	// Uses are the relations that it names, each once, with the schema and the name that the catalogue or the shard map has for
	// them. Schema is empty for one that neither knows.
	Uses []RelationName
	// Refusal is why it must not run, Rule the planner's name for the reason; all that follows is empty then.
	Refusal *pgerr.Error
	Rule    string
	// Missing: it names a relation that nobody knows, so what is wrong with a statement that is refused may be that alone.
	Missing bool
	// Temporary: it names a temporary relation, so nothing that is known of its columns holds for other sessions, or for long.
	Temporary bool
	// Route says which shard runs it.
	Route Route
	// Cascades: it changes or deletes rows of a reference table, which foreign keys may carry on to rows of any sharded table.
	Cascades bool
	// Reads: it provably changes nothing and locks nothing, so that it may run twice or not at all.
	Reads bool
	// Schema: it may change what the catalogue says of tables, columns, functions or schemas, so plans may have to be made anew.
	Schema bool
	// Pin is why the backend must stay with the session after the transaction; empty if it need not.
	Pin Pin
	// Cursor is set for FETCH, MOVE and CLOSE: it belongs to who has the cursor, the transaction's backend, the pinned one, or the session itself.
	Cursor *facts.Cursor
	// Declares is the cursor that it declares. If its query needs several shards, the session runs that and has the cursor.
	Declares *facts.Cursor
	// CurrentOf is the cursor at whose row it writes; empty if it says none.
	CurrentOf string
	// NeedsSession: its answer is kept in a backend's session, as currval's is, so it runs only where the client owns one.
	NeedsSession bool
	// Taints: it may leave something behind in the backend's session that nobody tracks, such as a setting that a function made.
	Taints bool
	// Unseen: it runs code of which nobody can tell what tables it uses.
	Unseen bool
	// mayDefine: it may run definitions that nobody sees.
	mayDefine bool
	// Rows: it answers with rows (SELECT, RETURNING, SHOW, EXPLAIN, FETCH …), as far as that can be told from the text.
	Rows bool
	// Explains: it is an EXPLAIN whose answer is lines of text.
	Explains bool
	// Copy: it is a COPY to or from the client.
	Copy bool
	// Binary: it is a COPY whose data is in binary format. Types are those of the data's columns, as the catalogue has them; none if they
	// are a query's.
	Binary bool
	Types  []uint32
	// PasswordAt is the place behind which a role's password stands, counted from 1; 0: there is none. Every shard has to store the same.
	PasswordAt int
	// Index is set for CREATE INDEX CONCURRENTLY on a declared table.
	Index *Index
	// Holds are declared tables on which nobody may run a statement while this one changes them; DropsTables those that are gone after it.
	Holds, DropsTables []RelationName
	// Upkeep: it changes nothing about tables, and may lock them such that nobody else can read about them.
	Upkeep bool
	// LockFirst: all shards lock the tables of Holds against writers before they begin, and nobody is held back any longer: it takes long, and
	// others may read meanwhile.
	LockFirst bool
	// HoldRight is the right to the tables of Holds that the definition needs; empty: one has to own them.
	HoldRight string
	// Fills is the one relation of Uses that it makes, out of rows of the others, which it leaves as they are; empty if it is another kind of statement.
	Fills RelationName
	// Beyond: the definition changes views of declared tables, or rights to tables and owners of tables that it does not name.
	Beyond bool
	// InSchemas are schemas which keyspaces place, and in which the definition is about something else than a relation.
	InSchemas []string
	// Alters are the declared tables that a definition is about, those of its indexes and triggers included.
	Alters []RelationName
	// Load is set for a COPY of a sharded table or of a query, and for one from the client to a reference table.
	Load *Load
	// NoBlock: PostgreSQL runs it outside a transaction block only.
	NoBlock bool
	// Creates are the names of temporary tables, views and sequences that it makes, in lower case as PostgreSQL folds them;
	// Drops those that it drops.
	Creates, Drops []string

	// Transaction is set for the commands of transaction control.
	Transaction Transaction
	// Settings are set for SetVariable, one or several (SET TRANSACTION has several), and for set_config with literals.
	Settings []Setting
	// Prepared is set for Prepare, Execute and Deallocate.
	Prepared Prepared
	// Numbers are the calls in the text of functions of sequences that the session replaces.
	Numbers []NumberCall
	// TellsNumbers: all numbers that it takes from sequences are told to the router, so that it knows what the session was given.
	TellsNumbers bool
	// Takes are sequences, as SQL writes them, from which it surely has taken a number on its shard if it has succeeded, the last one
	// last. TakesLast: there is no other one from which it may have taken the last.
	Takes     []string
	TakesLast bool
	// Composition is how the statement is answered in steps if no shard can answer it alone; nil if it is not. Pulls are queries of their own, which
	// are planned when they run.
	Composition *compose.Composition
	// Unfolds are views that it names, and whose tables are read then rather than the views: the client's role needs the right to read them all the same.
	Unfolds []RelationName
	// Target is the table that it writes to then.
	Target RelationName
	// InsertedKey is, if rows of a query are inserted where they belong, the key of the table.
	InsertedKey []KeyPart
	// Makes is what it makes of rows that the home shard alone does not have; nil if it does no such thing. It is answered in steps then.
	Makes *Made
	// Timed is what it has to do with the current time; nil: nothing.
	Timed *Timed
	// Virtual are the places in the text where a view or function of the router stands: cleave.shards, cleave.shard_of(…).
	// The router puts its answer there before a shard sees the text.
	Virtual []Virtual
}

// Command is what a session does about a statement itself.
type Command uint8

// The commands. A session must handle each; one that it does not know is refused.
const (
	Pass             Command = iota // a shard runs it
	Begin                           // BEGIN, START TRANSACTION
	Commit                          // COMMIT, END
	Rollback                        // ROLLBACK, ABORT
	Savepoint                       // SAVEPOINT
	ReleaseSavepoint                // RELEASE
	RollbackTo                      // ROLLBACK TO
	SetVariable                     // SET, SET LOCAL, SET TRANSACTION, SET SESSION CHARACTERISTICS, SET TIME ZONE …
	ResetVariable                   // RESET name, SET name TO DEFAULT
	ResetAll                        // RESET ALL
	DiscardAll                      // DISCARD ALL
	DiscardPlans                    // DISCARD PLANS
	DiscardTemp                     // DISCARD TEMP
	DiscardSequences                // DISCARD SEQUENCES
	Prepare                         // PREPARE name AS …
	Execute                         // EXECUTE name(…), also inside EXPLAIN and CREATE TABLE AS
	Deallocate                      // DEALLOCATE name, DEALLOCATE ALL
	ShowVariable                    // SHOW
	SetConstraints                  // SET CONSTRAINTS
)

// Transaction is what a command of transaction control says.
type Transaction struct {
	// Savepoint is the name in SAVEPOINT, RELEASE and ROLLBACK TO.
	Savepoint string
	// Chain: COMMIT AND CHAIN, ROLLBACK AND CHAIN.
	Chain bool
	// Serializable: BEGIN names the isolation level SERIALIZABLE.
	Serializable bool
	// Deferred: SET CONSTRAINTS … DEFERRED; otherwise IMMEDIATE. Constraints are those that it names; none for ALL.
	Deferred    bool
	Constraints []facts.Name
}

// Setting is one change of one parameter.
type Setting struct {
	// Name in lower case, as in search_path, role, session_authorization, timezone, transaction_isolation.
	Name string
	// Local: SET LOCAL or SET TRANSACTION.
	Local bool
	// Default: SET … TO DEFAULT or RESET.
	Default bool
	// Values are the values as SQL tokens in the text, ready to be written after "SET name TO ", separated by commas.
	SQL string
	// Values are the values without quotes, one for each in a list.
	Values []string
}

// Prepared is what PREPARE, EXECUTE and DEALLOCATE say.
type Prepared struct {
	// Name of the prepared statement; NameStart and NameEnd are its bytes in the text. All: DEALLOCATE ALL.
	Name               string
	NameStart, NameEnd int
	All                bool
	// TypesSQL is the list of types in PREPARE, with parentheses, as it stands in the text; empty if there is none.
	TypesSQL string
	// TypeCount is how many types there are.
	TypeCount int
	// Body are the bytes of the text of PREPARE after AS.
	BodyStart, BodyEnd int
	// Arguments of EXECUTE: what each is, so that a key can be bound to it.
	Arguments []Operand
}

// Virtual is one place of a text where the router itself answers.
type Virtual struct {
	// Function: a function's call, arguments and parentheses included; else a view's name.
	Function bool
	// Name without the schema.
	Name string
	// Start and End are its bytes in the text.
	Start, End int
	// FromClause: it stands where a table stands; Aliased: an alias follows already.
	FromClause, Aliased bool
	// Arguments of a function, ArgumentNames beside them, empty where given by position.
	Arguments     []Operand
	ArgumentNames []string
}

// Load is what a COPY says of its data.
type Load struct {
	// Query: the data are the rows of a query, which go to the client. Of these, only the options are told.
	Query bool
	// Relation is the table's name without its schema.
	Relation string
	// Columns are those of the data.
	Columns []string
	Options []LoadOption
	// Key are the columns that have to be looked at, with their places in the data, from 1, as parameters: the key, or of a reference
	// table those that may hold a time.
	Key []KeyPart
	// Made: the shard that stores a row makes its key, so that any owner will do.
	Made bool
	// Timed are columns that the data does not have, and whose defaults are computed from the current time.
	Timed []TimedColumn
}

// TimedColumn is a column whose default is computed from the current time.
type TimedColumn struct {
	Name    string
	TypeOID uint32
	TypeMod int32
	value   func() (compose.Text, error)
}

// LoadOption is an option of COPY: exactly one of Value, List, Star and Bare says what was given.
type LoadOption struct {
	Name, Value string
	List        []string
	Star, Bare  bool
}

// Index is an index that is made shard by shard.
type Index struct {
	// Name is that of the index, with its schema, and Table that of its table, both as SQL writes them.
	Name, Table string
	Unique      bool
	// Bare is the index's name without its schema; Rest is where in the statement that begins which stands behind the table.
	Bare string
	Rest int
}

// Pin is why a backend must stay with a session.
type Pin string

// Level is how a statement's shards are found.
type Level uint8

// The levels.
const (
	// Home: the shard that has what belongs to no other: the catalogue that tools see, tables that nobody declared.
	Home Level = iota
	// Anywhere: every shard gives the same answer, so the nearest at hand is right: no tables, or reference tables that are read.
	Anywhere
	// OnShard: one named shard has all the tables.
	OnShard
	// Keyed: one key's values say which shard.
	Keyed
	// Several: several keys, or bounds, say which shards, or all have a part. If that comes to one shard, it runs the statement
	// as it is; else [Route.Parts] says how it is divided.
	Several
	// Composed: it is answered in steps, by [Statement.Composition], unless all that these pull is on one shard, which then answers alone.
	Composed
	// Everywhere: every shard must run it, in one transaction.
	Everywhere
	// AnyOwner: any shard that owns something of the keyspace, but only one: it makes the keys of the rows that are stored, and makes
	// them so that they belong there.
	AnyOwner
)

// Parts says how a statement is divided among several shards.
type Parts uint8

// The ways to divide a statement.
const (
	// Whole: it is not; [Route.Undivided] says why. It runs if all its keys are on one shard.
	Whole Parts = iota
	// Same: every shard runs the same text on the rows that it has, and no part of the answer depends on two shards' rows: rows of
	// the answer are put one behind the other, counts are added.
	Same
	// ByRow: an INSERT; every shard gets its own rows of VALUES. Returned rows are in the order of VALUES, counts are added.
	ByRow
	// Copies: every shard runs the same text on its own copy, and gives the same answer.
	Copies
	// Kept: an UPDATE that sets the key; every shard runs the same text on the rows that it has, as in Same. The new key is the only one of
	// [Route.Keys], and no shard but that key's may have a row to change, since it would have to go there.
	Kept
	// ByLine: a COPY FROM the client; every shard gets its own rows of the data. Counts are added.
	ByLine
)

// Route says where a statement runs.
type Route struct {
	Level Level
	// Shard is the name for OnShard.
	Shard string
	// Keyspace and Key, a part for each key column in the keyspace's order, are for Keyed.
	Keyspace string
	Key      []KeyPart
	// Keys are for Several: the statement needs the shards of all of them, in any order. If it is an INSERT with Parts ByRow, the
	// first ones are those of its rows, one for each and in their order, and RowKeys says how many that is. Where a row leaves its key to
	// the shard that stores it, the operand IsDefault says so: any owner will do. A key of one part with a Floor is an id.
	Keys    [][]KeyPart
	RowKeys int
	// ValuesAt is, for ByRow and if there are Numbers, which of the words VALUES of the text begins the rows, from 0.
	ValuesAt int
	// Numbers are for an INSERT with Parts Copies, or for AnyOwner: columns that it leaves out, and that each of its rows gets a number for.
	// ValuesAt is as for ByRow.
	Numbers []Number
	// Bounds are for Several, in a keyspace by range: all hold for the first key column at once. All: every shard that owns something
	// of the keyspace.
	Bounds []Bound
	All    bool
	// Parts says how the statement is divided if the shards are several; Undivided is why it is not, if it is Whole. For Home it is
	// Copies if the statement sets a sequence: one whose numbers come in blocks is set on every shard.
	Parts     Parts
	Undivided *pgerr.Error
	// AtMost is, if Parts is Same, how many rows the answer has at most; nil: any number. Every shard gives up to so many. Skips is how many
	// are left out before these; nil: none. The statement must not run on several shards if it is any.
	AtMost, Skips *Operand
	// Timed: it may read a text as a date or a time. If its parts are Copies it must not run with a literal or a parameter of which
	// [VariesInTime] is true.
	Timed bool
	// Hinted: the client says so, and nothing proves it.
	Hinted bool
	// Lenient is for Everywhere: a shard that does not have what the statement is about is passed over, unless it is the home shard.
	Lenient bool
	// Table is the sharded table that the key belongs to, or a reference table that is read; for messages.
	Table string
	// Why is the reason in a few words, for EXPLAIN and for tests.
	Why string
}

// Number is a column whose default is the next number of a sequence, as SQL writes it; of none if it is the key, and its default a
// random UUID: then one that belongs on the shard is as good as another.
type Number struct {
	Column, Sequence string
	// Place is which value of a row is the word DEFAULT that stands for it, from 1; 0 if the rows leave the column out.
	Place int
}

// Bound is one end of an interval of keys.
type Bound struct {
	Part KeyPart
	// Upper: keys are below it, else above; Inclusive: or equal to it.
	Upper, Inclusive bool
}

// KeyPart says where the value of one key column comes from and what it becomes.
type KeyPart struct {
	Column string
	// Type and TypeMod are the column's: what a value becomes when it is stored. TypeMod is -1 for none.
	Type    key.Type
	TypeMod int32
	// Store: the value is stored, so assigned to the column; else it is compared with the column, and the type modifier does not matter.
	Store bool
	// Operand is where the value comes from.
	Operand Operand
	// Each: the operand is an array, and every element of it is a value. Its cast is one to a type of arrays. It is not in
	// Route.Key.
	Each bool
	// Listed: the operand stands in a list, and the types of all of them decide which operator compares them with the column. So a
	// parameter of another family of types counts even if it is NULL. It is not in Route.Key.
	Listed bool
	// Ordered: keys below or above the value are meant, so that it counts even if no key is equal to it. It is not in Route.Key.
	Ordered bool
	// Floor is not 0 if the column is no key column, but one whose numbers have the slot of their row's key in them, from this one on. A
	// smaller number says nothing: then all shards are wanted that own something. It is not in Route.Key.
	Floor int64
}

// Operand is a value in a statement: a literal, a parameter, or a keyword such as NULL.
type Operand struct {
	Kind OperandKind
	// Literal is the place among the literals that the normaliser took out of the text, from 0.
	Literal int
	// Negative: a minus stands before the literal.
	Negative bool
	// Param is the number of the parameter, from 1.
	Param int
	// CastOID is the type it is explicitly cast to, 0 if it is not; CastMod the modifier of that type, -1 for none.
	CastOID uint32
	CastMod int32
	// Fixed is the text of a constant that is the column's default.
	Fixed string
}

// OperandKind is what an operand is.
type OperandKind uint8

// The kinds of operands.
const (
	// Unknowable: an expression that only PostgreSQL can evaluate.
	Unknowable OperandKind = iota
	FromLiteral
	FromParam
	IsNull
	IsDefault
	IsTrue
	IsFalse
	// FromSetting: what the client has set as its key; Literal is the place of the column in it, from 0.
	FromSetting
	// FromDefault: a constant, which the statement leaves to the column.
	FromDefault
)
