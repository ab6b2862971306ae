package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/internal/topology"
)

// MovingError is what was refused because rows of a table are moving between shards.
type MovingError struct {
	Move topology.Moving // the one that is in the way
}

func (e *MovingError) Error() string {
	switch {
	case len(e.Move.Schemas) > 0:
		return fmt.Sprintf("schema %s is moving between shards (move %s)", e.Move.Schemas[0], e.Move.ID)
	case e.Move.Keyspace == "":
		return fmt.Sprintf("table %s is moving between shards (move %s)", e.Move.Tables[0], e.Move.ID)
	}
	return fmt.Sprintf("rows of keyspace %q are moving between shards (move %s)", e.Move.Keyspace, e.Move.ID)
}

// movingRecord is a move as the stored schema state has it.
type movingRecord struct {
	ID       string   `json:"id"`
	Keyspace string   `json:"keyspace"`
	Tables   []string `json:"tables"` // schema.name, quoted as in SQL
	Schemas  []string `json:"schemas,omitempty"`
}

func recordOfMove(m topology.Moving) movingRecord {
	record := movingRecord{ID: m.ID, Keyspace: m.Keyspace, Schemas: m.Schemas}
	for _, table := range m.Tables {
		record.Tables = append(record.Tables, table.String())
	}
	return record
}

func (r movingRecord) moving() (topology.Moving, error) {
	moving := topology.Moving{ID: r.ID, Keyspace: r.Keyspace, Schemas: r.Schemas}
	for _, text := range r.Tables {
		table, err := topology.ParseTableName(text)
		if err != nil {
			return topology.Moving{}, fmt.Errorf("move %s: %w", r.ID, err)
		}
		moving.Tables = append(moving.Tables, table)
	}
	return moving, nil
}

// BeginMove keeps the tables of a move as they are, once all routers have applied the state that it returns. It fails with a [MovingError] while another move has one of them, with a [RolloutError]
// while a roll-out changes one, and with a [HeldError] while one is held. The same move again changes nothing.
func (s *Store) BeginMove(ctx context.Context, moving topology.Moving) (topology.SchemaState, error) {
	if moving.ID == "" || len(moving.Tables)+len(moving.Schemas) == 0 {
		return topology.SchemaState{}, errors.New("begin a move: it has no ID or no tables")
	}
	return s.changeSchema(ctx, "begin a move", func(seen SchemaOverview) (schemaStep, error) {
		now := seen.State
		if slices.ContainsFunc(now.Moves, func(m topology.Moving) bool { return m.ID == moving.ID }) {
			return schemaStep{}, errAsItIs
		}
		if other, inTheWay := now.MoveLike(moving); inTheWay {
			return schemaStep{}, &MovingError{Move: other}
		}
		if other, inTheWay := now.OpenRollout(moving.Tables...); inTheWay {
			return schemaStep{}, &RolloutError{Rollout: other}
		}
		if hold, held := now.HoldOn(moving); held {
			return schemaStep{}, &HeldError{Hold: hold}
		}
		now.Moves = append(slices.Clip(now.Moves), moving)
		return schemaStep{next: now}, nil
	})
}

// EndMove lets the tables of a move be changed again. A move that is not there is none to end.
func (s *Store) EndMove(ctx context.Context, id string) (topology.SchemaState, error) {
	return s.changeSchema(ctx, "end a move", func(seen SchemaOverview) (schemaStep, error) {
		now := seen.State
		i := slices.IndexFunc(now.Moves, func(m topology.Moving) bool { return m.ID == id })
		if i < 0 {
			return schemaStep{}, errAsItIs
		}
		now.Moves = slices.Delete(slices.Clone(now.Moves), i, i+1)
		return schemaStep{next: now}, nil
	})
}
