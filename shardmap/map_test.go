package shardmap

import (
	"math"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

func mustNew[K comparable, V any](t testing.TB, config Config[K]) *Map[K, V] {
	t.Helper()
	m, err := NewWithConfig[K, V](config)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func wantGet[K, V comparable](t testing.TB, m *Map[K, V], key K, want V, wantPresent bool) {
	t.Helper()
	if got, present := m.Get(key); got != want || present != wantPresent {
		t.Errorf("Get(%v) = %v, %v, want %v, %v", key, got, present, want, wantPresent)
	}
}

// wantPanic runs fn and returns what it panicked with.
func wantPanic(t testing.TB, fn func()) (value any) {
	t.Helper()
	defer func() {
		if value = recover(); value == nil {
			t.Error("no panic")
		}
	}()
	fn()
	return nil
}

func TestShardCounts(t *testing.T) {
	byDefault := roundUpToPowerOfTwo(4 * runtime.GOMAXPROCS(0))
	for _, test := range []struct{ configured, want int }{
		{0, byDefault}, {1, 1}, {2, 2}, {3, 4}, {5, 8}, {64, 64}, {1000, 1024}, {maxShards, maxShards},
	} {
		m := mustNew[int, int](t, Config[int]{Shards: test.configured})
		if got := m.Shards(); got != test.want {
			t.Errorf("Shards: %d gives %d shards, want %d", test.configured, got, test.want)
		}
	}
	if got := New[int, int]().Shards(); got != byDefault {
		t.Errorf("New gives %d shards, want %d", got, byDefault)
	}
}

func TestConfigRefused(t *testing.T) {
	for _, config := range []Config[int]{
		{Shards: -1}, {Shards: maxShards + 1}, {Shards: math.MaxInt}, {Shards: math.MinInt},
		{Capacity: -1}, {Capacity: math.MaxInt},
	} {
		if _, err := NewWithConfig[int, int](config); err == nil {
			t.Errorf("%+v was accepted", config)
		}
	}
}

func TestShardsDoNotShareCacheLines(t *testing.T) {
	if size := unsafe.Sizeof(paddedShard{}); size%shardSpan != 0 {
		t.Errorf("a shard takes %d bytes, not a multiple of %d", size, shardSpan)
	}
	for _, shards := range []int{1, 2, 4, 8, 64, 1024} {
		m := mustNew[string, string](t, Config[string]{Shards: shards})
		owner := map[uintptr]int{}
		for i := range shards {
			s := m.shards.at(i)
			first := uintptr(unsafe.Pointer(s))
			last := first + unsafe.Sizeof(*s) - 1
			for line := first / shardSpan; line <= last/shardSpan; line++ {
				if other, taken := owner[line]; taken {
					t.Fatalf("of %d shards, %d and %d share a cache line", shards, other, i)
				}
				owner[line] = i
			}
		}
	}
}

func TestBucketIsOneCacheLine(t *testing.T) {
	if size := unsafe.Sizeof(bucket[string]{}); unsafe.Sizeof(uintptr(0)) == 8 && size != 64 {
		t.Errorf("a bucket takes %d bytes, want 64", size)
	}
}

func TestSetGetDelete(t *testing.T) {
	m := New[string, int]()
	wantGet(t, m, "a", 0, false)
	m.Set("a", 1)
	m.Set("b", 2)
	wantGet(t, m, "a", 1, true)
	m.Set("a", 3)
	wantGet(t, m, "a", 3, true)
	if old, present := m.Delete("a"); old != 3 || !present {
		t.Errorf("Delete = %v, %v", old, present)
	}
	if old, present := m.Delete("a"); old != 0 || present {
		t.Errorf("second Delete = %v, %v", old, present)
	}
	wantGet(t, m, "a", 0, false)
	wantGet(t, m, "b", 2, true)
	if got := m.Len(); got != 1 {
		t.Errorf("Len = %d, want 1", got)
	}
}

func TestLoadOrStore(t *testing.T) {
	m := New[string, []int]()
	if actual, loaded := m.LoadOrStore("a", []int{1}); loaded || actual[0] != 1 {
		t.Errorf("first LoadOrStore = %v, %v", actual, loaded)
	}
	if actual, loaded := m.LoadOrStore("a", []int{2}); !loaded || actual[0] != 1 {
		t.Errorf("second LoadOrStore = %v, %v", actual, loaded)
	}
}

func TestCompute(t *testing.T) {
	m := New[string, int]()
	add := func(old int, _ bool) (int, Action) { return old + 1, Put }
	steps := []struct {
		name        string
		fn          func(int, bool) (int, Action)
		want        int
		wantPresent bool
	}{
		{"keep absent", func(int, bool) (int, Action) { return 9, Keep }, 0, false},
		{"remove absent", func(int, bool) (int, Action) { return 9, Remove }, 0, false},
		{"put absent", add, 1, true},
		{"put present", add, 2, true},
		{"keep present", func(int, bool) (int, Action) { return 9, Keep }, 2, true},
		{"remove present", func(int, bool) (int, Action) { return 9, Remove }, 0, false},
	}
	for _, step := range steps {
		if got, present := m.Compute("k", step.fn); got != step.want || present != step.wantPresent {
			t.Errorf("%s: Compute = %v, %v", step.name, got, present)
		}
		wantGet(t, m, "k", step.want, step.wantPresent)
	}
}

// A Set that is carried out while Compute's function runs counts as later.
func TestSetDuringCompute(t *testing.T) {
	for _, action := range []Action{Keep, Put, Remove} {
		m := New[string, int]()
		m.Set("k", 1)
		m.Compute("k", func(int, bool) (int, Action) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				m.Set("k", 2)
			}()
			<-done
			return 3, action
		})
		wantGet(t, m, "k", 2, true)
		if got := m.Len(); got != 1 {
			t.Errorf("action %d: Len = %d, want 1", action, got)
		}
	}
}

