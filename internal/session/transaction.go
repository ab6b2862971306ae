package session

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/pool"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/internal/wire"
)

// attach gets a backend of the unit's shard and brings it to the session's settings. An error that is a *pgerr.Error is for
// the client.
func (s *session) attach() error {
	if s.backend != nil {
		return nil
	}
	shard, refused := s.wantedShard()
	if refused != nil {
		return refused
	}
	if l := s.legs[shard]; l != nil && !s.isAside {
		s.resume(l)
		return nil
	}
	if refused := s.learnNumbers(shard); refused != nil {
		return refused
	}
	for attempt := 1; ; attempt++ {
		if err := s.borrow(shard); err != nil {
			return err
		}
		err := s.bring()
		if err == nil || refusalIn(err) != nil {
			return err
		}
		// The backend broke before anything of the client's was sent.
		isPinned := s.pinned[shard] != nil
		lost := s.dropLost(err)
		if isPinned || attempt == maxAttempts {
			return lost.WithDetail("%s. Nothing was sent.", err)
		}
	}
}

// wantedShard is the unit's. One that any shard will do for stays where the transaction is.
func (s *session) wantedShard() (int, *pgerr.Error) {
	if s.target != noShard {
		return s.target, nil
	}
	if s.isSpread() && !s.isAside {
		return slices.Min(slices.Collect(maps.Keys(s.legs))), nil
	}
	m := s.currentMap()
	for shard := range m.Shards() { // the home shard is the first of them
		if shard.State() != topology.Maintenance {
			return shard.Number(), nil
		}
	}
	if home := m.Home(); home != nil {
		return noShard, inMaintenance(home)
	}
	return noShard, errNoShards
}

// refusalIn returns the error that is for the client, nil if there is none.
func refusalIn(err error) *pgerr.Error {
	var refused *pgerr.Error
	errors.As(err, &refused)
	return refused
}

var errNoShards = pgerr.New(pgerr.CannotConnectNow, "the cluster has no shards").WithHint("Add one: cleave shard add NAME …")

// borrow takes the session's own backend of a shard, or one from the pool.
func (s *session) borrow(shard int) error {
	if p := s.pinned[shard]; p != nil && (!s.isAside || s.asksOwn) {
		if !p.backend.Alive() {
			s.unpin(shard, "the server closed it")
			return p.isLost()
		}
		s.hold(p.backend)
		return nil
	}
	ctx := s.waitContext()
	backend, err := s.server.config.Pools.Acquire(ctx, shard, s.identity, s.settings.affinity)
	s.waited()
	if ctx.Err() != nil && s.ctx.Err() == nil {
		if err == nil {
			backend.Release()
		}
		s.cancelled.Store(false)
		return s.cancellation()
	}
	if err != nil {
		if refused := refusalIn(err); refused != nil {
			return refused
		}
		return pgerr.New(pgerr.ConnectionFailure, "no backend could be had").WithDetail("%s", err)
	}
	if refused := s.mayRunOn(backend); refused != nil {
		backend.Release()
		return refused
	}
	s.hold(backend)
	if s.poolMode == SessionMode && !s.isAside {
		s.pin("session pooling")
		s.state.settings = nil // so that what is not tracked goes too, such as the last values of sequences
	}
	return nil
}

// hold makes a backend the session's, for as long as a transaction lasts.
func (s *session) hold(backend *pool.Backend) {
	s.backend, s.state = backend, backend.State.(*serverState) //nolint:forcetypeassert // OnLogin puts it there
	s.joined, s.wrote, s.pending = false, false, nil
	s.mu.Lock()
	s.active = backend
	s.mu.Unlock()
}

// letGo takes the backend from those who may cancel it; a cancellation that is under way is waited for, so that it does not
// hit the next one.
func (s *session) letGo() *pool.Backend {
	s.written()
	s.mu.Lock()
	s.active = nil
	s.mu.Unlock()
	backend := s.backend
	s.backend, s.state, s.unsynced = nil, nil, false
	return backend
}

