package plan

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// Context is what a text means something in: the session's names, the text's literals, the shard map.
type Context struct {
	// SearchPath are the schemas in which names without one are looked for, "$user" replaced; some of them may not exist.
	// pg_temp and pg_catalog come first unless they are listed.
	SearchPath []string
	// PathIsLocal: the search path was changed in the transaction that is open, so its end may change it back.
	PathIsLocal bool
	// Temporary says whether the session has a temporary relation of that name; nil if it has none at all.
	Temporary func(name string) bool
	// Literals are those that the normaliser took out of the text, in order.
	Literals []sqltext.Literal
	// Unsettled is the command of a definition that ran earlier in the same transaction and whose effects could not be looked
	// up; empty if there was none.
	Unsettled string
	// Altered: definitions ran earlier in the same transaction, and names were looked up as that transaction sees them, so
	// rolling it back changes what they mean.
	Altered bool
	// Dropped are the sharded and reference tables that the transaction has dropped. The shard map has them until it is committed.
	Dropped []topology.TableName
	// ShardLocal says whether a function was declared to use rows of one shard only, that of the statement which calls it; nil if
	// none was.
	ShardLocal func(schema, name string) bool
	// Dumps: the client takes a dump, so catalogues are to be read without what is the router's own.
	Dumps bool
	// HintShard is the shard that the client says a query is meant for, whatever its text says; empty if it says nothing.
	// HintKey: it says that statements without a key are meant for the shard of a key that it has set.
	HintShard string
	HintKey   bool
	// Alone: what no shard can run alone is refused rather than taken apart.
	Alone bool
	// ForeignEncoding: the client's texts are in another encoding than UTF8, and so are those that shards get.
	ForeignEncoding bool
	// Role is the client's, by whose rights statements run.
	Role string
	// Map is the shard map.
	Map *topology.Map
	// Home is the name of the home shard.
	Home string
}

// Wants returns the names that [Make] has to know about, each once.
func Wants(statements []facts.Statement) (relations []RelationName, functions []FunctionName) {
	w := wants{seenRelations: map[RelationName]bool{}, seenFunctions: map[FunctionName]bool{}}
	for i := range statements {
		w.add(&statements[i])
	}
	return w.relations, w.functions
}

type wants struct {
	relations     []RelationName
	functions     []FunctionName
	seenRelations map[RelationName]bool
	seenFunctions map[FunctionName]bool
}

func (w *wants) add(s *facts.Statement) {
	for _, t := range s.Tables {
		if t.Role != facts.Created || s.Kind == "ViewStmt" { // a view may be replaced
			w.relation(RelationName{t.Schema, t.Name})
		}
	}
	for _, c := range s.Calls {
		w.function(FunctionName{Schema: c.Schema, Name: c.Name})
		if len(c.Arguments) == 1 { // it may be a cast
			w.function(FunctionName{Schema: c.Schema, Name: c.Name, Kind: OfType})
		}
	}
	for _, field := range s.Fields {
		w.function(FunctionName{Name: field})
		w.function(FunctionName{Name: field, Kind: OfType})
	}
	for _, t := range s.Types {
		w.function(FunctionName{Schema: t.Schema, Name: t.Name, Kind: OfType})
	}
	for _, o := range s.Operators {
		w.function(FunctionName{Schema: o.Schema, Name: o.Name, Kind: OfOperator})
	}
	if s.Inner != nil {
		w.add(s.Inner)
	}
}

func (w *wants) relation(name RelationName) {
	if name.Schema != routerSchema && !w.seenRelations[name] {
		w.seenRelations[name] = true
		w.relations = append(w.relations, name)
	}
}

func (w *wants) function(name FunctionName) {
	if name.Schema != routerSchema && name.Name != "" && !w.seenFunctions[name] {
		w.seenFunctions[name] = true
		w.functions = append(w.functions, name)
	}
}

