package session

import (
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/internal/compose"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/wire"
)

// composedShards stands for a statement that is answered in steps: rows are pulled from several shards, and a server that has nothing but
// them finishes the work.
const composedShards = -3

// composing is a statement that is answered in steps.
type composing struct {
	st  *plan.Statement
	src source
	// formats are those that the client wants the columns in: none, one for all, or one for each.
	formats []int16
	outline *outline
	moment  string // the current time, as all its texts have it; empty: nobody asked yet
	// copied is what stands behind the query in a COPY to the client, TO and all options; empty if it is no COPY's.
	copied string
}

// pull is one query for rows, as it runs now.
type pull struct {
	text   string
	shards []int
	// anywhere: every shard would answer it alike.
	anywhere bool
}

// sink takes rows that are not for the client: the bodies of DataRow messages, with the place of the shard among those of the statement.
type sink interface {
	take(at int, row []byte) *pgerr.Error
}

// placeComposed finds out where a statement's pulls are. If that comes to one shard, it has all that matters and answers alone.
func (s *session) placeComposed(st *plan.Statement, src source) (int, *pgerr.Error) {
	if src.outer != nil { // where the arguments of an EXECUTE lead is known when they are computed
		return ownShard, nil
	}
	c := &composing{st: st, src: src}
	var refused *pgerr.Error
	if c.outline, refused = s.outlineFor(st, src); refused != nil {
		return noShard, refused
	}
	s.scatters = false
	if c.outline.composition.Kind != compose.Reads || c.outline.runsFirst() { // where it writes is another matter
		return composedShards, nil
	}
	pulls, refused := s.pullsNow(c)
	if refused != nil {
		return noShard, refused
	}
	shards := shardsOf(pulls)
	s.wanted = append(s.wanted[:0], shards...)
	switch len(shards) {
	case 0:
		return s.home(), nil
	case 1:
		return shards[0], nil
	}
	return composedShards, nil
}

// shardsOf are those of all pulls, in order.
func shardsOf(pulls []pull) []int {
	var shards []int
	for _, p := range pulls {
		for _, shard := range p.shards {
			if !slices.Contains(shards, shard) {
				shards = append(shards, shard)
			}
		}
	}
	slices.Sort(shards)
	return shards
}

// compose makes a statement that is answered in steps the one in hand.
func (s *session) compose(st *plan.Statement, src source) *pgerr.Error {
	c := &composing{st: st, src: src}
	var refused *pgerr.Error
	if c.outline, refused = s.outlineFor(st, src); refused != nil {
		return refused
	}
	s.own = c
	return nil
}

// places are what stands in the open places of the composition's texts.
func (s *session) places(c *composing, moment bool) (compose.Places, *pgerr.Error) {
	scan, text, refused := c.src.literals(s.standardConforming())
	if refused != nil {
		return compose.Places{}, refused
	}
	in := c.outline.places(scan, text)
	in.Inserted = c.insertedColumns()
	if moment && c.moment == "" {
		refused = s.takeMoment()
		c.moment = s.tx.moment
	}
	in.Moment = c.moment
	return in, refused
}

// pullsNow are the pulls as they run now, and where. Own views are none.
func (s *session) pullsNow(c *composing) ([]pull, *pgerr.Error) {
	pulls := make([]pull, len(c.outline.composition.Pulls))
	anywhere := []int{}
	composition := c.outline.composition
	moment := slices.ContainsFunc(composition.Pulls, func(p compose.Pull) bool { return p.SQL.HasMoment() })
	in, refused := s.places(c, moment)
	if refused != nil {
		return nil, refused
	}
	for i := range pulls {
		if composition.Pulls[i].Own {
			continue
		}
		pulls[i].text = composition.Pulls[i].SQL.Fill(in)
		if composition.Pulls[i].Any {
			continue
		}
		place := composition.Pulls[i].Place()
		shards, refused := s.placePull(place.Fill(in), c)
		if refused != nil {
			return nil, refused
		}
		if pulls[i].shards = shards; len(shards) == 0 {
			anywhere = append(anywhere, i)
		}
	}
	for _, i := range anywhere { // every shard has it: one that is asked anyhow is best
		pulls[i].shards, pulls[i].anywhere = []int{s.anyOf(shardsOf(pulls))}, true
	}
	return pulls, nil
}