// waitContext ends when a client cancels while it waits for a backend. Most do not wait, so it is made once and kept.
func (s *session) waitContext() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waitCtx == nil || s.waitCtx.Err() != nil {
		s.waitCtx, s.cancelWait = context.WithCancel(s.ctx)
	}
	if s.cancelled.Load() {
		s.cancelWait()
	}
	s.waiting = true
	return s.waitCtx
}

func (s *session) waited() {
	s.mu.Lock()
	s.waiting = false
	s.mu.Unlock()
}

// bring gives the backend the session's settings. The common case costs nothing.
func (s *session) bring() error {
	from := s.state.settings
	if s.state.tainted && s.state.user != s.number {
		from = nil
	}
	if from == nil {
		s.state.forgetPrepared()
	}
	if s.state.user != s.number {
		s.state.user = s.number
		s.state.tainted = false
		s.state.unnamed = nil
	}
	if from.same(s.settings) {
		return nil
	}
	if err := s.applyAround(from); err != nil {
		return err
	}
	s.state.settings = s.settings
	return nil
}

// applyAround gives the backend the settings from before the transaction; what that one changed, the client knows.
func (s *session) applyAround(from *settings) error {
	inside := s.reportedBefore != nil
	s.unheard = inside
	err := s.apply(from, s.settings)
	s.unheard = false
	if !inside {
		s.reportedBefore = nil
	}
	return err
}

// apply runs the statements that lead from one state to another; what the server reports of parameters goes to the client.
func (s *session) apply(from, to *settings) error {
	statements := transition(from, to)
	if len(statements) == 0 {
		return nil
	}
	answer, err := s.ask(strings.Join(statements, "; "))
	if err != nil || answer.failure == nil {
		return err
	}
	failure := answer.failure.PGError()
	failure.Severity, failure.Position = pgerr.SeverityError, 0
	name := s.backend.ShardName()
	s.state.settings = nil
	_ = s.settle()
	if failure.Detail == "" {
		failure = failure.WithDetail("A setting of this session could not be given to shard %q.", name)
	}
	return failure
}

// transactionOver: the backend has told that no transaction is open.
func (s *session) transactionOver() {
	s.keepSettings()
	s.endTransaction()
}

// endTransaction forgets what lasts as long as a transaction.
func (s *session) endTransaction() {
	s.forgetPortals()
	s.definitionsEnd()
	s.tx = transaction{}
	s.status, s.joined, s.wrote, s.pending = statusIdle, false, false, nil
	s.reportedBefore = nil
}

// definitionsEnd: what the transaction defined, if it did, is there for all from now on, or for nobody.
func (s *session) definitionsEnd() {
	s.forgetUsed()
	if s.tx.defined != "" {
		s.tx.defined = ""
		if s.tx.public {
			s.server.schemaChanged()
		}
		s.contextChanged()
		if d := s.server.config.Definitions; d != nil && s.tx.shared && len(s.holds) == 0 { // releasing a hold tells them too
			s.using.Store(nil)
			d.Changed(s.ctx)
		}
		s.tx.shared, s.tx.public = false, false
	}
	s.releaseHolds()
}

// isShared says whether a definition is surely one that other routers have to hear of: not a temporary table's, nor what CALL and
// DO may or may not define, which they notice by themselves in a moment.
func isShared(st *plan.Statement) bool {
	return len(st.Drops) == 0 && st.Name != "CALL" && st.Name != "DO"
}

// releaseHolds lets others use the tables again that the transaction has changed.
func (s *session) releaseHolds() {
	held := s.holds
	s.holds = nil
	if len(held) > 0 {
		s.using.Store(nil)
	}
	for _, h := range held {
		h.release()
	}
}

// keepSettings makes what the transaction set the session's, and cursors that it declared WITH HOLD.
func (s *session) keepSettings() {
	s.keepSwitches()
	for _, c := range s.log.held {
		c.kept = true
	}
	if len(s.log.changes) == 0 {
		s.log.reset()
		return
	}
	s.settings = s.log.apply(s.settings, s.base, true)
	s.log.reset()
	if e, set := s.settings.find("application_name"); set && len(e.values) == 1 {
		s.mu.Lock()
		s.application = e.values[0]
		s.mu.Unlock()
	}
	if s.state != nil {
		s.state.settings = s.settings
	}
	s.contextChanged()
}

