package idgen

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
)

const (
	// DefaultBlockSize makes one trip to the source serve a thousand rows, and loses at most two thousand numbers on a restart.
	DefaultBlockSize = 1000
	// DefaultPrefetchAt leaves half a block's time for the trip to the source.
	DefaultPrefetchAt = 0.5
)

// BlocksConfig says how [Blocks] uses its source.
type BlocksConfig struct {
	// Size is how many numbers are asked for at a time. Default: DefaultBlockSize.
	Size int64
	// PrefetchAt is the share of a block that is used up when the next one is fetched in the background, above 0 and up
	// to 1; 1 means not before a caller has to wait for it. Default: DefaultPrefetchAt.
	PrefetchAt float64
	// Max is the highest number to hand out; afterwards Next fails with a [LimitError]. For an integer column it is
	// math.MaxInt32, for a smallint one math.MaxInt16. Default: math.MaxInt64.
	Max int64
}

func (c BlocksConfig) withDefaults() BlocksConfig {
	if c.Size == 0 {
		c.Size = DefaultBlockSize
	}
	if c.PrefetchAt == 0 {
		c.PrefetchAt = DefaultPrefetchAt
	}
	if c.Max == 0 {
		c.Max = math.MaxInt64
	}
	return c
}

func (c BlocksConfig) check() error {
	if c.Size < 1 {
		return fmt.Errorf("block allocator: block size %d is not positive", c.Size)
	}
	if !(c.PrefetchAt > 0 && c.PrefetchAt <= 1) { // Written so that NaN is refused.
		return fmt.Errorf("block allocator: prefetch share %v is not above 0 and up to 1", c.PrefetchAt)
	}
	if c.Max < 1 {
		return fmt.Errorf("block allocator: highest number %d is not positive", c.Max)
	}
	return nil
}

// Blocks hands out numbers one by one from blocks that a [Source] reserves. Safe for concurrent use.
//
// Numbers are unique and, within one Blocks, increasing in the order in which they were handed out. Several Blocks over one
// source, as in several processes, have alternating blocks. What is left of the current block and of the one fetched ahead
// is lost when the process ends: numbers have holes.
type Blocks struct {
	source Source
	config BlocksConfig
	ctx    context.Context // ended by Close; fetches run under it, not under a caller's: they are for everyone
	cancel context.CancelFunc

	current atomic.Pointer[block] // the block in use; never nil

	mu       sync.Mutex // guards what follows, and every change of current
	spare    *block     // fetched ahead, or nil
	fetching *fetch     // under way, or nil
	highest  int64      // the highest number of all blocks so far
	closed   bool
	spent    bool // the source has gone beyond config.Max
}

// block is a reserved interval. It counts what was taken rather than the number itself, which could overflow: callers that
// come too late also count.
type block struct {
	first, size int64
	prefetchAt  int64 // the count at which the next block is fetched
	taken       atomic.Int64
}

// fetch is one trip to the source, waited for by any number of callers.
type fetch struct {
	done chan struct{} // closed when err is set
	err  error
}

// NewBlocks returns an allocator. It does not ask the source for anything yet.
func NewBlocks(source Source, config BlocksConfig) (*Blocks, error) {
	if source == nil {
		return nil, errors.New("block allocator: no source")
	}
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return nil, err
	}
	b := &Blocks{source: source, config: config, highest: -1}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.current.Store(&block{})
	return b, nil
}

// Next hands out a number. It waits for the source only when the block is used up before the next has arrived; then all
// callers wait for the same trip. An error of the source goes to the callers that wait; the next call tries again.
func (b *Blocks) Next(ctx context.Context) (int64, error) {
	for {
		current := b.current.Load()
		taken := current.taken.Add(1)
		if taken == current.prefetchAt {
			b.prefetch()
		}
		if taken <= current.size {
			return current.first + taken - 1, nil
		}
		if err := b.advance(ctx, current); err != nil {
			return 0, fmt.Errorf("next number of block: %w", err)
		}
	}
}

// Close ends a fetch under way and waits for it. Afterwards Next fails with [ErrClosed]. It may be called twice.
func (b *Blocks) Close() {
	b.mu.Lock()
	b.closed = true
	b.spare = nil
	b.current.Store(&block{})
	fetching := b.fetching
	b.mu.Unlock()
	b.cancel() // not before closed is set: a fetch that it ends asks why
	if fetching != nil {
		<-fetching.done
	}
}

// prefetch starts a fetch that nobody waits for yet. If it fails, nothing is lost: whoever needs the block fetches again.
func (b *Blocks) prefetch() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.spent || b.spare != nil || b.fetching != nil {
		return
	}
	b.startFetch()
}

// advance replaces a used-up block by the next one, waiting for it if need be.
func (b *Blocks) advance(ctx context.Context, used *block) error {
	fetching, err := b.replace(used)
	if fetching == nil || err != nil {
		return err
	}
	select {
	case <-fetching.done:
		return fetching.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// replace puts the spare block in place of the used-up one. Without a spare it returns the fetch to wait for.
func (b *Blocks) replace(used *block) (*fetch, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return nil, ErrClosed
	case b.current.Load() != used:
		return nil, nil // Someone else was faster.
	case b.spare != nil:
		b.current.Store(b.spare)
		b.spare = nil
		return nil, nil
	case b.spent:
		return nil, &LimitError{Max: b.config.Max}
	case b.fetching == nil:
		b.startFetch()
	}
	return b.fetching, nil
}

// startFetch sets off a trip to the source. b.mu is held and no other trip is under way.
func (b *Blocks) startFetch() {
	started := &fetch{done: make(chan struct{})}
	b.fetching = started
	go func() {
		first, n, err := b.source.Next(b.ctx, b.config.Size)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.fetching = nil
		if err == nil {
			b.spare, err = b.accept(first, n)
		}
		started.err = b.explain(err)
		close(started.done)
	}()
}

// accept turns what the source gave into a block, or refuses it. b.mu is held.
func (b *Blocks) accept(first, n int64) (*block, error) {
	refuse := func(reason string) (*block, error) {
		return nil, &BlockError{First: first, N: n, Highest: b.highest, Reason: reason}
	}
	switch {
	case n < 1:
		return refuse("it is empty")
	case first < 0:
		return refuse("it is negative")
	case first > math.MaxInt64-(n-1):
		return refuse("it ends beyond the largest bigint")
	case first <= b.highest:
		return refuse("it overlaps or precedes an earlier one")
	}
	b.highest = first + n - 1
	b.spent = b.highest >= b.config.Max
	if first > b.config.Max {
		return nil, &LimitError{Max: b.config.Max}
	}
	size := min(n-1, b.config.Max-first) + 1 // in this order, for Max-first+1 may overflow
	return &block{first: first, size: size, prefetchAt: b.prefetchPoint(size)}, nil
}

// prefetchPoint is the count of numbers taken at which the next block is fetched ahead; 0, which no count is, if only on
// demand: whoever finds the block used up then makes the trip, and hears how it ended.
func (b *Blocks) prefetchPoint(size int64) int64 {
	if b.config.PrefetchAt == 1 {
		return 0
	}
	return max(1, int64(b.config.PrefetchAt*float64(size)))
}

// explain says whose fault an error is. b.mu is held.
func (b *Blocks) explain(err error) error {
	var limit *LimitError
	var bad *BlockError
	switch {
	case err == nil, errors.As(err, &limit), errors.As(err, &bad):
		return err
	case b.closed:
		return ErrClosed
	default:
		return fmt.Errorf("reserve a block: %w", err)
	}
}
