package adopt

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// databaseOf reads a catalogue from a text, a table in each line: its name and rows, then its columns with their types. A column is
// not null unless it says null, or nulls if some are known to be; pk and unique are what they say, and -> table.column is a foreign key.
func databaseOf(t *testing.T, text string) *Catalogue {
	t.Helper()
	c := &Catalogue{Server: "db:5432", Database: "app", SystemIdentifier: "1"}
	for line := range strings.Lines(strings.TrimSpace(text)) {
		head, columns, found := strings.Cut(strings.TrimSpace(line), ": ")
		if !found {
			t.Fatalf("%q is no table", line)
		}
		name, rows, _ := strings.Cut(head, " ")
		table := &Table{Schema: "public", Name: name, Owner: "app"}
		count, err := strconv.ParseInt(rows, 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		table.Rows, table.Bytes = count, 100*count
		for _, column := range strings.Split(columns, ", ") {
			table.addColumn(strings.Fields(column))
		}
		c.Tables = append(c.Tables, table)
	}
	slices.SortFunc(c.Tables, func(a, b *Table) int { return strings.Compare(a.Name, b.Name) })
	return c
}

var typeOIDs = map[string]uint32{"bigint": 20, "integer": 23, "smallint": 21, "text": 25, "uuid": 2950, "timestamptz": 1184, "json": 114}

func (t *Table) addColumn(words []string) {
	column := Column{Name: words[0], Type: words[1], NotNull: true, NullFraction: -1}
	if serial := map[string]string{"bigserial": "bigint", "serial": "integer", "smallserial": "smallint"}[words[1]]; serial != "" {
		column.Type, column.Sequence, column.SequenceOwned = serial, fmt.Sprintf("public.%s_%s_seq", t.Name, words[0]), true
	}
	column.TypeOID = typeOIDs[column.Type]
	for i, word := range words[2:] {
		switch word {
		case "null":
			column.NotNull = false
		case "nulls":
			column.NotNull, column.NullFraction = false, 0.1
		case "pk":
			t.addUnique(t.Name+"_pkey", "p", words[0])
		case "unique":
			t.addUnique(t.Name+"_"+words[0]+"_key", "u", words[0])
		case "->":
			target, referred, _ := strings.Cut(words[2:][i+1], ".")
			t.ForeignKeys = append(t.ForeignKeys, ForeignKey{
				Name: t.Name + "_" + words[0] + "_fkey", Columns: []string{words[0]}, TargetSchema: "public", TargetTable: target, TargetColumns: []string{referred}, OnUpdate: "a", OnDelete: "a", Valid: true,
			})
		}
	}
	t.Columns = append(t.Columns, column)
}

// addUnique adds a column to a constraint of the name.
func (t *Table) addUnique(name, kind, column string) {
	at := slices.IndexFunc(t.Uniques, func(u Unique) bool { return u.Name == name })
	if at < 0 {
		at = len(t.Uniques)
		t.Uniques = append(t.Uniques, Unique{Name: name, Index: name, Kind: kind, Plain: true, Usual: true, Valid: true})
	}
	u := &t.Uniques[at]
	u.Columns = append(u.Columns, column)
	u.Definition = fmt.Sprintf("CREATE UNIQUE INDEX %s ON public.%s USING btree (%s)", name, t.Name, strings.Join(u.Columns, ", "))
}

// hinder notes what would keep rows of a table from being moved.
func (c *Catalogue) hinder(name string, code shard.HindranceCode) {
	t := c.named(name)
	t.Hindrances = append(t.Hindrances, shard.Hindrance{Table: t.String(), Code: code, Message: "it is so", Hint: "change it"})
}

func (c *Catalogue) named(name string) *Table {
	return c.Table(topology.TableName{Schema: "public", Name: name})
}

// propose makes a plan, which must be possible.
func propose(t *testing.T, c *Catalogue, o Options) *Plan {
	t.Helper()
	p, _, err := Propose(c, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.check(); err != nil {
		t.Fatalf("the proposal is no plan: %v", err)
	}
	return p
}

// kinds tells what becomes of each table, and where keys come from.
func (p *Plan) kinds() string {
	var lines []string
	for _, t := range p.Tables {
		line := t.Name().Name + " " + string(t.Kind)
		if t.Key != "" {
			line += " by " + t.Key
		}
		if t.KeyFrom != nil {
			line += fmt.Sprintf(" from %s by %s", mustName(t.KeyFrom.Table).Name, strings.Join(t.KeyFrom.Columns, ", "))
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// codes tells what stands in the way of each table; ! if no step mends it.
func (a *Assessment) codes() string {
	var lines []string
	for _, o := range a.Obstacles {
		line := mustName(o.Table).Name + " " + o.Code
		if len(o.Steps) == 0 {
			line += " !"
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	clean := func(text string) string {
		var lines []string
		for line := range strings.Lines(strings.TrimSpace(text)) {
			lines = append(lines, strings.TrimSpace(line))
		}
		return strings.Join(lines, "\n")
	}
	if clean(got) != clean(want) {
		t.Errorf("%s:\n%s\nwanted:\n%s", what, clean(got), clean(want))
	}
}

// mended is the database as it is after all steps: what they do is done to the catalogue, so that it can be assessed again.
func mended(t *testing.T, c *Catalogue, p *Plan) {
	t.Helper()
	for round := 0; ; round++ {
		steps := Assess(c, p, nil).Steps
		if len(steps) == 0 {
			return
		}
		if round > 500 {
			t.Fatalf("mending does not end: %s", steps[0].ID)
		}
		c.run(t, p, steps[0])
	}
}

// run does to the catalogue what a step does to the database.
func (c *Catalogue) run(t *testing.T, p *Plan, step Step) {
	t.Helper()
	table := c.Table(mustName(step.Table))
	planned := p.table(table.ID())
	object := step.ID[strings.LastIndexByte(step.ID, ' ')+1:]
	switch step.phase {
	case addsColumn:
		column := Column{Name: object, Type: "bigint", TypeOID: bigintOID, NullFraction: -1}
		if object != planned.Key {
			column = Column{Name: object, Type: "uuid", TypeOID: uuidOID, NullFraction: -1, Default: uuidDefault}
		}
		table.Columns = append(table.Columns, column)
	case addsTrigger:
		table.Triggers = append(table.Triggers, fillTrigger)
	case fills:
		table.Checks = append(table.Checks, Check{Name: notNullCheck(table, object)})
	case validatesNotNull:
		table.check(notNullCheck(table, object)).Valid = true
	case setsNotNull:
		table.Column(object).NotNull, table.Checks = true, nil
	case makesIndex:
		table.runIndex(object, step)
	case addsForeignKey:
		f := table.ForeignKeys[slices.IndexFunc(table.ForeignKeys, func(f ForeignKey) bool { return f.Name == object })]
		f.Name, f.Valid = replacement(object), false
		f.Columns, f.TargetColumns = append([]string{planned.Key}, f.Columns...), append([]string{p.table(f.Target()).Key}, f.TargetColumns...)
		if target := c.Table(f.Target()); target.uniqueOver(f.TargetColumns) == nil {
			t.Errorf("PostgreSQL would refuse foreign key %s: %v of %s are not unique", f.Name, f.TargetColumns, target)
		}
		table.ForeignKeys = append(table.ForeignKeys, f)
	case validatesForeignKey:
		table.ForeignKeys[slices.IndexFunc(table.ForeignKeys, func(f ForeignKey) bool { return f.Name == replacement(object) })].Valid = true
	case swapsForeignKey:
		table.ForeignKeys = slices.DeleteFunc(table.ForeignKeys, func(f ForeignKey) bool { return f.Name == object })
		for i := range table.ForeignKeys {
			if table.ForeignKeys[i].Name == replacement(object) {
				table.ForeignKeys[i].Name = object
			}
		}
	case swapsUnique:
		c.runSwap(t, table, object)
	case makesPrimaryKey:
		table.runPrimaryKey(t, object)
	case last:
		table.Functions = nil
		for i := range table.Columns {
			table.Columns[i].SequenceOwned = true
		}
	}
}

func (t *Table) runIndex(index string, step Step) {
	definition := step.Online[len(step.Online)-1]
	list := definition[strings.LastIndexByte(definition, '(')+1 : strings.LastIndexByte(definition, ')')]
	columns := strings.Split(strings.ReplaceAll(list, `"`, ""), ", ")
	t.Uniques = append(t.Uniques, Unique{Name: index, Index: index, Columns: columns, Plain: true, Usual: true, Valid: true, Definition: definition})
}

// runPrimaryKey makes an index the primary key, if PostgreSQL would.
func (t *Table) runPrimaryKey(test *testing.T, index string) {
	test.Helper()
	t.Uniques = slices.DeleteFunc(t.Uniques, func(u Unique) bool { return u.Kind == "p" })
	at := slices.IndexFunc(t.Uniques, func(u Unique) bool { return u.Index == index })
	if at < 0 {
		test.Fatalf("there is no index %s", index)
	}
	if may, _ := t.mayBeNull(t.Uniques[at].Columns); may {
		test.Errorf("everybody would wait until PostgreSQL has seen that no row lacks one of %v", t.Uniques[at].Columns)
	}
	t.Uniques[at].Kind, t.Hindrances = "p", nil
}

func (c *Catalogue) runSwap(t *testing.T, table *Table, name string) {
	t.Helper()
	old := slices.IndexFunc(table.Uniques, func(u Unique) bool { return u.Name == name })
	for _, other := range c.Tables {
		for _, f := range other.ForeignKeys {
			if f.Target() == table.ID() && sameSet(f.TargetColumns, table.Uniques[old].Columns) {
				t.Errorf("PostgreSQL would refuse to drop %s, which foreign key %s of %s needs", name, f.Name, other)
			}
		}
	}
	fresh := slices.IndexFunc(table.Uniques, func(u Unique) bool { return u.Index == replacement(name) })
	table.Uniques[fresh].Name, table.Uniques[fresh].Index, table.Uniques[fresh].Kind = name, name, table.Uniques[old].Kind
	table.Uniques = slices.Delete(table.Uniques, old, old+1)
}
