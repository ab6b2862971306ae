package control

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// tellEvery is how long whoever waits for a shard hears nothing.
const tellEvery = 2 * time.Second

// watch tells whoever waits how far a shard is, until stop is called.
func (r *rolling) watch(ctx context.Context, spec topology.ShardSpec) (stop func()) {
	if r.step.Meanwhile == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		started := time.Now()
		ticker := time.NewTicker(tellEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			line := fmt.Sprintf("roll-out %s: shard %s has been at work for %d s", r.Name, spec.Name, int(time.Since(started).Seconds()))
			if phase := r.phase(ctx, spec); phase != "" {
				line += ", " + phase
			}
			if ctx.Err() == nil {
				r.step.Meanwhile(line)
			}
		}
	})
	return func() {
		cancel()
		watching.Wait()
	}
}

// phase is what a shard says of the indexes of the roll-out's tables that are being made; empty if it says nothing.
func (r *rolling) phase(ctx context.Context, spec topology.ShardSpec) (phase string) {
	err := r.cluster.connectedFor(ctx, tellEvery, spec, func(ctx context.Context, s session) (err error) {
		phase, err = shard.IndexProgress(ctx, s, r.Tables)
		return err
	})
	if err != nil {
		return "" // it is only told how far it is
	}
	return phase
}
