package bench

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
)

// The benchmarks of package shardmap. Every sub-benchmark says what it measures
// in its name, as key=value. What they have in common:
//
//   - The map holds shardmapKeys entries before the clock starts, put in at
//     random, so that a write overwrites. BenchmarkShardmapChurn is the one that
//     adds and removes keys.
//   - Each goroutine works through operations of its own that were drawn
//     beforehand, the same for every map.
//   - b.N operations are shared out between the goroutines, so ns/op is the time
//     that passed divided by all operations, and less is better.
//   - Every map is called through the same thin adapter.
const (
	shardmapKeys = 1 << 16
	// shardmapSequence is how many operations a goroutine has drawn. It goes
	// round when it is through.
	shardmapSequence = 1 << 15
	// shardmapZipf is the exponent of the skewed keys. The most popular key gets
	// about one operation in twelve.
	shardmapZipf = 1.01
)

var (
	shardmapGoroutines = []int{1, 2, 4, 8, 16, 64}
	shardmapMixes      = []shardmapMix{{"read-only", 0}, {"90-10", 10}, {"50-50", 50}, {"write-only", 100}}
	shardmapSpreads    = []string{"uniform", "zipf"}
)

type shardmapMix struct {
	name         string
	writePercent int
}

// operation is one step of a goroutine: a read, or a write of any value.
type operation[K comparable] struct {
	key   K
	write bool
}

func BenchmarkShardmap(b *testing.B) {
	benchmarkGrid(b, integerPopulation(), valueOfUint64, shardmapGoroutines, integerMaps[uint64]())
}

func BenchmarkShardmapString(b *testing.B) {
	benchmarkGrid(b, stringPopulation(), valueOfUint64, []int{1, 16, 64}, stringMaps[uint64]())
}

// BenchmarkShardmapStruct has values too big for a word.
func BenchmarkShardmapStruct(b *testing.B) {
	benchmarkGrid(b, integerPopulation(), valueOfStruct, []int{1, 16, 64}, integerMaps[fourWords]())
}

type fourWords [4]uint64

func valueOfUint64(i int) uint64    { return uint64(i) }
func valueOfStruct(i int) fourWords { return fourWords{uint64(i)} }

func benchmarkGrid[K comparable, V any](
	b *testing.B, population []K, value func(int) V, goroutineCounts []int, impls []implementation[K, V],
) {
	for _, spread := range shardmapSpreads {
		for _, mix := range shardmapMixes {
			sequences := drawSequences(population, spread, mix, goroutineCounts)
			for _, goroutines := range goroutineCounts {
				for _, impl := range impls {
					name := fmt.Sprintf("keys=%s/mix=%s/goroutines=%d/impl=%s", spread, mix.name, goroutines, impl.name)
					// The function runs several times, until b.N is big enough; once
					// filled, the map stays as it is.
					filled := sync.OnceValue(func() concurrentMap[K, V] {
						m := impl.make()
						fill(m, population, value)
						return m
					})
					b.Run(name, func(b *testing.B) {
						runSequences(b, filled(), sequences[:goroutines], value)
					})
				}
			}
		}
	}
}

// runSequences shares b.N operations out between the goroutines.
func runSequences[K comparable, V any](b *testing.B, m concurrentMap[K, V], sequences [][]operation[K], value func(int) V) {
	b.ReportAllocs()
	inParallel(b, len(sequences), func(worker, operations int) {
		sequence := sequences[worker]
		for i := range operations {
			op := &sequence[i%shardmapSequence]
			if op.write {
				m.Set(op.key, value(i))
			} else if _, ok := m.Get(op.key); !ok {
				panic("a key is missing")
			}
		}
	})
}

// inParallel runs work on that many goroutines, with b.N operations in all, and
// stops the clock outside of it.
func inParallel(b *testing.B, goroutines int, work func(worker, operations int)) {
	var done sync.WaitGroup
	start := make(chan struct{})
	for worker := range goroutines {
		share := b.N / goroutines
		if worker < b.N%goroutines {
			share++
		}
		done.Go(func() {
			<-start
			work(worker, share)
		})
	}
	runtime.GC() // what the map before has left behind is not this one's time
	b.ResetTimer()
	close(start)
	done.Wait()
	b.StopTimer()
}

func fill[K comparable, V any](m concurrentMap[K, V], population []K, value func(int) V) {
	for i, key := range population {
		m.Set(key, value(i))
	}
}

// drawSequences draws one sequence for each of the most goroutines there are.
func drawSequences[K comparable](population []K, spread string, mix shardmapMix, goroutineCounts []int) [][]operation[K] {
	sequences := make([][]operation[K], goroutineCounts[len(goroutineCounts)-1])
	for worker := range sequences {
		rng := rand.New(rand.NewPCG(1, uint64(worker)))
		draw := func() int { return rng.IntN(len(population)) }
		if spread == "zipf" {
			zipf := rand.NewZipf(rng, shardmapZipf, 1, uint64(len(population)-1))
			draw = func() int { return int(zipf.Uint64()) }
		}
		sequences[worker] = make([]operation[K], shardmapSequence)
		for i := range sequences[worker] {
			sequences[worker][i] = operation[K]{population[draw()], rng.IntN(100) < mix.writePercent}
		}
	}
	return sequences
}

// integerPopulation returns the keys in an order that has nothing to do with
// their values: neighbours in the population are not neighbours anywhere else.
func integerPopulation() []uint64 {
	keys := make([]uint64, shardmapKeys)
	for i := range keys {
		keys[i] = uint64(i)
	}
	rng := rand.New(rand.NewPCG(2, 2))
	rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

func stringPopulation() []string {
	keys := make([]string, shardmapKeys)
	for i, key := range integerPopulation() {
		keys[i] = "tenant:" + strconv.FormatUint(key, 10)
	}
	return keys
}

// BenchmarkShardmapChurn adds and removes keys: each goroutine has keys of its
// own, puts each in and takes it out again. An operation is one of the two.
func BenchmarkShardmapChurn(b *testing.B) {
	for _, goroutines := range shardmapGoroutines {
		for _, impl := range integerMaps[uint64]() {
			b.Run(fmt.Sprintf("mix=insert-delete/goroutines=%d/impl=%s", goroutines, impl.name), func(b *testing.B) {
				m := impl.make()
				fill(m, integerPopulation(), valueOfUint64)
				b.ReportAllocs()
				inParallel(b, goroutines, func(worker, operations int) {
					first := uint64(worker+1) << 32
					for i := range operations {
						key := first + uint64(i/2%shardmapSequence)
						if i%2 == 0 {
							m.Set(key, uint64(i))
						} else {
							m.Delete(key)
						}
					}
				})
			})
		}
	}
}
