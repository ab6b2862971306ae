package plan

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/topology"
)

// routerSchema holds the router's own views and functions.
const routerSchema = "cleave"

// class is what a named relation is to the cluster.
type class uint8

const (
	// missing: there is no such relation, as far as anybody knows.
	missing class = iota
	// ours: a view of the router.
	ours
	// temporary: it is in this session's backend.
	temporary
	// system: PostgreSQL's own catalogue.
	system
	// plain: nobody declared it, so it is on the home shard.
	plain
	// single: it is on one shard, by declaration or because its schema is placed.
	single
	// reference: it is on every shard.
	reference
	// sharded: each row is on the shard that owns its key.
	sharded
	// reaching: using it means using a declared table.
	reaching
	// unclear: it cannot be told which relation the name means.
	unclear
)

// resolved is what a name in a statement stands for.
type resolved struct {
	facts.Table
	class class
	// relation is what the catalogue knows; nil if it knows nothing.
	relation *Relation
	// table is its declaration; nil if there is none.
	table *topology.Table
	// shard is where a single one is.
	shard string
	// dropped: it is missing because the transaction itself has dropped it.
	dropped bool
}

// title is its name for messages.
func (r *resolved) title() string {
	switch {
	case r.table != nil:
		return r.table.Name().String()
	case r.relation != nil:
		return topology.TableName{Schema: r.relation.Schema, Name: r.relation.Name}.String()
	case r.Schema != "":
		return topology.TableName{Schema: r.Schema, Name: r.Name}.String()
	default:
		return r.Name
	}
}

// visibleName is what the relation is called in its query.
func (r *resolved) visibleName() string {
	if r.Alias != "" {
		return r.Alias
	}
	return r.Name
}

// resolve says what a name stands for, as PostgreSQL would find it.
func (p *planner) resolve(t facts.Table) resolved {
	r := resolved{Table: t}
	switch {
	case t.Schema == routerSchema:
		r.class = ours
	case isTemporarySchema(t.Schema):
		r.class = temporary
	case t.Schema == "" && p.isTemporary(t.Name):
		p.resolveTemporary(&r)
	case t.Schema == "":
		p.resolveByPath(&r)
	default:
		p.resolveIn(&r, t.Schema)
	}
	return r
}

// resolveTemporary is for a name of a temporary relation. The session remembers those it made, but not every end of one can be
// seen: a roll-back, ON COMMIT DROP, a function. Where the name would mean a table of other shards without it, nothing is sure.
func (p *planner) resolveTemporary(r *resolved) {
	if !p.made[r.Name] {
		p.resolveByPath(r)
	}
	switch r.class {
	case sharded, reference, reaching, unclear:
		r.class = unclear
	case single:
		if r.class = temporary; r.shard != p.Home {
			r.class = unclear
		}
	default:
		r.class = temporary
	}
	r.relation, r.table = nil, nil
}

func isTemporarySchema(schema string) bool {
	return schema == "pg_temp" || strings.HasPrefix(schema, "pg_temp_")
}

// isTemporary says whether a name without schema means a temporary relation. These come first, unless the search path gives
// them another place and something stands before it.
func (p *planner) isTemporary(name string) bool {
	if !p.made[name] && (p.Temporary == nil || !p.Temporary(name)) {
		return false
	}
	place := slices.Index(p.SearchPath, "pg_temp")
	other := p.known.Relations[RelationName{"", name}]
	if place < 0 || other == nil {
		return true
	}
	otherPlace := slices.Index(p.SearchPath, other.Schema)
	return otherPlace > place
}

// resolveByPath finds a relation by the search path. The catalogue is the home shard's, so it cannot see schemas that live
// elsewhere: a name that may be in one of those is clear only if nothing else has it.
func (p *planner) resolveByPath(r *resolved) {
	r.relation = p.known.Relations[RelationName{"", r.Name}]
	if r.relation != nil && r.relation.System {
		r.class = system
		return
	}
	if away := p.placedAway(); len(away) > 0 {
		r.class, r.shard = single, away[0]
		r.table = p.declaredByPath(r.Name)
		if len(away) > 1 || r.relation != nil && !p.isPlacedAway(r.relation.Schema) || r.table != nil && !p.isPlacedAway(r.table.Name().Schema) {
			r.class, r.table = unclear, nil
		}
		return
	}
	if r.relation != nil && !p.isBehind(r.relation.Schema, r.Name) {
		p.classify(r, r.relation.Schema)
		return
	}
	r.relation = nil
	if r.table = p.declaredByPath(r.Name); r.table != nil {
		p.classifyTable(r)
		p.leaveDropped(r)
	}
}

// TableNamed is what a name without schema means, as in a statement: the home shard may have it, or another one alone. Where it may be either, the home shard's is meant.
func TableNamed(c Context, known *Known, name string) (meant topology.TableName, found bool) {
	r := resolved{Table: facts.Table{Name: name}}
	(&planner{Context: c, known: known}).resolveByPath(&r)
	switch {
	case r.relation != nil: // it may be a part of the table that is declared
		return topology.TableName{Schema: r.relation.Schema, Name: r.relation.Name}, true
	case r.table != nil:
		return r.table.Name(), true
	default:
		return topology.TableName{}, false
	}
}

// isBehind says whether another table of the name, which the home shard does not have, comes first in the search path.
func (p *planner) isBehind(schema, name string) bool {
	other := p.declaredByPath(name)
	if other == nil || !isAway(p.Context, other) || other.Name().Schema == schema || slices.Contains(p.Dropped, other.Name()) || p.known.Relations[RelationName{other.Name().Schema, name}] != nil {
		return false
	}
	return slices.Index(p.SearchPath, other.Name().Schema) < slices.Index(p.SearchPath, schema)
}

