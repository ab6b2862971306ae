package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cleavedb/cleave/internal/topology"
)

// CollectGarbage deletes pieces that the current map does not use: left over from writers that died or lost a race. It returns
// how many it deleted. Without a map it deletes nothing, because a first one may be on its way.
//
// It makes a large publish that is under way start over, so it is for now and then, not for always.
func (s *Store) CollectGarbage(ctx context.Context) (deleted int, err error) {
	for range touchLimit {
		current, revision, err := s.readHead(ctx)
		if err != nil {
			return deleted, fmt.Errorf("collect garbage: %w", err)
		}
		if !current.exists() {
			return deleted, nil
		}
		garbage, err := s.unused(ctx, current, revision)
		if err != nil {
			return deleted, fmt.Errorf("collect garbage: %w", err)
		}
		n, err := s.sweep(ctx, current, garbage)
		deleted += n
		var moved *movedError
		if !errors.As(err, &moved) {
			return deleted, err
		}
	}
	return deleted, fmt.Errorf("collect garbage: gave up after %d tries: %w", touchLimit, ErrConflict)
}

// unused lists the stored pieces that the head does not name, as of the revision.
func (s *Store) unused(ctx context.Context, current head, revision int64) ([]topology.PieceID, error) {
	const namesPerRead = 10_000
	used := current.pieces()
	var garbage []topology.PieceID
	err := s.readPages(ctx, "list map pieces", s.keys.pieces, revision, namesPerRead, func(name string, _ keyValue) error {
		if id := topology.PieceID(name); !used[id] {
			garbage = append(garbage, id)
		}
		return nil
	}, clientv3.WithKeysOnly())
	return garbage, err
}

// sweep deletes pieces that the head does not name. Every batch compares the head and writes it again as it was: that
// touch makes all writers lose that had stored pieces ahead, one of which may be among those deleted here.
func (s *Store) sweep(ctx context.Context, current head, candidates []topology.PieceID) (deleted int, err error) {
	used := current.pieces()
	garbage := slices.DeleteFunc(slices.Clone(candidates), func(id topology.PieceID) bool { return used[id] })
	for batch := range slices.Chunk(garbage, s.config.limits.ops-1) {
		touched, err := s.writeHead(ctx, current, current.data, s.deletions(batch))
		if err != nil {
			return deleted, fmt.Errorf("sweep map pieces: %w", err)
		}
		deleted += len(batch)
		if touched.manifest.Version() != current.manifest.Version() {
			return deleted, &movedError{touched}
		}
		current = touched
	}
	return deleted, nil
}

// sweepLeniently cleans up after a publish that has succeeded. What it cannot delete is left to CollectGarbage.
func (s *Store) sweepLeniently(ctx context.Context, current head, candidates []topology.PieceID) {
	if _, err := s.sweep(ctx, current, candidates); err != nil {
		s.config.Logger.Debug("superseded pieces of the shard map are left for the next clean-up", "cause", err)
	}
}
