package saga

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// State is how a saga stands.
type State string

// The states. Those from [Completed] on are ends.
const (
	// Running sagas do their steps.
	Running State = "running"
	// Compensating sagas undo what they have done.
	Compensating State = "compensating"
	// Stuck sagas have a compensation that did not succeed, and wait for a person: [Retry] or [Abandon].
	Stuck State = "stuck"
	// Completed sagas have done all their steps.
	Completed State = "completed"
	// Compensated sagas have undone all that they had done.
	Compensated State = "compensated"
	// Abandoned sagas were given up by a person, who left a note.
	Abandoned State = "abandoned"
)

// States lists all states.
func States() []State {
	return []State{Running, Compensating, Stuck, Completed, Compensated, Abandoned}
}

// Ended says whether nothing will happen to the saga any more.
func (s State) Ended() bool { return s == Completed || s == Compensated || s == Abandoned }

// Direction says whether a step is done or undone.
type Direction string

// The directions.
const (
	Do   Direction = "do"
	Undo Direction = "undo"
)

// direction is what sagas of the state do.
func (s State) direction() Direction {
	if s == Running {
		return Do
	}
	return Undo
}

const (
	// MaxPayload is how long a saga's input, or the result of a step, may be as JSON, in bytes.
	MaxPayload = 256 << 10
	// MaxSteps is how many steps a type may have.
	MaxSteps = 100
	// MaxIdempotencyKey is how long an idempotency key may be, in bytes.
	MaxIdempotencyKey = 200
	// maxError is how much of an error is kept.
	maxError = 4 << 10
)

// Type is a kind of saga: a name, and what is to be done in which order. A running program may meet sagas that another version
// of it has started: names of types and steps must therefore keep their meaning. Steps may be added and removed; a saga that is at a step which
// a program does not have is left to others.
type Type struct {
	Name  string
	Steps []Step
}

// Step is one step of a saga.
type Step struct {
	// Name is unique within the type. It is a part of the idempotency key of outside calls.
	Name string
	// Do is what the step does.
	Do Action
	// Undo compensates it. None: there is nothing to undo. It can be called for an outside step of which nobody knows whether it was
	// done; [Call.Result] then says that there is no result.
	Undo Action
	// Policy says how often Do is tried and how long it may take, UndoPolicy the same for Undo.
	Policy, UndoPolicy Policy
}

// Action is what a step does in one direction. Make one with [SQL] or [Outside].
type Action struct {
	sql     func(context.Context, pgx.Tx, *Call) (any, error)
	outside func(context.Context, *Call) (any, error)
}

// SQL is an action in the database. The function's statements and the saga's progress are committed together, so it happens exactly
// once. The transaction is READ COMMITTED and not the function's to end; it is ended by the server if nothing is said to it for as long as
// a lease lasts. To be local to one shard, statements keep to rows of the saga's key and to reference tables.
//
// The result is kept as JSON, for the steps that follow.
func SQL(f func(ctx context.Context, tx pgx.Tx, call *Call) (result any, err error)) Action {
	return Action{sql: f}
}

// Outside is an action elsewhere: a call of another service. It is called again if it fails or if nobody knows how it ended, always with
// the same [Call.IdempotencyKey], by which the service must know that it is the same. The function must return when its context ends.
//
// The result is kept as JSON, for the steps that follow.
func Outside(f func(ctx context.Context, call *Call) (result any, err error)) Action {
	return Action{outside: f}
}

func (a Action) none() bool { return a.sql == nil && a.outside == nil }

// Unlimited attempts are for steps behind the point of no return: they are tried until they succeed, or fail with a [Permanent] error.
const Unlimited = -1

// Policy says how often an action is tried and how long it may take. Between attempts it waits, twice as long each time, up to a limit; of each
// time a random part, at most half, is left out, so that sagas that failed together do not come back together.
type Policy struct {
	// MaxAttempts is how often it is tried; an attempt that was cut off counts. Default: 10. [Unlimited]: until it succeeds.
	MaxAttempts int
	// Timeout is how long an attempt may take. Default: 1 minute.
	Timeout time.Duration
	// MinDelay is how long it waits after the first attempt. Default: half a second.
	MinDelay time.Duration
	// MaxDelay is how long it waits at most. Default: 1 minute, or MinDelay if that is longer.
	MaxDelay time.Duration
}