// leaveDropped: of what the transaction has dropped nothing is left, whatever the shard map says. That nobody has made it anew in the
// meantime, the catalogue says.
func (p *planner) leaveDropped(r *resolved) {
	if r.relation == nil && r.table != nil && slices.Contains(p.Dropped, r.table.Name()) {
		r.class, r.table, r.dropped = missing, nil, true
	}
}

// resolveIn finds a relation in a schema.
func (p *planner) resolveIn(r *resolved, schema string) {
	r.relation = p.known.Relations[RelationName{schema, r.Name}]
	p.classify(r, schema)
	p.leaveDropped(r)
}

// classify says what a relation is whose schema is known.
func (p *planner) classify(r *resolved, schema string) {
	name := r.Name
	if r.relation != nil {
		name = r.relation.Name
	}
	r.table = p.Map.Table(schema, name)
	if r.relation != nil && r.relation.PartitionOf != nil {
		r.table = p.Map.Table(r.relation.PartitionOf.Schema, r.relation.PartitionOf.Name)
	}
	place, keyspace := p.Map.LocateSchema(schema)
	switch {
	case isSystemSchema(schema):
		r.class = system
	case schema == routerSchema:
		r.class = ours
	case r.table != nil:
		p.classifyTable(r)
	case keyspace != nil && r.relation != nil && r.relation.ReachesDeclared:
		r.class = reaching
	case keyspace != nil:
		r.class, r.shard = single, place.Shard.Name()
	case r.relation == nil:
		r.class = missing
	case r.relation.ReachesDeclared:
		r.class = reaching
	default:
		r.class = plain
	}
}

func isSystemSchema(schema string) bool {
	return schema == "pg_catalog" || schema == "information_schema" || schema == "pg_toast"
}

func (p *planner) classifyTable(r *resolved) {
	switch r.table.Kind() {
	case topology.Sharded:
		r.class = sharded
	case topology.Reference:
		r.class = reference
	case topology.Single:
		if r.class, r.shard = single, r.table.Shard().Name(); r.relation != nil && r.relation.ReachesDeclared {
			r.class = reaching
		}
	default:
		r.class = unclear
	}
}

// declaredByPath returns the declared table that a name without schema means if all of them exist.
func (p *planner) declaredByPath(name string) *topology.Table {
	for _, schema := range p.SearchPath {
		if t := p.Map.Table(schema, name); t != nil {
			return t
		}
	}
	return nil
}

// placedAway returns the shards other than home that have schemas of the search path.
func (p *planner) placedAway() []string {
	var shards []string
	for _, schema := range p.SearchPath {
		place, keyspace := p.Map.LocateSchema(schema)
		if keyspace != nil && place.Shard.Name() != p.Home && !slices.Contains(shards, place.Shard.Name()) {
			shards = append(shards, place.Shard.Name())
		}
	}
	return shards
}

// isPlacedAway says whether a schema is on another shard than home. What the home shard has in it is left there, or is not there yet, while it moves.
func (p *planner) isPlacedAway(schema string) bool {
	place, keyspace := p.Map.LocateSchema(schema)
	return keyspace != nil && place.Shard.Name() != p.Home
}

// resolveNew says where a relation that is to be made will be.
func (p *planner) resolveNew(t facts.Table, isTemporary bool) resolved {
	r := resolved{Table: t, class: plain}
	schema := t.Schema
	if schema == "" {
		schema = p.newSchema()
	}
	if isTemporary || isTemporarySchema(schema) {
		r.class = temporary
		return r
	}
	place, keyspace := p.Map.LocateSchema(schema)
	switch {
	case schema == routerSchema:
		r.class = ours
	case keyspace != nil:
		r.class, r.shard = single, place.Shard.Name()
	case t.Schema == "" && (len(p.placedAway()) > 0 || p.hidesSingle(t.Name)):
		r.class = unclear
	default:
		r.table = p.Map.Table(schema, t.Name)
		if r.table != nil && r.table.Kind() == topology.Single {
			r.class, r.shard = single, r.table.Shard().Name()
		}
	}
	return r
}

// hidesSingle says whether a name means a table on one shard that is not in the first schema of the path, which need not exist.
func (p *planner) hidesSingle(name string) bool {
	t := p.declaredByPath(name)
	return t != nil && t.Kind() == topology.Single && t.Name().Schema != p.newSchema()
}

// newSchema is the schema in which a relation without one is made, as far as that can be told: the first of the path.
func (p *planner) newSchema() string {
	if len(p.SearchPath) == 0 {
		return ""
	}
	return p.SearchPath[0]
}

// trustsBuiltins says whether names of operators, types and functions without schema mean PostgreSQL's own first.
func (p *planner) trustsBuiltins() bool {
	return slices.Index(p.SearchPath, "pg_catalog") <= 0
}

// awayIn is a table of a schema that one shard alone has, which is not the home shard; nil if there is none.
func (p *planner) awayIn(schema string) *topology.Table {
	tables := p.Map.Tables()
	at := slices.IndexFunc(tables, func(t *topology.Table) bool { return t.Name().Schema == schema && isAway(p.Context, t) })
	if at < 0 {
		return nil
	}
	return tables[at]
}

// hasDeclared says whether a schema has sharded or reference tables.
func (p *planner) hasDeclared(schema string) bool {
	return slices.ContainsFunc(p.Map.Tables(), func(t *topology.Table) bool {
		return t.Name().Schema == schema && t.Kind() != topology.Single
	})
}
