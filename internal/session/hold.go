package session

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/topology"
)

// While a table's columns or kind change, no statement may run that was planned before: all routers hold such statements back, and
// say so once none is under way (see package store, the schema state). A session publishes what it is about to plan before it looks
// at the schema's state, and whoever acknowledges a state looks at the sessions after it was published: so one of both sees the other.

// anyTables stands for a plan that is being made, or for several.
var anyTables = &planned{plan: &plan.Plan{}}

//
// A transaction that has used a table has it locked on a shard until it ends. So it goes on using it, whoever holds it, and is waited
// for to its end: one that waited for the hold would wait for who waits for its lock. Transactions that have not used it yet wait.

// usedTables are those that an open transaction has used. The session alone changes them.
type usedTables struct {
	mu     sync.Mutex
	tables []plan.RelationName
	// unseen: code ran of which nobody can tell what it used.
	unseen bool
	// keyspaces are those by whose owners its statements went.
	keyspaces []string
}

// addAll counts what a statement uses, seen or not.
func (u *usedTables) addAll(st *plan.Statement) {
	if st.Unseen && !u.unseen {
		u.mu.Lock()
		u.unseen = true
		u.mu.Unlock()
	}
	u.add(st.Uses)
}

func (u *usedTables) add(tables []plan.RelationName) {
	for _, table := range tables {
		if !slices.Contains(u.tables, table) {
			u.mu.Lock()
			u.tables = append(u.tables, table)
			u.mu.Unlock()
		}
	}
}

// forget takes tables out; none: all of them.
func (u *usedTables) forget(tables ...topology.TableName) {
	if len(u.tables) == 0 && !u.unseen {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(tables) == 0 {
		u.tables, u.unseen = u.tables[:0], false
		return
	}
	u.tables = slices.DeleteFunc(u.tables, func(name plan.RelationName) bool { return slices.Contains(tables, topology.TableName(name)) })
}

// oneOf says whether one of the tables of a hold is among them. Anybody may ask.
func (u *usedTables) oneOf(hold topology.Hold) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.isHeld(hold)
}

// isHeld is for the session itself, which alone changes them.
func (u *usedTables) isHeld(hold topology.Hold) bool {
	return coversOneOf(hold, u.tables) || u.unseen && mayCover(hold)
}

// mayCover says whether a hold covers a table that code may use of which nobody can tell what it does: one that is about to be on another shard, where such code would not find it. Definitions find it in their own way.
func mayCover(hold topology.Hold) bool { return hold.Move != "" }

func coversOneOf(hold topology.Hold, tables []plan.RelationName) bool {
	return slices.ContainsFunc(tables, func(name plan.RelationName) bool { return hold.Covers(topology.TableName(name)) })
}

// publish says what the session is about to run.
func (s *session) publish(p *planned) {
	if s.backend != nil || s.isSpread() { // what comes before it may have run already
		s.keepUsed()
	}
	if running := s.using.Load(); len(s.ops) > 0 && running != nil && running != p {
		p = anyTables
	}
	s.using.Store(p)
}

// admit counts a plan to those of the unit: nobody holds its tables, or it may use them all the same.
func (s *session) admit(p *planned) {
	if len(s.unitPlans) == 0 {
		s.unitView = s.view
	}
	s.unitPlans = append(s.unitPlans, p)
}

// quiet says that the session runs nothing, and what its transaction has used if it goes on.
func (s *session) quiet() {
	s.endWait()
	if len(s.ops) > 0 {
		return
	}
	s.giveUp()
	switch {
	case s.backend == nil && !s.isSpread():
		s.used.forgetKeyspaces()
	case s.hasFailed():
		s.used.forget() // a server that has failed has given up its locks
	default:
		s.keepUsed()
	}
	s.forgetUnit()
}

// keepUsed counts the tables of the unit among those that the transaction has used.
func (s *session) keepUsed() {
	for _, p := range s.unitPlans {
		for i := range p.plan.Statements {
			s.used.addAll(&p.plan.Statements[i])
		}
	}
}

// forgetUsed says that the transaction has ended, and with it its locks.
func (s *session) forgetUsed() {
	s.used.forget()
	s.used.forgetKeyspaces()
	clear(s.unitPlans)
	s.unitPlans = s.unitPlans[:0]
}

// forgetUnit says that nothing runs.
func (s *session) forgetUnit() {
	clear(s.unitPlans)
	s.unitPlans = s.unitPlans[:0]
	if s.using.Load() != nil {
		s.using.Store(nil)
	}
}

// holdOn returns what keeps a plan from running now: a hold of somebody else on one of its tables, unless who holds it has to wait for
// this session anyway.
func (s *session) holdOn(p *planned) (topology.Hold, bool) {
	for _, hold := range s.view.schema.Holds {
		if !s.holdsItself(hold.ID) && p.usesOneOf(hold) && !s.isWaitedFor(hold) {
			return hold, true
		}
	}
	return topology.Hold{}, false
}

