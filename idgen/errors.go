package idgen

import (
	"errors"
	"fmt"
	"time"
)

// ErrClosed is returned by [Blocks.Next] after [Blocks.Close].
var ErrClosed = errors.New("block allocator is closed")

// ClockError says that the clock is further behind the ids already made than the generator is willing to wait. Nothing was
// handed out. A later call succeeds once the clock has caught up.
type ClockError struct {
	// Behind is how far the clock is behind the last id of the slot, or behind [Config.NotBefore].
	Behind time.Duration
	// Max is how far the generator waits: [Config.MaxBackwards].
	Max time.Duration
}

func (e *ClockError) Error() string {
	return fmt.Sprintf("clock is %s behind the ids already made, and at most %s is waited for in all", e.Behind, e.Max)
}

// ExhaustedError says that the time part of the layout has come to its end. It is for good.
type ExhaustedError struct {
	// End is the first moment that the layout cannot express.
	End time.Time
}

func (e *ExhaustedError) Error() string {
	return "the id layout ended at " + e.End.Format(time.RFC3339)
}

// LimitError says that the numbers up to [BlocksConfig.Max] are used up. It is for good.
type LimitError struct {
	// Max is the highest number that may be handed out.
	Max int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("no number is left up to the limit of %d", e.Max)
}

// BlockError says that a [Source] handed out a block that cannot be used without risking duplicates. The block was dropped.
type BlockError struct {
	// First and N are the block as the source gave it.
	First, N int64
	// Highest is the highest number that an earlier block covered; -1 if there was none.
	Highest int64
	// Reason says what is wrong with the block.
	Reason string
}

func (e *BlockError) Error() string {
	return fmt.Sprintf("source gave a bad block (first %d, size %d, after %d): %s", e.First, e.N, e.Highest, e.Reason)
}
