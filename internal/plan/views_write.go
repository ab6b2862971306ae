package plan

import (
	"slices"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// A view that shows rows of one sharded table can be written to, as in PostgreSQL. The proof is made of the statement with the table in the place of the view: that
// the view leaves out rows makes it concern fewer of them. Shards get the client's text, so that its rights, its defaults and CHECK OPTION are PostgreSQL's.

// wantWritten adds the names behind a view that is written.
func (p *planner) wantWritten(w *wants, s *facts.Statement) {
	for _, t := range tablesInside(s) {
		if r := p.resolve(t); t.Written && r.isView() {
			if query, err := facts.Of(r.relation.View.SQL); err == nil && len(query) == 1 {
				w.add(&query[0])
			}
		}
	}
}

// throughView puts the table into the place of a view that is written; false if it cannot be.
func (u *unfolded) throughView(p *planner) bool {
	s := u.s
	for s.Inner != nil {
		s = s.Inner
	}
	if s.Query == nil || s.Query.Target == nil {
		return true
	}
	r := p.resolve(s.Tables[s.Query.Target.Table])
	if !r.isView() {
		return true
	}
	query, err := facts.Of(r.relation.View.SQL)
	if err != nil || len(query) != 1 || !p.writesThrough(s.Query, &r, &query[0]) {
		return false
	}
	base := p.resolve(query[0].Tables[0])
	sql := base.table.Name().String()
	if r.Alias == "" {
		sql += " AS " + sqltext.QuoteIdentifier(r.Name)
	}
	u.put(r.WideStart, r.WideEnd, sql)
	u.views, u.writes = append(u.views, unfoldedView{r.relation, true, &query[0]}), true
	return u.readAgain()
}

// writesThrough says whether writing to a view is writing to a sharded table of which it shows rows, with columns that have the same names.
func (p *planner) writesThrough(written *facts.Block, r *resolved, query *facts.Statement) bool {
	b := query.Query
	switch {
	case written.Command != facts.Insert && written.Command != facts.Update && written.Command != facts.Delete, r.WideEnd <= r.WideStart:
		return false
	case !r.relation.View.Everywhere, r.relation.HasRules, r.relation.HasTriggers, b == nil, b.Command != facts.Select:
		return false
	case b.Operation != facts.NoOperation, len(b.With) > 0, len(b.From) != 1, b.Grouped, b.Having, b.Distinct, b.Limited, len(b.Windows) > 0, len(b.Rows) > 0, len(b.Queries) > 0:
		return false
	case b.From[0].Kind != facts.TableSource, len(query.Calls) > 0:
		return false
	}
	runs := func(name FunctionName) bool {
		return slices.ContainsFunc(p.known.Functions[name], func(f Function) bool { return !f.System })
	}
	if slices.ContainsFunc(query.Operators, func(o facts.Name) bool { return runs(FunctionName{Schema: o.Schema, Name: o.Name, Kind: OfOperator}) }) ||
		slices.ContainsFunc(query.Types, func(t facts.Name) bool { return runs(FunctionName{Schema: t.Schema, Name: t.Name, Kind: OfType}) }) {
		return false // nobody would see what they do
	}
	base := p.resolve(query.Tables[0])
	if base.class != sharded || base.relation == nil || len(b.Output) != len(r.relation.Columns) {
		return false
	}
	for i, c := range r.relation.Columns {
		shown := ""
		if b.Output[i].IsColumn() {
			shown = b.Output[i].Column[len(b.Output[i].Column)-1]
		}
		own := shown == c.Name
		if !own && slices.Contains(base.table.KeyColumns(), shown) { // the key could be written under another name
			return false
		}
		if c.HasDefault || own == (base.relation.column(c.Name) == nil) { // it is called otherwise in the table, or another one is
			return false
		}
	}
	if slices.ContainsFunc(base.table.KeyColumns(), func(key string) bool { return r.relation.column(key) == nil }) {
		return false
	}
	if written.Command == facts.Insert {
		return len(written.Columns) > 0 || r.relation.begins(base.relation)
	}
	return len(written.From) == 0 || len(r.relation.Columns) == len(base.relation.Columns) // or a column that it does not show might be one of another table
}

// begins says whether its columns are the first ones of another relation, in their order.
func (r *Relation) begins(other *Relation) bool {
	for i := range r.Columns {
		if i >= len(other.Columns) || other.Columns[i].Name != r.Columns[i].Name {
			return false
		}
	}
	return true
}

// keepWrites refuses ways to write that depend on more than the text with the view's name.
func (u *unfolded) keepWrites(out *Statement) {
	r := &out.Route
	if !u.writes || out.Refusal != nil || (r.Level == Keyed || r.Level == Several && r.Parts != Kept) && len(out.Numbers)+len(r.Numbers) == 0 {
		return
	}
	out.refuse("view-write", pgerr.New(pgerr.FeatureNotSupported, "writing through view %q is not supported in this form", u.views[0].Name).
		WithDetail("The router would have to know more of its rows than their keys: %s.", r.Why).WithHint("Use the table itself."))
}
