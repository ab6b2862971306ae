package plan

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// Replacement puts something else in the place of bytes of a text.
type Replacement struct {
	Start, End int
	By         string
}

// Owned returns what has to be replaced in a text that runs on several shards, so that each of them uses only the rows that it owns, while rows of keyspaces move: in the place of their tables,
// and of views that read them, other views that twin names. The text is as it is about to be sent. What such a view cannot stand in for is refused.
//
// Doubtful: PostgreSQL may not take the text then, or make something else of it. A view has no primary key, which decides all other columns where rows are grouped by it, and its rows are of another type.
func Owned(text string, statements []facts.Statement, known *Known, c Context, twin func(topology.TableName) topology.TableName) (replaced []Replacement, doubtful bool, refused *pgerr.Error) {
	o := owning{p: newPlanner(text, known, c), twin: twin}
	for i := range statements {
		if refused := o.statement(&statements[i]); refused != nil {
			return nil, false, refused
		}
	}
	slices.SortFunc(o.replaced, func(a, b Replacement) int { return a.Start - b.Start })
	return o.replaced, o.doubtful, nil
}

// owning is the making of a text that uses only what a shard owns.
type owning struct {
	p        *planner
	twin     func(topology.TableName) topology.TableName
	replaced []Replacement
	doubtful bool
}

func (o *owning) statement(s *facts.Statement) *pgerr.Error {
	inserted := insertedTables(s)
	var hidden []resolved
	for i, t := range s.Tables {
		r := o.p.resolve(t)
		switch moving, refused := o.isMoving(&r, 0); {
		case refused != nil:
			return refused
		case !moving || inserted[i]:
			continue
		}
		hidden = append(hidden, r)
		if refused := o.replace(s, &r); refused != nil {
			return refused
		}
	}
	if len(hidden) > 0 {
		if s.Physical || s.AtCursor {
			return whileMoving("a system column or WHERE CURRENT OF", hidden[0].title())
		}
		if refused := o.unqualify(s, hidden); refused != nil {
			return refused
		}
		o.doubtful = o.doubtful || s.Query != nil && (groups(s.Query) || o.namesRow(s, hidden))
	}
	if s.Inner != nil {
		return o.statement(s.Inner)
	}
	return nil
}

// groups says whether rows are grouped somewhere in a query.
func groups(q *facts.Block) (grouped bool) {
	q.Walk(func(b *facts.Block) bool {
		grouped = grouped || b.Grouped
		return !grouped
	})
	return grouped
}

// namesRow says whether a statement may name a whole row of a relation, or call a function of it as if that were a column.
func (o *owning) namesRow(s *facts.Statement, hidden []resolved) bool {
	if slices.ContainsFunc(hidden, func(r resolved) bool { return slices.Contains(s.Alone, cmp.Or(r.Alias, r.Name)) }) {
		return true
	}
	columns := map[string]bool{}
	for _, t := range s.Tables {
		if r := o.p.resolve(t); r.relation != nil {
			for _, c := range r.relation.Columns {
				columns[c.Name] = true
			}
		}
	}
	return slices.ContainsFunc(s.Fields, func(field string) bool { return !columns[field] })
}

// insertedTables are those into which rows are inserted, by their place: where these go the statement says, and guards look at them.
func insertedTables(s *facts.Statement) map[int]bool {
	inserted := map[int]bool{}
	if s.Query != nil {
		s.Query.Walk(func(b *facts.Block) bool {
			if b.Command == facts.Insert && b.Target != nil {
				inserted[b.Target.Table] = true
			}
			return true
		})
	}
	return inserted
}

// isMoving says whether a relation shows rows of a keyspace that moves.
func (o *owning) isMoving(r *resolved, depth int) (bool, *pgerr.Error) {
	switch {
	case r.class == sharded:
		return r.table.Keyspace().IsMoving(), nil
	case r.class != reaching:
		return false, nil
	case !r.isView() || depth > maxDepth:
		return false, whileMoving("using "+r.title(), r.title())
	}
	query, err := facts.Of(r.relation.View.SQL)
	if err != nil || len(query) != 1 {
		return false, whileMoving("using a view that the router cannot read", r.title())
	}
	for _, t := range tablesInside(&query[0]) {
		behind := o.p.resolve(t)
		if moving, refused := o.isMoving(&behind, depth+1); moving || refused != nil {
			return moving, refused
		}
	}
	return false, nil
}

// maxDepth is how many views may read each other.
const maxDepth = 100

