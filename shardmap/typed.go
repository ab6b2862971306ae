package shardmap

import "errors"

// ErrSameKey is returned by [Cross] when both keys are the same key of the same
// shard.
var ErrSameKey = errors.New("shardmap: both keys are the same")

// Shard is a shard that is known when the program is written. Tag is any type
// that names it, most simply an empty struct; a shard accepts only a [Key] of
// its own tag, and the compiler sees to that. To touch two shards at once, call
// [Cross].
//
// A Shard has the promises of [Map]; it is safe for concurrent use.
type Shard[Tag any, K comparable, V any] struct {
	m *Map[K, V]
}

// Key is a key of the shard named by Tag. A Key of one tag cannot be converted to
// a Key of another.
type Key[Tag any, K comparable] struct {
	// Two structs with the same fields can be converted into each other. This
	// one makes the fields differ and takes no space.
	_   [0]*Tag
	key K
}

// KeyOf makes a key of the shard named by Tag.
func KeyOf[Tag any, K comparable](key K) Key[Tag, K] {
	return Key[Tag, K]{key: key}
}

// Value returns the key without its tag.
func (k Key[Tag, K]) Value() K { return k.key }

// NewShard returns an empty shard. Config is about its insides, as for a [Map].
func NewShard[Tag any, K comparable, V any](config Config[K]) (*Shard[Tag, K, V], error) {
	m, err := NewWithConfig[K, V](config)
	if err != nil {
		return nil, err
	}
	return &Shard[Tag, K, V]{m: m}, nil
}

// Key makes a key of this shard.
func (s *Shard[Tag, K, V]) Key(key K) Key[Tag, K] { return KeyOf[Tag](key) }

// Get is [Map.Get].
func (s *Shard[Tag, K, V]) Get(key Key[Tag, K]) (V, bool) { return s.m.Get(key.key) }

// Set is [Map.Set].
func (s *Shard[Tag, K, V]) Set(key Key[Tag, K], value V) { s.m.Set(key.key, value) }

// Delete is [Map.Delete].
func (s *Shard[Tag, K, V]) Delete(key Key[Tag, K]) (V, bool) { return s.m.Delete(key.key) }

// LoadOrStore is [Map.LoadOrStore].
func (s *Shard[Tag, K, V]) LoadOrStore(key Key[Tag, K], value V) (actual V, loaded bool) {
	return s.m.LoadOrStore(key.key, value)
}

// Compute is [Map.Compute].
func (s *Shard[Tag, K, V]) Compute(key Key[Tag, K], fn func(old V, present bool) (V, Action)) (V, bool) {
	return s.m.Compute(key.key, fn)
}

// Range is [Map.Range].
func (s *Shard[Tag, K, V]) Range(fn func(key Key[Tag, K], value V) bool) {
	s.m.Range(func(key K, value V) bool { return fn(KeyOf[Tag](key), value) })
}

// Len is [Map.Len].
func (s *Shard[Tag, K, V]) Len() int { return s.m.Len() }

// Clear is [Map.Clear].
func (s *Shard[Tag, K, V]) Clear() { s.m.Clear() }

// Cross runs fn on one key of each of two shards as one step, with the promises
// of [Map.Across]: all writes or none, at a single moment, and without
// deadlocks. Fn must be quick and must not call either shard.
func Cross[TagA, TagB any, KA, KB comparable, VA, VB any](
	a *Shard[TagA, KA, VA], keyA Key[TagA, KA],
	b *Shard[TagB, KB, VB], keyB Key[TagB, KB],
	fn func(a *Cell[VA], b *Cell[VB]) error,
) error {
	routedA, routedB := a.m.Route(keyA.key), b.m.Route(keyB.key)
	if err := checkPair(routedA, routedB); err != nil {
		return err
	}
	shardA, shardB := a.m.shard(routedA.hash), b.m.shard(routedB.hash)
	defer lockAll([]*shard{shardA, shardB})()
	defer a.m.shrinkIfSparse(shardA, routedA.hash)
	defer b.m.shrinkIfSparse(shardB, routedB.hash)

	commit := false
	heldA := a.m.hold(routedA)
	defer func() { a.m.release(&heldA, commit) }()
	heldB := b.m.hold(routedB)
	defer func() { b.m.release(&heldB, commit) }()
	if err := fn(&heldA.cell, &heldB.cell); err != nil {
		return err
	}
	commit = true
	return nil
}

// checkPair refuses keys that cannot be held together.
func checkPair[KA, KB comparable](a Routed[KA], b Routed[KB]) error {
	if !equalsItself(a.key) || !equalsItself(b.key) {
		return &AffinityError{Reason: ErrNotEqualToItself, Want: -1, Got: -1}
	}
	if a.home == b.home && any(a.key) == any(b.key) {
		return ErrSameKey
	}
	return nil
}
