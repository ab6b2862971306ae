package shardmap

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

var errTest = errors.New("only a test")

func wantAffinity(t *testing.T, err, reason error) {
	t.Helper()
	var affinity *AffinityError
	if !errors.As(err, &affinity) || !errors.Is(err, reason) {
		t.Errorf("got error %v, want an AffinityError because %v", err, reason)
	} else if affinity.Error() == "" {
		t.Error("the error says nothing")
	}
}

// twoShards returns two keys of different shards.
func twoShards[V any](m *Map[int, V]) (a, b Routed[int]) {
	a = m.Route(0)
	for i := 1; ; i++ {
		if b = m.Route(i); b.Shard() != a.Shard() {
			return a, b
		}
	}
}

func TestRoutedKeyOnItsShard(t *testing.T) {
	m := mustNew[string, int](t, Config[string]{Shards: 8})
	r := m.Route("k")
	view := m.Shard(r.Shard())
	if r.Key() != "k" || view.Number() != r.Shard() {
		t.Errorf("routed %q to %d, view of %d", r.Key(), r.Shard(), view.Number())
	}
	if err := view.Set(r, 1); err != nil {
		t.Fatal(err)
	}
	if got, present, err := view.Compute(r, func(old int, _ bool) (int, Action) { return old + 1, Put }); got != 2 || !present || err != nil {
		t.Errorf("Compute = %v, %v, %v", got, present, err)
	}
	if got, present, err := view.Get(r); got != 2 || !present || err != nil {
		t.Errorf("Get = %v, %v, %v", got, present, err)
	}
	if got := view.Stats().Entries; got != 1 {
		t.Errorf("the shard has %d entries", got)
	}
	wantGet(t, m, "k", 2, true)
	if old, present, err := view.Delete(r); old != 2 || !present || err != nil {
		t.Errorf("Delete = %v, %v, %v", old, present, err)
	}
}

func TestRoutedKeyElsewhereIsRefused(t *testing.T) {
	m := mustNew[int, int](t, Config[int]{Shards: 8})
	other := mustNew[int, int](t, Config[int]{Shards: 8})
	a, b := twoShards(m)
	foreign := other.Route(0)
	view := m.Shard(a.Shard())
	for _, test := range []struct {
		key    Routed[int]
		reason error
	}{
		{b, ErrOtherShard}, {foreign, ErrOtherMap}, {Routed[int]{}, ErrUnrouted},
	} {
		_, _, err := view.Get(test.key)
		wantAffinity(t, err, test.reason)
		wantAffinity(t, view.Set(test.key, 1), test.reason)
		_, _, err = view.Delete(test.key)
		wantAffinity(t, err, test.reason)
		_, _, err = view.Compute(test.key, func(int, bool) (int, Action) {
			t.Error("the function was called")
			return 1, Put
		})
		wantAffinity(t, err, test.reason)
	}
	if m.Len() != 0 {
		t.Errorf("%d entries were made", m.Len())
	}
	if got := (Routed[int]{}).Shard(); got != -1 {
		t.Errorf("the zero Routed is of shard %d", got)
	}
}

func TestNoSuchShard(t *testing.T) {
	m := mustNew[int, int](t, Config[int]{Shards: 8})
	wantPanic(t, func() { m.Shard(-1) })
	wantPanic(t, func() { m.Shard(8) })
}

func TestAcrossRefusesKeys(t *testing.T) {
	m := mustNew[int, int](t, Config[int]{Shards: 8})
	a, b := twoShards(m)
	never := func(*Tx[int, int]) error {
		t.Error("the function was called")
		return nil
	}
	foreign := New[int, int]().Route(1)
	wantAffinity(t, m.Across([]Routed[int]{a, foreign}, never), ErrOtherMap)
	wantAffinity(t, m.Across([]Routed[int]{a, {}}, never), ErrUnrouted)

	err := m.Across([]Routed[int]{a}, func(tx *Tx[int, int]) error {
		_, _, err := tx.Get(b)
		wantAffinity(t, err, ErrNotNamed)
		wantAffinity(t, tx.Set(b, 1), ErrNotNamed)
		wantAffinity(t, tx.Delete(b), ErrNotNamed)
		wantAffinity(t, tx.Set(foreign, 1), ErrOtherMap)
		wantAffinity(t, tx.Set(Routed[int]{}, 1), ErrUnrouted)
		return nil
	})
	if err != nil || m.Len() != 0 {
		t.Errorf("Across = %v, Len = %d", err, m.Len())
	}

	floats := New[float64, int]()
	nan := floats.Route(math.NaN())
	err = floats.Across([]Routed[float64]{nan}, func(*Tx[float64, int]) error { return nil })
	wantAffinity(t, err, ErrNotEqualToItself)
}