func TestPanicInComputeReleasesTheLock(t *testing.T) {
	for _, present := range []bool{false, true} {
		m := mustNew[string, int](t, Config[string]{Shards: 1})
		if present {
			m.Set("k", 1)
		}
		wantPanic(t, func() { m.Compute("k", func(int, bool) (int, Action) { panic("no") }) })
		wantPanic(t, func() { m.Compute("k", func(int, bool) (int, Action) { return 5, Action(77) }) })
		wantPresent := 0
		if present {
			wantPresent = 1
		}
		wantGet(t, m, "k", wantPresent, present)
		m.Set("other", 1) // Would wait for ever.
		m.Delete("k")
		wantGet(t, m, "k", 0, false)
	}
}

func TestPanicInHasherReleasesTheLock(t *testing.T) {
	failing := false
	m := mustNew[int, int](t, Config[int]{Shards: 1, Hasher: func(key int) uint64 {
		if failing && key < 1000 {
			panic("no hash")
		}
		return uint64(key)
	}})
	room := m.tables[0].Load().room()
	for i := range room {
		m.Set(i, i)
	}
	failing = true
	wantPanic(t, func() { m.Get(1) })
	wantPanic(t, func() { m.Set(1000, 1) }) // Hashes the other keys, to grow.
	routed := m.Route(1001)
	wantPanic(t, func() { _ = m.Across([]Routed[int]{routed}, func(*Tx[int, int]) error { return nil }) })
	failing = false
	m.Set(1000, 1)
	for i := range room {
		wantGet(t, m, i, i, true)
	}
	if got := m.Len(); got != room+1 {
		t.Errorf("Len = %d, want %d", got, room+1)
	}
}

func TestNaNKeys(t *testing.T) {
	m := New[float64, uint64]()
	nan := math.NaN()
	for range 100 {
		m.Set(nan, 1)
	}
	m.Set(nan, unsettledWord)
	wantGet(t, m, nan, 0, false)
	if _, present := m.Delete(nan); present {
		t.Error("Delete found NaN")
	}
	shown := 0
	for range m.All() {
		shown++
	}
	if shown != 101 || m.Len() != 101 {
		t.Errorf("Range showed %d, Len is %d, want 101", shown, m.Len())
	}
	m.Clear()
	if got := m.Len(); got != 0 {
		t.Errorf("Len after Clear = %d", got)
	}
	m.Set(math.Copysign(0, -1), 7)
	wantGet(t, m, 0, 7, true)
}

