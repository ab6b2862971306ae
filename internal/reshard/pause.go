package reshard

import (
	"context"
	"time"

	"github.com/cleavedb/cleave/internal/failpoint"
)

// A copy that is paused waits between two chunks and keeps its snapshot and its slot, so that it goes on where it was. Both cost something: a snapshot keeps vacuum from removing rows, and a slot keeps WAL. So it lets go of both after a
// while, or when the slot keeps too much, and begins anew when it is resumed.

// keepsPaused is how long a copy that is paused keeps its snapshot.
var keepsPaused = failpoint.Duration("move.keeps-paused", 10*time.Minute)

// mayWait notes whether a pause can be waited for inside of the phase; otherwise it ends it.
func (r *run) mayWait(may bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waitsInside = may
}

// watch tells how far the copy is and does what somebody wishes. It ends the copy if the source has to keep too much for it, or if it has been paused for too long.
func (c *copier) watch(ctx context.Context, end context.CancelCauseFunc) {
	c.r.mayWait(true)
	defer c.r.mayWait(false)
	var paused time.Time
	looked := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.r.woken:
		case <-ctx.Done():
			return
		}
		if err := c.r.obey(ctx); err != nil {
			continue // it is heard again
		}
		if c.r.state().Phase != Copying {
			end(errWished)
			return
		}
		waiting := c.throttle.waiting()
		since := time.Since(looked)
		looked = looked.Add(since)
		if !c.r.state().Paused {
			paused = time.Time{}
			c.worked += since
		} else {
			if paused.IsZero() {
				paused = time.Now()
			}
			waiting = "the copy can go on where it is until " + paused.Add(keepsPaused).UTC().Format(time.RFC3339)
		}
		if err := c.mustEnd(paused); err != nil {
			end(err)
			return
		}
		c.r.say(ctx, waiting, c.note)
	}
}

// mustEnd says why the snapshot and the slot cannot be kept any longer.
func (c *copier) mustEnd(paused time.Time) error {
	slot, limit := c.throttle.kept(), c.r.state().Options.MaxWAL
	switch {
	case !paused.IsZero() && (time.Since(paused) > keepsPaused || slot.lost || max(slot.used(limit), slot.aged()) > 0.5):
		return errWished
	case slot.lost:
		return stop("shard %q had to keep more changes than max_slot_wal_keep_size allows before all rows were copied: raise it there, or let fewer rows move at once or faster (--streams, --throttle off)", c.move.Source)
	case slot.kept > limit:
		return stop("shard %q had to keep %d bytes of changes before all rows were copied, and may keep %d: let it keep more (--max-wal), or let fewer rows move at once or faster (--streams, --throttle off)", c.move.Source, slot.kept, limit)
	case slot.aged() > 1:
		return stop("shard %q has had %d transactions since the copy began, and nothing that they have deleted could be vacuumed: let fewer rows move at once or faster (--streams, --throttle off)", c.move.Source, slot.age)
	}
	return nil
}

// awaitResume waits while the move is paused.
func (c *copier) awaitResume(ctx context.Context) error {
	for c.r.state().Paused {
		select {
		case <-time.After(restAtMost):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