// isWaitedFor says whether the transaction has used a table of the hold, or the unit is about to.
func (s *session) isWaitedFor(hold topology.Hold) bool {
	return s.used.isHeld(hold) ||
		len(s.ops) > 0 && slices.ContainsFunc(s.unitPlans, func(p *planned) bool { return p.usesOneOf(hold) })
}

// usesOneOf says whether one of the tables of a hold is used.
func (p *planned) usesOneOf(hold topology.Hold) bool {
	if p == anyTables {
		return true
	}
	for i := range p.plan.Statements { // each is large
		if st := &p.plan.Statements[i]; coversOneOf(hold, st.Uses) || st.Unseen && mayCover(hold) {
			return true
		}
	}
	return false
}

// awaitRelease waits until there is another state of the schema.
func (s *session) awaitRelease(hold topology.Hold) *pgerr.Error {
	if len(s.ops) > 0 { // what the unit has so far is still to be run as it was planned
		s.keepUsed()
	}
	s.forgetUnit()
	limited, end, refused := s.lockContext()
	if refused != nil {
		return refused
	}
	defer end()
	waiting, cancel := context.WithTimeout(limited, s.server.config.HoldTimeout)
	defer cancel()
	for {
		changed := s.server.config.MapChanged()
		if _, still := s.server.see().schema.Hold(hold.ID); !still {
			return nil
		}
		select {
		case <-changed:
		case <-waiting.Done():
			if refused := s.interrupted(limited); refused != nil {
				return refused
			}
			return pgerr.New(pgerr.LockNotAvailable, "the tables of the statement are being changed").
				WithDetail("%s has held them since %s, and the router waited %s for it to end.", hold.Why, hold.Since.Format(time.TimeOnly), s.server.config.HoldTimeout.Round(time.Second)).
				WithHint("Try again.")
		}
	}
}

// acknowledge tells which state of the schema this router goes by, as soon as nothing runs any more that must not under it.
func (s *Server) acknowledge(ctx context.Context) {
	for ctx.Err() == nil {
		changed := s.config.MapChanged()
		view := s.see()
		if s.awaitClear(ctx, view.schema, changed) {
			s.config.Acknowledge(view.schema.Epoch)
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// awaitClear waits until no session uses a table that is held. It gives up when there is another state.
func (s *Server) awaitClear(ctx context.Context, state topology.SchemaState, changed <-chan struct{}) bool {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		if s.isClear(state) {
			return true
		}
		select {
		case <-time.After(pause):
		case <-changed:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

func (s *Server) isClear(state topology.SchemaState) bool {
	if len(state.Holds) == 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, session := range s.sessions {
		p := session.using.Load() // first: what a transaction goes on using is among what it has used before this ends
		if p != nil && slices.ContainsFunc(state.Holds, p.usesOneOf) || slices.ContainsFunc(state.Holds, session.used.oneOf) {
			return false
		}
	}
	return true
}

// declaredAlike says whether two maps say the same of all tables that a plan uses, or may use.
func (p *planned) declaredAlike(a, b *topology.Map) bool {
	for _, st := range p.plan.Statements {
		if st.Unseen && !sameTables(a, b) {
			return false
		}
		for _, name := range st.Uses {
			if !alike(a, b, name) {
				return false
			}
		}
	}
	return true
}

// onlyMoved says whether two maps differ, in what they say of the tables that a plan uses, only by which shard has one that is on one shard alone.
func (p *planned) onlyMoved(a, b *topology.Map) bool {
	for _, st := range p.plan.Statements {
		for _, name := range st.Uses {
			if was, is := specIn(a, name), specIn(b, name); !alike(a, b, name) && (was.Kind != topology.Single || is.Kind != topology.Single) {
				return false
			}
		}
	}
	return true
}

// alike says whether two maps say the same of a table.
func alike(a, b *topology.Map, name plan.RelationName) bool {
	return sameTable(specIn(a, name), specIn(b, name))
}

// specIn is what a map says of a table. One that it does not have is on one shard alone: where its schema is, or on the home shard.
func specIn(m *topology.Map, name plan.RelationName) topology.TableSpec {
	if t := m.Table(name.Schema, name.Name); t != nil {
		return t.Spec()
	}
	spec := topology.TableSpec{Kind: topology.Single}
	if place, keyspace := m.LocateSchema(name.Schema); keyspace != nil {
		spec.Shard = place.Shard.Name()
		return spec
	}
	if home := m.Home(); home != nil {
		spec.Shard = home.Name()
	}
	return spec
}