// Make returns how the statements of a text run. It never fails: a statement that must not run has its refusal.
func Make(text string, statements []facts.Statement, known *Known, c Context) *Plan {
	p := newPlanner(text, known, c)
	p.plan.Uncacheable = len(statements) > 1 // where each begins depends on the lengths of literals
	for i := range statements {
		p.plan.Statements = append(p.plan.Statements, p.statement(&statements[i]))
	}
	return &p.plan
}

// planner is the making of one plan.
type planner struct {
	Context
	text  string
	known *Known
	plan  Plan
	// start and end are the bytes of the statement at hand, whatever is inside of it.
	start, end int

	// sharded: there are sharded tables, or others that the home shard does not have; declared: there are sharded or reference tables. Both somewhere in the cluster.
	sharded, declared bool
	// while says which of both is so, for people.
	while string
	// escapes: a plain string has a backslash in it that is none to the grammar. uescape: the text has that word somewhere.
	escapes, uescape bool
	// made are temporary relations that earlier statements of the text make.
	made map[string]bool
	// open is what earlier statements leave open. gone are relations that they drop or rename, by their names; altered: they may
	// have changed columns. ended is what may have ended the life of temporary relations.
	open    open
	gone    map[string]goneRelation
	altered bool
	ended   string
	// inside: the statement at hand stands in another one, so it may run later, or not at all; around is the kind of that one.
	inside bool
	around facts.Kind
	// unfolded is the text at hand, if it has the queries of views in it; standing are views of which it was found out whether they can be pulled.
	unfolded *unfolded
	standing map[RelationName]bool
	// oneTime: a view has the current time in it, which has to be the same on all shards.
	oneTime bool
}

func newPlanner(text string, known *Known, c Context) *planner {
	p := &planner{Context: c, text: text, known: known, made: map[string]bool{}, gone: map[string]goneRelation{}, standing: map[RelationName]bool{}}
	p.uescape = strings.Contains(strings.ToUpper(text), "UESCAPE")
	if p.known == nil {
		p.known = &Known{}
	}
	p.while = "tables are on other shards than the home shard"
	for _, t := range c.Map.Tables() {
		if t.Kind() == topology.Sharded {
			p.while = "there are sharded tables"
		}
		p.sharded = p.sharded || t.Kind() == topology.Sharded || isAway(c, t)
		p.declared = p.declared || t.Kind() != topology.Single
	}
	if c.Unsettled != "" && p.matters() {
		p.open = open{by: c.Unsettled, reach: openAll, before: true}
	}
	p.escapes = slices.ContainsFunc(c.Literals, func(l sqltext.Literal) bool {
		return l.Kind == sqltext.EscapeString && l.Start < len(text) && text[l.Start] == '\''
	})
	return p
}

// isAway says whether a table is on one shard alone, which is not the home shard: what the home shard runs unseen would miss it, or find what is left of it.
func isAway(c Context, t *topology.Table) bool {
	return t.Kind() == topology.Single && t.Shard().Name() != c.Home
}

// statement plans one statement.
func (p *planner) statement(s *facts.Statement) Statement {
	out := Statement{Name: s.Name, Start: s.Start, End: s.End}
	p.start, p.end = s.Start, s.End
	behind := p.unfold(s, (*resolved).isRead)
	if behind != nil {
		p.decideUnfolded(s, behind, &out)
		p.decideTimed(s, behind, &out)
	} else {
		p.decide(s, &out)
	}
	p.obeyHint(&out)
	p.keepDropped(s, &out)
	if s.ByLiteral || len(out.Virtual) > 0 {
		p.plan.Uncacheable = true
	}
	if out.Refusal != nil {
		return Statement{Name: s.Name, Start: s.Start, End: s.End, Refusal: out.Refusal, Rule: out.Rule, Missing: out.Missing}
	}
	out.Timed = p.timed(s, &out)
	out.Uses, out.Unseen = p.uses(s, nil), out.mayDefine || p.runsUnseen(s)
	if behind != nil {
		out.Uses = p.usesUnfolded(behind, out.Uses)
	}
	out.Fills = p.fills(s, out.Uses)
	p.remember(s, &out)
	return out
}

