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
	// starving has the shards with a waiter whom only this limit keeps from a login, and since when the first one waits.
	starving map[*shardPool]time.Time
}

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

// starve is told since when the first waiter of a starving shard waits.
func (t *total) starve(s *shardPool, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.starving[s] = since
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
	if t.hungry.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for other, longer := range t.starving {
		if other != s && longer.Before(since) {
			return true
		}
	}
	return false
}

// isWanted says whether a place is wanted that does not become free by itself in a moment.
func (t *total) isWanted() bool { return t.hungry.Load() > t.closing.Load() }

// byAge returns the starving shards, the one first whose waiter has waited longest.
func (t *total) byAge() []*shardPool {
	if t.hungry.Load() == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Keys(t.starving), func(a, b *shardPool) int { return t.starving[a].Compare(t.starving[b]) })
}
