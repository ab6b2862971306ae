package idgen

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// scriptSource answers each call as its script says, and then for ever with the last answer.
type scriptSource struct {
	mu      sync.Mutex
	answers []answer
	calls   int
}

type answer struct {
	first, n int64
	err      error
}

func (s *scriptSource) Next(context.Context, int64) (first, n int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.answers[min(s.calls, len(s.answers)-1)]
	s.calls++
	return a.first, a.n, a.err
}

// gateSource is a memory source that answers only when let through.
type gateSource struct {
	MemorySource
	asked chan struct{}
	gate  chan struct{}
	calls atomic.Int64
}

func newGateSource() *gateSource {
	return &gateSource{MemorySource: MemorySource{next: 1}, asked: make(chan struct{}, 100), gate: make(chan struct{}, 100)}
}

func (s *gateSource) Next(ctx context.Context, size int64) (first, n int64, err error) {
	s.calls.Add(1)
	s.asked <- struct{}{}
	select {
	case <-s.gate:
		return s.MemorySource.Next(ctx, size)
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
}

func mustBlocks(t testing.TB, source Source, config BlocksConfig) *Blocks {
	t.Helper()
	b, err := NewBlocks(source, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// take takes a number that must come.
func take(t testing.TB, b *Blocks) int64 {
	t.Helper()
	number, err := b.Next(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return number
}

func TestBadBlocksConfigs(t *testing.T) {
	for _, c := range []struct {
		config BlocksConfig
		want   string
	}{
		{BlocksConfig{Size: -1}, "block allocator: block size -1 is not positive"},
		{BlocksConfig{PrefetchAt: -0.5}, "block allocator: prefetch share -0.5 is not above 0 and up to 1"},
		{BlocksConfig{PrefetchAt: 1.5}, "block allocator: prefetch share 1.5 is not above 0 and up to 1"},
		{BlocksConfig{PrefetchAt: math.NaN()}, "block allocator: prefetch share NaN is not above 0 and up to 1"},
		{BlocksConfig{Max: -1}, "block allocator: highest number -1 is not positive"},
	} {
		_, err := NewBlocks(NewMemorySource(1), c.config)
		if err == nil || err.Error() != c.want {
			t.Errorf("got error %v, want %s", err, c.want)
		}
	}
	if _, err := NewBlocks(nil, BlocksConfig{}); err == nil {
		t.Error("took no source for one")
	}
}

func TestBlocksAreUsedInOrder(t *testing.T) {
	b := mustBlocks(t, NewMemorySource(1), BlocksConfig{Size: 7})
	for want := int64(1); want <= 100; want++ {
		if got := take(t, b); got != want {
			t.Fatalf("got %d, want %d", got, want)
		}
	}
}

func TestBlocksUniqueUnderConcurrency(t *testing.T) {
	const allocators, goroutines = 3, 8
	perGoroutine := 50_000
	if testing.Short() {
		perGoroutine = 5_000
	}
	source := NewMemorySource(1)
	var mu sync.Mutex
	var all []int64
	var group sync.WaitGroup
	for range allocators {
		b := mustBlocks(t, source, BlocksConfig{Size: 100})
		for range goroutines {
			group.Go(func() {
				numbers := make([]int64, 0, perGoroutine)
				for range perGoroutine {
					number, err := b.Next(context.Background())
					if err != nil {
						t.Error(err)
						return
					}
					numbers = append(numbers, number)
				}
				if !slices.IsSorted(numbers) {
					t.Error("a goroutine got numbers out of order")
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, numbers...)
			})
		}
	}
	group.Wait()
	slices.Sort(all)
	if got := len(slices.Compact(all)); got != allocators*goroutines*perGoroutine {
		t.Errorf("got %d different numbers, want %d", got, allocators*goroutines*perGoroutine)
	}
}

// The next block is fetched when the given share is used up, and the callers do not notice.
func TestPrefetch(t *testing.T) {
	source := newGateSource()
	b := mustBlocks(t, source, BlocksConfig{Size: 10, PrefetchAt: 0.8})
	source.gate <- struct{}{}
	for range 7 {
		take(t, b)
	}
	if got := source.calls.Load(); got != 1 {
		t.Fatalf("%d calls after 7 numbers of 10, want 1", got)
	}
	<-source.asked
	take(t, b)
	<-source.asked // This would block for ever if the eighth number did not set off a fetch.
	take(t, b)
	take(t, b) // The old block lasts while the source is slow.
	source.gate <- struct{}{}
	if got := take(t, b); got != 11 {
		t.Errorf("got %d, want 11", got)
	}
}

func TestNoPrefetchAtOne(t *testing.T) {
	source := newGateSource()
	b := mustBlocks(t, source, BlocksConfig{Size: 10, PrefetchAt: 1})
	source.gate <- struct{}{}
	for range 10 {
		take(t, b)
	}
	if got := source.calls.Load(); got != 1 {
		t.Errorf("%d calls after 10 numbers of 10, want 1", got)
	}
}

// A hundred callers that wait for a block set off one fetch.
func TestNoStampede(t *testing.T) {
	source := newGateSource()
	b := mustBlocks(t, source, BlocksConfig{Size: 1000})
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			if _, err := b.Next(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	<-source.asked
	source.gate <- struct{}{}
	group.Wait()
	if got := source.calls.Load(); got != 1 {
		t.Errorf("%d calls, want 1", got)
	}
}

func TestSourceErrorReachesCallerAndIsRetried(t *testing.T) {
	broken := errors.New("no connection")
	source := &scriptSource{answers: []answer{{err: broken}, {first: 1, n: 1}, {err: broken}, {first: 2, n: 1}}}
	b := mustBlocks(t, source, BlocksConfig{Size: 1, PrefetchAt: 1})
	for _, want := range []int64{1, 2} {
		_, err := b.Next(context.Background())
		if !errors.Is(err, broken) {
			t.Fatalf("got %v, want the source's error", err)
		}
		if want := "next number of block: reserve a block: no connection"; err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
		if got := take(t, b); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
}

// An error of a fetch ahead bothers nobody: whoever needs the block fetches again.
func TestPrefetchErrorIsNotSeen(t *testing.T) {
	failed := make(chan struct{})
	calls := 0
	source := sourceFunc(func(context.Context, int64) (int64, int64, error) {
		calls++
		if calls == 2 {
			defer close(failed)
			return 0, 0, errors.New("no connection")
		}
		return int64(calls) * 100, 2, nil
	})
	b := mustBlocks(t, source, BlocksConfig{Size: 2})
	take(t, b) // The first of two: sets off the fetch that fails.
	<-failed
	waitUntilIdle(b)
	if got := []int64{take(t, b), take(t, b)}; !slices.Equal(got, []int64{101, 300}) {
		t.Errorf("got %d, want 101 and 300", got)
	}
}

type sourceFunc func(ctx context.Context, size int64) (first, n int64, err error)

func (f sourceFunc) Next(ctx context.Context, size int64) (first, n int64, err error) {
	return f(ctx, size)
}

// waitUntilIdle waits until no fetch is under way.
func waitUntilIdle(b *Blocks) {
	b.mu.Lock()
	fetching := b.fetching
	b.mu.Unlock()
	if fetching != nil {
		<-fetching.done
	}
}

// Blocks that would lead to duplicates are refused, and the next good one is used.
func TestBadBlocksAreRefused(t *testing.T) {
	for name, bad := range map[string]answer{
		"empty":       {first: 11, n: 0},
		"negative":    {first: -5, n: 3},
		"size":        {first: 11, n: -1},
		"same again":  {first: 1, n: 10},
		"overlapping": {first: 10, n: 10},
		"backwards":   {first: 0, n: 1},
		"too far":     {first: math.MaxInt64, n: 2},
		"wraps":       {first: 11, n: math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			source := &scriptSource{answers: []answer{{first: 1, n: 10}, bad, {first: 11, n: 10}}}
			b := mustBlocks(t, source, BlocksConfig{Size: 10, PrefetchAt: 1})
			for range 10 {
				take(t, b)
			}
			_, err := b.Next(context.Background())
			var refused *BlockError
			if !errors.As(err, &refused) || refused.First != bad.first || refused.N != bad.n || refused.Highest != 10 {
				t.Fatalf("got %v, want the block to be refused", err)
			}
			if got := take(t, b); got != 11 {
				t.Errorf("got %d, want 11", got)
			}
		})
	}
}

// An integer column's allocator ends at the column's bound, to the number, and does not bother the source again.
func TestMax(t *testing.T) {
	source := NewMemorySource(math.MaxInt32 - 14)
	counted := &scriptSource{}
	b := mustBlocks(t, sourceFunc(func(ctx context.Context, size int64) (int64, int64, error) {
		counted.calls++
		return source.Next(ctx, size)
	}), BlocksConfig{Size: 10, Max: math.MaxInt32})
	var last int64
	for range 15 {
		last = take(t, b)
	}
	if last != math.MaxInt32 {
		t.Errorf("the last number is %d, want %d", last, math.MaxInt32)
	}
	for range 3 {
		_, err := b.Next(context.Background())
		var limit *LimitError
		if !errors.As(err, &limit) || limit.Max != math.MaxInt32 {
			t.Fatalf("got %v, want the limit", err)
		}
		if want := "next number of block: no number is left up to the limit of 2147483647"; err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
	if counted.calls != 2 {
		t.Errorf("%d calls of the source, want 2", counted.calls)
	}
}

func TestMaxBelowFirst(t *testing.T) {
	b := mustBlocks(t, NewMemorySource(1000), BlocksConfig{Max: 999})
	for range 2 {
		var limit *LimitError
		if _, err := b.Next(context.Background()); !errors.As(err, &limit) {
			t.Fatalf("got %v, want the limit", err)
		}
	}
}

func TestUpToLargestBigint(t *testing.T) {
	b := mustBlocks(t, &scriptSource{answers: []answer{{first: math.MaxInt64 - 1, n: 2}}}, BlocksConfig{})
	take(t, b)
	if got := take(t, b); got != math.MaxInt64 {
		t.Errorf("got %d, want %d", got, int64(math.MaxInt64))
	}
	for range 10 {
		var limit *LimitError
		if number, err := b.Next(context.Background()); !errors.As(err, &limit) {
			t.Fatalf("got %d, %v, want the limit", number, err)
		}
	}
}

// A caller that gives up does not end the fetch for the others.
func TestCallerGivesUp(t *testing.T) {
	source := newGateSource()
	b := mustBlocks(t, source, BlocksConfig{})
	ctx, cancel := context.WithCancel(context.Background())
	gaveUp := make(chan error)
	go func() {
		_, err := b.Next(ctx)
		gaveUp <- err
	}()
	<-source.asked
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	source.gate <- struct{}{}
	if got := take(t, b); got != 1 {
		t.Errorf("got %d, want 1 of the fetch that was under way", got)
	}
}

func TestCloseEndsWaiting(t *testing.T) {
	source := newGateSource()
	b := mustBlocks(t, source, BlocksConfig{})
	waiting := make(chan error)
	go func() {
		_, err := b.Next(context.Background())
		waiting <- err
	}()
	<-source.asked
	b.Close()
	if err := <-waiting; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	b.Close()
	if _, err := b.Next(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

// Close waits until the source has returned.
func TestCloseWaitsForSource(t *testing.T) {
	entered := make(chan struct{})
	returned := false
	b := mustBlocks(t, sourceFunc(func(ctx context.Context, _ int64) (int64, int64, error) {
		close(entered)
		<-ctx.Done()
		returned = true // The race detector sees if Close does not wait.
		return 0, 0, ctx.Err()
	}), BlocksConfig{})
	b.prefetch()
	<-entered
	b.Close()
	if !returned {
		t.Error("Close did not wait")
	}
}

// A source may give more or less than it was asked for.
func TestAnySizesOfBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var answers []answer
		var want []int64
		next := int64(0)
		for range rapid.IntRange(1, 10).Draw(t, "blocks") {
			next += rapid.Int64Range(0, 5).Draw(t, "gap")
			n := rapid.Int64Range(1, 20).Draw(t, "n")
			answers = append(answers, answer{first: next, n: n})
			for range n {
				want = append(want, next)
				next++
			}
		}
		config := BlocksConfig{Size: 5, PrefetchAt: rapid.Float64Range(0.01, 1).Draw(t, "prefetch")}
		b, err := NewBlocks(&scriptSource{answers: answers}, config)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		for i, number := range want {
			if got, err := b.Next(context.Background()); err != nil || got != number {
				t.Fatalf("number %d: got %d, %v, want %d", i, got, err, number)
			}
		}
	})
}

func TestMemorySourceRefuses(t *testing.T) {
	source := NewMemorySource(math.MaxInt64 - 10)
	for _, size := range []int64{0, -1, 11} {
		if _, _, err := source.Next(context.Background(), size); err == nil {
			t.Errorf("handed out %d numbers", size)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := source.Next(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}
