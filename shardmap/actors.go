package shardmap

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

const (
	defaultMailbox = 128
	maxMailbox     = 1 << 20
)

// What became of a function given to [Actors.Do]. Except for ErrStarted and
// ErrExited, each means that the function has not run and never will.
var (
	// ErrClosed means that the actors were closed.
	ErrClosed = errors.New("shardmap: the actors are closed")
	// ErrMailboxFull means that [Actors.TryDo] found no room.
	ErrMailboxFull = errors.New("shardmap: the mailbox is full")
	// ErrNotRun means that the context ended while the function was waiting. The
	// error also wraps the cause.
	ErrNotRun = errors.New("shardmap: the function was not run")
	// ErrStarted means that the context ended while the function was running. It
	// goes on to its end; what it does may or may not be done yet. The error
	// also wraps why.
	ErrStarted = errors.New("shardmap: the function had begun and is still running")
	// ErrExited means that the function ended its goroutine with
	// [runtime.Goexit] instead of returning. The shard has got a new one.
	ErrExited = errors.New("shardmap: the function called runtime.Goexit")
)

// PanicError is returned when the function given to [Actors.Do] panicked. The
// shard goes on with the next function; what this one had done to the state
// before stays done.
type PanicError struct {
	// Value is what the function panicked with.
	Value any
	// Stack is where.
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("shardmap: the function panicked: %v", e.Value)
}

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ActorsConfig says how [Actors] are laid out. The zero value is ready to use.
type ActorsConfig[K comparable] struct {
	// Shards is how many shards there are, each with a goroutine of its own,
	// rounded up to a power of two. At most 65536. Default: 4 × GOMAXPROCS.
	Shards int

	// Mailbox is how many functions can wait for each shard before callers have
	// to. At most 1048576. Default: 128.
	Mailbox int

	// Hasher turns a key into 64 bits, as in [Config]. Default: nil, which uses
	// hash/maphash with a random seed.
	Hasher func(K) uint64
}

func (c ActorsConfig[K]) normalised() (ActorsConfig[K], error) {
	shards, err := normaliseShards(c.Shards)
	if err != nil {
		return c, err
	}
	if c.Mailbox < 0 || c.Mailbox > maxMailbox {
		return c, fmt.Errorf("shardmap: Mailbox is %d, want 0 to %d", c.Mailbox, maxMailbox)
	}
	if c.Mailbox == 0 {
		c.Mailbox = defaultMailbox
	}
	c.Shards = shards
	return c, nil
}

// Actors is a map each of whose shards belongs to one goroutine, which alone
// reads and writes it. It is for values whose operations do I/O: one that is
// slow holds up its own shard and no other, and callers see that it does.
//
// Make one with [NewActors] and end it with [Actors.Close]. All methods are safe
// for concurrent use, but a function that runs on a shard must not wait for any
// shard of the same Actors, by Do, TryDo, Drain or Close: it would wait for itself,
// or for one that waits for it.
type Actors[K comparable, V any] struct {
	hash   hashing[K]
	mask   uint64
	actors []*actor[K, V]
	// running counts the goroutines.
	running sync.WaitGroup
}

// NewActors returns actors that are running, or an error if the configuration
// makes no sense.
func NewActors[K comparable, V any](config ActorsConfig[K]) (*Actors[K, V], error) {
	config, err := config.normalised()
	if err != nil {
		return nil, err
	}
	a := &Actors[K, V]{
		hash:   newHashing(config.Hasher),
		mask:   uint64(config.Shards - 1),
		actors: make([]*actor[K, V], config.Shards),
	}
	for i := range a.actors {
		a.actors[i] = newActor(a, i, config.Mailbox)
		a.start(a.actors[i])
	}
	return a, nil
}

// Do runs fn on the shard of the key and waits for it. Fn has the shard to
// itself. Do first waits for room in the mailbox.
//
// The errors say whether fn ran: nil, a [PanicError] or [ErrExited] if it did,
// [ErrStarted] if it is still running, and [ErrClosed] or [ErrNotRun] if it did
// not and never will. A context that has ended already runs nothing.
func (a *Actors[K, V]) Do(ctx context.Context, key K, fn func(state *State[K, V])) error {
	if err := admissible(ctx, key); err != nil {
		return err
	}
	owner := a.owner(key)
	t := newTask(fn)
	if err := owner.enqueue(ctx, t); err != nil {
		return err
	}
	return t.wait(ctx)
}

// TryDo is [Actors.Do] except that it returns [ErrMailboxFull] where Do would
// wait for room.
func (a *Actors[K, V]) TryDo(ctx context.Context, key K, fn func(state *State[K, V])) error {
	if err := admissible(ctx, key); err != nil {
		return err
	}
	owner := a.owner(key)
	t := newTask(fn)
	if err := owner.tryEnqueue(t); err != nil {
		return err
	}
	return t.wait(ctx)
}