// fills is the table that a statement makes out of rows that it reads. A view goes on reading them.
func (p *planner) fills(s *facts.Statement, uses []RelationName) RelationName {
	isView := s.Name == "CREATE MATERIALIZED VIEW" //nolint:misspell // it is SQL
	if at := slices.IndexFunc(s.Tables, func(t facts.Table) bool { return t.Role == facts.Created }); at >= 0 && !isView && (s.Kind == "CreateTableAsStmt" || s.Query != nil) {
		made := s.Tables[at]
		if i := slices.IndexFunc(uses, func(name RelationName) bool {
			return name.Name == made.Name && (made.Schema == "" || name.Schema == made.Schema)
		}); i >= 0 {
			return uses[i]
		}
	}
	return RelationName{}
}

// runsUnseen says whether something runs behind a relation of which nobody can tell what it uses.
func (p *planner) runsUnseen(s *facts.Statement) bool {
	return slices.ContainsFunc(s.Tables, func(t facts.Table) bool {
		r := p.resolve(t)
		return r.relation != nil && r.relation.RunsUnseen
	}) || s.Inner != nil && p.runsUnseen(s.Inner)
}

// usesPlaced adds what a name may mean in the schemas of the search path that are on another shard than home, of which the home shard's catalogue knows nothing.
func (p *planner) usesPlaced(table string, used []RelationName) []RelationName {
	for _, schema := range p.SearchPath {
		if name := (RelationName{schema, table}); p.isPlacedAway(schema) && !slices.Contains(used, name) {
			used = append(used, name)
		}
	}
	return used
}

// uses adds the relations that a statement names to a list.
func (p *planner) uses(s *facts.Statement, used []RelationName) []RelationName {
	for _, t := range s.Tables {
		r := p.resolve(t)
		if t.Role == facts.Created {
			r = p.resolveNew(t, s.Options.Temporary)
		}
		name := RelationName{t.Schema, t.Name}
		switch {
		case r.relation != nil:
			name = RelationName{r.relation.Schema, r.relation.Name}
		case r.table != nil:
			name = RelationName{r.table.Name().Schema, r.table.Name().Name}
		case t.Role == facts.Created && name.Schema == "" && r.class != temporary:
			name.Schema = p.newSchema()
		case name.Schema == "" && r.class == single: // in one of the schemas of the path that are on that shard
			used = p.usesPlaced(name.Name, used)
			continue
		}
		if !slices.Contains(used, name) {
			used = append(used, name)
		}
		if r.relation == nil {
			continue
		}
		if of := r.relation.PartitionOf; of != nil && !slices.Contains(used, *of) {
			used = append(used, *of)
		}
		for _, served := range r.relation.Serves {
			if !slices.Contains(used, served) {
				used = append(used, served)
			}
		}
	}
	if s.Inner != nil {
		used = p.uses(s.Inner, used)
	}
	return used
}

func (p *planner) decide(s *facts.Statement, out *Statement) {
	rule, known := kinds[s.Kind]
	switch {
	case !known:
		out.refuse("kind", pgerr.New(pgerr.FeatureNotSupported, "%s is not supported", s.Name))
	case p.escapes:
		out.refuse("escape-in-plain-string", pgerr.New(pgerr.FeatureNotSupported, "a backslash in a plain string is not supported while standard_conforming_strings is off").
			WithHint(`Write E'…' for strings with backslashes, or SET standard_conforming_strings TO on.`))
	case p.opener(s) != nil:
		out.refuse("unsettled-names", p.opener(s).refusal(s))
	default:
		rule(p, s, out)
	}
}

// refuse says that the statement must not run, and by which rule. The first refusal stays.
func (s *Statement) refuse(rule string, err *pgerr.Error) {
	if s.Refusal == nil {
		s.Rule, s.Refusal = rule, err
	}
}
