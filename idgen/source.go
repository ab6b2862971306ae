package idgen

import (
	"context"
	"fmt"
	"math"
	"sync"
)

// Source hands out blocks of consecutive numbers, each number once. Blocks must go upwards. It has to be safe for concurrent
// use only if several [Blocks] share it. [SequenceSQL] has the SQL of one over a PostgreSQL sequence.
type Source interface {
	// Next reserves a block: the numbers first to first+n-1 are the caller's alone, for ever. It should reserve size
	// numbers and may reserve more or fewer, but at least one. It must return soon after the context has ended.
	Next(ctx context.Context, size int64) (first, n int64, err error)
}

// SequenceSource is a [Source] over a sequence that steps by the block size: reserve returns its next value, as the query of
// [SequenceSQL] does. Whatever size is asked for, a block is one step of the sequence: answering with more would hand out
// numbers of the next.
func SequenceSource(block int64, reserve func(ctx context.Context) (first int64, err error)) Source {
	return sequenceSource{block, reserve}
}

type sequenceSource struct {
	block   int64
	reserve func(ctx context.Context) (int64, error)
}

func (s sequenceSource) Next(ctx context.Context, _ int64) (first, n int64, err error) {
	first, err = s.reserve(ctx)
	return first, s.block, err
}

// MemorySource is a [Source] within the process, for tests and for tables that live no longer than it. Safe for concurrent use.
type MemorySource struct {
	mu   sync.Mutex
	next int64
}

// NewMemorySource returns a source whose first number is given.
func NewMemorySource(first int64) *MemorySource { return &MemorySource{next: first} }

// Next implements [Source].
func (s *MemorySource) Next(ctx context.Context, size int64) (first, n int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if size < 1 || size > math.MaxInt64-s.next {
		return 0, 0, fmt.Errorf("reserve %d numbers from %d: not between 1 and %d", size, s.next, math.MaxInt64-s.next)
	}
	first = s.next
	s.next += size
	return first, size, nil
}
