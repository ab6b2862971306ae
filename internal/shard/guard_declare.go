package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
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

// Unguard takes the guard off a table that is not to be declared any more.
func Unguard(ctx context.Context, tx pgx.Tx, table topology.TableName) error {
	if err := dropGuard(ctx, tx, table); err != nil {
		return fmt.Errorf("take the guard off table %s: %w", table, err)
	}
	return nil
}

// SameGuards says whether two plans put the very same guards on these tables, on every shard.
func (p *Plan) SameGuards(other *Plan, tables []topology.TableName) bool {
	if !slices.Equal(p.members, other.members) {
		return false
	}
	for _, shard := range p.members {
		for _, table := range tables {
			mine, err := p.guardOf(shard, table)
			if err != nil {
				return false
			}
			theirs, err := other.guardOf(shard, table)
			if err != nil || mine.digest != theirs.digest || !maps.Equal(mine.sources, theirs.sources) || !bytes.Equal(p.pinsDigest(shard, table), other.pinsDigest(shard, table)) {
				return false
			}
		}
	}
	return true
}

// pinsDigest is about the pins that a guard looks into, which are beside it.
func (p *Plan) pinsDigest(shard string, table topology.TableName) []byte {
	t := p.m.Table(table.Schema, table.Name)
	for _, k := range p.keyspaces {
		if k.keyspace == t.Keyspace() {
			return digestOf(k.guardPins(p.m.Shard(shard).Number()))
		}
	}
	return nil
}

// LockForReading keeps everybody from writing to a table on the home shard until the transaction ends, having seen that nobody has it in
// use. Others can read it, which is what rows are copied by.
func LockForReading(ctx context.Context, tx pgx.Tx, table topology.TableName) error {
	if err := lockPatiently(ctx, tx, table, "SHARE ROW EXCLUSIVE", thorough); err != nil {
		return err
	}
	point, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	return errors.Join(lockPatiently(ctx, point, table, "ACCESS EXCLUSIVE", thorough), point.Rollback(ctx))
}

// LockForChange keeps everybody from using a table until the transaction ends.
func LockForChange(ctx context.Context, tx pgx.Tx, table topology.TableName) error {
	return lockPatiently(ctx, tx, table, "ACCESS EXCLUSIVE", thorough)
}

// Analyze lets the server know what the rows are like that have come or gone, which it would notice too late.
func Analyze(ctx context.Context, tx pgx.Tx, tables []topology.TableName) error {
	for _, table := range tables {
		if _, err := tx.Exec(ctx, "ANALYZE "+table.String()); err != nil {
			return fmt.Errorf("analyse table %s: %w", table, err)
		}
	}
	return nil
}

// DropLeft drops the tables that somebody has left who was about to add the shard to the map and did not come to the end: the database was
// claimed and has recorded nothing, and the tables are the map's and have guards. A sharded one with rows is an error.
func DropLeft(ctx context.Context, tx pgx.Tx, m *topology.Map) error {
	id, err := lockIdentity(ctx, tx)
	if err != nil || id.Cluster != m.Cluster() || id.MapVersion != 0 {
		return err
	}
	return dropGuarded(ctx, tx, m, id.Shard)
}

// DropTables drops the tables of the map, in a database that is a shard no more: copies of reference tables, and sharded tables, which
// must be empty. Those that have no guard it leaves alone.
func DropTables(ctx context.Context, conn *pgx.Conn, m *topology.Map, shard string) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		id, err := lockIdentity(ctx, tx)
		if err != nil || id.Cluster != m.Cluster() || id.Shard != shard {
			return err
		}
		return dropGuarded(ctx, tx, m, shard)
	})
	if err != nil {
		return fmt.Errorf("drop the cluster's tables: %w", err)
	}
	return nil
}

func dropGuarded(ctx context.Context, tx pgx.Tx, m *topology.Map, shard string) error {
	standing, err := standingGuards(ctx, tx)
	if err != nil {
		return err
	}
	var left []string
	var tables []topology.TableName
	for table := range standing {
		declared := m.Table(table.Schema, table.Name)
		if declared == nil {
			continue
		}
		if declared.Kind() == topology.Sharded {
			if err := refuseRows(ctx, tx, table, shard); err != nil {
				return err
			}
		}
		left, tables = append(left, table.String()), append(tables, table)
	}
	if len(left) == 0 {
		return nil
	}
	if err := DropViewsOf(ctx, tx, tables); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "DROP TABLE "+list(left)); err != nil {
		return err
	}
	return dropUnused(ctx, tx, functionsFor(anyDigest))
}

func refuseRows(ctx context.Context, tx pgx.Tx, table topology.TableName, shard string) error {
	var rows bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+table.String()+")").Scan(&rows); err != nil {
		return fmt.Errorf("see whether table %s is empty: %w", table, err)
	}
	if rows {
		return pgerr.New(pgerr.ObjectNotInPrerequisite, "the database of shard %q has rows of table %s", shard, table).
			WithDetail("The table is sharded, and the shard owns nothing.").WithHint("Look at them there, then drop or rename the table.")
	}
	return nil
}
