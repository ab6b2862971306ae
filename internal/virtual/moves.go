package virtual

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/session"
)

// startMove asks for a move. It is for superusers, as all that changes where rows are.
func startMove(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	if err := s.mustBeSuperuser(ctx, call); err != nil {
		return "", err
	}
	request := api.StartMove{Keyspace: text(arguments, "keyspace"), To: text(arguments, "to_shard"), From: text(arguments, "from_shard"), Manual: text(arguments, "manual") == "true"}
	if arguments["key"] != nil {
		request.Keys = [][]string{{text(arguments, "key")}}
	}
	if arguments["lo"] != nil || arguments["hi"] != nil {
		r := api.MoveRange{}
		if lo := text(arguments, "lo"); lo != "" {
			r.From = []string{lo}
		}
		if hi := text(arguments, "hi"); hi != "" {
			r.To = []string{hi}
		}
		request.Ranges = []api.MoveRange{r}
	}
	if keep := text(arguments, "keep_seconds"); keep != "" {
		seconds, err := strconv.ParseFloat(keep, 64)
		if err != nil {
			return "", pgerr.New(pgerr.InvalidParameterValue, "keep_seconds %q is not a number", keep)
		}
		request.KeepSeconds = seconds
	}
	list, err := s.config.Cluster.StartMoves(ctx, request)
	if err != nil {
		return "", err
	}
	ids := make([]string, len(list.Moves))
	for i, m := range list.Moves {
		ids[i] = m.ID
	}
	return strings.Join(ids, " "), nil
}

// wishMove says what is to become of a move.
func wishMove(wish string) func(context.Context, *Schema, session.Call, map[string]*string, []*string) (string, error) {
	return func(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
		if err := s.mustBeSuperuser(ctx, call); err != nil {
			return "", err
		}
		move, err := s.config.Cluster.WishMove(ctx, text(arguments, "id"), wish)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("the leader has been told to %s move %s, which is %s", wish, move.ID, move.Phase), nil
	}
}

// splitRange divides a range of a keyspace.
func splitRange(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	if err := s.mustBeSuperuser(ctx, call); err != nil {
		return "", err
	}
	request := api.SplitRanges{}
	if at := text(arguments, "at"); at != "" {
		request.At = [][]string{{at}}
	}
	if key := text(arguments, "key"); key != "" {
		request.Key = []string{key}
	}
	changed, err := s.config.Cluster.SplitRanges(ctx, text(arguments, "keyspace"), request)
	return fmt.Sprintf("keyspace %s has %d ranges", changed.Keyspace.Name, changed.Keyspace.RangeCount), err
}

// mergeRanges puts ranges of a keyspace together.
func mergeRanges(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	if err := s.mustBeSuperuser(ctx, call); err != nil {
		return "", err
	}
	request := api.MergeRanges{}
	if lo := text(arguments, "lo"); lo != "" {
		request.From = []string{lo}
	}
	if hi := text(arguments, "hi"); hi != "" {
		request.To = []string{hi}
	}
	changed, err := s.config.Cluster.MergeRanges(ctx, text(arguments, "keyspace"), request)
	return fmt.Sprintf("keyspace %s has %d ranges", changed.Keyspace.Name, changed.Keyspace.RangeCount), err
}

func moveRows(ctx context.Context, s *Schema) ([][]any, error) {
	list, err := s.config.Cluster.Moves(ctx)
	if err != nil {
		return nil, err
	}
	var rows [][]any
	for _, m := range list.Moves {
		var held any
		if n := len(m.Switches); n > 0 && m.Switches[n-1].Failed == "" {
			held = m.Switches[n-1].HeldMS
		}
		rows = append(rows, []any{
			m.ID, m.Keyspace, m.From, m.To, len(m.Ranges), len(m.Keys), m.Phase, timeOrNull(m.Since, true), timeOrNull(m.Asked, true), timeOrNull(m.Ended, true), m.Paused, orNull(m.Stopped), orNull(m.Waiting), orNull(m.Error),
			m.Rows, m.Bytes, m.Share, m.SecondsLeft, m.LagBytes, held, m.CanRollBack,
		})
	}
	return rows, nil
}
