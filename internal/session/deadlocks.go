package session

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cleavedb/cleave/internal/deadlock"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/pool"
	"github.com/cleavedb/cleave/internal/wire"
)

// This is what package deadlock needs of sessions: which of them have several backends, and wait; and that one of them ends its wait as the victim
// of a deadlock. A session notes under its lock what it does anyway there; sending and waiting take no further one.

// watchList has the sessions that may have several backends.
type watchList struct {
	mu       sync.Mutex
	sessions map[*session]struct{}
	stirred  chan struct{} // holds one token when there was none and there is one
}

func newWatchList() watchList {
	return watchList{sessions: map[*session]struct{}{}, stirred: make(chan struct{}, 1)}
}

func (l *watchList) add(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions[s] = struct{}{}; len(l.sessions) > 1 {
		return
	}
	select {
	case l.stirred <- struct{}{}:
	default:
	}
}

func (l *watchList) remove(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sessions, s)
}

func (l *watchList) all() []*session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.sessions))
}

// mayBeSpread has the session looked at from now on, until it has one backend only. The caller has the lock.
func (s *session) mayBeSpread() {
	if !s.isWatched {
		s.isWatched = true
		s.server.watched.add(s)
	}
}

// Stirred implements [deadlock.Sessions].
func (s *Server) Stirred() <-chan struct{} { return s.watched.stirred }

// Waiting implements [deadlock.Sessions].
func (s *Server) Waiting(longer time.Duration) (waiting []deadlock.Session, some bool) {
	before := time.Now().Add(-longer).UnixNano()
	for _, session := range s.watched.all() {
		session.mu.look(func() {
			if len(session.legs) == 0 && len(session.pinned) == 0 && session.asideFrom == nil {
				session.isWatched = false
				s.watched.remove(session)
				return
			}
			some = true
			sent := session.sending.Load()
			if sent == 0 || sent > before {
				return
			}
			if backends := session.backends(); len(backends) > 1 {
				waiting = append(waiting, deadlock.Session{Number: session.number, Step: session.steps.Load(), Sent: time.Unix(0, sent), Began: time.Unix(0, session.began.Load()), Backends: backends})
			}
		})
	}
	return waiting, some
}

// backends are those that the session has now. The caller looks.
func (s *session) backends() []deadlock.Backend {
	known := map[*pool.Backend]bool{}
	var all []deadlock.Backend
	add := func(b *pool.Backend, as deadlock.Backend) {
		if b != nil && !known[b] {
			known[b] = true
			as.Shard, as.PID = b.Shard(), b.PID()
			all = append(all, as)
		}
	}
	telling := s.isTelling()
	add(s.active, deadlock.Backend{Read: !telling})
	add(s.asideFrom, deadlock.Backend{Quiet: !s.asideOwes})
	for _, l := range s.legs {
		add(l.backend, deadlock.Backend{Quiet: !telling && !slices.Contains(s.working, l.backend), Owes: l.owes})
	}
	for _, p := range s.pinned {
		add(p.backend, deadlock.Backend{Quiet: true})
	}
	slices.SortFunc(all, func(a, b deadlock.Backend) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.PID, b.PID))
	})
	return all
}

// isTelling says whether several shards are being told a statement: some are at work, and others may be told next. The caller looks.
func (s *session) isTelling() bool {
	if len(s.working) > 0 {
		return false
	}
	for _, l := range s.legs {
		if l.owes {
			return true
		}
	}
	return false
}

// setAsideFrom notes that another backend is asked than the client's own; owes: that one has more to answer.
func (s *session) setAsideFrom(own *pool.Backend, owes bool) {
	if own == nil && s.asideFrom == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asideFrom, s.asideOwes = own, owes; own != nil {
		s.mayBeSpread()
	}
}

// Gone implements [deadlock.Sessions].
func (s *Server) Gone(longer time.Duration) []deadlock.Session {
	before := time.Now().Add(-longer).UnixNano()
	s.mu.Lock()
	var late []*session
	for _, session := range s.sessions {
		if sent := session.sending.Load(); sent != 0 && sent < before {
			late = append(late, session)
		}
	}
	s.mu.Unlock()
	var gone []deadlock.Session
	for _, session := range late {
		if hungUp(session.conn) {
			session.mu.look(func() { gone = append(gone, deadlock.Session{Number: session.number, Backends: session.backends()}) })
		}
	}
	return gone
}

// Cancel implements [deadlock.Sessions].
func (s *Server) Cancel(ctx context.Context, number uint32) {
	if session := s.session(number); session != nil {
		session.mu.cancel(func() func() { return session.canceller(ctx) })
	}
}

func (s *Server) session(number uint32) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[number]
}

// sentence ends waits of a session's backends.
type sentence struct {
	backends []*pool.Backend
	// because is what the client is told; nil: the statement has failed elsewhere already.
	because *pgerr.Error
}