func TestAcrossCommits(t *testing.T) {
	m := mustNew[int, string](t, Config[int]{Shards: 8})
	a, b := twoShards(m)
	m.Set(a.Key(), "old")
	var kept *Tx[int, string]
	err := m.Across([]Routed[int]{b, a, b, a}, func(tx *Tx[int, string]) error {
		kept = tx
		value, _, err := tx.Get(a)
		return errors.Join(err, tx.Delete(a), tx.Set(b, value+"er"))
	})
	if err != nil {
		t.Fatal(err)
	}
	wantGet(t, m, a.Key(), "", false)
	wantGet(t, m, b.Key(), "older", true)
	if err := kept.Set(a, "late"); !errors.Is(err, ErrTxDone) {
		t.Errorf("a transaction that is over says %v", err)
	}
	if err := m.Across(nil, func(*Tx[int, string]) error { return nil }); err != nil {
		t.Errorf("Across of nothing: %v", err)
	}
}

func TestAcrossRollsBack(t *testing.T) {
	m := mustNew[int, uint64](t, Config[int]{Shards: 8})
	a, b := twoShards(m)
	m.Set(a.Key(), 1)
	change := func(tx *Tx[int, uint64]) {
		if err := errors.Join(tx.Set(a, 2), tx.Set(b, 3)); err != nil {
			t.Error(err)
		}
	}
	check := func() {
		t.Helper()
		wantGet(t, m, a.Key(), 1, true)
		wantGet(t, m, b.Key(), 0, false)
		if got := m.Len(); got != 1 {
			t.Errorf("Len = %d", got)
		}
		m.Set(b.Key(), 1)
		m.Delete(b.Key())
	}

	err := m.Across([]Routed[int]{a, b}, func(tx *Tx[int, uint64]) error {
		change(tx)
		return errTest
	})
	if !errors.Is(err, errTest) {
		t.Errorf("Across = %v", err)
	}
	check()

	if value := wantPanic(t, func() {
		_ = m.Across([]Routed[int]{a, b}, func(tx *Tx[int, uint64]) error {
			change(tx)
			panic("no")
		})
	}); value != "no" {
		t.Errorf("panicked with %v", value)
	}
	check()

	var exiting sync.WaitGroup
	exiting.Go(func() {
		_ = m.Across([]Routed[int]{a, b}, func(tx *Tx[int, uint64]) error {
			change(tx)
			runtime.Goexit()
			return nil
		})
	})
	exiting.Wait()
	check()
}

