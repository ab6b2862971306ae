package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cleavedb/cleave/internal/topology"
)

// limits are how much one transaction may carry.
type limits struct{ ops, bytes int }

// etcdLimits stay below what etcd takes unless told otherwise: 128 operations, and requests of 1.5 MiB.
var etcdLimits = limits{ops: 100, bytes: 1 << 20}

const (
	// updateLimit is how often Update starts over before it reports that it cannot get through.
	updateLimit = 100
	// touchLimit is how often a writer starts over because clean-up, not another map, was faster.
	touchLimit = 20
)

// Create stores the first map. If there is one already it fails with [ErrExists].
func (s *Store) Create(ctx context.Context, m *topology.Map) error {
	if err := s.replace(ctx, nil, m); err != nil {
		return fmt.Errorf("create map: %w", err)
	}
	return nil
}

// Swap replaces base with next. Base is the map that was read before, and must be the current one in version and content; nil:
// there must be none. Otherwise the race is lost, which is a [ConflictError]. Next must be of the same cluster, and its
// version higher.
func (s *Store) Swap(ctx context.Context, base, next *topology.Map) error {
	if err := s.replace(ctx, base, next); err != nil {
		return fmt.Errorf("swap map: %w", err)
	}
	return nil
}

// replace publishes next over base, and starts over when clean-up has touched the head in between.
func (s *Store) replace(ctx context.Context, base, next *topology.Map) error {
	if err := checkSuccessor(base, next); err != nil {
		return err
	}
	current, _, err := s.readHead(ctx)
	if err != nil {
		return err
	}
	for range touchLimit {
		if err := checkBase(current, base); err != nil {
			return err
		}
		err := s.publish(ctx, current, next)
		var moved *movedError
		if !errors.As(err, &moved) {
			return err
		}
		current = moved.current
	}
	return fmt.Errorf("gave up after %d tries: %w", touchLimit, ErrConflict)
}

// checkSuccessor refuses a map that no follower would accept after base.
func checkSuccessor(base, next *topology.Map) error {
	switch {
	case base == nil:
		return nil
	case next.Cluster() != base.Cluster() && !base.Empty(): // a map with nothing in it may have been made by mistake
		return &OtherClusterError{Held: base.Cluster(), Offered: next.Cluster()}
	case next.Version() <= base.Version():
		return &StaleError{Current: base.Version(), Offered: next.Version()}
	default:
		return nil
	}
}

// checkBase makes sure that base is what the head names.
func checkBase(current head, base *topology.Map) error {
	switch {
	case base == nil && !current.exists():
		return nil
	case base == nil:
		return &ConflictError{Current: current.manifest.Version()}
	case !current.exists():
		return ErrNoMap
	case current.manifest.Version() != base.Version() || !current.names(base):
		return &ConflictError{Base: base.Version(), Current: current.manifest.Version()}
	default:
		return nil
	}
}

// Update reads the map, lets change make the next one of it, and swaps. It starts over when others were faster, so change
// must be free of side effects; when it returns an error, or the map it was given, nothing is written. It returns the map that
// is now current as far as this writer knows.
func (s *Store) Update(ctx context.Context, change func(*topology.Map) (*topology.Map, error)) (*topology.Map, error) {
	return s.update(ctx, func(context.Context) ([]clientv3.Cmp, error) { return nil, nil }, change)
}

// UpdateHolding is [Store.Update] under a hold: the map is written only if the hold is there at that very moment, otherwise it
// fails with a [NotHeldError].
func (s *Store) UpdateHolding(ctx context.Context, holdID string, change func(*topology.Map) (*topology.Map, error)) (*topology.Map, error) {
	return s.update(ctx, func(ctx context.Context) ([]clientv3.Cmp, error) {
		current, err := s.readSchema(ctx)
		if err != nil {
			return nil, err
		}
		if _, held := current.state.Hold(holdID); !held {
			return nil, &NotHeldError{ID: holdID}
		}
		return []clientv3.Cmp{s.schemaIs(current)}, nil
	}, change)
}

