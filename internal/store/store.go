package store

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/cleavedb/cleave/internal/topology"
)

// Store is one cluster's state in etcd. Make it with [Open]. Safe for concurrent use.
type Store struct {
	config Config
	keys   keys

	ctx        context.Context // ended by Close; everything in the background runs under it
	cancel     context.CancelFunc
	background sync.WaitGroup
	closing    sync.Mutex // held while something in the background starts, so that Close waits for it

	client     atomic.Pointer[clientv3.Client]
	connecting chan struct{} // holds one token: who has it makes the client

	// latest is the map that passed through here last: what it has of the pieces need not travel again. It decides nothing.
	latest atomic.Pointer[topology.Map]
	// seenEpoch is the highest epoch of the schema that passed through here: no lower one is given out again.
	seenEpoch atomic.Uint64
}

// keys are the names in etcd.
type keys struct {
	head    string
	schema  string
	pieces  string // a piece is pieces + its identifier, and so on
	routers string
	leaders string
	jobs    string
	wishes  string
	plans   string
	parts   string // what plans say
	waits   string
	traffic string
	// automation is one document.
	automation string
}

func keysUnder(prefix string) keys {
	return keys{
		head:       prefix + "map/head",
		schema:     prefix + "schema/state",
		pieces:     prefix + "map/piece/",
		routers:    prefix + "router/",
		leaders:    prefix + "leader/",
		jobs:       prefix + "job/",
		wishes:     prefix + "wish/",
		plans:      prefix + "plan/",
		parts:      prefix + "plan-part/",
		waits:      prefix + "wait/",
		traffic:    prefix + "traffic/",
		automation: prefix + "auto",
	}
}

// Open returns the store. It does not need etcd to be there yet.
func Open(config Config) (*Store, error) {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return nil, err
	}
	s := &Store{config: config, keys: keysUnder(config.Prefix), connecting: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if config.Username == "" { // Otherwise the client logs in while it is made, which can wait and fail.
		if _, err := s.connect(s.ctx); err != nil {
			s.cancel()
			return nil, fmt.Errorf("open store: %w", err)
		}
	}
	return s, nil
}

// Close ends every follower, registration and leadership made from the store and waits for them. It may be called twice.
// Records of routers and the leadership vanish at once only if they were closed themselves before.
func (s *Store) Close() error {
	s.closing.Lock()
	s.cancel()
	s.closing.Unlock()
	s.background.Wait()
	s.closeClient()
	return nil
}

func (s *Store) isClosed() bool { return s.ctx.Err() != nil }

// start runs a loop in the background. It returns false, without having started it, when the store is closed.
func (s *Store) start(run func()) bool {
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.isClosed() {
		return false
	}
	s.background.Go(run)
	return true
}

// connect returns the client, making it on first use.
func (s *Store) connect(ctx context.Context) (*clientv3.Client, error) {
	if client := s.client.Load(); client != nil {
		return client, nil
	}
	select {
	case s.connecting <- struct{}{}:
		defer func() { <-s.connecting }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if client := s.client.Load(); client != nil {
		return client, nil
	}
	if s.isClosed() {
		return nil, ErrClosed
	}
	client, err := s.newClient(ctx)
	if err != nil {
		return nil, err
	}
	s.client.Store(client)
	if s.isClosed() { // Close may have looked for a client just before.
		s.closeClient()
		return nil, ErrClosed
	}
	return client, nil
}

func (s *Store) closeClient() {
	if client := s.client.Swap(nil); client != nil {
		_ = client.Close() // It can only tell that its context has ended, which is so.
	}
}

// newClient makes a client that outlives ctx, though ctx can stop it from being made.
func (s *Store) newClient(ctx context.Context) (*clientv3.Client, error) {
	life, end := context.WithCancel(s.ctx)
	detach := context.AfterFunc(ctx, end)
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   s.config.Endpoints,
		Username:    s.config.Username,
		Password:    s.config.Password,
		TLS:         s.config.TLS,
		DialTimeout: s.config.DialTimeout,
		// A member that stopped without closing its connections is found out by these. etcd refuses less than five seconds.
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		Context:              life,
		Logger:               zap.NewNop(), // Every error reaches a caller, who reports it in our words.
		MaxUnaryRetries:      2,            // One more for a new login; all else is retried by our own requests.
		DialOptions:          append([]grpc.DialOption{s.reconnectSoon(), failFast()}, s.config.dialOptions...),
	})
	if err != nil {
		end()
		return nil, err
	}
	if !detach() {
		_ = client.Close()
		return nil, ctx.Err()
	}
	return client, nil
}

// reconnectSoon keeps a connection that was refused for an hour from waiting minutes for its next attempt.
func (s *Store) reconnectSoon() grpc.DialOption {
	return grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: s.config.DialTimeout,
	})
}

// failFast lets a request that finds no connection say why, where etcd's client would wait and report only that time is over.
func failFast() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return invoke(ctx, method, req, reply, conn, append(opts, grpc.WaitForReady(false))...)
	})
}

// sleep waits for d and returns true, or false when the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
