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
		if t.Role != facts.Created {
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

	// sharded: there are sharded tables; declared: there are sharded or reference tables. Both somewhere in the cluster.
	sharded, declared bool
	// escapes: a plain string has a backslash in it that is none to the grammar. uescape: the text has that word somewhere.
	escapes, uescape bool
	// made are temporary relations that earlier statements of the text make.
	made map[string]bool
	// unsettled is what stood earlier in the text and may change which tables later names mean; pathOnly: but only for names
	// without a schema. ended is what may have ended the life of temporary relations.
	unsettled string
	pathOnly  bool
	ended     string
	// inside: the statement at hand stands in another one, so it may run later, or not at all.
	inside bool
}

func newPlanner(text string, known *Known, c Context) *planner {
	p := &planner{Context: c, text: text, known: known, made: map[string]bool{}}
	p.uescape = strings.Contains(strings.ToUpper(text), "UESCAPE")
	if p.known == nil {
		p.known = &Known{}
	}
	for _, t := range c.Map.Tables() {
		p.sharded = p.sharded || t.Kind() == topology.Sharded
		p.declared = p.declared || t.Kind() != topology.Single
	}
	p.escapes = slices.ContainsFunc(c.Literals, func(l sqltext.Literal) bool {
		return l.Kind == sqltext.EscapeString && l.Start < len(text) && text[l.Start] == '\''
	})
	return p
}

// statement plans one statement.
func (p *planner) statement(s *facts.Statement) Statement {
	out := Statement{Name: s.Name, Start: s.Start, End: s.End}
	p.decide(s, &out)
	if s.ByLiteral || len(out.Virtual) > 0 {
		p.plan.Uncacheable = true
	}
	if out.Refusal != nil {
		return Statement{Name: s.Name, Start: s.Start, End: s.End, Refusal: out.Refusal, Rule: out.Rule}
	}
	p.remember(s, &out)
	return out
}

func (p *planner) decide(s *facts.Statement, out *Statement) {
	rule, known := kinds[s.Kind]
	switch {
	case !known:
		out.refuse("kind", pgerr.New(pgerr.FeatureNotSupported, "%s is not supported", s.Name))
	case p.escapes:
		out.refuse("escape-in-plain-string", pgerr.New(pgerr.FeatureNotSupported, "a backslash in a plain string is not supported while standard_conforming_strings is off").
			WithHint(`Write E'…' for strings with backslashes, or SET standard_conforming_strings TO on.`))
	case p.unsettles(s):
		out.refuse("unsettled-names", pgerr.New(pgerr.FeatureNotSupported, "%s behind %s in the same text is not supported", s.Name, p.unsettled).
			WithDetail("Which tables it names is known only after %s has run.", p.unsettled).WithHint("Send the statements one by one."))
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

// unsettles says whether an earlier statement of the text may change what this one's names mean.
func (p *planner) unsettles(s *facts.Statement) bool {
	if s.Inner != nil && p.unsettles(s.Inner) {
		return true
	}
	for _, t := range s.Tables {
		byPath := t.Schema == "" && t.Role != facts.Created
		if p.unsettled != "" && (byPath || !p.pathOnly) {
			return true
		}
		if p.ended != "" && byPath && p.isTemporary(t.Name) {
			p.unsettled, p.pathOnly = p.ended, true
			return true
		}
	}
	return p.unsettled != "" && p.sharded && slices.ContainsFunc(s.Calls, func(c facts.Call) bool { return c.Schema == "" && !p.isSystem(c) })
}

// remember notes what a statement changes for those behind it.
func (p *planner) remember(s *facts.Statement, out *Statement) {
	for _, name := range out.Creates {
		p.made[name] = true
	}
	for _, v := range out.Virtual {
		if v.Function && changesMap[v.Name] {
			p.unsettled, p.pathOnly = "cleave."+v.Name, false
		}
	}
	if !p.matters() {
		return
	}
	if p.unsettled == "" && p.changesPath(out) {
		p.unsettled, p.pathOnly = s.Name, true
	}
	if p.ended == "" && p.endsTemporary(s, out) {
		p.ended = s.Name
	}
}

// matters says whether it makes a difference which table a name means: not as long as all are on the home shard.
func (p *planner) matters() bool {
	return p.Map.TableCount() > 0 || slices.ContainsFunc(p.Map.Keyspaces(), func(k *topology.Keyspace) bool { return k.Strategy() == topology.BySchema })
}

// changesPath says whether names without a schema may mean something else behind this statement.
func (p *planner) changesPath(out *Statement) bool {
	switch out.Command {
	case ResetAll, DiscardAll, Execute:
		return true
	case Commit, Rollback, RollbackTo:
		return p.PathIsLocal
	case ShowVariable:
		return false
	default:
	}
	return out.Taints || slices.ContainsFunc(out.Settings, func(s Setting) bool {
		return s.Name == "search_path" || s.Name == "role" || s.Name == "session_authorization"
	})
}

// endsTemporary says whether temporary relations may be gone behind this statement, so that their names mean others again.
func (p *planner) endsTemporary(s *facts.Statement, out *Statement) bool {
	switch out.Command {
	case DiscardAll, DiscardTemp, Commit, Rollback, RollbackTo:
		return true
	default:
	}
	return out.Schema && slices.ContainsFunc(s.Tables, func(t facts.Table) bool {
		r := p.resolve(t)
		return t.Role == facts.Subject && r.class == temporary
	})
}
