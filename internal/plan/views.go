package plan

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cleavedb/cleave/internal/compose"
	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// A view over declared tables is planned as if its query stood in its place: the proof is made of the text with the queries of all views in it. Where
// one shard, or each for itself, can answer, it gets the client's own text, so that the view's rights and row security hold. Where steps are
// needed, views whose rows are each some shard's are pulled like tables; only others are taken apart, with the rights of the client's role.

// unfolded is a text with queries of views in the place of their names.
type unfolded struct {
	text     string
	literals []sqltext.Literal
	// s is the statement, of that text.
	s *facts.Statement
	// views are those that were replaced, in no order, and spans where their queries stand, in order.
	views []unfoldedView
	spans []span
	// moved are the spans' places in the client's text.
	moved []span
	// writes: the first of the views is written to.
	writes bool
	// from is the client's text.
	from *unfolded
}

// span is a piece of a text.
type span struct{ start, end int }

// unfoldedView is a view whose query stands in its place.
type unfoldedView struct {
	*Relation
	// named: the client's text names it, rather than another view.
	named bool
	// statement is its query by itself.
	statement *facts.Statement
}

// maxUnfolded is how many views a statement may come to; each may name others more than once.
const maxUnfolded = 64

// unfolds are the kinds of statements in which views are read.
var unfolds = []facts.Kind{"SelectStmt", "InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt", "ExplainStmt", "DeclareCursorStmt", "CopyStmt", "CreateTableAsStmt"}

// WantsBehind returns the names that [Make] has to know about besides those of [Wants], because views that are known by now name them; none if
// all are known.
func WantsBehind(text string, statements []facts.Statement, known *Known, c Context) (relations []RelationName, functions []FunctionName) {
	if !known.hasViews() {
		return nil, nil
	}
	p := newPlanner(text, known, c)
	w := wants{seenRelations: map[RelationName]bool{}, seenFunctions: map[FunctionName]bool{}}
	for i := range statements {
		p.wantWritten(&w, &statements[i])
		if u := p.unfold(&statements[i], (*resolved).isRead); u != nil {
			w.add(u.s)
		}
	}
	isKnown := func(r RelationName) bool { _, known := known.Relations[r]; return known }
	isKnownFunction := func(f FunctionName) bool { _, known := known.Functions[f]; return known }
	return slices.DeleteFunc(w.relations, isKnown), slices.DeleteFunc(w.functions, isKnownFunction)
}

// hasViews says whether a view over declared tables is known.
func (k *Known) hasViews() bool {
	for _, r := range k.Relations {
		if r != nil && r.View != nil && r.ReachesDeclared {
			return true
		}
	}
	return false
}

// With returns what is known with more.
func (k *Known) With(more *Known) *Known {
	both := &Known{Relations: map[RelationName]*Relation{}, Functions: map[FunctionName][]Function{}}
	for _, known := range []*Known{k, more} {
		for name, r := range known.Relations {
			both.Relations[name] = r
		}
		for name, f := range known.Functions {
			both.Functions[name] = f
		}
	}
	return both
}

// isView says whether it is a view over declared tables, of which the query is known.
func (r *resolved) isView() bool {
	return r.class == reaching && r.relation != nil && r.relation.Kind == 'v' && r.relation.View != nil && r.relation.View.SQL != ""
}

// isRead says whether it is a view that is read, and nothing else.
func (r *resolved) isRead() bool {
	return r.isView() && !r.Written && !r.Sampled && (r.Role == facts.From || r.Role == facts.Nested) && r.WideEnd > r.WideStart
}

// unfold puts the queries of views into a statement in the place of their names; nil if it names none of these.
func (p *planner) unfold(s *facts.Statement, which func(*resolved) bool) *unfolded {
	if !slices.Contains(unfolds, s.Kind) || !p.known.hasViews() {
		return nil
	}
	u := &unfolded{text: p.text, literals: p.Literals, s: s}
	if !u.throughView(p) {
		return nil
	}
	for {
		more, ok := u.once(p, which)
		if !ok {
			return nil
		}
		if !more {
			break
		}
	}
	if len(u.views) == 0 {
		return nil
	}
	u.from = &unfolded{text: p.text, literals: p.Literals, s: s}
	return u
}

