package auth

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// How many may wait for a lane, and for how long: a login that has waited for longer is better off trying again.
const (
	maxInLane    = 1024
	lanePatience = 2 * time.Second
)

// errCrowded says that there are more names to look up than can be.
var errCrowded = errors.New("too many users are being looked up at once")

// lane lets one pass at a time, and a bounded number wait.
type lane struct {
	turn    chan struct{} // holds a token while somebody passes
	present chan struct{} // holds a token for each who waits or passes
}

func newLane() *lane {
	return &lane{turn: make(chan struct{}, 1), present: make(chan struct{}, maxInLane)}
}

// enter waits until nobody else passes. Who was let in must leave.
func (l *lane) enter(ctx context.Context) error {
	select {
	case l.present <- struct{}{}:
	default:
		return errCrowded
	}
	if err := l.await(ctx); err != nil {
		<-l.present
		return err
	}
	return nil
}

func (l *lane) await(ctx context.Context) error {
	patience := time.NewTimer(lanePatience)
	defer patience.Stop()
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-patience.C:
		return fmt.Errorf("no turn within %v: %w", lanePatience, errCrowded)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *lane) leave() {
	<-l.turn
	<-l.present
}
