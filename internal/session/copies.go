package session

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/compose"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/wire"
)

// writeCopies runs a statement on the home shard's copy of a reference table, because each shard might make something else of it, and gives the rows that
// it has written to all other copies.
func (s *session) writeCopies(c *composing, from *basin, to rowTaker) (string, *pgerr.Error) {
	if refused := c.mayCopy(); refused != nil {
		return "", refused
	}
	f := s.newFinishing(c, from, true)
	defer f.held.release()
	text, refused := f.text()
	if refused != nil {
		return "", refused
	}
	taker := &copiedRows{c: c, to: to, rows: s.newSpool()}
	defer taker.rows.close()
	home := []int{s.home()}
	if refused := s.mayUse(home, writtenStatement); refused != nil {
		return "", refused
	}
	formats := make([]int16, 0, c.outline.count+len(c.outline.target.columns))
	for i := range c.outline.count {
		formats = append(formats, c.format(i))
	}
	given := &statement{text: text, oids: f.oids, planned: routedPlan}
	run := &spreadRun{
		shards: home, parts: []part{{data: bindTail(f.formats, f.values, append(formats, c.outline.target.formats()...)), statement: given, elsewhere: true}},
		types: c.carriedTypes(), planned: routedPlan, divided: plan.Same, to: taker,
	}
	if c.outline.description != nil {
		to.begin()
	}
	if refused := s.runParts(run); refused != nil {
		return "", refused
	}
	if taker.rows.rows == 0 {
		return run.tag, nil
	}
	return run.tag, s.copyRows(c, taker.rows)
}

// writtenStatement stands for one that writes.
var writtenStatement = &routedPlan.plan.Statements[0]

// formats are those in which the columns are sent.
func (p *pullOutline) formats() []int16 {
	formats := make([]int16, len(p.columns))
	for i := range p.columns {
		if p.columns[i].binary {
			formats[i] = 1
		}
	}
	return formats
}

// mayCopy refuses what cannot be done to other copies by the rows alone.
func (c *composing) mayCopy() *pgerr.Error {
	w := &c.outline.composition.Written
	needsKey := w.Command != compose.Insert || w.Conflicts
	refusal := pgerr.New(pgerr.FeatureNotSupported, "writing to reference table %s is not supported in this form", c.st.Target.Quoted())
	switch {
	case needsKey && len(c.outline.primary) == 0:
		return refusal.WithDetail("Each shard might do something else to its copy, and the rows have no primary key by which they could be found in the others.").
			WithHint("Give the table a primary key.")
	case slices.ContainsFunc(w.Assigned, func(name string) bool { return slices.Contains(c.outline.primary, name) }):
		return refusal.WithDetail("Each shard might do something else to its copy, and it changes the primary key, by which rows are found in the others.").
			WithHint("Compute the values first, and write them as literals or parameters.")
	}
	return nil
}

// copiedRows gives the client what it asked for, and keeps the rows that were written.
type copiedRows struct {
	c      *composing
	to     rowTaker
	rows   *spool
	fields [][]byte
	row    []byte
}

func (t *copiedRows) take(_ int, row []byte) *pgerr.Error {
	fields, ok := splitRow(row, t.fields[:0])
	count := t.c.outline.count
	if t.fields = fields; !ok || len(fields) != count+len(t.c.outline.target.columns) {
		return badRow
	}
	if count > 0 || t.c.outline.description != nil {
		if refused := t.to.take(t.join(fields[:count])); refused != nil {
			return refused
		}
	}
	return t.rows.add(t.join(fields[count:]))
}

// join makes a row of fields.
func (t *copiedRows) join(fields [][]byte) []byte {
	t.row = binary.BigEndian.AppendUint16(t.row[:0], uint16(len(fields)))
	for _, f := range fields {
		t.row = append(t.row, f...)
	}
	return t.row
}

