package shardmap

import (
	"sync"
	"sync/atomic"
	"testing"
)

// Many goroutines count up the same keys with Compute while others read, and
// others make the tables grow and shrink. No step may be lost, and no reader may
// see a count go back.
func TestCountersUnderLoad(t *testing.T) {
	t.Run("words", func(t *testing.T) {
		testCounters(t, func(n int) int { return n }, func(n int) int { return n })
	})
	t.Run("boxes", func(t *testing.T) {
		testCounters(t, func(n int) *int { return &n }, func(p *int) int { return *p })
	})
}

func testCounters[V any](t *testing.T, pack func(int) V, unpack func(V) int) {
	const keys, writers = 5, 8
	rounds := often(4000)
	m := mustNew[int, V](t, Config[int]{Shards: 2})
	var counting, around sync.WaitGroup
	var stop atomic.Bool
	for range writers {
		counting.Go(func() {
			for i := range rounds {
				m.Compute(i%keys, func(old V, present bool) (V, Action) {
					if !present {
						return pack(1), Put
					}
					return pack(unpack(old) + 1), Put
				})
			}
		})
	}
	for range 3 {
		around.Go(func() {
			var last [keys]int
			for !stop.Load() {
				for key := range keys {
					value, present := m.Get(key)
					if !present {
						continue
					}
					if got := unpack(value); got < last[key] {
						t.Errorf("key %d went from %d back to %d", key, last[key], got)
					} else {
						last[key] = got
					}
				}
			}
		})
	}
	around.Go(func() { churn(m, &stop, pack(0)) })
	counting.Wait()
	stop.Store(true)
	around.Wait()
	total := 0
	for key := range keys {
		value, _ := m.Get(key)
		total += unpack(value)
	}
	if total != writers*rounds {
		t.Errorf("counted %d steps of %d", total, writers*rounds)
	}
}

// churn adds and removes other keys so that tables are replaced all the time.
func churn[V any](m *Map[int, V], stop *atomic.Bool, value V) {
	for !stop.Load() {
		for i := range 300 {
			m.Set(1000+i, value)
		}
		for range m.All() {
			break
		}
		for i := range 300 {
			m.Delete(1000 + i)
		}
	}
}

// What is added and what is taken out by Delete must balance.
func TestDeleteTakesEachValueOnce(t *testing.T) {
	m := mustNew[int, int](t, Config[int]{Shards: 2})
	var added, taken atomic.Int64
	var working, around sync.WaitGroup
	var stop atomic.Bool
	for worker := range 8 {
		working.Go(func() {
			for i := range often(6000) {
				key := i % 3
				switch worker % 4 {
				case 0:
					if value, present := m.Delete(key); present {
						taken.Add(int64(value))
					}
				case 1:
					m.Compute(key, func(old int, present bool) (int, Action) {
						if present {
							taken.Add(int64(old))
						}
						return 0, Remove
					})
				case 2:
					if _, loaded := m.LoadOrStore(key, 3); !loaded {
						added.Add(3)
					}
				default:
					m.Compute(key, func(old int, _ bool) (int, Action) { return old + 1, Put })
					added.Add(1)
				}
			}
		})
	}
	around.Go(func() { churn(m, &stop, 0) })
	working.Wait()
	stop.Store(true)
	around.Wait()
	for key := range 3 {
		value, _ := m.Get(key)
		taken.Add(int64(value))
	}
	if added.Load() != taken.Load() {
		t.Errorf("added %d, found %d", added.Load(), taken.Load())
	}
}

// Every key has one writer, which sets, reads back, deletes and reads back, while
// all the others do the same around it, so that tables are replaced under it.
func TestOwnWritesAreSeen(t *testing.T) {
	m := mustNew[int, string](t, Config[int]{Shards: 2})
	var workers sync.WaitGroup
	for worker := range 8 {
		workers.Go(func() {
			for round := range often(400) {
				for i := range 40 {
					key := worker*100 + i
					if m.Set(key, "x"); round%2 == 0 {
						m.Set(key, "y")
					}
					if _, present := m.Get(key); !present {
						t.Errorf("key %d is not there after Set", key)
					}
				}
				for i := range 40 {
					key := worker*100 + i
					if _, present := m.Delete(key); !present {
						t.Errorf("key %d is not there for Delete", key)
					}
					if _, present := m.Get(key); present {
						t.Errorf("key %d is there after Delete", key)
					}
				}
			}
		})
	}
	workers.Wait()
	if got := m.Len(); got != 0 {
		t.Errorf("%d entries are left", got)
	}
}

// Clear comes between everything else. When it is the last thing that happened,
// the map is empty.
func TestClearUnderLoad(t *testing.T) {
	m := mustNew[int, int](t, Config[int]{Shards: 2})
	for range often(60) {
		var workers sync.WaitGroup
		for worker := range 4 {
			workers.Go(func() {
				for i := range 300 {
					m.Set(i, worker)
					m.Compute(i, func(old int, _ bool) (int, Action) { return old, Action(i % 3) })
					m.Delete(i - 10)
				}
			})
		}
		for range 5 {
			m.Clear()
			for range m.All() {
				continue
			}
		}
		workers.Wait()
		m.Clear()
		if got := m.Len(); got != 0 {
			t.Fatalf("%d entries after Clear", got)
		}
		for key := range m.All() {
			t.Fatalf("key %d after Clear", key)
		}
	}
}

// Range must show what is there all the time, once, whatever goes on around it.
func TestRangeUnderLoad(t *testing.T) {
	m := mustNew[int, int](t, Config[int]{Shards: 2})
	for key := range 50 {
		m.Set(key, 0)
	}
	var around sync.WaitGroup
	var stop atomic.Bool
	around.Go(func() { churn(m, &stop, 0) })
	around.Go(func() {
		for i := 0; !stop.Load(); i++ {
			m.Set(i%50, i)
		}
	})
	for range often(400) {
		seen := map[int]int{}
		for key := range m.All() {
			seen[key]++
		}
		for key, times := range seen {
			if times != 1 {
				t.Errorf("key %d was shown %d times", key, times)
			}
		}
		for key := range 50 {
			if seen[key] == 0 {
				t.Errorf("key %d was not shown", key)
			}
		}
	}
	stop.Store(true)
	around.Wait()
}