// placePull finds the shards of one pull; none if any will do.
func (s *session) placePull(text string, c *composing) ([]int, *pgerr.Error) {
	pulled := &statement{text: text, oids: c.outline.params}
	if refused := s.planAside(pulled); refused != nil {
		return nil, refused
	}
	only := pulled.single()
	switch {
	case only == nil:
		return nil, pgerr.New(pgerr.InternalError, "a part of the statement could not be planned").WithDetail("%s", text)
	case only.Refusal != nil:
		return nil, only.Refusal
	case only.Composition != nil && only.Route.Level == plan.Composed:
		return nil, pgerr.New(pgerr.InternalError, "a part of the statement cannot be answered by shards").WithDetail("%s", text)
	}
	shard, refused := s.place(only, source{statement: pulled, bind: c.src.bind})
	s.scatters = s.scatters || fansOut(&only.Route)
	switch {
	case refused != nil:
		return nil, refused
	case shard == noShard || only.Route.Level == plan.Anywhere:
		return nil, nil
	case shard == severalShards:
		return slices.Clone(s.wanted), nil
	case shard == composedShards:
		return nil, pgerr.New(pgerr.InternalError, "a part of the statement cannot be answered by shards").WithDetail("%s", text)
	default:
		return []int{shard}, nil
	}
}

// takeBind takes the parameters, which are needed when the statement runs, and the formats of its rows.
func (c *composing) takeBind(_ *session, m *wire.Bind) *pgerr.Error {
	kept, refused := keepBind(m, c.src.statement.name, len(c.outline.params))
	if refused != nil {
		return refused
	}
	c.src.bind, c.formats = kept, resultFormats(kept)
	return fitFormats(c.formats, c.outline.count)
}

// run answers the statement.
func (c *composing) run(s *session, to rowTaker) (tag string, refused *pgerr.Error) {
	if refused := s.goOn(); refused != nil {
		return "", refused
	}
	s.missing = missing{} // of what ran since it was bound
	return s.runComposed(c, to)
}

// describeInSteps tells what a statement takes and gives that is answered in steps.
func (s *session) describeInSteps(st *statement, only *plan.Statement) *pgerr.Error {
	if only.Declares != nil || only.Makes != nil || copiesQuery(only) {
		var types []uint32
		var refused *pgerr.Error
		if !copiesQuery(only) {
			types, refused = s.declaredTypes(st)
		}
		s.addLocal(append(wire.AppendParameterDescription(nil, types), noData...))
		return refused
	}
	shape, refused := s.outlineOf(st, only)
	if refused != nil {
		return refused
	}
	described := shape.description
	if described == nil {
		described = noData
	} else if columns, err := columnsOf(described); err == nil {
		st.told, st.toldUnder = columns, st.planned
	}
	s.addLocal(append(wire.AppendParameterDescription(nil, shape.params), described...))
	return nil
}

// columnsStay fails if the client counts on columns of a statement in steps that are no more.
func (s *session) columnsStay(st *statement, o own, portal []byte) *pgerr.Error {
	if st.told == "" || st.toldUnder == st.planned || o.description() == nil || s.in.describesNext(s.server.config.MaxMessage, portal) {
		return nil
	}
	now, err := columnsOf(o.description())
	if err != nil {
		return asError(err)
	}
	if now != st.told {
		return pgerr.New(pgerr.FeatureNotSupported, "cached plan must not change result type")
	}
	st.toldUnder = st.planned
	return nil
}

// description is that of the rows in the formats that the client wants; nil if there are none.
func (c *composing) description() []byte {
	if c.outline.planned != nil {
		return describedIn(c.outline.planned, c.formats)
	}
	return describedIn(c.outline.description, c.formats)
}

// format is that of a column.
func (c *composing) format(column int) int16 { return formatOf(c.formats, column) }

// runComposed answers a statement in steps, and returns its command tag.
func (s *session) runComposed(c *composing, to rowTaker) (tag string, refused *pgerr.Error) {
	if refused := s.goOn(); refused != nil {
		return "", refused
	}
	s.answerLocally()
	// Rows that move are only stored in their own table's columns, whose collations are the table's.
	if !c.outline.composition.Moves && slices.ContainsFunc(c.outline.pulls, func(p pullOutline) bool { return p.unsure }) {
		return "", pgerr.New(pgerr.FeatureNotSupported, "a computed text that a part of the statement returns is not supported over several shards").
			WithDetail("Which collation it has is known only where it is computed.").WithHint("Return the columns, and compute with them outside.")
	}
	if c.st.Explains && !c.st.Reads {
		return "", pgerr.New(pgerr.FeatureNotSupported, "EXPLAIN ANALYZE of a statement that writes in steps is not supported").
			WithDetail("It would have to write.").WithHint("Use EXPLAIN without ANALYZE.")
	}
	if c.outline.composition.Kind != compose.Reads && !c.st.Explains {
		return s.runWrite(c, to)
	}
	rows, refused := s.runRead(c, to)
	if c.st.Explains {
		return "EXPLAIN", refused
	}
	return fmt.Sprintf("SELECT %d", rows), refused
}

