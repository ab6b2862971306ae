package reshard

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/failpoint"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// A schema that a keyspace places moves as its tables do, which move as a whole. For as long as that takes the map lists them, each on the shard where its schema is; so whoever routes, holds or fences tables need not know of schemas.

// moving is what keeps routers from changing what moves.
func (m *Move) moving(tables []topology.TableName) topology.Moving {
	if m.IsWhole() {
		return topology.Moving{ID: m.ID, Tables: tables, Schemas: m.Schemas}
	}
	return topology.Moving{ID: m.ID, Keyspace: m.Keyspace, Tables: tables}
}

// forgetSchemas takes the tables of schemas out of the map again: it says where the schemas are.
func (r *run) forgetSchemas(ctx context.Context) error {
	move := r.state()
	if len(move.Schemas) == 0 {
		return nil
	}
	_, err := r.leadership.UpdateMap(ctx, func(now *topology.Map) (*topology.Map, error) {
		var changes []topology.Change
		for _, t := range now.Tables() {
			if slices.Contains(move.Schemas, t.Name().Schema) {
				changes = append(changes, topology.DropTable(t.Name().String()))
			}
		}
		if len(changes) == 0 {
			return nil, errAsItIs
		}
		return now.Next(changes...)
	})
	failpoint.Hit("move.unlisted")
	if errors.Is(err, errAsItIs) {
		return nil
	}
	return err
}

// whatStays says what keeps the tables from being moved, and what of their schemas would stay behind. It returns the tables' definitions.
func (m *Move) whatStays(ctx context.Context, conn *pgx.Conn, now *topology.Map) (shard.Definitions, []string, error) {
	if err := m.isFree(now); err != nil {
		return nil, nil, err
	}
	definitions, problems, err := shard.CheckWhole(ctx, conn, now, m.wholeTables())
	for _, schema := range m.Schemas {
		if err != nil || m.RollsBack { // what is on the target besides was there before
			break
		}
		var left []string
		left, err = shard.LeftInSchema(ctx, conn, schema, definitions)
		problems = append(problems, left...)
	}
	return definitions, problems, err
}

// isFree stops the move of a table whose schema was placed after it had been asked for: no map can have the table where its schema is not.
func (m *Move) isFree(now *topology.Map) error {
	for _, name := range m.wholeTables() {
		if _, keyspace := now.LocateSchema(name.Schema); keyspace != nil && !slices.Contains(m.Schemas, name.Schema) {
			return stop("keyspace %s places the schema of table %s, which moves with that alone: cancel the move, and move the schema", keyspace.Name(), name)
		}
	}
	return nil
}

