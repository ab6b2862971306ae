package session

import (
	"maps"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/pool"
)

// leg is the backend that a transaction has on one shard, while another one is at work.
type leg struct {
	backend *pool.Backend
	state   *serverState
	status  byte
	// wrote: it may have changed something.
	wrote bool
	// pending is what the transaction has said since the leg was set aside; before are messages that go between that and what the leg is told next, and are answered with it.
	pending script
	before  []byte
	// expects and the rest are what it still owes, while a statement runs on several shards.
	expects  []expect
	head     int
	unsynced bool
	copying  bool // it waits for the rows of a COPY
	writing  chan struct{}
	// stranger: who it acts as is not who the session is.
	stranger bool
	// owes: when it was set aside it had something to answer yet.
	owes bool
}

// isSpread says whether the transaction is on more shards than the one that is at work.
func (s *session) isSpread() bool { return len(s.legs) > 0 }

// setAside puts the leg that is at work to the others. It owes nothing but what its expects say.
func (s *session) setAside() {
	l := &leg{backend: s.backend, state: s.state, status: s.status, wrote: s.wrote, pending: s.pending, expects: s.expects, head: s.head, unsynced: s.unsynced, copying: s.copying, writing: s.writing, owes: s.unsynced || s.head < len(s.expects)}
	s.mu.Lock()
	if s.legs == nil {
		s.legs = map[int]*leg{}
	}
	s.legs[l.backend.Shard()] = l
	s.active = nil
	s.mayBeSpread()
	s.mu.Unlock()
	s.pending = nil
	s.backend, s.state, s.unsynced, s.wrote, s.joined, s.expects, s.head, s.copying, s.writing = nil, nil, false, false, false, nil, 0, false, nil
}

// resume puts a leg to work again.
func (s *session) resume(l *leg) {
	s.backend, s.state, s.status, s.wrote, s.joined, s.pending = l.backend, l.state, l.status, l.wrote, true, l.pending
	s.expects, s.head, s.unsynced, s.copying, s.writing = l.expects, l.head, l.unsynced, l.copying, l.writing
	s.mu.Lock()
	delete(s.legs, l.backend.Shard())
	s.active = l.backend
	s.mu.Unlock()
}

// visitHome puts the leg on the home shard to work, if there is one and nothing is under way.
func (s *session) visitHome() { s.visit(s.home()) }

// visit puts the leg on a shard to work, if there is one and nothing is under way.
func (s *session) visit(shard int) {
	l := s.legs[shard]
	if l == nil || s.unsynced || s.needsServer() || l.status != statusOpen {
		return
	}
	if s.backend != nil {
		s.setAside()
	}
	s.resume(l)
	for _, said := range s.pending {
		if a, err := s.ask(said.on(shard)); err != nil || a.failure != nil {
			s.status = statusFailed // what comes next is told why
			return
		}
	}
	s.pending = nil
}

// visitAny puts some leg to work that can be asked something, if there is one.
func (s *session) visitAny() {
	for _, shard := range slices.Sorted(maps.Keys(s.legs)) {
		if s.visit(shard); s.backend != nil {
			return
		}
	}
}

// visitEnds puts the leg to work again that was before another one was visited; nil: none was.
func (s *session) visitEnds(before *pool.Backend) {
	if s.backend == before {
		return
	}
	if s.backend != nil {
		s.setAside()
	}
	if before != nil && s.legs[before.Shard()] != nil {
		s.resume(s.legs[before.Shard()])
	}
}

// allLegs sets aside what is at work and returns all legs in the order of their shards.
func (s *session) allLegs() []*leg {
	if s.backend != nil {
		s.setAside()
	}
	numbers := slices.Sorted(maps.Keys(s.legs))
	legs := make([]*leg, len(numbers))
	for i, number := range numbers {
		legs[i] = s.legs[number]
	}
	return legs
}

// hasFailed says whether the transaction runs nothing any more until it is rolled back, to its beginning or to a savepoint.
func (s *session) hasFailed() bool {
	if s.tx.failed || s.backend != nil && s.status == statusFailed {
		return true
	}
	for _, l := range s.legs {
		if l.status == statusFailed {
			return true
		}
	}
	return false
}

// endWithLeg ends a transaction that has lost a leg, on all the others at once. A block that the client has begun has failed.
func (s *session) endWithLeg() {
	s.rollbackLegs()
	s.releaseLegs()
	s.endLost(!s.tx.implicit)
}

// giveUp rolls a transaction back on its shards that has failed and has no savepoint to go back to: as in PostgreSQL nobody has to wait for
// its locks until the client ends it.
func (s *session) giveUp() {
	if !s.isSpread() || s.unsynced || len(s.ops) > 0 || !s.hasFailed() || s.tx.script.hasSavepoint() {
		return
	}
	s.unheard = true // the client is told of parameters when it ends the transaction
	s.rollbackLegs()
	s.unheard = false
	s.releaseLegs()
	s.definitionsEnd()
	s.tx.open, s.tx.failed = true, true
}

// stepFailed says that what came before had to be run first, and failed: the client has been told.
var stepFailed = pgerr.New(pgerr.InternalError, "an earlier step has failed")

// changeShard makes another shard the one at work. What the unit has so far is run first.
func (s *session) changeShard(st *plan.Statement, shard int) *pgerr.Error {
	if refused := s.goOn(); refused != nil {
		return refused
	}
	if s.backend != nil { // or it is on no shard, or on several already: what was only prepared has tied it to none
		if refused := s.maySpread(st); refused != nil {
			return refused
		}
	}
	if refused := s.usable(shard, s.whatRuns(st)); refused != nil {
		return refused
	}
	if refused := s.learnNumbers(shard); refused != nil {
		return refused
	}
	if s.backend != nil {
		s.setAside()
	}
	s.target = shard
	return nil
}