// once replaces the views that the text names. More: there were some. Not ok: the text cannot be read, so that it stays as it is.
func (u *unfolded) once(p *planner, which func(*resolved) bool) (more, ok bool) {
	var found []resolved
	for s := u.s; s != nil; s = s.Inner {
		for _, t := range s.Tables {
			if r := p.resolve(t); which(&r) {
				found = append(found, r)
			}
		}
	}
	if len(found) == 0 {
		return false, true
	}
	if len(u.views)+len(found) > maxUnfolded {
		return false, false
	}
	slices.SortFunc(found, func(a, b resolved) int { return b.WideStart - a.WideStart }) // the last one first, so that places before it stay
	for i := range found {
		if !u.replace(&found[i]) {
			return false, false
		}
	}
	return true, u.readAgain()
}

// readAgain reads the statement as it is now; false if it cannot be read.
func (u *unfolded) readAgain() bool {
	statements, err := facts.Of(u.text)
	if err != nil {
		return false
	}
	at := slices.IndexFunc(statements, func(s facts.Statement) bool { return s.Start == u.s.Start })
	if at < 0 {
		return false
	}
	u.s = &statements[at]
	return true
}

// replace puts a view's query into the place of its name.
func (u *unfolded) replace(r *resolved) bool {
	view := r.relation.View
	query, err := facts.Of(view.SQL)
	if err != nil || len(query) != 1 {
		return false
	}
	sql := "(" + qualified(view.SQL, &query[0]) + ")"
	if r.Command {
		sql = "SELECT * FROM " + sql
	}
	if r.Alias == "" {
		sql += " AS " + sqltext.QuoteIdentifier(r.Name)
	}
	named := u.put(r.WideStart, r.WideEnd, sql)
	u.views = append(u.views, unfoldedView{r.relation, named, &query[0]})
	return true
}

// qualified writes the schema before PostgreSQL's own relations in a view's query: around it their names may be those of common table expressions.
func qualified(sql string, query *facts.Statement) string {
	tables := slices.DeleteFunc(slices.Clone(query.Tables), func(t facts.Table) bool { return t.Schema != "" })
	slices.SortFunc(tables, func(a, b facts.Table) int { return b.Start - a.Start })
	for _, t := range tables {
		sql = sql[:t.Start] + "pg_catalog." + sql[t.Start:]
	}
	return sql
}

// put replaces a piece of the text, and says whether it was the client's.
func (u *unfolded) put(start, end int, sql string) (clients bool) {
	grown := len(sql) - (end - start)
	clients = true
	before, at := 0, len(u.spans)
	for i, span := range u.spans {
		if span.start <= start && end <= span.end {
			clients = false
			at = i
			break
		}
		if span.start > start {
			at = i
			break
		}
		before += (span.end - span.start) - (u.moved[i].end - u.moved[i].start)
	}
	u.text = u.text[:start] + sql + u.text[end:]
	literals := slices.Clone(u.literals)
	for i := range literals {
		if literals[i].Start >= end {
			literals[i].Start, literals[i].End = literals[i].Start+grown, literals[i].End+grown
		}
	}
	u.literals = literals
	if clients {
		u.spans = slices.Insert(u.spans, at, span{start, start + len(sql)})
		u.moved = slices.Insert(u.moved, at, span{start - before, end - before})
	} else {
		u.spans[at].end += grown
	}
	for i := at + 1; i < len(u.spans); i++ {
		u.spans[i].start, u.spans[i].end = u.spans[i].start+grown, u.spans[i].end+grown
	}
	return clients
}

// place is a place of the unfolded text in the client's; not ok if it is in a view's query.
func (u *unfolded) place(at int) (place int, ok bool) {
	for i, span := range u.spans {
		if at < span.start {
			break
		}
		if at < span.end {
			return 0, false
		}
		place -= (span.end - span.start) - (u.moved[i].end - u.moved[i].start)
	}
	return place + at, true
}

// decideUnfolded decides about a statement by its text with the queries of views in it. What is sent is the client's text.
func (p *planner) decideUnfolded(s *facts.Statement, u *unfolded, out *Statement) {
	p.read(u)
	p.decide(u.s, out)
	p.read(u.from)
	p.unfolded = nil
	out.Start, out.End = s.Start, s.End
	p.cutAgain(s, out)
	u.keepPlaces(out)
	u.keepWrites(out)
	u.keepWhereViewsAre(p, out)
}