// admissible refuses what must not run: a context that has ended, and a key such
// as NaN, which hashes to another shard each time.
func admissible[K comparable](ctx context.Context, key K) error {
	if ctx.Err() != nil {
		return notRun(ctx)
	}
	if !equalsItself(key) {
		return &AffinityError{Reason: ErrNotEqualToItself, Want: -1, Got: -1}
	}
	return nil
}

// Shards returns the number of shards.
func (a *Actors[K, V]) Shards() int { return len(a.actors) }

// ShardOf returns the number of the shard of a key.
func (a *Actors[K, V]) ShardOf(key K) int { return int(a.hash.of(key) & a.mask) }

// Drain waits until everything that was in a mailbox when it was called has been
// run. It does not keep new work out. It returns the cause if the context ends
// before.
func (a *Actors[K, V]) Drain(ctx context.Context) error {
	var barriers []*task[K, V]
	for _, owner := range a.actors {
		barrier := newBarrier[K, V]()
		err := owner.enqueue(ctx, barrier)
		if errors.Is(err, ErrClosed) {
			// Closing runs what is queued: wait for the end of that instead.
			err = owner.waitForEnd(ctx)
		} else {
			barriers = append(barriers, barrier)
		}
		if err != nil {
			return drainError(ctx)
		}
	}
	for _, barrier := range barriers {
		if err := barrier.wait(ctx); err != nil {
			return drainError(ctx)
		}
	}
	return nil
}

func drainError(ctx context.Context) error {
	return fmt.Errorf("shardmap: waiting for the mailboxes: %w", whyEnded(ctx))
}

// Close lets no new function in, runs those that are in the mailboxes, and
// waits until all goroutines have ended. A Do that is still waiting for room
// returns [ErrClosed]. Close may be called more than once; every call waits.
func (a *Actors[K, V]) Close() {
	for _, owner := range a.actors {
		owner.stopAccepting()
	}
	for _, owner := range a.actors {
		owner.closeMailbox()
	}
	a.running.Wait()
}

// MailboxStats is what one shard of [Actors] has counted. The figures are taken
// one after another while the shard goes on.
type MailboxStats struct {
	// Depth is how many functions are waiting now, cancelled ones included until
	// their turn comes; a Drain that is under way counts as one.
	Depth int
	// Capacity is how many can wait.
	Capacity int
	// HighWater is the greatest depth that a caller has left behind.
	HighWater int
	// Done is how many functions have run to an end, exactly.
	Done uint64
	// Panicked is how many of those panicked, exactly.
	Panicked uint64
	// Cancelled is how many were taken out because their context had ended.
	Cancelled uint64
	// Blocked is how many callers are waiting for room now.
	Blocked int
	// Refused is how many never got in: because [Actors.TryDo] found no room, or
	// because their context ended while they waited for some.
	Refused uint64
}

// Stats returns the statistics of each shard, in the order of [Actors.ShardOf].
func (a *Actors[K, V]) Stats() []MailboxStats {
	stats := make([]MailboxStats, len(a.actors))
	for i, owner := range a.actors {
		stats[i] = owner.stats()
	}
	return stats
}

func (a *Actors[K, V]) owner(key K) *actor[K, V] { return a.actors[a.ShardOf(key)] }

// start gives a shard its goroutine. One that was ended by runtime.Goexit is
// replaced.
func (a *Actors[K, V]) start(owner *actor[K, V]) {
	a.running.Go(func() {
		finished := false
		defer func() {
			if !finished {
				a.start(owner)
			}
		}()
		owner.run()
		finished = true
	})
}

// State is the data of one shard, as a function on that shard sees it. It is a
// plain map without locks, for the goroutine and the duration of that function
// only. A key of another shard makes its methods panic with an [AffinityError],
// which the caller gets back in a [PanicError].
type State[K comparable, V any] struct {
	actors *Actors[K, V]
	shard  int
	data   map[K]V
}

// Shard returns the number of the shard.
func (s *State[K, V]) Shard() int { return s.shard }

// Get returns the value of a key and whether it is there.
func (s *State[K, V]) Get(key K) (V, bool) {
	s.check(key)
	value, present := s.data[key]
	return value, present
}

// Set stores a value.
func (s *State[K, V]) Set(key K, value V) {
	s.check(key)
	s.data[key] = value
}

// Delete removes a key if it is there.
func (s *State[K, V]) Delete(key K) {
	s.check(key)
	delete(s.data, key)
}

// Len returns the number of keys in the shard.
func (s *State[K, V]) Len() int { return len(s.data) }

// Range calls fn with each key and value of the shard until fn returns false.
func (s *State[K, V]) Range(fn func(key K, value V) bool) {
	for key, value := range s.data {
		if !fn(key, value) {
			return
		}
	}
}

func (s *State[K, V]) check(key K) {
	if got := s.actors.ShardOf(key); got != s.shard {
		panic(&AffinityError{Reason: ErrOtherShard, Want: s.shard, Got: got})
	}
}

func newPanicError(value any) *PanicError {
	return &PanicError{Value: value, Stack: debug.Stack()}
}
