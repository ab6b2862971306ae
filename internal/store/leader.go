package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Leadership is a won election. It ends when its lease is lost, on [Leadership.Resign], or with the store. It may end without
// the leader knowing yet; what it writes after that is refused with [ErrNotLeader]. Safe for concurrent use.
type Leadership struct {
	store     *Store
	candidate string
	lease     clientv3.LeaseID
	key       string
	token     int64
	life      context.Context // ends when the leadership is over
	end       context.CancelFunc
	ended     chan struct{} // closed when the loop has ended
}

// Leader is who leads, as everyone can see it.
type Leader struct {
	Candidate string
	Token     int64
}

// Campaign waits until the candidate leads, through any time without etcd. Only the context ends it early, or an error that
// waiting does not mend.
func (s *Store) Campaign(ctx context.Context, candidate string) (*Leadership, error) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		l, err := s.campaignOnce(ctx, candidate)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrNotLeader) || ctx.Err() != nil {
			return nil, fmt.Errorf("campaign: %w", err)
		}
		if !sleep(ctx, jitter(pause)) {
			return nil, cancelledError(ctx, "campaign", false)
		}
	}
}

// campaignOnce queues up and waits for its turn. It fails with ErrNotLeader when it lost its place in the queue.
func (s *Store) campaignOnce(ctx context.Context, candidate string) (*Leadership, error) {
	l, err := s.queueUp(ctx, candidate)
	if err != nil {
		return nil, err
	}
	if err := s.awaitTurn(ctx, l); err != nil {
		l.end() // The loop gives the lease up; waiting for that would keep a cancelled caller.
		return nil, err
	}
	return l, nil
}

// queueUp writes the candidate's key. The queue is the order in which keys were created, which no clock decides.
func (s *Store) queueUp(ctx context.Context, candidate string) (*Leadership, error) {
	lease, err := s.grant(ctx)
	if err != nil {
		return nil, err
	}
	l := &Leadership{
		store: s, candidate: candidate, lease: lease, key: s.keys.leaders + strconv.FormatInt(int64(lease), 16),
		ended: make(chan struct{}),
	}
	response, _, err := s.commit(ctx, transaction{
		action:    "queue up for leadership",
		when:      []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(l.key), "=", 0)},
		then:      []clientv3.Op{clientv3.OpPut(l.key, candidate, clientv3.WithLease(lease))},
		otherwise: []clientv3.Op{clientv3.OpGet(l.key)},
	})
	if err != nil {
		return nil, err // The lease, if it was written under, expires by itself.
	}
	l.token = response.Header.Revision
	if !response.Succeeded { // The key bears our lease's name: it is ours, from a try whose answer was lost.
		l.token = createRevision(response)
	}
	l.life, l.end = context.WithCancel(s.ctx)
	if !s.start(l.run) {
		l.end()
		return nil, ErrClosed
	}
	return l, nil
}

// run keeps the lease until it is lost or given up.
func (l *Leadership) run() {
	defer close(l.ended)
	if renewals, err := l.store.keepLease(l.life, l.lease); err == nil {
		for range renewals { // Ends when the lease is lost, and with the context.
			continue
		}
	}
	l.end()
	if !l.store.isClosed() {
		_ = l.store.revoke(l.store.ctx, l.lease) // Otherwise it expires by itself; Resign asks again and reports.
	}
}

// awaitTurn returns when every candidate that came before is gone.
func (s *Store) awaitTurn(ctx context.Context, l *Leadership) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.life, func() { cancel(ErrNotLeader) })()
	for {
		before, revision, err := s.predecessor(ctx, l)
		if err != nil || before == "" {
			return err
		}
		if err := s.awaitDeletion(ctx, before, revision); err != nil {
			return err
		}
	}
}

// predecessor returns the key of the candidate just before, or nothing when it is our turn.
func (s *Store) predecessor(ctx context.Context, l *Leadership) (key string, revision int64, err error) {
	before := append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(l.token-1))
	var response *clientv3.TxnResponse
	err = s.request(ctx, "look who leads", func(ctx context.Context, client *clientv3.Client) (err error) {
		response, err = client.Txn(ctx).Then(clientv3.OpGet(l.key), clientv3.OpGet(s.keys.leaders, before...)).Commit()
		return err
	})
	if err != nil {
		return "", 0, err
	}
	if createRevision(response) != l.token {
		return "", 0, ErrNotLeader
	}
	if kvs := response.Responses[1].GetResponseRange().Kvs; len(kvs) > 0 {
		key = string(kvs[0].Key)
	}
	return key, response.Header.Revision, nil
}

// awaitDeletion returns when the key may be gone: it was deleted after the revision, or the watch cannot tell.
func (s *Store) awaitDeletion(ctx context.Context, key string, revision int64) error {
	client, err := s.connect(ctx)
	if err != nil {
		return err
	}
	watchCtx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for response := range client.Watch(watchCtx, key, clientv3.WithRev(revision+1)) {
		if response.Err() != nil {
			sleep(ctx, jitter(firstPause)) // Look again, but not in a tight loop.
			break
		}
		for _, event := range response.Events {
			if event.Type == clientv3.EventTypeDelete {
				return nil
			}
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// Candidate is the name it was elected under.
func (l *Leadership) Candidate() string { return l.candidate }

// Token is a number that is higher for every later leadership.
func (l *Leadership) Token() int64 { return l.token }

// Done is closed when the leadership is over.
func (l *Leadership) Done() <-chan struct{} { return l.life.Done() }

// Resign ends the leadership and lets the next candidate in at once. If etcd does not answer it says so, and the leadership
// expires by itself. It may be called twice.
func (l *Leadership) Resign(ctx context.Context) error {
	l.end()
	select {
	case <-l.ended:
	case <-ctx.Done():
		return cancelledError(ctx, "resign", false)
	}
	if l.store.isClosed() {
		return nil
	}
	if err := l.store.revoke(ctx, l.lease); err != nil {
		return fmt.Errorf("resign: %w", err)
	}
	return nil
}

// Leader tells who leads, or fails with [ErrNoLeader].
func (s *Store) Leader(ctx context.Context) (Leader, error) {
	var response *clientv3.GetResponse
	err := s.request(ctx, "look who leads", func(ctx context.Context, client *clientv3.Client) (err error) {
		response, err = client.Get(ctx, s.keys.leaders, clientv3.WithFirstCreate()...)
		return err
	})
	if err != nil {
		return Leader{}, err
	}
	if len(response.Kvs) == 0 {
		return Leader{}, ErrNoLeader
	}
	return Leader{Candidate: string(response.Kvs[0].Value), Token: response.Kvs[0].CreateRevision}, nil
}

// stillLeads is the condition of every fenced write. Those who came before are gone for good and those who come later have a
// higher number, so whose key is still the one it won with leads.
func (l *Leadership) stillLeads() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(l.key), "=", l.token)
}

// createRevision returns when the key of the first read of a transaction was created; 0: there is none.
func createRevision(response *clientv3.TxnResponse) int64 {
	if kvs := response.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		return kvs[0].CreateRevision
	}
	return 0
}
