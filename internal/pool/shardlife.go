package pool

import (
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// redirect takes a new description of the shard, and starts anew if its backends would not be what it describes.
func (s *shardPool) redirect(spec topology.ShardSpec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	moved := !sameServer(s.spec, spec)
	if moved {
		s.cancel()
		s.generation++
		s.breaker.succeeded()
		for _, r := range s.roles {
			r.breaker.succeeded()
		}
		s.aim(spec)
		s.closeAllIdle("the shard has moved")
	}
	s.spec = spec
	s.breaker.hurry() // what kept logins from succeeding may be what the new map has mended
	for _, r := range s.roles {
		r.breaker.hurry()
	}
	s.dispatch()
}

// sameServer says whether backends that were made for one description serve the other.
func sameServer(a, b topology.ShardSpec) bool {
	return a.Primary.Address == b.Primary.Address && a.Database == b.Database && a.User == b.User && a.Password == b.Password &&
		a.SSLMode == b.SSLMode && a.SSLRootCert == b.SSLRootCert
}

func (s *shardPool) closeAllIdle(reason string) {
	for b := range s.backends {
		if b.standing == idle {
			s.close(b, reason)
		}
	}
}

// leave ends lending for good: those who wait hear why, idle backends are closed, others when they come back.
func (s *shardPool) leave(why *pgerr.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = why
	s.cancel()
	for s.queue.head != nil {
		s.fail(s.queue.head, why)
	}
	s.closeAllIdle("the shard has left the map")
}

// cutOff closes those that are lent under their borrowers' hands.
func (s *shardPool) cutOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := range s.backends {
		if b.standing == lent {
			s.move(b, closed)
			delete(s.backends, b)
			s.figures.closed++
			s.pools.total.give()
			b.disconnect()
		}
	}
}

// isEmpty says whether nothing is left to come back.
func (s *shardPool) isEmpty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open() == 0
}

// setCap lowers or raises the limit; idle backends above it are closed, others when they come back.
func (s *shardPool) setCap(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cap = max(limit, 0)
	for s.room() < 0 && s.closeIdleOf(nil) {
		continue
	}
	s.dispatch()
}

// tend does what time has made due, and returns when there will be something again.
func (s *shardPool) tend(now time.Time, sweeping bool) (due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sweeping {
		s.sweep(now)
	}
	if !s.due.IsZero() && !now.Before(s.due) {
		s.dispatch()
	}
	s.announced = s.due
	return s.due
}

// sweep closes what is old or idle for long. How long a backend has been idle is counted from the first sweep that finds it
// so: that is close enough, and whoever borrows and gives back never looks at a clock.
func (s *shardPool) sweep(now time.Time) {
	for b := range s.backends {
		switch {
		case now.After(b.expires) && b.standing == idle:
			s.close(b, "it is old")
		case now.After(b.expires):
			b.expired = true
		case b.standing != idle:
		case b.restingSince.IsZero():
			b.restingSince = now
		case now.Sub(b.restingSince) >= s.pools.config.IdleTimeout && s.counts[idle] > s.pools.config.MinIdle:
			s.close(b, "it was idle for long")
		}
	}
	for _, r := range s.roles {
		s.forget(r)
	}
}

func (s *shardPool) redispatch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dispatch()
}

func (s *shardPool) idleCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[idle]
}

func (s *shardPool) closeOneIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closeIdleOf(nil)
}
