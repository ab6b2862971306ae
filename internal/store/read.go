package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cleavedb/cleave/internal/topology"
)

const (
	// piecesPerRead keeps an answer at a few megabytes when pieces are as large as they get.
	piecesPerRead = 32
	// readAfreshLimit is how often in a row a read may be overtaken by compaction before it is given up.
	readAfreshLimit = 5
)

// Map reads the current map, or fails with [ErrNoMap]. Pieces of it that this store has seen before are not read again.
func (s *Store) Map(ctx context.Context) (*topology.Map, error) {
	current, err := s.readMap(ctx)
	return current.shardMap, err
}

// stored is a map together with the head that named it and the revision as of which both were read.
type stored struct {
	shardMap *topology.Map
	head     head
	revision int64
}

// readMap reads head and pieces as they were at one revision, which a swap in between cannot disturb.
func (s *Store) readMap(ctx context.Context) (stored, error) {
	for range readAfreshLimit {
		h, revision, err := s.readHead(ctx)
		if err != nil {
			return stored{}, err
		}
		if !h.exists() {
			return stored{revision: revision}, ErrNoMap
		}
		m, err := s.assemble(ctx, h, revision)
		if errors.Is(err, rpctypes.ErrCompacted) {
			continue
		}
		return stored{m, h, revision}, err
	}
	return stored{}, errors.New("read map: history was compacted during every read")
}

// assemble makes the map that the head names, with the pieces as they were at the revision.
func (s *Store) assemble(ctx context.Context, h head, revision int64) (*topology.Map, error) {
	m, err := withHelpOf(s.latest.Load(), func(previous *topology.Map) (*topology.Map, error) {
		return s.build(ctx, h, revision, previous)
	})
	if err != nil {
		return nil, fmt.Errorf("read map version %d: %w", h.manifest.Version(), err)
	}
	s.latest.Store(m)
	return m, nil
}

// withHelpOf builds a map with the pieces of a previous one at hand, which may be nil. Where they are of no help, because the
// map cannot be built with them or is of another cluster, it is built from what is stored alone: a process must not depend on
// what it happened to see before.
func withHelpOf(previous *topology.Map, build func(previous *topology.Map) (*topology.Map, error)) (*topology.Map, error) {
	m, err := build(previous)
	var fetchErr *fetchError
	switch {
	case previous == nil || errors.As(err, &fetchErr):
		return m, err
	case err != nil || m.Cluster() != previous.Cluster():
		return build(nil)
	default:
		return m, nil
	}
}

// fetchError is pieces that could not be read, which is nothing that a map is to blame for. It stays within the package.
type fetchError struct{ cause error }

func (e *fetchError) Error() string { return e.cause.Error() }

func (e *fetchError) Unwrap() error { return e.cause }

func (s *Store) build(ctx context.Context, h head, revision int64, previous *topology.Map) (*topology.Map, error) {
	var fetchErr error // kept aside: who decides on it must find it whatever topology wraps it in
	m, err := h.manifest.Assemble(previous, func(missing []topology.PieceID) (map[topology.PieceID][]byte, error) {
		var pieces map[topology.PieceID][]byte
		pieces, fetchErr = s.fetch(ctx, missing, len(h.manifest.Pieces()), revision)
		return pieces, fetchErr
	})
	if fetchErr != nil {
		return nil, &fetchError{fetchErr}
	}
	return m, err
}

// fetch reads pieces as they were at the revision: by name, or, when most of the map is missing, in one sweep.
func (s *Store) fetch(ctx context.Context, missing []topology.PieceID, total int, revision int64) (map[topology.PieceID][]byte, error) {
	found := make(map[topology.PieceID][]byte, len(missing))
	var err error
	if len(missing) > piecesPerRead && 2*len(missing) > total {
		err = s.fetchAll(ctx, missing, revision, found)
	} else {
		err = s.fetchByName(ctx, missing, revision, found)
	}
	if err != nil {
		return nil, err
	}
	for _, id := range missing {
		if _, ok := found[id]; !ok {
			return nil, fmt.Errorf("piece %s is not stored", id)
		}
	}
	return found, nil
}

func (s *Store) fetchAll(ctx context.Context, missing []topology.PieceID, revision int64, found map[topology.PieceID][]byte) error {
	wanted := make(map[topology.PieceID]bool, len(missing))
	for _, id := range missing {
		wanted[id] = true
	}
	return s.readPages(ctx, "read map pieces", s.keys.pieces, revision, piecesPerRead, func(name string, kv keyValue) error {
		if id := topology.PieceID(name); wanted[id] {
			found[id] = kv.Value
		}
		return nil
	})
}

func (s *Store) fetchByName(ctx context.Context, missing []topology.PieceID, revision int64, found map[topology.PieceID][]byte) error {
	for some := range slices.Chunk(missing, piecesPerRead) {
		gets := make([]clientv3.Op, len(some))
		for i, id := range some {
			gets[i] = clientv3.OpGet(s.pieceKey(id), clientv3.WithRev(revision))
		}
		var response *clientv3.TxnResponse
		err := s.request(ctx, "read map pieces", func(ctx context.Context, client *clientv3.Client) (err error) {
			response, err = client.Txn(ctx).Then(gets...).Commit()
			return err
		})
		if err != nil {
			return err
		}
		for i, id := range some {
			if kvs := response.Responses[i].GetResponseRange().Kvs; len(kvs) == 1 {
				found[id] = kvs[0].Value
			}
		}
	}
	return nil
}

func (s *Store) pieceKey(id topology.PieceID) string { return s.keys.pieces + string(id) }
