package shardmap

import (
	"fmt"
	"hash/maphash"
	"iter"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// Map is a concurrent map from K to V. Make one with [New] or [NewWithConfig];
// it must not be copied. All methods are safe for concurrent use.
//
// [Map.Get], and [Map.Set] of a key that is there already, take no lock. Values
// without pointers of at most eight bytes are overwritten in place; others are
// copied to the heap by each write.
//
// Keys are compared with ==. A key that is not equal to itself, such as a
// floating-point NaN, behaves as in a plain Go map: every Set adds an entry that
// no Get or Delete can find, that [Map.Range] shows, and that only [Map.Clear]
// removes.
type Map[K comparable, V any] struct {
	// tables and mask are all that a reader needs besides the hash. The pointers
	// change only when a shard grows, shrinks or is cleared, so they sit together.
	tables     []atomic.Pointer[table[K]]
	mask       uint64
	values     values[K, V]
	hash       hashing[K]
	minBuckets int
	shards     shardSet
	identity   *identity
}

// Action is what [Map.Compute] does with its key.
type Action int

const (
	// Keep leaves the key as it was, present or not.
	Keep Action = iota
	// Put stores the value.
	Put
	// Remove deletes the key if it was there.
	Remove
)

// New returns an empty map with the default [Config].
func New[K comparable, V any]() *Map[K, V] {
	m, err := NewWithConfig[K, V](Config[K]{})
	if err != nil {
		panic(err) // The defaults are valid.
	}
	return m
}

// NewWithConfig returns an empty map, or an error if the configuration makes no
// sense.
func NewWithConfig[K comparable, V any](config Config[K]) (*Map[K, V], error) {
	config, err := config.normalised()
	if err != nil {
		return nil, err
	}
	m := &Map[K, V]{
		tables:     make([]atomic.Pointer[table[K]], config.Shards),
		mask:       uint64(config.Shards - 1),
		values:     newValues[K, V](),
		hash:       newHashing(config.Hasher),
		minBuckets: bucketsFor((config.Capacity + config.Shards - 1) / config.Shards),
		shards:     newShardSet(config.Shards),
		identity:   &identity{mask: uint64(config.Shards - 1)},
	}
	for i := range m.tables {
		m.tables[i].Store(newTable[K](m.minBuckets))
	}
	return m, nil
}

// Get returns the value of a key and whether the key is there.
func (m *Map[K, V]) Get(key K) (V, bool) {
	var hash uint64
	switch m.hash.kind {
	case wordKey:
		hash = m.hash.ofWord(key)
	case anyKey:
		hash = maphash.Comparable(m.hash.seed, key)
	default:
		hash = m.hash.of(key)
	}
	// Most searches end with the first hit in the first bucket. That much is
	// written out here, because calls would take as long as the search.
	t := m.tables[hash&m.mask].Load()
	b := &t.buckets[(hash>>bucketShift)&uint64(len(t.buckets)-1)]
	if hits := matches(b.meta.Load(), hash); hits != 0 {
		e := b.slots[bits.TrailingZeros64(hits)/8].Load()
		if e != nil && e.key == key {
			if m.values.inWords {
				word := (*wordEntry[K])(unsafe.Pointer(e)).word.Load()
				if word != unsettledWord {
					return *(*V)(unsafe.Pointer(&word)), true
				}
			} else if box := (*boxEntry[K, V])(unsafe.Pointer(e)).box.Load(); box != nil {
				return *box, true
			}
		}
	}
	return m.get(hash, key)
}

// Set stores a value, whether the key is there or not.
func (m *Map[K, V]) Set(key K, value V) {
	var hash uint64
	switch m.hash.kind {
	case wordKey:
		hash = m.hash.ofWord(key)
	case anyKey:
		hash = maphash.Comparable(m.hash.seed, key)
	default:
		hash = m.hash.of(key)
	}
	if e := m.table(hash).home(hash).guess(hash); e != nil && e.key == key && m.values.overwrite(e, value) {
		return
	}
	m.set(hash, key, value)
}

// Delete removes a key. It returns the value the key had and whether the key was
// there.
func (m *Map[K, V]) Delete(key K) (V, bool) {
	return m.delete(m.hash.of(key), key)
}

// LoadOrStore returns the value of the key if it is there; if not, it stores the
// one given and returns that. Loaded says which happened.
func (m *Map[K, V]) LoadOrStore(key K, value V) (actual V, loaded bool) {
	return m.loadOrStore(m.hash.of(key), key, value)
}

// Compute changes one key as a single step. It calls fn once, with the value of
// the key and whether it is there, and does what fn says. It returns the value
// of the key afterwards, and whether it is there.
//
// No other Compute, Delete or LoadOrStore of the key comes between. A
// concurrent Set may be carried out while fn runs; it then counts as coming
// after, and its value is the one that stays.
//
// Fn runs under the lock of a shard: it must be quick and must not call the same
// map, nor another whose callbacks call this one. If it panics, the map is as
// before.
func (m *Map[K, V]) Compute(key K, fn func(old V, present bool) (V, Action)) (V, bool) {
	return m.compute(m.hash.of(key), key, fn)
}

// Range calls fn with each key and value until fn returns false. No key comes
// twice. A key that is there from beginning to end is always shown, a key that
// comes or goes meanwhile may be; the value is one that the key had during the
// call. No lock is held while fn runs: it may call the map. After a Clear, what
// is left of the shard that Range is in may still be shown.
func (m *Map[K, V]) Range(fn func(key K, value V) bool) {
	var buffer []*entry[K]
	for i := range m.tables {
		var goesOn bool
		if buffer, goesOn = m.rangeShard(i, buffer[:0], fn); !goesOn {
			return
		}
	}
}

// All returns the keys and values as an iterator, with the promises of
// [Map.Range].
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	return m.Range
}

