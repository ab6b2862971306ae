package plan

import (
	"errors"
	"slices"
	"sync"

	"github.com/cleavedb/cleave/internal/compose"
	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// Timed is what a statement has to do with the current time. Every shard has a clock of its own and begins its part of a transaction at another
// moment, so where several are concerned the moment is written into the text before they see it.
type Timed struct {
	// Words: the current time is named in the text. Defaults: it leaves columns to defaults that are computed from the current time.
	Words, Defaults bool
	// Appended are those columns of an INSERT of rows that its list of columns does not name, all of them as far as there are such; the rows are those
	// behind the VALUES of number ValuesAt in the text. Others: the word DEFAULT stands for more of them, or other tables have some.
	Appended []TimedColumn
	ValuesAt int
	Others   bool

	builtin     func(schema, name string) bool
	whole, rest template
}

// template is a text with places for literals and the moment.
type template struct {
	stored []compose.Stored
	make   func() (compose.Text, error)
}

// errByLiteral says that a template is right for one text alone.
var errByLiteral = errors.New("the text depends on its literals")

// timed finds out whether the statement that a text consists of has to do with the current time; nil if it does not.
func (p *planner) timed(s *facts.Statement) *Timed {
	t, query := &Timed{}, s
	builtin := map[facts.Name]bool{}
	for inner := s; inner != nil; inner = inner.Inner {
		query = inner
		t.Words = t.Words || inner.Clock
		for _, c := range inner.Calls {
			if momentFunctions[c.Name] && len(c.Arguments) == 0 && p.isSystem(c) {
				t.Words, builtin[facts.Name{Schema: c.Schema, Name: c.Name}] = true, true
			}
		}
	}
	switch s.Kind {
	case "SelectStmt", "InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt", "ExplainStmt", "DeclareCursorStmt", "CopyStmt", "ExecuteStmt":
	default: // what it defines is computed later
		return nil
	}
	if query.Kind == "CreateTableAsStmt" {
		return nil
	}
	t.whole.stored = p.timedDefaults(query)
	if t.Defaults = len(t.whole.stored) > 0; !t.Words && !t.Defaults {
		return nil
	}
	t.builtin = func(schema, name string) bool {
		return schema == "pg_catalog" || builtin[facts.Name{Schema: schema, Name: name}]
	}
	p.append(t, s)
	t.Others = len(t.rest.stored) > 0
	text, literals := p.text, slices.Clone(p.Literals)
	for _, template := range []*template{&t.whole, &t.rest} {
		template.make = sync.OnceValues(func() (compose.Text, error) {
			made, byLiteral, err := compose.AtMoment(compose.Query{Text: text, Literals: literals, Builtin: t.builtin}, template.stored)
			if err == nil && byLiteral {
				err = errByLiteral
			}
			return made, err
		})
	}
	return t
}

// tellsTime says whether a statement names the current time.
func (p *planner) tellsTime(s *facts.Statement) bool {
	return s.Clock || slices.ContainsFunc(s.Calls, func(c facts.Call) bool { return momentFunctions[c.Name] && len(c.Arguments) == 0 })
}

// decideTimed plans a query over views anew that would be run in parts, each with the time of its shard: in steps the views' queries are written out. If
// that cannot be, it stays as it is.
func (p *planner) decideTimed(s *facts.Statement, u *unfolded, out *Statement) {
	if out.Refusal != nil || out.Route.Level != Several || out.Route.Parts != Same ||
		!slices.ContainsFunc(u.views, func(v unfoldedView) bool { return p.tellsTime(v.statement) }) {
		return
	}
	again := Statement{Name: s.Name, Start: s.Start, End: s.End}
	p.oneTime = true
	p.decideUnfolded(s, u, &again)
	p.oneTime = false
	if again.Refusal == nil {
		*out = again
	}
}

// append finds columns that can be written behind those that an INSERT names, and their values behind those of each row. The rest is what is left.
func (p *planner) append(t *Timed, s *facts.Statement) {
	t.rest.stored = t.whole.stored
	q := s.Query
	if s.Kind != "InsertStmt" || q == nil || q.Inserted == nil || len(q.Columns) == 0 || q.Parts || q.ValuesAt < 0 || !isEven(q.Inserted, q.Columns) ||
		q.Inserted.Sorted || q.Inserted.Limited || len(q.With)+len(q.Inserted.With) > 0 || len(t.whole.stored) != 1 ||
		slices.ContainsFunc(q.Assigned, func(a facts.Assignment) bool { return a.Value.Value.Kind == facts.Default }) {
		return
	}
	left := t.whole.stored[0]
	left.Defaults = slices.DeleteFunc(slices.Clone(left.Defaults), func(d compose.Default) bool { return !slices.Contains(q.Columns, d.Column) })
	t.rest.stored = nil
	if len(left.Defaults) > 0 {
		t.rest.stored = []compose.Stored{left}
	}
	r := p.resolve(s.Tables[q.Target.Table])
	for _, d := range t.whole.stored[0].Defaults {
		if c := *r.relation.column(d.Column); !slices.Contains(q.Columns, d.Column) {
			c.Timed = d.SQL
			t.Appended = append(t.Appended, timedColumn(&c))
		}
	}
	t.ValuesAt = q.ValuesAt
}

// At is the text of such a statement with the moment, a literal, in the place of the current time, in the defaults of columns too, but for those that are
// appended in another way.
func (t *Timed) At(moment, text string, literals []sqltext.Literal, appended bool) (string, error) {
	in := compose.Places{Moment: moment, Literal: func(n int) string { return text[literals[n].Start:literals[n].End] }}
	template := &t.whole
	if appended {
		template = &t.rest
	}
	made, err := template.make()
	if errors.Is(err, errByLiteral) {
		made, _, err = compose.AtMoment(compose.Query{Text: text, Builtin: t.builtin}, template.stored)
	}
	if err != nil {
		return "", err //nolint:wrapcheck // it is about the text alone
	}
	return made.Fill(in), nil
}

// timedDefaults are the tables that a statement writes to and of which it leaves columns to such defaults.
func (p *planner) timedDefaults(s *facts.Statement) []compose.Stored {
	if s.Query == nil {
		return nil
	}
	var written []compose.Stored
	s.Query.Walk(func(b *facts.Block) bool {
		if b.Target == nil {
			return true
		}
		name := s.Tables[b.Target.Table]
		r := p.resolve(name)
		if r.relation == nil {
			return true
		}
		t := compose.Stored{Schema: name.Schema, Name: name.Name, Values: -1}
		defaults := p.defaultsOf(&r)
		for _, c := range r.relation.Columns {
			t.Columns = append(t.Columns, c.Name)
			if of := defaults.column(c.Name); of != nil && of.Timed != "" && (of == r.relation.column(c.Name) || !c.HasDefault) && p.storesDefault(s, b, &r, c.Name) {
				t.Defaults = append(t.Defaults, compose.Default{Column: c.Name, SQL: of.Timed})
			}
		}
		if width, known := p.inserts(s, b); known {
			t.Values = width
		}
		if len(t.Defaults) > 0 {
			written = append(written, t)
		}
		return true
	})
	return written
}

// defaultsOf is the relation that has the defaults of one that is written: the table behind a view, whose columns have the same names.
func (p *planner) defaultsOf(r *resolved) *Relation {
	if !r.isView() {
		return r.relation
	}
	query, err := facts.Of(r.relation.View.SQL)
	if err != nil || len(query) != 1 || len(query[0].Tables) != 1 {
		return &Relation{}
	}
	if base := p.resolve(query[0].Tables[0]); base.relation != nil {
		return base.relation
	}
	return &Relation{}
}

// storesDefault says whether a query stores the default of a column, as far as that is known.
func (p *planner) storesDefault(s *facts.Statement, b *facts.Block, r *resolved, column string) bool {
	if !storesDefault(b, r, column) {
		return false
	}
	width, known := p.inserts(s, b)
	if !known || len(b.Columns) > 0 || len(b.Inserted.Rows) > 0 {
		return true
	}
	return insertedAt(nil, r, column) >= width || slices.ContainsFunc(b.Assigned, func(a facts.Assignment) bool { return a.Column == column })
}

// inserts is how many values each row has that an INSERT gets from its query.
func (p *planner) inserts(s *facts.Statement, b *facts.Block) (width int, known bool) {
	if b.Command != facts.Insert || b.Inserted == nil {
		return 0, false
	}
	return p.widthOf(s, b.Inserted)
}

// widthOf is how many columns a query gives.
func (p *planner) widthOf(s *facts.Statement, b *facts.Block) (width int, known bool) {
	switch {
	case len(b.Arms) > 0:
		return p.widthOf(s, b.Arms[0])
	case len(b.Rows) > 0:
		return len(b.Rows[0]), !b.Spread
	}
	for _, output := range b.Output {
		if !output.Star {
			width++
			continue
		}
		more, known := 0, len(output.Column) <= 1
		for _, source := range b.From {
			if len(output.Column) == 1 {
				if source = namedSource(source, output.Column[0]); source == nil {
					continue
				}
			}
			columns, isKnown := p.widthOfSource(s, source)
			more, known = more+columns, known && isKnown
		}
		if !known || more == 0 {
			return 0, false
		}
		width += more
	}
	return width, true
}

// widthOfSource is how many columns something in FROM has.
func (p *planner) widthOfSource(s *facts.Statement, source *facts.Source) (width int, known bool) {
	switch source.Kind {
	case facts.TableSource:
		r := p.resolve(s.Tables[source.Table])
		if r.relation == nil {
			return 0, false
		}
		return len(r.relation.Columns), true
	case facts.QuerySource:
		return p.widthOf(s, source.Query)
	case facts.CommonSource:
		if source.Common.Extended || source.Common.Recursive {
			return 0, false
		}
		return p.widthOf(s, source.Common.Query)
	case facts.JoinSource:
		left, knowsLeft := p.widthOfSource(s, source.Left)
		right, knowsRight := p.widthOfSource(s, source.Right)
		return left + right, knowsLeft && knowsRight && len(source.Using) == 0 && !source.Natural
	case facts.OpaqueSource:
	}
	return 0, false
}

// namedSource finds what is called so in an item of FROM; nil if nothing is.
func namedSource(source *facts.Source, name string) *facts.Source {
	switch {
	case source.Name == name:
		return source
	case source.Kind != facts.JoinSource || source.Name != "":
		return nil
	}
	if left := namedSource(source.Left, name); left != nil {
		return left
	}
	return namedSource(source.Right, name)
}

func timedColumn(c *Column) TimedColumn {
	sql := c.Timed
	return TimedColumn{Name: c.Name, TypeOID: c.TypeOID, TypeMod: c.TypeMod, value: sync.OnceValues(func() (compose.Text, error) { return compose.DefaultAt(sql) })}
}

// At is the default as SQL, with the moment, a literal, in the place of the current time.
func (c *TimedColumn) At(moment string) (string, error) {
	value, err := c.value()
	if err != nil {
		return "", err //nolint:wrapcheck // it is about the text alone
	}
	return value.Fill(compose.Places{Moment: moment}), nil
}
