package plan

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// Made is a relation of the home shard that a statement fills with rows which that shard alone does not have: CREATE TABLE AS, SELECT INTO, CREATE
// and REFRESH of materialised views.
type Made struct {
	// Head is the beginning of a statement that makes it, AS included; Again is the same with IF NOT EXISTS, empty if the client's statement does not say so.
	Head, Again string
	// Query is what its rows are those of. Executes: it is an EXECUTE.
	Query    string
	Executes bool
	// NoData: it gets no rows.
	NoData bool
	// Name is what it is called, without a schema if the statement does not name one. Temporary: it is the session's.
	Name      RelationName
	Temporary bool
	// View: it is a materialised view. Refreshes: it is there, under that name; the rest is empty then.
	View, Refreshes bool
}

// explainMakes is the rule by which EXPLAIN of what makes something in steps is refused.
const explainMakes = "explain-makes"

// makeInSteps plans CREATE TABLE AS whose query the home shard cannot answer alone.
func (p *planner) makeInSteps(s *facts.Statement, out *Statement, own, read Route) {
	table := slices.IndexFunc(s.Tables, func(t facts.Table) bool { return t.Role == facts.Created })
	switch {
	case out.Refusal != nil:
		return
	case p.inside:
		out.refuse(explainMakes, pgerr.New(pgerr.FeatureNotSupported, "EXPLAIN of %s over several shards is not supported", s.Name).
			WithDetail("It is run in steps: its query first, and then what it makes is filled with the rows.").WithHint("EXPLAIN the query by itself."))
		return
	case own.Level == OnShard && own.Shard != p.Home:
		out.refuse("two-shards", pgerr.New(pgerr.FeatureNotSupported, "%s over tables on several shards is not supported yet", s.Name).
			WithDetail("It would be made on shard %s, and not all that it is made from is there.", own.Shard).WithHint("Make it in a schema that no keyspace places."))
		return
	case table < 0 || !p.cutMade(out):
		out.refuse("makes-form", pgerr.New(pgerr.FeatureNotSupported, "this form of %s is not supported over several shards", s.Name).
			WithDetail("The router cannot tell its query from the rest.").WithHint("Create the table first, and use INSERT … SELECT."))
		return
	}
	if p.refuseWritten(s.Inner.Tables, s.Name, out); out.Refusal != nil {
		return
	}
	p.madeOf(out, s.Tables[table], s.Options.Temporary, read)
	out.Makes.NoData, out.Makes.Executes, out.Makes.View = s.Options.NoData, s.Inner.Kind == "ExecuteStmt", s.Name != "CREATE TABLE AS"
}

// planRefresh plans REFRESH. What a materialised view is made of, only the session can find out: its definition is in the catalogue.
func planRefresh(p *planner, s *facts.Statement, out *Statement) {
	planUpkeep(p, s, out)
	isHome := out.Route.Level == Home || out.Route.Level == OnShard && out.Route.Shard == p.Home
	if out.Refusal != nil || p.inside || !isHome || len(s.Tables) != 1 {
		return
	}
	if r := p.resolve(s.Tables[0]); r.relation != nil && r.relation.Kind == 'm' {
		out.Makes = &Made{Name: RelationName{r.relation.Schema, r.relation.Name}, NoData: s.Options.NoData, View: true, Refreshes: true}
		out.Route = Route{Level: Composed, Why: "its rows are brought to the home shard"}
	}
}

// refuseWritten refuses to make something out of what a common table expression of the query writes.
func (p *planner) refuseWritten(tables []facts.Table, name string, out *Statement) {
	if slices.ContainsFunc(tables, func(t facts.Table) bool { return t.Written }) {
		out.refuse("makes-and-writes", pgerr.New(pgerr.FeatureNotSupported, "%s with a common table expression that writes is not supported over several shards", name).
			WithDetail("The router has to ask what columns the query has, and must not run it for that.").WithHint("Create the table first, and use INSERT … SELECT, or write first, with a statement of its own."))
	}
}

