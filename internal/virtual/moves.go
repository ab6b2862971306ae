package virtual

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/session"
)

// moveOptions are parameters of functions that start moves: how they are done.
var moveOptions = []string{"keep_seconds", "manual", "throttle", "max_rate", "max_lag_seconds", "max_load", "max_wal", "streams", "pause_limit_ms", "skip_verify", "why", "dry_run"}

// startMove asks for a move. It is for superusers, as all that changes where rows are.
func startMove(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	if err := s.mustBeSuperuser(ctx, call); err != nil {
		return "", err
	}
	request := api.StartMove{Keyspace: text(arguments, "keyspace"), To: text(arguments, "to_shard"), From: text(arguments, "from_shard")}
	if arguments["tables"] != nil {
		names, err := s.tableNames(ctx, text(arguments, "tables"), call.SearchPath)
		if err != nil {
			return "", err
		}
		for _, name := range names {
			request.Tables = append(request.Tables, name.String())
		}
	}
	if arguments["key"] != nil {
		key, err := point(arguments, "key")
		if err != nil {
			return "", err
		}
		request.Keys = [][]string{key}
	}
	if arguments["lo"] != nil || arguments["hi"] != nil {
		r, err := rangeOf(arguments)
		if err != nil {
			return "", err
		}
		request.Ranges = []api.MoveRange{r}
	}
	if err := options(arguments, &request); err != nil {
		return "", err
	}
	if len(request.Tables)+len(request.Keys)+len(request.Ranges) == 0 && request.From == "" {
		return "", pgerr.New(pgerr.InvalidParameterValue, "what is to be moved is not named").WithHint("Name a range (lo =>, hi =>), a key (key =>), or the shard all of which moves (from_shard =>).")
	}
	list, err := s.config.Cluster.StartMoves(ctx, request)
	for _, warning := range list.Warnings {
		if call.Notice != nil {
			call.Notice(warning)
		}
	}
	if err != nil || !request.DryRun {
		return idsOf(list), err
	}
	would := make([]string, len(list.Moves))
	for i, m := range list.Moves {
		would[i] = fmt.Sprintf("would move %s from shard %s to shard %s", m.What(), m.From, m.To)
	}
	return strings.Join(would, "; "), nil
}

// options reads how a move is done.
func options(arguments map[string]*string, request *api.StartMove) (err error) {
	if request.MoveLimits, err = limits(arguments); err != nil {
		return err
	}
	request.Why = text(arguments, "why")
	return cmp.Or(
		given(arguments, "keep_seconds", aPeriod, &request.KeepSeconds), given(arguments, "manual", aTruth, &request.Manual), given(arguments, "streams", aCount, &request.Streams),
		given(arguments, "pause_limit_ms", aMoment, &request.PauseLimitMS), given(arguments, "skip_verify", aTruth, &request.SkipVerify), given(arguments, "dry_run", aTruth, &request.DryRun))
}

// limits reads what slows a move down.
func limits(arguments map[string]*string) (l api.MoveLimits, err error) {
	if l.Throttle, err = optional(arguments, "throttle", aTruth); err != nil {
		return l, err
	}
	if l.MaxRate, err = optional(arguments, "max_rate", aWhole); err != nil {
		return l, err
	}
	if l.MaxWAL, err = optional(arguments, "max_wal", aWhole); err != nil {
		return l, err
	}
	if l.MaxLagSeconds, err = optional(arguments, "max_lag_seconds", aPeriod); err != nil {
		return l, err
	}
	l.MaxLoad, err = optional(arguments, "max_load", aNumber)
	return l, err
}

// throttleMove changes what slows a move down.
func throttleMove(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	if err := s.mustBeSuperuser(ctx, call); err != nil {
		return "", err
	}
	changed, err := limits(arguments)
	if err != nil {
		return "", err
	}
	move, err := s.config.Cluster.ThrottleMove(ctx, text(arguments, "id"), changed)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("the leader has been told what slows move %s down, which is %s", move.ID, move.Phase), nil
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
	at, err := point(arguments, "at")
	if err != nil {
		return "", err
	}
	if at != nil {
		request.At = [][]string{at}
	}
	if request.Key, err = point(arguments, "key"); err != nil {
		return "", err
	}
	if request.Of, err = point(arguments, "of"); err != nil {
		return "", err
	}
	if request.Middle, err = truth(arguments, "middle"); err != nil {
		return "", err
	}
	if err := given(arguments, "by_size", aWhole, &request.BySize); err != nil {
		return "", err
	}
	if len(request.At)+len(request.Key) == 0 && !request.Middle && request.BySize == 0 {
		return "", pgerr.New(pgerr.InvalidParameterValue, "it is not said where to split").WithHint("Name a point (at =>), a key (key =>), middle => true, or a size (by_size =>).")
	}
	changed, err := s.config.Cluster.SplitRanges(ctx, text(arguments, "keyspace"), request)
	return fmt.Sprintf("keyspace %s has %d ranges", changed.Keyspace.Name, changed.Keyspace.RangeCount), err
}

// mergeRanges puts ranges of a keyspace together.
func mergeRanges(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	if err := s.mustBeSuperuser(ctx, call); err != nil {
		return "", err
	}
	r, err := rangeOf(arguments)
	if err != nil {
		return "", err
	}
	changed, err := s.config.Cluster.MergeRanges(ctx, text(arguments, "keyspace"), api.MergeRanges(r))
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
