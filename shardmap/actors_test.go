package shardmap

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func newTestActors(t *testing.T, config ActorsConfig[int]) *Actors[int, int] {
	t.Helper()
	a, err := NewActors[int, int](config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

// block keeps the shard busy until the function it returns is called.
func block(t *testing.T, a *Actors[int, int], key int) (release func()) {
	t.Helper()
	begun, end := make(chan struct{}), make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if err := a.Do(context.Background(), key, func(*State[int, int]) {
			close(begun)
			<-end
		}); err != nil {
			t.Errorf("the blocking function: %v", err)
		}
	})
	<-begun
	return func() {
		close(end)
		waiting.Wait()
	}
}

func nothing(*State[int, int]) {}

func TestActorsConfigRefused(t *testing.T) {
	for _, config := range []ActorsConfig[int]{
		{Shards: -1}, {Shards: maxShards + 1}, {Mailbox: -1}, {Mailbox: maxMailbox + 1},
	} {
		if _, err := NewActors[int, int](config); err == nil {
			t.Errorf("%+v was accepted", config)
		}
	}
}

func TestActorsDefaults(t *testing.T) {
	a := newTestActors(t, ActorsConfig[int]{})
	if want := roundUpToPowerOfTwo(4 * runtime.GOMAXPROCS(0)); a.Shards() != want {
		t.Errorf("%d shards, want %d", a.Shards(), want)
	}
	if got := a.Stats()[0].Capacity; got != defaultMailbox {
		t.Errorf("capacity %d, want %d", got, defaultMailbox)
	}
}