// keepPlaces says of places in the text where they are in the client's.
func (u *unfolded) keepPlaces(out *Statement) {
	hidden := false
	move := func(at *int) {
		place, ok := u.place(*at)
		hidden = hidden || !ok
		*at = place
	}
	for i := range out.Virtual {
		move(&out.Virtual[i].Start)
		move(&out.Virtual[i].End)
	}
	for i := range out.Numbers {
		move(&out.Numbers[i].Start)
		move(&out.Numbers[i].Open)
		move(&out.Numbers[i].End)
	}
	words := strings.Contains(strings.ToUpper(u.views[0].View.SQL), "VALUES")
	for _, v := range u.views[1:] {
		words = words || strings.Contains(strings.ToUpper(v.View.SQL), "VALUES")
	}
	if hidden || words && (len(out.Route.Numbers) > 0 || out.Route.RowKeys > 0) {
		out.refuse("view-of-routers", pgerr.New(pgerr.FeatureNotSupported, "view %q is not supported in this statement", u.views[0].Name).
			WithDetail("The router would have to change its query.").WithHint("Use a statement of its own for what is read from the view."))
	}
}

// keepWhereViewsAre sees to it that no shard gets the name of a view that it does not have.
func (u *unfolded) keepWhereViewsAre(p *planner, out *Statement) {
	at := slices.IndexFunc(u.views, func(v unfoldedView) bool { return v.named && !v.View.Everywhere })
	if at < 0 || out.Refusal != nil {
		return
	}
	switch r := &out.Route; {
	case r.Level == Anywhere:
		out.Route = Route{Level: Home, Why: "view " + u.views[at].Name + " is the home shard's"}
	case r.Level == Home, r.Level == OnShard && r.Shard == p.Home, r.Level == Composed:
	default:
		out.refuse("view-at-home", pgerr.New(pgerr.FeatureNotSupported, "view %q is not supported in this statement", u.views[at].Name).
			WithDetail("The home shard alone has it, since it reads what no other shard has.").WithHint("Write the query of the view itself into the statement."))
	}
}

// usesUnfolded adds the relations behind views to those that a statement names.
func (p *planner) usesUnfolded(u *unfolded, used []RelationName) []RelationName {
	for _, v := range u.views {
		if name := (RelationName{v.Schema, v.Name}); !slices.Contains(used, name) {
			used = append(used, name)
		}
	}
	return p.uses(u.s, used)
}

// split takes the statement apart.
func (v *survey) split() (*compose.Composition, error) {
	if v.p.unfolded == nil {
		return compose.Split(v.composedQuery())
	}
	return v.splitUnfolded(v.p.unfolded)
}

// splitUnfolded takes a statement apart that names views. Views whose rows are each some shard's stay, and are pulled by their names; others are replaced by
// their queries.
func (v *survey) splitUnfolded(all *unfolded) (*compose.Composition, error) {
	p := v.p
	defer func() { p.read(all) }()
	p.read(&unfolded{text: all.from.text, literals: all.from.literals, s: all.from.s})
	u := p.unfold(all.from.s, func(r *resolved) bool { return r.isRead() && !p.standsAlone(r.relation) })
	if u == nil {
		u = &unfolded{text: all.from.text, literals: all.from.literals, s: all.from.s}
	}
	if refusal := p.refuseApart(u, all); refusal != nil {
		if v.out.Refusal != nil {
			v.out.Refusal, v.out.Rule = refusal, "view-in-steps"
		}
		return nil, compose.ErrForm
	}
	p.read(u)
	steps := &survey{p: p, s: u.s, out: v.out}
	for steps.s.Inner != nil {
		steps.s = steps.s.Inner
	}
	for _, t := range steps.s.Tables {
		r := p.resolve(t)
		if t.Role == facts.Created {
			r = p.resolveNew(t, steps.s.Options.Temporary)
		}
		steps.tables = append(steps.tables, r)
	}
	steps.s = steps.withDefaults()
	c, err := compose.Split(steps.composedQuery())
	if err == nil {
		for _, view := range u.views {
			if name := (RelationName{view.Schema, view.Name}); view.named && !slices.Contains(v.out.Unfolds, name) {
				v.out.Unfolds = append(v.out.Unfolds, name)
			}
		}
	}
	return c, err
}

// read makes a text the one that is planned.
func (p *planner) read(u *unfolded) {
	p.text, p.Literals, p.unfolded = u.text, u.literals, u
	p.start, p.end = u.s.Start, u.s.End
}

