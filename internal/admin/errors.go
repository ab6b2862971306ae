package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// refusal is an error that knows how it is answered.
type refusal struct {
	status int
	answer api.Error
}

func (r *refusal) Error() string { return r.answer.Message }

func (r *refusal) withHint(hint string) *refusal {
	r.answer.Hint = hint
	return r
}

func refuse(status int, code, message string) *refusal {
	return &refusal{status: status, answer: api.Error{Code: code, Message: message}}
}

func invalid(message string) *refusal { return refuse(http.StatusBadRequest, api.CodeInvalid, message) }

func unauthenticated() *refusal {
	return refuse(http.StatusUnauthorized, api.CodeUnauthenticated, "the token is missing or wrong").
		withHint("Send the header Authorization: Bearer TOKEN; 'cleave' takes it from CLEAVE_API_TOKEN or --api-token-file.")
}

func noSuchPath(path string) *refusal {
	return refuse(http.StatusNotFound, api.CodeNotFound, "there is nothing at "+quote(path)).
		withHint("/v1/openapi.yaml describes what there is.")
}

func methodNotAllowed(method string, allowed []string) *refusal {
	return refuse(http.StatusMethodNotAllowed, api.CodeMethod, fmt.Sprintf("%s cannot be done here: use %s", quote(method), strings.Join(allowed, ", ")))
}

// otherVersion answers who expected another version of the map to be in force.
func otherVersion(message string) *refusal {
	return refuse(http.StatusPreconditionFailed, api.CodeConflict, message).withHint(lookAgain)
}

// notReady answers who asks whether work may be sent here, and why not.
func notReady(err error) *refusal {
	if errors.Is(err, store.ErrNoMap) {
		return refuse(http.StatusServiceUnavailable, api.CodeUnavailable, "not ready: "+store.ErrNoMap.Error()).withHint(getAMap)
	}
	return refuse(http.StatusServiceUnavailable, api.CodeUnavailable, "not ready: "+err.Error())
}

// Hints that several answers have.
const (
	getAMap   = "A new cluster: 'cleave map create'. One that had a map: 'cleave map import FILE' or 'cleave map rebuild --shard host:port'."
	lookAgain = "Somebody else was faster: look again, and decide again."
)

// quote shows what a stranger sent: bounded, and with no byte that a terminal would obey.
func quote(text string) string {
	const enough = 200
	if len(text) > enough {
		text = text[:enough] + "…"
	}
	return strconv.QuoteToASCII(text)
}

// kinds are the errors that have an answer of their own, by what they are. The first that fits counts.
var kinds = []struct {
	is     func(error) bool
	status int
	code   string
	hint   string
}{
	{has[*topology.NotFoundError], http.StatusNotFound, api.CodeNotFound, ""},
	{has[*topology.ExistsError], http.StatusConflict, api.CodeExists, ""},
	{is(store.ErrExists), http.StatusConflict, api.CodeExists, ""},
	{has[*topology.InUseError], http.StatusConflict, api.CodeInUse, ""},
	{has[*topology.NewerSchemaError], http.StatusConflict, api.CodeNewerSchema, "Ask a process of the newer version, or upgrade this one."},
	{is(store.ErrNoMap), http.StatusConflict, api.CodeNoMap, getAMap},
	{is(topology.ErrNoActiveShard), http.StatusUnprocessableEntity, api.CodeRefused, "Add a shard first: 'cleave shard add NAME --address host:port'."},
	{has[*store.StaleError], http.StatusConflict, api.CodeConflict, lookAgain},
	{is(store.ErrConflict), http.StatusConflict, api.CodeConflict, lookAgain},
	{is(store.ErrOutcomeUnknown), http.StatusServiceUnavailable, api.CodeUnavailable, "Look before you ask again: the change may have been made."},
	{is(store.ErrUnavailable), http.StatusServiceUnavailable, api.CodeUnavailable, "Nothing was changed. Look at the members of etcd, and try again."},
	{is(context.DeadlineExceeded), http.StatusGatewayTimeout, api.CodeTimeout, "Look before you ask again: the change may have been made."},
	{is(context.Canceled), http.StatusServiceUnavailable, api.CodeUnavailable, "The process is ending: ask another one."},
}

func has[E error](err error) bool {
	var found E
	return errors.As(err, &found)
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// translate finds the answer for an error.
func translate(err error) *refusal {
	var known *refusal
	var refused *control.RefusedError
	var mistake *control.InvalidError
	var forClient *pgerr.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &refused):
		r := refuse(http.StatusUnprocessableEntity, api.CodeRefused, err.Error())
		r.answer.Findings = refused.Findings
		return r
	case errors.As(err, &mistake):
		return invalid(err.Error()).withHint(mistake.Hint)
	case errors.As(err, &forClient):
		return translateSQL(forClient)
	}
	for _, kind := range kinds {
		if kind.is(err) {
			return refuse(kind.status, kind.code, err.Error()).withHint(kind.hint)
		}
	}
	return refuse(http.StatusInternalServerError, api.CodeInternal, err.Error())
}

// sqlKinds are the answers for errors that a client of PostgreSQL would get, by their SQLSTATE.
var sqlKinds = map[string]struct {
	status int
	code   string
}{
	pgerr.UndefinedTable:          {http.StatusNotFound, api.CodeNotFound},
	pgerr.UndefinedObject:         {http.StatusNotFound, api.CodeNotFound},
	pgerr.InvalidParameterValue:   {http.StatusBadRequest, api.CodeInvalid},
	pgerr.UndefinedColumn:         {http.StatusBadRequest, api.CodeInvalid},
	pgerr.InsufficientPrivilege:   {http.StatusForbidden, api.CodeForbidden},
	pgerr.ObjectNotInPrerequisite: {http.StatusConflict, api.CodeConflict},
	pgerr.LockNotAvailable:        {http.StatusConflict, api.CodeConflict},
	pgerr.ObjectInUse:             {http.StatusConflict, api.CodeInUse},
	pgerr.SyntaxError:             {http.StatusBadRequest, api.CodeInvalid},
	pgerr.ConnectionFailure:       {http.StatusServiceUnavailable, api.CodeUnavailable},
}

// translateSQL answers with an error that was made for a client of PostgreSQL.
func translateSQL(e *pgerr.Error) *refusal {
	r := refuse(http.StatusUnprocessableEntity, api.CodeRefused, e.Message)
	if kind, known := sqlKinds[e.Code]; known {
		r = refuse(kind.status, kind.code, e.Message)
	}
	r.answer.Detail, r.answer.Hint, r.answer.SQLState = e.Detail, e.Hint, e.Code
	return r
}

// answerError answers with an error, in the one form that all have.
func (s *Server) answerError(w http.ResponseWriter, r *http.Request, err error) {
	refused := translate(err)
	if refused.status == http.StatusInternalServerError {
		s.config.Logger.ErrorContext(r.Context(), "a request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	if refused.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="cleave"`)
	}
	_ = reply(w, refused.status, api.ErrorBody{Error: refused.answer}) // it is plain text and always encodes
}
