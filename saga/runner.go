package saga

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Config says what a [Runner] works with.
type Config struct {
	// Pool connects to a router, or to a plain PostgreSQL. Required, with at least two connections. SQL steps use all of them but two (one, if there
	// are two), so that leases can always be renewed. Others may use it too.
	Pool *pgxpool.Pool
	// Types are the sagas that it runs. Required. All others it leaves alone.
	Types []Type
	// Name is shown as the holder of a saga. Default: the host's name and the process's number.
	Name string
	// Concurrency is how many sagas it runs side by side. Default: 16.
	Concurrency int
	// Batch is how many due sagas it looks for at a time. Default: 100.
	Batch int
	// PollInterval is how long from one look for due sagas to the next, if nothing wakes it. Default: 1 second.
	PollInterval time.Duration
	// Lease is how long a saga that it has taken stays its own without being renewed, which is how long others wait when it dies. Runners may
	// have different ones. Default: 30 seconds; at least 100 milliseconds.
	Lease time.Duration
	// StopTimeout is how long steps that are under way may go on when it is to stop, before their contexts are cancelled. Default: 10 seconds.
	StopTimeout time.Duration
	// Logger hears of attempts that failed, and of sagas that are stuck. Default: slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		host, _ := os.Hostname()
		c.Name = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if c.Concurrency == 0 {
		c.Concurrency = 16
	}
	if c.Batch == 0 {
		c.Batch = 100
	}
	if c.PollInterval == 0 {
		c.PollInterval = time.Second
	}
	if c.Lease == 0 {
		c.Lease = 30 * time.Second
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = 10 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func (c Config) check() error {
	const leastLease, leastConnections = 100 * time.Millisecond, 2
	switch {
	case c.Pool == nil:
		return errors.New("a runner needs a pool of connections")
	case c.Pool.Config().MaxConns < leastConnections:
		return fmt.Errorf("a runner needs a pool of at least %d connections: one for a step, one to renew its lease", leastConnections)
	case len(c.Types) == 0:
		return errors.New("a runner needs types of sagas to run")
	case c.Concurrency < 0 || c.Batch < 0 || c.PollInterval < 0 || c.StopTimeout < 0:
		return errors.New("a number or time in the runner's configuration is negative")
	case c.Lease < leastLease:
		return fmt.Errorf("a lease of %v is too short: it must be %v at least", c.Lease, leastLease)
	}
	return nil
}

// Runner runs sagas.
type Runner struct {
	config Config
	types  map[string]*Type
	known  []string
	// places holds a token for each saga that is being run, transactions one for each SQL step.
	places, transactions chan struct{}
	wake                 chan struct{} // holds one token when there may be something to do
	// shardTurn says which shard is asked next, and plain that there are none; of the loop alone.
	shardTurn int
	plain     bool

	// grace is how long functions may take to heed that their contexts have ended, and what they leave to be written down.
	grace time.Duration
	// at is told of every point at which a process may die. Tests set it.
	at func(point, step string, d Direction)

	started atomic.Bool

	mu    sync.Mutex
	under map[*held]string // steps that are being run
}

// NewRunner returns a runner, which does nothing until [Runner.Run] is called.
func NewRunner(c Config) (*Runner, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	r := &Runner{
		config: c, types: map[string]*Type{}, places: make(chan struct{}, c.Concurrency),
		transactions: make(chan struct{}, max(1, int(c.Pool.Config().MaxConns)-2)), wake: make(chan struct{}, 1),
		grace: 2 * statementTimeout, at: func(string, string, Direction) {}, under: map[*held]string{},
	}
	for _, t := range c.Types {
		filled, err := t.filled()
		if err != nil {
			return nil, err
		}
		if r.types[t.Name] != nil {
			return nil, fmt.Errorf("two types of sagas are named %q", t.Name)
		}
		r.types[t.Name] = &filled
	}
	r.known = known(r.types)
	return r, nil
}

// Wake has the runner look for due sagas now, without waiting for the poll interval: call it when a transaction that has started one is committed.
func (r *Runner) Wake() {
	select {
	case r.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// ErrDoesNotReturn says that the functions of some steps went on after their contexts had ended and the runner was to stop.
var ErrDoesNotReturn = errors.New("functions of steps do not return though their contexts have ended")

// Run runs sagas until the context ends. Steps that are under way then may go on for StopTimeout; after that their contexts are cancelled. What is not
// finished is given up, for other runners to go on with at once. It returns nil then, or [ErrDoesNotReturn]. Trouble with the database is logged and waited out;
// only tables that are not there, or not as expected, are an error.
//
// Run may be called once.
func (r *Runner) Run(ctx context.Context) error {
	if r.started.Swap(true) {
		return errors.New("a runner runs once: make another one")
	}
	if err := r.checkTables(ctx); err != nil {
		return err
	}
	work, cancelWork := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancelWork(nil)
	var running sync.WaitGroup
	r.loop(ctx, func(c candidate) {
		running.Go(func() {
			defer func() { <-r.places }()
			r.drive(ctx, work, c)
		})
	})
	return r.finish(&running, cancelWork)
}

// finish waits for what is under way.
func (r *Runner) finish(running *sync.WaitGroup, cancel context.CancelCauseFunc) error {
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(r.config.StopTimeout):
	}
	cancel(errStopped)
	select {
	case <-done:
		return nil
	case <-time.After(r.grace):
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Errorf("%w: %s", ErrDoesNotReturn, strings.Join(slices.Sorted(maps.Values(r.under)), ", "))
}

// statementTimeout is how long one statement of the runner's own may take.
const statementTimeout = 5 * time.Second

// checkTables refuses to run where a look for due sagas can never succeed.
func (r *Runner) checkTables(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	_, err := dueAnywhere(ctx, r.config.Pool, r.known, 0)
	if code := sqlState(err); code == undefinedTable || code == undefinedColumn || code == invalidSchemaName {
		return fmt.Errorf("look for sagas: %w", explain(err))
	}
	return nil // whatever else it is may pass
}

// loop looks for due sagas, and has each run as soon as there is a place.
func (r *Runner) loop(ctx context.Context, run func(candidate)) {
	for ctx.Err() == nil {
		found, more, err := r.find(ctx)
		if err != nil && ctx.Err() == nil {
			r.config.Logger.Warn("looking for due sagas failed", "error", err)
		}
		for _, c := range found {
			select {
			case r.places <- struct{}{}:
				run(c)
			case <-ctx.Done():
				return
			}
		}
		r.pause(ctx, more)
	}
}

// pause waits for the next look: not for long if there is more than was found.
func (r *Runner) pause(ctx context.Context, more bool) {
	interval := r.config.PollInterval
	if more {
		interval /= 20
	}
	timer := time.NewTimer(interval - rand.N(interval/4+1)) //nolint:gosec // so that runners do not look all at once
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-r.wake:
	case <-timer.C:
	}
}

// find looks for due sagas, and returns them in any order, so that runners which found the same ones do not go for the same one first. If there are more than
// it looks for, those of one shard may have hidden the others', so one shard is asked by itself, another each time. If a shard is away, nothing was
// found at all, and each is asked by itself.
func (r *Runner) find(ctx context.Context) (found []candidate, more bool, err error) {
	looking, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	found, err = dueAnywhere(looking, r.config.Pool, r.known, r.config.Batch)
	switch {
	case err != nil:
		found, err = r.findOneByOne(ctx, err)
	case len(found) == r.config.Batch:
		more = true
		var others []candidate
		others, err = r.findNext(looking)
		found = append(found, others...)
	}
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	return found, more, err
}

// shards lists the shards. A plain PostgreSQL, which has none, is asked once.
func (r *Runner) shards(ctx context.Context) ([]string, error) {
	if r.plain {
		return nil, nil
	}
	shards, err := shardNames(ctx, r.config.Pool)
	r.plain = err == nil && len(shards) == 0
	return shards, err
}

// findNext asks the shard whose turn it is. Where there is only one server, that was asked.
func (r *Runner) findNext(ctx context.Context) ([]candidate, error) {
	shards, err := r.shards(ctx)
	if err != nil || len(shards) < 2 {
		return nil, err
	}
	r.shardTurn++
	return dueOn(ctx, r.config.Pool, shards[r.shardTurn%len(shards)], r.known, r.config.Batch)
}

// findOneByOne asks the shards that answer. If there is one server, the failure stands.
func (r *Runner) findOneByOne(ctx context.Context, failure error) (found []candidate, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	shards, err := r.shards(ctx)
	if err != nil || len(shards) < 2 {
		return nil, failure
	}
	var failures []error
	for _, shard := range shards {
		some, err := dueOn(ctx, r.config.Pool, shard, r.known, r.config.Batch/len(shards)+1)
		found, failures = append(found, some...), append(failures, err)
	}
	return found, errors.Join(failures...)
}

// soon looks again when the time has passed, if that is before it would be anyway.
func (r *Runner) soon(delay time.Duration) {
	if delay < r.config.PollInterval {
		time.AfterFunc(delay, r.Wake)
	}
}

// enter and leave note what is being run, to be told of if it does not end.
func (r *Runner) enter(h *held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.under[h] = h.kind.Name + "/" + h.step + " of " + h.id
}

func (r *Runner) leave(h *held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.under, h)
}
