package session

import (
	"strings"

	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/wire"
)

// explain says, for EXPLAIN, where a statement goes and why; nothing if all of it is on the home shard, as with one server.
func (s *session) explain(st *plan.Statement) []string {
	if !st.Explains {
		return nil
	}
	route := &st.Route
	where := ""
	switch route.Level {
	case plan.Keyed:
		where = "one shard, " + s.shardName(s.shardNow())
	case plan.Several, plan.Everywhere:
		if len(s.spreadTo) == 0 {
			where = "one shard, " + s.shardName(s.shardNow())
			break
		}
		names := make([]string, len(s.spreadTo))
		for i, number := range s.spreadTo {
			names[i] = s.shardName(number)
		}
		where = "in parts on " + strings.Join(names, ", ")
		if route.Parts == plan.Copies {
			where = "on every shard: " + strings.Join(names, ", ")
		}
	case plan.AnyOwner:
		where = "one shard, this time " + s.shardName(s.shardNow())
	case plan.OnShard:
		where = "one shard, " + route.Shard
	case plan.Anywhere:
		if route.Table == "" {
			return nil
		}
		where = "any shard, this time " + s.shardName(s.shardNow())
	case plan.Composed: // all that it pulls is on one shard, or it tells of itself
		where = "one shard, " + s.shardName(s.shardNow())
	case plan.Home:
		return nil
	}
	why := route.Why
	if route.Level == plan.Several {
		if told := s.placing.reason(); told != "" {
			why = told
		}
	}
	return []string{"Route: " + where, "  Reason: " + why}
}

func (s *session) shardName(number int) string {
	if number == noShard {
		number = s.home()
	}
	if shard := s.currentMap().ShardByNumber(number); shard != nil {
		return shard.Name()
	}
	return "?"
}

// explainBefore puts lines of the router's before the first line of a shard's plan, which is what the message is.
func (s *session) explainBefore(e *expect, message []byte) (show bool) {
	if e.op < 0 || e.explained || len(s.ops[e.op].explain) == 0 {
		return true
	}
	e.explained = true
	lines := s.ops[e.op].explain
	if s.gather != nil {
		if s.gather.at > 0 {
			lines = nil
		}
		lines = append(lines[:len(lines):len(lines)], "On "+s.backend.ShardName()+":")
	}
	for _, line := range lines {
		s.instead = wire.AppendDataRow(s.instead, [][]byte{[]byte(line)})
	}
	s.instead = append(s.instead, message...)
	return false
}
