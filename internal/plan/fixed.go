package plan

import (
	"slices"

	"github.com/cleavedb/cleave/internal/facts"
)

// withDefaults returns the statement as it would be if an INSERT of rows named the columns of the key whose default is a constant, and
// their values where it leaves them out. The text stays what it is: PostgreSQL puts the same values there.
func (v *survey) withDefaults() *facts.Statement {
	q := v.s.Query
	if q == nil || q.Command != facts.Insert || q.Parts || q.Target == nil {
		return v.s
	}
	r := &v.tables[q.Target.Table]
	if r.class != sharded || r.relation == nil || q.Inserted != nil && !isEven(q.Inserted, q.Columns) {
		return v.s
	}
	named := *q
	for _, name := range r.table.KeyColumns() {
		if c := r.relation.column(name); c != nil && c.Fixed != nil {
			nameDefault(&named, r, c)
		}
	}
	if named.Inserted == q.Inserted {
		return v.s
	}
	s := *v.s
	s.Query = &named
	return &s
}

// isEven says whether these are rows of VALUES, each with as many values as there are columns.
func isEven(inserted *facts.Block, columns []string) bool {
	return len(inserted.Rows) > 0 && !inserted.Spread && !slices.ContainsFunc(inserted.Rows, func(row []facts.Operand) bool {
		return len(row) != len(inserted.Rows[0]) || len(columns) > 0 && len(row) != len(columns)
	})
}

// nameDefault puts the default of one column into all rows that leave it out. What others may share is copied.
func nameDefault(q *facts.Block, r *resolved, c *Column) {
	inserted := facts.Block{Command: facts.Select, Rows: [][]facts.Operand{nil}} // DEFAULT VALUES
	columns := q.Columns
	if q.Inserted != nil {
		inserted = *q.Inserted
	}
	if len(columns) == 0 {
		for _, column := range r.relation.Columns[:min(len(inserted.Rows[0]), len(r.relation.Columns))] {
			columns = append(columns, column.Name)
		}
	}
	at, rows := slices.Index(columns, c.Name), make([][]facts.Operand, len(inserted.Rows))
	for i, row := range inserted.Rows {
		switch fixed := (facts.Operand{Kind: facts.Fixed, Text: *c.Fixed}); {
		case at < 0:
			rows[i] = append(slices.Clip(row), fixed)
		case at < len(row) && row[at].Kind == facts.Default:
			rows[i] = slices.Clone(row)
			rows[i][at] = fixed
		default:
			rows[i] = row
		}
	}
	if at < 0 {
		columns = append(slices.Clip(columns), c.Name)
	}
	inserted.Rows = rows
	q.Columns, q.Inserted = columns, &inserted
}
