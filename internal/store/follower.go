package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cleavedb/cleave/internal/topology"
)

// Follower holds the newest map and the newest schema state that it could get. Make it with [Store.Follow]. Safe for concurrent use.
type Follower struct {
	store   *Store
	current atomic.Pointer[topology.Map]
	schema  atomic.Pointer[topology.SchemaState]
	ready   chan struct{} // closed with the first map
	cancel  context.CancelFunc
	done    chan struct{} // closed when the loop has ended

	mu      sync.Mutex // guards what follows
	changed chan struct{}
	status  Status
	silent  bool                 // whether the loss of etcd was reported and its return was not
	refused error                // why the stored map was refused; nil: it was not
	fits    bool                 // whether the stored map is the held one, or there never was any
	offered topology.SchemaState // as stored, adopted or not
	behind  bool                 // whether it was reported that the stored state is not the held one, nor a later one
}

// Status is how a follower is doing.
type Status struct {
	Connected bool      // whether the last look at etcd worked
	Since     time.Time // when Connected became what it is
	LastError error     // nil; [ErrNoMap]; a [StaleError], [ForkError] or [OtherClusterError]: the stored map was refused; why etcd cannot be read
	Version   uint64    // of the held map; 0: none yet
	Epoch     uint64    // of the held schema state
}

// Follow starts to follow the map, until the context ends or the follower or the store is closed. Etcd need not be there
// yet: see [Follower.Ready].
func (s *Store) Follow(ctx context.Context) (*Follower, error) {
	f := &Follower{
		store: s, ready: make(chan struct{}), done: make(chan struct{}), changed: make(chan struct{}),
		status: Status{Since: time.Now()},
	}
	f.schema.Store(&topology.SchemaState{})
	ctx, f.cancel = context.WithCancel(ctx)
	detach := context.AfterFunc(s.ctx, f.cancel)
	started := s.start(func() {
		defer close(f.done)
		defer detach()
		f.run(ctx)
	})
	if !started {
		f.cancel()
		return nil, fmt.Errorf("follow map: %w", ErrClosed)
	}
	return f, nil
}

// Map returns the newest map that has arrived, or nil before the first. It takes no lock.
func (f *Follower) Map() *topology.Map { return f.current.Load() }

// Ready is closed when the first map has arrived.
func (f *Follower) Ready() <-chan struct{} { return f.ready }

// Changed returns a channel that is closed when the map or the schema state next changes. Take it before looking at
// [Follower.Map] and [Follower.Schema], so that no change falls in between.
func (f *Follower) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// Wait returns the first map it sees whose version is at least the given one.
func (f *Follower) Wait(ctx context.Context, version uint64) (*topology.Map, error) {
	for {
		changed := f.Changed()
		if m := f.Map(); m != nil && m.Version() >= version {
			return m, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for map version %d: %w", version, context.Cause(ctx))
		case <-f.done:
			return nil, fmt.Errorf("wait for map version %d: %w", version, ErrClosed)
		}
	}
}

// Status tells how the follower is doing.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// Close stops following and waits for the end of it. The last map stays. It may be called twice.
func (f *Follower) Close() {
	f.cancel()
	<-f.done
}

// errReadAfresh ends a watch that cannot tell all that has happened, though etcd is there.
var errReadAfresh = errors.New("the watch has missed changes")

// run follows, and starts over whenever that breaks off.
func (f *Follower) run(ctx context.Context) {
	pause := firstPause
	for {
		err := f.follow(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errReadAfresh), errors.Is(err, rpctypes.ErrCompacted):
			pause = firstPause
		default:
			f.lost(err)
			pause = min(2*pause, longestPause)
		}
		if !sleep(ctx, jitter(pause)) {
			return
		}
	}
}

// follow reads the map and the schema state, then watches both until something breaks. A probe stands behind the watch, which says nothing
// when all of etcd is away, or when etcd was put back to an earlier state.
func (f *Follower) follow(ctx context.Context) error {
	current, err := f.store.readMap(ctx)
	if err != nil && !errors.Is(err, ErrNoMap) {
		return err
	}
	f.found(current.shardMap)
	schema, err := f.store.readSchema(ctx)
	if err != nil {
		return err
	}
	f.foundSchema(schema.state)

	watchCtx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	heads, states, err := f.watch(watchCtx, cancel, current.revision+1, schema.asOf+1)
	if err != nil {
		return err
	}
	probe := time.NewTicker(f.store.config.ProbeInterval)
	defer probe.Stop()
	held := revisions{head: current.head.revision, schema: schema.revision}
	for err == nil {
		select {
		case response, open := <-heads:
			held.head, err = f.take(ctx, response, open, held.head)
		case response, open := <-states:
			held.schema, err = f.takeSchema(response, open, held.schema)
		case <-probe.C:
			err = f.probe(ctx, held)
		}
	}
	return err
}

// revisions are etcd's of the last writes that were seen; 0: of none, or of a deletion.
type revisions struct{ head, schema int64 }

