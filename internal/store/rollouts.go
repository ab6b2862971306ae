package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/cleavedb/cleave/internal/topology"
)

// keptRollouts is how many roll-outs are remembered after they were closed.
const keptRollouts = 10

// ErrNoRollout says that there is no roll-out of that name or ID.
var ErrNoRollout = errors.New("there is no such roll-out")

// RolloutError is what was refused because a roll-out is open: of that name, or of one of the tables.
type RolloutError struct {
	Rollout topology.Rollout // the one that is in the way
}

func (e *RolloutError) Error() string {
	return fmt.Sprintf("roll-out %q of %v is open", e.Rollout.Name, e.Rollout.Tables)
}

// rolloutRecord is a roll-out as stored.
type rolloutRecord struct {
	ID         string               `json:"id"`
	Name       string               `json:"name"`
	State      string               `json:"state"`
	Tables     []string             `json:"tables"` // schema.name, quoted as in SQL
	Change     string               `json:"change"`
	Undo       string               `json:"undo,omitempty"`
	SearchPath string               `json:"search_path,omitempty"`
	Role       string               `json:"role,omitempty"`
	Begun      time.Time            `json:"begun"`
	Closed     time.Time            `json:"closed,omitzero"`
	Shards     []rolloutShardRecord `json:"shards"`
}

type rolloutShardRecord struct {
	Number int       `json:"number"`
	Name   string    `json:"name"`
	State  string    `json:"state"`
	At     time.Time `json:"at,omitzero"`
}

func recordOf(r topology.Rollout) rolloutRecord {
	record := rolloutRecord{
		ID: r.ID, Name: r.Name, State: string(r.State), Change: r.Change, Undo: r.Undo, SearchPath: r.SearchPath, Role: r.Role, Begun: r.Begun.UTC(), Closed: r.Closed.UTC(),
	}
	for _, table := range r.Tables {
		record.Tables = append(record.Tables, table.String())
	}
	for _, s := range r.Shards {
		record.Shards = append(record.Shards, rolloutShardRecord{s.Number, s.Name, string(s.State), s.At.UTC()})
	}
	return record
}

func (r rolloutRecord) rollout() (topology.Rollout, error) {
	rollout := topology.Rollout{
		ID: r.ID, Name: r.Name, State: topology.RolloutState(r.State), Change: r.Change, Undo: r.Undo, SearchPath: r.SearchPath, Role: r.Role, Begun: r.Begun, Closed: r.Closed,
	}
	for _, text := range r.Tables {
		table, err := topology.ParseTableName(text)
		if err != nil {
			return topology.Rollout{}, fmt.Errorf("roll-out %s: %w", r.Name, err)
		}
		rollout.Tables = append(rollout.Tables, table)
	}
	for _, s := range r.Shards {
		rollout.Shards = append(rollout.Shards, topology.RolloutShard{Number: s.Number, Name: s.Name, State: topology.ShardRolloutState(s.State), At: s.At})
	}
	return rollout, nil
}

// BeginRollout opens a roll-out. It fails with a [RolloutError] while another one of that name or of one of the tables is open, and with
// a [HeldError] while one of the tables is held. Closed ones of that name are forgotten, and the oldest of too many.
func (s *Store) BeginRollout(ctx context.Context, r topology.Rollout) (topology.SchemaState, error) {
	if r.ID == "" || r.Name == "" || len(r.Tables) == 0 || r.State != topology.RolloutOpen {
		return topology.SchemaState{}, errors.New("begin a roll-out: it has no ID, no name or no tables, or is not open")
	}
	return s.changeSchema(ctx, "begin a roll-out", func(seen SchemaOverview) (schemaStep, error) {
		now := seen.State
		if slices.ContainsFunc(now.Rollouts, func(other topology.Rollout) bool { return other.ID == r.ID }) {
			return schemaStep{}, errAsItIs // an earlier try was applied
		}
		if other, found := now.Rollout(r.Name); found && other.IsOpen() {
			return schemaStep{}, &RolloutError{Rollout: other}
		}
		if other, inTheWay := now.OpenRollout(r.Tables...); inTheWay {
			return schemaStep{}, &RolloutError{Rollout: other}
		}
		if move, inTheWay := now.MoveOf(r.Tables...); inTheWay {
			return schemaStep{}, &MovingError{Move: move}
		}
		if hold, held := now.Conflict(topology.Hold{Tables: r.Tables}); held {
			return schemaStep{}, &HeldError{Hold: hold}
		}
		now.Rollouts = append(keptOf(now.Rollouts, r.Name), r)
		return schemaStep{next: now}, nil
	})
}

// keptOf returns the open roll-outs and the last closed ones of other names.
func keptOf(all []topology.Rollout, name string) []topology.Rollout {
	kept := slices.DeleteFunc(slices.Clone(all), func(r topology.Rollout) bool { return !r.IsOpen() && r.Name == name })
	closed := 0
	for i := len(kept) - 1; i >= 0; i-- { // the newest are last
		if kept[i].IsOpen() {
			continue
		}
		if closed++; closed > keptRollouts {
			kept = slices.Delete(kept, i, i+1)
		}
	}
	return kept
}

// ChangeRollout replaces the roll-out of that ID by what change makes of it, and starts over when somebody else was faster. What
// change fails with ends it; a change that changes nothing writes nothing. It fails with [ErrNoRollout].
func (s *Store) ChangeRollout(ctx context.Context, id string, change func(*topology.Rollout) error) (topology.SchemaState, error) {
	return s.changeSchema(ctx, "change a roll-out", func(seen SchemaOverview) (schemaStep, error) {
		now := seen.State
		i := slices.IndexFunc(now.Rollouts, func(r topology.Rollout) bool { return r.ID == id })
		if i < 0 {
			return schemaStep{}, ErrNoRollout
		}
		next := now.Rollouts[i]
		next.Shards = slices.Clone(next.Shards)
		if err := change(&next); err != nil {
			return schemaStep{}, err
		}
		if reflect.DeepEqual(next, now.Rollouts[i]) {
			return schemaStep{}, errAsItIs
		}
		now.Rollouts = slices.Clone(now.Rollouts)
		now.Rollouts[i] = next
		return schemaStep{next: now}, nil
	})
}
