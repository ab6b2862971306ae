package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
	// triesPerRequest splits the request's time, so that a member that hangs leaves time to ask another.
	triesPerRequest = 3
)

// request runs do, which must be safe to repeat, until it gets an answer or the request's time is over.
func (s *Store) request(ctx context.Context, action string, do func(context.Context, *clientv3.Client) error) error {
	_, err := s.requestNotingLoss(ctx, action, do)
	return err
}

// requestNotingLoss is request. lostAnswer says that at least one try ended with no answer though it may have reached etcd.
func (s *Store) requestNotingLoss(ctx context.Context, action string, do func(context.Context, *clientv3.Client) error) (lostAnswer bool, err error) {
	limited, cancel := context.WithTimeout(ctx, s.config.RequestTimeout)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()

	started := time.Now()
	var cause error
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := s.try(limited, do)
		if err == nil {
			return lostAnswer, nil
		}
		if !isTransient(err) {
			return lostAnswer, fmt.Errorf("%s: %w", action, err)
		}
		lostAnswer = lostAnswer || mayHaveArrived(err)
		if cause == nil || limited.Err() == nil { // The last word is often only that time is over: the one before says why.
			cause = err
		}
		if sleep(limited, jitter(pause)) {
			continue
		}
		switch {
		case s.isClosed():
			return lostAnswer, fmt.Errorf("%s: %w", action, ErrClosed)
		case errors.Is(ctx.Err(), context.Canceled):
			return lostAnswer, cancelledError(ctx, action, false)
		default:
			return lostAnswer, &UnavailableError{
				Action: action, Endpoints: s.config.Endpoints, Tried: time.Since(started), Cause: cause,
			}
		}
	}
}

func (s *Store) try(ctx context.Context, do func(context.Context, *clientv3.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.RequestTimeout/triesPerRequest)
	defer cancel()
	client, err := s.connect(ctx)
	if err != nil {
		return err
	}
	return do(ctx, client)
}

// transaction is a write that may be sent more than once and must be recognisable by what it wrote.
type transaction struct {
	action    string
	when      []clientv3.Cmp
	then      []clientv3.Op
	otherwise []clientv3.Op
}

// commit runs the transaction. lostAnswer tells that a refusal may come from its own earlier try having been applied.
func (s *Store) commit(ctx context.Context, t transaction) (response *clientv3.TxnResponse, lostAnswer bool, err error) {
	lostAnswer, err = s.requestNotingLoss(ctx, t.action, func(ctx context.Context, client *clientv3.Client) (err error) {
		response, err = client.Txn(ctx).If(t.when...).Then(t.then...).Else(t.otherwise...).Commit()
		return err
	})
	var unavailable *UnavailableError
	switch {
	case err == nil || !lostAnswer:
		return response, lostAnswer, err
	case errors.As(err, &unavailable):
		unavailable.OutcomeUnknown = true
		return nil, lostAnswer, err
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, lostAnswer, cancelledError(ctx, t.action, true)
	default:
		return nil, lostAnswer, fmt.Errorf("%w: %w", err, ErrOutcomeUnknown)
	}
}

// isTransient tells whether asking again may help.
func isTransient(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, rpctypes.ErrTooManyRequests) {
		return true
	}
	switch errorCode(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	default:
		return false
	}
}

// mayHaveArrived is false only where it is certain that etcd did not take the request in.
func mayHaveArrived(err error) bool {
	if errors.Is(err, rpctypes.ErrNoLeader) || errors.Is(err, rpctypes.ErrTooManyRequests) {
		return false
	}
	return !strings.Contains(err.Error(), "Error while dial") // gRPC has no code of its own for a refused connection.
}

func errorCode(err error) codes.Code {
	var etcdError rpctypes.EtcdError
	if errors.As(err, &etcdError) {
		return etcdError.Code()
	}
	return status.Code(err)
}

// jitter keeps those who failed together from coming back together.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d)
}

// readPages reads all keys with the prefix as they were at one revision (0: now), page by page.
func (s *Store) readPages(ctx context.Context, action, prefix string, revision, pageSize int64, each func(key string, kv keyValue) error, options ...clientv3.OpOption) error {
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		var page *clientv3.GetResponse
		err := s.request(ctx, action, func(ctx context.Context, client *clientv3.Client) (err error) {
			page, err = client.Get(ctx, from, append(options,
				clientv3.WithRange(end), clientv3.WithRev(revision), clientv3.WithLimit(pageSize))...)
			return err
		})
		if err != nil {
			return err
		}
		if revision == 0 {
			revision = page.Header.Revision
		}
		for _, kv := range page.Kvs {
			if err := each(strings.TrimPrefix(string(kv.Key), prefix), kv); err != nil {
				return err
			}
		}
		if !page.More || len(page.Kvs) == 0 {
			return nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}
