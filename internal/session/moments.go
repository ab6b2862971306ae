package session

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/compose"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// The current time is when the transaction began, and every shard has a clock of its own and hears of the transaction at another moment. So one of
// them is the transaction's clock, the first that it is on: what runs there alone is sent as it is. In all that runs elsewhere, or on several shards, the
// moment is written out, in place of now() and its like, and of the defaults of columns that are computed from it.

// noClock is the clock of a transaction whose moment is no shard's: it was asked for before the transaction was on any.
const noClock = -1

// manyClocks stands for several shards that the transaction began on at once: the first to begin is the clock, and nobody has asked yet which.
const manyClocks = -2

// noteClock makes the shard that the transaction is on its clock, if it has none. One that has begun on several at once has as many.
func (s *session) noteClock() {
	switch {
	case s.tx.clock != 0:
	case len(s.spreadTo) > 0:
		s.tx.clock = manyClocks
	case s.inServerTransaction() && s.shardNow() != noShard:
		s.tx.clock = s.shardNow()
	case s.isSpread():
		s.tx.clock = manyClocks
	}
}

// isOn says whether the transaction is on a shard.
func (s *session) isOn(shard int) bool {
	return s.legs[shard] != nil || s.backend != nil && s.backend.Shard() == shard
}

// momentSQL asks a server for its own.
const momentSQL = "SELECT pg_catalog.to_char(pg_catalog.timezone('UTC', pg_catalog.now()), 'YYYY-MM-DD HH24:MI:SS.US')"

// momentNow is when the transaction began, as a literal: one for all shards, since each has its own.
func (s *session) momentNow() (string, *pgerr.Error) {
	if s.tx.moment != "" {
		return s.tx.moment, nil
	}
	s.noteClock()
	var moment string
	var refused *pgerr.Error
	switch {
	case s.isOn(s.tx.clock):
		moment, refused = s.momentOn(s.tx.clock)
	case s.tx.clock == manyClocks && s.isSpread():
		moment, refused = s.earliestMoment()
	default:
		s.tx.clock = noClock
		moment, refused = s.askWord(momentSQL, func(question func() (answer, error)) (answer, *pgerr.Error) { return s.askShard(s.home(), question) })
	}
	if refused != nil {
		return "", refused
	}
	s.tx.moment = "'" + moment + "+00'"
	return s.tx.moment, nil
}

// momentOn is when the transaction began on a shard that it is on.
func (s *session) momentOn(shard int) (string, *pgerr.Error) {
	defer s.asks()()
	defer s.visitEnds(s.backend)
	if s.visit(shard); !s.mayAskInside() || s.backend.Shard() != shard {
		return "", pgerr.New(pgerr.InternalError, "a shard of the transaction could not be asked when it began")
	}
	return s.askWord(momentSQL, s.askHere)
}

// earliestMoment is when the transaction began on the first of its shards: what is stored must not be later than the time of any shard that looks at it.
func (s *session) earliestMoment() (earliest string, refused *pgerr.Error) {
	shards := slices.Collect(maps.Keys(s.legs))
	if s.backend != nil {
		shards = append(shards, s.backend.Shard())
	}
	for _, shard := range shards {
		moment, refused := s.momentOn(shard)
		if refused != nil {
			return "", refused
		}
		if earliest == "" || moment < earliest {
			earliest = moment
		}
	}
	return earliest, nil
}

// timing is how a statement is told the moment of the transaction.
type timing uint8

const (
	// asItIs: its shard's own time is that.
	asItIs timing = iota
	// byText: another text is sent, which the moment is written in, and which is planned by itself. byEdits: it is written into the text when that is sent.
	byText
	byEdits
)

