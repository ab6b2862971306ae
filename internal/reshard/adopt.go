package reshard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// noteOn has a shard know what the move is, so that [Adopt] finds it there.
func (r *run) noteOn(ctx context.Context, conn *pgx.Conn) error {
	move := r.state()
	description, err := json.Marshal(Move{ID: move.ID, Keyspace: move.Keyspace, Source: move.Source, Target: move.Target, Ranges: move.Ranges, Pins: move.Pins, Whole: move.Whole, Schemas: move.Schemas,
		Options: move.Options, Why: move.Why, AskedAt: move.AskedAt, Published: move.Published, Identities: move.Identities})
	if err != nil {
		return fmt.Errorf("describe move %s: %w", move.ID, err)
	}
	return shard.NoteMove(ctx, conn, move.ID, description)
}

// Adopt stores moves again that shards know of and the store does not, because its content was lost. The map was made anew from the shards and says of each who owns what it moved. None goes on: it is cancelled, or cleaned up if the owner had changed.
func Adopt(ctx context.Context, s *store.Store, now *topology.Map, known []shard.KnownMove) (adopted []*Move, err error) {
	lost := map[string]*Move{}
	for _, one := range known {
		m := &Move{}
		if err := json.Unmarshal(one.Description, m); err != nil {
			return nil, fmt.Errorf("read what move %s is: %w", one.ID, err)
		}
		if other := lost[one.ID]; other != nil {
			other.learn(m)
		} else {
			lost[one.ID] = m
		}
	}
	for id, m := range lost {
		if _, err := s.Job(ctx, id); !errors.Is(err, store.ErrNoJob) {
			if err != nil {
				return adopted, err
			}
			continue
		}
		if err := m.adopt(ctx, s, now); err != nil {
			return adopted, fmt.Errorf("store move %s again: %w", id, err)
		}
		adopted = append(adopted, m)
	}
	return adopted, nil
}

func (m *Move) adopt(ctx context.Context, s *store.Store, now *topology.Map) error {
	m.Phase, m.Since = Cancelling, time.Now().UTC()
	if !m.isUntouched() {
		if err := m.keepTables(ctx, s, now); err != nil {
			return err
		}
		is, alike, err := m.marked(now)
		if err != nil {
			return err
		}
		back := course{from: m.Target, to: m.Source, whole: m.IsWhole()}
		if alike && !m.IsWhole() && is == back.turned() { // it had been rolled back; of whole tables that looks as if they had never moved
			m.RollsBack = true
			m.Phase = Cleaning
		}
	}
	m.Why = "the store was lost while it was under way"
	job, err := m.job()
	if err == nil {
		_, err = s.AskJob(ctx, job)
	}
	return err
}

// learn adds what another shard was told of a move.
func (m *Move) learn(other *Move) {
	if len(m.Published) == 0 {
		m.Published = other.Published
	}
	for _, one := range other.Identities {
		if !m.knowsIdentity(one) {
			m.Identities = append(m.Identities, one)
		}
	}
}

// keepTables has nobody change the tables of a move until it has ended.
func (m *Move) keepTables(ctx context.Context, s *store.Store, now *topology.Map) error {
	tables := namesOf(m.tables(now))
	if len(tables) == 0 {
		return nil
	}
	_, err := s.BeginMove(ctx, m.moving(tables))
	var inTheWay *store.MovingError
	if errors.As(err, &inTheWay) { // which keeps them too
		return nil
	}
	return err
}
