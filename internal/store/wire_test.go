package store

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// fate is what becomes of a transaction on its way to etcd.
type fate int

const (
	arrive     fate = iota
	vanish          // never arrives, and no answer comes
	loseAnswer      // arrives, no answer comes
	dieBefore       // the writer dies before it is sent
	dieAfter        // the writer dies when it has arrived
)

// wire counts a store's transactions that write, and decides on their fate. It sits below etcd's own client: all above it is
// real, and so is etcd.
type wire struct {
	decide     func(write int, txn *pb.TxnRequest) fate // nil: arrive
	beforeRead func(method string)                      // nil: nothing
	lost       error                                    // what is heard instead of an answer; nil: that the connection was lost
	deaf       atomic.Bool                              // whether nothing comes in on streams any more, though they stay

	mu      sync.Mutex
	writes  int
	ops     int // of all writes
	bytes   int
	maxOps  int // of one write
	maxSize int
	dead    bool
}

func (w *wire) use(c *Config) {
	c.dialOptions = append(c.dialOptions, grpc.WithChainUnaryInterceptor(w.intercept), grpc.WithChainStreamInterceptor(w.interceptStream))
}

func (w *wire) interceptStream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, conn, method, opts...)
	if err != nil {
		return nil, err
	}
	return &deafStream{stream, &w.deaf}, nil
}

// deafStream loses what comes in while it is deaf.
type deafStream struct {
	grpc.ClientStream
	deaf *atomic.Bool
}

func (s *deafStream) RecvMsg(message any) error {
	for {
		if err := s.ClientStream.RecvMsg(message); err != nil || !s.deaf.Load() {
			return err
		}
	}
}

// reset forgets what was counted.
func (w *wire) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes, w.ops, w.bytes, w.maxOps, w.maxSize = 0, 0, 0, 0, 0
}

func isWrite(txn *pb.TxnRequest) bool {
	for _, op := range txn.Success {
		if op.GetRequestRange() == nil {
			return true
		}
	}
	return false
}

func (w *wire) count(txn *pb.TxnRequest) (write int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	write = w.writes
	size := proto.Size(txn)
	w.writes++
	w.ops += len(txn.Success)
	w.bytes += size
	w.maxOps, w.maxSize = max(w.maxOps, len(txn.Success)), max(w.maxSize, size)
	return write
}

func (w *wire) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	txn, ok := req.(*pb.TxnRequest)
	if !ok || !isWrite(txn) {
		if w.beforeRead != nil {
			w.beforeRead(method)
		}
		return invoke(ctx, method, req, reply, conn, opts...)
	}
	write, verdict := w.count(txn), arrive
	if w.decide != nil {
		verdict = w.decide(write, txn)
	}
	return w.carryOut(w.orDeath(verdict), func() error { return invoke(ctx, method, req, reply, conn, opts...) })
}

// orDeath refuses all that a dead writer would send.
func (w *wire) orDeath(verdict fate) fate {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return dieBefore
	}
	w.dead = verdict == dieBefore || verdict == dieAfter
	return verdict
}

func (w *wire) carryOut(verdict fate, send func() error) error {
	died := rpctypes.ErrGRPCPermissionDenied // ends the writer's work at once: it must not send again
	lost := w.lost
	if lost == nil {
		lost = status.Error(codes.Unavailable, "connection lost")
	}
	switch verdict {
	case vanish:
		return lost
	case loseAnswer:
		_ = send()
		return lost
	case dieBefore:
		return died
	case dieAfter:
		_ = send()
		return died
	default:
		return send()
	}
}

// onWrite makes one write, counted from 0, meet its fate, and lets all others pass.
func onWrite(n int, verdict fate) func(int, *pb.TxnRequest) fate {
	return func(write int, _ *pb.TxnRequest) fate {
		if write == n {
			return verdict
		}
		return arrive
	}
}

// writesHead tells whether the transaction writes the map's head.
func writesHead(s *Store, txn *pb.TxnRequest) bool {
	for _, op := range txn.Success {
		if put := op.GetRequestPut(); put != nil && string(put.Key) == s.keys.head {
			return true
		}
	}
	return false
}

// storedPieces lists the names of all pieces in etcd.
func storedPieces(t testing.TB, s *Store) map[string]bool {
	t.Helper()
	return keysUnderPrefix(t, s, s.keys.pieces)
}

// keysUnderPrefix lists what there is in etcd, without the prefix.
func keysUnderPrefix(t testing.TB, s *Store, prefix string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := s.readPages(testContext(t), "list", prefix, 0, 1000, func(name string, _ keyValue) error {
		names[name] = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
