package session

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/binding"
	"github.com/cleavedb/cleave/internal/compose"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/placement/key"
)

func tooMuchToGive(most int64) *pgerr.Error {
	return pgerr.New(pgerr.OutOfMemory, "the statement needs too many rows of other shards").
		WithDetail("What it reads besides the table that it writes to is more than %d bytes, and every shard has to be given that.", most).
		WithHint("Restrict what it reads, write in portions, or raise limits.given_rows.")
}

// runWrite runs a statement in steps that writes: what it reads elsewhere is pulled first, in the same transaction, and given to the shards that
// write. It returns the command tag.
func (s *session) runWrite(c *composing, to rowTaker) (string, *pgerr.Error) {
	if refused := s.mayWriteOut(c); refused != nil {
		return "", refused
	}
	defer s.keepWhole()()
	s.startBlock()
	if len(c.outline.composition.Inserted) > 0 || c.outline.composition.Kind == compose.Routed {
		return s.runInsert(c, to)
	}
	pulls, refused := s.pullsNow(c)
	if refused != nil {
		return "", refused
	}
	basin := s.newBasin(c, pulls)
	defer basin.close()
	if refused := s.runFirst(c, pulls, basin); refused != nil {
		return "", refused
	}
	if shards := shardsOf(pulls); len(shards) > 0 {
		if s.scatters {
			if refused := s.mayFanOut(c.st, shards); refused != nil {
				return "", refused
			}
		}
		if refused := s.mayUse(shards, pulledStatement); refused != nil {
			return "", refused
		}
		if refused := s.runPulls(c, pulls, basin); refused != nil {
			return "", refused
		}
	}
	if c.outline.composition.Kind == compose.Copied {
		return s.writeCopies(c, basin, to)
	}
	return s.broadcast(c, basin, to)
}

// runFirst runs those pulls that are statements of their own.
func (s *session) runFirst(c *composing, pulls []pull, to *basin) *pgerr.Error {
	for i := range pulls {
		if c.outline.composition.Pulls[i].Any {
			if refused := s.queryInto(pulls[i].text, c, i, to.spools[i]); refused != nil {
				return refused
			}
		}
	}
	return nil
}

// pulledStatement stands for one that only reads.
var pulledStatement = &pulledPlan.plan.Statements[0]

// broadcast gives what was pulled to all shards that write.
func (s *session) broadcast(c *composing, from *basin, to rowTaker) (string, *pgerr.Error) {
	f := s.newFinishing(c, from, true)
	f.to = to
	defer f.held.release()
	text, refused := f.text()
	if refused != nil {
		return "", refused
	}
	given := &statement{text: text, oids: f.oids}
	bind, refused := bindOf(f.formats, f.values)
	if refused != nil {
		return "", refused
	}
	only, shards, refused := s.placeGiven(given, bind)
	if refused != nil {
		return "", refused
	}
	parts := make([]part, len(shards))
	tail := slices.Clone(bindTail(f.formats, f.values, c.formats))
	for i := range parts {
		parts[i] = part{data: tail, statement: given, elsewhere: true}
	}
	return s.runGiven(c, only, given, shards, parts, to)
}

// placeGiven plans a statement of the session's own and finds its shards.
func (s *session) placeGiven(given *statement, bind *wire.Bind) (*plan.Statement, []int, *pgerr.Error) {
	if refused := s.planAside(given); refused != nil {
		return nil, nil, refused
	}
	only := given.single()
	switch {
	case only == nil || only.Route.Level == plan.Composed:
		return nil, nil, leftOver
	case only.Refusal != nil:
		return nil, nil, only.Refusal
	}
	shard, refused := s.place(only, source{statement: given, bind: bind})
	switch {
	case refused != nil:
		return nil, nil, refused
	case shard == severalShards:
		shards := slices.Clone(s.wanted)
		return only, shards, s.mayScatter(only, fansOut(&only.Route))
	case shard == noShard:
		return only, []int{s.home()}, nil
	case shard < noShard: // its keys are on several shards, and no shard's rows are enough for any of them
		return nil, nil, leftOver
	default:
		return only, []int{shard}, nil
	}
}

// leftOver refuses what no shard can answer alone even when it is given all that comes from elsewhere.
var leftOver = pgerr.New(pgerr.FeatureNotSupported, "the statement cannot be run over several shards").
	WithDetail("What is left of it when all that it reads elsewhere was pulled still needs rows of several shards.").WithHint("Run it for the keys of one shard at a time.")

