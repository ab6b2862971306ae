package differential_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
)

// world is a schema that was made up, with its rows.
type world struct {
	schema    string
	keyspaces []*keyspace
	settings  []string
	// consistent: the router's reads of several shards are of one moment.
	consistent bool
	tables     []*table
	// viewsLater: views are made when tables have been declared.
	viewsLater bool
}

// keyspace is where tables with one kind of key are.
type keyspace struct {
	name string
	keyType
	seed   string
	points [][]string // where one by range is split
}

// table is a table with its rows.
type table struct {
	name string
	// space is the keyspace of a sharded table; nil if it is a reference table, or not declared.
	space     *keyspace
	reference bool
	columns   []column
	rows      [][]*string // as texts, nil for NULL
	// partitions is how many there are, 0 if it is no partitioned table. view is what one that shows its rows has after FROM and the table; nil: there is none.
	partitions int
	view       *string
}

// column is one of a table or of what stands in FROM.
type column struct {
	name string
	kind
	isKey bool
	// wild: values with which an operation may fail, such as the greatest integer or an infinite date.
	wild bool
	// inexact: equal values may be written in several ways.
	inexact bool
}

// makeWorld makes up a schema. Keyspaces have the kinds of keys in turn, so that a few worlds have all of them.
func makeWorld(g *maker, schema string, number int) *world {
	w := &world{schema: schema}
	g.world = w
	all := keyTypes()
	spaces := 2 + g.IntN(2)
	for i := range spaces {
		k := all[(number*3+i*7)%len(all)]
		if i > 0 && g.chance(25) { // rows of different keyspaces whose keys can be compared
			k = w.keyspaces[0].keyType
		}
		w.keyspaces = append(w.keyspaces, g.keyspace(strconv.Itoa(i+1), k))
	}
	for i, space := range w.keyspaces {
		for j := range 1 + g.IntN(3) {
			w.tables = append(w.tables, g.table(fmt.Sprintf("s%d%c", i+1, 'a'+j), space))
		}
	}
	for i := range 1 + g.IntN(2) {
		t := g.table(fmt.Sprintf("r%d", i+1), nil)
		t.reference, t.partitions = true, 0
		w.tables = append(w.tables, t)
	}
	for i := range 1 + g.IntN(2) {
		w.tables = append(w.tables, g.table(fmt.Sprintf("h%d", i+1), nil))
	}
	for _, t := range w.tables {
		if g.chance(35) {
			t.view = new(g.viewOf(t))
		}
	}
	w.consistent, w.viewsLater = g.chance(30), g.chance(50)
	if zone := pick(g, "", "", "America/New_York", "Asia/Kathmandu"); zone != "" {
		w.settings = append(w.settings, "set timezone = '"+zone+"'")
	}
	if style := pick(g, "", "", "", "German", "SQL, DMY"); style != "" {
		w.settings = append(w.settings, "set datestyle = '"+style+"'")
	}
	return w
}

func (g *maker) keyspace(name string, k keyType) *keyspace {
	space := &keyspace{name: name, keyType: k, seed: strconv.Itoa(g.IntN(1000))}
	if k.splitAt == "" {
		return space
	}
	for _, sample := range k.samples[1:] {
		if g.chance(60) {
			space.points = append(space.points, sample)
		}
	}
	return space
}

// table makes up a table and its rows.
func (g *maker) table(name string, space *keyspace) *table {
	t := &table{name: name, space: space}
	if space != nil {
		for _, c := range space.columns {
			t.columns = append(t.columns, keyedColumn(c))
		}
	}
	t.columns = append(t.columns, column{name: "id", kind: basics[integers]})
	for _, k := range kinds {
		if g.chance(55) {
			t.columns = append(t.columns, column{name: k.name, kind: k.kind, inexact: k.name == "price"})
		}
	}
	g.Shuffle(len(t.columns), func(i, j int) { t.columns[i], t.columns[j] = t.columns[j], t.columns[i] })
	t.rows = g.rows(t)
	if g.chance(20) {
		t.partitions = 1 + g.IntN(3)
	}
	return t
}

// viewOf is what a view shows of a table: all rows, some, or the first ones.
func (g *maker) viewOf(t *table) string {
	var unique []string
	for _, c := range t.unique() {
		unique = append(unique, c.name)
	}
	return pick(g, "", " where id > 3", " where id % 3 <> 1", " order by "+strings.Join(unique, ", ")+" limit 6")
}