// replace puts the view of what is owned in the place of a relation.
func (o *owning) replace(s *facts.Statement, r *resolved) *pgerr.Error {
	sql := o.twin(r.name()).String()
	switch {
	case r.End <= r.Start:
		return whileMoving(s.Name, r.title())
	case s.Query != nil && s.Query.Command == facts.Merge && r.Written:
		return whileMoving("MERGE", r.title())
	case r.Sampled:
		return whileMoving("TABLESAMPLE", r.title())
	case s.Load != nil:
		o.replaced = append(o.replaced, o.copied(s, r, sql))
		return nil
	case r.Command:
		sql = "SELECT * FROM " + sql
	case strings.Contains(strings.ToLower(o.p.text[r.WideStart:r.Start]), "only"):
		return whileMoving("ONLY", r.title())
	}
	if r.Alias == "" {
		sql += " AS " + sqltext.QuoteIdentifier(r.Name)
	}
	o.replaced = append(o.replaced, Replacement{r.WideStart, r.WideEnd, sql})
	return nil
}

// copied writes COPY of a table as that of a query.
func (o *owning) copied(s *facts.Statement, r *resolved, sql string) Replacement {
	columns := s.Load.Columns
	end := r.End
	if len(columns) == 0 {
		for _, c := range r.relation.Columns {
			if !c.Generated {
				columns = append(columns, c.Name)
			}
		}
	} else {
		end += closingParenthesis(o.p.text[r.End:])
	}
	quoted := make([]string, len(columns))
	for i, c := range columns {
		quoted[i] = sqltext.QuoteIdentifier(c)
	}
	return Replacement{r.Start, end, "(SELECT " + strings.Join(quoted, ", ") + " FROM " + sql + ")"}
}

// closingParenthesis is where the first list in parentheses ends.
func closingParenthesis(text string) int {
	scanner := sqltext.NewScanner([]byte(text), true) // which has names alone
	for token, more := scanner.Next(); more; token, more = scanner.Next() {
		if text[token.Start] == ')' {
			return token.End
		}
	}
	return 0
}

// name is the relation's own, of a partition that of the partition.
func (r *resolved) name() topology.TableName {
	if r.relation != nil {
		return topology.TableName{Schema: r.relation.Schema, Name: r.relation.Name}
	}
	return r.table.Name()
}

// unqualify takes the schema out of the names of columns: the view has another.
func (o *owning) unqualify(s *facts.Statement, hidden []resolved) *pgerr.Error {
	for _, q := range s.Qualified {
		named := 0
		for i := range hidden {
			if hidden[i].Alias == "" && hidden[i].Name == q.Table {
				named++
			}
		}
		switch {
		case named > 1 && len(s.Qualifiers) > 1:
			return whileMoving("naming columns of tables in several schemas", q.Table)
		case named > 0:
			o.replaced = append(o.replaced, Replacement{q.Start, q.End, ""})
		}
	}
	return nil
}

func whileMoving(what, table string) *pgerr.Error {
	return pgerr.New(pgerr.FeatureNotSupported, "%s is not supported over several shards while rows of %s move between them", what, table).
		WithDetail("Shards have copies of rows that they do not own, which the statement must not see.").WithHint("Bind it to a key, or try again when the move is over: cleave.moves shows it.")
}

// Renamed is the query of a view, as PostgreSQL writes it with all names in full, reading other relations under the names of those that it read.
func Renamed(sql string, renamed map[topology.TableName]topology.TableName) (string, error) {
	statements, err := facts.Of(sql)
	if err != nil {
		return "", err
	}
	var replaced []Replacement
	for i := range statements {
		for _, t := range tablesInside(&statements[i]) {
			to, is := renamed[topology.TableName{Schema: t.Schema, Name: t.Name}]
			switch {
			case !is:
				continue
			case t.End <= t.Start, t.Sampled, strings.Contains(strings.ToLower(sql[t.WideStart:t.Start]), "only"):
				return "", errors.New("it reads a table in a form that no view can stand in for, such as ONLY or TABLESAMPLE")
			}
			by := to.String()
			if t.Alias == "" {
				by += " AS " + sqltext.QuoteIdentifier(t.Name)
			}
			replaced = append(replaced, Replacement{t.Start, t.End, by})
		}
	}
	slices.SortFunc(replaced, func(a, b Replacement) int { return a.Start - b.Start })
	var b strings.Builder
	at := 0
	for _, r := range replaced {
		b.WriteString(sql[at:r.Start] + r.By)
		at = r.End
	}
	return b.String() + sql[at:], nil
}
