package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// keeper renews the lease of a saga while a step runs.
type keeper struct {
	// ctx ends when the lease is lost, or the runner has to stop; its cause says which.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// enough ends renewing: the attempt is over, or should be.
	enough func()
	loop   sync.WaitGroup
}

// keep begins to renew the saga's lease. The caller must call end.
func (r *Runner) keep(work context.Context, h *held) *keeper {
	k := &keeper{}
	k.ctx, k.cancel = context.WithCancelCause(work)
	renewing, enough := context.WithCancel(k.ctx)
	k.enough = enough
	k.loop.Go(func() { r.renew(renewing, k.cancel, h) })
	return k
}

// limit returns the context of an attempt. When its time is over, the lease is not renewed any more: a function that does not return keeps
// nobody else from going on.
func (k *keeper) limit(timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(k.ctx, timeout, errTooLong)
	context.AfterFunc(ctx, k.enough)
	return ctx, cancel
}

// end stops renewing, and waits for that.
func (k *keeper) end() {
	k.enough()
	k.loop.Wait()
	k.cancel(nil)
}

// renew renews the lease every third of its time. If somebody else has the saga, or nobody has heard of the renewal for a whole lease, the saga
// is lost.
func (r *Runner) renew(ctx context.Context, lose context.CancelCauseFunc, h *held) {
	ticker := time.NewTicker(r.config.Lease / 3)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		asked := time.Now()
		saying, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.config.Lease/3)
		kept, err := h.renew(saying, r.config.Pool, r.config.Lease)
		cancel()
		switch {
		case err == nil && kept:
			last = asked
		case err == nil:
			lose(errLost)
			return
		case time.Since(last) >= r.config.Lease:
			r.config.Logger.Warn("the lease of a saga could not be renewed", "saga", h.id, "error", err)
			lose(errLost)
			return
		}
	}
}

// runSQL runs a SQL step: its statements and the saga's progress in one transaction.
func (r *Runner) runSQL(k *keeper, h *held, action Action, policy Policy) error {
	select {
	case r.transactions <- struct{}{}:
		defer func() { <-r.transactions }()
	case <-k.ctx.Done():
		return context.Cause(k.ctx)
	}
	ctx, cancel := k.limit(policy.Timeout)
	defer cancel()
	tx, err := r.config.Pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: r.beginSQL()})
	if err != nil {
		return tooLong(ctx, policy.Timeout, err)
	}
	defer r.rollback(tx)
	next, result, err := r.runInside(ctx, tx, h, action)
	if err != nil {
		return tooLong(ctx, policy.Timeout, err)
	}
	r.at(pointToCommit, h.step, h.state.direction())
	if err := tx.Commit(ctx); err != nil {
		return tooLong(ctx, policy.Timeout, fmt.Errorf("commit: %w", err))
	}
	h.advance(next, result)
	return nil
}

// beginSQL begins a transaction that does not keep its locks if this process is stopped or cut off in the middle.
func (r *Runner) beginSQL() string {
	return "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = " + strconv.FormatInt(max(1, r.config.Lease.Milliseconds()), 10)
}

// runInside runs the function's statements and writes the progress.
func (r *Runner) runInside(ctx context.Context, tx pgx.Tx, h *held, action Action) (next place, result string, err error) {
	value, err := r.protect(h, func() (any, error) { return action.sql(ctx, stepTx{tx}, h.call()) })
	if err != nil {
		return next, "", err
	}
	if status := tx.Conn().PgConn().TxStatus(); status != 'T' {
		return next, "", fmt.Errorf("the function returned no error, but its transaction has failed or ended (status %c)", status)
	}
	if result, err = r.encodeResult(h, value); err != nil {
		return next, "", err
	}
	r.at(pointRan, h.step, h.state.direction())
	next = h.next()
	moved, err := h.succeed(ctx, tx, next, r.config.Lease, result)
	if err != nil {
		return next, "", fmt.Errorf("write progress: %w", err)
	}
	if !moved {
		return next, "", errNotMoved
	}
	r.at(pointWritten, h.step, h.state.direction())
	return next, result, nil
}

// rollback ends a transaction that was not committed.
func (r *Runner) rollback(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	_ = tx.Rollback(ctx) // what cannot be said ends with the connection
}

// runOutside calls the function of an outside step, and then writes the progress.
func (r *Runner) runOutside(k *keeper, h *held, action Action, policy Policy) error {
	ctx, cancel := k.limit(policy.Timeout)
	value, err := r.protect(h, func() (any, error) { return action.outside(ctx, h.call()) })
	if err != nil {
		err = tooLong(ctx, policy.Timeout, err)
	}
	cancel()
	if err != nil {
		return err
	}
	result, err := r.encodeResult(h, value)
	if err != nil {
		return err
	}
	r.at(pointAnswered, h.step, h.state.direction())
	next := h.next()
	moved, err := r.write(k.ctx, h, func(ctx context.Context) (bool, error) {
		return h.succeed(ctx, r.config.Pool, next, r.config.Lease, result)
	})
	switch {
	case isUnkeepable(err):
		return &unkeptError{fmt.Errorf("keep the result: %w", err)}
	case err != nil:
		return fmt.Errorf("write progress: %w: %w", errLost, err)
	case moved:
		h.advance(next, result)
	}
	return nil
}

// protect turns a panic into an error: one saga's fault is not the others'.
func (r *Runner) protect(h *held, f func() (any, error)) (result any, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.config.Logger.Error("a step of a saga panicked", "saga", h.id, "type", h.kind.Name, "step", h.step, "panic", p, "stack", string(debug.Stack()))
			result, err = nil, fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

// encodeResult writes a result as JSON. A compensation whose result cannot be kept was done all the same, and goes without.
func (r *Runner) encodeResult(h *held, value any) (string, error) {
	text, err := encode("the result", value)
	if err == nil {
		return text, nil
	}
	if h.state == Running {
		return "", &unkeptError{err}
	}
	r.config.Logger.Warn("the result of a compensation is not kept", "saga", h.id, "type", h.kind.Name, "step", h.step, "error", err)
	return "null", nil
}

// call is what the function of the step is told.
func (h *held) call() *Call {
	d := h.state.direction()
	c := &Call{
		ID: h.id, Type: h.kind.Name, Key: h.key, Step: h.step, Direction: d, Attempt: h.attempts + 1,
		IdempotencyKey: idempotencyKey(h.id, h.step, d), Epoch: h.epoch, input: h.input, results: map[string]json.RawMessage{},
	}
	for _, s := range h.steps {
		if s.result != nil {
			c.results[s.name] = s.result
		}
	}
	return c
}

// stepTx is a transaction that is not the function's to end.
type stepTx struct{ pgx.Tx }

var errNotYours = errors.New("the transaction of a step is ended by the runner, not by the step")

// Commit refuses.
func (stepTx) Commit(context.Context) error { return errNotYours }

// Rollback refuses.
func (stepTx) Rollback(context.Context) error { return errNotYours }
