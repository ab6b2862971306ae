package shard

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
)

// Plan is what all shards have to record of one map. Ranges and pins are split among the shards in one pass, so that telling
// many shards does not walk the whole map for each of them. A Plan never changes and is safe for concurrent use.
type Plan struct {
	m         *topology.Map
	members   []string
	keyspaces []keyspaceShares
	tables    []topology.TableSpec
	tableRows tableRows
}

// Prepare splits the map. It holds on to the map, and takes some 50 bytes more for each range, pin and copy.
func Prepare(m *topology.Map) *Plan { return planFor(m, nil) }

// planFor splits the map for all shards, or for one alone.
func planFor(m *topology.Map, only *topology.Shard) *Plan {
	p := &Plan{m: m}
	for member := range m.Shards() {
		p.members = append(p.members, member.Name())
	}
	slices.Sort(p.members)
	for _, k := range m.Keyspaces() {
		p.keyspaces = append(p.keyspaces, split(k, m.LastShardNumber(), only))
	}
	for _, t := range m.Tables() {
		p.tables = append(p.tables, t.Spec())
	}
	sortTables(p.tables)
	p.tableRows = rowsOf(p.tables)
	return p
}

// Record is [Record] for the plan's map.
func (p *Plan) Record(ctx context.Context, conn *pgx.Conn, name string) (changed bool, err error) {
	changed, err = p.record(ctx, conn, name)
	if err != nil {
		return false, fmt.Errorf("record map version %d on shard %q: %w", p.m.Version(), name, err)
	}
	return changed, nil
}

func (p *Plan) record(ctx context.Context, conn *pgx.Conn, name string) (changed bool, err error) {
	want, err := p.expected(name)
	if err != nil {
		return false, err
	}
	r := recorder{want: want, tableRows: p.tableRows}
	if err := p.prepareGuards(&r, name); err != nil {
		return false, err
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		r.tx = tx
		return r.run(ctx)
	})
	return r.changed, err
}

// Verify is [Verify] for the plan's map.
func (p *Plan) Verify(name string, r *Recorded) []api.Finding {
	return verify(p.m, name, r, func() (*Recorded, error) { return p.expected(name) })
}

// expectedOf returns what one shard has to record, without what the others have.
func expectedOf(m *topology.Map, name string) (*Recorded, error) {
	return planFor(m, m.Shard(name)).expected(name)
}

// expected returns what the shard has to record. It shares the plan's tables and members.
func (p *Plan) expected(name string) (*Recorded, error) {
	s := p.m.Shard(name)
	if s == nil {
		return nil, &topology.NotFoundError{Kind: "shard", Name: name}
	}
	r := &Recorded{
		Identity: Identity{Cluster: p.m.Cluster(), Shard: name, Number: s.Number(), MapVersion: p.m.Version(), MinimumVersion: s.MinimumVersion()},
		Entry:    s.Spec(), LastShardNumber: p.m.LastShardNumber(), Members: p.members, Tables: p.tables,
	}
	for _, k := range p.keyspaces {
		owned, err := k.of(s)
		if err != nil {
			return nil, fmt.Errorf("keyspace %q: %w", k.keyspace.Name(), err)
		}
		r.Keyspaces = append(r.Keyspaces, owned)
	}
	return r, nil
}

// keyspaceShares is what each shard has of a keyspace.
type keyspaceShares struct {
	keyspace *topology.Keyspace
	shares   []share // by the shards' numbers
	// opening are the ranges that somebody else than the owner takes rows of.
	opening []topology.Range
}

// share is what one shard has, in the map's own form: texts are made when they are needed, for one shard at a time.
type share struct {
	ranges []rangeShare
	pins   []pinShare
	// exceptions are the pins that do not go where their range says, to or away from this shard.
	exceptions []exception
}

type rangeShare struct {
	topology.Range
	state State
}

type pinShare struct {
	encoded string
	state   State
	held    bool
	moving  bool // there is a copy of it
}

// split walks the keyspace once, for all shards or for one alone.
func split(k *topology.Keyspace, lastNumber int, only *topology.Shard) keyspaceShares {
	all := keyspaceShares{keyspace: k, shares: make([]share, lastNumber+1)}
	wanted := func(number int) bool { return only == nil || only.Number() == number }
	for r := range k.Ranges() {
		if takerOf(r.Owner, r.Copies) != r.Owner {
			all.opening = append(all.opening, r)
		}
		if wanted(r.Owner.Number()) {
			all.addRange(r.Owner, r, Owned)
		}
		for _, c := range r.Copies {
			if wanted(c.Shard.Number()) {
				all.addRange(c.Shard, r, stateOf(c.State))
			}
		}
	}
	for p := range k.Pins() {
		all.addException(p, wanted)
		if wanted(p.Owner.Number()) {
			all.addPin(p.Owner, p, Owned)
		}
		for _, c := range p.Copies {
			if wanted(c.Shard.Number()) {
				all.addPin(c.Shard, p, stateOf(c.State))
			}
		}
	}
	return all
}

func (k keyspaceShares) addRange(to *topology.Shard, r topology.Range, state State) {
	has := &k.shares[to.Number()]
	has.ranges = append(has.ranges, rangeShare{r, state})
}

func (k keyspaceShares) addPin(to *topology.Shard, p topology.Pin, state State) {
	has := &k.shares[to.Number()]
	has.pins = append(has.pins, pinShare{p.Encoded, state, p.Held, len(p.Copies) > 0})
}

// of returns what the shard has of the keyspace in the form of records.
func (k keyspaceShares) of(s *topology.Shard) (Keyspace, error) {
	has := k.shares[s.Number()]
	owned := Keyspace{Head: headOf(k.keyspace), Ranges: make([]Range, 0, len(has.ranges)), Pins: make([]Pin, 0, len(has.pins))}
	for _, r := range has.ranges {
		lower, upper, err := bounds(k.keyspace, r.Range)
		if err != nil {
			return Keyspace{}, err
		}
		owned.Ranges = append(owned.Ranges, Range{Lower: lower, Upper: upper, State: r.state, Held: r.Held})
	}
	for _, p := range has.pins {
		point, err := k.keyspace.Texts(p.encoded)
		if err != nil {
			return Keyspace{}, err
		}
		owned.Pins = append(owned.Pins, Pin{Key: point, State: p.state, Held: p.held})
	}
	return owned, nil
}

func headOf(k *topology.Keyspace) topology.KeyspaceHead {
	var types []string
	if k.Strategy() != topology.BySchema {
		for _, t := range k.KeyTypes() {
			types = append(types, t.String())
		}
	}
	head := topology.NewKeyspaceSpec(k.Name(), k.Strategy(), k.Seed(), types...).KeyspaceHead
	head.Assignment = k.Assignment()
	return head
}

func sortTables(tables []topology.TableSpec) {
	slices.SortFunc(tables, func(a, b topology.TableSpec) int { return cmp.Compare(a.Name, b.Name) })
}

// tableRows are the tables as the server keeps them.
type tableRows struct {
	names       []string
	definitions []json.RawMessage
	digest      []byte
	err         error
}

func rowsOf(tables []topology.TableSpec) tableRows {
	var rows tableRows
	sum := sha256.New()
	for _, t := range tables {
		definition, err := json.Marshal(t)
		if err != nil {
			return tableRows{err: fmt.Errorf("table %q: %w", t.Name, err)}
		}
		rows.names, rows.definitions = append(rows.names, t.Name), append(rows.definitions, definition)
		sum.Write(append(definition, '\n'))
	}
	rows.digest = sum.Sum(nil)
	return rows
}