// standsAlone says whether a view can be pulled by its name: its rows are those of all shards together, or the home shard's, and whoever reads it twice sees the same.
func (p *planner) standsAlone(view *Relation) bool {
	name := RelationName{view.Schema, view.Name}
	if alone, known := p.standing[name]; known {
		return alone
	}
	p.standing[name] = false
	sql := "SELECT * FROM " + name.Quoted()
	statements, err := facts.Of(sql)
	if err != nil || len(statements) != 1 {
		return false
	}
	context := p.Context
	context.Literals, context.Alone, context.HintShard, context.HintKey = nil, true, "", false
	q := newPlanner(sql, p.known.With(&Known{Relations: map[RelationName]*Relation{name: view}}), context)
	u := q.unfold(&statements[0], (*resolved).isRead)
	if u == nil || u.s.Moments || slices.ContainsFunc(tablesInside(u.s), func(t facts.Table) bool { return t.Sampled }) || slices.ContainsFunc(u.s.Calls, func(c facts.Call) bool { return q.isVolatile(&c) || momentFunctions[c.Name] }) {
		return false
	}
	st := q.statement(&statements[0])
	p.standing[name] = st.isDivided() && (view.View.Everywhere || st.Route.Level == Home)
	return p.standing[name]
}

// momentFunctions tell when the transaction began, which is one moment for all steps of a statement.
var momentFunctions = map[string]bool{"now": true, "transaction_timestamp": true}

// isDivided says whether every shard can answer for its own rows, such that all answers together are that of the whole.
func (s *Statement) isDivided() bool {
	if s.Refusal != nil || len(s.Virtual) > 0 {
		return false
	}
	switch s.Route.Level {
	case Several:
		return s.Route.Parts == Same
	case Keyed, Anywhere, Home, OnShard:
		return true
	default:
		return false
	}
}

// refuseApart is why views must not be taken apart: their queries would be read in another way than where the views are, or show other rows to the
// client's role than to the view's owner.
func (p *planner) refuseApart(u, all *unfolded) *pgerr.Error {
	for _, view := range u.views {
		refusal := pgerr.New(pgerr.FeatureNotSupported, "view %q is not supported in this statement", view.Name)
		if name := p.hijacked(view.statement); name != "" {
			return refusal.WithDetail("Its query has to be computed in steps, and in it %q might mean something else than PostgreSQL's own by the search path.", name).
				WithHint("Take the schema that has another one of that name out of the search path.")
		}
		if p.ForeignEncoding && strings.ContainsFunc(view.View.SQL, func(r rune) bool { return r >= utf8.RuneSelf }) {
			return refusal.WithDetail("Its query has to be computed in steps, and has characters that are not ASCII, which the client's encoding has otherwise.").WithHint("SET client_encoding = 'UTF8'.")
		}
		if view.View.Invoker || view.View.Owner == p.Role {
			continue
		}
		for _, t := range tablesInside(all.s) {
			if r := p.resolve(t); r.relation != nil && r.relation.RowSecurity {
				return refusal.WithDetail("Its query has to be computed in steps, by the rights of role %q, and row security may show other rows of %s to that role than to the view's owner.", p.Role, r.title()).
					WithHint("Bind the key to values of one shard, or make the view WITH (security_invoker).")
			}
		}
	}
	return nil
}

// hijacked is a name without schema in a view's query that might mean something else than PostgreSQL's own; empty if there is none.
func (p *planner) hijacked(s *facts.Statement) string {
	others := func(name FunctionName) bool {
		return name.Schema == "" && slices.ContainsFunc(p.known.Functions[name], func(f Function) bool { return !f.System })
	}
	if !p.trustsBuiltins() {
		return "pg_catalog"
	}
	for _, c := range s.Calls {
		if others(FunctionName{Schema: c.Schema, Name: c.Name}) {
			return c.Name
		}
	}
	for _, o := range s.Operators {
		if others(FunctionName{Schema: o.Schema, Name: o.Name, Kind: OfOperator}) {
			return o.Name
		}
	}
	for _, t := range s.Types {
		if t.Schema == "" && (p.Temporary != nil && p.Temporary(t.Name) || others(FunctionName{Name: t.Name, Kind: OfType})) {
			return t.Name
		}
	}
	return ""
}

// tablesInside are all relations that a statement names, those of statements inside of it included.
func tablesInside(s *facts.Statement) []facts.Table {
	var tables []facts.Table
	for ; s != nil; s = s.Inner {
		tables = append(tables, s.Tables...)
	}
	return tables
}

// readsDeclared says whether a query reads tables that several shards have, itself or by views.
func (p *planner) readsDeclared(s *facts.Statement) bool {
	return s != nil && slices.ContainsFunc(s.Tables, func(t facts.Table) bool {
		r := p.resolve(t)
		return r.class == sharded || r.class == reference || r.isView()
	})
}