// timingOf says whether a statement must not be sent as it is, because a shard would take its own time for the transaction's.
func (s *session) timingOf(st *plan.Statement, src source) (timing, *pgerr.Error) {
	if st.Timed == nil && st.Command != plan.Execute || st.Makes != nil || s.atMoment || src.statement != nil && src.statement.elsewhere && st.Command != plan.Execute {
		return asItIs, nil
	}
	shard, is, refused := s.strangeTime(st, src)
	switch {
	case !is:
		return asItIs, refused
	case st.Command == plan.Pass && st.Timed.Edits && st.Route.Level != plan.Everywhere && len(st.Route.Numbers) == 0 && shard != composedShards && shard != ownShard:
		return byEdits, nil
	}
	return byText, nil
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
	if s.tx.moment == "" && s.tx.clock != 0 && s.tx.clock != noClock && (s.needsServer() || s.unsynced) {
		if refused := s.goOn(); refused != nil {
			return refused
		}
	}
	_, refused := s.momentNow()
	return refused
}

// textAtMoment is a statement's text with the moment of the transaction written out.
func (s *session) textAtMoment(st *plan.Statement, src source) (string, *pgerr.Error) {
	scan, text, refused := src.literals(s.standardConforming())
	if refused != nil {
		return "", refused
	}
	if st.Timed.Foreign {
		return "", errEncoding(s.encoding)
	}
	fixed, err := st.Timed.At(s.tx.moment, string(text), scan.Literals, -1)
	if errors.Is(err, compose.ErrWidth) {
		var width int
		if width, refused = s.widthOf(string(text), src); refused != nil {
			return "", refused
		}
		fixed, err = st.Timed.At(s.tx.moment, string(text), scan.Literals, width)
	}
	if err != nil {
		return "", pgerr.New(pgerr.FeatureNotSupported, "this form of %s is not supported on several shards with the current time in it", st.Name).
			WithDetail("Every shard has a clock of its own, and the time of the transaction could not be written into the statement or for the defaults of columns.").
			WithHint("Give the time as a parameter, and values to columns whose defaults are computed from it.")
	}
	if hint, _ := s.hintIn(text); hint != "" {
		fixed = "/*" + hintMark + " shard=" + hint + " */ " + fixed
	}
	return fixed, nil
}

// widthOf asks the home shard how many columns the query of an INSERT gives; below 0 if that cannot be told.
func (s *session) widthOf(text string, src source) (int, *pgerr.Error) {
	query, err := compose.InsertedQuery(text)
	if err != nil {
		return -1, nil //nolint:nilerr // it is refused for that
	}
	var oids []uint32
	if src.statement != nil {
		oids = src.statement.oids
	}
	a, refused := s.askShard(s.home(), func() (answer, error) { return s.askTypes(query, oids) })
	switch {
	case refused != nil:
		return 0, refused
	case a.failure != nil:
		return 0, withoutPlace(a).failure.PGError()
	}
	return len(a.types), nil
}

