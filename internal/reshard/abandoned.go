package reshard

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/shard"
)

// abandonedAfter is how long a transaction of a router that is gone may be open while a move waits for it. One that is merely cut off from etcd has clients that may still end it.
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
	there := []string{}
	for _, router := range routers {
		there = append(there, router.ID)
	}
	for _, side := range r.state().sides() {
		err := r.on(ctx, side, func(ctx context.Context, conn *pgx.Conn) error {
			ended, err := shard.EndAbandoned(ctx, conn, there, abandonedAfter)
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
