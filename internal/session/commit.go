package session

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/wire"
)

// told is what a leg has answered; err says that it is lost.
type told struct {
	answer
	err error
}

// refusal is the error of an answer, nil if it is a good one.
func (t *told) refusal(l *leg) *pgerr.Error {
	switch {
	case t.err != nil:
		return pgerr.New(pgerr.ConnectionFailure, "the connection to shard %q was lost", l.backend.ShardName()).WithDetail("%s", t.err)
	case t.failure != nil:
		return t.failure.PGError()
	default:
		return nil
	}
}

// tellLegs runs a statement on several legs side by side. They are among those that are set aside, and stay there unless they are
// lost.
func (s *session) tellLegs(legs []*leg, sql func(*leg) string) []told {
	s.setWorking(legs)
	defer s.setWorking(nil)
	return s.tellFirmly(legs, sql)
}

// tellFirmly is tellLegs for what no request of the client's cancels: the outcome is decided.
func (s *session) tellFirmly(legs []*leg, sql func(*leg) string) []told {
	first, answers := s.writeLegs(legs, sql)
	return s.hearLegs(legs, first, answers)
}

// writeLegs is the first half of telling legs something. It returns how many answers come first from each, to what it had to be told anyhow.
func (s *session) writeLegs(legs []*leg, sql func(*leg) string) (first []int, answers []told) {
	answers, first = make([]told, len(legs)), make([]int, len(legs))
	for i, l := range legs {
		text := sql(l) // which may have something to say before
		var out []byte
		for _, line := range l.pending {
			out = wire.AppendQuery(out, line.on(l.backend.Shard()))
		}
		first[i] = len(l.pending)
		if len(l.before) > 0 {
			out = wire.AppendSync(appendStatement(append(out, l.before...), text))
		} else {
			out = wire.AppendQuery(out, text)
		}
		l.pending, l.before, l.state.unnamed = nil, nil, nil
		if _, err := l.backend.Conn().Write(out); err != nil {
			answers[i].err = err
		}
	}
	return first, answers
}

// appendStatement has a statement run that has no parameters and is not seen again. Whoever sends a Sync after several is answered once.
func appendStatement(out []byte, text string) []byte {
	out = wire.AppendParse(out, "", text, nil)
	out = wire.AppendBind(out, "", "", nil, nil, nil)
	return wire.AppendExecute(out, "", 0)
}

// hearLegs is the second half.
func (s *session) hearLegs(legs []*leg, first []int, answers []told) []told {
	for i, l := range legs {
		if answers[i].err == nil {
			answers[i] = s.hearLeg(l, first[i])
		}
		if answers[i].err != nil {
			s.dropLeg(l, answers[i].err.Error())
		}
	}
	return answers
}

// setWorking says which legs a request to cancel concerns.
func (s *session) setWorking(legs []*leg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.works(len(legs) > 0)
	for _, l := range legs {
		s.working = append(s.working, l.backend)
	}
}

// works forgets who was at work; some: others are now. The caller holds the lock.
func (s *session) works(some bool) {
	if some {
		s.noteWait(time.Now())
	}
	s.working = s.working[:0]
}

// hearLeg reads a leg's answer without putting it to work.
func (s *session) hearLeg(l *leg, first int) told {
	backend, state := s.backend, s.state
	s.backend, s.state = l.backend, l.state
	a, err := s.hear(first)
	s.backend, s.state = backend, state
	if err == nil {
		l.status = a.status
	}
	return told{a, err}
}

// dropLeg closes a leg that broke, or of which nobody knows where it is.
func (s *session) dropLeg(l *leg, reason string) {
	s.detachLeg(l)
	shard := l.backend.Shard()
	if p := s.pinned[shard]; p != nil && p.backend == l.backend {
		s.unpin(shard, reason)
		s.lostPin = p.isLost()
		return
	}
	l.backend.Retire(reason)
}

func (s *session) detachLeg(l *leg) {
	s.mu.Lock()
	delete(s.legs, l.backend.Shard())
	s.mu.Unlock()
}

// releaseLegs gives back what is left of the legs after the transaction.
func (s *session) releaseLegs() {
	for _, l := range s.allLegs() {
		if l.status != statusIdle {
			s.dropLeg(l, "its transaction did not end")
			continue
		}
		s.detachLeg(l)
		s.giveBack(l.backend)
	}
}

// commitLegs commits the transaction on all its shards, or on none. It returns what went wrong, nil if it is committed.
func (s *session) commitLegs() *pgerr.Error {
	legs := s.allLegs()
	last, others, readers := s.divideLegs(legs)
	s.notices = true // such as that a commit has not waited for its replicas
	defer func() { s.notices = false }()
	refused := s.stillHolds()
	switch {
	case refused != nil, last == nil:
	case len(others) == 0:
		refused = s.commitOne(last)
	default:
		refused = s.commitTwoPhase(last, others)
	}
	if refused != nil {
		s.rollbackLegs()
		return refused
	}
	for i, a := range s.tellLegs(readers, always("COMMIT")) {
		if a.refusal(readers[i]) != nil {
			s.server.config.Logger.Warn("a shard that was only read from did not end its part of a transaction", "shard", readers[i].backend.ShardName())
		}
	}
	return nil
}

