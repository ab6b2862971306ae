package reshard

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/cleavedb/cleave/internal/store"
)

// lister lists moves again and again, and reads those alone that were written since: there may be thousands that wait, with all of their ranges.
type lister struct {
	mu    sync.Mutex
	jobs  *store.JobReader
	moves map[string]*Move // as they were read last, by ID
}

func newLister(s *store.Store) *lister { return &lister{jobs: s.NewJobReader()} }

// list returns all moves in the order of their IDs, and why others cannot be read. They are the caller's.
func (l *lister) list(ctx context.Context) (moves []*Move, unreadable []error, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	jobs, err := l.jobs.Jobs(ctx)
	if err != nil {
		return nil, nil, err
	}
	before := l.moves
	l.moves = make(map[string]*Move, len(jobs))
	for _, job := range jobs {
		if job.Kind != Kind {
			continue
		}
		m := before[job.ID]
		if m == nil || m.revision != job.Revision {
			if m, err = Of(job); err != nil {
				unreadable = append(unreadable, err)
				continue
			}
		}
		own := *m
		l.moves[job.ID], moves = m, append(moves, &own)
	}
	return moves, unreadable, nil
}

// List returns all moves, the newest first.
func (v *Mover) List(ctx context.Context) ([]*Move, error) {
	moves, unreadable, err := v.known.list(ctx)
	if err = errors.Join(append(unreadable, err)...); err != nil {
		return nil, err
	}
	slices.SortStableFunc(moves, func(a, b *Move) int { return b.AskedAt.Compare(a.AskedAt) })
	return moves, nil
}
