package reshard

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

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
		err := r.on(ctx, side, func(ctx context.Context, conn *pgx.Conn) error {
			using, err := shard.RoutersOf(ctx, conn)
			if err != nil {
				return err
			}
			ended, err := shard.EndAbandoned(ctx, conn, r.goneOf(using, routers), abandonedAfter)
			if ended > 0 {
				logger.Warn("transactions of routers that are gone were ended", "shard", side, "transactions", ended)
			}
			return err
		})
		if err != nil {
			logger.Warn("transactions of routers that are gone were not looked for", "shard", side, "error", err)
		}
	}
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

// untilOthersEnd does work that waits for other transactions, and sees meanwhile that they end.
func (r *run) untilOthersEnd(ctx context.Context, work func() error) error {
	watching, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(2 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.endAbandoned(watching)
			case <-watching.Done():
				return
			}
		}
	})
	defer running.Wait()
	defer cancel()
	return work()
}