func (p Policy) withDefaults() Policy {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = 10
	}
	if p.Timeout == 0 {
		p.Timeout = time.Minute
	}
	if p.MinDelay == 0 {
		p.MinDelay = 500 * time.Millisecond
	}
	if p.MaxDelay == 0 {
		p.MaxDelay = max(time.Minute, p.MinDelay)
	}
	return p
}

func (p Policy) check() error {
	switch {
	case p.MaxAttempts < Unlimited:
		return fmt.Errorf("%d attempts make no sense", p.MaxAttempts)
	case p.Timeout < 0 || p.MinDelay < 0 || p.MaxDelay < p.MinDelay:
		return fmt.Errorf("a time-out of %v, and delays from %v to %v, make no sense", p.Timeout, p.MinDelay, p.MaxDelay)
	}
	return nil
}

// exhausted says whether so many attempts are all there are.
func (p Policy) exhausted(attempts int) bool {
	return p.MaxAttempts != Unlimited && attempts >= p.MaxAttempts
}

// delay is how long to wait after so many attempts.
func (p Policy) delay(attempts int) time.Duration {
	whole := p.MinDelay
	for i := 1; i < attempts && whole < p.MaxDelay; i++ {
		whole *= 2
	}
	whole = min(whole, p.MaxDelay)
	return whole - rand.N(whole/2+1) //nolint:gosec // it is no secret
}

// Permanent marks an error after which trying again is pointless: it was not done, by no attempt, and never will be. The saga compensates at once, without
// undoing this step; in a compensation it is stuck at once. Permanent of nil is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent says whether the error, or one inside it, was marked by [Permanent].
func IsPermanent(err error) bool {
	var marked *permanentError
	return errors.As(err, &marked)
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func checkName(what, text string) error {
	if !name.MatchString(text) {
		return fmt.Errorf("%s %q: a name has 1 to 63 letters, digits, dots, hyphens and underscores, and begins with a letter or digit", what, text)
	}
	return nil
}

// filled returns the type with its defaults, or why it cannot be used.
func (t Type) filled() (Type, error) {
	if err := checkName("saga type", t.Name); err != nil {
		return t, err
	}
	if len(t.Steps) == 0 || len(t.Steps) > MaxSteps {
		return t, fmt.Errorf("saga type %q has %d steps: there must be 1 to %d", t.Name, len(t.Steps), MaxSteps)
	}
	t.Steps = slices.Clone(t.Steps)
	seen := map[string]bool{}
	for i := range t.Steps {
		s := &t.Steps[i]
		if err := s.fill(); err != nil {
			return t, fmt.Errorf("saga type %q: %w", t.Name, err)
		}
		if seen[s.Name] {
			return t, fmt.Errorf("saga type %q has two steps named %q", t.Name, s.Name)
		}
		seen[s.Name] = true
	}
	return t, nil
}

func (s *Step) fill() error {
	if err := checkName("step", s.Name); err != nil {
		return err
	}
	if s.Do.none() {
		return fmt.Errorf("step %q does nothing: make its Do with SQL or Outside", s.Name)
	}
	s.Policy, s.UndoPolicy = s.Policy.withDefaults(), s.UndoPolicy.withDefaults()
	if err := errors.Join(s.Policy.check(), s.UndoPolicy.check()); err != nil {
		return fmt.Errorf("step %q: %w", s.Name, err)
	}
	return nil
}

// step finds a step by its name.
func (t *Type) step(name string) (index int, found bool) {
	index = slices.IndexFunc(t.Steps, func(s Step) bool { return s.Name == name })
	return index, index >= 0
}

// in is what the step does in a direction, and how often.
func (s *Step) in(d Direction) (Action, Policy) {
	if d == Do {
		return s.Do, s.Policy
	}
	return s.Undo, s.UndoPolicy
}
