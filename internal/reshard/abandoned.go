package reshard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
)

// abandonedAfter is how long a router has to be gone, and a transaction of it open, before that is ended while a move waits for it. One that is merely cut off from etcd has clients that may still end it, and after an outage of
// etcd all of them are gone for a moment.
const abandonedAfter = 10 * time.Second

// endAbandoned ends transactions of routers that are gone, for which the move may wait: a router that was stopped, or whose host is off, never ends them, and its shards may not notice for hours.
func (r *run) endAbandoned(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	logger := r.mover.config.Logger.With("move", r.id)
	routers, err := r.mover.config.Store.Routers(ctx)
	if err != nil {
		logger.Warn("transactions of routers that are gone were not looked for", "error", err)
		return
	}
	for _, side := range r.state().sides() {
		if err := r.endAbandonedOn(ctx, side, routers); err != nil {
			logger.Warn("transactions of routers that are gone were not looked for", "shard", side, "error", err)
		}
	}
}

// endAbandonedOn does so on a shard, without having it know who carries the move out: it may have forgotten that for good.
func (r *run) endAbandonedOn(ctx context.Context, side string, routers []store.Router) error {
	now, err := r.current(ctx)
	if err != nil {
		return err
	}
	conn, err := r.mover.connect(ctx, now, side, "cleave/move", "")
	if err != nil {
		return err
	}
	defer closeQuietly(conn)
	using, err := shard.RoutersOf(ctx, conn)
	if err != nil {
		return err
	}
	ended, err := shard.EndAbandoned(ctx, conn, r.goneOf(using, routers), abandonedAfter)
	if ended > 0 {
		r.mover.config.Logger.Warn("transactions of routers that are gone were ended", "move", r.id, "shard", side, "transactions", ended)
	}
	return err
}

// goneOf are those of some routers that have had no record for long.
func (r *run) goneOf(using []string, there []store.Router) []string {
	gone := []string{}
	for _, id := range using {
		has := slices.ContainsFunc(there, func(router store.Router) bool { return router.ID == id })
		if since := r.deafSince("without a record "+id, has); !since.IsZero() && time.Since(since) >= abandonedAfter {
			gone = append(gone, id)
		}
	}
	return gone
}

// untilOthersEnd has a slot made, which waits for other transactions, and sees meanwhile that they end. The server keeps its changes for the slot from the beginning: if it has to keep too many the slot is made another time.
func (r *run) untilOthersEnd(ctx context.Context, side, slot string, work func(context.Context) error) error {
	making, end := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(2 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.endAbandoned(making)
			case <-making.Done():
				return
			}
			if l, err := r.measure(making, side, slot); err == nil && !l.gone && l.isTooMuch(r.state().Options.MaxWAL) {
				end(fmt.Errorf("%s, while transactions that began earlier have not ended", l.why()))
			}
		}
	})
	defer running.Wait()
	defer end(nil)
	if err := work(making); err != nil {
		return cmp.Or(context.Cause(making), err)
	}
	return nil
}
