package shardmap

import (
	"math/bits"
	"sync/atomic"
)

const (
	slotsPerBucket = 7
	// entriesPerBucket is how full a bucket is, on average, when a table grows.
	entriesPerBucket = 5
	// shrinkBelow: a table shrinks when fewer than one in shrinkBelow of the
	// entries it has room for are left. It is far from the growing point, so
	// that a map whose size goes up and down does not rebuild over and over.
	shrinkBelow = 8

	occupiedTag   = 0x80
	lowBits       = 0x0001010101010101
	highBits      = 0x0080808080808080
	overflowShift = 56
	overflowOne   = 1 << overflowShift
	overflowMax   = 255
)

// table is the hash table of one shard: buckets of one cache line, probed one
// after another. It is written only under the shard's lock and read by anyone.
// An entry never moves within a table, and a table is never changed in size: a
// bigger or smaller one, with the same entries, takes its place.
type table[K comparable] struct {
	buckets []bucket[K] // a power of two
}

// bucket holds up to seven entries. The low seven bytes of meta are the tags of
// its slots, zero where a slot is free. The top byte counts the entries that
// wanted this bucket and went further, so that a search knows when to stop and
// a deletion leaves nothing behind. At overflowMax it sticks until a rebuild.
type bucket[K comparable] struct {
	meta  atomic.Uint64
	slots [slotsPerBucket]atomic.Pointer[entry[K]]
}

func newTable[K comparable](buckets int) *table[K] {
	return &table[K]{buckets: make([]bucket[K], buckets)}
}

// bucketsFor returns how many buckets hold that many entries without growing.
func bucketsFor(entries int) int {
	return roundUpToPowerOfTwo((entries + entriesPerBucket - 1) / entriesPerBucket)
}

func (t *table[K]) room() int { return len(t.buckets) * entriesPerBucket }

func (t *table[K]) bucket(i uint64) *bucket[K] {
	return &t.buckets[i&uint64(len(t.buckets)-1)]
}

func tagOf(hash uint64) uint64 { return hash>>tagShift | occupiedTag }

// matches returns a word with the high bit set in each byte of meta that equals
// the tag of the hash. A byte above such a one may be set by mistake, which the
// comparison of keys puts right.
func matches(meta, hash uint64) uint64 {
	diff := meta ^ tagOf(hash)*lowBits
	return (diff - lowBits) & ^diff & highBits
}

// home is the bucket where the search for a hash begins.
func (t *table[K]) home(hash uint64) *bucket[K] {
	return t.bucket(hash >> bucketShift)
}

// guess returns the entry of the bucket that most likely has this hash, or nil.
// Most searches end with it, so it is kept small enough to be inlined.
func (b *bucket[K]) guess(hash uint64) *entry[K] {
	hits := matches(b.meta.Load(), hash)
	if hits == 0 {
		return nil
	}
	return b.slots[bits.TrailingZeros64(hits)/8].Load()
}

// find returns the entry of a key, or nil. It takes no lock.
func (t *table[K]) find(hash uint64, key K) *entry[K] {
	at := hash >> bucketShift
	for range t.buckets {
		b := t.bucket(at)
		meta := b.meta.Load()
		for hits := matches(meta, hash); hits != 0; hits &= hits - 1 {
			e := b.slots[bits.TrailingZeros64(hits)/8].Load()
			if e != nil && e.key == key {
				return e
			}
		}
		if meta>>overflowShift == 0 {
			return nil
		}
		at++
	}
	return nil
}

// place adds an entry whose key is not in the table. The caller has made sure
// that there is room.
func (t *table[K]) place(hash uint64, e *entry[K]) {
	for at := hash >> bucketShift; ; at++ {
		b := t.bucket(at)
		meta := b.meta.Load()
		if free := ^meta & highBits; free != 0 {
			slot := bits.TrailingZeros64(free) / 8
			// The tag goes last: who sees it finds the entry.
			b.slots[slot].Store(e)
			b.meta.Store(meta | tagOf(hash)<<(8*slot))
			return
		}
		b.countOverflow(meta, +1)
	}
}

// remove takes out an entry that is in the table.
func (t *table[K]) remove(hash uint64, e *entry[K]) {
	home := hash >> bucketShift
	found := home
	for !t.bucket(found).clear(e) {
		found++
	}
	for at := home; at != found; at++ {
		b := t.bucket(at)
		b.countOverflow(b.meta.Load(), -1)
	}
}

// clear empties the slot that holds e and says whether there was one.
func (b *bucket[K]) clear(e *entry[K]) bool {
	for slot := range b.slots {
		if b.slots[slot].Load() == e {
			b.meta.Store(b.meta.Load() &^ (0xff << (8 * slot)))
			b.slots[slot].Store(nil)
			return true
		}
	}
	return false
}

func (b *bucket[K]) countOverflow(meta uint64, by int64) {
	if meta>>overflowShift == overflowMax {
		return
	}
	b.meta.Store(meta + uint64(by*overflowOne))
}

// entries calls yield with each entry. The caller holds the shard's lock.
func (t *table[K]) entries(yield func(*entry[K])) {
	for i := range t.buckets {
		b := &t.buckets[i]
		for slot := range b.slots {
			if e := b.slots[slot].Load(); e != nil {
				yield(e)
			}
		}
	}
}

// rebuilt returns a table of another size with the same entries.
func (t *table[K]) rebuilt(buckets int, hash *hashing[K]) *table[K] {
	fresh := newTable[K](buckets)
	t.entries(func(e *entry[K]) { fresh.place(hash.of(e.key), e) })
	return fresh
}
