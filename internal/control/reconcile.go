package control

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// lead waits to be the leader and does its work, again and again until the context ends.
func (c *Cluster) lead(ctx context.Context) {
	for ctx.Err() == nil {
		leadership, err := c.config.Store.Campaign(ctx, c.config.Candidate)
		if err != nil {
			if ctx.Err() == nil {
				c.config.Logger.Error("cannot take part in the election of the leader", "error", err)
				pause(ctx, time.Second)
			}
			continue
		}
		c.config.Logger.Info("this process leads", "token", leadership.Token())
		c.keepRecords(ctx, leadership)
		resign(leadership, c)
	}
}

// resign gives the leadership up at once, so that the next one need not wait for a lease to end.
func resign(l *store.Leadership, c *Cluster) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := l.Resign(ctx); err != nil && !errors.Is(err, store.ErrNotLeader) && !errors.Is(err, store.ErrClosed) {
		c.config.Logger.Warn("the leadership could not be given up; it ends by itself", "error", err)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// retryEvery is how often shards that did not hear of the map are told again. A var for tests.
var retryEvery = 2 * time.Second

// keepRecords tells the shards what they own whenever the map changes, and those that did not hear it again, until the
// leadership ends. Records cannot go back, so a leader that does not know yet that it is none does no harm.
func (c *Cluster) keepRecords(ctx context.Context, leadership *store.Leadership) {
	follower := c.config.Follower
	recorded := map[int]uint64{} // by number: a name may come back for another shard
	for {
		changed := follower.Changed()
		behind := 0
		if m := follower.Map(); m != nil {
			behind = c.recordAll(ctx, m, recorded)
		}
		var again <-chan time.Time
		if behind > 0 {
			again = time.After(retryEvery)
		}
		select {
		case <-changed:
		case <-again:
		case <-leadership.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// recordAll tells all shards that have not recorded this version, and returns how many still have not.
func (c *Cluster) recordAll(ctx context.Context, m *topology.Map, recorded map[int]uint64) (behind int) {
	var due []topology.ShardSpec
	for _, spec := range specsOf(m) {
		if recorded[spec.Number] < m.Version() {
			due = append(due, spec)
		}
	}
	plan := shard.Prepare(m)
	for _, result := range each(due, func(spec topology.ShardSpec) inspected {
		return inspected{err: c.connectedFor(ctx, recordTimeout, spec, func(ctx context.Context, s session) error {
			_, err := plan.Record(ctx, s, spec.Name)
			return err
		})}
	}) {
		var newer *shard.NewerError
		var fork *shard.ForkError
		switch {
		case result.err == nil:
			recorded[result.spec.Number] = m.Version()
			c.monitor.noteRecorded(result.spec.Name, m.Version())
		case errors.As(result.err, &newer), errors.As(result.err, &fork):
			// Not tried again: only a newer map helps, and status or 'map check' says so.
			recorded[result.spec.Number] = m.Version()
			c.config.Logger.Error("a shard has recorded another map than the one in force", "shard", result.spec.Name, "error", result.err)
		default:
			behind++
			level := slog.LevelDebug // the monitor says when a shard is away
			var claimed *shard.ClaimedError
			if errors.As(result.err, &claimed) || errors.Is(result.err, shard.ErrNotClaimed) {
				level = slog.LevelError
			}
			c.config.Logger.Log(ctx, level, "a shard has not recorded what it owns", "shard", result.spec.Name, "error", result.err)
		}
	}
	return behind
}
