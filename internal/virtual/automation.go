package virtual

import (
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
)

// automationRows are the keyspaces with what is done by itself in each.
func automationRows(ctx context.Context, s *Schema) ([][]any, error) {
	a, err := s.config.Cluster.Automation(ctx)
	if err != nil {
		return nil, err
	}
	var rows [][]any
	for _, k := range s.config.Map().Keyspaces() {
		moves, splits, merges := a.Settings.Moves, a.Settings.Splits, a.Settings.Merges
		if !a.Settings.On || len(a.Settings.Keyspaces) > 0 && !slices.Contains(a.Settings.Keyspaces, k.Name()) {
			moves, splits, merges = "off", "off", "off"
		}
		var halted, haltedAt, move any
		if i := slices.IndexFunc(a.Halts, func(h api.AutoHalt) bool { return h.Keyspace == k.Name() }); i >= 0 {
			halted, haltedAt, move = a.Halts[i].Why, timeOrNull(a.Halts[i].At, true), orNull(a.Halts[i].Move)
		} else if i := slices.IndexFunc(a.Moves, func(m api.AutoMove) bool { return m.Keyspace == k.Name() }); i >= 0 {
			move = a.Moves[i].ID
		}
		rows = append(rows, []any{
			k.Name(), moves, splits, merges, orNull(a.Settings.Hours), a.Settings.MaxBytes, a.SpentBytes, halted, haltedAt, move, timeOrNull(a.Looked, true), waitingFor(a.Waiting, k.Name()),
		})
	}
	return rows, nil
}

// waitingFor are the reasons that are about a keyspace, or about all.
func waitingFor(reasons []string, keyspace string) []string {
	about := []string{}
	for _, why := range reasons {
		if !strings.HasPrefix(why, "keyspace ") || strings.HasPrefix(why, "keyspace "+keyspace+": ") {
			about = append(about, why)
		}
	}
	return about
}

func automationEventRows(ctx context.Context, s *Schema) ([][]any, error) {
	a, err := s.config.Cluster.Automation(ctx)
	if err != nil {
		return nil, err
	}
	var rows [][]any
	for _, e := range a.Events {
		rows = append(rows, []any{timeOrNull(e.At, true), e.What, orNull(e.Keyspace), orNull(e.Move), e.Bytes, e.Why})
	}
	return rows, nil
}

func automationProposalRows(ctx context.Context, s *Schema) ([][]any, error) {
	a, err := s.config.Cluster.Automation(ctx)
	if err != nil {
		return nil, err
	}
	var rows [][]any
	for _, p := range a.Proposals {
		rows = append(rows, []any{p.What, p.Keyspace, p.Bytes, p.Why, p.Command})
	}
	return rows, nil
}
