package session

import (
	"context"
	"slices"
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

// publish says what the session runs now.
func (s *session) publish(p *planned) {
	if running := s.using.Load(); len(s.ops) > 0 && running != nil && running != p {
		p = anyTables
	}
	s.using.Store(p)
}

// quiet says that the session runs nothing.
func (s *session) quiet() {
	if len(s.ops) == 0 && s.using.Load() != nil {
		s.using.Store(nil)
	}
}

// holdOn returns what keeps a plan from running now: a hold of somebody else on one of its tables.
func (s *session) holdOn(p *planned) (topology.Hold, bool) {
	for _, hold := range s.view.schema.Holds {
		if !s.holdsItself(hold.ID) && p.usesOneOf(hold) {
			return hold, true
		}
	}
	return topology.Hold{}, false
}

// usesOneOf says whether one of the tables of a hold is used.
func (p *planned) usesOneOf(hold topology.Hold) bool {
	if p == anyTables {
		return true
	}
	return slices.ContainsFunc(p.plan.Statements, func(st plan.Statement) bool {
		return slices.ContainsFunc(st.Uses, func(name plan.RelationName) bool { return hold.Covers(topology.TableName(name)) })
	})
}

// awaitRelease waits until there is another state of the schema.
func (s *session) awaitRelease(hold topology.Hold) *pgerr.Error {
	s.using.Store(nil)
	waiting, cancel := context.WithTimeout(s.waitContext(), s.server.config.HoldTimeout)
	defer cancel()
	defer s.waited()
	for {
		changed := s.server.config.MapChanged()
		if _, still := s.server.see().schema.Hold(hold.ID); !still {
			return nil
		}
		select {
		case <-changed:
		case <-waiting.Done():
			if waiting.Err() == context.Canceled && s.ctx.Err() == nil {
				return pgerr.New(pgerr.QueryCanceled, "canceling statement due to user request")
			}
			return pgerr.New(lockNotAvailable, "the tables of the statement are being changed").
				WithDetail("%s has held them since %s, and the router waited %s for it to end.", hold.Why, hold.Since.Format(time.TimeOnly), s.server.config.HoldTimeout.Round(time.Second)).
				WithHint("Try again.")
		}
	}
}

// lockNotAvailable is PostgreSQL's SQLSTATE for a lock that could not be had in time.
const lockNotAvailable = "55P03"

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
		p := session.using.Load()
		if p != nil && slices.ContainsFunc(state.Holds, p.usesOneOf) {
			return false
		}
	}
	return true
}

// declaredAlike says whether two maps say the same of all tables that a plan uses.
func (p *planned) declaredAlike(a, b *topology.Map) bool {
	for _, st := range p.plan.Statements {
		for _, name := range st.Uses {
			before, now := a.Table(name.Schema, name.Name), b.Table(name.Schema, name.Name)
			if (before == nil) != (now == nil) || before != nil && !sameTable(before.Spec(), now.Spec()) {
				return false
			}
		}
	}
	return true
}
