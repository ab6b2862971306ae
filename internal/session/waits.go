package session

import (
	"context"
	"strconv"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// A statement may wait for others in the router, where no server sees it: for those who use a table that it changes, for those who change
// a table that it uses, for rows that move. Such a wait ends as one for a lock of PostgreSQL's does: when the client cancels it, and when
// the session's lock_timeout or statement_timeout says so.

var (
	errCancelled   = pgerr.New(pgerr.QueryCanceled, "canceling statement due to user request")
	errLockTimeout = pgerr.New(pgerr.LockNotAvailable, "canceling statement due to lock timeout")
	errTimeout     = pgerr.New(pgerr.QueryCanceled, "canceling statement due to statement timeout")
)

// lockContext ends when the client does not want to wait any longer. Its ending has to be called before anything else is done.
func (s *session) lockContext() (ctx context.Context, end func(), refused *pgerr.Error) {
	limit, exceeded, refused := s.lockLimit()
	if refused != nil {
		return nil, nil, refused
	}
	ctx, cancel := s.waitContext(), func() {}
	if limit > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, limit, exceeded)
	}
	return ctx, func() { cancel(); s.waited() }, nil
}

// lockLimit is how long the client's settings let a statement wait for a lock, and what it is told then; 0: for ever.
func (s *session) lockLimit() (limit time.Duration, exceeded, refused *pgerr.Error) {
	const settings = "SELECT setting FROM pg_catalog.pg_settings WHERE name IN ('lock_timeout', 'statement_timeout') ORDER BY name"
	a, refused := s.askShard(s.home(), func() (answer, error) { return s.ask(settings) })
	switch {
	case refused != nil:
		return 0, nil, refused
	case a.failure != nil:
		return 0, nil, a.failure.PGError()
	}
	reasons := []*pgerr.Error{errLockTimeout, errTimeout}
	for i, row := range a.rows {
		milliseconds, err := strconv.ParseInt(row[0], 10, 64)
		if err != nil || i >= len(reasons) {
			return 0, nil, pgerr.New(pgerr.InternalError, "a shard did not say how long a statement may wait")
		}
		if of := time.Duration(milliseconds) * time.Millisecond; of > 0 && (limit == 0 || of < limit) {
			limit, exceeded = of, reasons[i]
		}
	}
	return limit, exceeded, nil
}

// interrupted is what a client is told whose wait was ended by itself or its settings; nil: by something else.
func (s *session) interrupted(ctx context.Context) *pgerr.Error {
	cause := context.Cause(ctx)
	if refused := refusalIn(cause); refused != nil {
		return refused
	}
	if cause == context.Canceled && s.ctx.Err() == nil { //nolint:errorlint // it is that very value
		s.cancelled.Store(false)
		return errCancelled
	}
	return nil
}