// Len returns the number of entries. It counts one shard after another, each
// exactly.
func (m *Map[K, V]) Len() int {
	total := 0
	for i := range m.tables {
		total += m.shardStats(i).Entries
	}
	return total
}

// Clear removes all entries, one shard after another, and gives their memory
// back.
func (m *Map[K, V]) Clear() {
	for i := range m.tables {
		m.clearShard(i)
	}
}

func (m *Map[K, V]) shardIndex(hash uint64) int { return int(hash & m.mask) }

func (m *Map[K, V]) shard(hash uint64) *shard { return m.shards.at(m.shardIndex(hash)) }

func (m *Map[K, V]) table(hash uint64) *table[K] { return m.tables[hash&m.mask].Load() }

func (m *Map[K, V]) get(hash uint64, key K) (value V, present bool) {
	e := m.table(hash).find(hash, key)
	if e == nil {
		return value, false
	}
	value, settled := m.values.load(e)
	if !settled {
		return m.getLocked(hash, key)
	}
	return value, true
}

func (m *Map[K, V]) getLocked(hash uint64, key K) (value V, present bool) {
	s := m.shard(hash)
	s.lock()
	defer s.unlock()
	e := m.table(hash).find(hash, key)
	if e == nil {
		return value, false
	}
	value, _ = m.values.peek(e)
	return value, true
}

func (m *Map[K, V]) set(hash uint64, key K, value V) {
	if e := m.table(hash).find(hash, key); e != nil && m.values.overwrite(e, value) {
		return
	}
	m.setLocked(hash, key, value)
}

func (m *Map[K, V]) setLocked(hash uint64, key K, value V) {
	fresh := m.values.make(key, value) // Outside the lock: it may wait for the garbage collector.
	s := m.shard(hash)
	s.lock()
	defer s.unlock()
	if e := m.table(hash).find(hash, key); e != nil {
		m.values.settle(e, value)
		return
	}
	m.insert(s, hash, fresh)
	s.inserts++
}

func (m *Map[K, V]) loadOrStore(hash uint64, key K, value V) (actual V, loaded bool) {
	if e := m.table(hash).find(hash, key); e != nil {
		if actual, settled := m.values.load(e); settled {
			return actual, true
		}
	}
	return m.loadOrStoreLocked(hash, key, value)
}

func (m *Map[K, V]) loadOrStoreLocked(hash uint64, key K, value V) (actual V, loaded bool) {
	fresh := m.values.make(key, value)
	s := m.shard(hash)
	s.lock()
	defer s.unlock()
	if e := m.table(hash).find(hash, key); e != nil {
		actual, _ = m.values.peek(e)
		return actual, true
	}
	m.insert(s, hash, fresh)
	s.inserts++
	return value, false
}

func (m *Map[K, V]) delete(hash uint64, key K) (old V, present bool) {
	if m.table(hash).find(hash, key) == nil {
		return old, false
	}
	s := m.shard(hash)
	s.lock()
	defer s.unlock()
	e := m.table(hash).find(hash, key)
	if e == nil {
		return old, false
	}
	// The value goes first: from here on, who still finds the entry waits for
	// the lock and then finds no entry.
	old = m.values.unsettle(e)
	m.remove(s, hash, e)
	s.deletes++
	m.shrinkIfSparse(s, hash)
	return old, true
}

