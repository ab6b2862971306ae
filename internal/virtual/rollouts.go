package virtual

import (
	"context"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/session"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

func beginRollout(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	request := control.RolloutBegin{
		Name: text(arguments, "name"), Change: text(arguments, "change"), Undo: arguments["undo"], Role: call.Role, SearchPath: pathSQL(call.SearchPath),
	}
	request.Shards = shardNames(text(arguments, "shards"))
	changed, err := s.config.Cluster.BeginRollout(ctx, request)
	return told(call, changed), err
}

// pathSQL writes a search path as SQL does.
func pathSQL(path []string) string {
	quoted := make([]string, len(path))
	for i, schema := range path {
		quoted[i] = sqltext.QuoteIdentifier(schema)
	}
	return strings.Join(quoted, ", ")
}

// stepRollout is a function that goes on with a roll-out, on the client's own backends.
func stepRollout(step func(*control.Cluster, context.Context, control.RolloutStep) (api.RolloutChanged, error)) func(context.Context, *Schema, session.Call, map[string]*string, []*string) (string, error) {
	return func(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
		changed, err := step(s.config.Cluster, ctx, control.RolloutStep{
			Name: text(arguments, "name"), Shard: text(arguments, "shard"), Role: call.Role, OnShard: onShard(call), Progress: call.Notice, Meanwhile: call.Meanwhile,
		})
		return told(call, changed), err
	}
}

// onShard reaches shards the way the client does.
func onShard(call session.Call) control.OnShard {
	return func(ctx context.Context, spec topology.ShardSpec, work func(context.Context, shard.Asker) error) error {
		return call.OnShard(spec.Number, func(ask shard.Asker) error { return work(ctx, ask) })
	}
}

// told is what the client is told in the end; what is not as it should be it is told before.
func told(call session.Call, changed api.RolloutChanged) string {
	for _, f := range changed.Findings {
		if call.Notice != nil {
			call.Notice(f.Message)
		}
	}
	return changed.Message
}

func rolloutRows(ctx context.Context, s *Schema) ([][]any, error) {
	rollouts, err := s.config.Cluster.Rollouts(ctx)
	if err != nil {
		return nil, err
	}
	var rows [][]any
	for _, r := range rollouts {
		tables := make([]string, len(r.Tables))
		for i, table := range r.Tables {
			tables[i] = table.String()
		}
		for _, shard := range r.Shards {
			rows = append(rows, []any{
				r.Name, r.State, r.Change, r.Undo, tables, orNull(r.Role), timeOrNull(r.Begun, true), timeOrNull(r.Closed, true), shard.Name, shard.State,
				timeOrNull(shard.At, shard.State == topology.ShardApplied), timeOrNull(shard.At, shard.State == topology.ShardUndone),
			})
		}
	}
	return rows, nil
}

// timeOrNull is a time, or NULL for none and for one that does not count.
func timeOrNull(at time.Time, counts bool) any {
	if at.IsZero() || !counts {
		return nil
	}
	return at.UTC().Format(time.RFC3339Nano)
}

// Examine plans statements as if they were run by themselves, and returns why one of them would be refused: what an ordinary change must not
// do, such as have a constraint call a function that reads other rows, one that goes from shard to shard must not do either.
func (s *Schema) Examine(ctx context.Context, statements, searchPath []string) error {
	m := s.config.Map()
	if m == nil || m.Home() == nil {
		return nil // then there is nothing to change
	}
	for _, statement := range statements {
		read, err := facts.Of(statement)
		if err != nil {
			return err
		}
		relations, functions := plan.Wants(read)
		known, err := s.config.Look(ctx, relations, functions, searchPath)
		if err != nil {
			return err
		}
		var scan sqltext.Normalized
		if err := scan.Scan([]byte(statement), true); err != nil {
			return err
		}
		made := plan.Make(statement, read, known, plan.Context{SearchPath: searchPath, Literals: scan.Literals, Map: m, Home: m.Home().Name()})
		for i := range made.Statements {
			if refused := made.Statements[i].Refusal; refused != nil {
				return refused
			}
		}
	}
	return nil
}
