package session

import (
	"slices"
	"unicode/utf8"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/wire"
)

// goesApart says whether a statement of a text has to run elsewhere than those before it.
func (s *session) goesApart(st *plan.Statement, src source) (bool, *pgerr.Error) {
	switch {
	case s.concernsLegs(st), st.Binary, asksNumbers(st), st.Route.Level == plan.Composed, mayCompose(st), st.Route.Level == plan.AnyOwner && len(st.Route.Numbers) > 0:
		return true, nil
	case s.whatRuns(st).Route.Hinted && s.currentMap().IsMoving(): // views stand in for its tables
		return true, nil
	}
	if how, refused := s.timingOf(st, src); how != asItIs || refused != nil {
		return refused == nil, refused
	}
	shard, refused := s.place(st, src)
	if refused != nil || shard == noShard {
		return false, refused
	}
	now := s.shardNow()
	return shard < noShard || now != noShard && shard != now, nil
}

// goesStepByStep says whether the statements of a text cannot be planned together: one defines something, and another has to do with
// that; or the session itself has a part in one.
func goesStepByStep(statements []plan.Statement) bool {
	defines := false
	for i := range statements {
		st := &statements[i]
		if st.Refusal != nil && (defines || st.Rule == "unsettled-names") {
			return true
		}
		defines = defines || st.Schema
		if callsOwn(st) || st.Command == plan.Deallocate || st.Command == plan.DiscardAll || setsOurs(st) {
			return true
		}
	}
	return false
}

// callsOwn says whether a statement calls a function of the router that changes something, outside any transaction.
func callsOwn(st *plan.Statement) bool {
	return slices.ContainsFunc(st.Virtual, func(v plan.Virtual) bool { return v.Function && !isHarmless(v.Name) })
}

// stepThrough runs the statements of a text one by one, since they are not all on one shard, or not all known before others have run; as
// in PostgreSQL they are one transaction, as far as the text itself does not begin and end some.
func (s *session) stepThrough(p *planned, text []byte) error {
	s.target, s.inText, s.erred = noShard, true, false
	s.textHint, _ = s.hintIn(text) // which was understood when it was planned as a whole
	err := s.runSteps(p.plan.Statements, text)
	s.inText, s.skipping, s.textGoesOn, s.textBefore, s.textHint = false, false, false, 0, ""
	if err != nil {
		return err
	}
	s.endImplicit()
	s.out = wire.AppendReadyForQuery(s.out, s.currentStatus())
	return s.write()
}

func (s *session) runSteps(statements []plan.Statement, text []byte) error {
	for i := range statements {
		st := &statements[i]
		s.textGoesOn = i < len(statements)-1
		if own := callsOwn(st); own && s.tx.implicit {
			if s.commitStep(st); s.erred {
				return nil
			}
		} else if !own && s.currentStatus() == statusIdle && st.Command != plan.Begin {
			s.startBlock()
		}
		s.textBefore = utf8.RuneCount(text[:st.Start])
		if err := s.runText(text[st.Start:st.End]); err != nil {
			return err
		}
		if s.skipping = false; s.erred {
			return nil
		}
	}
	return nil
}

// commitStep commits what a text has done so far, for a function of the router that runs outside transactions: what is in the text before it
// is what it is about, as where a table is made and declared.
func (s *session) commitStep(st *plan.Statement) {
	s.endImplicit()
	if !s.erred {
		s.progress("what stands before cleave.%s in the query string is committed", st.Virtual[0].Name)
	}
}

// rollbackSpreadTo takes all shards of the transaction back to a savepoint. Those that joined later, or were not used since, have
// nothing to take back.
func (s *session) rollbackSpreadTo(savepoint string) *pgerr.Error {
	if s.tx.script.at(savepoint) < 0 {
		return pgerr.New(pgerr.InvalidSavepoint, "savepoint \"%s\" does not exist", savepoint)
	}
	legs := s.allLegs()
	s.rollbackToSavepoint(savepoint)
	s.say(savepointLine(plan.RollbackTo, savepoint))
	concerned := slices.DeleteFunc(legs, func(l *leg) bool { return !l.pending.endsInRollback(savepoint) })
	s.tx.failed = false
	var failure *pgerr.Error
	for i, a := range s.tellLegs(concerned, always("")) {
		if refused := a.refusal(concerned[i]); refused != nil && failure == nil {
			failure = refused
		}
		if a.err != nil {
			s.rollbackLegs()
			s.releaseLegs()
			s.endLost(true)
			return failure
		}
	}
	s.contextChanged()
	return failure
}

// bindSpread makes a portal on several shards, which all get the same.
func (s *session) bindSpread(only *plan.Statement, src source, o op) *pgerr.Error {
	run := src.statement
	explain := s.explain(only)
	if !only.Plain || s.loading != nil || s.momentEdits != nil {
		var refused *pgerr.Error
		if run, refused = s.rewritten(run, only, src); refused != nil {
			return refused
		}
	}
	if s.loading == nil {
		var refused *pgerr.Error
		if run, refused = s.ownedStatement(run); refused != nil {
			return refused
		}
	}
	o.statement = run
	s.keepSpread(o, run, explain)
	return nil
}

func (s *session) keepSpread(o op, run *statement, explain []string) {
	o.undo = s.keepPortal(o.portal, portal{statement: run, explain: explain, shards: s.spreadTo, parts: s.spreadParts, order: s.rowOrder, limit: s.spreadLimit, carried: o.carried})
	s.ops = append(s.ops, o)
}

// endSpreadUnit runs what the unit has for several shards before a message that is not about it: the answers have to come in the
// messages' order.
func (s *session) endSpreadUnit(kind byte) *pgerr.Error {
	if len(s.spreadTo) == 0 {
		return nil
	}
	ran := slices.ContainsFunc(s.ops, func(o op) bool { return o.kind == opExecute })
	if !ran && (kind == wire.MsgDescribe || kind == wire.MsgExecute) {
		return nil
	}
	return s.finishStep()
}

// goWhere makes the shards that have a portal the unit's.
func (s *session) goWhere(p *portal) *pgerr.Error {
	if s.isSpread() && s.takesNothing() {
		return inFailedTransaction
	}
	if len(p.shards) == 0 {
		if refused := s.leaveSpread(); refused != nil || p.shard == 0 || !s.isSpread() {
			return refused
		}
		if s.shardNow() == p.shard || s.legs[p.shard] == nil {
			return nil
		}
		return s.changeShard(nothing, p.shard)
	}
	if slices.Equal(p.shards, s.spreadTo) && p.parts == s.spreadParts && slices.Equal(p.order, s.rowOrder) && p.limit == s.spreadLimit {
		return nil
	}
	if refused := s.goOn(); refused != nil {
		return refused
	}
	s.spreadTo, s.spreadParts, s.rowOrder, s.spreadLimit = p.shards, p.parts, p.order, p.limit
	return nil
}

// leaveSpread runs what the unit has for several shards, if it has, so that something else can follow.
func (s *session) leaveSpread() *pgerr.Error {
	if len(s.spreadTo) == 0 {
		return nil
	}
	return s.finishStep()
}
