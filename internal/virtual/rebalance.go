package virtual

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/session"
)

// planRebalance plans moves that make shards even, or empty one, and answers with the plan as the HTTP API has it.
func planRebalance(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	if err := s.mustBeSuperuser(ctx, call); err != nil {
		return "", err
	}
	request := api.PlanRebalance{Algorithm: text(arguments, "algorithm"), Measure: text(arguments, "measure"), Drain: text(arguments, "drain")}
	if keyspace := text(arguments, "keyspace"); keyspace != "" {
		request.Keyspaces = []string{keyspace}
	}
	var err error
	if request.Split, err = truth(arguments, "split"); err != nil {
		return "", err
	}
	if err := given(arguments, "tolerance", aNumber, &request.Tolerance); err != nil {
		return "", err
	}
	if err := given(arguments, "max_bytes", aWhole, &request.MaxBytes); err != nil {
		return "", err
	}
	if err := given(arguments, "max_moves", aCount, &request.MaxMoves); err != nil {
		return "", err
	}
	request.BytesPerSecond = api.DefaultMoveRate
	if err := given(arguments, "rate", aWhole, &request.BytesPerSecond); err != nil {
		return "", err
	}
	if request.Rules, err = api.ParseRules(text(arguments, "rules")); err != nil {
		return "", pgerr.New(pgerr.InvalidParameterValue, "rules => %v", err).WithHint("Write %s, several with semicolons between them, or a JSON list.", api.RuleForms)
	}
	request.Excluded = shardNames(text(arguments, "exclude"))
	plan, err := s.config.Cluster.PlanRebalance(ctx, request)
	if err != nil {
		return "", err
	}
	answer, err := json.Marshal(plan)
	return string(answer), err
}

// applyRebalance asks for the moves of a plan, and answers with their IDs.
func applyRebalance(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	if err := s.mustBeSuperuser(ctx, call); err != nil {
		return "", err
	}
	list, err := s.config.Cluster.ApplyRebalance(ctx, text(arguments, "id"))
	return idsOf(list), err
}

// isolateTenant moves all rows of a key to a shard.
func isolateTenant(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	if err := s.mustBeSuperuser(ctx, call); err != nil {
		return "", err
	}
	key, err := point(arguments, "key")
	if err != nil {
		return "", err
	}
	list, err := s.config.Cluster.StartMoves(ctx, api.StartMove{Keyspace: text(arguments, "keyspace"), To: text(arguments, "to_shard"), Keys: [][]string{key}})
	return idsOf(list), err
}

// shardNames are names with commas between them.
func shardNames(list string) (names []string) {
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func idsOf(list api.MoveList) string {
	ids := make([]string, len(list.Moves))
	for i, m := range list.Moves {
		ids[i] = m.ID
	}
	return strings.Join(ids, " ")
}
