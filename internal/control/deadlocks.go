package control

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/cleavedb/cleave/internal/deadlock"
	"github.com/cleavedb/cleave/internal/store"
)

const (
	// judgeEvery is how long the leader lets go by from one look at transactions that wait to the next, if nothing is heard of them.
	judgeEvery = 500 * time.Millisecond
	// lookForWaits is the same where there are none: then it is only for a watch that has fallen silent.
	lookForWaits = 5 * time.Second
	// verdictPatience is how long a router may take to carry a verdict out.
	verdictPatience = 2 * time.Second
)

// breakDeadlocks finds circles of transactions that wait for each other on several shards, and names a victim of each, until the leadership
// ends. A verdict is written only while the leadership lasts, so one that does not know yet that it is over does no harm.
func (c *Cluster) breakDeadlocks(ctx context.Context, leadership *store.Leadership) {
	ctx, stop := whileLeading(ctx, leadership)
	defer stop()
	judge := deadlock.NewJudge(c.config.Access, c.config.Follower.Map)
	defer judge.Close()
	given := map[int64]time.Time{} // when each verdict that is still to be carried out was first seen, by its revision
	for ctx.Err() == nil {
		waits, revision, err := c.config.Store.Waits(ctx)
		if err != nil {
			pause(ctx, judgeEvery)
			continue
		}
		again := lookForWaits
		if len(waits) > 0 {
			again = judgeEvery
			c.judge(ctx, leadership, judge, waits, given)
		}
		c.config.Store.AwaitWaits(ctx, revision, again)
	}
}

// judge looks at the transactions that wait, and writes the verdicts.
func (c *Cluster) judge(ctx context.Context, leadership *store.Leadership, judge *deadlock.Judge, waits []store.Wait, given map[int64]time.Time) {
	records := map[string]store.Wait{}
	var transactions []*deadlock.Transaction
	for _, w := range waits {
		id := w.Router + "/" + w.ID
		t, err := deadlock.DecodeTransaction(id, w.Body)
		if err != nil {
			c.config.Logger.Error("a transaction that waits cannot be looked at", "error", err)
			continue
		}
		t.Sentenced = w.Verdict != nil
		records[id], transactions = w, append(transactions, t)
	}
	now := time.Now()
	for _, w := range waits {
		if _, known := given[w.Revision]; w.Verdict != nil && !known {
			given[w.Revision] = now
		}
	}
	maps.DeleteFunc(given, func(revision int64, _ time.Time) bool {
		return !slices.ContainsFunc(waits, func(w store.Wait) bool { return w.Revision == revision })
	})
	overdue := func(t *deadlock.Transaction) bool { return now.Sub(given[records[t.ID].Revision]) > verdictPatience }
	for _, victim := range judge.Look(ctx, transactions, overdue) {
		c.sentence(ctx, leadership, records, victim)
	}
}

// sentence writes a verdict, for the victim's router to carry out. One that stands in for others who did not is the only one of its circle.
func (c *Cluster) sentence(ctx context.Context, leadership *store.Leadership, records map[string]store.Wait, victim deadlock.Victim) {
	var instead []store.Wait
	for _, t := range victim.Instead {
		instead = append(instead, records[t.ID])
	}
	verdict, err := victim.Verdict.Encode()
	if err == nil {
		err = leadership.Judge(ctx, records[victim.Transaction.ID], verdict, instead...)
	}
	switch {
	case err == nil:
		c.config.Logger.Info("transactions on several shards wait for each other; one of them is ended",
			"router", victim.Transaction.Router, "session", victim.Transaction.Number, "waits", victim.Verdict.Detail)
	case ctx.Err() == nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotLeader):
		c.config.Logger.Warn("the verdict on a deadlock across shards could not be written; looking again", "error", err)
	}
}
