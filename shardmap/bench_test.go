package shardmap

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// What padding is worth. Only adding and removing keys touches the padded part of a
// shard: reading and overwriting cannot show a difference. The comparison with other
// maps is in the module bench.

var layouts = []struct {
	name string
	make func() *Map[uint64, uint64]
}{
	{"cleave", New[uint64, uint64]},
	{"cleave-unpadded", newUnpadded},
}

// newUnpadded returns a map whose shards lie side by side.
func newUnpadded() *Map[uint64, uint64] {
	m := New[uint64, uint64]()
	packed := make([]shard, len(m.shards))
	for i := range packed {
		m.shards[i] = &packed[i]
	}
	m.shards.giveRanks()
	return m
}

// BenchmarkFalseSharing has two goroutines, each on a thread of its own, that add and
// remove a key in two neighbouring shards: nothing they do is shared but, without
// padding, the cache line.
func BenchmarkFalseSharing(b *testing.B) {
	for _, layout := range layouts {
		b.Run("impl="+layout.name, func(b *testing.B) {
			m := layout.make()
			keys := []uint64{keyOfShard(m, 0), keyOfShard(m, 1)}
			inParallel(b, len(keys), func(worker, i int) { addOrRemove(m, keys[worker], i) })
		})
	}
}

// BenchmarkPadding adds and removes keys all over the map.
func BenchmarkPadding(b *testing.B) {
	for _, goroutines := range []int{2, 16, 64} {
		for _, layout := range layouts {
			b.Run(fmt.Sprintf("goroutines=%d/impl=%s", goroutines, layout.name), func(b *testing.B) {
				m := layout.make()
				inParallel(b, goroutines, func(worker, i int) {
					addOrRemove(m, uint64(worker+1)<<32+uint64(i/2%(1<<15)), i)
				})
			})
		}
	}
}

func addOrRemove(m *Map[uint64, uint64], key uint64, i int) {
	if i%2 == 0 {
		m.Set(key, uint64(i))
	} else {
		m.Delete(key)
	}
}

// inParallel shares b.N operations out between goroutines that each keep a thread.
func inParallel(b *testing.B, goroutines int, operate func(worker, i int)) {
	b.ReportAllocs()
	var done sync.WaitGroup
	for worker := range goroutines {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for i := range b.N / goroutines {
				operate(worker, i)
			}
		})
	}
	done.Wait()
}

func keyOfShard(m *Map[uint64, uint64], shard int) uint64 {
	key := uint64(0)
	for m.Route(key).Shard() != shard {
		key++
	}
	return key
}