// madeOf finishes the plan of a statement that is run in steps because of what it makes.
func (p *planner) madeOf(out *Statement, table facts.Table, isTemporary bool, read Route) {
	out.Makes.Name, out.Makes.Temporary = RelationName{table.Schema, table.Name}, isTemporary || isTemporarySchema(table.Schema) || table.Schema == "" && isTemporarySchema(p.newSchema())
	out.Route = Route{Level: Composed, Why: "its rows are brought to the home shard: " + read.Why}
	p.plan.Uncacheable = true // it has parts of the text in it
}

// cutMade cuts a CREATE TABLE AS into what is made and the query. The words that tell them apart can be no names.
func (p *planner) cutMade(out *Statement) bool {
	text := p.text[p.start:p.end]
	var tokens []sqltext.Token
	scanner := sqltext.NewScanner([]byte(text), true)
	for token, more := scanner.Next(); more; token, more = scanner.Next() {
		tokens = append(tokens, token)
	}
	is := func(i int, word string) bool {
		return i >= 0 && i < len(tokens) && tokens[i].Kind == sqltext.Word && strings.EqualFold(text[tokens[i].Start:tokens[i].End], word)
	}
	as, depth := -1, 0
	for i, token := range tokens {
		switch text[token.Start:token.End] {
		case "(":
			depth++
		case ")":
			depth--
		}
		if depth == 0 && is(i, "as") {
			as = i
			break
		}
	}
	if as < 0 || !is(0, "create") {
		return false
	}
	last := len(tokens)
	if is(last-1, "data") && is(last-2, "no") && is(last-3, "with") {
		last -= 3
	} else if is(last-1, "data") && is(last-2, "with") {
		last -= 2
	}
	if last-1 <= as {
		return false
	}
	head := text[:tokens[as].End]
	out.Makes = &Made{Head: head, Query: text[tokens[as+1].Start:tokens[last-1].End]}
	for i := range as {
		if is(i, "if") && is(i+1, "not") && is(i+2, "exists") {
			start, end := tokens[i].Start, tokens[i+2].End
			out.Makes.Again, out.Makes.Head = head, head[:start]+strings.Repeat(" ", end-start)+head[end:] // so that places stay
		}
	}
	return true
}

// cutAgain cuts the client's own text, if another one was planned in its place: what is read must be what the client names.
func (p *planner) cutAgain(s *facts.Statement, out *Statement) {
	if out.Makes == nil || out.Makes.Refreshes {
		return
	}
	made, ok := *out.Makes, false
	if s.Kind == "CreateTableAsStmt" {
		ok = p.cutMade(out)
		made.Head, made.Again, made.Query = out.Makes.Head, out.Makes.Again, out.Makes.Query
	} else if at := slices.IndexFunc(s.Tables, func(t facts.Table) bool { return t.Role == facts.Created }); at >= 0 {
		made.Head, made.Query = p.cutInto(s.Tables[at])
		ok = made.Head != ""
	}
	out.Makes = &made
	if !ok {
		out.refuse("makes-form", pgerr.New(pgerr.FeatureNotSupported, "this form of %s is not supported over several shards", s.Name).
			WithDetail("The router cannot tell its query from the rest.").WithHint("Create the table first, and use INSERT … SELECT."))
	}
}

