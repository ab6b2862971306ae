package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// hold keeps every router from using the tables, and waits until none does. A router that is late stops the declaration: it may
// still read the table where it was.
func (d *declaration) hold(ctx context.Context) error {
	if d.cluster.config.Router == "" {
		return d.withoutRouters(ctx)
	}
	state, err := d.cluster.config.Store.Hold(ctx, topology.Hold{ID: d.id, Tables: d.tables, Holder: d.cluster.config.Router, Why: d.what(), BesideMoves: d.besideMoves})
	d.held = err == nil || errors.Is(err, store.ErrOutcomeUnknown)
	if err != nil {
		return err
	}
	late, err := d.await(ctx, state.Epoch)
	if err != nil {
		return err
	}
	if len(late) > 0 {
		return pgerr.New(pgerr.LockNotAvailable, "router %s has not stopped using the tables", strings.Join(late, ", ")).
			WithDetail("A statement or a transaction that uses them is under way there, or the router has not heard that it must stop.").
			WithHint("Try again when it has ended; cleave.sessions lists what is under way, 'cleave status' the routers.")
	}
	return nil
}

// withoutRouters is about a process that is no router: it can hold nothing, so nobody else may be one.
func (d *declaration) withoutRouters(ctx context.Context) error {
	routers, err := d.cluster.config.Store.Routers(ctx)
	if err != nil || len(routers) == 0 {
		return err
	}
	return pgerr.New(pgerr.FeatureNotSupported, "tables cannot be declared by a process that is not a router").
		WithDetail("Router %s may be using them, and only a router can keep others from that.", routers[0].Name).WithHint("Ask that router.")
}

// await waits for the routers and names those that are late.
func (d *declaration) await(ctx context.Context, epoch uint64) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(d.patience, d.cluster.config.RouterPatience))
	defer cancel()
	routers, err := d.cluster.config.Store.AwaitSchema(ctx, epoch)
	late := make([]string, len(routers))
	for i, r := range routers {
		late[i] = r.Name
	}
	return late, err
}

// release lets the routers go on with the tables as the map has them now.
func (d *declaration) release(ctx context.Context) error {
	if !d.held || d.left {
		return nil
	}
	d.held = false
	state, err := d.cluster.config.Store.Release(ctx, d.id, d.next.Version())
	var late []string
	if err == nil {
		late, err = d.await(ctx, state.Epoch)
	} else {
		d.cluster.config.Store.ReleaseInBackground(d.id, d.next.Version())
	}
	if err != nil {
		late = []string{"one that is not known, because etcd does not answer,"}
	}
	if len(late) > 0 {
		d.findings = append(d.findings, routersBehind(strings.Join(late, ", ")))
	}
	return nil // the map has changed all the same
}

func routersBehind(late string) api.Finding {
	return api.Finding{
		Severity: api.Warning, Code: "router_behind",
		Message: fmt.Sprintf("router %s may not have heard of it yet, and keeps statements on the tables waiting", late),
		Hint:    "'cleave status' shows which map version each router works with.",
	}
}

// giveUpHold lets the routers go on as if nothing had been.
func (d *declaration) giveUpHold(ctx context.Context) {
	if !d.held {
		return
	}
	d.held = false
	if _, err := d.cluster.config.Store.Release(ctx, d.id, 0); err != nil {
		d.cluster.config.Store.ReleaseInBackground(d.id, 0)
	}
}

// releaseNoted releases the hold of a declaration that somebody else has resolved. Its holder may live and not know.
func releaseNoted(ctx context.Context, s *store.Store, hold string, m *topology.Map) {
	if hold != "" {
		_, _ = s.Release(ctx, hold, m.Version()) // one that is not there was released, or taken over by who releases it
	}
}
