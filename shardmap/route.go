package shardmap

import (
	"errors"
	"fmt"
)

// Why a key was refused. An [AffinityError] wraps one of these.
var (
	// ErrUnrouted means that the key did not come from [Map.Route].
	ErrUnrouted = errors.New("the key was not routed")
	// ErrOtherMap means that the key was routed by another map.
	ErrOtherMap = errors.New("the key was routed by another map")
	// ErrOtherShard means that the key belongs to another shard.
	ErrOtherShard = errors.New("the key belongs to another shard")
	// ErrNotNamed means that the key is not one of those given to [Map.Across].
	ErrNotNamed = errors.New("the key was not named")
	// ErrNotEqualToItself means that the key, such as NaN, cannot be found again.
	ErrNotEqualToItself = errors.New("the key is not equal to itself")
)

// AffinityError says that a key was given to a shard, map or transaction that
// does not accept it. Nothing was done with the key.
type AffinityError struct {
	// Reason is one of the errors above.
	Reason error
	// Want is the shard that refused the key, or -1 if it was not one shard.
	Want int
	// Got is the shard of the key, or -1 if it has none.
	Got int
}

func (e *AffinityError) Error() string {
	if e.Want >= 0 && e.Got >= 0 {
		return fmt.Sprintf("shardmap: %v: shard %d, not %d", e.Reason, e.Got, e.Want)
	}
	return fmt.Sprintf("shardmap: %v", e.Reason)
}

// Unwrap returns the reason.
func (e *AffinityError) Unwrap() error { return e.Reason }

// Routed is a key together with the shard it belongs to. Only [Map.Route] makes
// one, and only that map and that shard accept it. The zero Routed is accepted
// nowhere.
type Routed[K comparable] struct {
	key  K
	hash uint64
	home *identity
}

// identity tells maps apart. It is not generic, so that a Routed does not have
// to know about values.
type identity struct {
	mask uint64
}

// Key returns the key.
func (r Routed[K]) Key() K { return r.key }

// Shard returns the number of the shard, or -1 for the zero Routed.
func (r Routed[K]) Shard() int {
	if r.home == nil {
		return -1
	}
	return int(r.hash & r.home.mask)
}

// Route finds the shard of a key, whether the key is there or not. The answer
// stays true as long as the map exists.
func (m *Map[K, V]) Route(key K) Routed[K] {
	return Routed[K]{key: key, hash: m.hash.of(key), home: m.identity}
}

// Shards returns the number of shards.
func (m *Map[K, V]) Shards() int { return len(m.tables) }

// Shard returns a view of one shard, which accepts only keys routed to it. It
// panics if there is no shard of that number, as indexing a slice would.
func (m *Map[K, V]) Shard(number int) ShardView[K, V] {
	if number < 0 || number >= len(m.tables) {
		panic(fmt.Sprintf("shardmap: shard %d of a map with %d", number, len(m.tables)))
	}
	return ShardView[K, V]{m: m, number: number}
}

// check says whether a key was routed by this map.
func (m *Map[K, V]) check(r Routed[K]) error {
	switch r.home {
	case m.identity:
		return nil
	case nil:
		return &AffinityError{Reason: ErrUnrouted, Want: -1, Got: -1}
	default:
		return &AffinityError{Reason: ErrOtherMap, Want: -1, Got: -1}
	}
}

// ShardView is one shard of a [Map]. Its methods do what those of the map do, for keys
// routed to this shard; any other key is refused with an [AffinityError]. It is
// a small value, made to be copied and safe for concurrent use.
type ShardView[K comparable, V any] struct {
	m      *Map[K, V]
	number int
}

// Number returns the number of the shard.
func (v ShardView[K, V]) Number() int { return v.number }

// Stats returns the statistics of the shard.
func (v ShardView[K, V]) Stats() ShardStats { return v.m.shardStats(v.number) }

// Get is [Map.Get].
func (v ShardView[K, V]) Get(key Routed[K]) (value V, present bool, err error) {
	if err := v.check(key); err != nil {
		return value, false, err
	}
	value, present = v.m.get(key.hash, key.key)
	return value, present, nil
}

// Set is [Map.Set].
func (v ShardView[K, V]) Set(key Routed[K], value V) error {
	if err := v.check(key); err != nil {
		return err
	}
	v.m.set(key.hash, key.key, value)
	return nil
}

// Delete is [Map.Delete].
func (v ShardView[K, V]) Delete(key Routed[K]) (old V, present bool, err error) {
	if err := v.check(key); err != nil {
		return old, false, err
	}
	old, present = v.m.delete(key.hash, key.key)
	return old, present, nil
}

// Compute is [Map.Compute].
func (v ShardView[K, V]) Compute(key Routed[K], fn func(old V, present bool) (V, Action)) (value V, present bool, err error) {
	if err := v.check(key); err != nil {
		return value, false, err
	}
	value, present = v.m.compute(key.hash, key.key, fn)
	return value, present, nil
}

// LoadOrStore is [Map.LoadOrStore].
func (v ShardView[K, V]) LoadOrStore(key Routed[K], value V) (actual V, loaded bool, err error) {
	if err := v.check(key); err != nil {
		return actual, false, err
	}
	actual, loaded = v.m.loadOrStore(key.hash, key.key, value)
	return actual, loaded, nil
}

// Range is [Map.Range] over the keys of this shard.
func (v ShardView[K, V]) Range(fn func(key K, value V) bool) {
	v.m.rangeShard(v.number, nil, fn)
}

// check says whether a key was routed to this shard.
func (v ShardView[K, V]) check(r Routed[K]) error {
	if err := v.m.check(r); err != nil {
		return err
	}
	if r.Shard() != v.number {
		return &AffinityError{Reason: ErrOtherShard, Want: v.number, Got: r.Shard()}
	}
	return nil
}
