// Package pgerr is how the router's rooms tell a client what is wrong: errors with PostgreSQL's fields, a SQLSTATE that
// programs can act on, a DETAIL with the reason and a HINT with what to do next.
//
// It knows the fields and the codes. How an error looks on the wire is package wire's business, and who may see one is the
// session's. Errors are values that nobody changes after they were made, so they are safe to share and to keep in a cache.
package pgerr

import "fmt"

// Error is an error as PostgreSQL's clients know it.
type Error struct {
	// Severity is ERROR unless it says otherwise: FATAL ends the session.
	Severity string
	// Code is the SQLSTATE.
	Code string
	// Message is one line without a full stop; Detail and Hint are sentences.
	Message, Detail, Hint string
	// Context is where in the server it came from, such as the lines of functions.
	Context string
	// Position is where in the statement the error is, in characters from 1; 0 if nobody knows.
	Position int
	// Schema, Table, Column, DataType and Constraint name what it is about; empty where it is about nothing of the kind.
	Schema, Table, Column, DataType, Constraint string
}

// Severities.
const (
	SeverityError = "ERROR"
	SeverityFatal = "FATAL"
)

// SQLSTATEs that the router itself gives; each means what PostgreSQL means by it.
const (
	ProtocolViolation         = "08P01"
	ConnectionException       = "08000"
	CannotConnect             = "08001"
	ConnectionFailure         = "08006"
	OutcomeUnknown            = "08007"
	FeatureNotSupported       = "0A000"
	NumericOutOfRange         = "22003"
	InvalidParameterValue     = "22023"
	NullNotAllowed            = "22004"
	InvalidTextRepresentation = "22P02"
	InvalidName               = "42602"
	NotNullViolation          = "23502"
	ForeignKeyViolation       = "23503"
	InvalidTransactionState   = "25000"
	ActiveTransaction         = "25001"
	ReadOnlyTransaction       = "25006"
	NoActiveTransaction       = "25P01"
	UniqueViolation           = "23505"
	SerializationFailure      = "40001"
	DeadlockDetected          = "40P01"
	InFailedTransaction       = "25P02"
	InvalidStatementName      = "26000"
	InvalidAuthorization      = "28000"
	InvalidPassword           = "28P01"
	InvalidCursorName         = "34000"
	InvalidCatalogName        = "3D000"
	InvalidSavepoint          = "3B001"
	SyntaxError               = "42601"
	InsufficientPrivilege     = "42501"
	UndefinedTable            = "42P01"
	UndefinedColumn           = "42703"
	DuplicateColumn           = "42701"
	InvalidColumnReference    = "42P10"
	UndefinedFunction         = "42883"
	UndefinedObject           = "42704"
	DuplicatePrepared         = "42P05"
	UndefinedParameter        = "42P02"
	DuplicateCursor           = "42P03"
	DuplicateTable            = "42P07"
	WrongObjectType           = "42809"
	InvalidTableDefinition    = "42P16"
	DiskFull                  = "53100"
	OutOfMemory               = "53200"
	TooManyConnections        = "53300"
	LimitExceeded             = "53400"
	ProgramLimitExceeded      = "54000"
	ObjectNotInPrerequisite   = "55000"
	ObjectInUse               = "55006"
	LockNotAvailable          = "55P03"
	QueryCanceled             = "57014"
	AdminShutdown             = "57P01"
	CrashShutdown             = "57P02"
	CannotConnectNow          = "57P03"
	IdleSessionTimeout        = "57P05"
	InternalError             = "XX000"
	NotOwned                  = "CL001" // a row came to a shard that does not own it
	NoHello                   = "CL002" // somebody who is no router wrote to a sharded table
	OldMap                    = "CL003" // a router with a map that is older than the shard allows
	WrongNumber               = "CL004" // a number does not fit its row, or is only a ticket for one
	NumberMade                = "CLN01" // no error: with it a shard tells the router which number it has made
)

// Error makes it an error of Go.
func (e *Error) Error() string {
	text := e.Message + " (SQLSTATE " + e.Code + ")"
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// New returns an error with a message alone.
func New(code, format string, arguments ...any) *Error {
	return &Error{Severity: SeverityError, Code: code, Message: fmt.Sprintf(format, arguments...)}
}

// Fatal returns an error that ends the session.
func Fatal(code, format string, arguments ...any) *Error {
	return &Error{Severity: SeverityFatal, Code: code, Message: fmt.Sprintf(format, arguments...)}
}

// WithDetail returns a copy that says why.
func (e *Error) WithDetail(format string, arguments ...any) *Error {
	c := *e
	c.Detail = fmt.Sprintf(format, arguments...)
	return &c
}

// WithHint returns a copy that says what to do.
func (e *Error) WithHint(format string, arguments ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, arguments...)
	return &c
}

// OfColumn returns a copy that says of which column it tells.
func (e *Error) OfColumn(schema, table, column string) *Error {
	c := *e
	c.Schema, c.Table, c.Column = schema, table, column
	return &c
}

// At returns a copy that says where in the statement it is, in characters from 1.
func (e *Error) At(position int) *Error {
	c := *e
	c.Position = position
	return &c
}
