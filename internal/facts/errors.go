package facts

import (
	"strconv"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// MaxText is the longest text, in bytes, that is read. What is longer is data rather than a statement: it belongs into
// parameters or COPY.
const MaxText = 1 << 20

// SyntaxError says that the grammar does not accept a text.
type SyntaxError struct {
	// Message as PostgreSQL words it.
	Message string
	// Position is where, in characters from 1; 0 if the grammar does not say.
	Position int
}

func (e *SyntaxError) Error() string {
	if e.Position == 0 {
		return e.Message
	}
	return e.Message + " at character " + strconv.Itoa(e.Position)
}

// invalidEncoding is PostgreSQL's SQLSTATE for bytes that are no characters.
const invalidEncoding = "22021"

func notUTF8() error {
	return pgerr.New(invalidEncoding, "the statement is not valid UTF-8").
		WithHint("Set client_encoding to UTF8, or send such values as parameters.")
}

func tooLong(length int) error {
	return pgerr.New(pgerr.ProgramLimitExceeded, "the statement has %d bytes, which is more than the %d that can be planned", length, MaxText).
		WithHint("Send values as parameters or by COPY, or send fewer rows in one statement.")
}

func tooDeep() error {
	return pgerr.New(pgerr.ProgramLimitExceeded, "the statement is nested too deeply, or has too long a chain of operators, to be planned").
		WithHint("Take it apart, or use IN or = ANY instead of a long chain.")
}

func tooManyOperators() error {
	return pgerr.New(pgerr.ProgramLimitExceeded, "the statement has more than %d signs in a row", maxOperators).
		WithHint("Send such values as parameters.")
}