// A value may have the very bits that say unsettled.
func TestValueThatLooksUnsettled(t *testing.T) {
	m := New[string, uint64]()
	for _, before := range []bool{false, true} {
		if before {
			m.Set("k", 1)
		}
		m.Set("k", unsettledWord)
		wantGet(t, m, "k", unsettledWord, true)
		if got, loaded := m.LoadOrStore("k", 5); got != unsettledWord || !loaded {
			t.Errorf("LoadOrStore = %x, %v", got, loaded)
		}
		for _, value := range m.All() {
			if value != unsettledWord {
				t.Errorf("Range shows %x", value)
			}
		}
		m.Compute("k", func(old uint64, present bool) (uint64, Action) {
			if old != unsettledWord || !present {
				t.Errorf("Compute sees %x, %v", old, present)
			}
			return old, Put
		})
		wantGet(t, m, "k", unsettledWord, true)
		m.Set("k", 6)
		wantGet(t, m, "k", 6, true)
		m.Set("k", unsettledWord)
		if old, present := m.Delete("k"); old != unsettledWord || !present {
			t.Errorf("Delete = %x, %v", old, present)
		}
		wantGet(t, m, "k", 0, false)
	}
}

type namedInt int32

func TestKeyAndValueTypes(t *testing.T) {
	testTypes(t, []int8{-128, 0, 127}, []bool{false, true, true})
	testTypes(t, []uint16{0, 1, 65535}, []struct{}{{}, {}, {}})
	testTypes(t, []namedInt{-1, 0, 1}, []float32{-1, 0, 1})
	testTypes(t, []uintptr{0, 1, 2}, []int32{-1, 0, 1})
	testTypes(t, []int64{math.MinInt64, 0, math.MaxInt64}, []uint64{0, unsettledWord, math.MaxUint64})
	testTypes(t, []string{"", "a", "b"}, []string{"x", "", "z"})
	testTypes(t, [][16]byte{{}, {1}, {15: 1}}, [][3]byte{{1}, {1: 1}, {2: 1}})
	testTypes(t, []any{1, "1", 1.0}, []any{nil, 1, "x"})
	testTypes(t, []*int{nil, new(int), new(int)}, []*int{nil, new(int), new(int)})
	type pair struct {
		a int8
		b int32
	}
	testTypes(t, []pair{{1, 1}, {1, 2}, {2, 1}}, []pair{{1, 1}, {-1, -2}, {}})
	testTypes(t, []complex64{0, 1, 1i}, []complex128{0, 1, 1i})
	type wide struct{ a, b, c string }
	testTypes(t, []wide{{a: "x"}, {b: "x"}, {c: "x"}}, []wide{{a: "x"}, {b: "x"}, {c: "x"}})
}

func testTypes[K, V comparable](t *testing.T, keys []K, values []V) {
	t.Helper()
	m := New[K, V]()
	for round := range 3 {
		for i, key := range keys {
			m.Set(key, values[(i+round)%len(values)])
		}
		for i, key := range keys {
			wantGet(t, m, key, values[(i+round)%len(values)], true)
		}
	}
	if m.Len() != len(keys) {
		t.Errorf("%T: Len = %d, want %d", m, m.Len(), len(keys))
	}
}

func TestValuesInWords(t *testing.T) {
	type small struct {
		_ int32
		_ [2]int16
	}
	type pointer struct{ _ *int }
	for _, test := range []struct {
		of   any
		got  bool
		want bool
	}{
		{uint64(0), newValues[int, uint64]().inWords, true},
		{struct{}{}, newValues[int, struct{}]().inWords, true},
		{small{}, newValues[int, small]().inWords, true},
		{[8]byte{}, newValues[int, [8]byte]().inWords, true},
		{[9]byte{}, newValues[int, [9]byte]().inWords, false},
		{pointer{}, newValues[int, pointer]().inWords, false},
		{new(int), newValues[int, *int]().inWords, false},
		{"", newValues[int, string]().inWords, false},
		{[1]*int{}, newValues[int, [1]*int]().inWords, false},
		{func() {}, newValues[int, func()]().inWords, false},
		{make(chan int), newValues[int, chan int]().inWords, false},
		{unsafe.Pointer(nil), newValues[int, unsafe.Pointer]().inWords, false},
	} {
		if test.got != test.want {
			t.Errorf("%v in words: %v, want %v", reflect.TypeOf(test.of), test.got, test.want)
		}
	}
}

