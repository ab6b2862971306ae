package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/session"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// definitions lets the routers agree on changes of the schema, by way of etcd.
type definitions struct{ node *node }

// routersPatience is how long a change waits for the other routers.
const routersPatience = 5 * time.Second

// Hold implements [session.Definitions].
func (d definitions) Hold(ctx context.Context, tables []topology.TableName, why string) (id string, release func(), refused *pgerr.Error) {
	id = session.NewIncarnation()
	state, err := d.node.store.Hold(ctx, topology.Hold{ID: id, Tables: tables, Holder: d.node.id, Why: why, Since: time.Now().UTC()})
	if err != nil {
		if errors.Is(err, store.ErrOutcomeUnknown) {
			d.node.store.ReleaseInBackground(id, 0)
		}
		return "", nil, notHeld(err)
	}
	release = func() { d.release(id) }
	if late := d.await(ctx, state.Epoch); late != "" {
		release()
		return "", nil, pgerr.New(pgerr.LockNotAvailable, "router %s still uses the tables", late).
			WithDetail("A statement that uses them is under way there, or the router has not heard that it must stop.").
			WithHint("Try again when it has ended; cleave.sessions lists what is under way.")
	}
	return id, release, nil
}

func notHeld(err error) *pgerr.Error {
	var held *store.HeldError
	if errors.As(err, &held) {
		return pgerr.New(pgerr.LockNotAvailable, "the tables are being changed by somebody else").WithDetail("%s.", held).WithHint("Try again in a moment.")
	}
	var open *store.RolloutError
	if errors.As(err, &open) {
		return shard.RolloutInTheWay(open.Rollout)
	}
	var moving *store.MovingError
	if errors.As(err, &moving) {
		return shard.MoveInTheWay(moving.Move)
	}
	return pgerr.New(pgerr.CannotConnectNow, "the schema cannot be changed now").
		WithDetail("The other routers could not be told: %s.", err).WithHint("Changes of tables that several shards have need etcd: 'cleave status' tells how it is.")
}

// await names the routers that do not go by a state of the schema in time; empty: all do.
func (d definitions) await(ctx context.Context, epoch uint64) string {
	ctx, cancel := context.WithTimeout(ctx, routersPatience)
	defer cancel()
	routers, err := d.node.store.AwaitSchema(ctx, epoch)
	if err != nil {
		return "(unknown: etcd does not answer)"
	}
	late := make([]string, len(routers))
	for i, r := range routers {
		late[i] = r.Name
	}
	return strings.Join(late, ", ")
}

// release lets the routers go on, whatever has become of the client meanwhile.
func (d definitions) release(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), routersPatience)
	defer cancel()
	state, err := d.node.store.Release(ctx, id, d.mapVersion())
	if err != nil {
		if !errors.Is(err, store.ErrNotHeld) {
			d.node.store.ReleaseInBackground(id, d.mapVersion())
		}
		return
	}
	d.await(ctx, state.Epoch)
}

func (d definitions) mapVersion() uint64 {
	if m := d.node.follower.Map(); m != nil {
		return m.Version()
	}
	return 0
}

// Holding implements [session.Definitions].
func (d definitions) Holding(ctx context.Context, id string) *pgerr.Error {
	err := d.node.store.Holding(ctx, id)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotHeld):
		return pgerr.New(pgerr.LockNotAvailable, "the tables are not held by this router any more").
			WithDetail("Other routers have not heard of it for too long, and use the tables again.").WithHint("Nothing was changed. Try again.")
	default:
		return pgerr.New(pgerr.CannotConnectNow, "the schema cannot be changed now").
			WithDetail("It cannot be told whether other routers keep off the tables: %s.", err).WithHint("Nothing was changed. 'cleave status' tells how etcd is.")
	}
}

// Dropped implements [session.Definitions].
func (d definitions) Dropped(ctx context.Context, tables []topology.TableName) *pgerr.Error {
	if err := d.node.cluster.ForgetTables(context.WithoutCancel(ctx), tables); err != nil {
		return pgerr.New(pgerr.CannotConnectNow, "the tables are dropped, but the shard map still has them").
			WithDetail("%s.", err).WithHint("Run it again with IF EXISTS.")
	}
	return nil
}

// Changed implements [session.Definitions].
func (d definitions) Changed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), routersPatience)
	defer cancel()
	state, err := d.node.store.Bump(ctx, d.mapVersion())
	if err != nil {
		d.node.logger.Warn("other routers could not be told that the schema has changed; they notice by themselves in a moment", "error", err)
		return
	}
	if late := d.await(ctx, state.Epoch); late != "" {
		d.node.logger.Warn("a router has not heard that the schema has changed", "router", late)
	}
}
