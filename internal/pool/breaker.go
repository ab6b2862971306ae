package pool

import (
	"math/rand/v2"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// BreakerState is whether logins are attempted.
type BreakerState string

// The states of a breaker.
const (
	// Closed: logins are attempted as they are needed.
	Closed BreakerState = "closed"
	// Open: the last login failed, and the next attempt is not due.
	Open BreakerState = "open"
	// HalfOpen: one attempt is under way, or due, that decides.
	HalfOpen BreakerState = "half-open"
)

// How long after a failed login the next one is attempted.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// breaker holds logins back that would fail. Its methods are called with the shard's mutex held.
type breaker struct {
	failures int // in a row; 0 means closed
	openedAt time.Time
	until    time.Time // no attempt before
	probing  bool      // the one attempt is under way
	cause    *pgerr.Error
}

// allows says whether a login may begin.
func (b *breaker) allows(now time.Time) bool {
	return b.failures == 0 || !b.probing && !now.Before(b.until)
}

// begin is told of every login that begins.
func (b *breaker) begin() { b.probing = b.failures > 0 }

// failed opens it, for twice as long as before. A login that began before it opened tells nothing new.
func (b *breaker) failed(began, now time.Time, cause *pgerr.Error) {
	b.cause = cause
	if b.failures > 0 && began.Before(b.openedAt) {
		return
	}
	pause := min(firstPause<<min(b.failures, 10), lastPause)
	b.failures++
	b.probing, b.openedAt, b.until = false, now, now.Add(jitter(pause))
}

// succeeded closes it: a server that answers can be reached, even if the answer is no.
func (b *breaker) succeeded() { *b = breaker{} }

// isForgettable says whether nothing is lost with it. The failures are kept for longer than they hold logins back, so that one who
// comes again after every pause has to wait for longer each time.
func (b *breaker) isForgettable(now time.Time) bool {
	return b.failures == 0 || !b.probing && now.Sub(b.until) > lastPause
}

// undecided is told of a login that failed for a reason that is another breaker's business.
func (b *breaker) undecided() { b.probing = false }

// hurry makes the next attempt due now, because something has changed.
func (b *breaker) hurry() { b.until = time.Time{} }

func (b *breaker) state(now time.Time) BreakerState {
	switch {
	case b.failures == 0:
		return Closed
	case b.probing || !now.Before(b.until):
		return HalfOpen
	}
	return Open
}

// jitter changes a duration by up to a tenth in either direction.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*rand.Float64()))
}

// bucket holds as many logins as may begin at once, and fills up again by so many a second.
type bucket struct {
	perSecond float64
	tokens    float64
	filled    time.Time
}

func newBucket(perSecond int, now time.Time) bucket {
	return bucket{perSecond: float64(perSecond), tokens: float64(perSecond), filled: now}
}

// next returns when there is one to take, which may be now.
func (b *bucket) next(now time.Time) time.Time {
	if passed := now.Sub(b.filled); passed > 0 {
		b.tokens = min(b.tokens+passed.Seconds()*b.perSecond, b.perSecond)
		b.filled = now
	}
	if b.tokens >= 1 {
		return now
	}
	missing := (1 - b.tokens) / b.perSecond
	return now.Add(time.Duration(missing*float64(time.Second)) + time.Millisecond) // a little more than exact arithmetic asks for
}

// take takes one.
func (b *bucket) take() { b.tokens-- }
