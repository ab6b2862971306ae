package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Wait is the record of a transaction that may be in a deadlock across shards. Its router puts it there and takes it away, under the router's
// lease; the leader adds a verdict. What both mean is for package deadlock to say.
type Wait struct {
	Router   string          // the ID of its router
	ID       string          // what the router calls it
	Body     json.RawMessage // the router's
	Verdict  json.RawMessage // the leader's; nil: none
	Revision int64           // which write this was: filled in by the store, compared when there is a verdict
}

// waitRecord is a wait as stored.
type waitRecord struct {
	Body    json.RawMessage `json:"body"`
	Verdict json.RawMessage `json:"verdict,omitempty"`
}

// waitsPerRequest is how many records are written in one request.
const waitsPerRequest = 100

func decodeWait(prefix string, kv keyValue) (Wait, error) {
	var r waitRecord
	if err := json.Unmarshal(kv.Value, &r); err != nil {
		return Wait{}, fmt.Errorf("read wait record %s: %w", kv.Key, err)
	}
	router, id, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), prefix), "/")
	return Wait{Router: router, ID: id, Body: r.Body, Verdict: r.Verdict, Revision: kv.ModRevision}, nil
}

// ExchangeWaits puts and removes records of this router's transactions, by their IDs, and returns all that are stored then: their bodies, and the
// verdicts on those that have one. A record that is put again loses its verdict. All of them are gone with the router's record. The revision is for
// [Registration.AwaitVerdict].
func (r *Registration) ExchangeWaits(ctx context.Context, put map[string]json.RawMessage, remove []string) (bodies, verdicts map[string]json.RawMessage, revision int64, err error) {
	prefix := r.waits()
	var changes []clientv3.Op
	for _, id := range slices.Sorted(maps.Keys(put)) {
		value, err := json.Marshal(waitRecord{Body: put[id]})
		if err != nil {
			return nil, nil, 0, fmt.Errorf("encode wait record %s: %w", id, err)
		}
		changes = append(changes, clientv3.OpPut(prefix+id, string(value), clientv3.WithLease(r.leaseID())))
	}
	for _, id := range remove {
		changes = append(changes, clientv3.OpDelete(prefix+id))
	}
	for len(changes) > waitsPerRequest {
		if _, err := r.store.exchange(ctx, changes[:waitsPerRequest]); err != nil {
			return nil, nil, 0, err
		}
		changes = changes[waitsPerRequest:]
	}
	response, err := r.store.exchange(ctx, append(changes, clientv3.OpGet(prefix, clientv3.WithPrefix())))
	if err != nil {
		return nil, nil, 0, err
	}
	bodies, verdicts = map[string]json.RawMessage{}, map[string]json.RawMessage{}
	for _, kv := range response.Responses[len(response.Responses)-1].GetResponseRange().Kvs {
		wait, err := decodeWait(r.store.keys.waits, kv)
		if err != nil {
			return nil, nil, 0, err
		}
		if bodies[wait.ID] = wait.Body; wait.Verdict != nil {
			verdicts[wait.ID] = wait.Verdict
		}
	}
	return bodies, verdicts, response.Header.Revision, nil
}

// waits is what the names of this router's records begin with.
func (r *Registration) waits() string { return r.store.keys.waits + r.Router().ID + "/" }

// AwaitVerdict returns when a record of this router's has changed after a revision, or may have, and at the latest after so long.
func (r *Registration) AwaitVerdict(ctx context.Context, revision int64, limit time.Duration) {
	r.store.awaitChange(ctx, r.waits(), revision, limit)
}

// exchange does all of it, which may be done twice.
func (s *Store) exchange(ctx context.Context, operations []clientv3.Op) (response *clientv3.TxnResponse, err error) {
	err = s.request(ctx, "write wait records", func(ctx context.Context, client *clientv3.Client) (err error) {
		response, err = client.Txn(ctx).Then(operations...).Commit()
		return err
	})
	return response, err
}

// Waits lists the records of all routers, and as of which revision that is, for [Store.AwaitWaits].
func (s *Store) Waits(ctx context.Context) (waits []Wait, revision int64, err error) {
	var response *clientv3.GetResponse
	err = s.request(ctx, "list wait records", func(ctx context.Context, client *clientv3.Client) (err error) {
		response, err = client.Get(ctx, s.keys.waits, clientv3.WithPrefix())
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	for _, kv := range response.Kvs {
		wait, err := decodeWait(s.keys.waits, kv)
		if err != nil {
			return nil, 0, err
		}
		waits = append(waits, wait)
	}
	return waits, response.Header.Revision, nil
}

// AwaitWaits returns when records have changed after a revision, or may have, and at the latest after so long. It decides nothing: look again.
func (s *Store) AwaitWaits(ctx context.Context, revision int64, limit time.Duration) {
	s.awaitChange(ctx, s.keys.waits, revision, limit)
}

func (s *Store) awaitChange(ctx context.Context, prefix string, revision int64, limit time.Duration) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), limit)
	defer cancel()
	client, err := s.connect(ctx)
	if err != nil {
		sleep(ctx, jitter(firstPause))
		return
	}
	for response := range client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1)) {
		if response.Err() != nil {
			break
		}
		if len(response.Events) > 0 {
			return
		}
	}
	sleep(ctx, jitter(firstPause)) // Not in a tight loop, where the watch broke off.
}

// Judge adds a verdict to a record as it was read, and takes back those on others, all or nothing. It fails with [ErrConflict] if one of the records is
// not that one any more, and with [ErrNotLeader].
func (l *Leadership) Judge(ctx context.Context, wait Wait, verdict json.RawMessage, takeBack ...Wait) error {
	const action = "write a verdict"
	t := transaction{action: action, when: []clientv3.Cmp{l.stillLeads()}, otherwise: []clientv3.Op{clientv3.OpGet(l.key)}}
	for i, w := range append([]Wait{wait}, takeBack...) {
		if i > 0 {
			verdict = nil
		}
		value, err := json.Marshal(waitRecord{Body: w.Body, Verdict: verdict})
		if err != nil {
			return fmt.Errorf("%s: %w", action, err)
		}
		key := l.store.keys.waits + w.Router + "/" + w.ID
		t.when = append(t.when, clientv3.Compare(clientv3.ModRevision(key), "=", w.Revision))
		t.then = append(t.then, clientv3.OpPut(key, string(value), clientv3.WithIgnoreLease()))
	}
	response, _, err := l.store.commit(ctx, t)
	switch {
	case err != nil || response.Succeeded:
		return err
	case createRevision(response) != l.token:
		return fmt.Errorf("%s: %w", action, ErrNotLeader)
	default: // Or an earlier try was applied and its answer lost: then the verdict is there.
		return fmt.Errorf("%s: %w", action, ErrConflict)
	}
}