// UpdateMap is [Store.Update] by the leader: the map is written only if the leadership holds at that very moment, otherwise it fails with [ErrNotLeader].
func (l *Leadership) UpdateMap(ctx context.Context, change func(*topology.Map) (*topology.Map, error)) (*topology.Map, error) {
	return l.store.update(ctx, func(ctx context.Context) ([]clientv3.Cmp, error) {
		var response *clientv3.GetResponse
		err := l.store.request(ctx, "look who leads", func(ctx context.Context, client *clientv3.Client) (err error) {
			response, err = client.Get(ctx, l.key)
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(response.Kvs) == 0 || response.Kvs[0].CreateRevision != l.token {
			l.end()
			return nil, ErrNotLeader
		}
		return []clientv3.Cmp{l.stillLeads()}, nil
	}, change)
}

// update is Update, where all that must returns has to hold when the map is written.
func (s *Store) update(ctx context.Context, must func(context.Context) ([]clientv3.Cmp, error), change func(*topology.Map) (*topology.Map, error)) (*topology.Map, error) {
	pause := time.Millisecond
	for range updateLimit {
		next, err := s.updateOnce(ctx, must, change)
		var moved *movedError
		if !errors.As(err, &moved) {
			return next, err
		}
		if !sleep(ctx, jitter(pause)) {
			return nil, cancelledError(ctx, "update map", false)
		}
		pause = min(2*pause, 50*time.Millisecond)
	}
	return nil, fmt.Errorf("update map: gave up after %d tries: %w", updateLimit, ErrConflict)
}

func (s *Store) updateOnce(ctx context.Context, must func(context.Context) ([]clientv3.Cmp, error), change func(*topology.Map) (*topology.Map, error)) (*topology.Map, error) {
	// Both are looked at together: statements may be held meanwhile, and whether they hold is asked once more by the write.
	var conditions []clientv3.Cmp
	var missing error
	var looking sync.WaitGroup
	looking.Go(func() { conditions, missing = must(ctx) })
	current, err := s.readMap(ctx)
	looking.Wait()
	if missing != nil {
		err = missing
	}
	if err != nil {
		return nil, fmt.Errorf("update map: %w", err)
	}
	next, err := change(current.shardMap)
	if err != nil || next == current.shardMap {
		return next, err
	}
	if next == nil {
		return nil, errors.New("update map: the change made no map")
	}
	if err := checkSuccessor(current.shardMap, next); err != nil {
		return nil, fmt.Errorf("update map: %w", err)
	}
	if err := s.publish(ctx, current.head, next, conditions...); err != nil {
		return nil, fmt.Errorf("update map: %w", err)
	}
	return next, nil
}

// publish writes the pieces that are not yet stored and makes the map current, or fails with a [movedError]. All of it is one
// transaction where it fits; otherwise pieces go ahead in batches, unseen until a head names them, and superseded ones
// are swept afterwards. DESIGN.md says why no crash in between does harm.
func (s *Store) publish(ctx context.Context, from head, next *topology.Map, must ...clientv3.Cmp) error {
	manifest := next.Manifest()
	writes, kept := s.newPieces(from, next)
	superseded := supersededPieces(from, kept)

	ahead, along := s.config.limits.batches(writes, headSize(manifest))
	for _, batch := range ahead {
		if err := s.writeAhead(ctx, from, batch); err != nil {
			return err
		}
	}
	room := s.config.limits.ops - 1 - len(along)
	now, later := superseded[:min(room, len(superseded))], superseded[min(room, len(superseded)):]
	published, err := s.writeHead(ctx, from, manifest, append(along, s.deletions(now)...), must...)
	if err != nil {
		return err
	}
	s.latest.Store(next)
	s.sweepLeniently(ctx, published, later)
	return nil
}

// newPieces returns the writes of pieces that the head does not name, and the set of all pieces of the map.
func (s *Store) newPieces(from head, next *topology.Map) (writes []pieceWrite, all map[topology.PieceID]bool) {
	stored := from.pieces()
	all = map[topology.PieceID]bool{}
	for _, piece := range next.Pieces() {
		if !stored[piece.ID] && !all[piece.ID] {
			writes = append(writes, pieceWrite{s.pieceKey(piece.ID), piece})
		}
		all[piece.ID] = true
	}
	return writes, all
}

func supersededPieces(from head, kept map[topology.PieceID]bool) []topology.PieceID {
	var superseded []topology.PieceID
	for id := range from.pieces() {
		if !kept[id] {
			superseded = append(superseded, id)
		}
	}
	return superseded
}

// pieceWrite is a piece under the key it goes to.
type pieceWrite struct {
	key   string
	piece topology.Piece
}

func headSize(manifest []byte) int { return 2 + keptAttempts*len(attempt{}) + len(manifest) }

// batches splits writes into transactions that etcd takes. The last batch, often the only one, has room for a head of the
// given size and goes along with it; the others go ahead of it.
func (l limits) batches(writes []pieceWrite, headSize int) (ahead [][]clientv3.Op, along []clientv3.Op) {
	var batch []clientv3.Op
	size := headSize // Counted in every batch: any may turn out to be the last.
	for _, write := range writes {
		value := write.piece.Encode()
		if len(batch) > 0 && (len(batch)+2 > l.ops || size+len(value) > l.bytes) {
			ahead, batch, size = append(ahead, batch), nil, headSize
		}
		batch = append(batch, clientv3.OpPut(write.key, string(value)))
		size += len(write.key) + len(value)
	}
	return ahead, batch
}

// writeAhead stores pieces that no head names yet. The condition spares the work, and the garbage, of a race that is lost. A
// lost answer does not matter: whether or not pieces were written, the map is what it was.
func (s *Store) writeAhead(ctx context.Context, from head, puts []clientv3.Op) error {
	var response *clientv3.TxnResponse
	err := s.request(ctx, "write map pieces", func(ctx context.Context, client *clientv3.Client) (err error) {
		response, err = client.Txn(ctx).If(s.headIs(from)).Then(puts...).Else(clientv3.OpGet(s.keys.head)).Commit()
		return err
	})
	if err != nil {
		return err
	}
	if response.Succeeded {
		return nil
	}
	current, err := headOf(response)
	if err != nil {
		return err
	}
	return &movedError{current}
}

func (s *Store) deletions(ids []topology.PieceID) []clientv3.Op {
	ops := make([]clientv3.Op, len(ids))
	for i, id := range ids {
		ops[i] = clientv3.OpDelete(s.pieceKey(id))
	}
	return ops
}