func always(sql string) func(*leg) string { return func(*leg) string { return sql } }

// divideLegs says who wrote: last is the one that is committed without being prepared.
func (s *session) divideLegs(legs []*leg) (last *leg, others, readers []*leg) {
	readOnly := len(legs) > 1 && s.beganReadOnly()
	for _, l := range legs {
		switch {
		case !l.wrote || readOnly:
			readers = append(readers, l)
		case last == nil: // the home shard has the lowest number
			last = l
		default:
			others = append(others, l)
		}
	}
	return last, others, readers
}

// beganReadOnly says whether the transaction has been READ ONLY from its beginning, so that nobody can have written, whatever was run.
func (s *session) beganReadOnly() bool {
	var words []string
	scanner := sqltext.NewScanner([]byte(s.tx.begin), s.standardConforming()) // which passes over comments
	for token, more := scanner.Next(); more; token, more = scanner.Next() {
		words = append(words, strings.ToLower(s.tx.begin[token.Start:token.End]))
	}
	said := strings.Join(words, " ")
	return strings.Contains(said, "read only") && !strings.Contains(said, "read write") &&
		!slices.ContainsFunc(s.tx.script, func(l line) bool { return strings.Contains(strings.ToLower(l.sql), "read") })
}

func (s *session) commitOne(l *leg) *pgerr.Error {
	a := s.tellLegs([]*leg{l}, always("COMMIT"))[0]
	if a.err != nil {
		return pgerr.New(pgerr.OutcomeUnknown, "the outcome of the transaction is not known").
			WithDetail("Only shard %q has written in it, and was lost while it committed: %s.", l.backend.ShardName(), a.err)
	}
	if refused := a.refusal(l); refused != nil {
		return refused
	}
	if a.tag != "COMMIT" {
		return rolledBack(l)
	}
	return nil
}

// rolledBack is for a shard that was told to commit and did something else.
func rolledBack(l *leg) *pgerr.Error {
	return pgerr.New(pgerr.InternalError, "shard %q rolled its part of the transaction back", l.backend.ShardName())
}

// identity is who a backend acts as.
type identity struct{ authorization, role string }

// effectiveIdentity is who the transaction acts as: a prepared transaction can be ended by nobody else, and after PREPARE the session
// may be somebody else again.
func (s *session) effectiveIdentity() identity {
	word := func(settings *settings, name string) string {
		if e, set := settings.find(name); set {
			return e.sql
		}
		return ""
	}
	now, after := s.effective(), s.log.apply(s.settings, s.base, true)
	inside := identity{word(now, "session_authorization"), word(now, "role")}
	if outside := (identity{word(after, "session_authorization"), word(after, "role")}); inside == outside {
		return identity{}
	}
	return inside
}

// become is what makes a backend act as somebody.
func (s *session) become(who identity) script {
	lines := script{}
	if who.authorization != "" {
		lines = append(lines, line{sql: "SET SESSION AUTHORIZATION " + who.authorization})
	}
	if who.role != "" {
		lines = append(lines, line{sql: "SET ROLE " + who.role})
	}
	return lines
}

// rollbackLegs undoes the transaction wherever it is still open.
func (s *session) rollbackLegs() {
	legs := slices.DeleteFunc(s.allLegs(), func(l *leg) bool { return l.status == statusIdle })
	for _, l := range legs {
		l.pending = nil // of no use any more
	}
	for i, a := range s.tellLegs(legs, always("ROLLBACK")) {
		if a.err == nil && a.failure != nil {
			s.dropLeg(legs[i], "it could not be rolled back")
		}
	}
}

// errLegLost ends the reading of an answer whose shard is gone.
var errLegLost = errors.New("a leg was lost")

// endSpread ends a transaction that is on several shards, as COMMIT or ROLLBACK says, and returns the command tag.
func (s *session) endSpread(st *plan.Statement) (tag string, refused *pgerr.Error) {
	before := s.tx
	tag = "ROLLBACK"
	if st.Command == plan.Commit && !s.hasFailed() {
		tag = "COMMIT"
		refused = s.commitLegs()
	} else {
		s.rollbackLegs()
	}
	s.spreadEnded(tag == "COMMIT" && refused == nil)
	if refused == nil && st.Transaction.Chain {
		s.tx = before.next()
	}
	return tag, refused
}

// spreadEnded notes that no leg has a transaction any more.
func (s *session) spreadEnded(committed bool) {
	legs := s.allLegs()
	if d := s.server.config.Definitions; committed && d != nil && len(s.tx.dropped) > 0 {
		if refused := d.Dropped(s.ctx, s.tx.dropped); refused != nil {
			s.out = wire.AppendNotice(s.out, "WARNING", refused)
		}
	}
	s.definitionsEnd()
	if committed {
		s.keepLegSettings(legs)
	} else {
		s.log.reset()
		s.takeBackParameters()
		s.contextChanged()
	}
	s.releaseLegs()
	s.endTransaction()
}

// keepLegSettings makes what the transaction set the session's, and that of the backends which have all of it.
func (s *session) keepLegSettings(legs []*leg) {
	s.keepSettings()
	for _, l := range legs {
		if l.state.settings = s.settings; l.stranger {
			l.state.settings = nil
		}
	}
}