// makeInto plans SELECT INTO over declared tables, or over such as are on another shard: it is CREATE TABLE AS in other words.
func (v *survey) makeInto(r *resolved) {
	if v.p.inside && v.p.around != "ExplainStmt" {
		v.out.refuse("makes-form", pgerr.New(pgerr.FeatureNotSupported, "%s is not supported inside of another statement", v.s.Name).
			WithDetail("It makes a table.").WithHint("Leave INTO out."))
		return
	}
	if v.p.inside {
		v.out.refuse(explainMakes, pgerr.New(pgerr.FeatureNotSupported, "EXPLAIN of %s over several shards is not supported", v.s.Name).
			WithDetail("It is run in steps: its query first, and then the table is filled with the rows.").WithHint("EXPLAIN the query by itself."))
		return
	}
	if v.p.refuseWritten(v.s.Tables, v.s.Name, v.out); v.out.Refusal != nil {
		return
	}
	head, query := v.p.cutInto(r.Table)
	if head == "" {
		v.out.refuse("makes-form", pgerr.New(pgerr.FeatureNotSupported, "this form of %s is not supported over several shards", v.s.Name).
			WithDetail("The router cannot tell its query from the rest.").WithHint("Use CREATE TABLE … AS."))
		return
	}
	read := v.p.alone(query)
	if len(read.Virtual) > 0 {
		v.out.refuse("makes-from-router-view", pgerr.New(pgerr.FeatureNotSupported, "%s is not supported over a view or function of the router", v.s.Name).
			WithDetail("No shard has them; the router puts its answer into each statement.").WithHint("Read them in each statement."))
	}
	if read.Refusal != nil {
		v.out.refuse(read.Rule, read.Refusal)
	}
	if v.out.Refusal != nil {
		return
	}
	own := Route{Level: Home, Why: "table " + r.title() + " is not declared"}
	if r.class == single && r.shard != v.p.Home {
		own = Route{Level: OnShard, Shard: r.shard, Why: r.title()}
	}
	switch {
	case read.Route.Level == Anywhere, read.Route.Level == own.Level && read.Route.Shard == own.Shard, read.Route.Level == OnShard && read.Route.Shard == v.p.Home && own.Level == Home:
		v.out.Route = own
		return
	case own.Level == OnShard || read.Route.Level == OnShard: // who makes it does not have what it is made from
		v.out.refuse("two-shards", pgerr.New(pgerr.FeatureNotSupported, "%s over tables on several shards is not supported yet", v.s.Name).
			WithDetail("The table, and all that it is made from, would have to be on one shard.").WithHint("Make it beside the tables that it is made from."))
		return
	}
	v.out.Makes = &Made{Head: head, Query: query}
	v.p.madeOf(v.out, r.Table, v.s.Options.Temporary, read.Route)
}

// cutInto takes INTO out of a SELECT, and returns the beginning of a CREATE TABLE AS that means the same, with the query for it. Both are empty if
// it is not known where the name stands.
func (p *planner) cutInto(t facts.Table) (head, query string) {
	if t.Start == 0 || t.End <= t.Start {
		return "", ""
	}
	into, how := 0, ""
	scanner := sqltext.NewScanner([]byte(p.text), true)
	for token, more := scanner.Next(); more && token.Start < t.Start; token, more = scanner.Next() {
		switch word := strings.ToLower(p.text[token.Start:token.End]); {
		case token.Kind == sqltext.Word && word == "into":
			into, how = token.Start, ""
		case word != "table":
			how += " " + word
		}
	}
	if into == 0 {
		return "", ""
	}
	return "CREATE" + how + " TABLE " + p.text[t.Start:t.End] + " AS", p.text[p.start:into] + p.text[t.End:p.end]
}

// alone plans a text that is a part of the one at hand.
func (p *planner) alone(sql string) Statement {
	statements, err := facts.Of(sql)
	var scan sqltext.Normalized
	if err != nil || len(statements) != 1 || scan.Scan([]byte(sql), true) != nil {
		refused := Statement{}
		refused.refuse("makes-form", pgerr.New(pgerr.FeatureNotSupported, "this form of SELECT INTO is not supported over several shards").
			WithDetail("The router cannot tell its query from the rest.").WithHint("Use CREATE TABLE … AS."))
		return refused
	}
	context := p.Context
	context.Literals = scan.Literals
	return newPlanner(sql, p.known, context).statement(&statements[0])
}
