package plan

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/cleavedb/cleave/internal/compose"
	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// Timed is what a statement has to do with the current time. Every shard has a clock of its own and begins its part of a transaction at another
// moment, so where several are concerned the moment is written into the text before they see it.
type Timed struct {
	// Words is how often the current time is named in the text. Defaults: it leaves columns to defaults that are computed from the current time.
	Words    int
	Defaults bool
	// Edits: nothing but these words, and columns of an INSERT of rows, has to be replaced or added, and nothing is called otherwise then.
	Edits bool
	// Appended are columns that the list of columns of such an INSERT does not name; Defaulted are those for which the word DEFAULT may stand, by their places in a
	// row, from 0. The rows are those behind the VALUES of number ValuesAt in the text.
	Appended  []TimedColumn
	Defaulted map[int]TimedColumn
	ValuesAt  int
	// Foreign: names or defaults have other characters than ASCII, which the client's encoding may have other bytes for.
	Foreign bool

	stored   []compose.Stored
	builtin  func(schema, name string) bool
	template func() (compose.Text, error)
}

// errByLiteral says that a template is right for one text alone.
var errByLiteral = errors.New("the text depends on its literals")

// timed finds out whether the statement that a text consists of has to do with the current time; nil if it does not.
func (p *planner) timed(s *facts.Statement, out *Statement) *Timed {
	t, query, names := &Timed{}, s, false
	builtin := map[facts.Name]bool{}
	for inner := s; inner != nil; inner = inner.Inner {
		if inner.Kind == "CreateTableAsStmt" && inner.Name != "CREATE TABLE AS" { // what it defines is computed later too
			return nil
		}
		query = inner
		t.Words += inner.Clocks
		names = names || inner.TimeNames
		for _, c := range inner.Calls {
			if momentFunctions[c.Name] && len(c.Arguments) == 0 && p.isSystem(c) {
				t.Words++
				builtin[facts.Name{Schema: c.Schema, Name: c.Name}] = true
			}
		}
	}
	switch s.Kind {
	case "SelectStmt", "InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt", "ExplainStmt", "DeclareCursorStmt", "ExecuteStmt", "CreateTableAsStmt":
	case "CopyStmt":
		if s.Options.From && out.Load == nil { // its rows get the defaults of where it runs
			return nil
		}
	default: // what it defines is computed later
		return nil
	}
	t.stored = p.timedDefaults(query)
	if t.Defaults = len(t.stored) > 0; t.Words == 0 && !t.Defaults {
		return nil
	}
	t.Foreign = p.ForeignEncoding && slices.ContainsFunc(t.stored, func(table compose.Stored) bool {
		return slices.ContainsFunc(table.Columns, isForeign) || slices.ContainsFunc(table.Defaults, func(d compose.Default) bool { return isForeign(d.SQL) })
	})
	t.builtin = func(schema, name string) bool {
		return schema == "pg_catalog" || builtin[facts.Name{Schema: schema, Name: name}]
	}
	t.Edits = !names && (!t.Defaults || p.inRows(t, s))
	text, literals := p.text, slices.Clone(p.Literals)
	t.template = sync.OnceValues(func() (compose.Text, error) {
		made, byLiteral, err := compose.AtMoment(compose.Query{Text: text, Literals: literals, Builtin: t.builtin}, t.stored)
		if err == nil && byLiteral {
			err = errByLiteral
		}
		return made, err
	})
	return t
}

// isForeign says whether a text has other characters than those of ASCII.
func isForeign(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}

