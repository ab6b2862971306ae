package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cleavedb/cleave/internal/reshard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

const (
	// lookAtHoldsEvery is how often the leader looks for holds whose holders are dead.
	lookAtHoldsEvery = time.Second
	// finishTimeout bounds one attempt to finish what a dead holder left.
	finishTimeout = time.Minute
)

// keepHolds releases the tables that dead routers held, when what they left has been finished, until the leadership ends. One
// that does not know yet that it leads no more does no harm: every step compares what it changes.
func (c *Cluster) keepHolds(ctx context.Context, leadership *store.Leadership) {
	if c.config.Router == "" {
		return
	}
	ctx, stop := whileLeading(ctx, leadership)
	defer stop()
	ticker := time.NewTicker(lookAtHoldsEvery)
	defer ticker.Stop()
	known := &knownHolds{failures: map[string]string{}}
	for ctx.Err() == nil {
		c.lookAtHolds(ctx, known)
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// knownHolds is what a leader remembers of holds.
type knownHolds struct {
	orphaned map[string]time.Time // since when the holder is without a record, by the hold's ID

	mu       sync.Mutex
	failures map[string]string // what was last said in the log of one that could not be released, by its first ID
}

// lookAtHolds finds the holds of dead routers and releases those that can be.
func (c *Cluster) lookAtHolds(ctx context.Context, known *knownHolds) {
	overview, err := c.config.Store.SchemaOverview(ctx)
	if err != nil {
		known.orphaned = nil // when etcd is back, so is everybody's time to come back
		return
	}
	if overview.WentBack() {
		c.goBeyond(ctx, overview.State.Epoch)
	}
	var finishing sync.WaitGroup
	for _, hold := range known.due(overview, c.config.HoldGrace) {
		if c.isMovesOwn(ctx, hold) {
			continue
		}
		finishing.Go(func() { c.noteFinished(ctx, known, hold, c.finish(ctx, hold)) })
	}
	finishing.Wait()
}

// isMovesOwn says whether a move has the hold that may be in a switch: whoever carries it out releases the hold, when what the switch has done was taken back. Before that the tables' owner may refuse changes, and their sequences be at their end.
func (c *Cluster) isMovesOwn(ctx context.Context, hold topology.Hold) bool {
	if hold.Move == "" {
		return false
	}
	move, err := reshard.Find(ctx, c.config.Store, hold.Move)
	if errors.Is(err, store.ErrNoJob) {
		return false
	}
	return err != nil || slices.Contains([]reshard.Phase{reshard.Switching, reshard.RollingBack, reshard.Cancelling}, move.Phase)
}

// goBeyond raises the epoch above all that routers have, after etcd was put back to an earlier state: what they have they keep,
// tables that were held included, until there is something newer.
func (c *Cluster) goBeyond(ctx context.Context, stored uint64) {
	state, err := c.config.Store.Bump(ctx, 0)
	if err != nil {
		return // the next look tries again
	}
	c.config.Logger.Warn("etcd was put back to an earlier state: the schema's epoch is raised above what routers have seen", "stored", stored, "epoch", state.Epoch)
}

// due returns the holds that are to be taken over or finished: those whose holders have been without a record for long, and
// those that a leader has taken over before.
func (k *knownHolds) due(overview store.SchemaOverview, grace time.Duration) []topology.Hold {
	now, orphaned := time.Now(), map[string]time.Time{}
	var due []topology.Hold
	for _, hold := range overview.State.Holds {
		if hold.TakenOver() {
			due = append(due, hold)
			continue
		}
		if overview.Lives(hold.Holder) {
			continue
		}
		since, known := k.orphaned[hold.ID]
		if !known {
			since = now
		}
		orphaned[hold.ID] = since
		if now.Sub(since) >= grace {
			due = append(due, hold)
		}
	}
	k.orphaned = orphaned
	return due
}

// finish takes the hold over, so that its former holder can do no more under it, finishes what it left, and releases it.
func (c *Cluster) finish(ctx context.Context, hold topology.Hold) error {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	if !hold.TakenOver() || hold.Holder != c.config.Router {
		former := hold.Holder
		var err error
		if hold, err = c.config.Store.TakeOver(ctx, hold.ID, c.config.Router); err != nil {
			return err
		}
		c.config.Logger.Warn("tables are held by a router that is gone; what it left is being finished", "router", former, "hold", hold.First(), "why", hold.Why)
	}
	if err := c.config.FinishHold(ctx, hold); err != nil {
		return fmt.Errorf("finish what was left: %w", err)
	}
	if err := c.releaseWithMap(ctx, hold); err != nil {
		return err
	}
	c.leftLock.Lock()
	defer c.leftLock.Unlock()
	c.left = append(c.left, hold.Tables...)
	return nil
}

// releaseWithMap releases the hold to those who have the map of now: the dead router may have published it, and have died
// before it could say so.
func (c *Cluster) releaseWithMap(ctx context.Context, hold topology.Hold) error {
	m, err := c.config.Store.Map(ctx)
	if err != nil && !errors.Is(err, store.ErrNoMap) {
		return err
	}
	var version uint64
	if m != nil {
		version = m.Version()
	}
	_, err = c.config.Store.Release(ctx, hold.ID, version)
	return err
}

// noteFinished says in the log how it ended, once for every reason.
func (c *Cluster) noteFinished(ctx context.Context, known *knownHolds, hold topology.Hold, err error) {
	known.mu.Lock()
	defer known.mu.Unlock()
	switch {
	case err == nil:
		delete(known.failures, hold.First())
		c.config.Logger.Info("tables are released that a dead router held", "hold", hold.First())
	case ctx.Err() != nil, errors.Is(err, store.ErrNotHeld), errors.Is(err, store.ErrHolderLives):
		delete(known.failures, hold.First()) // it is for others to go on, or all is well again
	case known.failures[hold.First()] != err.Error():
		known.failures[hold.First()] = err.Error()
		c.config.Logger.Error("tables that a dead router held cannot be released yet; trying on", "hold", hold.First(), "why", hold.Why, "error", err)
	}
}