// planView plans CREATE VIEW over declared tables: every shard gets it if all have what it reads; else it is the home shard's, and is taken apart wherever it is read.
func planView(p *planner, s *facts.Statement, out *Statement) {
	planDefinition(p, s, out)
	refuseKeptSetConfig(s.Inner, out)
	if inner := p.inner(s, &Statement{}); len(inner.Virtual) > 0 {
		out.refuse("makes-from-router-view", makesFromRouters(s))
	}
	at := ""
	for _, t := range s.Inner.Tables {
		switch r := p.resolve(t); {
		case r.class == temporary || r.class == unclear || r.class == single && r.shard != p.Home:
			out.refuse("makes-from-declared", pgerr.New(pgerr.FeatureNotSupported, "%s is not supported over a sharded or reference table together with what other shards do not have", s.Name).
				WithDetail("It reads %s.", r.title()).WithHint("%s", insteadOfView))
		case r.class == sharded, r.class == reference, r.class == system, r.isView() && r.relation.View.Everywhere:
		default:
			at = r.title()
		}
	}
	if len(out.Creates) > 0 {
		out.refuse("temporary-view", pgerr.New(pgerr.FeatureNotSupported, "a temporary view over a sharded or reference table is not supported").
			WithDetail("It would be in one session of the home shard, and what it reads is on several.").WithHint("Make one that is not temporary."))
	}
	if out.Route.Level != Home {
		out.refuse("two-shards", pgerr.New(pgerr.FeatureNotSupported, "%s over tables on several shards is not supported yet", s.Name).
			WithDetail("A keyspace places its schema on one shard.").WithHint("Make it in another schema."))
	}
	p.placeView(s, out, at)
}

// placeView says where a view is made; at is what it reads that only the home shard has.
func (p *planner) placeView(s *facts.Statement, out *Statement, at string) {
	for _, t := range s.Tables {
		t.Role = facts.Subject
		before := p.resolve(t)
		if at != "" && before.isView() && before.relation.View.Everywhere {
			out.refuse("view-leaves-shards", pgerr.New(pgerr.FeatureNotSupported, "view %q, which every shard has, cannot be replaced by one that only the home shard can have", t.Name).
				WithDetail("It reads %s.", at).WithHint("DROP VIEW it first."))
		}
		if at == "" && s.Options.Replace && before.isView() && !before.relation.View.Everywhere { // the others' would have another owner, and nobody's rights
			out.refuse("view-joins-shards", pgerr.New(pgerr.FeatureNotSupported, "view %q, which only the home shard has, cannot be replaced by one that every shard has", t.Name).
				WithDetail("Its owner, rights and comments are on the home shard alone.").WithHint("DROP VIEW it first."))
		}
		name := RelationName{cmp.Or(t.Schema, p.newSchema()), t.Name}
		if before.relation != nil {
			name.Schema = before.relation.Schema
		}
		if at == "" { // whoever goes by another view of that name, or by none
			out.Holds = append(out.Holds, name)
		}
	}
	if at == "" && out.Refusal == nil {
		out.Route = Route{Level: Everywhere, Parts: Copies, Why: "every shard has what it reads"}
	}
}

// viewChanges are what can be done to views that every shard has.
var viewChanges = []facts.Kind{"DropStmt", "RenameStmt", "AlterTableStmt", "AlterObjectSchemaStmt", "GrantStmt", "CommentStmt", "SecLabelStmt"}

// onViews decides about a definition on views that every shard has. A shard that lacks one is passed over: it may have been made before its tables were declared.
func (d *definition) onViews() {
	if d.s.Kind == "AlterObjectSchemaStmt" {
		d.home = "" // the new schema's name is none of a thing
	}
	if d.home != "" || d.shard != "" {
		d.out.refuse("two-shards", pgerr.New(pgerr.FeatureNotSupported, "%s over things on several shards is not supported yet", d.s.Name).
			WithDetail("View %s is on every shard, and something else is not.", d.views[0].title()).WithHint("Use a statement for each."))
		return
	}
	d.out.Route = Route{Level: Everywhere, Parts: Copies, Why: "every shard has view " + d.views[0].title(), Lenient: len(d.views) == 1 && d.s.Kind == "DropStmt"}
	d.holdViews()
}

// holdViews keeps everybody off views while they change: statements were planned by their queries.
func (d *definition) holdViews() {
	switch d.s.Kind {
	case "GrantStmt", "CommentStmt", "SecLabelStmt":
		return
	}
	for i := range d.views {
		d.out.Holds = append(d.out.Holds, RelationName{d.views[i].relation.Schema, d.views[i].relation.Name})
	}
}