// watch starts to watch the head and the schema state. Etcd's client waits without limit for a watch to be taken in; here
// it is cancelled, and its channel closed, when that takes longer than a request may.
func (f *Follower) watch(ctx context.Context, cancel context.CancelFunc, head, schema int64) (heads, states clientv3.WatchChan, err error) {
	client, err := f.store.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer time.AfterFunc(f.store.config.RequestTimeout, cancel).Stop()
	heads = client.Watch(ctx, f.store.keys.head, clientv3.WithRev(head))
	return heads, client.Watch(ctx, f.store.keys.schema, clientv3.WithRev(schema)), nil
}

// newestEvent returns the last change that a message of a watch tells of, or nil if it tells of none.
func newestEvent(response clientv3.WatchResponse, open bool, what string) (*clientv3.Event, error) {
	if err := response.Err(); err != nil {
		return nil, fmt.Errorf("watch %s: %w", what, err)
	}
	if !open {
		return nil, fmt.Errorf("watch %s: it ended, or was not taken in", what)
	}
	if len(response.Events) == 0 {
		return nil, nil //nolint:nilnil // a message without news
	}
	return response.Events[len(response.Events)-1], nil
}

// take handles one message of the watch and returns the revision of the head that is now held.
func (f *Follower) take(ctx context.Context, response clientv3.WatchResponse, open bool, held int64) (int64, error) {
	newest, err := newestEvent(response, open, "map head")
	if newest == nil {
		return held, err
	}
	if newest.Type == clientv3.EventTypeDelete {
		f.found(nil)
		return 0, nil
	}
	h, err := decodeHead(newest.Kv)
	if err != nil {
		return held, err
	}
	m, err := f.store.assemble(ctx, h, h.revision)
	if err != nil {
		return held, err
	}
	f.found(m)
	return h.revision, nil
}

// probe asks whether the head and the schema state are still those that were seen last.
func (f *Follower) probe(ctx context.Context, held revisions) error {
	var response *clientv3.TxnResponse
	err := f.store.request(ctx, "probe map head and schema state", func(ctx context.Context, client *clientv3.Client) (err error) {
		response, err = client.Txn(ctx).Then(
			clientv3.OpGet(f.store.keys.head, clientv3.WithKeysOnly()), clientv3.OpGet(f.store.keys.schema, clientv3.WithKeysOnly())).Commit()
		return err
	})
	if err != nil {
		return err
	}
	if held != (revisions{head: modRevision(response, 0), schema: modRevision(response, 1)}) {
		return errReadAfresh
	}
	return nil
}

// modRevision returns when the key of the i-th read of a transaction was last written; 0: there is none.
func modRevision(response *clientv3.TxnResponse, i int) int64 {
	if kvs := response.Responses[i].GetResponseRange().Kvs; len(kvs) > 0 {
		return kvs[0].ModRevision
	}
	return 0
}

// found records that etcd answered, with a map or with none.
func (f *Follower) found(m *topology.Map) {
	f.mu.Lock()
	defer f.mu.Unlock()
	lastError := ErrNoMap
	if m != nil {
		lastError = f.accept(m)
	}
	f.fits = lastError == nil || m == nil && f.current.Load() == nil
	f.setStatus(true, lastError)
	f.adoptSchema()
	if f.silent {
		f.silent = false
		f.store.config.Logger.Info("shard map: etcd is back", "version", f.status.Version)
	}
}

// accept takes the map if it follows the held one. The caller holds the lock.
func (f *Follower) accept(m *topology.Map) error {
	held := f.current.Load()
	if err := refusal(held, m); err != nil {
		f.reportRefusal(err)
		return err
	}
	f.refused = nil
	if held != nil && held.Version() == m.Version() {
		return nil
	}
	f.current.Store(m)
	if held == nil {
		close(f.ready)
	}
	f.announce()
	return nil
}

// announce tells those who wait for a change. The caller holds the lock.
func (f *Follower) announce() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// refusal tells why the offered map can neither follow the held one nor be the same; nil: it can.
func refusal(held, offered *topology.Map) error {
	switch {
	case held == nil:
		return nil
	case offered.Cluster() != held.Cluster() && !held.Empty(): // a map with nothing in it may have been made by mistake
		return &OtherClusterError{Held: held.Cluster(), Offered: offered.Cluster()}
	case offered.Version() < held.Version():
		return &StaleError{Current: held.Version(), Offered: offered.Version()}
	case offered.Version() == held.Version() && !bytes.Equal(offered.Manifest(), held.Manifest()):
		return &ForkError{Version: held.Version()}
	default:
		return nil
	}
}

// reportRefusal logs a refusal when it is new, not at every look. The caller holds the lock.
func (f *Follower) reportRefusal(err error) {
	if f.refused == nil || f.refused.Error() != err.Error() {
		f.store.config.Logger.Error("shard map: the stored map is refused, the last one stays in use",
			"version", f.current.Load().Version(), "cause", err)
	}
	f.refused = err
}

// lost records that etcd cannot be read.
func (f *Follower) lost(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.setStatus(false, err)
	if !f.silent {
		f.silent = true
		f.store.config.Logger.Warn("shard map: etcd is away, the last map stays in use", "version", f.status.Version, "cause", err)
	}
}

// setStatus fills the status in. The caller holds the lock.
func (f *Follower) setStatus(connected bool, lastError error) {
	if f.status.Connected != connected {
		f.status.Since = time.Now()
	}
	f.status.Connected, f.status.LastError = connected, lastError
	if m := f.current.Load(); m != nil {
		f.status.Version = m.Version()
	}
}