// inRows finds columns that can be written behind those that an INSERT names, and their values behind those of each row, or in the place of the word DEFAULT; false if
// there are others.
func (p *planner) inRows(t *Timed, s *facts.Statement) bool {
	q := s.Query
	if s.Kind != "InsertStmt" || q == nil || q.Inserted == nil || len(q.Columns) == 0 || q.Parts || q.Overrides || q.ValuesAt < 0 || !isEven(q.Inserted, q.Columns) ||
		q.Inserted.Sorted || q.Inserted.Limited || len(q.With)+len(q.Inserted.With) > 0 || len(t.stored) != 1 ||
		slices.ContainsFunc(q.Assigned, func(a facts.Assignment) bool { return a.Value.Value.Kind == facts.Default }) {
		return false
	}
	r := p.resolve(s.Tables[q.Target.Table])
	t.Defaulted, t.ValuesAt = map[int]TimedColumn{}, q.ValuesAt
	for _, d := range t.stored[0].Defaults {
		c := *r.relation.column(d.Column)
		c.Timed = d.SQL
		if at := slices.Index(q.Columns, d.Column); at >= 0 {
			t.Defaulted[at] = timedColumn(&c)
		} else {
			t.Appended = append(t.Appended, timedColumn(&c))
		}
	}
	return true
}

// At is the text of such a statement with the moment, a literal, in the place of the current time, in the defaults of columns too. Values is how many values each row has that
// a query gives an INSERT, if the text alone does not tell; below 0: it does.
func (t *Timed) At(moment, text string, literals []sqltext.Literal, values int) (string, error) {
	in := compose.Places{Moment: moment, Literal: func(n int) string { return text[literals[n].Start:literals[n].End] }}
	if values >= 0 {
		stored := slices.Clone(t.stored)
		for i := range stored {
			stored[i].Values = values
		}
		made, _, err := compose.AtMoment(compose.Query{Text: text, Builtin: t.builtin}, stored)
		return made.Fill(in), err //nolint:wrapcheck // it is about the text alone
	}
	made, err := t.template()
	if errors.Is(err, errByLiteral) {
		made, _, err = compose.AtMoment(compose.Query{Text: text, Builtin: t.builtin}, t.stored)
	}
	if err != nil {
		return "", err //nolint:wrapcheck // it is about the text alone
	}
	return made.Fill(in), nil
}

// tellsTime says whether a statement names the current time.
func (p *planner) tellsTime(s *facts.Statement) bool {
	return s.Clocks > 0 || slices.ContainsFunc(s.Calls, func(c facts.Call) bool { return momentFunctions[c.Name] && len(c.Arguments) == 0 })
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
		t, stores := compose.Stored{Schema: name.Schema, Name: name.Name, Values: -1}, false
		for _, c := range r.relation.Columns {
			t.Columns = append(t.Columns, c.Name)
			if sql := p.timedDefault(&r, &c); sql != "" {
				t.Defaults = append(t.Defaults, compose.Default{Column: c.Name, SQL: sql})
				stores = stores || p.storesDefault(s, b, &r, c.Name)
			}
		}
		if width, known := p.inserts(s, b); known {
			t.Values = width
		}
		same := slices.IndexFunc(written, func(other compose.Stored) bool { return other.Schema == t.Schema && other.Name == t.Name })
		switch {
		case !stores:
		case same < 0:
			written = append(written, t)
		case written[same].Values != t.Values: // it is written to twice, in different ways
			written[same].Values = len(t.Columns) + 1
		}
		return true
	})
	return written
}

// timedDefault is the default of a column that is computed from the current time, as SQL; empty for any other. A column of a view has that of the table's column which it shows, unless
// it has one of its own, or rules or triggers say what becomes of its rows. Where there are rights to single columns, nobody must be asked for the right to one that he does not name.
func (p *planner) timedDefault(r *resolved, c *Column) string {
	if r.relation.ColumnRights {
		return ""
	}
	switch {
	case !r.isView() || c.HasDefault:
		return c.Timed
	case r.relation.HasRules || r.relation.HasTriggers:
		return ""
	}
	query, err := facts.Of(r.relation.View.SQL)
	if err != nil || len(query) != 1 || len(query[0].Tables) != 1 || query[0].Query == nil || len(query[0].Query.Output) != len(r.relation.Columns) {
		return ""
	}
	at := slices.IndexFunc(r.relation.Columns, func(other Column) bool { return other.Name == c.Name })
	shown := query[0].Query.Output[at]
	base := p.resolve(query[0].Tables[0])
	if !shown.IsColumn() || base.relation == nil || base.relation.ColumnRights {
		return ""
	}
	if of := base.relation.column(shown.Column[len(shown.Column)-1]); of != nil {
		return of.Timed
	}
	return ""
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