// runAtMoment runs the only statement of a text with the moment of the transaction in it.
func (s *session) runAtMoment(p *planned, st *plan.Statement, src source) error {
	var fixed string
	refused := s.readAsWritten(p, st, src)
	if refused == nil {
		refused = s.takeMoment()
	}
	switch {
	case refused != nil:
	case st.Timed != nil:
		fixed, refused = s.textAtMoment(st, src)
	default:
		fixed, refused = s.executeAtMoment(st, src)
		defer s.forgetMoment()
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
	s.momentEdits = nil
	for {
		only := st.single()
		how, refused := s.timingOf(only, src)
		if refused == nil && how == byEdits {
			if how, refused = s.editMoment(only, src); how == byEdits {
				return st, refused
			}
		}
		if refused != nil || how == asItIs {
			return st, refused
		}
		fixed, refused := s.statementAtMoment(st, src)
		if refused != nil {
			return nil, refused
		}
		st, src.statement = fixed, fixed // it may be an EXECUTE, and what it executes has the current time in it too
	}
}

// readAsWritten lets a server say what is wrong with a text, before another one is sent in its place: places in it are those of the client's.
func (s *session) readAsWritten(p *planned, st *plan.Statement, src source) *pgerr.Error {
	if p.types(nil) != nil || s.tx.defined != "" || len(st.Virtual) > 0 { // or nobody else knows what it is about
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
func (s *session) statementAtMoment(st *statement, src source) (*statement, *pgerr.Error) {
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
		fixed, refused = s.textAtMoment(only, src)
	} else {
		fixed, refused = s.executeAtMoment(only, src)
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
func (s *session) executeAtMoment(st *plan.Statement, src source) (text string, refused *pgerr.Error) {
	prepared := s.statements[st.Prepared.Name]
	fixed, refused := s.textAtMoment(prepared.single(), source{statement: prepared})
	if refused != nil {
		return "", refused
	}
	made := &statement{name: momentName, text: fixed, oids: prepared.oids, elsewhere: true}
	if prepared.sql != nil { // on servers it is one of the protocol's, of which they keep so many
		if made.oids, refused = s.typesOfPrepared(prepared); refused != nil {
			return "", refused
		}
	}
	s.noteReading(made)
	s.statements[momentName], s.hasMomentName = made, true
	edits := []edit{{start: st.Prepared.NameStart, end: st.Prepared.NameEnd, by: sqltext.QuoteIdentifier(momentName)}}
	return string(applyEdits(src.wholeText(), edits)), nil
}

// forgetMoment forgets what was made for one statement.
func (s *session) forgetMoment() {
	if s.momentEdits = nil; s.hasMomentName {
		delete(s.statements, momentName)
		s.hasMomentName = false
	}
}

// momentEdits write the moment into the text of the statement that is routed when it is sent.
type momentEdits struct {
	edits []edit
	// values are those of the columns that are written behind those which an INSERT names: the same for all rows.
	values string
}

// editMoment takes the moment, and finds the places in the text of a statement where it has to be written. If these cannot be told, the text has to be written anew.
func (s *session) editMoment(st *plan.Statement, src source) (timing, *pgerr.Error) {
	t := st.Timed
	if t.Foreign {
		return byEdits, errEncoding(s.encoding)
	}
	if refused := s.takeMoment(); refused != nil {
		return byEdits, refused
	}
	words, sound := momentWords(src.wholeText(), s.standardConforming(), s.tx.moment)
	if !sound || len(words) != t.Words {
		return byText, nil
	}
	edits := &momentEdits{edits: words}
	if len(t.Appended)+len(t.Defaulted) > 0 {
		found := s.rowsOf(src, t.ValuesAt)
		if found == nil || len(found.rows) == 0 || found.columnsEnd < 0 {
			return byText, nil
		}
		if refused := edits.addRows(t, found, s.tx.moment); refused != nil {
			return byEdits, refused
		}
	}
	s.momentEdits = edits
	return byEdits, nil
}

// addRows has columns written into the rows of an INSERT.
func (m *momentEdits) addRows(t *plan.Timed, found *rowText, moment string) *pgerr.Error {
	var names, values strings.Builder
	for i := range t.Appended {
		value, err := t.Appended[i].At(moment)
		if err != nil {
			return unwritable(&t.Appended[i])
		}
		names.WriteString(", " + sqltext.QuoteIdentifier(t.Appended[i].Name))
		values.WriteString(", " + value)
	}
	if m.values = values.String(); m.values != "" {
		m.edits = append(m.edits, edit{start: found.columnsEnd, end: found.columnsEnd, by: names.String()})
		for _, row := range found.rows {
			m.edits = append(m.edits, edit{start: row.end - 1, end: row.end - 1, by: m.values})
		}
	}
	for _, d := range found.defaults {
		column, isTimed := t.Defaulted[d.place]
		if !isTimed {
			continue
		}
		value, err := column.At(moment)
		if err != nil {
			return unwritable(&column)
		}
		m.edits = append(m.edits, edit{start: d.start, end: d.end, by: value})
	}
	slices.SortStableFunc(m.edits, func(a, b edit) int { return a.start - b.start })
	return nil
}

func unwritable(column *plan.TimedColumn) *pgerr.Error {
	return pgerr.New(pgerr.FeatureNotSupported, "the default of column %q is not supported on several shards", column.Name).
		WithDetail("It is computed from the current time, and every shard has a clock of its own.").WithHint("Give the column a value.")
}

// all are the edits; none if there is nothing to write.
func (m *momentEdits) all() []edit {
	if m == nil {
		return nil
	}
	return m.edits
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
