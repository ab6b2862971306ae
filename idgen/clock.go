package idgen

import (
	"context"
	"time"
)

// Clock tells the time and passes it. Everything that reads the clock takes one, so that tests need not wait.
type Clock interface {
	// Now returns the wall clock's time. It may jump, in either direction.
	Now() time.Time
	// Sleep returns nil after d, or earlier with the context's error.
	Sleep(ctx context.Context, d time.Duration) error
}

// systemClock is the machine's clock.
type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
