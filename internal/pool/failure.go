package pool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/auth"
	"github.com/cleavedb/cleave/internal/pgerr"
)

// fault says who is concerned by a failed login.
type fault int

const (
	ofServer    fault = iota // the server or the network: nobody gets in
	ofRoleLimit              // the role has as many connections as the server grants it
	ofSecret                 // what was shown, or the role's rights: the same will fail again, others need not
)

// refusal is the server's own word.
type refusal struct {
	said    *pgerr.Error
	routine string // the server's function that refused
}

func (r *refusal) Error() string { return r.said.Error() }

func (r *refusal) Unwrap() error { return r.said }

func refusalOf(m *pgproto3.ErrorResponse) *refusal { return &refusal{errorOf(m), m.Routine} }

func errorOf(m *pgproto3.ErrorResponse) *pgerr.Error {
	severity := m.SeverityUnlocalized
	if severity == "" {
		severity = m.Severity
	}
	return &pgerr.Error{Severity: severity, Code: m.Code, Message: m.Message, Detail: m.Detail, Hint: m.Hint, Position: int(m.Position)}
}

// credentialError says that the login failed over what was to be shown.
type credentialError struct{ error }

func (e *credentialError) Unwrap() error { return e.error }

// explain turns the error of a failed login into what those hear who waited for it.
func (l *login) explain(err error) (fault, *pgerr.Error) {
	var said *pgerr.Error
	var shown *credentialError
	switch {
	case errors.As(err, &said):
		return l.explainRefusal(err, said)
	case errors.As(err, &shown):
		return ofSecret, pgerr.New(pgerr.InvalidAuthorization, "could not log in to shard %q as role %q", l.spec.Name, l.role.user).
			WithDetail("%s", sentence(err))
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %v", l.shard.pools.config.ConnectTimeout)
	}
	return ofServer, l.unreached(pgerr.ConnectionFailure, err)
}

// byRoleLimit is the server's function that says that a role has too many connections; the code alone does not tell it from a
// server that is full.
const byRoleLimit = "InitializeSessionUserId"

func (l *login) explainRefusal(err error, said *pgerr.Error) (fault, *pgerr.Error) {
	var refused *refusal
	switch code := said.Code; {
	case strings.HasPrefix(code, "28"), code == pgerr.InvalidCatalogName, code == pgerr.InsufficientPrivilege:
		return ofSecret, l.passedOn(said)
	case code == pgerr.TooManyConnections:
		if errors.As(err, &refused) && refused.routine == byRoleLimit {
			return ofRoleLimit, l.passedOn(said)
		}
		return ofServer, l.passedOn(said)
	case code == pgerr.CannotConnectNow, code == pgerr.AdminShutdown, code == pgerr.CrashShutdown:
		return ofServer, l.unreached(pgerr.CannotConnectNow, said)
	case strings.HasPrefix(code, "CL"): // what our own schema on the shard says means something to whoever asks
		return ofServer, l.passedOn(said)
	}
	return ofServer, l.unreached(pgerr.ConnectionFailure, said)
}

// passedOn is what was said, with where.
func (l *login) passedOn(said *pgerr.Error) *pgerr.Error {
	where := fmt.Sprintf("The router was logging in to shard %q at %s as role %q.", l.spec.Name, l.spec.Primary.Address, l.role.user)
	passed := said.WithDetail("%s", strings.TrimSpace(said.Detail+" "+where))
	passed.Severity = pgerr.SeverityError
	return passed
}

func (l *login) unreached(code string, err error) *pgerr.Error {
	return pgerr.New(code, "shard %q cannot be reached", l.spec.Name).
		WithDetail("The login to %s as role %q failed: %s", l.spec.Primary.Address, l.role.user, sentence(err)).
		WithHint("See whether the server runs, and what its log says.")
}

// nothingToShow is about a server that asks for a password of a role that the router has none for.
func (l *login) nothingToShow() *pgerr.Error {
	failure := pgerr.New(pgerr.InvalidAuthorization, "shard %q asks for a password of role %q", l.spec.Name, l.role.user)
	if l.identity.Service {
		return failure.WithDetail("No password of the service role is configured.").
			WithHint("Say where it is: password = file:/path or env:NAME.")
	}
	return failure.WithDetail("The router let this role in without a password, and so has none to show to the shard.").
		WithHint("Give the role a SCRAM verifier and log in with its password, or let the shard trust the router for this role in pg_hba.conf.")
}

// unreachable is what those hear for whom there is nothing to wait for because of the breaker.
func (s *shardPool) unreachable(b *breaker, now time.Time) *pgerr.Error {
	next := "An attempt is under way."
	if wait := b.until.Sub(now); wait > 0 {
		next = fmt.Sprintf("The next attempt is in %v.", wait.Round(time.Millisecond))
	}
	return b.cause.WithDetail("%s", strings.TrimSpace(b.cause.Detail+" "+next))
}

// sentence makes a sentence of an error.
func sentence(err error) string {
	return strings.TrimRight(err.Error(), ".") + "."
}

// isReset says whether the other side is simply gone.
func isReset(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// sameKeys says whether both prove the same.
func sameKeys(a, b *auth.Keys) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Iterations == b.Iterations && bytes.Equal(a.Salt, b.Salt) && bytes.Equal(a.ClientKey, b.ClientKey)
}
