package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/reshard"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// wholeMoves are the moves of tables that are on one shard alone, one for each shard that has some of them. Without names they are those of the shard that was named.
func wholeMoves(m *topology.Map, request api.StartMove) ([]*reshard.Move, error) {
	wanted, err := parseTables(request.Tables)
	if err != nil {
		return nil, err
	}
	bySource := map[string]*reshard.Move{}
	var sources []string
	for _, t := range m.Tables() {
		if !movesByItself(m, t) || t.Shard().Name() == request.To || request.From != "" && t.Shard().Name() != request.From || len(wanted) > 0 && !slices.Contains(wanted, t.Name()) {
			continue
		}
		source := t.Shard().Name()
		if bySource[source] == nil {
			bySource[source] = &reshard.Move{Source: source, Target: request.To, Options: optionsOf(request), Why: request.Why}
			sources = append(sources, source)
		}
		bySource[source].Whole = append(bySource[source].Whole, t.Name().String())
	}
	slices.Sort(sources)
	moves := make([]*reshard.Move, len(sources))
	for i, source := range sources {
		moves[i] = bySource[source]
	}
	return moves, nil
}

// movesByItself says whether a table is on one shard alone, and not because a schema that a keyspace places is there: those move with all that they have.
func movesByItself(m *topology.Map, t *topology.Table) bool {
	_, placed := m.LocateSchema(t.Name().Schema)
	return t.Kind() == topology.Single && placed == nil
}

func parseTables(texts []string) ([]topology.TableName, error) {
	var names []topology.TableName
	for _, text := range texts {
		name, err := topology.ParseTableName(text)
		if err != nil {
			return nil, &InvalidError{Message: err.Error()}
		}
		names = append(names, name)
	}
	return names, nil
}

// undeclared are the named tables that the map does not have: they are on the home shard.
func (c *Cluster) undeclared(ctx context.Context, m *topology.Map, request api.StartMove) ([]topology.TableName, error) {
	names, err := parseTables(request.Tables)
	if err != nil {
		return nil, err
	}
	var undeclared []topology.TableName
	for _, name := range names {
		switch t := m.Table(name.Schema, name.Name); {
		case t == nil:
			if err := refuseTenants(m, name); err != nil {
				return nil, err
			}
			undeclared = append(undeclared, name)
		case t.Kind() == topology.Single && !movesByItself(m, t):
			return nil, refuseTenants(m, name)
		case t.Kind() != topology.Single:
			return nil, &InvalidError{Message: fmt.Sprintf("table %s is a %s table, and on all shards", name, t.Kind()), Hint: "Rows of sharded tables move by ranges, keys or shards, all tables of a keyspace together."}
		}
	}
	if len(undeclared) == 0 {
		return nil, nil
	}
	return undeclared, c.onHome(ctx, m, undeclared)
}

// withSingle is a map that says of tables which nobody has declared that they are on the home shard, as they are.
func withSingle(m *topology.Map, undeclared []topology.TableName) (*topology.Map, error) {
	var changes []topology.Change
	for _, name := range undeclared {
		if err := refuseTenants(m, name); err != nil { // its schema may have been placed since somebody looked
			return nil, err
		}
		if m.Table(name.Schema, name.Name) == nil {
			changes = append(changes, topology.SetTable(topology.TableSpec{Name: name.String(), Kind: topology.Single, Shard: m.Home().Name()}))
		}
	}
	if len(changes) == 0 {
		return nil, errDeclared
	}
	return m.Next(changes...)
}

// declareSingle has the map say so.
func (c *Cluster) declareSingle(ctx context.Context, undeclared []topology.TableName) error {
	if len(undeclared) == 0 {
		return nil
	}
	_, err := c.config.Store.Update(ctx, func(m *topology.Map) (*topology.Map, error) { return withSingle(m, undeclared) })
	if errors.Is(err, errDeclared) {
		return nil
	}
	return err
}

var errDeclared = errors.New("the map has the tables")

// onHome fails if the home shard does not have one of the tables.
func (c *Cluster) onHome(ctx context.Context, m *topology.Map, names []topology.TableName) error {
	return c.connected(ctx, m.Home().Spec(), func(ctx context.Context, s session) error {
		for _, name := range names {
			var is bool
			if err := s.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_class WHERE oid = to_regclass($1) AND relkind IN ('r', 'p'))", name.String()).Scan(&is); err != nil {
				return err
			}
			if !is {
				return &topology.NotFoundError{Kind: "table", Name: name.String()}
			}
		}
		return nil
	})
}

