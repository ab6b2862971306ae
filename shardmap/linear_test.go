package shardmap

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// These tests record what goroutines did to two keys of a map and what they got
// back, and then look for an order of all operations that explains it: one that
// a map used by a single goroutine could have had, and in which no operation
// comes before one that had ended when it began. If there is none, the map is not
// linearizable.

// twoKeys is the state of the two keys. The index is the key.
type twoKeys [2]struct {
	value   int
	present bool
}

// step is one operation that was carried out. apply says what it does to a state
// and whether, from there, it would have had the outcome that was seen.
type step struct {
	began, ended int64
	what         string
	apply        func(twoKeys) (twoKeys, bool)
}

// explained says whether an order exists. It tries each step that may come next,
// and remembers which states it has been to.
func explained(steps []step) bool {
	type point struct {
		done  uint64
		state twoKeys
	}
	dead := map[point]bool{}
	var search func(point) bool
	search = func(p point) bool {
		if p.done == 1<<len(steps)-1 {
			return true
		}
		if dead[p] {
			return false
		}
		// A step may come next if no other one ended before it began.
		firstEnd := int64(1 << 62)
		for i, s := range steps {
			if p.done&(1<<i) == 0 {
				firstEnd = min(firstEnd, s.ended)
			}
		}
		for i, s := range steps {
			if p.done&(1<<i) != 0 || s.began > firstEnd {
				continue
			}
			if next, fits := s.apply(p.state); fits && search(point{p.done | 1<<i, next}) {
				return true
			}
		}
		dead[p] = true
		return false
	}
	return search(point{})
}

// subject is a map with values of any type, used as one with ints.
type subject struct {
	get         func(key int) (int, bool)
	set         func(key, value int)
	delete      func(key int) (int, bool)
	loadOrStore func(key, value int) (int, bool)
	compute     func(key int, fn func(int, bool) (int, Action)) (int, bool)
	swap        func(fail bool) (was twoKeys)
	disturb     func(i int)
	clear       func()
	clearable   bool // whether clear takes both keys at one moment
}

func newSubject[V any](t *testing.T, shards int, pack func(int) V, unpack func(V) int) subject {
	m := mustNew[int, V](t, Config[int]{Shards: shards})
	routed := []Routed[int]{m.Route(0), m.Route(1)}
	number := func(value V, present bool) (int, bool) {
		if !present {
			return 0, false
		}
		return unpack(value), true
	}
	return subject{
		get:    func(key int) (int, bool) { return number(m.Get(key)) },
		set:    func(key, value int) { m.Set(key, pack(value)) },
		delete: func(key int) (int, bool) { return number(m.Delete(key)) },
		loadOrStore: func(key, value int) (int, bool) {
			actual, loaded := m.LoadOrStore(key, pack(value))
			return unpack(actual), loaded
		},
		compute: func(key int, fn func(int, bool) (int, Action)) (int, bool) {
			return number(m.Compute(key, func(old V, present bool) (V, Action) {
				value, action := fn(number(old, present))
				return pack(value), action
			}))
		},
		swap: func(fail bool) (was twoKeys) {
			err := m.Across(routed, func(tx *Tx[int, V]) error {
				var values [2]V
				for i, r := range routed {
					values[i], was[i].present, _ = tx.Get(r)
					was[i].value, _ = number(values[i], was[i].present)
				}
				for i, r := range routed {
					if was[1-i].present {
						_ = tx.Set(r, values[1-i])
					} else {
						_ = tx.Delete(r)
					}
				}
				if fail {
					return errTest
				}
				return nil
			})
			if (err != nil) != fail {
				t.Errorf("Across: %v", err)
			}
			return was
		},
		// disturb makes the tables grow and shrink around the two keys.
		disturb: func(i int) {
			if i%80 < 40 {
				m.Set(10+i%40, pack(0))
			} else {
				m.Delete(10 + i%40)
			}
		},
		clear:     m.Clear,
		clearable: shards == 1,
	}
}

// perform does one random operation and records it.
func (sub subject) perform(rng *rand.Rand, clock *atomic.Int64, value int) step {
	key := rng.IntN(2)
	s := step{began: clock.Add(1)}
	switch kind := rng.IntN(13); kind {
	case 0, 1, 2, 3:
		got, present := sub.get(key)
		s.ended = clock.Add(1)
		s.what = fmt.Sprintf("get %d = %d, %v", key, got, present)
		s.apply = func(m twoKeys) (twoKeys, bool) {
			return m, m[key].value == got && m[key].present == present
		}
	case 4, 5, 6:
		sub.set(key, value)
		s.ended = clock.Add(1)
		s.what = fmt.Sprintf("set %d to %d", key, value)
		s.apply = func(m twoKeys) (twoKeys, bool) {
			m[key].value, m[key].present = value, true
			return m, true
		}
	case 7:
		old, present := sub.delete(key)
		s.ended = clock.Add(1)
		s.what = fmt.Sprintf("delete %d = %d, %v", key, old, present)
		s.apply = func(m twoKeys) (twoKeys, bool) {
			fits := m[key].value == old && m[key].present == present
			m[key].value, m[key].present = 0, false
			return m, fits
		}
	case 8:
		actual, loaded := sub.loadOrStore(key, value)
		s.ended = clock.Add(1)
		s.what = fmt.Sprintf("load %d or store %d = %d, %v", key, value, actual, loaded)
		s.apply = func(m twoKeys) (twoKeys, bool) {
			if m[key].present {
				return m, loaded && m[key].value == actual
			}
			m[key].value, m[key].present = value, true
			return m, !loaded && actual == value
		}
	case 9, 10:
		return sub.performCompute(rng, clock, s, key, value)
	case 11:
		if !sub.clearable {
			return sub.perform(rng, clock, value)
		}
		sub.clear()
		s.ended = clock.Add(1)
		s.what = "clear"
		s.apply = func(twoKeys) (twoKeys, bool) { return twoKeys{}, true }
	default:
		fail := rng.IntN(3) == 0
		was := sub.swap(fail)
		s.ended = clock.Add(1)
		s.what = fmt.Sprintf("swap of %v, failing %v", was, fail)
		s.apply = func(m twoKeys) (twoKeys, bool) {
			fits := m == was
			if !fail {
				m[0], m[1] = m[1], m[0]
			}
			return m, fits
		}
	}
	return s
}

