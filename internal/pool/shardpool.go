package pool

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// shardPool has the backends of one shard. Its mutex guards everything in it, in its roles and waiters, and the standing of
// its backends; no two shards' mutexes are ever held together.
type shardPool struct {
	pools  *Pools
	number int

	mu          sync.Mutex
	spec        topology.ShardSpec
	serviceUser string
	generation  int             // grows when the shard moves: older backends are of no use
	ctx         context.Context // of the generation's logins
	cancel      context.CancelFunc
	left        *pgerr.Error // why there is nothing to be had any more; nil while there is
	cap         int          // of SetLimit; 0 is none

	roles    map[string]*role
	backends map[*Backend]struct{} // all, except those that have been closed
	queue    queue
	counts   counts
	logins   int
	breaker  breaker
	bucket   bucket
	round    uint64 // of dispatch
	figures  figures

	due       time.Time // when time alone allows a login that is wanted; zero if it is not time that is missing
	announced time.Time // what the keeper knows of due
	starving  bool      // the limit over all shards keeps the first waiter from a login
}

// role has those of one role.
type role struct {
	user    string
	idle    []*Backend // the last is lent next
	counts  counts
	logins  int
	waiting queue
	breaker breaker // for logins that fail because of the role's own limit or settings
	// covered is how many waiters of the role have been seen in this round of dispatch for whom a login is under way.
	covered int
	round   uint64
}

// live is how many backends of the role serve somebody or could.
func (r *role) live() int { return r.counts[idle] + r.counts[lent] }

func (r *role) isEmpty() bool {
	return r.counts == counts{} && r.logins == 0 && r.waiting.length == 0
}

// standing is where a backend is in its life.
type standing int

const (
	lent standing = iota
	idle
	closing // it counts until the server has hung up
	closed  // it does not count any more
)

// counts has how many backends stand where; closed ones are not counted.
type counts [closed]int

// figures are counted from the start.
type figures struct {
	opened, closed, failedLogins, waits, timeouts uint64
	waited                                        time.Duration
	lastError                                     string
	lastErrorAt                                   time.Time
}

func newShardPool(p *Pools, spec topology.ShardSpec, limit int) *shardPool {
	s := &shardPool{
		pools: p, number: spec.Number, cap: limit, roles: map[string]*role{}, backends: map[*Backend]struct{}{},
		queue: queue{lane: ofShard}, bucket: newBucket(p.config.LoginsPerSecond, time.Now()),
	}
	s.aim(spec)
	return s
}

// aim says where the next logins go.
func (s *shardPool) aim(spec topology.ShardSpec) {
	s.spec, s.serviceUser = spec, s.pools.config.Access.UserOf(spec)
	s.ctx, s.cancel = context.WithCancel(s.pools.ctx)
}

func (s *shardPool) name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spec.Name
}

// userOf returns the name of the identity's role on this shard.
func (s *shardPool) userOf(id *Identity) string {
	if id.User == "" && id.Service {
		return s.serviceUser
	}
	return id.User
}

func (s *shardPool) limit() int {
	if s.cap > 0 {
		return min(s.cap, s.pools.config.PerShard)
	}
	return s.pools.config.PerShard
}

// open is how many connections there are, or are about to be.
func (s *shardPool) open() int {
	return s.counts[lent] + s.counts[idle] + s.counts[closing] + s.logins
}

// room is how many more may be opened once those are closed that are being closed; it is negative above the limit.
func (s *shardPool) room() int { return s.limit() - (s.open() - s.counts[closing]) }

// move is the only way from one standing to another.
func (s *shardPool) move(b *Backend, to standing) {
	s.counts[b.standing]--
	b.role.counts[b.standing]--
	b.standing = to
	if to != closed {
		s.counts[to]++
		b.role.counts[to]++
	}
}

// deepestAffinity is how many idle backends are looked at for one with the wanted affinity.
const deepestAffinity = 8