// refuseTenants fails for a table in a schema that a keyspace places.
func refuseTenants(m *topology.Map, name topology.TableName) error {
	place, keyspace := m.LocateSchema(name.Schema)
	if keyspace == nil {
		return nil
	}
	return &InvalidError{
		Message: fmt.Sprintf("schema %s is a tenant of keyspace %s, on shard %s: its tables move with it alone", name.Schema, keyspace.Name(), place.Shard.Name()),
		Hint:    fmt.Sprintf("Move the schema: cleave move start --keyspace %s --key %s --to SHARD.", keyspace.Name(), name.Schema),
	}
}

// mostNamed is how many tables are named where there may be many.
const mostNamed = 20

// staysHome says what stays on a shard whatever is moved away from it, if it is the home shard; empty of any other.
func (c *Cluster) staysHome(ctx context.Context, m *topology.Map, name string) (string, error) {
	if s := m.Shard(name); s == nil || s != m.Home() {
		return "", nil
	}
	var undeclared []string
	err := c.connected(ctx, m.Home().Spec(), func(ctx context.Context, s session) error {
		tables, err := shard.Tables(ctx, s)
		for _, t := range tables {
			if _, placed := m.LocateSchema(t.Schema); placed == nil && m.Table(t.Schema, t.Name) == nil {
				undeclared = append(undeclared, t.String())
			}
		}
		return err
	})
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("shard %s is the home shard: it keeps the catalogue by which routers plan all statements, and cannot be removed while there are others", name)
	if n := len(undeclared); n > 0 {
		text += fmt.Sprintf("; tables that nobody has declared stay there, %d in all: %s", n, strings.Join(undeclared[:min(n, mostNamed)], ", "))
		if n > mostNamed {
			text += ", …"
		}
		text += ". They are moved by name: cleave move start --to SHARD --table " + undeclared[0]
	}
	return text, nil
}

// drainWhole adds the tables that a shard alone has to a plan that empties it. They go together, because they may refer to each other, to the shard that has least for its weight.
func (c *Cluster) drainWhole(ctx context.Context, m *topology.Map, drained string, moves []*reshard.Move, plan *api.RebalancePlan) error {
	move := api.RebalanceMove{From: drained, Reason: "drain", Ranges: []api.MoveRange{}, Keys: [][]string{}, Tables: []string{}}
	for _, t := range m.Tables() {
		if !movesByItself(m, t) || t.Shard().Name() != drained {
			continue
		}
		name := t.Name().String()
		if first := inTheWay(moves, "", []string{name}); first != nil {
			plan.Warnings = append(plan.Warnings, fmt.Sprintf("table %s stays where it is: move %s of it comes first", name, first.ID))
			continue
		}
		move.Tables = append(move.Tables, name)
	}
	if len(move.Tables) == 0 {
		return nil
	}
	takers := slices.DeleteFunc(slices.Clone(plan.Shards), func(s api.RebalanceShard) bool {
		return s.Name == drained || !s.TakesPart || m.Shard(s.Name).State() != topology.Active
	})
	if len(takers) == 0 {
		return &InvalidError{Message: fmt.Sprintf("no shard can take the tables that shard %s alone has", drained)}
	}
	taker := slices.MinFunc(takers, func(a, b api.RebalanceShard) int {
		return cmp.Or(cmp.Compare(float64(a.BytesAfter)/a.Weight, float64(b.BytesAfter)/b.Weight), cmp.Compare(a.Name, b.Name))
	})
	move.To = taker.Name
	err := c.connected(ctx, m.Shard(drained).Spec(), func(ctx context.Context, s session) error {
		return s.QueryRow(ctx, `SELECT coalesce(sum(pg_total_relation_size(coalesce(p.relid, to_regclass(t.name)))), 0)::bigint FROM unnest($1::text[]) AS t (name) LEFT JOIN LATERAL pg_partition_tree(to_regclass(t.name)) AS p ON true`, move.Tables).Scan(&move.Bytes)
	})
	if err != nil {
		return err
	}
	plan.Moves, plan.Bytes = append(plan.Moves, move), plan.Bytes+move.Bytes
	plan.ID += "t" // a plan of the same ranges without tables is another one
	return nil
}