func (m *Map[K, V]) compute(hash uint64, key K, fn func(V, bool) (V, Action)) (V, bool) {
	s := m.shard(hash)
	s.lock()
	defer s.unlock()
	if e := m.table(hash).find(hash, key); e != nil {
		return m.computePresent(s, hash, e, fn)
	}
	return m.computeAbsent(s, hash, key, fn)
}

// computePresent relies on every change but an overwrite needing the lock. If
// the value is no longer the one that fn saw, a Set has overwritten it, and the
// two are in order with this call first and that Set second: there is nothing
// left to do.
func (m *Map[K, V]) computePresent(s *shard, hash uint64, e *entry[K], fn func(V, bool) (V, Action)) (V, bool) {
	old, was := m.values.peek(e)
	value, action := fn(old, true)
	switch action {
	case Keep:
		return old, true
	case Put:
		m.values.settleIf(e, was, value)
		return value, true
	case Remove:
		if m.values.unsettleIf(e, was) {
			m.remove(s, hash, e)
			s.deletes++
			m.shrinkIfSparse(s, hash)
		}
		var none V
		return none, false
	default:
		panic(unknownAction(action))
	}
}

func (m *Map[K, V]) computeAbsent(s *shard, hash uint64, key K, fn func(V, bool) (V, Action)) (V, bool) {
	var none V
	value, action := fn(none, false)
	switch action {
	case Keep, Remove:
		return none, false
	case Put:
		m.insert(s, hash, m.values.make(key, value))
		s.inserts++
		return value, true
	default:
		panic(unknownAction(action))
	}
}

func unknownAction(action Action) string {
	return fmt.Sprintf("shardmap: Compute was told to do Action(%d), which does not exist", action)
}

// insert adds an entry that is not in the table, under the lock.
func (m *Map[K, V]) insert(s *shard, hash uint64, e *entry[K]) {
	t := m.table(hash)
	if s.entries >= t.room() {
		t = t.rebuilt(2*len(t.buckets), &m.hash)
		m.tables[hash&m.mask].Store(t)
		s.grows++
	}
	t.place(hash, e)
	s.entries++
}

// remove takes an unsettled entry out of the table, under the lock.
func (m *Map[K, V]) remove(s *shard, hash uint64, e *entry[K]) {
	m.table(hash).remove(hash, e)
	s.entries--
}

// shrinkIfSparse gives memory back after deletions, under the lock.
func (m *Map[K, V]) shrinkIfSparse(s *shard, hash uint64) {
	t := m.table(hash)
	if len(t.buckets) > m.minBuckets && s.entries < t.room()/shrinkBelow {
		m.tables[hash&m.mask].Store(t.rebuilt(len(t.buckets)/2, &m.hash))
		s.shrinks++
	}
}

// rangeShard is Range over one shard. It returns the buffer, to be used again, and
// whether fn wants more.
func (m *Map[K, V]) rangeShard(i int, buffer []*entry[K], fn func(key K, value V) bool) ([]*entry[K], bool) {
	buffer = m.snapshot(i, buffer)
	for _, e := range buffer {
		value, present := m.current(e)
		if present && !fn(e.key, value) {
			return buffer, false
		}
	}
	return buffer, true
}

// snapshot appends the entries of one shard to buffer.
func (m *Map[K, V]) snapshot(i int, buffer []*entry[K]) []*entry[K] {
	s := m.shards.at(i)
	s.lock()
	defer s.unlock()
	m.tables[i].Load().entries(func(e *entry[K]) { buffer = append(buffer, e) })
	return buffer
}

// current returns the value of an entry of a snapshot.
func (m *Map[K, V]) current(e *entry[K]) (V, bool) {
	if value, settled := m.values.load(e); settled {
		return value, true
	}
	if !equalsItself(e.key) {
		// Nothing but Clear removes such a key, so there is nothing to ask.
		value, _ := m.values.peek(e)
		return value, true
	}
	return m.getLocked(m.hash.of(e.key), e.key)
}

// equalsItself is false for NaN and for what contains one.
func equalsItself[K comparable](key K) bool {
	same := key
	return key == same
}

// clearShard gives the shard an empty table. The entries of the old one keep
// their values: an operation that still finds one began before, and counts as
// done before.
func (m *Map[K, V]) clearShard(i int) {
	empty := newTable[K](m.minBuckets)
	s := m.shards.at(i)
	s.lock()
	defer s.unlock()
	m.tables[i].Store(empty)
	s.deletes += uint64(s.entries)
	s.entries = 0
}