// copyRows gives all shards but the home shard the rows that it has written.
func (s *session) copyRows(c *composing, rows *spool) *pgerr.Error {
	var shards []int
	for shard := range s.currentMap().Shards() {
		if shard.Number() != s.home() {
			shards = append(shards, shard.Number())
		}
	}
	if len(shards) == 0 {
		return nil
	}
	slices.Sort(shards)
	if refused := s.mayUse(shards, writtenStatement); refused != nil {
		return refused
	}
	of := &outline{composition: &compose.Composition{Pulls: []compose.Pull{{Numbered: true}}}, pulls: []pullOutline{c.outline.target}}
	of.pulls[0].numbered = true
	copied := &composing{st: c.st, outline: of}
	f := s.newFinishing(copied, &basin{c: copied, spools: []*spool{rows}}, true)
	defer f.held.release()
	relation, refused := f.relation(0)
	if refused != nil {
		return refused
	}
	given := &statement{text: c.copySQL(relation), oids: f.oids, planned: routedPlan}
	parts := make([]part, len(shards))
	for i := range parts {
		parts[i] = part{data: bindTail(f.formats, f.values, nil), statement: given, elsewhere: true}
	}
	run := &spreadRun{shards: shards, parts: parts, planned: routedPlan, divided: plan.Copies, to: &limitedRows{}}
	if refused := s.runParts(run); refused != nil {
		return refused
	}
	if done := wire.CommandRows([]byte(run.tag)); done != rows.rows {
		return pgerr.New(pgerr.SerializationFailure, "the shards' copies of the table did not have the same rows").
			WithDetail("The home shard wrote %d rows, and others %d. Somebody has written to it in between, or past the router.", rows.rows, done).
			WithHint("Nothing was changed: try again. If it stays, cleave.check_reference_table tells in what the copies differ.")
	}
	return nil
}

// copySQL does to a copy what was done to the home shard's.
func (c *composing) copySQL(relation string) string {
	table := c.st.Target.Quoted()
	var columns, values, sets, fits []string
	for i := range c.outline.target.columns {
		name := c.outline.target.columns[i].name
		quoted, value := sqltext.QuoteIdentifier(name), "p."+columnName(i)
		switch {
		case slices.Contains(c.outline.generated, name):
			continue
		case slices.Contains(c.outline.primary, name):
			fits = append(fits, "t."+quoted+" OPERATOR(pg_catalog.=) "+value)
		default:
			sets = append(sets, quoted+" = "+value)
		}
		columns, values = append(columns, quoted), append(values, value)
	}
	switch w := &c.outline.composition.Written; w.Command {
	case compose.Delete:
		return fmt.Sprintf("DELETE FROM %s AS t USING %s AS p WHERE %s", table, relation, strings.Join(fits, " AND "))
	case compose.Update:
		return fmt.Sprintf("UPDATE %s AS t SET %s FROM %s AS p WHERE %s", table, strings.Join(sets, ", "), relation, strings.Join(fits, " AND "))
	default:
		conflict := ""
		if w.Conflicts {
			conflict = " ON CONFLICT (" + quoteAll(c.outline.primary) + ") DO "
			if excluded := c.excludedSets(); len(excluded) > 0 {
				conflict += "UPDATE SET " + strings.Join(excluded, ", ")
			} else {
				conflict += "NOTHING"
			}
		}
		return fmt.Sprintf("INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s AS p%s", table, strings.Join(columns, ", "), strings.Join(values, ", "), relation, conflict)
	}
}

// excludedSets sets all columns but those of the primary key to what was to be inserted.
func (c *composing) excludedSets() []string {
	var sets []string
	for i := range c.outline.target.columns {
		name := c.outline.target.columns[i].name
		if !slices.Contains(c.outline.generated, name) && !slices.Contains(c.outline.primary, name) {
			quoted := sqltext.QuoteIdentifier(name)
			sets = append(sets, quoted+" = excluded."+quoted)
		}
	}
	return sets
}

func quoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = sqltext.QuoteIdentifier(name)
	}
	return strings.Join(quoted, ", ")
}
