package reshard

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/internal/observe"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
)

// Config says what a [Mover] works with.
type Config struct {
	// Store is where the map and the jobs are. Required.
	Store *store.Store
	// Access says how to log in to shards, where the map does not.
	Access shard.Access
	// Router is the record of the router that this process is, which holds tables that move as a whole; empty: it is none.
	Router string
	// Rename rewrites queries of views so that they read other relations. Required.
	Rename shard.Renaming
	// Metrics count what moves do. Default: nobody reads them.
	Metrics *observe.Moves
	// Logger hears what becomes of moves. Default: slog's.
	Logger *slog.Logger
}

// Mover carries out moves. Make it with [New].
type Mover struct {
	config Config
	// known are the moves that were read before.
	known *lister
	// poked has a token when there may be something new to do.
	poked chan struct{}
	// busy are shards that are about to exchange rows, by name: what they record is the switch's business.
	mu   sync.Mutex
	busy map[string]bool
	// quickest is the least time that a small statement took on a shard, by name.
	quickest map[string]time.Duration
}

// IsSwitching says whether a shard takes part in a switch that is under way here. Who has it record something makes others wait.
func (v *Mover) IsSwitching(name string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.busy[name]
}

// switches notes that shards take part in a switch, until the function that it returns is called. One of them may be busy with another: two would wait for each other's records.
func (v *Mover) switches(names ...string) (end func(), free bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, name := range names {
		if v.busy[name] {
			return nil, false
		}
	}
	for _, name := range names {
		v.busy[name] = true
	}
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		for _, name := range names {
			delete(v.busy, name)
		}
	}, true
}

// New returns a mover. Nothing happens until [Mover.Run].
func New(config Config) *Mover {
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.Metrics == nil {
		config.Metrics = observe.NewMoves()
	}
	return &Mover{config: config, known: newLister(config.Store), poked: make(chan struct{}, 1), busy: map[string]bool{}, quickest: map[string]time.Duration{}}
}

// Poke has the mover look at once whether there is something new to do, if it is this process's.
func (v *Mover) Poke() {
	select {
	case v.poked <- struct{}{}:
	default:
	}
}

// lookEvery is how often the leader looks for moves and wishes.
const lookEvery = 500 * time.Millisecond

// NewID draws the name of a move: short enough to be typed, and of what names of slots may have.
func NewID() string { return strings.ToLower(rand.Text()[:8]) }

// Run carries out moves until the leadership or the context ends.
func (v *Mover) Run(ctx context.Context, leadership *store.Leadership) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup
	defer work.Wait()
	running := &running{moves: map[string]*run{}}
	v.config.Metrics.Watch(running.states)
	defer v.config.Metrics.Watch(nil)
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for {
		if err := v.look(ctx, leadership, running, &work); err != nil && ctx.Err() == nil {
			v.config.Logger.Debug("moves could not be looked for", "error", err)
		}
		select {
		case <-again.C:
		case <-v.poked:
		case <-leadership.Done():
			cancel()
			return
		case <-ctx.Done():
			return
		}
	}
}

// running are the moves that are being carried out.
type running struct {
	mu    sync.Mutex
	moves map[string]*run
}

// states are the moves as metrics have them.
func (r *running) states() (states []observe.MoveState) {
	r.mu.Lock()
	runs := slices.Collect(maps.Values(r.moves))
	r.mu.Unlock()
	for _, one := range runs {
		m := one.state()
		states = append(states, observe.MoveState{ID: m.ID, From: m.Source, To: m.Target, Phase: string(m.Phase), Paused: m.Paused, Stopped: m.Stopped != "", LagBytes: m.LagBytes, Copied: m.Share(), Left: m.Left()})
	}
	return states
}

// look begins what is new and passes wishes on.
func (v *Mover) look(ctx context.Context, leadership *store.Leadership, now *running, work *sync.WaitGroup) error {
	all, unreadable, err := v.known.list(ctx)
	if err != nil {
		return err
	}
	for _, err := range unreadable {
		v.config.Logger.Error("a move cannot be read", "error", err)
	}
	wishes, adjustments, err := v.config.Store.Wishes(ctx)
	if err != nil {
		return err
	}
	v.forget(ctx, leadership, all)
	moves := open(all)
	for _, m := range moves {
		now.mu.Lock()
		current := now.moves[m.ID]
		busy := current == nil && now.waits(m, moves)
		still := false
		if current == nil && !busy {
			if still, err = v.isStill(ctx, m); err != nil {
				now.mu.Unlock()
				return err
			}
		}
		if still {
			current = newRun(v, leadership, m)
			now.moves[m.ID] = current
			work.Go(func() {
				current.carryOut(ctx)
				now.mu.Lock()
				delete(now.moves, m.ID)
				now.mu.Unlock()
			})
		}
		now.mu.Unlock()
		switch {
		case current != nil:
			current.hear(wishes[m.ID])
			v.passAdjustment(ctx, current, adjustments[m.ID])
		case busy:
			v.queue(ctx, leadership, m, wishes[m.ID])
		}
	}
	return nil
}