// keyFamilies are the families of key columns by their types in the protocol.
var keyFamilies = map[string]family{
	"int2": integers, "int4": integers, "int8": integers, "text": texts, "varchar": texts, "uuid": uuids, "date": dates, "timestamptz": times, "bytea": binaries,
}

func keyedColumn(c keyColumn) column {
	k := kind{family: keyFamilies[c.wire], sql: c.sql, wire: c.wire}
	if k.family == texts {
		k.collation = "default"
	}
	return column{name: c.name, kind: k, isKey: true, wild: k.family == integers || k.family == dates || k.family == times}
}

// rows makes up rows: none, few or some dozens, now and then all with one key.
func (g *maker) rows(t *table) [][]*string {
	count := pick(g, 0, 1, 5, 8, 8, 12, 12, 16, 20, 40)
	var samples [][]string
	if t.space != nil {
		samples = t.space.samples
		if g.chance(12) {
			samples = samples[:1]
		}
	}
	nulls := pick(g, 5, 20, 60)
	rows := make([][]*string, count)
	for i := range rows {
		rows[i] = g.row(t, i+1, samples, nulls)
	}
	return rows
}

func (g *maker) row(t *table, id int, samples [][]string, nulls int) []*string {
	row := make([]*string, len(t.columns))
	var sample []string
	if t.space != nil {
		sample = pick(g, samples...)
	}
	for i, c := range t.columns {
		switch {
		case c.isKey:
			row[i] = &sample[t.space.place(c.name)]
		case c.name == "id":
			text := strconv.Itoa(id)
			row[i] = &text
		case !g.chance(nulls):
			text := g.text(c)
			row[i] = &text
		}
	}
	return row
}

// text makes up a value that a column can hold.
func (g *maker) text(c column) string {
	for {
		text := pick(g, pools[c.family]...)
		switch c.name {
		case "lvl":
			if len(text) > 1 {
				continue
			}
		case "price":
			if strings.Contains(text, "I") || len(text) > 6 {
				continue
			}
		}
		return text
	}
}

// isSharded: its rows are on shards by their keys.
func (t *table) isSharded() bool { return t.space != nil }

// unique are the columns of the primary key.
func (t *table) unique() []column {
	var found []column
	for _, c := range t.columns {
		if c.isKey || c.name == "id" {
			found = append(found, c)
		}
	}
	return found
}

func (t *table) names() []string {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = c.name
	}
	return names
}

// definitions make it, with its partitions.
func (t *table) definitions() []string {
	lines := make([]string, 0, len(t.columns)+1)
	for _, c := range t.columns {
		line := c.name + " " + c.sql
		if c.isKey {
			line += " not null"
		}
		lines = append(lines, line)
	}
	var unique []string
	if t.isSharded() {
		for _, c := range t.space.columns {
			unique = append(unique, c.name)
		}
	}
	lines = append(lines, "primary key ("+strings.Join(append(unique, "id"), ", ")+")")
	definition := "create table " + t.name + " (" + strings.Join(lines, ", ") + ")"
	if t.partitions == 0 {
		return []string{definition}
	}
	all := []string{definition + " partition by hash (id)"}
	for i := range t.partitions {
		all = append(all, fmt.Sprintf("create table %s_%d partition of %s for values with (modulus %d, remainder %d)", t.name, i, t.name, t.partitions, i))
	}
	return all
}

// viewName is what the view is called that shows its rows.
func (t *table) viewName() string { return "v" + t.name }

// viewDefinition makes the view.
func (t *table) viewDefinition() string {
	return "create view " + t.viewName() + " as select " + strings.Join(t.names(), ", ") + " from " + t.name + *t.view
}

// makeViews makes the views.
func (w *world) makeViews(c *client) error {
	for _, t := range w.tables {
		if t.view == nil {
			continue
		}
		if err := c.simple(t.viewDefinition()); err != nil {
			return err
		}
	}
	return nil
}

// insertion puts rows into it, nothing if there are none.
func (t *table) insertion(rows [][]*string) string {
	if len(rows) == 0 {
		return ""
	}
	texts := make([]string, len(rows))
	for i, row := range rows {
		values := make([]string, len(row))
		for j, value := range row {
			values[j] = "null"
			if value != nil {
				values[j] = quote(*value)
			}
		}
		texts[i] = "(" + strings.Join(values, ", ") + ")"
	}
	return "insert into " + t.name + " (" + strings.Join(t.names(), ", ") + ") values " + strings.Join(texts, ",\n  ")
}