// runRead is runComposed for a query; it returns how many rows it has given.
func (s *session) runRead(c *composing, to rowTaker) (int64, *pgerr.Error) {
	if !c.st.Reads || c.st.Explains {
		defer s.keepWhole()()
	}
	pulls, refused := s.pullsNow(c)
	if refused != nil {
		return 0, refused
	}
	shards := shardsOf(pulls)
	if refused := s.mayUse(shards, c.st); refused != nil {
		return 0, refused
	}
	if refused := s.mayWriteOut(c); refused != nil {
		return 0, refused
	}
	if c.st.Explains {
		return s.explainComposed(c, pulls, to)
	}
	if m := s.mergeOf(c, to); m != nil {
		return m.run(pulls[0], shards)
	}
	basin := s.newBasin(c, pulls)
	defer basin.close()
	if c.outline.runsFirst() {
		s.startBlock()
		if refused := s.runFirst(c, pulls, basin); refused != nil {
			return 0, refused
		}
	}
	how, refused := s.shippingOf(c, pulls)
	if refused != nil {
		return 0, refused
	}
	if how != nil {
		return s.ship(c, pulls, how, basin, to)
	}
	phases, refused := s.phasesOf(c, pulls)
	if refused != nil {
		return 0, refused
	}
	for _, now := range phases {
		if refused := s.runPhase(c, pulls, now, basin); refused != nil {
			return 0, refused
		}
	}
	return s.finish(c, basin, to)
}

// mayWriteOut refuses to hand values on as texts if the session's settings would change them: those of users' types that have times or floats in them, and arrays.
func (s *session) mayWriteOut(c *composing) *pgerr.Error {
	var pulled []pulledColumn
	for _, p := range append(slices.Clone(c.outline.pulls), c.outline.target) {
		for _, column := range p.columns {
			if !column.binary && (column.styled || column.isArray) {
				pulled = append(pulled, column)
			}
		}
	}
	if len(pulled) == 0 {
		return nil
	}
	exactly, nulls, refused := s.writesExactly()
	if refused != nil {
		return refused
	}
	for _, column := range pulled {
		refusal := pgerr.New(pgerr.FeatureNotSupported, "values of type %s cannot be brought together from several shards under these settings", column.sql)
		switch {
		case column.styled && !exactly:
			return refusal.WithDetail("They are handed on as texts, and DateStyle, IntervalStyle or extra_float_digits may leave out something of them.").WithHint(exactSettings)
		case column.isArray && !nulls:
			return refusal.WithDetail("They are handed on as texts, and with array_nulls off a NULL in them would become a word.").WithHint("SET array_nulls = on")
		}
	}
	return nil
}

const exactSettings = "SET DateStyle = ISO; SET IntervalStyle = postgres; SET extra_float_digits = 1"

// writesExactly says whether the session's settings write times and floats as texts that mean what they were, and whether NULL in the text of an array is one. It asks
// a server: roles and databases have settings of their own.
func (s *session) writesExactly() (exactly, nulls bool, refused *pgerr.Error) {
	const sql = `SELECT pg_catalog.starts_with(pg_catalog.current_setting('DateStyle'), 'ISO') AND pg_catalog.current_setting('IntervalStyle') OPERATOR(pg_catalog.=) 'postgres'
		AND pg_catalog.current_setting('extra_float_digits')::pg_catalog.int4 OPERATOR(pg_catalog.>) 0, pg_catalog.current_setting('array_nulls')::pg_catalog.bool`
	a, refused := s.askShard(s.home(), func() (answer, error) { return s.ask(sql) })
	switch {
	case refused != nil:
		return false, false, refused
	case a.failure != nil:
		return false, false, a.failure.PGError()
	case len(a.rows) != 1:
		return false, false, pgerr.New(pgerr.InternalError, "the settings could not be asked for")
	}
	return a.rows[0][0] == "t", a.rows[0][1] == "t", nil
}

// mayUse says whether a statement may run on shards, and learns what has to be known of them.
func (s *session) mayUse(shards []int, st *plan.Statement) *pgerr.Error {
	if refused := s.maySpread(st); refused != nil {
		return refused
	}
	usable, refused := s.usableOf(shards, st)
	if refused != nil {
		return refused
	}
	for _, shard := range usable {
		if refused := s.learnNumbers(shard); refused != nil {
			return refused
		}
	}
	return nil
}

// runPulls runs all pulls at once.
func (s *session) runPulls(c *composing, pulls []pull, to *basin) *pgerr.Error {
	all := phase{}
	for i := range pulls {
		if len(pulls[i].shards) > 0 {
			all[i] = nil
		}
	}
	return s.runPhase(c, pulls, all, to)
}

