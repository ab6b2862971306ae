package pool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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
	ofRoleAlone              // the role's limit, or what is set for it there: it will not get in for a while, others need not care
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

// greetingError says that the server had let the role in, and its first statement failed.
type greetingError struct{ error }

func (e *greetingError) Unwrap() error { return e.error }

// explain turns the error of a failed login into what those hear who waited for it.
func (l *login) explain(err error) (fault, *pgerr.Error) {
	var said *pgerr.Error
	var shown *credentialError
	if errors.As(err, &said) {
		return l.faultOf(err, said), l.explainRefusal(said)
	}
	if errors.As(err, &shown) {
		return ofSecret, pgerr.New(pgerr.InvalidAuthorization, "could not log in to shard %q as role %q", l.spec.Name, l.role.user).
			WithDetail("%s", sentence(err))
	}
	whose := ofServer
	if concernsGreeting(err) {
		whose = ofRoleAlone
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %v", l.shard.pools.config.ConnectTimeout)
	}
	if whose == ofRoleAlone {
		return whose, l.notLetIn(sentence(err))
	}
	return whose, l.unreached(pgerr.ConnectionFailure, err)
}

// concernsGreeting says whether a role can have caused, by what is set for it, that its first statement was not answered well: it
// took too long, or the answer makes no sense. That the server hangs up it cannot.
func concernsGreeting(err error) bool {
	var greeting *greetingError
	if !errors.As(err, &greeting) {
		return false
	}
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &network) && !isReset(err)
}

// byRoleLimit is the server's function that says that a role has too many connections; the code alone does not tell it from a
// server that is full.
const byRoleLimit = "InitializeSessionUserId"

// faultOf says who is concerned by the server's refusal. Only what cannot be the role's doing concerns everybody: what a role
// sets for itself (ALTER ROLE … SET) takes effect during the login and can make it fail with almost any code.
func (l *login) faultOf(err error, said *pgerr.Error) fault {
	var refused *refusal
	switch code := said.Code; {
	case refusesRole(code):
		return ofSecret
	case code == pgerr.TooManyConnections && errors.As(err, &refused) && refused.routine == byRoleLimit:
		return ofRoleAlone
	case isGoingDown(code), strings.HasPrefix(code, "08"), strings.HasPrefix(code, "53"), code == pgerr.OldMap:
		return ofServer
	}
	return ofRoleAlone
}

// refusesRole says whether it is about who logs in, and not about how the login went on.
func refusesRole(code string) bool {
	return strings.HasPrefix(code, "28") || code == pgerr.InvalidCatalogName || code == pgerr.InsufficientPrivilege
}

// isGoingDown says whether the server starts up, shuts down or crashes.
func isGoingDown(code string) bool {
	return code == pgerr.CannotConnectNow || code == pgerr.AdminShutdown || code == pgerr.CrashShutdown
}

// explainRefusal is what a client hears of the server's refusal.
func (l *login) explainRefusal(said *pgerr.Error) *pgerr.Error {
	switch code := said.Code; {
	case refusesRole(code), code == pgerr.TooManyConnections:
		return l.passedOn(said)
	case strings.HasPrefix(code, "CL"): // what our own schema on the shard says means something to whoever asks
		return l.passedOn(said)
	case isGoingDown(code):
		unreached := l.unreached(pgerr.CannotConnectNow, said)
		if said.Hint != "" {
			unreached = unreached.WithHint("%s", said.Hint)
		}
		return unreached
	case strings.HasPrefix(code, "08"), strings.HasPrefix(code, "53"):
		return l.unreached(pgerr.ConnectionFailure, said)
	}
	return l.notLetIn(sentence(said))
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

// notLetIn is about a server that works, and the role's login does not. The server's own code would be taken for one of the
// client's statement.
func (l *login) notLetIn(reason string) *pgerr.Error {
	return pgerr.New(pgerr.ConnectionFailure, "could not log in to shard %q as role %q", l.spec.Name, l.role.user).
		WithDetail("The login to %s failed: %s", l.spec.Primary.Address, reason).
		WithHint("See what ALTER ROLE … SET has set for the role on that server, and what its log says.")
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