func TestRangeShowsAllOnceAndStops(t *testing.T) {
	m := New[int, int]()
	for i := range 1000 {
		m.Set(i, i*i)
	}
	seen := map[int]int{}
	m.Range(func(key, value int) bool {
		if value != key*key {
			t.Errorf("key %d has %d", key, value)
		}
		seen[key]++
		return true
	})
	if len(seen) != 1000 {
		t.Errorf("saw %d keys", len(seen))
	}
	for key, times := range seen {
		if times != 1 {
			t.Errorf("saw key %d %d times", key, times)
		}
	}
	steps := 0
	for range m.All() {
		if steps++; steps == 10 {
			break
		}
	}
	if steps != 10 {
		t.Errorf("went on for %d steps", steps)
	}
}

// Range's function may change the map, the key in hand included.
func TestRangeMayCallTheMap(t *testing.T) {
	m := mustNew[int, int](t, Config[int]{Shards: 2})
	for i := range 500 {
		m.Set(i, i)
	}
	shown := 0
	for key, value := range m.All() {
		if key >= 500 {
			continue // Added below; may be shown or not.
		}
		shown++
		m.Set(key, -value)
		m.Set(key+1000, value)
		m.Compute(key, func(old int, _ bool) (int, Action) { return old, Put })
		m.Delete(key)
		m.Set(key, value) // There again, in another entry: must not be shown twice.
		if m.Len() < 500 {
			t.Fatal("an entry is missing")
		}
	}
	if shown != 500 || m.Len() != 1000 {
		t.Errorf("showed %d, left %d, want 500 and 1000", shown, m.Len())
	}
}

func TestMemoryFollowsTheNumberOfEntries(t *testing.T) {
	m := mustNew[int, int](t, Config[int]{Shards: 2})
	slots := func() (total int) {
		for _, stats := range m.Stats() {
			total += stats.Slots
		}
		return total
	}
	empty := slots()
	const keys = 20_000
	fill := func() {
		for i := range keys {
			m.Set(i, i)
		}
	}
	fill()
	full := slots()
	if full < keys || full > 8*keys {
		t.Errorf("%d slots for %d keys", full, keys)
	}
	for i := range keys {
		m.Delete(i)
	}
	if got := slots(); got > 2*empty {
		t.Errorf("%d slots after deleting everything, %d at first", got, empty)
	}
	fill()
	m.Clear()
	if got := slots(); got != empty {
		t.Errorf("%d slots after Clear, %d at first", got, empty)
	}
	// Deleting and adding for ever does not grow a map that stays small.
	for i := range often(10) * keys {
		m.Set(i, i)
		m.Delete(i - 50)
	}
	if got := slots(); got > 1000 {
		t.Errorf("%d slots for %d keys", got, m.Len())
	}
}

func TestDeletedValuesAreCollected(t *testing.T) {
	m := New[int, *[1 << 10]byte]()
	var collected atomic.Int32
	for i := range 100 {
		value := new([1 << 10]byte)
		runtime.AddCleanup(value, func(struct{}) { collected.Add(1) }, struct{}{})
		m.Set(i, value)
	}
	for i := range 50 {
		m.Delete(i)
	}
	for i := 50; i < 100; i++ {
		m.Set(i, nil)
	}
	for range 1000 {
		runtime.GC()
		if collected.Load() == 100 {
			break
		}
		runtime.Gosched()
	}
	if n := collected.Load(); n != 100 {
		t.Errorf("%d of 100 values were collected", n)
	}
	runtime.KeepAlive(m)
}

func TestCapacityIsKept(t *testing.T) {
	m := mustNew[int, int](t, Config[int]{Shards: 1, Capacity: 10_000})
	before := m.Stats()[0].Slots
	for i := range 10_000 {
		m.Set(i, i)
	}
	for i := range 10_000 {
		m.Delete(i)
	}
	m.Clear()
	stats := m.Stats()[0]
	if stats.Slots != before || stats.Grows != 0 || stats.Shrinks != 0 {
		t.Errorf("started with %d slots, then %+v", before, stats)
	}
}