func TestAcrossCountsAndShrinks(t *testing.T) {
	m := mustNew[int, int](t, Config[int]{Shards: 1})
	var keys []Routed[int]
	for i := range 1000 {
		keys = append(keys, m.Route(i))
	}
	each := func(fn func(*Tx[int, int], Routed[int]) error) {
		if err := m.Across(keys, func(tx *Tx[int, int]) (err error) {
			for _, key := range keys {
				err = errors.Join(err, fn(tx, key))
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	each(func(tx *Tx[int, int], key Routed[int]) error { return tx.Set(key, 1) })
	full := m.Stats()[0]
	each(func(tx *Tx[int, int], key Routed[int]) error { return tx.Delete(key) })
	empty := m.Stats()[0]
	if full.Entries != 1000 || full.Inserts != 1000 || empty.Entries != 0 || empty.Deletes != 1000 {
		t.Errorf("full %+v, empty %+v", full, empty)
	}
	if empty.Slots >= full.Slots {
		t.Errorf("%d slots when full, %d when empty", full.Slots, empty.Slots)
	}
}

// Money moves between accounts on different shards while others count it, remove
// and add accounts, and make the tables grow and shrink. No coin may be lost,
// and whoever counts within Across must never see a coin missing.
func TestBankTransfers(t *testing.T) {
	t.Run("words", func(t *testing.T) {
		testBank(t, func(n int) int { return n }, func(v int) int { return v })
	})
	t.Run("boxes", func(t *testing.T) {
		type balance struct {
			coins int
			name  string
		}
		testBank(t, func(n int) balance { return balance{n, "x"} }, func(v balance) int { return v.coins })
	})
}

func testBank[V any](t *testing.T, pack func(int) V, unpack func(V) int) {
	const accounts, coins = 12, 100
	m := mustNew[int, V](t, Config[int]{Shards: 4})
	var all []Routed[int]
	for i := range accounts {
		m.Set(i, pack(coins))
		all = append(all, m.Route(i))
	}
	// An account without coins does not exist: transfers add and remove keys.
	transfer := func(tx *Tx[int, V], from, to Routed[int]) error {
		source, _, err := tx.Get(from)
		if err != nil || unpack(source) == 0 || from.Key() == to.Key() {
			return err
		}
		target, _, err := tx.Get(to)
		if err != nil {
			return err
		}
		moved := unpack(source)/2 + 1
		if err := tx.Set(to, pack(unpack(target)+moved)); err != nil {
			return err
		}
		if moved == unpack(source) {
			return tx.Delete(from)
		}
		return tx.Set(from, pack(unpack(source)-moved))
	}
	count := func(tx *Tx[int, V]) (sum int, err error) {
		for _, account := range all {
			value, present, err := tx.Get(account)
			if err != nil {
				return 0, err
			}
			if present {
				sum += unpack(value)
			}
		}
		return sum, nil
	}

	rounds := often(4000)
	var workers, noise sync.WaitGroup
	var stop atomic.Bool
	for worker := range 6 {
		workers.Go(func() {
			for i := range rounds {
				from, to := all[(worker+i)%accounts], all[(worker*5+i*7)%accounts]
				err := m.Across([]Routed[int]{from, to}, func(tx *Tx[int, V]) error {
					if err := transfer(tx, from, to); err != nil {
						return err
					}
					if i%5 == 0 {
						return errTest // Must undo all of it.
					}
					return nil
				})
				if (err != nil) != (i%5 == 0) {
					t.Errorf("transfer: %v", err)
				}
			}
		})
	}
	for range 2 {
		workers.Go(func() {
			for range rounds / 4 {
				if err := m.Across(all, func(tx *Tx[int, V]) error {
					sum, err := count(tx)
					if sum != accounts*coins {
						t.Errorf("there are %d coins", sum)
					}
					return err
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	noise.Go(func() {
		for i := 0; !stop.Load(); i++ {
			for j := range 200 {
				m.Set(1000+j, pack(1))
			}
			for j := range 200 {
				m.Delete(1000 + j)
				if value, present := m.Get(j % accounts); present && unpack(value) <= 0 {
					t.Error("an account without coins")
				}
			}
		}
	})
	workers.Wait()
	stop.Store(true)
	noise.Wait()

	sum := 0
	for key, value := range m.All() {
		if key < accounts {
			sum += unpack(value)
		}
	}
	if sum != accounts*coins {
		t.Errorf("%d coins are left", sum)
	}
}

func TestShardViewLoadsAndRanges(t *testing.T) {
	m := mustNew[int, int](t, Config[int]{Shards: 4})
	for i := range 100 {
		r := m.Route(i)
		view := m.Shard(r.Shard())
		if actual, loaded, err := view.LoadOrStore(r, i); err != nil || loaded || actual != i {
			t.Fatalf("LoadOrStore = %d, %v, %v", actual, loaded, err)
		}
		if actual, loaded, err := view.LoadOrStore(r, -1); err != nil || !loaded || actual != i {
			t.Fatalf("LoadOrStore again = %d, %v, %v", actual, loaded, err)
		}
		if _, _, err := m.Shard((r.Shard()+1)%4).LoadOrStore(r, i); !errors.Is(err, ErrOtherShard) {
			t.Fatalf("LoadOrStore in another shard = %v", err)
		}
	}
	seen := map[int]bool{}
	for number := range m.Shards() {
		m.Shard(number).Range(func(key, value int) bool {
			if seen[key] || key != value || m.Route(key).Shard() != number {
				t.Errorf("shard %d shows %d, %d", number, key, value)
			}
			seen[key] = true
			return true
		})
	}
	if len(seen) != 100 {
		t.Errorf("%d keys seen", len(seen))
	}
}
