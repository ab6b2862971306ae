package saga

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// errLost says that the saga is not this runner's any more: somebody else has it, or a person took it.
	errLost = errors.New("the lease of the saga was lost")
	// errStopped says that the runner was to stop and a step took too long.
	errStopped = errors.New("the runner was stopped")
	// errTooLong says that an attempt took longer than it may.
	errTooLong = errors.New("it took too long")
	// errNotMoved says that a SQL step's transaction could not move the saga on, and was rolled back.
	errNotMoved = errors.New("the saga is not where it was")
)

// Points at which a process may die, for the tests that have it die there. DESIGN.md has their lines.
const (
	pointTaken    = "taken"     // S3
	pointRan      = "ran"       // S4, S13: the statements of a SQL step
	pointWritten  = "written"   // S5: the progress of a SQL step
	pointAnswered = "answered"  // S9: an outside step
	pointDone     = "done"      // S6, S10, S14, S16, S18: progress is there
	pointFailed   = "failed"    // S11
	pointTurned   = "turned"    // S12
	pointGivenUp  = "given up"  // S17
	pointToCommit = "to commit" // S21
)

// drive takes a saga and runs its steps until it ends, has to wait, is lost, or the runner is to stop. What runs goes on while work does.
func (r *Runner) drive(stop, work context.Context, c candidate) {
	taking, cancel := context.WithTimeout(work, statementTimeout)
	h, err := take(taking, r.config.Pool, c, r.types[c.kind], r.config.Name, r.config.Lease)
	cancel()
	if err != nil {
		r.config.Logger.Warn("a saga could not be taken", "saga", c.id, "type", c.kind, "error", err)
		return
	}
	if h == nil {
		return
	}
	r.at(pointTaken, h.step, h.state.direction())
	for goesOn := true; goesOn; {
		if stop.Err() != nil || !h.isKnown() {
			r.release(work, h, false)
			return
		}
		if goesOn, err = r.step(work, h); err != nil {
			r.config.Logger.Warn("a saga could not be gone on with", "saga", h.id, "type", h.kind.Name, "step", h.step, "error", err)
			return
		}
	}
}

// isKnown says whether the step that the saga is at can be run by this program.
func (h *held) isKnown() bool {
	at, found := h.kind.step(h.step)
	if !found {
		return false
	}
	action, _ := h.kind.Steps[at].in(h.state.direction())
	return !action.none()
}

// step makes one attempt at the step that the saga is at, and writes down what came of it. It says whether the saga goes on at once.
func (r *Runner) step(work context.Context, h *held) (goesOn bool, err error) {
	at, _ := h.kind.step(h.step)
	name, d := h.step, h.state.direction()
	action, policy := h.kind.Steps[at].in(d)
	if policy.exhausted(h.attempts) { // by attempts that were cut off
		return r.failed(work, h, policy, failure{err: errors.New(h.lastError), attempts: h.attempts, inDoubt: action.outside != nil})
	}
	r.enter(h)
	defer r.leave(h)
	k := r.keep(work, h)
	if action.sql != nil {
		err = r.runSQL(k, h, action, policy)
	} else {
		err = r.runOutside(k, h, action, policy)
	}
	cause := context.Cause(k.ctx)
	k.end()
	var unkept *unkeptError
	switch {
	case err == nil:
		r.at(pointDone, name, d)
		return !h.state.Ended(), nil
	case errors.Is(err, errLost) || errors.Is(cause, errLost):
		return false, err
	case errors.Is(err, errNotMoved):
		return r.reread(work, h)
	case errors.Is(cause, errStopped):
		r.release(work, h, true)
		return false, nil
	case errors.As(err, &unkept):
		return r.failed(work, h, policy, failure{err: err, attempts: h.attempts + 1, forGood: true, inDoubt: action.outside != nil})
	default:
		permanent := IsPermanent(err)
		return r.failed(work, h, policy, failure{err: err, attempts: h.attempts + 1, forGood: permanent, inDoubt: action.outside != nil && !permanent})
	}
}

// failure is what came of an attempt that did not succeed.
type failure struct {
	err error
	// attempts is how many there were, this one too.
	attempts int
	// forGood says that there is no point in trying again, inDoubt that it may have been done.
	forGood, inDoubt bool
}

