package adopt

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Codes of PostgreSQL that something is decided by.
const (
	codeCancelled           = "57014"
	codeLockNotAvailable    = "55P03"
	codeDeadlock            = "40P01"
	codeForeignKeyViolation = "23503"
	codeUniqueViolation     = "23505"
	codeCheckViolation      = "23514"
	codeNotNullViolation    = "23502"
	codeDependents          = "2BP01"
	codeNoRight             = "42501"
)

// isCode says whether PostgreSQL refused something with this code.
func isCode(err error, code string) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == code
}

// StepError is a step that failed: what is mended so far stays, and the rest can be tried again.
type StepError struct {
	Step Step
	// Hint says what to do.
	Hint  string
	Cause error
}

func (e *StepError) Error() string {
	return fmt.Sprintf("%s: %s: %v", e.Step.Table, e.Step.Title, cause(e.Cause))
}

func (e *StepError) Unwrap() error { return e.Cause }

// cause is what PostgreSQL said, without its codes.
func cause(err error) string {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return err.Error()
	}
	return strings.TrimSuffix(strings.Join([]string{refused.Message, refused.Detail}, ". "), ". ")
}

// failed explains why a step failed.
func failed(step Step, err error) error {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return &StepError{Step: step, Cause: err, Hint: "Run it again: it goes on where it was."}
	}
	hints := map[string]string{
		codeLockNotAvailable:    "Somebody has used the table all the time. Run it again when long transactions have ended; pg_stat_activity shows them.",
		codeForeignKeyViolation: "Rows refer to rows with another shard key. Give them the same key, or give the foreign key up with --drop-foreign-key; then run it again.",
		codeUniqueViolation:     "Rows have equal values. Change them, or write \"per shard\" for the constraint in the plan; then run it again.",
		codeCheckViolation:      "A row has no shard key. Give it one, or delete it; then run it again.",
		codeDependents:          "Something that is not in the plan needs what is to be replaced, such as a view. Drop that, run it again, and make it anew.",
		codeNoRight:             "Mending takes the rights of the table's owner: use such a role in --dsn.",
		codeDeadlock:            "Run it again: it goes on where it was.",
	}
	hint := refused.Hint
	if hint == "" {
		hint = hints[refused.Code]
	}
	if refused.Code == codeNotNullViolation {
		hint = "Give those rows a key, or delete them, then run it again. They are: " + refused.Hint
	}
	return &StepError{Step: step, Cause: err, Hint: hint}
}
