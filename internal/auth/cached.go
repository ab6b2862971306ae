package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// How long a [Cached] keeps what, and how much of it. That there is no such user counts for as long as what a user is, so
// that a second try costs the same whether the user exists or not.
const (
	defaultTTL = 5 * time.Second
	maxStale   = time.Hour
	maxKnown   = 10_000
	maxUnknown = 10_000
)

// How long a question may take, and how often failures are told.
const (
	answerTimeout = 10 * time.Second
	complainEvery = 10 * time.Second
)

// maxName is the most bytes that a role's name has: nobody needs to be asked for a longer one.
const maxName = 63

// Source asks for a user where it is kept. It returns ErrNoUser if there is none. The name is UTF-8, not empty, and not longer
// than PostgreSQL's names are.
type Source func(ctx context.Context, user string) (*User, error)

// Cached remembers what a source says, so that a burst of logins is not a burst of look-ups, and so that a source that is
// away does not lock everybody out: what it said within the last hour counts until it can be asked again.
//
// A source is asked at most two questions at a time, however many strangers make up names: one about a user that was
// known before, one about any other name. So those who exist do not wait behind those who do not.
type Cached struct {
	source Source
	ttl    time.Duration
	logger *slog.Logger
	now    func() time.Time

	familiar, strange *lane

	mu         sync.Mutex
	known      map[string]knownUser
	unknown    map[string]time.Time // names of nobody, and until when that counts
	asked      map[string]*question
	complained time.Time // when a failure was told last
	untold     int       // failures since then
}

// knownUser is an answer of the source.
type knownUser struct {
	user     *User
	said     time.Time
	askAgain time.Time
}

// question is one that the source is being asked. What it has besides done and lane may be read when done is closed.
type question struct {
	lane      *lane
	done      chan struct{}
	user      *User
	err       error
	abandoned bool // who asked has gone: it says nothing about the user
}

// NewCached returns a cache that asks again after the ttl, 5 seconds if it is 0. The logger, which may be nil, is told when
// the source fails, and not more often than once in some seconds.
func NewCached(source Source, ttl time.Duration, logger *slog.Logger) *Cached {
	if ttl <= 0 {
		ttl = defaultTTL
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Cached{
		source: source, ttl: ttl, logger: logger, now: time.Now, familiar: newLane(), strange: newLane(),
		known: map[string]knownUser{}, unknown: map[string]time.Time{}, asked: map[string]*question{},
	}
}

// Lookup finds a user. Of those who look for the same one at the same time, one asks and the others wait for its answer.
func (c *Cached) Lookup(ctx context.Context, user string) (*User, error) {
	if !canBeName(user) {
		return nil, ErrNoUser
	}
	for {
		found, q, mine := c.begin(user)
		switch {
		case q == nil && found == nil:
			return nil, ErrNoUser
		case q == nil:
			return found, nil
		case mine:
			c.ask(ctx, user, q)
			return q.user, q.err
		}
		select {
		case <-q.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("look up a user: %w", ctx.Err())
		}
		if !q.abandoned {
			return q.user, q.err
		}
	}
}

// canBeName says whether a role can have this name. One for which it cannot be would be an error of the source, and not an
// answer.
func canBeName(user string) bool {
	return user != "" && len(user) <= maxName && utf8.ValidString(user) && !strings.ContainsRune(user, 0)
}

// begin returns what is remembered, or else the question to wait for, which may be the caller's to ask.
func (c *Cached) begin(user string) (found *User, q *question, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if known, ok := c.known[user]; ok && now.Before(known.askAgain) {
		return known.user, nil, false
	}
	if until, ok := c.unknown[user]; ok && now.Before(until) {
		return nil, nil, false
	}
	if q, asked := c.asked[user]; asked {
		return nil, q, false
	}
	q = &question{lane: c.strange, done: make(chan struct{}), abandoned: true}
	if _, familiar := c.known[user]; familiar {
		q.lane = c.familiar
	}
	c.asked[user] = q
	return nil, q, true
}

// ask asks the source and remembers its answer. Whoever waits is released even if the source panics.
func (c *Cached) ask(ctx context.Context, user string, q *question) {
	defer func() {
		c.mu.Lock()
		delete(c.asked, user)
		c.mu.Unlock()
		close(q.done)
	}()
	found, err := c.askInTurn(ctx, user, q.lane)
	switch {
	case errors.Is(err, ErrNoUser) || err == nil && found == nil:
		c.forget(user)
		q.err, q.abandoned = ErrNoUser, false
	case err == nil:
		c.remember(user, found)
		q.user, q.abandoned = found, false
	case errors.Is(ctx.Err(), context.Canceled):
		q.err = fmt.Errorf("look up a user: %w", err)
	default:
		q.user, q.err = c.old(user, err)
		q.abandoned = q.err != nil && ctx.Err() != nil
	}
}

// askInTurn asks the source when the lane is free.
func (c *Cached) askInTurn(ctx context.Context, user string, l *lane) (*User, error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.leave()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return c.source(ctx, user)
}

func (c *Cached) remember(user string, found *User) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unknown, user)
	now := c.now()
	makeRoom(c.known, user, maxKnown)
	c.known[user] = knownUser{user: found, said: now, askAgain: now.Add(c.ttl)}
}

// forget remembers that there is no such user. Names of nobody, of which strangers can send any number, have room of
// their own: they must not drive out those who exist.
func (c *Cached) forget(user string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, user)
	makeRoom(c.unknown, user, maxUnknown)
	c.unknown[user] = c.now().Add(c.ttl)
}

// makeRoom drops any one entry if the map is full: which one is not worth keeping account of.
func makeRoom[T any](entries map[string]T, user string, limit int) {
	if _, has := entries[user]; has || len(entries) < limit {
		return
	}
	for other := range entries {
		delete(entries, other)
		return
	}
}

// old returns what the source said before it failed, unless that is too long ago. It counts for another ttl, so that not
// every login waits for a source that does not answer.
func (c *Cached) old(user string, failure error) (*User, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.known[user]
	now := c.now()
	age := now.Sub(known.said)
	if !ok || age > maxStale {
		c.complain(now, "users cannot be looked up", "user", user, "error", failure)
		return nil, fmt.Errorf("look up a user: %w", failure)
	}
	known.askAgain = now.Add(c.ttl)
	c.known[user] = known
	c.complain(now, "users cannot be looked up; what was known of them before serves", "user", user, "age", age.Round(time.Second), "error", failure)
	return known.user, nil
}

// complain tells of a failure, unless one was told just now: strangers can cause any number of them. The caller holds mu.
func (c *Cached) complain(now time.Time, message string, details ...any) {
	if !c.complained.IsZero() && now.Sub(c.complained) < complainEvery {
		c.untold++
		return
	}
	c.logger.Warn(message, append(details, "untold", c.untold)...)
	c.complained, c.untold = now, 0
}