// goOn runs what the unit has so far, and refuses to go on if the transaction has failed: what is about to be done on another shard would
// be done there.
func (s *session) goOn() *pgerr.Error {
	if refused := s.finishStep(); refused != nil {
		return refused
	}
	if s.currentStatus() == statusFailed {
		return inFailedTransaction
	}
	return nil
}

// finishStep runs what the unit has so far, in a transaction, so that what follows can be on other shards.
func (s *session) finishStep() *pgerr.Error {
	if !s.needsServer() && !s.unsynced {
		return nil
	}
	if s.backend != nil || s.isSpread() || !s.onlyPrepares() {
		s.startBlock()
		s.ops = append(s.ops, op{kind: opSync, hidden: true})
	}
	return s.runUnit()
}

// runUnit runs what the unit has, for a message that is not about that alone.
func (s *session) runUnit() *pgerr.Error {
	inHand, opsBefore := s.inHand, s.opsBefore
	s.stepError = s.flush()
	s.inHand, s.opsBefore = inHand, opsBefore
	if s.stepError != nil || s.skipping {
		return stepFailed
	}
	return nil
}

// startBlock begins a transaction for what the client has not put into one, if there is none.
func (s *session) startBlock() {
	switch {
	case s.tx.begin != "":
	case s.backend == nil:
		s.tx.open, s.tx.begin, s.tx.implicit = true, "BEGIN", true
	case s.status == statusIdle:
		s.joined, s.tx.begin, s.tx.implicit = false, "BEGIN", true
		s.tx.open = true
	default:
		s.tx.begin = "BEGIN"
	}
}

// maySpread says whether the transaction may go to another shard too.
func (s *session) maySpread(st *plan.Statement) *pgerr.Error {
	if s.isSpread() || s.currentMap().ShardCount() == 1 {
		return nil
	}
	level, refused := s.isolation()
	if refused != nil {
		return refused
	}
	s.tx.level = level
	if level == repeatableRead && s.backend != nil && s.wantsConsistent() {
		return openedTooLate
	}
	if level != "serializable" {
		return nil
	}
	return pgerr.New(pgerr.FeatureNotSupported, "a SERIALIZABLE transaction on several shards is not supported").
		WithDetail("%s needs another shard than the one that the transaction is on. Each shard alone would be serializable, and both together would not.", st.Name).
		WithHint("Use REPEATABLE READ, or a transaction for each shard.")
}

// isolation is the level of the transaction, or of the one that is about to begin.
func (s *session) isolation() (string, *pgerr.Error) {
	if s.tx.begin != "" && !s.saysIsolation() {
		return s.defaultIsolation()
	}
	if s.mayAskInside() {
		return s.askWord("SHOW transaction_isolation", s.askHere)
	}
	if s.tx.open && !s.tx.implicit {
		return s.rehearsedIsolation()
	}
	return s.defaultIsolation()
}

// saysIsolation says whether the transaction has said anything of its isolation. After its first query it cannot any more, so what a function says counts for nothing.
func (s *session) saysIsolation() bool {
	return mentionsIsolation(s.tx.begin) || slices.ContainsFunc(s.tx.script, func(l line) bool { return mentionsIsolation(l.sql) })
}

func mentionsIsolation(sql string) bool { return strings.Contains(strings.ToLower(sql), "isolation") }

// defaultIsolation is the level of a transaction that does not say which.
func (s *session) defaultIsolation() (string, *pgerr.Error) {
	if known, found := s.isolations[s.settings]; found {
		return known, nil
	}
	level, refused := s.askWord("SHOW default_transaction_isolation", s.aside)
	if refused == nil {
		s.isolations = map[*settings]string{s.settings: level}
	}
	return level, refused
}

// rehearsedIsolation is that of a transaction that no shard has heard of.
func (s *session) rehearsedIsolation() (string, *pgerr.Error) {
	return s.askWord("SHOW transaction_isolation", func(question func() (answer, error)) (answer, *pgerr.Error) {
		return s.aside(func() (answer, error) {
			s.unheard = true
			defer func() { s.unheard = false }()
			if a, err := s.ask(strings.Join(s.saidOn(s.backend.Shard()), "; ")); err != nil || a.failure != nil {
				_, _ = s.ask("ROLLBACK")
				return a, err
			}
			a, err := question()
			if err != nil {
				return a, err
			}
			_, err = s.ask("ROLLBACK")
			return a, err
		})
	})
}

// askHere asks the attached backend, in its transaction. What is asked cannot fail.
func (s *session) askHere(question func() (answer, error)) (answer, *pgerr.Error) {
	a, err := question()
	if err != nil {
		return a, lostShard(s.backend.ShardName(), err)
	}
	return a, nil
}

// askWord asks for a single value.
func (s *session) askWord(sql string, ask func(func() (answer, error)) (answer, *pgerr.Error)) (string, *pgerr.Error) {
	a, refused := ask(func() (answer, error) { return s.ask(sql) })
	switch {
	case refused != nil:
		return "", refused
	case a.failure != nil:
		return "", a.failure.PGError()
	case len(a.rows) != 1 || len(a.rows[0]) != 1:
		return "", pgerr.New(pgerr.InternalError, "a shard did not answer to %s", sql)
	}
	return a.rows[0][0], nil
}
