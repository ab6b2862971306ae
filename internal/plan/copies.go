package plan

import (
	"bytes"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
)

// routeCopies routes a statement that writes to reference tables: every shard runs it on its own copy. So it must do the same
// everywhere: it depends on nothing but what all shards have, and on no order, no chance and no clock.
func (v *survey) routeCopies() {
	refuse := func(detail string) { v.refuseReferenceWrite("writing to", v.referenceWritten, detail) }
	switch {
	case v.s.Query == nil:
		refuse("All copies have to change together.")
	case len(v.sharded) > 0:
		refuse("The statement names a sharded table too, of which each shard has other rows.")
	case v.shard != "":
		refuse("The statement names " + v.singleName + " too, which is on shard " + v.shard + " only.")
	case v.homeWhy != "":
		refuse("The statement needs the home shard too: " + v.homeWhy + ".")
	case v.local != "":
		v.refuseLocal()
	default:
		numbers := v.numbered()
		if why := v.varies(numbers); why != "" {
			v.out.refuse("reference-write-volatile", pgerr.New(pgerr.FeatureNotSupported, "writing to reference table %s is not supported in this form", v.referenceWritten).
				WithDetail("Every shard has a copy of it, and the statement might not do the same to each. In the way: %s.", why).
				WithHint("Compute the values first, and write them as literals or parameters."))
			return
		}
		v.out.Route = Route{
			Level: Everywhere, Parts: Copies, Timed: v.readsTimes(), Numbers: numbers, ValuesAt: v.s.Query.ValuesAt,
			Table: v.referenceWritten, Why: "all copies of reference table " + v.referenceWritten,
		}
	}
}

func (v *survey) refuseReferenceWrite(what, table, detail string) {
	v.out.refuse("reference-write", pgerr.New(pgerr.FeatureNotSupported, "%s reference table %s is not supported yet in this form", what, table).
		WithDetail("It is copied to every shard. %s", detail).WithHint("Reference tables can be read, joined, and written by statements of their own."))
}

// numbered returns the columns that an INSERT of rows leaves to sequences. All copies of a row must have the same number, so the session
// takes it from the home shard and writes it into the rows.
func (v *survey) numbered() []Number {
	q := v.s.Query
	if q.Command != facts.Insert || q.Inserted == nil || len(q.Inserted.Rows) == 0 || q.ValuesAt < 0 || len(q.Columns) == 0 || q.Parts ||
		len(q.With)+len(q.Inserted.With) > 0 || q.Inserted.Sorted {
		return nil
	}
	r := &v.tables[q.Target.Table]
	if r.relation == nil {
		return nil
	}
	var numbers []Number
	for _, c := range r.relation.Columns {
		if c.Sequence != "" && !slices.Contains(q.Columns, c.Name) {
			numbers = append(numbers, Number{Column: c.Name, Sequence: c.Sequence})
		}
	}
	return numbers
}

// varies returns what in the statement need not do the same on every shard, numbers aside; empty if nothing does.
func (v *survey) varies(numbers []Number) string {
	for i := range v.s.Calls {
		if c := &v.s.Calls[i]; !v.p.isImmutable(c) && !orderless[c.Name] {
			return "function " + c.Name
		}
	}
	for _, field := range v.s.Fields {
		if !v.isColumn(field) && v.p.variesBehind(FunctionName{Name: field}) {
			return "function " + field
		}
	}
	for _, o := range v.s.Operators {
		if v.p.variesBehind(FunctionName{Schema: o.Schema, Name: o.Name, Kind: OfOperator}) {
			return "operator " + o.Name
		}
	}
	for _, t := range v.s.Types {
		if !v.p.isBuiltinType(t) && !v.p.hasInput(t) {
			return "type " + t.Name
		}
	}
	for _, t := range v.s.ComputedCasts {
		if timeTypes[t.Name] {
			return "a cast of something computed to " + t.Name
		}
	}
	switch {
	case v.s.Moments:
		return "CURRENT_TIMESTAMP, CURRENT_USER or its like"
	case v.s.Physical:
		return "a system column"
	}
	why := ""
	var written []int
	v.s.Query.Walk(func(b *facts.Block) bool {
		if why == "" {
			why = v.variesIn(b, numbers)
		}
		if b.Target != nil {
			written = append(written, b.Target.Table)
		}
		return why == ""
	})
	if why == "" {
		why = v.variesBeside(written)
	}
	return why
}

// variesBeside returns what the tables of a statement let happen on one shard and not on another. Rows that a statement writes are locked on the
// home shard before others see it; those that it only reads may be other ones a moment later.
func (v *survey) variesBeside(written []int) string {
	for i := range v.tables {
		r := &v.tables[i]
		switch {
		case r.class == system || r.relation == nil:
		case !slices.Contains(written, i):
			return "it reads " + r.title() + ", which others may be writing"
		case r.relation.VaryingTrigger != "":
			return "trigger function " + r.relation.VaryingTrigger
		}
	}
	return ""
}

// timeTypes are the types that read words such as 'now'.
var timeTypes = map[string]bool{"date": true, "timestamp": true, "timestamptz": true, "time": true, "timetz": true}

// isImmutable says whether a function gives the same answer everywhere and always, and looks at one row at a time.
func (p *planner) isImmutable(c *facts.Call) bool {
	overloads := p.overloads(c)
	if c.Word && len(overloads) == 0 {
		return !p.mayAggregate(c)
	}
	return len(overloads) > 0 && !slices.ContainsFunc(overloads, func(f Function) bool { return f.Volatility != 'i' || f.Kind == 'a' || f.Kind == 'w' })
}