func TestDoHasTheShardToItself(t *testing.T) {
	a := newTestActors(t, ActorsConfig[int]{Shards: 4})
	const callers, keys = 16, 10
	rounds := often(2000)
	var calls sync.WaitGroup
	for range callers {
		calls.Go(func() {
			for i := range rounds {
				key := i % keys
				if err := a.Do(context.Background(), key, func(s *State[int, int]) {
					count, _ := s.Get(key)
					s.Set(key, count+1)
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	calls.Wait()
	total, done := 0, uint64(0)
	for key := range keys {
		_ = a.Do(context.Background(), key, func(s *State[int, int]) {
			count, _ := s.Get(key)
			total += count
			s.Delete(key)
		})
	}
	for _, stats := range a.Stats() {
		done += stats.Done
	}
	if total != callers*rounds || done != uint64(total+keys) {
		t.Errorf("counted %d of %d, done %d", total, callers*rounds, done)
	}
}

func TestStateIsOneShard(t *testing.T) {
	a := newTestActors(t, ActorsConfig[int]{Shards: 4})
	other := 1
	for a.ShardOf(other) == a.ShardOf(0) {
		other++
	}
	for name, touch := range map[string]func(*State[int, int]){
		"Get":    func(s *State[int, int]) { s.Get(other) },
		"Set":    func(s *State[int, int]) { s.Set(other, 1) },
		"Delete": func(s *State[int, int]) { s.Delete(other) },
	} {
		err := a.Do(context.Background(), 0, touch)
		wantAffinity(t, err, ErrOtherShard)
		var panicked *PanicError
		if !errors.As(err, &panicked) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_ = a.Do(context.Background(), 0, func(s *State[int, int]) {
		s.Set(0, 7)
		sum := 0
		s.Range(func(_, value int) bool {
			sum += value
			return false
		})
		if s.Len() != 1 || sum != 7 || s.Shard() != a.ShardOf(0) {
			t.Errorf("Len %d, sum %d, shard %d", s.Len(), sum, s.Shard())
		}
	})
}

func TestActorsRefuseNaN(t *testing.T) {
	a, err := NewActors[float64, int](ActorsConfig[float64]{Shards: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for name, do := range map[string]func(context.Context, float64, func(*State[float64, int])) error{"Do": a.Do, "TryDo": a.TryDo} {
		err := do(context.Background(), math.NaN(), func(*State[float64, int]) { t.Error("it ran") })
		if !errors.Is(err, ErrNotEqualToItself) {
			t.Errorf("%s = %v", name, err)
		}
	}
}

func TestTryDoSeesAFullMailbox(t *testing.T) {
	a := newTestActors(t, ActorsConfig[int]{Shards: 1, Mailbox: 2})
	release := block(t, a, 0)
	var queued sync.WaitGroup
	for range 2 {
		queued.Go(func() {
			if err := a.Do(context.Background(), 0, nothing); err != nil {
				t.Error(err)
			}
		})
	}
	for a.Stats()[0].Depth < 2 {
		runtime.Gosched()
	}
	if err := a.TryDo(context.Background(), 0, nothing); !errors.Is(err, ErrMailboxFull) {
		t.Errorf("TryDo = %v", err)
	}
	impatient, giveUp := context.WithCancel(context.Background())
	var blocked sync.WaitGroup
	blocked.Go(func() {
		if err := a.Do(impatient, 0, nothing); !errors.Is(err, ErrNotRun) {
			t.Errorf("Do without room = %v", err)
		}
	})
	for a.Stats()[0].Blocked < 1 {
		runtime.Gosched()
	}
	giveUp()
	blocked.Wait()
	release()
	queued.Wait()
	if err := a.TryDo(context.Background(), 0, nothing); err != nil {
		t.Errorf("TryDo with room = %v", err)
	}
	stats := a.Stats()[0]
	if stats != (MailboxStats{Depth: 0, Capacity: 2, HighWater: 2, Done: 4, Refused: 2}) {
		t.Errorf("%+v", stats)
	}
}

// A Do that is cancelled before its function begins says so, and the function
// never runs, whether it was waiting for room or in the mailbox.
func TestCancelledBeforeItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestActors(t, ActorsConfig[int]{Shards: 1, Mailbox: 1})
		release := block(t, a, 0)
		ran := func(*State[int, int]) { t.Error("it ran") }
		why := errors.New("no longer wanted")
		ctx, cancel := context.WithCancelCause(context.Background())
		results := make(chan error, 2)
		for range 2 { // One gets into the mailbox, one waits for room.
			go func() { results <- a.Do(ctx, 0, ran) }()
		}
		synctest.Wait()
		cancel(why)
		for range 2 {
			err := <-results
			if !errors.Is(err, ErrNotRun) || !errors.Is(err, why) || !errors.Is(err, context.Canceled) || errors.Is(err, ErrStarted) {
				t.Errorf("Do = %v", err)
			}
		}
		if err := a.Do(ctx, 0, ran); !errors.Is(err, ErrNotRun) {
			t.Errorf("Do with an ended context = %v", err)
		}
		if err := a.TryDo(ctx, 0, ran); !errors.Is(err, ErrNotRun) {
			t.Errorf("TryDo with an ended context = %v", err)
		}
		release()
		if err := a.Drain(context.Background()); err != nil {
			t.Error(err)
		}
		if stats := a.Stats()[0]; stats.Cancelled != 1 || stats.Done != 1 {
			t.Errorf("%+v", stats)
		}
	})
}

func TestCancelledAfterItBegan(t *testing.T) {
	a := newTestActors(t, ActorsConfig[int]{Shards: 1})
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan struct{})
	err := a.Do(ctx, 0, func(s *State[int, int]) {
		cancel()
		<-end
		s.Set(0, 1)
	})
	if !errors.Is(err, ErrStarted) || !errors.Is(err, context.Canceled) || errors.Is(err, ErrNotRun) {
		t.Errorf("Do = %v", err)
	}
	close(end)
	var finished bool
	if err := a.Do(context.Background(), 0, func(s *State[int, int]) { _, finished = s.Get(0) }); err != nil || !finished {
		t.Errorf("the function did not go on to its end: %v", err)
	}
}

// Whatever Do says must be true: the function ran, or it did not.
func TestDoTellsTheTruth(t *testing.T) {
	a := newTestActors(t, ActorsConfig[int]{Shards: 2, Mailbox: 2})
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for i := range often(2000) {
				var began, ended atomic.Bool
				ctx, cancel := context.WithCancel(context.Background())
				if i%2 == 0 {
					go cancel()
				}
				do := a.Do
				if i%3 == 0 {
					do = a.TryDo
				}
				err := do(ctx, caller+i, func(*State[int, int]) {
					began.Store(true)
					runtime.Gosched()
					ended.Store(true)
				})
				cancel()
				switch {
				case err == nil:
					if !ended.Load() {
						t.Error("returned nil before the end")
					}
				case errors.Is(err, ErrStarted):
					_ = a.Drain(context.Background())
					if !ended.Load() {
						t.Error("it had begun and did not go on to its end")
					}
				case errors.Is(err, ErrNotRun), errors.Is(err, ErrMailboxFull):
					_ = a.Drain(context.Background())
					if began.Load() {
						t.Errorf("it ran, but Do said %v", err)
					}
				default:
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
}

func TestPanicGoesToTheCaller(t *testing.T) {
	a := newTestActors(t, ActorsConfig[int]{Shards: 1})
	err := a.Do(context.Background(), 0, func(s *State[int, int]) {
		s.Set(0, 1)
		panic(errTest)
	})
	var panicked *PanicError
	if !errors.As(err, &panicked) || !errors.Is(err, errTest) {
		t.Fatalf("Do = %v", err)
	}
	if !strings.Contains(string(panicked.Stack), "TestPanicGoesToTheCaller") {
		t.Errorf("the stack does not say where:\n%s", panicked.Stack)
	}
	err = a.Do(context.Background(), 0, nil)
	if !errors.As(err, &panicked) {
		t.Errorf("Do without a function = %v", err)
	}
	var value int
	if err := a.Do(context.Background(), 0, func(s *State[int, int]) { value, _ = s.Get(0) }); err != nil || value != 1 {
		t.Errorf("after the panic: %v, %v", value, err)
	}
	if stats := a.Stats()[0]; stats.Done != 3 || stats.Panicked != 2 {
		t.Errorf("%+v", stats)
	}
}

func TestGoexitDoesNotKillTheShard(t *testing.T) {
	a := newTestActors(t, ActorsConfig[int]{Shards: 1})
	for range 3 {
		if err := a.Do(context.Background(), 0, func(*State[int, int]) { runtime.Goexit() }); !errors.Is(err, ErrExited) {
			t.Errorf("Do = %v", err)
		}
		if err := a.Do(context.Background(), 0, nothing); err != nil {
			t.Errorf("Do after Goexit = %v", err)
		}
	}
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestActors(t, ActorsConfig[int]{Shards: 2, Mailbox: 4})
		var ran atomic.Int32
		for key := range 8 {
			go func() {
				_ = a.Do(context.Background(), key, func(*State[int, int]) {
					time.Sleep(time.Second) // A bubble's second takes no time.
					ran.Add(1)
				})
			}()
		}
		synctest.Wait()
		short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		if err := a.Drain(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain with no time = %v", err)
		}
		if err := a.Drain(context.Background()); err != nil || ran.Load() != 8 {
			t.Errorf("Drain = %v after %d of 8", err, ran.Load())
		}
		a.Close()
		if err := a.Drain(context.Background()); err != nil {
			t.Errorf("Drain after Close = %v", err)
		}
	})
}

// Close runs what is in the mailbox, sends home who waits for room, and waits.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestActors(t, ActorsConfig[int]{Shards: 1, Mailbox: 2})
		release := block(t, a, 0)
		var ran, refused atomic.Int32
		var callers sync.WaitGroup
		for range 5 {
			callers.Go(func() {
				switch err := a.Do(context.Background(), 0, func(*State[int, int]) { ran.Add(1) }); {
				case errors.Is(err, ErrClosed):
					refused.Add(1)
				case err != nil:
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		var closers sync.WaitGroup
		var closed atomic.Int32
		for range 2 {
			closers.Go(func() {
				a.Close()
				closed.Add(1)
			})
		}
		synctest.Wait()
		if closed.Load() != 0 || refused.Load() != 3 || ran.Load() != 0 {
			t.Errorf("while one is running: %d closed, %d refused, %d ran", closed.Load(), refused.Load(), ran.Load())
		}
		short, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := a.Drain(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain while closing = %v", err)
		}
		release()
		closers.Wait()
		callers.Wait()
		if ran.Load() != 2 {
			t.Errorf("%d of what was queued ran, want 2", ran.Load())
		}
		a.Close()
		if err := a.Do(context.Background(), 0, nothing); !errors.Is(err, ErrClosed) {
			t.Errorf("Do = %v", err)
		}
		if err := a.TryDo(context.Background(), 0, nothing); !errors.Is(err, ErrClosed) {
			t.Errorf("TryDo = %v", err)
		}
	})
}

// The mailbox stays open as long as a caller that was let in may put something
// into it.
func TestCloseWaitsForCallersInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestActors(t, ActorsConfig[int]{Shards: 1})
		owner := a.actors[0]
		if !owner.enter() {
			t.Fatal("was not let in")
		}
		go a.Close()
		synctest.Wait()
		if owner.enter() {
			t.Error("was let in after Close")
		}
		late := newTask(nothing)
		owner.mailbox <- late
		owner.inside.Done()
		if err := late.wait(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseUnderLoad(t *testing.T) {
	for range often(200) {
		a := newTestActors(t, ActorsConfig[int]{Shards: 2, Mailbox: 1})
		var ran, accepted atomic.Int32
		var callers sync.WaitGroup
		for caller := range 8 {
			callers.Go(func() {
				for {
					err := a.Do(context.Background(), caller, func(*State[int, int]) { ran.Add(1) })
					if errors.Is(err, ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
					}
					accepted.Add(1)
				}
			})
		}
		runtime.Gosched()
		a.Close()
		callers.Wait()
		if ran.Load() != accepted.Load() {
			t.Errorf("%d ran, %d were told so", ran.Load(), accepted.Load())
		}
	}
}