// settle gives the backend back when the transaction is over.
func (s *session) settle() error {
	if s.backend == nil || s.status != statusIdle || s.unsynced {
		return nil
	}
	s.giveBack(s.letGo())
	return nil
}

// giveBack returns a clean backend to the pool, unless the session keeps it.
func (s *session) giveBack(backend *pool.Backend) {
	if p := s.pinned[backend.Shard()]; p != nil && p.backend == backend {
		return
	}
	backend.Affinity = 0
	if state := backend.State.(*serverState); state.settings != nil && !state.tainted { //nolint:forcetypeassert // ours
		backend.Affinity = state.settings.affinity
	}
	backend.Release()
}

// drop closes the backend.
func (s *session) drop(reason string) {
	shard := s.backend.Shard()
	backend := s.backend
	backend.Retire(reason)
	s.letGo()
	s.mu.Lock()
	if p := s.pinned[shard]; p != nil && p.backend == backend {
		delete(s.pinned, shard)
		s.lostPin = p.isLost()
	}
	s.mu.Unlock()
}

// dropLost is drop for a connection that broke, and what the client is told of it.
func (s *session) dropLost(err error) *pgerr.Error {
	name := s.backend.ShardName()
	s.drop(err.Error())
	return lostShard(name, err)
}

func lostShard(name string, err error) *pgerr.Error {
	return pgerr.New(pgerr.ConnectionFailure, "the connection to shard %q was lost", name).WithDetail("%s", err)
}

// isLost says goodbye to a session whose own backend is gone, and with it what it was kept for.
func (p *pinned) isLost() *pgerr.Error {
	return pgerr.Fatal(pgerr.AdminShutdown, "terminating connection: the backend on shard %q that this session kept is lost", p.backend.ShardName()).
		WithDetail("The session kept it for %s.", p.why()).WithHint("Connect again.")
}

// pin keeps the attached backend for the session.
func (s *session) pin(reason plan.Pin) {
	shard := s.backend.Shard()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pinned == nil {
		s.pinned = map[int]*pinned{}
	}
	p := s.pinned[shard]
	if p == nil {
		p = &pinned{backend: s.backend, since: time.Now()}
		s.pinned[shard] = p
	}
	if !p.has(reason) {
		p.reasons = append(p.reasons, reason)
	}
	s.mayBeSpread()
}

// unpin closes a backend that the session kept.
func (s *session) unpin(shard int, reason string) {
	s.mu.Lock()
	p := s.pinned[shard]
	delete(s.pinned, shard)
	s.mu.Unlock()
	p.backend.Retire(reason)
}

// blockEnds: what follows in the same unit is in no block any more, so an error undoes it.
func (s *session) blockEnds(st *plan.Statement) {
	s.tx.level, s.tx.since = "", nil
	if !st.Transaction.Chain {
		s.status = statusIdle
		s.tx.begin, s.tx.script, s.tx.characteristics = "", nil, nil
		return
	}
	s.tx.script = slices.Clone(s.tx.characteristics)
}

// begunBySQL notes the BEGIN that stood in a text with other statements: a shard that joins later has to begin alike.
func (s *session) begunBySQL(st *plan.Statement, e *expect) {
	if s.tx.begin != "" {
		return
	}
	text := s.ops[e.op].original
	switch prepared := s.ops[e.op].statement; {
	case prepared != nil:
		text = s.withoutEnds([]byte(prepared.text))
	case text != nil:
		text = text[st.Start:st.End]
	default: // it was alone in its text
		text = s.withoutEnds(s.ops[e.op].data)
	}
	s.tx.begin, s.tx.implicit = string(text), false
}