// waits says whether a move has to wait for another one of its keyspace: one that is carried out, or one that is under way though nobody carries it out at this moment. The caller has the lock.
func (r *running) waits(m *Move, moves []*Move) bool {
	return slices.ContainsFunc(moves, func(other *Move) bool {
		return other.ID != m.ID && other.Keyspace == m.Keyspace && (r.moves[other.ID] != nil || m.Phase == Asked && other.Phase != Asked)
	})
}

// isStill says whether a move is stored as it was read: the run that carried it out may have ended meanwhile, and what it has done must not be done again. The caller sees to it that none begins or ends.
func (v *Mover) isStill(ctx context.Context, m *Move) (bool, error) {
	job, err := v.config.Store.Job(ctx, m.ID)
	if errors.Is(err, store.ErrNoJob) {
		return false, nil
	}
	return err == nil && job.Revision == m.revision, err
}

// keptMoves is how many moves are remembered after they have ended.
const keptMoves = 100

// forget deletes the oldest of too many moves that have ended.
func (v *Mover) forget(ctx context.Context, leadership *store.Leadership, moves []*Move) {
	var ended []*Move
	for _, m := range moves {
		if m.Phase.HasEnded() {
			ended = append(ended, m)
		}
	}
	slices.SortFunc(ended, func(a, b *Move) int { return cmp.Compare(b.revision, a.revision) })
	for _, m := range ended[min(len(ended), keptMoves):] {
		if err := leadership.DeleteJob(ctx, store.Job{ID: m.ID, Revision: m.revision}); err != nil {
			return // or at the next look
		}
	}
}

// open are the moves that have not ended, those first that are under way, then in the order in which they were asked for.
func open(all []*Move) []*Move {
	moves := slices.DeleteFunc(slices.Clone(all), func(m *Move) bool { return m.Phase.HasEnded() })
	slices.SortStableFunc(moves, func(a, b *Move) int {
		if (a.Phase == Asked) != (b.Phase == Asked) {
			if a.Phase == Asked {
				return 1
			}
			return -1
		}
		return a.AskedAt.Compare(b.AskedAt)
	})
	return moves
}

// queue lets a move wait for another of its keyspace; one that is not wanted any more ends.
func (v *Mover) queue(ctx context.Context, leadership *store.Leadership, m *Move, wish store.Wish) {
	waiting := "another move of keyspace " + m.Keyspace + " comes first"
	if m.IsWhole() {
		waiting = "another move of whole tables comes first"
	}
	cancelled := Wish(wish.Text) == Cancel && m.Phase == Asked
	if cancelled {
		m.Phase, m.Since, m.Ended, waiting = Cancelled, time.Now().UTC(), time.Now().UTC(), ""
	} else if m.Waiting == waiting {
		return
	}
	m.Waiting = waiting
	job, err := m.job()
	if err == nil {
		_, err = leadership.UpdateJob(ctx, job) // or at the next look
	}
	if err == nil && cancelled {
		_ = v.config.Store.ForgetWish(ctx, m.ID, wish.Revision) // nobody hears it any more
	}
}

// Ask stores a move for the leader to carry out.
func Ask(ctx context.Context, s *store.Store, m *Move) error {
	job, err := NewJob(m)
	if err != nil {
		return err
	}
	stored, err := s.AskJob(ctx, job)
	m.revision = stored.Revision
	return err
}

// NewJob is the job that a move begins as, with an ID if it has none yet.
func NewJob(m *Move) (store.Job, error) {
	if m.ID == "" {
		m.ID = NewID()
	}
	now := time.Now().UTC()
	m.Phase, m.Since = Asked, now
	if m.AskedAt.IsZero() {
		m.AskedAt = now
	}
	return m.job()
}

// Find reads a move, or fails with [store.ErrNoJob].
func Find(ctx context.Context, s *store.Store, id string) (*Move, error) {
	job, err := s.Job(ctx, id)
	if err != nil {
		return nil, err
	}
	if job.Kind != Kind {
		return nil, fmt.Errorf("%q: %w", id, store.ErrNoJob)
	}
	return Of(job)
}

// errWished ends what is under way because somebody wants something else.
var errWished = errors.New("somebody wants something else")

// stopped is an error that does not get better by itself.
type stopped struct{ reason string }

func (e *stopped) Error() string { return e.reason }

func stop(format string, arguments ...any) error { return &stopped{fmt.Sprintf(format, arguments...)} }
