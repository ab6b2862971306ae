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
	_, err := s.requestWhile(ctx, action, isTransient, do)
	return err
}

// requestWhile is request, and goes on while asking again may help with the error that do ended with. lostAnswer says that at
// least one try ended without telling what became of it.
func (s *Store) requestWhile(ctx context.Context, action string, mayHelp func(error) bool, do func(context.Context, *clientv3.Client) error) (lostAnswer bool, err error) {
	limited, cancel := context.WithTimeout(ctx, s.config.RequestTimeout)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()

	started := time.Now()
	var cause error
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		sent, err := s.try(limited, do)
		if err == nil {
			return lostAnswer, nil
		}
		lostAnswer = lostAnswer || sent && !isRefusal(err)
		if again := isTransient(err) || sent && mayHelp(err); !again {
			return lostAnswer, fmt.Errorf("%s: %w", action, err)
		}
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

// try runs do once. Without a client nothing was sent.
func (s *Store) try(ctx context.Context, do func(context.Context, *clientv3.Client) error) (sent bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.RequestTimeout/triesPerRequest)
	defer cancel()
	client, err := s.connect(ctx)
	if err != nil {
		return false, err
	}
	return true, do(ctx, client)
}

// transaction is a write that may be sent more than once and must be recognisable by what it wrote.
type transaction struct {
	action    string
	when      []clientv3.Cmp
	then      []clientv3.Op
	otherwise []clientv3.Op
}

// commit runs the transaction until etcd has said yes or no to it. lostAnswer tells that a no may come from its own earlier try
// having been applied.
func (s *Store) commit(ctx context.Context, t transaction) (response *clientv3.TxnResponse, lostAnswer bool, err error) {
	lostAnswer, err = s.requestWhile(ctx, t.action, isUnsettled, func(ctx context.Context, client *clientv3.Client) (err error) {
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

// isUnsettled tells whether the same write again may tell what became of the first. A broken stream is an internal error to
// gRPC, a proposal that lost its leader an unknown one to etcd: neither says that nothing was written.
func isUnsettled(err error) bool {
	return isTransient(err) || !isRefusal(err) && !errors.Is(err, rpctypes.ErrNoSpace)
}

// isRefusal is true only where it is certain that etcd has not done what was asked, and will not. It takes etcd's own word
// for it. That there is no space is none: etcd also says so of the write that used up the last of it.
func isRefusal(err error) bool {
	var etcdError rpctypes.EtcdError
	if !errors.As(err, &etcdError) {
		return strings.Contains(err.Error(), "Error while dial") // gRPC has no code of its own for a refused connection.
	}
	switch etcdError.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.OutOfRange, codes.PermissionDenied, codes.Unauthenticated:
		return true
	default:
		return errors.Is(err, rpctypes.ErrNoLeader) || errors.Is(err, rpctypes.ErrTooManyRequests)
	}
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
