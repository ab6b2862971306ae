package store

import (
	"context"
	"fmt"
	"reflect"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cleavedb/cleave/internal/topology"
)

// Schema returns the newest schema state that has arrived and that the held map is new enough for. It takes no lock.
func (f *Follower) Schema() topology.SchemaState { return *f.schema.Load() }

// WaitSchema returns the first schema state it sees whose epoch is at least the given one.
func (f *Follower) WaitSchema(ctx context.Context, epoch uint64) (topology.SchemaState, error) {
	for {
		changed := f.Changed()
		if state := f.Schema(); state.Epoch >= epoch {
			return state, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return topology.SchemaState{}, fmt.Errorf("wait for schema epoch %d: %w", epoch, context.Cause(ctx))
		case <-f.done:
			return topology.SchemaState{}, fmt.Errorf("wait for schema epoch %d: %w", epoch, ErrClosed)
		}
	}
}

// takeSchema handles one message of the watch and returns the revision of the state that was seen last.
func (f *Follower) takeSchema(response clientv3.WatchResponse, open bool, held int64) (int64, error) {
	newest, err := newestEvent(response, open, "schema state")
	if newest == nil {
		return held, err
	}
	if newest.Type == clientv3.EventTypeDelete {
		f.foundSchema(topology.SchemaState{})
		return 0, nil
	}
	current, err := decodeSchema(newest.Kv)
	if err != nil {
		return held, err
	}
	f.foundSchema(current.state)
	return current.revision, nil
}

// foundSchema records what is stored, and adopts it where it can.
func (f *Follower) foundSchema(state topology.SchemaState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offered = state
	f.adoptSchema()
}

// adoptSchema takes the stored state if it follows the held one, and the held map is the stored one and new enough for it. A
// state that belongs to a map which was refused is not for this process. The caller holds the lock.
func (f *Follower) adoptSchema() {
	held := f.Schema()
	if f.offered.Epoch < held.Epoch || f.offered.Epoch == held.Epoch && !reflect.DeepEqual(f.offered, held) {
		f.reportBehind(held)
		return
	}
	f.behind = false
	if f.offered.Epoch == held.Epoch || !f.fits || f.offered.MapVersion > f.status.Version {
		return
	}
	adopted := f.offered
	f.schema.Store(&adopted)
	f.status.Epoch = adopted.Epoch
	f.store.noteEpoch(adopted.Epoch)
	f.announce()
}

// reportBehind logs when it is new, not at every look, that the stored state is none that may follow the held one. The caller
// holds the lock.
func (f *Follower) reportBehind(held topology.SchemaState) {
	if !f.behind {
		f.store.config.Logger.Error("schema state: the stored one is refused, because a later one was there before; the last one stays in use",
			"epoch", held.Epoch, "stored", f.offered.Epoch)
	}
	f.behind = true
}
