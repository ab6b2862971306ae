package bench

import (
	"sync"

	"github.com/alphadose/haxmap"
	cmap "github.com/orcaman/concurrent-map/v2"
	"github.com/puzpuzpuz/xsync/v4"

	"github.com/cleavedb/cleave/shardmap"
)

// concurrentMap is what all maps under test can do.
type concurrentMap[K comparable, V any] interface {
	Get(key K) (V, bool)
	Set(key K, value V)
	Delete(key K)
}

// implementation is a map under test and its name in the results.
type implementation[K comparable, V any] struct {
	name string
	make func() concurrentMap[K, V]
}

func integerMaps[V any]() []implementation[uint64, V] {
	return append(mapsForAnyKey[uint64, V](),
		implementation[uint64, V]{"cmap", func() concurrentMap[uint64, V] {
			return cmapMap[uint64, V]{cmap.NewWithCustomShardingFunction[uint64, V](func(key uint64) uint32 {
				return uint32(key * 0x9e3779b97f4a7c15 >> 32)
			})}
		}},
		implementation[uint64, V]{"haxmap", func() concurrentMap[uint64, V] {
			return haxmapIntegers[V]{haxmap.New[uint64, V](shardmapKeys)}
		}})
}

func stringMaps[V any]() []implementation[string, V] {
	return append(mapsForAnyKey[string, V](),
		implementation[string, V]{"cmap", func() concurrentMap[string, V] {
			return cmapMap[string, V]{cmap.New[V]()}
		}},
		implementation[string, V]{"haxmap", func() concurrentMap[string, V] {
			return haxmapStrings[V]{haxmap.New[string, V](shardmapKeys)}
		}})
}

func mapsForAnyKey[K comparable, V any]() []implementation[K, V] {
	return []implementation[K, V]{
		{"cleave", func() concurrentMap[K, V] { return cleaveMap[K, V]{shardmap.New[K, V]()} }},
		{"syncmap", func() concurrentMap[K, V] { return &syncMap[K, V]{} }},
		{"rwmutex", func() concurrentMap[K, V] { return &rwMutexMap[K, V]{m: map[K]V{}} }},
		{"xsync", func() concurrentMap[K, V] { return xsyncMap[K, V]{xsync.NewMap[K, V]()} }},
	}
}

type cleaveMap[K comparable, V any] struct{ m *shardmap.Map[K, V] }

func (c cleaveMap[K, V]) Get(key K) (V, bool) { return c.m.Get(key) }
func (c cleaveMap[K, V]) Set(key K, value V)  { c.m.Set(key, value) }
func (c cleaveMap[K, V]) Delete(key K)        { c.m.Delete(key) }

type syncMap[K comparable, V any] struct{ m sync.Map }

func (s *syncMap[K, V]) Set(key K, value V) { s.m.Store(key, value) }
func (s *syncMap[K, V]) Delete(key K)       { s.m.Delete(key) }
func (s *syncMap[K, V]) Get(key K) (V, bool) {
	value, ok := s.m.Load(key)
	if !ok {
		var none V
		return none, false
	}
	return value.(V), true
}

type rwMutexMap[K comparable, V any] struct {
	mu sync.RWMutex
	m  map[K]V
}

func (r *rwMutexMap[K, V]) Get(key K) (V, bool) {
	r.mu.RLock()
	value, ok := r.m[key]
	r.mu.RUnlock()
	return value, ok
}

func (r *rwMutexMap[K, V]) Set(key K, value V) {
	r.mu.Lock()
	r.m[key] = value
	r.mu.Unlock()
}

func (r *rwMutexMap[K, V]) Delete(key K) {
	r.mu.Lock()
	delete(r.m, key)
	r.mu.Unlock()
}

type xsyncMap[K comparable, V any] struct{ m *xsync.Map[K, V] }

func (x xsyncMap[K, V]) Get(key K) (V, bool) { return x.m.Load(key) }
func (x xsyncMap[K, V]) Set(key K, value V)  { x.m.Store(key, value) }
func (x xsyncMap[K, V]) Delete(key K)        { x.m.Delete(key) }

type cmapMap[K comparable, V any] struct{ m cmap.ConcurrentMap[K, V] }

func (c cmapMap[K, V]) Get(key K) (V, bool) { return c.m.Get(key) }
func (c cmapMap[K, V]) Set(key K, value V)  { c.m.Set(key, value) }
func (c cmapMap[K, V]) Delete(key K)        { c.m.Remove(key) }

type haxmapIntegers[V any] struct{ m *haxmap.Map[uint64, V] }

func (h haxmapIntegers[V]) Get(key uint64) (V, bool) { return h.m.Get(key) }
func (h haxmapIntegers[V]) Set(key uint64, value V)  { h.m.Set(key, value) }
func (h haxmapIntegers[V]) Delete(key uint64)        { h.m.Del(key) }

type haxmapStrings[V any] struct{ m *haxmap.Map[string, V] }

func (h haxmapStrings[V]) Get(key string) (V, bool) { return h.m.Get(key) }
func (h haxmapStrings[V]) Set(key string, value V)  { h.m.Set(key, value) }
func (h haxmapStrings[V]) Delete(key string)        { h.m.Del(key) }