// runPhase runs some of the pulls: every shard gets one statement for all of them, so that what it gives is of one moment.
func (s *session) runPhase(c *composing, pulls []pull, now phase, to *basin) *pgerr.Error {
	running := make([]pull, len(pulls))
	formats, values := c.values()
	oids := slices.Clone(c.outline.params)
	for i := range pulls {
		filters, runs := now[i]
		if !runs {
			continue
		}
		text, arrays, refused := to.filtered(i, pulls[i].text, filters, len(values))
		if refused != nil {
			return refused
		}
		for _, a := range arrays {
			oids, formats, values = append(oids, a.oid), append(formats, 1), append(values, a.value)
		}
		running[i] = pull{text: text, shards: s.present(pulls[i].shards)}
	}
	shards := shardsOf(running)
	if len(shards) == 0 {
		return s.pullElsewhere(c, pulls, now, to)
	}
	var parts []part
	var tail []byte // what was sent along may be much: shards that give the same columns share it
	var given []int16
	for i, shard := range shards {
		text, results := to.textFor(running, shard)
		if i == 0 || !slices.Equal(results, given) {
			tail, given = bindTail(formats, values, results), results
		}
		parts = append(parts, part{data: tail, statement: &statement{text: text, oids: oids, planned: pulledPlan}, elsewhere: true})
	}
	if refused := s.runParts(&spreadRun{shards: shards, parts: parts, types: c.carriedTypes(), planned: pulledPlan, divided: plan.Same, to: to}); refused != nil {
		return refused
	}
	return s.pullElsewhere(c, pulls, now, to)
}

// part is what one shard gets.
func (c *composing) part(text string, formats []int16) part {
	return part{data: c.bindTail(formats), statement: &statement{text: text, oids: c.outline.params, planned: pulledPlan}, elsewhere: true}
}

// spreadRun is a statement of the session's own that several shards run.
type spreadRun struct {
	shards []int
	parts  []part
	// types are those of the parameters, if some may carry numbers of types.
	types   []uint32
	planned *planned
	divided plan.Parts
	to      sink
	// tag is what it was answered with.
	tag string
}

// runParts has every shard run its part, and gives the sink the rows. Outside of a transaction none is begun if they change nothing.
func (s *session) runParts(r *spreadRun) *pgerr.Error {
	if refused := s.goesOn(); refused != nil {
		return refused
	}
	if refused := s.ownParts(r); refused != nil {
		return refused
	}
	bind := op{kind: opBind, types: r.types, parts: r.parts, statement: r.parts[0].statement}
	s.spreadTo, s.spreadParts, s.rowOrder, s.spreadLimit, s.sink = r.shards, r.divided, nil, unlimited, r.to
	s.ops = append(s.ops, bind, op{kind: opExecute, statement: bind.statement, planned: r.planned}, op{kind: opSync, hidden: true})
	syncing, erred := s.syncing, s.erred
	s.syncing, s.erred, s.sunkTag = s.tx.begin == "" && !s.inText, false, ""
	err := s.flush()
	failed := s.erred
	s.syncing, s.erred, s.sink, s.skipping = syncing, erred || failed, nil, false
	r.tag = s.sunkTag
	switch {
	case err != nil:
		s.stepError = err
		return stepFailed
	case failed:
		s.stepError = nil
		return stepFailed
	}
	return nil
}

// pulledPlan stands for that of pulls: they change nothing.
var pulledPlan = &planned{plan: &plan.Plan{Statements: []plan.Statement{{Name: "SELECT", Plain: true, Reads: true, Rows: true}}}, stats: unreadablePlan.stats}

// carriedTypes are the parameters' types if some may carry numbers of types; nil if none does.
func (c *composing) carriedTypes() []uint32 {
	if slices.ContainsFunc(c.outline.params, mayCarry) {
		return c.outline.params
	}
	return nil
}

// bindTail is what follows the names in a Bind with the client's parameters.
func (c *composing) bindTail(results []int16) []byte {
	formats, values := c.values()
	return bindTail(formats, values, results)
}

// values are the client's parameters.
func (c *composing) values() (formats []int16, values [][]byte) {
	if c.src.bind == nil {
		return nil, nil
	}
	for i := range c.src.bind.ParamCount() {
		value, isBinary, null := c.src.bind.Param(i)
		format := int16(0)
		if isBinary {
			format = 1
		}
		if null {
			value = nil
		} else if value == nil {
			value = []byte{}
		}
		formats, values = append(formats, format), append(values, value)
	}
	return formats, values
}
