package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/rebalance"
	"github.com/cleavedb/cleave/internal/reshard"
	"github.com/cleavedb/cleave/internal/topology"
)

// apart are the moves of a keyspace: as many as it takes, or in a keyspace that places schemas one for each of those, which move with all that they have. Its ranges say where new schemas would go, and nothing moves with them.
func apart(k *topology.Keyspace, move *reshard.Move) (moves []*reshard.Move) {
	if k.Strategy() != topology.BySchema {
		return divided(move)
	}
	for _, pin := range move.Pins {
		one := *move
		one.Ranges, one.Pins, one.Schemas = nil, nil, []string{pin[0]}
		moves = append(moves, &one)
	}
	if move.Pins = nil; len(move.Ranges) > 0 {
		moves = append(moves, divided(move)...)
	}
	return moves
}

// divided are moves that together move the same, each no more than can be stored.
func divided(move *reshard.Move) (moves []*reshard.Move) {
	var room rebalance.Room
	begin := func() *reshard.Move {
		part := *move
		part.Ranges, part.Pins, room = nil, nil, rebalance.Room{}
		moves = append(moves, &part)
		return &part
	}
	part := begin()
	for _, r := range move.Ranges {
		if !room.Range(r.From, r.To) {
			part = begin()
			room.Range(r.From, r.To)
		}
		part.Ranges = append(part.Ranges, r)
	}
	for _, pin := range move.Pins {
		if !room.Pin(pin) {
			part = begin()
			room.Pin(pin)
		}
		part.Pins = append(part.Pins, pin)
	}
	return moves
}

// unplaced are the named schemas that no keyspace places: they are on the home shard, and are placed there before they move.
func (c *Cluster) unplaced(ctx context.Context, m *topology.Map, request api.StartMove) (schemas []string, err error) {
	k := m.Keyspace(request.Keyspace)
	if k == nil || k.Strategy() != topology.BySchema || len(request.Keys) == 0 {
		return nil, nil
	}
	for _, key := range request.Keys {
		if len(key) != 1 {
			return nil, &InvalidError{Message: fmt.Sprintf("%q is not the name of one schema", key)}
		}
		switch _, placed := m.LocateSchema(key[0]); {
		case placed == nil:
			schemas = append(schemas, key[0])
		case placed != k:
			return nil, &InvalidError{Message: fmt.Sprintf("schema %s is placed by keyspace %s", key[0], placed.Name())}
		}
	}
	if len(schemas) == 0 {
		return nil, nil
	}
	if err := c.refuseMoving(ctx, schemas); err != nil {
		return nil, err
	}
	err = c.connected(ctx, m.Home().Spec(), func(ctx context.Context, s session) error {
		for _, schema := range schemas {
			var is bool
			if err := s.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", schema).Scan(&is); err != nil {
				return err
			}
			if !is {
				return &topology.NotFoundError{Kind: "schema", Name: schema}
			}
			if schema == "public" || schema == "cleave" || schema == "information_schema" || len(schema) >= 3 && schema[:3] == "pg_" {
				return &InvalidError{Message: fmt.Sprintf("schema %s is none that can be on another shard", schema)}
			}
		}
		return nil
	})
	return schemas, err
}

// refuseMoving fails if a table of the schemas moves by itself: where its schema is placed it is where that is. A move that begins meanwhile sees that the schema is placed.
func (c *Cluster) refuseMoving(ctx context.Context, schemas []string) error {
	moves, err := c.mover.List(ctx)
	if err != nil {
		return err
	}
	for _, move := range moves {
		if move.Phase.HasEnded() {
			continue
		}
		tables, err := parseTables(move.Whole)
		if err != nil {
			return err
		}
		for _, name := range tables {
			if slices.Contains(schemas, name.Schema) {
				return &InvalidError{
					Message: fmt.Sprintf("schema %s cannot be placed while move %s of table %s is under way", name.Schema, move.ID, name),
					Hint:    fmt.Sprintf("Wait until that one has ended, or cancel it: cleave move cancel %s.", move.ID),
				}
			}
		}
	}
	return nil
}

// withPlaced is a map that says of schemas that they are on the home shard, as they are.
func withPlaced(m *topology.Map, keyspace string, schemas []string) (*topology.Map, error) {
	var pins []topology.PinSpec
	for _, schema := range schemas {
		if _, placed := m.LocateSchema(schema); placed == nil {
			pins = append(pins, topology.PinSpec{Key: topology.Point{schema}, Shard: m.Home().Name()})
		}
	}
	if len(pins) == 0 {
		return nil, errDeclared
	}
	return m.Next(topology.SetPins(keyspace, pins...))
}

// placeSchemas has the map say so.
func (c *Cluster) placeSchemas(ctx context.Context, keyspace string, schemas []string) error {
	if len(schemas) == 0 {
		return nil
	}
	_, err := c.config.Store.Update(ctx, func(m *topology.Map) (*topology.Map, error) { return withPlaced(m, keyspace, schemas) })
	if errors.Is(err, errDeclared) {
		return nil
	}
	return err
}