// Sentence implements [deadlock.Sessions].
func (s *Server) Sentence(number uint32, of []deadlock.Backend, because *pgerr.Error, cancel func(byKey func(context.Context, deadlock.Backend) error) bool) {
	session := s.session(number)
	if session == nil {
		return
	}
	session.mu.cancel(func() func() {
		found := session.find(of)
		if found == nil {
			return nil
		}
		waits, endWait := session.waiting, session.cancelWait
		return func() {
			// First: a session that has it sends nothing before this is over, so what is cancelled is what it waits for now.
			session.sentence.Store(&sentence{found, because})
			ended := cancel(func(ctx context.Context, b deadlock.Backend) error { return found[slices.Index(of, b)].Cancel(ctx) })
			switch {
			case !ended:
				session.sentence.Store(nil)
			case waits: // for a backend of yet another shard: that is over too
				session.cancelled.Store(true)
				endWait()
			}
		}
	})
}

// find returns the session's own of these backends, nil if one is missing. The caller looks.
func (s *session) find(of []deadlock.Backend) []*pool.Backend {
	mine := []*pool.Backend{s.active, s.asideFrom}
	for _, l := range s.legs {
		mine = append(mine, l.backend)
	}
	found := make([]*pool.Backend, len(of))
	for i, b := range of {
		at := slices.IndexFunc(mine, func(m *pool.Backend) bool { return m != nil && m.Shard() == b.Shard && m.PID() == b.PID })
		if at < 0 {
			return nil
		}
		found[i] = mine[at]
	}
	return found
}

// beginWait notes that something is about to be sent to a shard. A sentence that is being carried out is about what came before.
func (s *session) beginWait(now time.Time) {
	s.noteWait(now)
	if s.gather == nil {
		s.outliveSentence()
	}
}

// noteWait notes that answers of shards are waited for.
func (s *session) noteWait(now time.Time) {
	s.steps.Add(1)
	if s.sending.Load() == 0 {
		s.sending.Store(now.UnixNano())
	}
	if s.began.Load() == 0 {
		s.began.Store(now.UnixNano())
	}
}

// outliveSentence waits until a sentence has been carried out, if there is one, and forgets it.
func (s *session) outliveSentence() {
	if s.sentence.Load() != nil {
		s.mu.Lock()
		s.sentence.Store(nil)
		s.mu.Unlock()
	}
}

// endWait notes that nothing is waited for, and whether there is a transaction that goes on.
func (s *session) endWait() {
	if s.sending.Load() != 0 {
		s.sending.Store(0)
	}
	if s.backend == nil && !s.isSpread() && s.began.Load() != 0 {
		s.began.Store(0)
	}
}

// isSentenced says whether an error of the backend at work is that of a sentence, and which.
func (s *session) isSentenced(f *wire.Fields) (*sentence, bool) {
	if f.Code != pgerr.QueryCanceled {
		return nil, false
	}
	sentence := s.sentence.Load()
	return sentence, sentence != nil && slices.Contains(sentence.backends, s.backend)
}

// asVictim makes an error what the victim of a deadlock is told, if the session is one.
func (s *session) asVictim(f *wire.Fields) bool {
	sentence, is := s.isSentenced(f)
	if !is || sentence.because == nil {
		return s.asTimedOut(f)
	}
	f.Code, f.Message, f.Detail, f.Hint = sentence.because.Code, sentence.because.Message, sentence.because.Detail, sentence.because.Hint
	f.File, f.Line, f.Routine = "", 0, ""
	return true
}

// isAbandoned says whether an error says only that a statement was ended that has failed on another shard already.
func (s *session) isAbandoned(f *wire.Fields) bool {
	sentence, is := s.isSentenced(f)
	return is && sentence.because == nil
}

// cancellation is what a client is told whose wait for a backend was cancelled.
func (s *session) cancellation() *pgerr.Error {
	if sentence := s.sentence.Load(); sentence != nil && sentence.because != nil {
		return sentence.because
	}
	if s.timedOut.Load() {
		return errTimeout
	}
	return errCancelled
}

// restGrace is how long the other parts of a statement may take that has failed on one shard. Most end at once, and cancelling costs more.
const restGrace = 100 * time.Millisecond

// cancelTimeout is how long it may take to cancel.
const cancelTimeout = 5 * time.Second

// endRestSoon ends what is left of a statement that has failed on one shard, which may wait for a lock for long. It returns what calls that off.
func (s *session) endRestSoon() (stop func()) {
	g := s.gather
	s.mu.Lock()
	s.failing = g
	s.mu.Unlock()
	timer := time.AfterFunc(restGrace, func() { s.endRest(g) })
	return func() {
		timer.Stop()
		s.mu.Lock() // which waits for what is being cancelled
		s.failing = nil
		s.mu.Unlock()
	}
}

func (s *session) endRest(g *gather) {
	ctx, cancel := context.WithTimeout(s.ctx, cancelTimeout)
	defer cancel()
	s.mu.cancel(func() func() {
		if s.failing != g {
			return nil
		}
		rest := slices.Clone(s.working)
		return func() {
			for _, backend := range rest {
				if err := backend.Cancel(ctx); err != nil {
					s.server.config.Logger.Warn("a part of a statement that has failed could not be cancelled", "shard", backend.ShardName(), "error", err)
				}
			}
		}
	})
}