// takeIdle lends an idle backend of the role; nil if there is none. The one that was used last comes first: its caches are
// warm, and those that are not needed grow old below it.
func (s *shardPool) takeIdle(r *role, affinity uint64) *Backend {
	for len(r.idle) > 0 {
		last := len(r.idle) - 1
		at := last
		for i := last; i >= 0 && i > last-deepestAffinity; i-- {
			if r.idle[i].Affinity == affinity {
				at = i
				break
			}
		}
		b := r.idle[at]
		if !b.Alive() {
			s.close(b, "the server has closed it")
			continue
		}
		copy(r.idle[at:], r.idle[at+1:])
		r.idle[last] = nil
		r.idle = r.idle[:last]
		b.restingSince = time.Time{}
		s.move(b, lent)
		return b
	}
	return nil
}

// rest makes a lent backend idle.
func (s *shardPool) rest(b *Backend) {
	s.move(b, idle)
	b.role.idle = append(b.role.idle, b)
}

// giveBack takes a backend that its borrower has done with.
func (s *shardPool) giveBack(b *Backend) {
	switch {
	case b.standing == idle:
		s.pools.config.Logger.Error("a backend was given back twice", "shard", s.spec.Name, "pid", b.pid)
	case b.standing != lent: // the pools were closed meanwhile
	case b.generation != s.generation || s.left != nil:
		s.close(b, "the shard has moved")
	case !b.Alive():
		s.close(b, "the server has closed it")
	case b.expired:
		s.close(b, "it is old")
	case s.room() < 0:
		s.close(b, "there are more than the limit")
	default:
		s.offer(b)
	}
}

// offer gives a lent backend that is free now to the first who can use it.
func (s *shardPool) offer(b *Backend) {
	first := s.queue.head
	switch {
	case s.mustGiveUp(b, first):
		s.close(b, "another shard's waiter is first")
	case first == nil:
		s.rest(b)
	case first.role == b.role:
		s.deliver(first, b)
	case s.mustYield(first):
		s.close(b, "another role's waiter is first")
	case b.role.waiting.head != nil:
		s.deliver(b.role.waiting.head, b)
	default:
		s.rest(b)
		s.dispatch()
	}
}

// mustGiveUp says whether the place of a backend that comes back goes to another shard: if nobody waits here, to one whose need is
// due; else only when the backend has had its turn and somebody there has waited for longer.
func (s *shardPool) mustGiveUp(b *Backend, first *waiter) bool {
	total := &s.pools.total
	switch {
	case !total.isWanted():
		return false
	case first == nil:
		return total.isDue(time.Now())
	}
	return time.Since(b.opened) >= turn && total.isOverdue(s, first.since)
}

// mustYield says whether the first waiter, who is of another role, needs the place of a backend that comes back.
func (s *shardPool) mustYield(first *waiter) bool {
	full := s.room() <= 0 || s.starving && s.counts[closing] == 0
	now := time.Now()
	return full && first.role.logins == 0 && first.role.breaker.allows(now) && s.mayLogIn(now)
}

// enqueue lets somebody wait, and does what can be done for him.
func (s *shardPool) enqueue(id *Identity) (*waiter, error) {
	if s.left != nil {
		return nil, s.left
	}
	now := time.Now()
	r := s.roleOf(s.userOf(id))
	if blocking := s.blocking(r, now); blocking != nil && r.live() == 0 {
		s.forget(r)
		return nil, s.unreachable(blocking, now)
	}
	w := waiters.Get().(*waiter)
	w.identity, w.role, w.since, w.queued = id, r, now, true
	s.queue.push(w)
	r.waiting.push(w)
	s.figures.waits++
	s.dispatch()
	return w, nil
}

func (s *shardPool) roleOf(user string) *role {
	r := s.roles[user]
	if r == nil {
		r = &role{user: user, waiting: queue{lane: ofRole}}
		s.roles[user] = r
	}
	return r
}

