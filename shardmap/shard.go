package shardmap

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// shardSpan is how far apart two shards are. It is two cache lines, since
// processors fetch lines in pairs.
const shardSpan = 128

// lockAttempts is how often to look at a taken lock before going to sleep. The
// lock is mostly held for less time than it takes to sleep and wake, and the
// runtime's own mutex does not wait actively while other goroutines are ready.
const lockAttempts = 64

// shard is what the writers of one shard share. What readers need, the pointer
// to the table, is kept apart, so that a writer taking the lock does not take
// the cache line away from readers.
type shard struct {
	mu sync.Mutex
	// rank is the place of this shard in the order in which locks are taken. It
	// differs for all shards of all maps.
	rank uint64
	// The rest is guarded by mu.
	entries   int
	inserts   uint64
	deletes   uint64
	lockWaits uint64
	grows     uint32
	shrinks   uint32
}

// paddedShard keeps a shard to itself on its cache lines.
type paddedShard struct {
	shard
	_ [shardSpan - unsafe.Sizeof(shard{})%shardSpan]byte
}

// nextRank is the rank of the next shard to be made.
var nextRank atomic.Uint64

// shardSet is the shards of one map. It points to them, so that a benchmark can
// lay them out without padding and see what that costs.
type shardSet []*shard

func newShardSet(count int) shardSet {
	padded := make([]paddedShard, count)
	set := make(shardSet, count)
	for i := range padded {
		set[i] = &padded[i].shard
	}
	set.giveRanks()
	return set
}

func (s shardSet) giveRanks() {
	last := nextRank.Add(uint64(len(s)))
	for i := range s {
		s[i].rank = last - uint64(len(s)-i)
	}
}

func (s shardSet) at(i int) *shard { return s[i] }

func (s *shard) lock() {
	if s.mu.TryLock() {
		return
	}
	s.lockContended()
	s.lockWaits++
}

func (s *shard) lockContended() {
	for range lockAttempts {
		if s.mu.TryLock() {
			return
		}
	}
	s.mu.Lock()
}

func (s *shard) unlock() { s.mu.Unlock() }

// lockAll locks the shards, each once, in the order of their ranks, so that two
// callers never wait for each other. It returns what unlocks them.
func lockAll(shards []*shard) (unlockAll func()) {
	slices.SortFunc(shards, func(a, b *shard) int { return cmp.Compare(a.rank, b.rank) })
	shards = slices.Compact(shards)
	for _, s := range shards {
		s.lock()
	}
	return func() {
		for _, s := range shards {
			s.unlock()
		}
	}
}
