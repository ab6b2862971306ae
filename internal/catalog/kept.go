package catalog

import (
	"slices"

	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/topology"
)

// names are names with their schemas: those that could be meant by the names in a text.
type names struct {
	path      []string // where names without a schema are looked for
	relations []plan.RelationName
	functions []plan.FunctionName
}

func (n names) empty() bool { return len(n.relations) == 0 && len(n.functions) == 0 }

// schemas are where a name is looked for that is written with this schema, or without any.
func (n names) schemas(written string) []string {
	if written != "" {
		return []string{written}
	}
	return n.path
}

// relation is a relation with what can be reached by it, whatever the map says of that.
type relation struct {
	*plan.Relation
	// read is what whoever uses it reaches, written what whoever writes to it does.
	read, written effects
	// setsParameters: writing to it is writing to pg_settings.
	setsParameters bool
}

// effects are what the use of a relation reaches.
type effects struct {
	tables []topology.TableName
	// opaque is a function that is called and may reach anything, empty if there is none; anywhere is one that was not declared to use
	// only the rows of the shard that it runs on.
	opaque, anywhere string
}

// answers say of every name with its schema what it is, also if it is nothing.
type answers struct {
	relations map[plan.RelationName]relation
	functions map[plan.FunctionName][]plan.Function
}

func newAnswers() answers {
	return answers{relations: map[plan.RelationName]relation{}, functions: map[plan.FunctionName][]plan.Function{}}
}

func (a answers) add(others answers) {
	for name, r := range others.relations {
		a.relations[name] = r
	}
	for name, f := range others.functions {
		a.functions[name] = f
	}
}

// resolve finds for each name as it is written the one that is meant, as PostgreSQL would: of relations the first in the
// path, of functions all, since their arguments decide.
func (a answers) resolve(relations []plan.RelationName, functions []plan.FunctionName, path []string, m *topology.Map) *plan.Known {
	known := &plan.Known{
		Relations: make(map[plan.RelationName]*plan.Relation, len(relations)), Functions: make(map[plan.FunctionName][]plan.Function, len(functions)),
	}
	n := names{path: path}
	for _, written := range relations {
		known.Relations[written] = nil
		for _, schema := range n.schemas(written.Schema) {
			if r := a.relations[plan.RelationName{Schema: schema, Name: written.Name}]; r.Relation != nil {
				known.Relations[written] = r.under(m)
				break
			}
		}
	}
	for _, written := range functions {
		var overloads []plan.Function
		for _, schema := range n.schemas(written.Schema) {
			overloads = append(overloads, a.functions[plan.FunctionName{Schema: schema, Name: written.Name, Kind: written.Kind}]...)
		}
		known.Functions[written] = overloads
	}
	return known
}

// under returns the relation as it is under this map.
func (r relation) under(m *topology.Map) *plan.Relation {
	if m == nil {
		return r.Relation
	}
	if t := m.Table(r.Schema, r.Name); declared(t) {
		return r.declaredAs(t.Kind())
	}
	if root := r.PartitionOf; root != nil {
		if t := m.Table(root.Schema, root.Name); declared(t) {
			return r.declaredAs(t.Kind())
		}
	}
	where := Home(m)
	if place, keyspace := m.LocateSchema(r.Schema); keyspace != nil {
		where = place.Shard
	} else if t := m.Table(r.Schema, r.Name); t != nil {
		where = t.Shard()
	}
	reached, run := r.read.reach(m, where), r.written.reach(m, where)
	if r.setsParameters {
		run = parameters
	}
	if reached == "" && run == "" {
		return r.Relation
	}
	reaching := *r.Relation
	reaching.ReachesDeclared, reaching.Reaches, reaching.WritesRun = reached != "", reached, run
	if r.View != nil {
		view := *r.View
		view.Everywhere = r.read.everywhere(m)
		reaching.View = &view
	}
	return &reaching
}

// declaredAs returns a declared table, with the functions behind it that may reach anything. One that uses only rows of the shard that it
// runs on may stand behind a sharded table: whoever uses its rows is where they are.
func (r relation) declaredAs(kind topology.Kind) *plan.Relation {
	read, written := r.read.opaque, r.written.opaque
	if kind == topology.Sharded {
		read, written = r.read.anywhere, r.written.anywhere
	}
	if read == "" && written == "" {
		return r.Relation
	}
	behind := *r.Relation
	behind.ReadsRun, behind.WritesRun = read, written
	return &behind
}

// parameters is PostgreSQL's view of them, which sets them when it is written to.
const parameters = systemSchema + ".pg_settings"

// reach returns the first thing reached that one shard alone does not have, empty if there is none.
func (e effects) reach(m *topology.Map, where *topology.Shard) string {
	for _, name := range e.tables {
		t := m.Table(name.Schema, name.Name)
		place, keyspace := m.LocateSchema(name.Schema)
		if declared(t) || t != nil && t.Shard() != where || keyspace != nil && place.Shard != where {
			return name.String()
		}
	}
	if e.opaque != "" && hasElsewhere(m) {
		return e.opaque
	}
	return ""
}

// everywhere says whether every shard has all tables that are reached, and so can have a view of them.
func (e effects) everywhere(m *topology.Map) bool {
	return len(e.tables) > 0 && !slices.ContainsFunc(e.tables, func(name topology.TableName) bool { return !declared(m.Table(name.Schema, name.Name)) })
}

// declared: its rows are not all on one shard, or on more than one.
func declared(t *topology.Table) bool {
	return t != nil && (t.Kind() == topology.Sharded || t.Kind() == topology.Reference)
}

// hasElsewhere says whether there are rows that the home shard does not have.
func hasElsewhere(m *topology.Map) bool {
	for _, t := range m.Tables() {
		if t.Kind() == topology.Sharded || t.Kind() == topology.Single && t.Shard() != m.Home() {
			return true
		}
	}
	return false
}

// kept is the memory. When it is full, any name makes room for a new one: it costs a round trip to read it again.
type kept struct {
	answers
	limit int
}

func newKept(limit int) kept { return kept{newAnswers(), limit} }

func (k *kept) clear() { k.answers = newAnswers() }

// find returns what is there of the wanted, and the names of the rest.
func (k *kept) find(wanted names) (found answers, missing names) {
	found = newAnswers()
	for _, name := range wanted.relations {
		if r, known := k.relations[name]; known {
			found.relations[name] = r
		} else {
			missing.relations = append(missing.relations, name)
		}
	}
	for _, name := range wanted.functions {
		if f, known := k.functions[name]; known {
			found.functions[name] = f
		} else {
			missing.functions = append(missing.functions, name)
		}
	}
	return found, missing
}

func (k *kept) add(read answers) {
	k.answers.add(read)
	shrink(k.relations, k.limit)
	shrink(k.functions, k.limit)
}

// shrink removes whatever comes first in the map's own order, which is different each time.
func shrink[K comparable, V any](m map[K]V, limit int) {
	for k := range m {
		if len(m) <= limit {
			return
		}
		delete(m, k)
	}
}