// sizesOfSchemas is how many things are in the schemas that move, when nobody makes any.
func (s *switching) sizesOfSchemas(ctx context.Context) (sizes []int, err error) {
	for _, schema := range s.move.Schemas {
		size, err := shard.SizeOfSchema(ctx, s.owner, schema)
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}

// nothingIsNew sees that nothing has come to the schemas since they were looked at: by then a router that has heard of nothing may still have let somebody define something.
func (s *switching) nothingIsNew(ctx context.Context) error {
	sizes, err := s.sizesOfSchemas(ctx)
	if err == nil && !slices.Equal(sizes, s.inSchemas) {
		err = errors.New("something was made or dropped in the schema meanwhile")
	}
	return err
}

// listTables has the map list the tables of the schemas, when none can come to be or go any more.
func (r *run) listTables(ctx context.Context) (*topology.Map, error) {
	move := r.state()
	if err := r.arrived(ctx); err != nil {
		return nil, err
	}
	var whole []string
	err := r.on(ctx, move.Source, func(ctx context.Context, source *pgx.Conn) error {
		if err := r.nothingStays(ctx, source); err != nil { // whoever is to mend that must be able to
			return err
		}
		if err := r.keepTables(ctx, nil); err != nil {
			return err
		}
		for _, schema := range move.Schemas {
			if _, err := shard.SizeOfSchema(ctx, source, schema); err != nil { // a definition may have begun before they were refused
				return err
			}
		}
		var err error
		whole, err = move.tablesOn(ctx, source)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := r.save(ctx, func(m *Move) { m.Whole = whole }); err != nil {
		return nil, err
	}
	failpoint.Hit("move.named")
	now, err := r.leadership.UpdateMap(ctx, func(now *topology.Map) (*topology.Map, error) {
		if is, alike := (&Move{Keyspace: move.Keyspace, Schemas: move.Schemas}).markedWhole(now); !alike || is.owner != move.Source {
			return nil, errOtherMap
		}
		return now.Next(move.listed(now, whole)...)
	})
	failpoint.Hit("move.listed")
	if errors.Is(err, errOtherMap) {
		err = stop("shard %q does not have all of it any more: cancel the move", move.Source)
	}
	return now, err
}

// nothingStays stops the move if something in the schemas keeps them from being moved.
func (r *run) nothingStays(ctx context.Context, source *pgx.Conn) error {
	now, err := r.current(ctx)
	if err != nil {
		return err
	}
	move := r.state()
	whole, err := move.tablesOn(ctx, source)
	if err != nil {
		return err
	}
	_, problems, err := (&Move{Schemas: move.Schemas, Whole: whole}).whatStays(ctx, source, now)
	if err == nil && len(problems) > 0 {
		err = stop("shard %q: %s", move.Source, strings.Join(problems, "; "))
	}
	if err != nil {
		return err
	}
	return checkServer(ctx, source, move.Source, whole, move.needs(true))
}

// tablesOn are the tables that the schemas have on a shard.
func (m *Move) tablesOn(ctx context.Context, conn *pgx.Conn) (whole []string, err error) {
	for _, schema := range m.Schemas {
		names, err := shard.TablesIn(ctx, conn, schema)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			whole = append(whole, name.String())
		}
	}
	return whole, nil
}

// listed are the changes of a map after which it has the tables of the schemas, and no others there.
func (m *Move) listed(now *topology.Map, whole []string) (changes []topology.Change) {
	for _, t := range now.Tables() {
		if slices.Contains(m.Schemas, t.Name().Schema) && !slices.Contains(whole, t.Name().String()) {
			changes = append(changes, topology.DropTable(t.Name().String()))
		}
	}
	for _, name := range whole {
		changes = append(changes, topology.SetTable(topology.TableSpec{Name: name, Kind: topology.Single, Shard: m.Source}))
	}
	return changes
}

// arrived ends a move of schemas without tables after the map has changed: it had begun to forget.
func (r *run) arrived(ctx context.Context) error {
	now, err := r.current(ctx)
	if err != nil {
		return err
	}
	if is, alike := r.state().markedWhole(now); !alike || is != plain(r.state().Target) {
		return nil
	}
	if err := r.endEmpty(ctx, now); err != nil {
		return err
	}
	return errElsewhere
}

// endEmpty sees that nobody has made a table in the schemas after all, where nobody looks for it, and forgets the rest.
func (r *run) endEmpty(ctx context.Context, now *topology.Map) error {
	if err := r.nobodyCameLate(ctx, r.state().Source); err != nil {
		return err
	}
	if err := r.forget(ctx, now); err != nil {
		return err
	}
	return r.depart(ctx)
}

// nobodyCameLate stops the move if a shard that does not own the schemas has a table in them which does not move: a definition may have been let through before routers heard that it is to be refused, and have waited for a connection since.
func (r *run) nobodyCameLate(ctx context.Context, side string) error {
	move := r.state()
	return r.on(ctx, side, func(ctx context.Context, conn *pgx.Conn) error {
		there, err := move.tablesOn(ctx, conn)
		if err != nil {
			return err
		}
		there = slices.DeleteFunc(there, func(name string) bool { return slices.Contains(move.Whole, name) })
		if len(there) > 0 {
			return stop("shard %q: %s came to be while the schema moved, and nobody sees it there: make it anew through a router when the move has ended, bring its rows there, drop it on that shard, and resume the move", side, strings.Join(there, ", "))
		}
		return nil
	})
}

// emptySchemas moves schemas that have no tables. Anything else in them is refused.
func (r *run) emptySchemas(ctx context.Context) error {
	move := r.state()
	err := r.on(ctx, move.Source, func(ctx context.Context, source *pgx.Conn) error {
		return r.on(ctx, move.Target, func(ctx context.Context, target *pgx.Conn) error {
			if err := r.nothingStays(ctx, source); err != nil {
				return err
			}
			if err := move.hasPlace(ctx, target, nil); err != nil {
				return err
			}
			for _, schema := range move.Schemas {
				if err := pgx.BeginFunc(ctx, target, func(tx pgx.Tx) error { return shard.CarrySchema(ctx, source, tx, schema) }); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err == nil {
		err = r.nobodyCameLate(ctx, move.Source)
	}
	if err != nil {
		return err
	}
	now, err := r.publish(ctx, plain(move.Target), nil, plain(move.Source))
	if err != nil {
		return err
	}
	return r.endEmpty(ctx, now)
}