// deletion takes rows away by their ids.
func (t *table) deletion(rows [][]*string) string {
	at := slices.Index(t.names(), "id")
	ids := make([]string, len(rows))
	for i, row := range rows {
		ids[i] = *row[at]
	}
	return "delete from " + t.name + " where id in (" + strings.Join(ids, ", ") + ")"
}

// declarations tell the router where rows go.
func (w *world) declarations() []string {
	var all []string
	for _, space := range w.keyspaces {
		var names []string
		for _, t := range w.tables {
			if t.space == space {
				names = append(names, t.keyed(w.schema))
			}
		}
		if len(names) > 0 {
			all = append(all, fmt.Sprintf("select cleave.shard_tables('%s', keyspace => '%s')", strings.Join(names, ", "), space.in(w.schema)))
		}
	}
	var references []string
	for _, t := range w.tables {
		if t.reference {
			references = append(references, w.schema+"."+t.name)
		}
	}
	if len(references) > 0 {
		all = append(all, fmt.Sprintf("select cleave.reference_tables('%s')", strings.Join(references, ", ")))
	}
	return all
}

// keyed writes the table with its key.
func (t *table) keyed(schema string) string {
	names := make([]string, len(t.space.columns))
	for i, c := range t.space.columns {
		names[i] = c.name
	}
	return fmt.Sprintf("%s.%s(%s)", schema, t.name, strings.Join(names, ", "))
}

// in is its name in a cluster, where every schema has keyspaces of its own.
func (k *keyspace) in(schema string) string { return schema + "_" + k.name }

// request asks for the keyspace.
func (k *keyspace) request(schema string) api.CreateKeyspace {
	types := make([]string, len(k.columns))
	for i, c := range k.columns {
		types[i], _, _ = strings.Cut(c.sql, "(")
	}
	request := api.CreateKeyspace{Name: k.in(schema), Key: types, Seed: k.seed}
	if k.splitAt != "" {
		request.Strategy, request.Seed = topology.ByRange, ""
		for _, point := range k.points {
			request.SplitAt = append(request.SplitAt, point)
		}
	}
	return request
}

// build makes tables and rows in the client's schema.
func (w *world) build(c *client) error {
	for _, own := range ownTypes {
		if err := c.simple(own.definition); err != nil {
			return err
		}
	}
	for _, t := range w.tables {
		for _, definition := range t.definitions() {
			if err := c.simple(definition); err != nil {
				return err
			}
		}
		if insertion := t.insertion(t.rows); insertion != "" {
			if err := c.simple(insertion); err != nil {
				return err
			}
		}
	}
	if w.viewsLater {
		return nil
	}
	return w.makeViews(c)
}

// reversed has the rows of every table in the opposite order.
func (w *world) reversed() *world {
	other := &world{schema: w.schema, keyspaces: w.keyspaces, settings: w.settings, viewsLater: w.viewsLater}
	for _, t := range w.tables {
		turned := *t
		turned.rows = slices.Clone(t.rows)
		slices.Reverse(turned.rows)
		other.tables = append(other.tables, &turned)
	}
	return other
}

// settle gives a connection the settings of this world. Compiling a plan would take longer than these statements do.
func (w *world) settle(c *client) error {
	for _, setting := range append([]string{"set jit = off"}, w.settings...) {
		if err := c.simple(setting); err != nil {
			return err
		}
	}
	return nil
}

// declare tells the router of keyspaces and tables.
func (w *world) declare(ctx context.Context, p pair, router *client) error {
	for _, space := range w.keyspaces {
		if _, err := p.api.CreateKeyspace(ctx, space.request(w.schema)); err != nil {
			return err
		}
	}
	for _, declaration := range w.declarations() {
		if err := router.simple(declaration); err != nil {
			return err
		}
	}
	if w.consistent {
		return router.simple("set cleave.consistent_reads = on")
	}
	return nil
}

// remove takes everything away again.
func (w *world) remove(ctx context.Context, p pair, t *twins) error {
	for _, c := range []*client{t.plain, t.router} {
		for _, table := range w.tables {
			if table.view != nil {
				if err := c.simple("drop view " + table.viewName()); err != nil {
					return err
				}
			}
			if err := c.simple("drop table " + table.name); err != nil {
				return err
			}
		}
		if err := c.simple("drop schema " + w.schema + " cascade"); err != nil {
			return err
		}
	}
	if !p.isRouter {
		return nil
	}
	for _, space := range w.keyspaces {
		if _, err := p.api.DropKeyspace(ctx, space.in(w.schema)); err != nil {
			return err
		}
	}
	return nil
}
