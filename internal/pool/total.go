package pool

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// total is the limit over all shards. Shards call it with their own mutex held; it never calls them.
type total struct {
	limit   int64 // 0 is none
	open    atomic.Int64
	closing atomic.Int32 // backends that are being closed: so many places become free

	hungry atomic.Int32 // how many shards starve, for those who only look whether any does
	mu     sync.Mutex
	// starving has the shards with a waiter whom only this limit keeps from a login.
	starving map[*shardPool]hunger
}

// hunger is how badly a shard needs a place.
type hunger struct {
	since   time.Time // when its first waiter came
	hasNone bool      // it has no backend that could come back to it
}

// turn is how long a place stays with a shard that has use for it, although somebody waits for longer elsewhere: a login costs
// as much as many statements, so a place that went to whoever is first each time would hardly serve anybody.
const turn = 200 * time.Millisecond

// isDue says whether a shard may have what another does not use at the moment: it has nothing itself, or what it has did not
// come back for as long as a turn.
func (h hunger) isDue(now time.Time) bool { return h.hasNone || !now.Before(h.dueAt()) }

func (h hunger) dueAt() time.Time { return h.since.Add(turn) }

// take takes a place for somebody who waits for the shard since then, unless somebody elsewhere has waited longer.
func (t *total) take(s *shardPool, since time.Time) bool {
	if t.limit == 0 {
		return true
	}
	if t.isOwed(s, since) {
		return false
	}
	if t.open.Add(1) > t.limit {
		t.open.Add(-1)
		return false
	}
	return true
}

func (t *total) give() {
	if t.limit != 0 {
		t.open.Add(-1)
	}
}

// starve is told of a shard that needs a place.
func (t *total) starve(s *shardPool, h hunger) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.starving[s] = h
	t.hungry.Store(int32(len(t.starving)))
}

// sate is told of a shard that starves no more.
func (t *total) sate(s *shardPool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.starving, s)
	t.hungry.Store(int32(len(t.starving)))
}

// isOwed says whether another shard comes before somebody who waits for this one since then.
func (t *total) isOwed(s *shardPool, since time.Time) bool {
	return t.any(s, func(h hunger) bool { return h.since.Before(since) })
}

// isOverdue says whether a place should leave the shard although somebody waits for it since then. A shard that has other backends
// has to be behind by a turn, or places would go to and fro between shards that are served equally well.
func (t *total) isOverdue(s *shardPool, since time.Time) bool {
	return t.any(s, func(h hunger) bool { return h.since.Before(since) && h.hasNone || h.dueAt().Before(since) })
}

// any says whether it is so of any starving shard but this one.
func (t *total) any(but *shardPool, isSo func(hunger) bool) bool {
	if t.hungry.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for s, h := range t.starving {
		if s != but && isSo(h) {
			return true
		}
	}
	return false
}

// isWanted says whether a place is wanted that does not become free by itself in a moment.
func (t *total) isWanted() bool { return t.hungry.Load() > t.closing.Load() }

// isDue says whether a place is wanted so badly that a backend should be closed that nobody uses at the moment.
func (t *total) isDue(now time.Time) bool {
	if !t.isWanted() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	due := int32(0)
	for _, h := range t.starving {
		if h.isDue(now) {
			due++
		}
	}
	return due > t.closing.Load()
}

// byAge returns the starving shards, the one first whose waiter has waited longest.
func (t *total) byAge() []*shardPool {
	if t.hungry.Load() == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Keys(t.starving), func(a, b *shardPool) int { return t.starving[a].since.Compare(t.starving[b].since) })
}
