package session

import (
	"maps"
	"slices"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// The current time is when the transaction began, and every shard has a clock of its own and hears of the transaction at another moment. So one of
// them is the transaction's clock, the first that it is on: what runs there alone is sent as it is. In all that runs elsewhere, or on several shards, the
// moment is written out, in place of now() and its like, and of the defaults of columns that are computed from it.

// noClock is the clock of a transaction whose moment is no shard's: it was asked for before the transaction was on any.
const noClock = -1

// noteClock makes the shard that the transaction is on its clock, if it has none.
func (s *session) noteClock() {
	switch {
	case s.tx.clock != 0:
	case len(s.spreadTo) > 0:
		s.tx.clock = s.spreadTo[0]
	case s.inServerTransaction() && s.shardNow() != noShard:
		s.tx.clock = s.shardNow()
	case s.isSpread():
		s.tx.clock = slices.Min(slices.Collect(maps.Keys(s.legs)))
	}
}

// isOn says whether the transaction is on a shard.
func (s *session) isOn(shard int) bool {
	return s.legs[shard] != nil || s.backend != nil && s.backend.Shard() == shard
}

// momentNow is when the transaction began, as a literal: one for all shards, since each has its own.
func (s *session) momentNow() (string, *pgerr.Error) {
	if s.tx.moment != "" {
		return s.tx.moment, nil
	}
	const sql = "SELECT pg_catalog.to_char(pg_catalog.timezone('UTC', pg_catalog.now()), 'YYYY-MM-DD HH24:MI:SS.US')"
	s.noteClock()
	ask := s.askHere
	if !s.isOn(s.tx.clock) {
		s.tx.clock = noClock
		ask = func(question func() (answer, error)) (answer, *pgerr.Error) { return s.askShard(s.home(), question) }
	} else {
		defer s.asks()()
		defer s.visitEnds(s.backend)
		if s.visit(s.tx.clock); !s.mayAskInside() || s.backend.Shard() != s.tx.clock {
			return "", pgerr.New(pgerr.InternalError, "the transaction's shard could not be asked when it began")
		}
	}
	moment, refused := s.askWord(sql, ask)
	if refused != nil {
		return "", refused
	}
	s.tx.moment = "'" + moment + "+00'"
	return s.tx.moment, nil
}

// timing is how a statement is told the moment of the transaction.
type timing uint8

const (
	// asItIs: its shard's own time is that.
	asItIs timing = iota
	// byText: another text is sent, which the moment is written in. byRows: it is written behind the values of each row that is inserted.
	byText
	byRows
)

// timingOf says whether a statement must not be sent as it is, because a shard would take its own time for the transaction's. Rows: columns can be
// left for later, when its rows are sent.
func (s *session) timingOf(st *plan.Statement, src source) (how timing, rows bool, refused *pgerr.Error) {
	if st.Timed == nil && st.Command != plan.Execute {
		return asItIs, false, nil
	}
	fixed := s.atMoment || src.statement != nil && src.statement.elsewhere && st.Command != plan.Execute
	if fixed && (st.Timed == nil || len(st.Timed.Appended) == 0) || st.Makes != nil {
		return asItIs, false, nil
	}
	shard, is, refused := s.strangeTime(st, src)
	if !is {
		return asItIs, false, refused
	}
	rows = st.Command == plan.Pass && len(st.Timed.Appended) > 0 && shard != composedShards && st.Route.Level != plan.Everywhere && len(st.Route.Numbers) == 0
	if rows && (fixed || !st.Timed.Words && !st.Timed.Others) {
		return byRows, true, nil
	}
	return byText, rows, nil
}

// timedIn is the statement itself or what an EXECUTE runs, nil if neither has to do with the current time, or it is refused.
func (s *session) timedIn(st *plan.Statement) *plan.Statement {
	run := st
	if st.Command == plan.Execute {
		prepared := s.statements[st.Prepared.Name]
		if prepared == nil || s.planAside(prepared) != nil {
			return nil
		}
		run = prepared.single()
	}
	if run == nil || run.Refusal != nil || run.Timed == nil && st.Timed == nil {
		return nil
	}
	return run
}

// strangeTime says whether a statement takes the time of a shard that is not the transaction's clock, and where it runs.
func (s *session) strangeTime(st *plan.Statement, src source) (shard int, is bool, refused *pgerr.Error) {
	run := s.timedIn(st)
	if run == nil {
		return noShard, false, nil
	}
	if s.tx.view == nil {
		s.tx.view = s.view
	}
	s.noteClock()
	if level := run.Route.Level; level < plan.Several || level == plan.AnyOwner {
		if s.tx.clock == 0 || level == plan.AnyOwner { // its shard becomes the clock, or is not known yet
			return noShard, s.tx.clock != 0, nil
		}
	}
	shard, refused = s.place(st, src)
	switch {
	case refused == stepFailed: // the client has been told
		return noShard, false, refused
	case refused != nil:
		return noShard, false, nil //nolint:nilerr // it is found again, and told
	}
	switch shard {
	case severalShards:
		return shard, true, nil
	case composedShards: // in steps the moment is written where its words are
		return shard, run.Timed != nil && run.Timed.Defaults, nil
	case ownShard:
		return shard, st.Command == plan.Execute && (st.Timed != nil || run.Timed.Defaults), nil
	case noShard: // where the transaction is
		shard = s.shardNow()
	}
	if shard == noShard {
		return shard, s.isSpread(), nil
	}
	return shard, s.tx.clock != 0 && shard != s.tx.clock, nil
}

// takeMoment asks for the moment of the transaction. What the unit has so far is run first, if it has to do with that.
func (s *session) takeMoment() *pgerr.Error {
	if s.tx.moment == "" && s.tx.clock > 0 && (s.needsServer() || s.unsynced) {
		if refused := s.goOn(); refused != nil {
			return refused
		}
	}
	_, refused := s.momentNow()
	return refused
}

// textAtMoment is a statement's text with the moment of the transaction written out.
func (s *session) textAtMoment(st *plan.Statement, src source, rows bool) (string, *pgerr.Error) {
	scan, text, refused := src.literals(s.standardConforming())
	if refused != nil {
		return "", refused
	}
	fixed, err := st.Timed.At(s.tx.moment, string(text), scan.Literals, rows)
	if err != nil {
		return "", pgerr.New(pgerr.FeatureNotSupported, "this form of %s is not supported on several shards with the current time in it", st.Name).
			WithDetail("Every shard has a clock of its own, and the time of the transaction could not be written into the statement or for the defaults of columns.").
			WithHint("Name the columns that are inserted, or give the time as a parameter.")
	}
	if hint, _ := s.hintIn(text); hint != "" {
		fixed = "/*" + hintMark + " shard=" + hint + " */ " + fixed
	}
	return fixed, nil
}

// runAtMoment runs the only statement of a text with the moment of the transaction in it.
func (s *session) runAtMoment(p *planned, st *plan.Statement, src source, rows bool) error {
	var fixed string
	refused := s.readAsWritten(p, st, src)
	if refused == nil {
		refused = s.takeMoment()
	}
	switch {
	case refused != nil:
	case st.Timed != nil:
		fixed, refused = s.textAtMoment(st, src, rows)
	default:
		var forget func()
		if fixed, forget, refused = s.executeAtMoment(st, src); refused == nil {
			defer forget()
		}
	}
	if refused != nil {
		return s.refuseQuery(refused)
	}
	s.atMoment, s.countedAs = st.Command != plan.Execute || st.Timed == nil, p.stats
	defer func() { s.atMoment, s.countedAs = false, nil }()
	return s.runText([]byte(fixed))
}

// timed is the statement that is run for a Bind: the client's, or one with the moment of the transaction in it.
func (s *session) timed(st *statement, src source) (*statement, *pgerr.Error) {
	s.appending = nil
	for {
		only := st.single()
		switch how, rows, refused := s.timingOf(only, src); how {
		case asItIs:
			return st, refused
		case byRows:
			return st, s.appendColumns(only)
		case byText:
			fixed, refused := s.statementAtMoment(st, src, rows)
			if refused != nil {
				return nil, refused
			}
			st, src.statement = fixed, fixed // it may be an EXECUTE, and what it executes has the current time in it too
		}
	}
}

// readAsWritten lets a server say what is wrong with a text, before another one is sent in its place: places in it are those of the client's.
func (s *session) readAsWritten(p *planned, st *plan.Statement, src source) *pgerr.Error {
	if p.types(nil) != nil || s.tx.defined != "" { // or nobody else knows what it is about
		return nil
	}
	shard := s.home() // which has all tables, but for those of one shard
	if single := s.currentMap().Shard(st.Route.Shard); st.Route.Level == plan.OnShard && single != nil {
		shard = single.Number()
	}
	a, refused := s.askShard(shard, func() (answer, error) { return s.askTypes(string(src.text), nil) })
	switch {
	case refused != nil:
		return refused
	case a.failure != nil:
		return s.placedIn(a.failure.PGError())
	}
	p.keepTypes(nil, append([]uint32{}, a.params...), a.columns)
	return nil
}

// placedIn gives an error with a place in the text at hand that in the client's.
func (s *session) placedIn(refused *pgerr.Error) *pgerr.Error {
	if refused.Position == 0 {
		return refused
	}
	return refused.At(s.textBefore + refused.Position)
}

// statementAtMoment is a prepared statement as it is run with the moment of the transaction in it.
func (s *session) statementAtMoment(st *statement, src source, rows bool) (*statement, *pgerr.Error) {
	only := st.single()
	if st.sql == nil && only.Command == plan.Pass && only.Route.Level == plan.Several && s.tx.defined == "" { // or a server has read it
		if _, refused := s.paramTypes(st); refused != nil {
			return nil, refused
		}
	}
	if refused := s.takeMoment(); refused != nil {
		return nil, refused
	}
	var fixed string
	var refused *pgerr.Error
	if only.Timed != nil {
		fixed, refused = s.textAtMoment(only, src, rows)
	} else {
		fixed, _, refused = s.executeAtMoment(only, src)
	}
	if refused != nil {
		return nil, refused
	}
	run := &statement{text: fixed, oids: st.oids, origin: st, elsewhere: true}
	s.countedAs = st.planned.stats
	defer func() { s.countedAs = nil }()
	if refused := s.planAside(run); refused != nil {
		return nil, refused
	}
	switch made := run.single(); {
	case made == nil:
		return nil, pgerr.New(pgerr.InternalError, "the statement could not be planned with the current time in it").WithDetail("%s", fixed)
	case made.Refusal != nil:
		return nil, made.Refusal
	}
	return run, nil
}

// momentName is the name of a prepared statement with the moment in it, as long as it is executed.
const momentName = "cleave at a moment"

// executeAtMoment is an EXECUTE of the same statement with the moment of the transaction in it.
func (s *session) executeAtMoment(st *plan.Statement, src source) (text string, forget func(), refused *pgerr.Error) {
	prepared := s.statements[st.Prepared.Name]
	fixed, refused := s.textAtMoment(prepared.single(), source{statement: prepared}, false)
	if refused != nil {
		return "", nil, refused
	}
	made := &statement{name: momentName, text: fixed, oids: prepared.oids, elsewhere: true}
	if prepared.sql != nil {
		s.preparedCount++
		made.serverName = s.sqlName()
		made.sql = &sqlPrepared{types: prepared.sql.types, source: "PREPARE " + made.serverName + " " + prepared.sql.types + " AS " + made.text}
	}
	s.noteReading(made)
	s.statements[momentName] = made
	edits := []edit{{start: st.Prepared.NameStart, end: st.Prepared.NameEnd, by: sqltext.QuoteIdentifier(momentName)}}
	return string(applyEdits(src.wholeText(), edits)), func() { delete(s.statements, momentName) }, nil
}

// appended are columns that are written behind those that an INSERT names, and their values, which are the same for all rows.
type appended struct {
	valuesAt      int
	names, values string
}

// appendColumns takes the moment, and has columns written behind those of the INSERT that is about to be routed.
func (s *session) appendColumns(st *plan.Statement) *pgerr.Error {
	if refused := s.takeMoment(); refused != nil {
		return refused
	}
	a := &appended{valuesAt: st.Timed.ValuesAt}
	for i := range st.Timed.Appended {
		column := &st.Timed.Appended[i]
		value, err := column.At(s.tx.moment)
		if err != nil {
			return pgerr.New(pgerr.InternalError, "the default of column %q could not be written out", column.Name).WithDetail("%s", err)
		}
		a.names += ", " + sqltext.QuoteIdentifier(column.Name)
		a.values += ", " + value
	}
	s.appending = a
	return nil
}

// edits are those that write the columns into the text. found are its rows.
func (a *appended) edits(found *rowText) ([]edit, *pgerr.Error) {
	if a == nil {
		return nil, nil
	}
	if found == nil || len(found.rows) == 0 || found.columnsEnd < 0 {
		return nil, pgerr.New(pgerr.FeatureNotSupported, "this form of INSERT is not supported on several shards").
			WithDetail("It leaves columns to defaults that are computed from the current time, and where they have to be written cannot be told.").
			WithHint("Write VALUES right behind the list of columns, or give the columns values.")
	}
	edits := []edit{{start: found.columnsEnd, end: found.columnsEnd, by: a.names}}
	for _, row := range found.rows {
		edits = append(edits, edit{start: row.end - 1, end: row.end - 1, by: a.values})
	}
	return edits, nil
}

// weave puts what is inserted among other edits of the same text, but for what goes with a part that is cut out.
func weave(edits, inserted []edit) []edit {
	if len(inserted) == 0 {
		return edits
	}
	woven := make([]edit, 0, len(edits)+len(inserted))
	next := 0
	for _, e := range inserted {
		for next < len(edits) && edits[next].end <= e.start {
			woven = append(woven, edits[next])
			next++
		}
		if next < len(edits) && edits[next].start <= e.start {
			continue
		}
		woven = append(woven, e)
	}
	return append(woven, edits[next:]...)
}
