package idgen

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// fakeClock moves only when it is set or slept on. Safe for concurrent use.
type fakeClock struct {
	mu     sync.Mutex
	now    time.Time
	slept  []time.Duration
	onWait func() // called before a sleep passes, if set
}

func newFakeClock() *fakeClock {
	return &fakeClock{now: time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)}
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) Sleep(ctx context.Context, d time.Duration) error {
	if c.onWait != nil {
		c.onWait()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slept = append(c.slept, d)
	c.now = c.now.Add(d)
	return nil
}

// step moves the clock, forwards or backwards.
func (c *fakeClock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// stoppedClock always tells the same time.
type stoppedClock struct{ time.Time }

func (c stoppedClock) Now() time.Time { return c.Time }

func (c stoppedClock) Sleep(context.Context, time.Duration) error {
	return errors.New("nobody should have to wait")
}

func TestSystemClockSleep(t *testing.T) {
	clock := systemClock{}
	if err := clock.Sleep(context.Background(), time.Microsecond); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := clock.Sleep(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}