// variesBehind says whether a function of users' behind a name may give another answer each time.
func (p *planner) variesBehind(name FunctionName) bool {
	return slices.ContainsFunc(p.known.Functions[name], func(f Function) bool { return !f.System && f.Volatility != 'i' })
}

// hasInput says whether a type is one of users' whose values are read the same everywhere.
func (p *planner) hasInput(t facts.Name) bool {
	behind := p.known.Functions[FunctionName{Schema: t.Schema, Name: t.Name, Kind: OfType}]
	return len(behind) > 0 && !slices.ContainsFunc(behind, func(f Function) bool { return f.System && f.Name != "enum_in" && f.Name != "domain_in" })
}

// variesIn returns what in one query need not do the same on every shard.
func (v *survey) variesIn(b *facts.Block, numbers []Number) string {
	readsTables := b.Reads(func(s *facts.Source) bool { return s != b.Target })
	switch {
	case b.Limited:
		return "LIMIT or OFFSET, whose rows depend on their order"
	case len(b.DistinctOn) > 0:
		return "DISTINCT ON, whose rows depend on their order"
	case len(b.Windows) > 0:
		return "a window function, which depends on the order of rows"
	case b.Command == facts.Update && readsTables:
		return "UPDATE … FROM, which takes any of several rows that fit"
	case b.Conflict != facts.NoConflict && b.Inserted != nil && len(b.Inserted.Rows) == 0:
		return "ON CONFLICT behind a SELECT, whose effect depends on the order of rows"
	case b.Reads(func(s *facts.Source) bool { return s.Kind == facts.TableSource && v.tables[s.Table].Sampled }):
		return "TABLESAMPLE"
	case b.Target == nil:
		return ""
	}
	if b != v.s.Query {
		numbers = nil
	}
	return v.variesByDefault(b, &v.tables[b.Target.Table], numbers)
}

// variesByDefault returns a default that need not be the same on every shard and that the query stores.
func (v *survey) variesByDefault(b *facts.Block, r *resolved, numbers []Number) string {
	if r.relation == nil {
		return "a table that is not known yet"
	}
	for i := range r.relation.Columns {
		c := &r.relation.Columns[i]
		isNumbered := slices.ContainsFunc(numbers, func(n Number) bool { return n.Column == c.Name })
		if c.HasDefault && c.DefaultVaries && !isNumbered && storesDefault(b, r, c.Name) {
			return "the default of column " + c.Name
		}
	}
	return ""
}

// storesDefault says whether a query may store a column's default.
func storesDefault(b *facts.Block, r *resolved, name string) bool {
	isSet := func(assigned []facts.Assignment) bool {
		return slices.ContainsFunc(assigned, func(a facts.Assignment) bool { return a.Column == name && a.Value.Value.Kind == facts.Default })
	}
	if isSet(b.Assigned) {
		return true
	}
	switch b.Command {
	case facts.Insert:
		return b.Inserted == nil || leavesOut(b.Columns, r, name, b.Inserted)
	case facts.Merge:
		return slices.ContainsFunc(b.Merged.When, func(w facts.When) bool {
			at := insertedAt(w.Columns, r, name)
			return isSet(w.Assigned) || w.Command == facts.Insert && (at < 0 || at >= len(w.Values) || w.Values[at].Value.Kind == facts.Default)
		})
	default:
		return false
	}
}

// leavesOut says whether rows that are inserted may have no value for a column.
func leavesOut(columns []string, r *resolved, name string, inserted *facts.Block) bool {
	at := insertedAt(columns, r, name)
	if at < 0 {
		return true
	}
	if len(inserted.Rows) == 0 { // of a SELECT, all columns count that are listed
		return len(columns) == 0 && (at >= len(inserted.Output) || slices.ContainsFunc(inserted.Output, func(o facts.Output) bool { return o.Star }))
	}
	return slices.ContainsFunc(inserted.Rows, func(row []facts.Operand) bool { return at >= len(row) || row[at].Kind == facts.Default })
}

// VariesInTime says whether a value, read as a date or a time, may mean another one each time: now, today and their like.
func VariesInTime(value []byte) bool {
	if len(value) > maxMoment {
		return false
	}
	isOther := func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') }
	return slices.ContainsFunc(bytes.FieldsFunc(value, isOther), func(word []byte) bool {
		switch strings.ToLower(string(word)) {
		case "now", "today", "tomorrow", "yesterday":
			return true
		}
		return false
	})
}

// maxMoment is a length that no text of a date or a time has.
const maxMoment = 256

// timeless are types whose values do not depend on the time at which their text is read.
var timeless = map[uint32]bool{
	oidInt2: true, oidInt4: true, oidInt8: true, oidText: true, oidVarchar: true, oidBpchar: true, oidUUID: true, oidBytea: true, oidNumeric: true,
	oidBool: true, oidName: true, oidJSON: true, oidJSONB: true, oidFloat4: true, oidFloat8: true, oidInterval: true,
}

// readsTimes says whether the statement may read a text as a date or a time.
func (v *survey) readsTimes() bool {
	for i := range v.tables {
		if r := v.tables[i].relation; r == nil || slices.ContainsFunc(r.Columns, func(c Column) bool { return !timeless[c.TypeOID] }) {
			return true
		}
	}
	return slices.ContainsFunc(v.s.Types, func(t facts.Name) bool { return !timeless[typeOIDs[t.Name]] })
}
