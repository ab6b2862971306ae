package control

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/failpoint"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/internal/txn"
)

var (
	// recoverEvery is how often the leader looks for transactions that were left behind, and sweepEvery how often it cleans up.
	recoverEvery = failpoint.Duration("control.recover", time.Second)
	sweepEvery   = failpoint.Duration("control.sweep", 15*time.Second)
)

// transactions is what package txn works with.
func (c *Cluster) transactions() txn.Config {
	return txn.Config{
		Map: c.config.Follower.Map, Logger: c.config.Logger,
		Connect: func(ctx context.Context, spec topology.ShardSpec) (*pgx.Conn, error) {
			return c.config.Access.Connect(ctx, spec)
		},
	}
}

// keepTransactions ends what transactions over several shards have left behind, until the leadership ends. A leader that does not know yet that it
// is none does no harm.
func (c *Cluster) keepTransactions(ctx context.Context, leadership *store.Leadership) {
	ctx, stop := whileLeading(ctx, leadership)
	defer stop()
	recovery := txn.NewRecovery(c.transactions())
	defer recovery.Close()
	look, sweep := time.NewTicker(recoverEvery), time.NewTicker(sweepEvery)
	defer look.Stop()
	defer sweep.Stop()
	said := ""
	for {
		_ = recovery.Round(ctx) // the monitor says when a shard is away
		select {
		case <-look.C:
		case <-sweep.C:
			if err := recovery.Sweep(ctx); err != nil && ctx.Err() == nil && err.Error() != said {
				said = err.Error()
				c.config.Logger.Info("rows of transactions over several shards are kept for now", "reason", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// Transactions lists the transactions over several shards that are not over. Shards that cannot be asked are findings.
func (c *Cluster) Transactions(ctx context.Context) (api.Transactions, error) {
	m, err := c.Map(ctx)
	if err != nil {
		return api.Transactions{}, err
	}
	routers := map[string]string{}
	if known, err := c.config.Store.Routers(ctx); err == nil {
		for _, r := range known {
			routers[r.ID] = r.Name
		}
	}
	config := c.transactions()
	config.Map = func() *topology.Map { return m }
	found, failure := txn.Look(ctx, config)
	list := api.Transactions{Transactions: []api.Transaction{}}
	for _, t := range found {
		router := routers[t.Router]
		if router == "" {
			router = t.Router
		}
		list.Transactions = append(list.Transactions, api.Transaction{
			ID: t.ID, AgeSeconds: t.Age.Seconds(), Participants: t.Participants, PreparedOn: t.PreparedOn, LostOn: t.LostOn, Phase: string(t.Phase),
			Router: router, DecidedOn: t.DecidedOn, Detail: t.Detail,
		})
	}
	if failure != nil {
		list.Findings = append(list.Findings, api.Finding{
			Severity: api.Warning, Code: "unreachable", Message: "not all shards could be asked, so transactions may be missing here: " + failure.Error(), Hint: "See 'cleave status'.",
		})
	}
	return list, nil
}

// ResolveTransaction does what a person has decided for a transaction.
func (c *Cluster) ResolveTransaction(ctx context.Context, id, how string) (string, error) {
	done, err := txn.Resolve(ctx, c.transactions(), id, how)
	if err == nil {
		c.config.Logger.Warn("a transaction over several shards was resolved by hand", "transaction", id, "how", how, "done", done)
	}
	return done, err
}

// TransactionOutcome says what became of a transaction.
func (c *Cluster) TransactionOutcome(ctx context.Context, id string) (string, error) {
	return txn.OutcomeOf(ctx, c.transactions(), id)
}

// settled says why a shard cannot be let go yet.
func (c *Cluster) settled(ctx context.Context, m *topology.Map, s *topology.Shard) error {
	config := c.transactions()
	config.Map = func() *topology.Map { return m }
	return txn.Settled(ctx, config, s)
}

// awaitSettled waits until a shard that is out of the map has no part in transactions any more: routers may have been about to commit
// when they heard of it.
func (c *Cluster) awaitSettled(ctx context.Context, before *topology.Map, removed topology.ShardSpec) error {
	if before.ShardCount() < 2 {
		return nil
	}
	var err error
	for began := time.Now(); time.Since(began) < removePatience; pause(ctx, retryPause) {
		recovery := c.transactions()
		recovery.Map = func() *topology.Map { return before }
		r := txn.NewRecovery(recovery)
		_ = r.Round(ctx) // the leader does not look at it any more
		r.Close()
		if err = c.settled(ctx, before, before.Shard(removed.Name)); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// removePatience is how long a shard that is removed has to end its part in transactions.
const removePatience = 30 * time.Second

// errLeftBehind says that a dead router's transactions are not all ended.
var errLeftBehind = errors.New("transactions over several shards that it was committing are not ended yet")

// finishTransactions ends what routers that are gone have prepared, before the tables that they held are free for others.
func (c *Cluster) finishTransactions(ctx context.Context) error {
	routers, err := c.config.Store.Routers(ctx)
	if err != nil {
		return err
	}
	lives := map[string]bool{}
	for _, r := range routers {
		lives[r.ID] = true
	}
	recovery := txn.NewRecovery(c.transactions())
	defer recovery.Close()
	// A shard that does not answer is no reason to keep tables from everybody: what is prepared there has them locked there, until it is back.
	left, _ := recovery.RoundFor(ctx, func(router string) bool { return !lives[router] })
	if left > 0 {
		return errLeftBehind
	}
	return nil
}