// runGiven has shards run a statement of the session's own that writes.
func (s *session) runGiven(c *composing, only *plan.Statement, given *statement, shards []int, parts []part, to rowTaker) (string, *pgerr.Error) {
	if refused := s.mayUse(shards, only); refused != nil {
		return "", refused
	}
	run := &spreadRun{shards: shards, parts: parts, types: c.carriedTypes(), planned: given.planned, divided: only.Route.Parts, to: &takenRows{to: to}}
	if len(shards) == 1 {
		run.divided = plan.Same
	}
	if c.outline.description != nil {
		to.begin()
	}
	if refused := s.runParts(run); refused != nil {
		return "", refused
	}
	return run.tag, nil
}

// takenRows passes rows on that are returned.
type takenRows struct{ to rowTaker }

func (r *takenRows) take(_ int, row []byte) *pgerr.Error { return r.to.take(row) }

// bindOf is a Bind with these values.
func bindOf(formats []int16, values [][]byte) (*wire.Bind, *pgerr.Error) {
	m, err := wire.DecodeBind(append([]byte{0, 0}, bindTail(formats, values, nil)...))
	if err != nil {
		return nil, asError(err)
	}
	return &m, nil
}

// runInsert runs the query of an INSERT, and inserts its rows where they belong.
func (s *session) runInsert(c *composing, to rowTaker) (string, *pgerr.Error) {
	if refused := c.checkCount(); refused != nil {
		return "", refused
	}
	if c.outline.composition.Moves && c.outline.cannotMove != "" {
		return "", pgerr.New(pgerr.FeatureNotSupported, "moving a row of %s to another shard is not supported", c.st.Target.Quoted()).
			WithDetail("It would be deleted on one shard and inserted on another. In the way: %s.", c.outline.cannotMove).WithHint("Delete the row and insert it again, with all that belongs to it.")
	}
	if c.outline.composition.Moves {
		if refused := s.mayUpdate(c.st.Target, c.outline.composition.Written.Assigned); refused != nil {
			return "", refused
		}
	}
	rows := s.newSpool()
	defer rows.close()
	in, refused := s.places(c, c.outline.composition.Pulls[0].SQL.HasMoment())
	if refused != nil {
		return "", refused
	}
	if refused := s.queryInto(c.outline.composition.Pulls[0].SQL.Fill(in), c, 0, rows); refused != nil {
		return "", refused
	}
	if c.outline.composition.Kind == compose.Broadcast {
		return s.broadcast(c, &basin{c: c, spools: []*spool{rows}}, to)
	}
	return s.insertRouted(c, rows, to)
}

// mayUpdate refuses an UPDATE without the right to it: where rows are deleted and inserted in its place, no server would ask for that.
func (s *session) mayUpdate(table plan.RelationName, columns []string) *pgerr.Error {
	quoted := make([]string, len(columns))
	for i, column := range columns {
		quoted[i] = sqltext.QuoteLiteral(column)
	}
	name := sqltext.QuoteLiteral(table.Quoted())
	sql := "SELECT pg_catalog.has_table_privilege(" + name + ", 'UPDATE') OR (SELECT pg_catalog.bool_and(pg_catalog.has_column_privilege(" + name + ", c, 'UPDATE')) FROM pg_catalog.unnest(ARRAY[" +
		strings.Join(quoted, ", ") + "]::pg_catalog.text[]) AS c)"
	a, refused := s.askShard(s.home(), func() (answer, error) { return s.ask(sql) })
	switch {
	case refused != nil:
		return refused
	case a.failure != nil:
		return a.failure.PGError()
	case len(a.rows) != 1 || a.rows[0][0] != "t":
		return pgerr.New(pgerr.InsufficientPrivilege, "permission denied for table %s", table.Name)
	}
	return nil
}

// checkCount is what PostgreSQL says if there are more values than columns, or fewer than are named.
func (c *composing) checkCount() *pgerr.Error {
	if columns, names := len(c.outline.pulls[0].columns), len(c.outline.composition.Inserted); names > 0 && columns > names {
		return pgerr.New(pgerr.SyntaxError, "INSERT has more expressions than target columns")
	}
	return nil
}

// queryInto runs a query, wherever it has to run, and keeps its rows.
func (s *session) queryInto(text string, c *composing, pull int, to *spool) *pgerr.Error {
	query := &statement{text: text, oids: c.outline.params}
	if refused := s.planAside(query); refused != nil {
		return refused
	}
	only := query.single()
	switch {
	case only == nil:
		return pgerr.New(pgerr.InternalError, "the query of the statement could not be planned").WithDetail("%s", text)
	case only.Refusal != nil:
		return only.Refusal
	case len(only.Numbers) > 0 || callsOwn(only):
		return pgerr.New(pgerr.FeatureNotSupported, "this form of query is not supported in a statement that writes to several shards").
			WithDetail("It calls a function in whose place the router puts its own.").WithHint("Run the query first, and write its rows.")
	}
	var formats []int16
	for _, column := range c.outline.pulls[pull].columns {
		formats = append(formats, map[bool]int16{true: 1}[column.binary])
	}
	return s.runQuery(&queryRun{statement: query, bind: c.src.bind, params: c.outline.params, formats: formats, to: &keptRows{to: to}})
}