func (sub subject) performCompute(rng *rand.Rand, clock *atomic.Int64, s step, key, value int) step {
	action := []Action{Keep, Put, Remove}[rng.IntN(3)]
	var saw int
	var sawPresent bool
	is, isPresent := sub.compute(key, func(old int, present bool) (int, Action) {
		saw, sawPresent = old, present
		runtime.Gosched()
		return value, action
	})
	s.ended = clock.Add(1)
	s.what = fmt.Sprintf("compute %d: saw %d, %v, put %d, action %d", key, saw, sawPresent, value, action)
	s.apply = func(m twoKeys) (twoKeys, bool) {
		fits := m[key].value == saw && m[key].present == sawPresent
		switch action {
		case Keep:
		case Put:
			m[key].value, m[key].present = value, true
		case Remove:
			m[key].value, m[key].present = 0, false
		}
		return m, fits && m[key].value == is && m[key].present == isPresent
	}
	return s
}

func TestLinearizable(t *testing.T) {
	t.Run("words", func(t *testing.T) {
		testLinearizable(t, newSubject(t, 2, func(n int) int { return n }, func(n int) int { return n }))
	})
	t.Run("words in one shard, with Clear", func(t *testing.T) {
		testLinearizable(t, newSubject(t, 1, func(n int) int { return n }, func(n int) int { return n }))
	})
	// Half of the values have the bits that say unsettled, in disguise.
	t.Run("words that look unsettled", func(t *testing.T) {
		testLinearizable(t, newSubject(t, 2,
			func(n int) uint64 {
				if n%2 == 0 {
					return unsettledWord
				}
				return uint64(n)
			},
			func(v uint64) int {
				if v == unsettledWord {
					return 2
				}
				return int(v)
			}))
	})
	t.Run("boxes", func(t *testing.T) {
		testLinearizable(t, newSubject(t, 2, strconv.Itoa, atoi))
	})
	t.Run("boxes in one shard, with Clear", func(t *testing.T) {
		testLinearizable(t, newSubject(t, 1, strconv.Itoa, atoi))
	})
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

func testLinearizable(t *testing.T, sub subject) {
	const goroutines, each = 4, 6
	for round := range often(6000) {
		sub.clear()
		var clock atomic.Int64
		var histories [goroutines][]step
		var start, done sync.WaitGroup
		start.Add(1)
		for g := range goroutines {
			done.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(round), uint64(g)))
				start.Wait()
				for i := range each {
					// In the subtest with disguised values, every even value reads 2.
					value := 2
					if rng.IntN(2) == 0 {
						value = 1 + 2*(1+g*each+i)
					}
					histories[g] = append(histories[g], sub.perform(rng, &clock, value))
				}
			})
		}
		done.Go(func() {
			start.Wait()
			for i := range 40 {
				sub.disturb(round*40 + i)
			}
		})
		start.Done()
		done.Wait()

		var steps []step
		for _, history := range histories {
			steps = append(steps, history...)
		}
		if !explained(steps) {
			t.Fatalf("round %d: no order explains\n%s", round, describe(steps))
		}
	}
}

func describe(steps []step) string {
	var out strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&out, "%4d–%-4d %s\n", s.began, s.ended, s.what)
	}
	return out.String()
}

// The checker itself must be able to say no.
func TestCheckerFindsFaults(t *testing.T) {
	set := func(began, ended int64, value int) step {
		return step{began: began, ended: ended, apply: func(m twoKeys) (twoKeys, bool) {
			m[0].value, m[0].present = value, true
			return m, true
		}}
	}
	get := func(began, ended int64, value int) step {
		return step{began: began, ended: ended, apply: func(m twoKeys) (twoKeys, bool) {
			return m, m[0].value == value
		}}
	}
	for name, test := range map[string]struct {
		steps []step
		want  bool
	}{
		"one after another": {[]step{set(1, 2, 1), get(3, 4, 1)}, true},
		"stale read":        {[]step{set(1, 2, 1), set(3, 4, 2), get(5, 6, 1)}, false},
		"concurrent read":   {[]step{set(1, 2, 1), set(3, 6, 2), get(4, 5, 1)}, true},
		"going back":        {[]step{set(1, 2, 1), set(3, 10, 2), get(4, 5, 2), get(6, 7, 1)}, false},
		"out of thin air":   {[]step{set(1, 2, 1), get(3, 4, 9)}, false},
	} {
		if got := explained(test.steps); got != test.want {
			t.Errorf("%s: explained = %v", name, got)
		}
	}
}