// failed writes a failure down: the step is tried again later, or the saga compensates, or is stuck.
func (r *Runner) failed(work context.Context, h *held, policy Policy, f failure) (goesOn bool, err error) {
	name, d := h.step, h.state.direction()
	r.at(pointFailed, name, d)
	log := r.config.Logger.With("saga", h.id, "type", h.kind.Name, "step", name, "direction", d, "attempts", f.attempts, "error", f.err)
	why := errorText(f.err)
	var moved bool
	switch {
	case !f.forGood && !policy.exhausted(f.attempts):
		delay := policy.delay(f.attempts)
		log.Info("a step of a saga failed and is tried again", "after", delay)
		moved, err = r.write(work, h, func(ctx context.Context) (bool, error) { return h.later(ctx, r.config.Pool, why, delay) })
		if moved {
			r.at(pointGivenUp, name, d)
			r.soon(delay)
			return false, nil
		}
	case h.state == Running:
		log.Warn("a step of a saga failed for good: it compensates", "in_doubt", f.inDoubt)
		steps := h.steps
		if f.inDoubt {
			steps = append(steps, record{name: h.step, state: stepInDoubt})
		}
		next := nextUndo(h.kind, steps)
		moved, err = r.write(work, h, func(ctx context.Context) (bool, error) {
			return h.turn(ctx, r.config.Pool, next, r.config.Lease, why, f.inDoubt, f.attempts)
		})
		if moved {
			h.steps = steps
			h.moveTo(next)
			r.at(pointTurned, name, d)
		}
	default:
		log.Error("a saga is stuck: a compensation failed for good")
		moved, err = r.write(work, h, func(ctx context.Context) (bool, error) { return h.stick(ctx, r.config.Pool, why, f.attempts) })
		if moved {
			return false, nil
		}
	}
	return err == nil && !h.state.Ended(), err
}

// moveTo is what a write that moves the saga on does to what is known of it.
func (h *held) moveTo(p place) { h.state, h.step, h.attempts = p.state, p.step, 0 }

// advance is what a write of [held.done] or [held.undone] does to what is known of the saga.
func (h *held) advance(next place, result string) {
	if h.state == Running {
		h.steps = append(h.steps, record{h.step, stepDone, []byte(result)})
	} else {
		h.steps = compensated(h.steps, h.step)
	}
	h.moveTo(next)
}

// compensated returns the steps with one of them undone.
func compensated(steps []record, name string) []record {
	changed := make([]record, len(steps))
	copy(changed, steps)
	for i := range changed {
		if changed[i].name == name {
			changed[i].state = stepCompensated
		}
	}
	return changed
}

// next is where the saga goes on when the step that it is at has succeeded, in its direction.
func (h *held) next() place {
	if h.state == Running {
		return h.afterDone()
	}
	return nextUndo(h.kind, compensated(h.steps, h.step))
}

// succeed writes that the step has succeeded, as a part of a transaction or by itself.
func (h *held) succeed(ctx context.Context, db execer, next place, lease time.Duration, result string) (bool, error) {
	if h.state == Running {
		return h.done(ctx, db, next, lease, result)
	}
	return h.undone(ctx, db, next, lease, result)
}

// retryPause is how long a write waits before it is said again.
const retryPause = 100 * time.Millisecond

// write says something until an answer is heard, for as long as the lease may last. If nothing was changed, it was said and heard before, or the saga is somebody
// else's: it is read again, and the error is nil if it is still this runner's.
func (r *Runner) write(work context.Context, h *held, say func(context.Context) (bool, error)) (moved bool, err error) {
	for deadline := time.Now().Add(r.config.Lease); ; {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(work), statementTimeout)
		if moved, err = say(ctx); err == nil && !moved {
			err = h.refresh(ctx, r.config.Pool)
		}
		cancel()
		if err == nil || errors.Is(err, errLost) || isUnkeepable(err) || !time.Now().Before(deadline) {
			return moved, err
		}
		select {
		case <-work.Done():
			return moved, err
		case <-time.After(retryPause):
		}
	}
}

// isUnkeepable says that the server does not take a value: data exceptions and broken constraints.
func isUnkeepable(err error) bool {
	code := sqlState(err)
	return strings.HasPrefix(code, "22") || strings.HasPrefix(code, "23")
}

// reread goes on from what the rows say.
func (r *Runner) reread(work context.Context, h *held) (goesOn bool, err error) {
	_, err = r.write(work, h, func(context.Context) (bool, error) { return false, nil })
	return err == nil && !h.state.Ended(), err
}

// release gives the saga up for others. If that does not arrive, its lease runs out.
func (r *Runner) release(work context.Context, h *held, cutOff bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), statementTimeout)
	defer cancel()
	if _, err := h.release(ctx, r.config.Pool, cutOff); err != nil {
		r.config.Logger.Warn("a saga could not be given up: others wait until its lease has run out", "saga", h.id, "error", err)
	}
}

// errorText is what is kept of an error.
func errorText(err error) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "?"), "\x00", "?")
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + "…"
	}
	return text
}

// unkeptError says that a step was done but its result cannot be kept.
type unkeptError struct{ error }

func (e *unkeptError) Unwrap() error { return e.error }

// tooLong adds to the error of an attempt that it took too long, if so.
func tooLong(ctx context.Context, limit time.Duration, err error) error {
	if errors.Is(context.Cause(ctx), errTooLong) {
		return fmt.Errorf("%w, more than %v: %w", errTooLong, limit, err)
	}
	return err
}
