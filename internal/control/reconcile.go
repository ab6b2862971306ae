package control

import (
	"context"
	"errors"
	"log/slog"
	"sync"
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
		var work sync.WaitGroup
		work.Go(func() { c.keepRecords(ctx, leadership) })
		work.Go(func() { c.keepHolds(ctx, leadership) })
		work.Go(func() { c.keepTransactions(ctx, leadership) })
		work.Go(func() { c.breakDeadlocks(ctx, leadership) })
		work.Go(func() { c.keepCopies(ctx, leadership) })
		work.Go(func() { c.mover.Run(ctx, leadership) })
		work.Go(func() { c.keepPlans(ctx, leadership) })
		work.Go(func() { c.automate(ctx, leadership) })
		work.Wait()
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

// retryEvery is how often the leader looks for shards that have not recorded the map: they were away, or were put back to an
// earlier state.
const retryEvery = 2 * time.Second

// keepRecords tells the shards what they own whenever the map changes, and those that have not recorded it again, until the
// leadership ends. Records cannot go back, so a leader that does not know yet that it is none does no harm.
func (c *Cluster) keepRecords(ctx context.Context, leadership *store.Leadership) {
	follower := c.config.Follower
	told := &told{versions: map[int]uint64{}, failures: map[int]string{}, ahead: map[int]ahead{}}
	again, mend := time.NewTicker(retryEvery), time.NewTicker(c.config.MendInterval)
	defer again.Stop()
	defer mend.Stop()
	for {
		changed := follower.Changed()
		if m := follower.Map(); m != nil {
			c.recordAll(ctx, m, told)
		}
		select {
		case <-changed:
		case <-again.C:
			c.resolvePrepared(ctx)
		case <-mend.C:
			if m := follower.Map(); m != nil {
				c.mendAll(ctx, m, told)
				if err := c.refillNumbers(ctx, m); err != nil && ctx.Err() == nil {
					c.config.Logger.Warn("sequences could not be looked after; they go on counting as far as they can", "error", err)
				}
			}
		case <-leadership.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// resolvePrepared finishes declarations of which something is prepared and nobody is at work any more.
func (c *Cluster) resolvePrepared(ctx context.Context) {
	if !c.monitor.hasPrepared() {
		return
	}
	err := c.resolveDeclarations(ctx)
	if err != nil && ctx.Err() == nil && !errors.Is(err, errStillDeclaring) {
		c.config.Logger.Warn("a declaration of tables that was left behind is not resolved yet; trying on", "error", err)
	}
}

// told is what a leader remembers of the shards, by number: a name may come back for another shard.
type told struct {
	versions map[int]uint64 // what each has heard
	failures map[int]string // what was last said in the log of one that did not
	ahead    map[int]ahead  // those that had recorded a newer map than this process knew
	plan     *shard.Plan    // of the last map that guards were looked after for, and its version
	planned  uint64
}

// ahead is since when a shard has a newer map than this process, which had that version.
type ahead struct {
	version uint64
	since   time.Time
}

// stays says whether a shard is ahead of a version for longer than news take to come: who changes the map tells the shard of it
// too, and is often faster than the watch.
func (t *told) stays(number int, version uint64) bool {
	if t.ahead[number].version != version {
		t.ahead[number] = ahead{version, time.Now()}
	}
	return time.Since(t.ahead[number].since) >= retryEvery
}

// recordAll tells all shards that have not recorded this version, or whose records have gone back since.
func (c *Cluster) recordAll(ctx context.Context, m *topology.Map, told *told) {
	var due []topology.ShardSpec
	for _, spec := range specsOf(m) {
		if c.mover.IsSwitching(spec.Name) {
			continue
		}
		if told.versions[spec.Number] < m.Version() || c.monitor.isBehind(spec, m.Version()) {
			due = append(due, spec)
		}
	}
	if len(due) == 0 {
		return
	}
	plan := shard.Prepare(m)
	for _, result := range each(due, func(spec topology.ShardSpec) inspected {
		return inspected{err: c.connectedFor(ctx, recordTimeout, spec, func(ctx context.Context, s session) error {
			// A shard that an older program has prepared gets what is new before it records.
			if _, _, err := shard.Install(ctx, s); err != nil {
				return err
			}
			_, err := plan.Record(ctx, s, spec.Name)
			return err
		})}
	}) {
		c.noteTold(ctx, m, told, result)
	}
}

// noteTold remembers how telling one shard ended, and says so where a person has to act.
func (c *Cluster) noteTold(ctx context.Context, m *topology.Map, told *told, result inspected) {
	number := result.spec.Number
	if result.err == nil {
		told.versions[number] = m.Version()
		delete(told.failures, number)
		delete(told.ahead, number)
		c.monitor.noteRecorded(result.spec.Name, m.Version())
		return
	}
	var newer *shard.NewerError
	var fork *shard.ForkError
	var claimed *shard.ClaimedError
	level := slog.LevelDebug // the monitor says when a shard is away
	switch {
	case errors.As(result.err, &newer) && !told.stays(number, m.Version()):
		return // and is looked at again
	case errors.As(result.err, &newer), errors.As(result.err, &fork):
		// Not tried again: only a newer map helps, and status or 'map check' says so.
		told.versions[number] = m.Version()
		level = slog.LevelError
	case errors.As(result.err, &claimed), errors.Is(result.err, shard.ErrNotClaimed):
		level = slog.LevelError
	}
	if failure := result.err.Error(); told.failures[number] != failure {
		told.failures[number] = failure
		c.config.Logger.Log(ctx, level, "a shard has not recorded what it owns", "shard", result.spec.Name, "error", failure)
	}
}

// mendAll looks after the guards of all shards that have recorded this version: somebody may have disabled one, or replaced a
// table. Shards that have not get theirs with the record.
func (c *Cluster) mendAll(ctx context.Context, m *topology.Map, told *told) {
	if m.TableCount() == 0 {
		return
	}
	if told.planned != m.Version() {
		told.plan, told.planned = shard.Prepare(m), m.Version()
	}
	var due []topology.ShardSpec
	for _, spec := range specsOf(m) {
		if told.versions[spec.Number] == m.Version() && !c.mover.IsSwitching(spec.Name) { // which would wait
			due = append(due, spec)
		}
	}
	each(due, func(spec topology.ShardSpec) inspected {
		err := c.connected(ctx, spec, func(ctx context.Context, s session) error {
			mended, err := told.plan.Mend(ctx, s, spec.Name)
			if mended > 0 {
				c.config.Logger.Warn("tables were not guarded as they should be, and are again", "shard", spec.Name, "tables", mended)
			}
			return err
		})
		if err != nil && ctx.Err() == nil {
			c.config.Logger.Warn("the guards of a shard could not be looked after", "shard", spec.Name, "error", err)
		}
		return inspected{}
	})
}

// whileLeading returns a context that ends with the leadership, so that what is under way then ends too.
func whileLeading(ctx context.Context, leadership *store.Leadership) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		defer cancel()
		select {
		case <-leadership.Done():
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel()
		watching.Wait()
	}
}