// forget drops a role that has nothing and waits for nothing, unless its breaker has something to remember.
func (s *shardPool) forget(r *role) {
	if r.isEmpty() && r.breaker.isForgettable(time.Now()) {
		delete(s.roles, r.user)
	}
}

// await waits for what the queue brings.
func (s *shardPool) await(ctx context.Context, w *waiter) (*Backend, error) {
	w.timer.Reset(s.pools.config.QueueTimeout)
	defer w.recycle()
	select {
	case got := <-w.ready:
		return got.backend, got.err
	case <-ctx.Done():
		if !s.withdraw(w) {
			s.discard(<-w.ready)
		}
		return nil, fmt.Errorf("wait for a backend: %w", context.Cause(ctx))
	case <-w.timer.C:
		if failure := s.timeOut(w); failure != nil {
			return nil, failure
		}
		got := <-w.ready
		return got.backend, got.err
	}
}

// withdraw takes a waiter who has given up out of the queue; false if he has been served already.
func (s *shardPool) withdraw(w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !w.queued {
		return false
	}
	s.unqueue(w)
	s.forget(w.role)
	s.dispatch()
	return true
}

// timeOut takes a waiter out of the queue whose time is over, and returns what to tell him; nil if he has been served already.
func (s *shardPool) timeOut(w *waiter) *pgerr.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !w.queued {
		return nil
	}
	failure := pgerr.New(pgerr.TooManyConnections, "no backend of shard %q became free within %v", s.spec.Name, s.pools.config.QueueTimeout).
		WithDetail("%d backends are in use, %d are idle, %d sessions wait; the limit is %d.", s.counts[lent], s.counts[idle], s.queue.length, s.limit()).
		WithHint("Make transactions shorter, or raise the setting pool.per_shard as far as max_connections of the shard allows.")
	s.unqueue(w)
	s.figures.timeouts++
	s.forget(w.role)
	s.dispatch()
	return failure
}

// discard gives back what came too late.
func (s *shardPool) discard(got outcome) {
	if got.backend != nil {
		got.backend.Release()
	}
}

func (s *shardPool) unqueue(w *waiter) {
	s.queue.remove(w)
	w.role.waiting.remove(w)
	w.queued = false
	s.figures.waited += time.Since(w.since)
	if s.starving {
		s.setStarving(s.queue.head != nil)
	}
}

// deliver ends a wait well; the backend is lent already.
func (s *shardPool) deliver(w *waiter, b *Backend) {
	s.unqueue(w)
	w.ready <- outcome{backend: b}
}

func (s *shardPool) fail(w *waiter, err error) {
	s.unqueue(w)
	w.ready <- outcome{err: err}
}

// dispatch serves waiters in their order as far as can be done now: with idle backends, and by logins. It is called whenever
// something has changed that a waiter may have waited for.
func (s *shardPool) dispatch() {
	s.round++
	s.due = time.Time{}
	starving := false
	promised := 0 // places that become free and are somebody's already
	now := time.Now()
	var next *waiter
	for w := s.queue.head; w != nil && s.left == nil; w = next {
		next = s.queue.after(w)
		if b := s.takeIdle(w.role, 0); b != nil {
			s.deliver(w, b)
			continue
		}
		if s.isCovered(w.role) || s.isHeldBack(&w.role.breaker, now) {
			continue
		}
		if !s.mayLogIn(now) {
			break
		}
		if s.open() < s.limit() {
			if starving = !s.pools.total.take(s, w.since); starving {
				break
			}
			s.startLogin(w, now)
			continue
		}
		if s.room() <= promised && !s.closeIdleOf(w.role) {
			break
		}
		promised++
	}
	s.setStarving(starving)
}

// isCovered says whether a login is under way for one more waiter of the role in this round.
func (s *shardPool) isCovered(r *role) bool {
	if r.round != s.round {
		r.round, r.covered = s.round, 0
	}
	if r.covered < r.logins {
		r.covered++
		return true
	}
	return false
}