// limitedRows passes on up to so many rows that are left.
type limitedRows struct {
	to   rowTaker
	left int64
}

func (r *limitedRows) take(_ int, row []byte) *pgerr.Error {
	switch r.left {
	case unlimited:
	case 0:
		return nil
	default:
		r.left--
	}
	return r.to.take(row)
}

// insertBatch is how many bytes of rows are inserted at a time.
const insertBatch = 8 << 20

// mayPortion says whether rows may be inserted in several portions: not if it matters that a row is met twice.
func (c *composing) mayPortion() bool {
	return len(c.outline.composition.Inserted) > 0 && !c.outline.composition.Written.Conflicts
}

// insertRouted inserts rows where they belong, in portions.
func (s *session) insertRouted(c *composing, rows *spool, to rowTaker) (string, *pgerr.Error) {
	i := &routedInsert{s: s, c: c, to: to, portions: map[int]*spool{}}
	defer i.close()
	if refused := rows.rewind(); refused != nil {
		return "", refused
	}
	begun := false
	for {
		row, refused := rows.next()
		if refused == nil && row != nil {
			refused = i.add(row)
		}
		if refused == nil && (row == nil && (i.size > 0 || !begun) || i.size > insertBatch && c.mayPortion()) {
			refused = i.flush(!begun)
			begun = true
		}
		if refused != nil {
			return "", refused
		}
		if row != nil {
			continue
		}
		switch {
		case c.outline.composition.Moves:
			return fmt.Sprintf("UPDATE %d", i.inserted), nil
		case len(c.outline.composition.Inserted) == 0:
			return fmt.Sprintf("MERGE %d", i.inserted), nil
		}
		return fmt.Sprintf("INSERT 0 %d", i.inserted), nil
	}
}

// routedInsert is the insertion of rows where they belong.
type routedInsert struct {
	s        *session
	c        *composing
	to       rowTaker
	portions map[int]*spool
	order    []int
	size     int64
	inserted int64
	fields   [][]byte
}

// add finds the shard of a row.
func (i *routedInsert) add(row []byte) *pgerr.Error {
	fields, ok := splitRow(row, i.fields[:0])
	if i.fields = fields; !ok {
		return badRow
	}
	shard, refused := i.shardOf(fields)
	if refused != nil {
		return refused
	}
	if i.portions[shard] == nil {
		i.portions[shard] = i.s.newSpool()
	}
	i.order = append(i.order, shard)
	i.size += int64(len(row))
	return i.portions[shard].add(row)
}

// shardOf is where a row belongs. One that belongs nowhere goes anywhere: the shard says what is wrong with it.
func (i *routedInsert) shardOf(fields [][]byte) (int, *pgerr.Error) {
	s, st := i.s, i.c.st
	keyspace := s.currentMap().Keyspace(st.Route.Keyspace)
	if keyspace == nil {
		return noShard, pgerr.New(pgerr.InternalError, "keyspace %q is not in the shard map", st.Route.Keyspace)
	}
	values := make([]key.Value, len(st.InsertedKey))
	for j := range st.InsertedKey {
		at := i.c.outline.composition.KeyColumns[j]
		if at >= len(fields) {
			return s.home(), nil
		}
		part := st.InsertedKey[j]
		part.Operand = plan.Operand{Kind: plan.FromParam, Param: 1, CastMod: -1}
		column := &i.c.outline.pulls[0].columns[at]
		param := binding.Param{Binary: column.binary, OID: column.elementType(), Null: len(fields[at]) == 4 && fields[at][0] == 0xff, Value: fields[at][4:]}
		s.params = append(s.params[:0], param)
		value, outcome, refused := binding.Value(&part, &noLiterals, nil, s.params, s.reading)
		if refused == nil && outcome == binding.Ask {
			value, outcome, refused = s.askValue(&part, &noLiterals, nil)
		}
		switch {
		case refused != nil:
			return noShard, refused
		case outcome != binding.Bound:
			return s.home(), nil
		}
		values[j] = value.Clone()
	}
	s.counts.on = len(st.Route.Keys) == 0 // or they were counted when the statement was placed
	defer func() { s.counts.on = false }()
	return s.locate(keyspace, &st.Route, values)
}