// succeeded notes what a statement that the server has run leaves behind.
func (s *session) succeeded(st *plan.Statement, e *expect, tag []byte) {
	switch st.Command {
	case plan.Begin:
		s.status = statusOpen
		s.begunBySQL(st, e)
	case plan.Commit:
		s.definitionsEnd()
		if string(tag) == "COMMIT" {
			s.keepSettings()
			s.reportedBefore = nil
		} else {
			s.log.reset()
			s.contextChanged()
		}
		s.blockEnds(st)
	case plan.Rollback:
		s.definitionsEnd()
		s.log.reset()
		s.contextChanged()
		s.blockEnds(st)
	case plan.Savepoint:
		s.log.savepoint(st.Transaction.Savepoint)
		s.say(savepointLine(st.Command, st.Transaction.Savepoint))
	case plan.ReleaseSavepoint:
		s.releaseSavepoint(st.Transaction.Savepoint)
		s.say(savepointLine(st.Command, st.Transaction.Savepoint))
	case plan.RollbackTo:
		s.rollbackToSavepoint(st.Transaction.Savepoint)
		s.say(savepointLine(st.Command, st.Transaction.Savepoint))
		s.tx.failed = false
		s.contextChanged()
	case plan.SetVariable, plan.ResetVariable, plan.ResetAll:
		s.record(st)
		s.saySettings(st)
		s.contextChanged()
	case plan.SetConstraints:
		s.say(constraintsLine(st))
	case plan.Prepare:
		s.preparedBySQL(st, e)
	case plan.DiscardSequences:
		s.told.forget()
	case plan.DiscardTemp:
		clear(s.temporary)
		s.contextChanged()
	case plan.Pass:
		if len(st.Settings) > 0 {
			s.record(st)
			s.saySettings(st)
			s.contextChanged()
		}
	default: // nothing that the session keeps
	}
	if st.Cursor != nil && st.Cursor.All {
		s.closeCursors()
	}
	s.tx.locked = s.tx.locked || st.Upkeep
	if st.Schema && len(st.Creates) == 0 { // temporary relations are known to the session by their names
		s.tx.defined = st.Name
		s.tx.shared = s.tx.shared || isShared(st)
		s.tx.public = s.tx.public || len(st.Drops) == 0
		s.contextChanged()
	}
	if st.Pin != "" && s.backend != nil {
		s.pin(st.Pin)
	}
	if st.Taints {
		s.state.tainted = true
	}
	for _, name := range st.Drops {
		delete(s.temporary, name)
		s.contextChanged()
	}
	for _, name := range st.Creates {
		if s.temporary == nil {
			s.temporary = map[string]bool{}
		}
		s.temporary[name] = true
		s.contextChanged()
	}
}

// noteParameter remembers what a server reports, and says whether that is news to the client.
func (s *session) noteParameter(message []byte) (isNews bool) {
	name, value, err := wire.DecodeParameterStatus(wire.Body(message))
	if err != nil {
		return false
	}
	if s.state != nil {
		s.state.reported[string(name)] = string(value)
	}
	if s.unheard || s.reported[string(name)] == string(value) {
		return false
	}
	if s.reportedBefore == nil {
		s.reportedBefore = maps.Clone(s.reported)
	}
	s.reported[string(name)] = string(value)
	s.contextChanged()
	return true
}

// hearParameters compares what the client was told with what the backend has: one that had the session's settings already
// reports nothing.
func (s *session) hearParameters() {
	for name, value := range s.state.reported {
		if s.reported[name] == value {
			continue
		}
		s.reported[name] = value
		s.contextChanged()
		if s.ready {
			s.out = wire.AppendParameterStatus(s.out, name, value)
		}
	}
}

// takeBackParameters tells the client what parameters are after a transaction that was undone where no server can tell it.
func (s *session) takeBackParameters() {
	for name, value := range s.reportedBefore {
		if s.reported[name] != value {
			s.out = wire.AppendParameterStatus(s.out, name, value)
		}
	}
	if s.reportedBefore != nil {
		s.reported, s.reportedBefore = s.reportedBefore, nil
		s.contextChanged()
	}
}
