package shard

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/topology"
)

// guardOf returns the guard that a shard has to have on one table of the plan's map.
func (p *Plan) guardOf(shard string, table topology.TableName) (guard, error) {
	s := p.m.Shard(shard)
	if s == nil {
		return guard{}, &topology.NotFoundError{Kind: "shard", Name: shard}
	}
	guards, err := p.guardsOf(s)
	if err != nil {
		return guard{}, err
	}
	at := slices.IndexFunc(guards, func(g guard) bool { return g.table == table })
	if at < 0 {
		return guard{}, &topology.NotFoundError{Kind: "table", Name: table.String()}
	}
	return guards[at], nil
}

// IsGuarded says whether a table on a shard has the very guard that the plan's map asks for: then whatever rows it has are
// those that the shard owns.
func (p *Plan) IsGuarded(ctx context.Context, tx pgx.Tx, shard string, table topology.TableName) (bool, error) {
	g, err := p.guardOf(shard, table)
	if err != nil {
		return false, err
	}
	standing, err := standingGuards(ctx, tx)
	if err != nil {
		return false, fmt.Errorf("look at the guard of table %s: %w", table, err)
	}
	return g.fault(standing[table]) == "", nil
}

// Guard puts the guard on a table that the map will have and does not have yet. Of a keyspace with pins the shard must have
// recorded them.
func (p *Plan) Guard(ctx context.Context, tx pgx.Tx, shard string, table topology.TableName) error {
	g, err := p.guardOf(shard, table)
	if err == nil {
		err = g.stand(ctx, tx)
	}
	if err != nil {
		return fmt.Errorf("guard table %s on shard %q: %w", table, shard, err)
	}
	return nil
}

// Unguard takes the guard off a table that was not declared after all.
func Unguard(ctx context.Context, conn *pgx.Conn, table topology.TableName) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return dropGuard(ctx, tx, table) })
	if err != nil {
		return fmt.Errorf("take the guard off table %s: %w", table, err)
	}
	return nil
}