func TestStats(t *testing.T) {
	m := mustNew[int, int](t, Config[int]{Shards: 1})
	for i := range 100 {
		m.Set(i, i)
		m.Set(i, -i)
	}
	for i := range 95 {
		m.Delete(i)
	}
	m.Compute(99, func(int, bool) (int, Action) { return 0, Remove })
	m.Compute(100, func(int, bool) (int, Action) { return 0, Put })
	m.LoadOrStore(101, 1)
	stats := m.Stats()[0]
	if stats.Grows == 0 || stats.Shrinks == 0 {
		t.Errorf("did not count resizing: %+v", stats)
	}
	if stats.Entries != 6 || stats.Inserts != 102 || stats.Deletes != 96 || stats.LockWaits != 0 {
		t.Errorf("%+v", stats)
	}
	m.Clear()
	if stats := m.Stats()[0]; stats.Entries != 0 || stats.Deletes != 102 {
		t.Errorf("after Clear: %+v", stats)
	}
}

func TestLockWaitsAreCounted(t *testing.T) {
	m := mustNew[int, int](t, Config[int]{Shards: 1})
	// The other goroutine need not get as far as the lock in time, so try again.
	for try := 0; m.Stats()[0].LockWaits == 0; try++ {
		if try == 10_000 {
			t.Fatal("nobody ever waited for the lock")
		}
		var waiter sync.WaitGroup
		m.Compute(1, func(int, bool) (int, Action) {
			began := make(chan struct{})
			waiter.Go(func() {
				close(began)
				m.Delete(1)
				m.Compute(2, func(int, bool) (int, Action) { return 0, Keep })
			})
			<-began
			for range 100 {
				runtime.Gosched()
			}
			return 1, Put
		})
		waiter.Wait()
	}
}

// Every hash the same is the worst there is: slow, but right.
func TestConstantHash(t *testing.T) {
	m := mustNew[int, int](t, Config[int]{Hasher: func(int) uint64 { return 0 }})
	const keys = 600 // More than an overflow counter can count.
	for i := range keys {
		m.Set(i, i)
	}
	for i := range keys {
		wantGet(t, m, i, i, true)
	}
	wantGet(t, m, -1, 0, false)
	for i := 0; i < keys; i += 2 {
		m.Delete(i)
	}
	for i := range keys {
		want := i
		if i%2 == 0 {
			want = 0
		}
		wantGet(t, m, i, want, i%2 == 1)
	}
}

// Keys that differ only in a few bits must still spread, with the default
// hashing and with a hasher that does nothing.
func TestKeysSpread(t *testing.T) {
	identity := func(key uint64) uint64 { return key }
	for _, hasher := range []func(uint64) uint64{nil, identity} {
		for _, shift := range []int{0, 16, 32, 48} {
			m := mustNew[uint64, int](t, Config[uint64]{Shards: 16, Hasher: hasher})
			const keys = 16 * 1000
			for i := range uint64(keys) {
				m.Set(i<<shift, 1)
			}
			for i, stats := range m.Stats() {
				if stats.Entries < 700 || stats.Entries > 1300 {
					t.Errorf("keys shifted by %d: shard %d has %d of %d", shift, i, stats.Entries, keys)
				}
			}
			// With a perfect hash it is about 2 %.
			if strayed := strayed(m); strayed > keys/20 {
				t.Errorf("keys shifted by %d: %d of %d are not in their home bucket", shift, strayed, keys)
			}
		}
	}
}

// Entries that went on to another bucket leave no trace when they are deleted.
func TestDeletionsLeaveNoTrace(t *testing.T) {
	m := mustNew[int, int](t, Config[int]{Shards: 1, Capacity: 1000})
	for i := range 1000 {
		m.Set(i, i)
	}
	if strayed(m) == 0 {
		t.Fatal("no entry went on to another bucket")
	}
	for i := range 1000 {
		m.Delete(i)
	}
	if got := strayed(m); got != 0 {
		t.Errorf("%d traces are left", got)
	}
}

// strayed returns how often an entry had to go on to the next bucket.
func strayed[K comparable, V any](m *Map[K, V]) (total int) {
	for i := range m.tables {
		for j := range m.tables[i].Load().buckets {
			total += int(m.tables[i].Load().buckets[j].meta.Load() >> overflowShift)
		}
	}
	return total
}
