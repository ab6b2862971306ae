package session

import (
	"context"
	"errors"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/internal/wire"
)

// rolloutInTheWay refuses a definition of tables that shards have in two forms: it could not be the same on both.
func (s *session) rolloutInTheWay(st *plan.Statement) *pgerr.Error {
	if refused := s.moveInTheWay(st); refused != nil {
		return refused
	}
	if !st.Schema || len(st.Alters) == 0 {
		return nil
	}
	tables := make([]topology.TableName, len(st.Alters))
	for i, name := range st.Alters {
		tables[i] = topology.TableName(name)
	}
	if r, open := s.server.see().schema.OpenRollout(tables...); open {
		return shard.RolloutInTheWay(r)
	}
	return nil
}

// moveInTheWay refuses a definition that has to do with tables whose rows are moving: both shards must have them as they were, and views of theirs too.
func (s *session) moveInTheWay(st *plan.Statement) *pgerr.Error {
	if !st.Schema && len(st.Holds) == 0 {
		return nil
	}
	state := s.server.see().schema
	if st.Beyond && len(state.Moves) > 0 { // what stands in for the tables and views of a move meanwhile would keep what they had
		return shard.MoveInTheWay(state.Moves[0])
	}
	for _, list := range [][]plan.RelationName{st.Alters, st.Uses, st.Holds} {
		for _, name := range list {
			if st.Fills != (plan.RelationName{}) && name != st.Fills { // it is only read
				continue
			}
			if m, moving := state.MoveOf(topology.TableName(name)); moving {
				return shard.MoveInTheWay(m)
			}
		}
	}
	for _, schema := range st.InSchemas {
		if m, moving := state.MoveOf(topology.TableName{Schema: schema}); moving {
			return shard.MoveInTheWay(m)
		}
	}
	return nil
}

// isRollout says whether a function of the router is one of roll-outs.
func isRollout(function string) bool { return strings.HasPrefix(function, "rollout_") }

// mayRollOut refuses to go on with a roll-out where its text would not be read as it was written: others began it, under their settings.
func (s *session) mayRollOut(function string) *pgerr.Error {
	if !isRollout(function) {
		return nil
	}
	refused := pgerr.New(pgerr.FeatureNotSupported, "cleave.%s is not supported with these settings", function)
	switch {
	case s.foreignEncoding:
		return refused.WithDetail("What a roll-out runs is kept in UTF8, and the client has another encoding.").WithHint("SET client_encoding TO 'UTF8'.")
	case !s.standardConforming():
		return refused.WithDetail("What a roll-out runs is kept as standard_conforming_strings = on reads it.").WithHint("SET standard_conforming_strings TO on.")
	}
	return nil
}

var errLeftOpen = errors.New("a transaction was left open")

// onShard runs work on a shard over a connection of the client's own role, which is no part of a transaction of the client's. A
// connection that is not as it was is not used again.
func (s *session) onShard(number int, work func(shard.Asker) error) error {
	var failed error
	_, refused := s.asideOn(number, func() (answer, error) {
		var lost error
		status := byte(statusIdle)
		failed = work(func(_ context.Context, sql string) ([][]string, error) {
			if lost != nil {
				return nil, lost
			}
			a, err := s.ask(sql)
			if err != nil {
				lost = err
				return nil, lostShard(s.backend.ShardName(), err)
			}
			if status = a.status; a.failure != nil {
				return nil, a.failure.PGError()
			}
			return a.rows, nil
		})
		if lost == nil && status != statusIdle {
			lost = errLeftOpen
		}
		return answer{}, lost
	})
	switch {
	case failed != nil:
		return failed
	case refused != nil:
		return refused
	}
	return nil
}

// meanwhile tells the client something while the session waits for a shard. It leaves alone what the session is about to write.
func (s *session) meanwhile(text string) {
	_, _ = s.conn.Write(wire.AppendNotice(nil, "NOTICE", pgerr.New("00000", "%s", text))) // whoever is gone is noticed when it is answered
}
