package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
)

// UnavailableError says that the home shard could not be asked.
type UnavailableError struct {
	// Client is what a client may be told: 57P03 if the shard cannot be reached, 08006 if the connection to it broke, XX000
	// if it answered with an error of its own.
	Client *pgerr.Error
	cause  error
}

func (e *UnavailableError) Error() string {
	if e.cause == nil {
		return "read the catalogue: " + e.Client.Error()
	}
	return "read the catalogue: " + e.cause.Error()
}

// Unwrap returns both what a client may be told and what happened.
func (e *UnavailableError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.Client}
	}
	return []error{e.Client, e.cause}
}

const retryHint = "Try again; if it stays so, see cleave status."

// noHome says that the map has no shard to ask.
func noHome() error {
	return &UnavailableError{Client: pgerr.New(pgerr.CannotConnectNow, "the cluster has no shards yet").
		WithDetail("What a statement's names stand for is read from the shard with the lowest number.").
		WithHint("Add one with cleave shard add.")}
}

// unavailable explains what went wrong with the shard. The end of the caller's own context is passed on as it is: the
// shard has nothing to do with it.
func unavailable(ctx context.Context, name string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("read the catalogue of shard %q: %w", name, context.Cause(ctx))
	}
	var unreachable *shard.ConnectError
	var answered *pgconn.PgError
	switch {
	case errors.As(err, &unreachable):
		return &UnavailableError{cause: err, Client: pgerr.New(pgerr.CannotConnectNow, "the home shard cannot be reached").
			WithDetail("Shard %q, whose catalogue says what a statement's names stand for: %s.", name, unreachable.Reason).WithHint(retryHint)}
	case errors.As(err, &answered) && !closesSession(answered):
		return &UnavailableError{cause: err, Client: pgerr.New(pgerr.InternalError, "the home shard's catalogue cannot be read").
			WithDetail("Shard %q says: %s (SQLSTATE %s).", name, answered.Message, answered.Code).WithHint(retryHint)}
	default:
		return &UnavailableError{cause: err, Client: pgerr.New(pgerr.ConnectionFailure, "the connection to the home shard broke").
			WithDetail("Shard %q was asked what a statement's names stand for and did not answer.", name).WithHint(retryHint)}
	}
}

// closesSession: the server said a last word and hung up.
func closesSession(e *pgconn.PgError) bool { return e.Severity == "FATAL" || e.Severity == "PANIC" }