// close forgets rows that were not inserted.
func (i *routedInsert) close() {
	for _, p := range i.portions {
		p.close()
	}
	i.portions, i.order, i.size = map[int]*spool{}, nil, 0
}

func tooManyReturned(most int64) *pgerr.Error {
	return pgerr.New(pgerr.OutOfMemory, "the rows that the statement returns are too many").
		WithDetail("They come from several shards, and up to %d bytes of them are brought into their order.", most).WithHint("Write fewer rows at a time, or raise limits.given_rows.")
}

// flush inserts what there is. First: it is the first portion, which tells the client what columns there are, also if there is no row.
func (i *routedInsert) flush(first bool) *pgerr.Error {
	defer i.close()
	if len(i.portions) == 0 {
		i.portions[i.s.firstOwner(&i.c.st.Route)] = i.s.newSpool()
	}
	var shards []int
	for shard := range i.portions {
		shards = append(shards, shard)
	}
	slices.Sort(shards)
	var parts []part
	var only *plan.Statement
	var given *statement
	for _, shard := range shards {
		f := i.s.newFinishing(i.c, &basin{c: i.c, spools: []*spool{i.portions[shard]}}, true)
		defer f.held.release() // when all have been sent
		text, refused := f.text()
		if refused != nil {
			return refused
		}
		if given == nil {
			given = &statement{text: text, oids: f.oids, planned: routedPlan}
			only = &routedPlan.plan.Statements[0]
		}
		parts = append(parts, part{data: bindTail(f.formats, f.values, i.c.formats), statement: given, elsewhere: true})
	}
	if refused := i.s.mayUse(shards, only); refused != nil {
		return refused
	}
	returned := &returnedRows{rows: make([][][]byte, len(shards)), held: held{of: &i.s.server.allowance}}
	defer returned.held.release()
	run := &spreadRun{shards: shards, parts: parts, types: i.c.carriedTypes(), planned: routedPlan, divided: plan.Same, to: returned}
	if first && i.c.outline.description != nil {
		i.to.begin()
	}
	if refused := i.s.runParts(run); refused != nil {
		return refused
	}
	i.inserted += wire.CommandRows([]byte(run.tag))
	return returned.give(i.order, shards, i.to)
}

// firstOwner is a shard that owns something of a keyspace.
func (s *session) firstOwner(route *plan.Route) int {
	if keyspace := s.currentMap().Keyspace(route.Keyspace); keyspace != nil {
		for r := range keyspace.Ranges() {
			return r.Owner.Number()
		}
	}
	return s.home()
}

// routedPlan stands for that of rows that are inserted where they belong.
var routedPlan = &planned{plan: &plan.Plan{Statements: []plan.Statement{{Name: "INSERT"}}}, stats: unreadablePlan.stats}

// returnedRows keeps what an INSERT returns, to bring it into the order of the rows.
type returnedRows struct {
	rows [][][]byte
	held held
}

func (r *returnedRows) take(at int, row []byte) *pgerr.Error {
	if r.held.filled+int64(len(row)) > r.held.of.Given {
		return r.held.of.tooMuch(tooManyReturned(r.held.of.Given))
	}
	if !r.held.add(int64(len(row))) {
		return r.held.of.noMemory()
	}
	r.rows[at] = append(r.rows[at], bytes.Clone(row))
	return nil
}

// give passes rows on in the order in which they were inserted, if each was; else shard by shard.
func (r *returnedRows) give(order, shards []int, to rowTaker) *pgerr.Error {
	counts := make([]int, len(shards))
	for _, shard := range order {
		counts[slices.Index(shards, shard)]++
	}
	inOrder := true
	for at := range r.rows {
		inOrder = inOrder && len(r.rows[at]) == counts[at]
	}
	if inOrder {
		next := make([]int, len(shards))
		for _, shard := range order {
			at := slices.Index(shards, shard)
			if refused := to.take(r.rows[at][next[at]]); refused != nil {
				return refused
			}
			next[at]++
		}
		return nil
	}
	for _, rows := range r.rows {
		for _, row := range rows {
			if refused := to.take(row); refused != nil {
				return refused
			}
		}
	}
	return nil
}

// insertedColumns are the columns that are inserted, as many as there are values.
func (c *composing) insertedColumns() string {
	names := c.outline.composition.Inserted
	if len(c.outline.pulls) > 0 {
		names = names[:min(len(names), len(c.outline.pulls[0].columns))]
	}
	return quoteAll(names)
}
