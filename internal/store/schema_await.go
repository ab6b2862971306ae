package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cleavedb/cleave/internal/topology"
)

// SchemaOverview is the schema state and the routers that are thought to be alive, as both were at one moment.
type SchemaOverview struct {
	State   topology.SchemaState
	Routers []Router // in the order of their names

	newest uint64 // the highest epoch that a router has applied, or that passed through the store before the look
}

// Lives tells whether the router has a record.
func (o SchemaOverview) Lives(router string) bool {
	return slices.ContainsFunc(o.Routers, func(r Router) bool { return r.ID == router })
}

// WentBack tells whether somebody has seen a later state than the stored one: etcd was put back to an earlier state. Those who
// have will not go back to it; the next change of the state goes beyond what they have.
func (o SchemaOverview) WentBack() bool { return o.newest > o.State.Epoch }

// floor is the highest epoch that anybody is known to have: no later change may be given that one, or a lower one.
func (o SchemaOverview) floor() uint64 { return max(o.newest, o.State.Epoch) }

// late returns the routers that have not applied the epoch. One that has applied what is not stored has applied something
// else than what is waited for.
func (o SchemaOverview) late(epoch uint64) []Router {
	var late []Router
	for _, r := range o.Routers {
		if r.SchemaApplied < epoch || r.SchemaApplied > o.State.Epoch {
			late = append(late, r)
		}
	}
	return late
}

// SchemaOverview reads the schema state and the routers' records at one moment.
func (s *Store) SchemaOverview(ctx context.Context) (SchemaOverview, error) {
	overview, _, err := s.overview(ctx)
	return overview, err
}

func (s *Store) overview(ctx context.Context) (SchemaOverview, storedSchema, error) {
	overview := SchemaOverview{newest: s.seenEpoch.Load()} // before the look, so that it cannot be ahead of it
	var response *clientv3.TxnResponse
	err := s.request(ctx, "read schema state and routers", func(ctx context.Context, client *clientv3.Client) (err error) {
		response, err = client.Txn(ctx).Then(
			clientv3.OpGet(s.keys.schema), clientv3.OpGet(s.keys.routers, clientv3.WithPrefix())).Commit()
		return err
	})
	if err != nil {
		return SchemaOverview{}, storedSchema{}, err
	}
	current, err := schemaIn(response.Responses[0].GetResponseRange().Kvs)
	if err != nil {
		return SchemaOverview{}, storedSchema{}, err
	}
	current.asOf, overview.State = response.Header.Revision, current.state
	for _, kv := range response.Responses[1].GetResponseRange().Kvs {
		router, err := decodeRouter(kv)
		if err != nil {
			return SchemaOverview{}, storedSchema{}, err
		}
		overview.Routers = append(overview.Routers, router)
		overview.newest = max(overview.newest, router.SchemaApplied)
	}
	sortRouters(overview.Routers)
	return overview, current, nil
}

// AwaitSchema waits until every router that has a record has applied the epoch, or a later one. It returns those that have not
// when the context ends, and none when all have. It fails if etcd cannot be read, and with [ErrWentBack] if the
// epoch is not stored any more.
//
// A router without a record is not waited for, and may still be serving: see DESIGN.md.
func (s *Store) AwaitSchema(ctx context.Context, epoch uint64) (late []Router, err error) {
	for began := time.Now(); ; {
		overview, current, err := s.overview(ctx)
		switch {
		case err != nil && ctx.Err() != nil && len(late) > 0:
			return late, nil
		case err != nil:
			return nil, fmt.Errorf("wait for schema epoch %d: %w", epoch, err)
		case overview.State.Epoch < epoch:
			return nil, fmt.Errorf("wait for schema epoch %d: epoch %d is stored: %w", epoch, overview.State.Epoch, ErrWentBack)
		}
		if late = overview.late(epoch); len(late) == 0 {
			return nil, nil
		}
		s.awaitRecords(ctx, s.lookAgain(began), late, current.asOf+1, func(r Router) bool { return r.SchemaApplied >= epoch })
		select {
		case <-ctx.Done():
			return late, nil
		default:
		}
	}
}

// AwaitSettled waits until every router that has a record has settled on the version of the map, or a later one. It returns those that have, and those that have not when the context ends.
func (s *Store) AwaitSettled(ctx context.Context, version uint64) (settled, late []Router, err error) {
	for began := time.Now(); ; {
		overview, current, err := s.overview(ctx)
		switch {
		case err != nil && ctx.Err() != nil && len(settled)+len(late) > 0:
			return settled, late, nil
		case err != nil:
			return nil, nil, fmt.Errorf("wait for map version %d to settle: %w", version, err)
		}
		settled, late = nil, nil
		for _, r := range overview.Routers {
			if r.Settled >= version {
				settled = append(settled, r)
			} else {
				late = append(late, r)
			}
		}
		if len(late) == 0 {
			return settled, nil, nil
		}
		s.awaitRecords(ctx, s.lookAgain(began), late, current.asOf+1, func(r Router) bool { return r.Settled >= version })
		select {
		case <-ctx.Done():
			return settled, late, nil
		default:
		}
	}
}

// lookAgain is when to look again at all of them.
func (s *Store) lookAgain(began time.Time) time.Duration {
	waited := time.Since(began)
	if waited < time.Second {
		return max(time.Millisecond, waited/4)
	}
	return min(s.config.ProbeInterval, time.Second)
}

// soon is for how long it is better to look again than to watch: to begin a watch takes longer than a look, and what is written between the look before it and its beginning etcd tells only at the next tenth of a second. Statements may wait for it.
const soon = 20 * time.Millisecond

// awaitRecords returns when the late routers' records seem to be as they should be, or when it is time to look again at all of them
// because the watch may have missed something. It decides nothing.
func (s *Store) awaitRecords(ctx context.Context, patience time.Duration, late []Router, revision int64, fits func(Router) bool) {
	if patience < soon {
		sleep(ctx, patience)
		return
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), patience)
	defer cancel()
	client, err := s.connect(ctx)
	if err != nil {
		return // Looking again tells why.
	}
	awaited := map[string]bool{}
	for _, r := range late {
		awaited[s.keys.routers+r.ID] = true
	}
	for response := range client.Watch(ctx, s.keys.routers, clientv3.WithPrefix(), clientv3.WithRev(revision)) {
		if response.Err() != nil {
			break
		}
		for _, event := range response.Events {
			if event.Type == clientv3.EventTypeDelete || recordFits(event.Kv, fits) {
				delete(awaited, string(event.Kv.Key))
			}
		}
		if len(awaited) == 0 {
			return
		}
	}
	sleep(ctx, jitter(firstPause)) // Not in a tight loop, where the watch broke off.
}

func recordFits(kv keyValue, fits func(Router) bool) bool {
	router, err := decodeRouter(kv)
	return err == nil && fits(router)
}
