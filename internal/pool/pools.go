package pool

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// Pools has the backends of all shards.
type Pools struct {
	config Config
	total  total
	// partings are backends that were lent when they were closed.
	partings partings
	table    atomic.Pointer[[]*shardPool] // by the shard's number; nil where there is none

	ctx    context.Context // of everything that runs
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	alarm  chan struct{} // wakes the keeper
	watch  *watcher      // nil: there is none, and backends are looked at when they are lent

	mu      sync.Mutex // over changes of the fields below, and of the table
	started bool
	closed  bool
	leaving []*shardPool // no longer in the map, with backends that are still out
	caps    map[int]int  // of SetLimit, by shard
}

// New returns pools without shards; nothing runs before the first Apply.
func New(config Config) *Pools {
	p := &Pools{config: config.withDefaults(), alarm: make(chan struct{}, 1), caps: map[int]int{}}
	p.total.limit, p.total.starving = int64(p.config.Total), map[*shardPool]hunger{}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.table.Store(&[]*shardPool{})
	return p
}

// start starts what runs for as long as the pools are open. The caller holds mu.
func (p *Pools) start() {
	if p.started {
		return
	}
	p.started = true
	p.tasks.Go(func() { p.keep(p.ctx) })
	watch, err := newWatcher()
	if err != nil {
		p.config.Logger.Warn("no watcher for closed connections; each is looked at when it is lent", "error", err)
		return
	}
	p.watch = watch
	p.tasks.Go(watch.run)
}

// Apply takes shards and addresses from the map. Backends of shards that are gone or have moved are closed: idle ones at
// once, the others when they come back. Those who wait for a shard that has moved go on waiting.
func (p *Pools) Apply(m *topology.Map) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.start()
	before := *p.table.Load()
	table := make([]*shardPool, m.LastShardNumber()+1)
	for described := range m.Shards() {
		number := described.Number()
		if number < len(before) && before[number] != nil {
			table[number] = before[number]
			table[number].redirect(described.Spec())
		} else {
			table[number] = newShardPool(p, described.Spec(), p.caps[number])
		}
	}
	p.table.Store(&table)
	p.leaving = slices.DeleteFunc(p.leaving, (*shardPool).isEmpty)
	for number, s := range before {
		if s != nil && (number >= len(table) || table[number] == nil) {
			s.leave(pgerr.New(pgerr.CannotConnect, "shard %q is no longer in the shard map", s.name()))
			p.leaving = append(p.leaving, s)
		}
	}
}

// Acquire lends a backend of the shard's primary that is logged in as the identity's role. Among idle ones it prefers one
// with the given affinity. It waits if there is none, for [Config.QueueTimeout] at most; what it returns then, and for a
// shard that cannot be reached, is a [pgerr.Error].
func (p *Pools) Acquire(ctx context.Context, shard int, id *Identity, affinity uint64) (*Backend, error) {
	s := p.shard(shard)
	if s == nil {
		return nil, p.noShard(shard)
	}
	s.mu.Lock()
	if r := s.roles[s.userOf(id)]; r != nil {
		if b := s.takeIdle(r, affinity); b != nil {
			s.mu.Unlock()
			return b, nil
		}
	}
	w, err := s.enqueue(id)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s.await(ctx, w)
}

// HasRoom says whether a shard has a backend to lend at once, or may open one: who holds one already had better not wait for another.
func (p *Pools) HasRoom(shard int) bool {
	s := p.shard(shard)
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.length == 0 && s.counts[lent]+s.counts[closing]+s.logins < s.limit()
}

func (p *Pools) shard(number int) *shardPool {
	table := *p.table.Load()
	if number < 0 || number >= len(table) {
		return nil
	}
	return table[number]
}

func (p *Pools) noShard(number int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	return pgerr.New(pgerr.CannotConnect, "there is no shard with number %d in the shard map", number)
}

// SetLimit caps the backends of a shard: the lower of this and [Config.PerShard] is in force. 0 takes the cap away.
func (p *Pools) SetLimit(shard, limit int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.caps[shard] = limit
	if s := p.shard(shard); s != nil {
		s.setCap(limit)
	}
}

// errClosed is what those hear who come when the pools are closed.
var errClosed = pgerr.New(pgerr.AdminShutdown, "the router is shutting down")

// Close closes all backends, those that are lent too, and waits until nothing runs any more.
func (p *Pools) Close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		for _, s := range p.all() {
			s.leave(errClosed)
			s.cutOff()
		}
		p.table.Store(&[]*shardPool{})
		p.leaving = nil
		p.cancel()
		if p.watch != nil {
			p.watch.close()
		}
	}
	p.mu.Unlock()
	p.tasks.Wait()
}

// all returns the shards of the map and those that are leaving. The caller holds mu.
func (p *Pools) all() []*shardPool {
	return append(p.current(), p.leaving...)
}

// current returns the shards of the map in the order of their numbers.
func (p *Pools) current() []*shardPool {
	table := *p.table.Load()
	shards := make([]*shardPool, 0, len(table))
	for _, s := range table {
		if s != nil {
			shards = append(shards, s)
		}
	}
	return shards
}

// wake lets the keeper look after everything now.
func (p *Pools) wake() {
	select {
	case p.alarm <- struct{}{}:
	default: // it has been woken already
	}
}

// keep closes backends that are old or idle for long, and dispatches when time has made it possible, until the context ends.
func (p *Pools) keep(ctx context.Context) {
	interval := p.sweepInterval()
	timer := time.NewTimer(interval)
	defer timer.Stop()
	sweepAt := time.Now().Add(interval)
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-p.alarm:
		}
		now := time.Now()
		sweeping := !now.Before(sweepAt)
		if sweeping {
			sweepAt = now.Add(interval)
		}
		timer.Reset(time.Until(p.tend(now, sweeping, sweepAt)))
	}
}

// sweepInterval keeps the error of the idle time and of the age small against them.
func (p *Pools) sweepInterval() time.Duration {
	return min(max(min(p.config.IdleTimeout, p.config.MaxAge)/8, 5*time.Millisecond), 10*time.Second)
}

// tend looks after all shards and returns when it should be called again, which is not later than the given time.
func (p *Pools) tend(now time.Time, sweeping bool, next time.Time) time.Time {
	p.mu.Lock()
	shards := p.all()
	p.mu.Unlock()
	for _, s := range shards {
		if due := s.tend(now, sweeping); !due.IsZero() && due.Before(next) {
			next = due
		}
	}
	p.feed()
	for p.total.isDue(now) && closeIdle(shards) {
		continue
	}
	return next
}

// feed lets shards have what is free of the total, the one first whose waiter has waited longest. No shard's mutex may be held.
func (p *Pools) feed() {
	for _, s := range p.total.byAge() {
		s.redispatch()
	}
}

// closeIdle closes a backend of the shard that has most idle ones.
func closeIdle(shards []*shardPool) bool {
	if len(shards) == 0 {
		return false
	}
	richest := slices.MaxFunc(shards, func(a, b *shardPool) int { return cmp.Compare(a.idleCount(), b.idleCount()) })
	return richest.closeOneIdle()
}