// mayLogIn says whether the shard can do with another login now, apart from the limits on backends. If it is only a matter of
// time it sees to it that dispatch is called again.
func (s *shardPool) mayLogIn(now time.Time) bool {
	if s.logins >= s.pools.config.LoginsAtOnce || s.isHeldBack(&s.breaker, now) {
		return false
	}
	if at := s.bucket.next(now); now.Before(at) {
		s.remind(at)
		return false
	}
	return true
}

// isHeldBack says whether the breaker allows no login. If it is only a matter of time it sees to it that dispatch is called again.
func (s *shardPool) isHeldBack(b *breaker, now time.Time) bool {
	if b.allows(now) {
		return false
	}
	if !b.probing {
		s.remind(b.until)
	}
	return true
}

// blocking returns the breaker that keeps the role from logging in; nil if none does.
func (s *shardPool) blocking(r *role, now time.Time) *breaker {
	for _, b := range []*breaker{&s.breaker, &r.breaker} {
		if !b.allows(now) {
			return b
		}
	}
	return nil
}

// remind has dispatch called at that time.
func (s *shardPool) remind(at time.Time) {
	if s.due.IsZero() || at.Before(s.due) {
		s.due = at
	}
	if s.announced.IsZero() || at.Before(s.announced) {
		s.announced = at
		s.pools.wake()
	}
}

// setStarving says whether the limit over all shards is all that keeps the first waiter from a login.
func (s *shardPool) setStarving(starving bool) {
	switch {
	case starving:
		need := hunger{since: s.queue.head.since, hasNone: s.open() == 0}
		s.pools.total.starve(s, need)
		if need.isDue(time.Now()) {
			s.pools.wake() // there may be idle backends elsewhere to close
		} else {
			s.remind(need.dueAt())
		}
	case s.starving:
		s.pools.total.sate(s)
	}
	s.starving = starving
}

// closeIdleOf closes the idle backend of another role that was used longest ago.
func (s *shardPool) closeIdleOf(but *role) bool {
	for _, r := range s.roles {
		if r != but && len(r.idle) > 0 {
			s.close(r.idle[0], "another role's waiter is first")
			return true
		}
	}
	return false
}

// close closes a backend and frees its place when the server has hung up.
func (s *shardPool) close(b *Backend, reason string) {
	if b.standing == idle {
		b.role.removeIdle(b)
	}
	parted := func() {}
	if b.standing == lent {
		parted = s.pools.partings.begin()
	}
	s.move(b, closing)
	s.pools.total.closing.Add(1)
	s.pools.config.Logger.Debug("closing a backend", "shard", s.spec.Name, "role", b.role.user, "pid", b.pid, "reason", reason)
	s.pools.tasks.Go(func() {
		b.hangUp()
		parted()
		s.free(b)
		s.pools.feed()
	})
}

func (r *role) removeIdle(b *Backend) {
	for i, other := range r.idle {
		if other == b {
			copy(r.idle[i:], r.idle[i+1:])
			r.idle[len(r.idle)-1] = nil
			r.idle = r.idle[:len(r.idle)-1]
			return
		}
	}
}

// free frees the place of a backend that is closed now.
func (s *shardPool) free(b *Backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools.total.closing.Add(-1)
	s.move(b, closed)
	delete(s.backends, b)
	s.figures.closed++
	s.pools.total.give()
	s.failHopeless(b.role, time.Now())
	s.forget(b.role)
	s.dispatch()
}

// failHopeless ends the wait of the role's waiters if there is nothing left for them to wait for.
func (s *shardPool) failHopeless(r *role, now time.Time) {
	blocking := s.blocking(r, now)
	if blocking == nil || r.live() > 0 || r.logins > 0 {
		return
	}
	for r.waiting.head != nil {
		s.fail(r.waiting.head, s.unreachable(blocking, now))
	}
}

// died is told when a server has closed its side of a connection.
func (s *shardPool) died(b *Backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.standing == idle {
		s.close(b, "the server has closed it")
	}
}
