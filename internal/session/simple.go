package session

import (
	"slices"
	"unicode/utf8"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/wire"
)

// simpleQuery runs a text of any number of statements.
func (s *session) simpleQuery(body []byte) error {
	text, err := wire.DecodeQuery(body)
	if err != nil {
		return s.refuseQuery(asError(err))
	}
	if len(s.ops) > 0 { // messages of the extended protocol that no Sync has ended
		if err := s.flush(); err != nil || s.skipping {
			return err
		}
	}
	s.unnamed = nil // as in PostgreSQL, a simple query ends the unnamed statement and portal
	s.current = portal{}
	return s.runText(text)
}

func (s *session) runText(text []byte) error {
	p, refused := s.planFor(text)
	if refused != nil {
		return s.refuseQuery(refused)
	}
	if p.unreadable {
		s.ops = append(s.ops, op{kind: opProbe, data: text})
		return s.sync()
	}
	switch len(p.plan.Statements) {
	case 0:
		return s.emptyQuery()
	case 1:
		return s.oneStatement(p, text)
	default:
		return s.manyStatements(p, text)
	}
}

func asError(err error) *pgerr.Error {
	if e, ok := err.(*pgerr.Error); ok { //nolint:errorlint // package wire gives nothing else
		return e
	}
	return pgerr.New(pgerr.ProtocolViolation, "%s", err)
}

// refuseQuery answers a simple query with an error.
func (s *session) refuseQuery(e *pgerr.Error) error {
	s.refuse(e)
	return s.sync()
}

func (s *session) emptyQuery() error {
	s.addLocal(wire.AppendEmptyQuery(nil))
	return s.sync()
}

// oneStatement is the way of most simple queries.
func (s *session) oneStatement(p *planned, text []byte) error {
	st := &p.plan.Statements[0]
	if st.Refusal != nil {
		return s.refuseQuery(st.Refusal)
	}
	if done, tag, refused := s.runLocal(st, string1(st, text)); refused != nil {
		return s.refuseQuery(refused)
	} else if done {
		s.addLocal(wire.AppendCommandComplete(nil, tag))
		return s.sync()
	}
	if s.takesNothing() {
		return s.refuseQuery(inFailedTransaction)
	}
	o := op{kind: opQuery, data: text, planned: p}
	if refused := s.prepareQuery(st, &o, source{scan: &s.scan, text: text}); refused != nil {
		return s.refuseQuery(refused)
	}
	s.ops = append(s.ops, o)
	if len(s.spreadTo) > 0 {
		return s.sync()
	}
	return s.flush()
}

// takesNothing says whether the transaction has failed in a way that the server at hand does not know of.
func (s *session) takesNothing() bool {
	return s.currentStatus() == statusFailed && (s.backend == nil || s.isSpread())
}

// string1 is the text of one statement; most have a text for themselves, and the commands that need it are few.
func string1(st *plan.Statement, text []byte) func() string {
	return func() string { return string(text[st.Start:st.End]) }
}

// manyStatements runs several statements in one piece on one shard, as PostgreSQL does: in one implicit transaction.
func (s *session) manyStatements(p *planned, text []byte) error {
	if s.takesNothing() {
		return s.manyAfterFailure(p, text)
	}
	o := op{kind: opQuery, data: text, original: text, planned: p}
	for i := range p.plan.Statements {
		if refused := cannotShare(&p.plan.Statements[i]); refused != nil {
			return s.refuseQuery(refused)
		}
	}
	for i := range p.plan.Statements {
		st := &p.plan.Statements[i]
		src := source{scan: &s.scan, text: text, makes: o.makes}
		o.at = i
		apart, refused := s.goesApart(st, src)
		if apart {
			return s.stepThrough(p, text)
		}
		var more []edit
		if refused == nil {
			more, refused = s.rewrite(st, &o, src)
		}
		if refused == nil {
			refused = s.routeTo(st, src)
		}
		if refused != nil {
			return s.refuseQuery(refused)
		}
		if o.inner != nil {
			return s.refuseQuery(pgerr.New(pgerr.FeatureNotSupported, "EXECUTE of this statement is not supported in a query string with several statements").
				WithDetail("It leaves something in the session that the router has to note.").WithHint("Send it by itself."))
		}
		o.edits = append(o.edits, more...)
	}
	o.data = applyEdits(text, o.edits)
	s.ops = append(s.ops, o)
	return s.flush()
}

// manyAfterFailure is for a transaction that failed before it reached a shard: the session ends it, and the rest is a text of its own.
func (s *session) manyAfterFailure(p *planned, text []byte) error {
	first := &p.plan.Statements[0]
	if first.Transaction.Chain || first.Command != plan.Commit && first.Command != plan.Rollback {
		return s.refuseQuery(inFailedTransaction)
	}
	_, tag, refused := s.endLocal(first)
	if refused != nil {
		return s.refuseQuery(refused)
	}
	s.addLocal(wire.AppendCommandComplete(nil, tag))
	return s.runText(text[p.plan.Statements[1].Start:])
}

// cannotShare refuses, in a text of several statements, those that the session itself has a part in.
func cannotShare(st *plan.Statement) *pgerr.Error {
	if st.Refusal != nil {
		return st.Refusal
	}
	for i := range st.Virtual {
		if v := &st.Virtual[i]; v.Function && !isHarmless(v.Name) {
			return errInBlock(v.Name)
		}
	}
	alone := []plan.Command{plan.Deallocate, plan.DiscardAll}
	if !slices.Contains(alone, st.Command) && !setsOurs(st) {
		return nil
	}
	return pgerr.New(pgerr.FeatureNotSupported, "%s is not supported in a query string with several statements", st.Name).
		WithDetail("The router itself has a part in it.").WithHint("Send it by itself.")
}

// prepareQuery routes a statement and writes it as the shard is to see it.
func (s *session) prepareQuery(st *plan.Statement, o *op, src source) *pgerr.Error {
	if refused := s.routeTo(st, src); refused != nil {
		return refused
	}
	if o.explain = s.explain(st); o.explain != nil {
		s.explaining = true
	}
	if len(s.spreadTo) > 0 && s.spreadParts == plan.ByRow {
		return s.divideRows(st, o, src)
	}
	if st.Plain {
		return nil
	}
	edits, refused := s.rewrite(st, o, src)
	if refused != nil {
		return refused
	}
	if len(edits) > 0 {
		o.data, o.edits = applyEdits(o.data, edits), edits
	}
	return nil
}

// edit replaces a part of a text.
type edit struct {
	start, end int
	by         string
	characters int // that were there before; set by applyEdits
}

// originalPosition is where a place of an edited text, in characters from 1, was before. Places inside what was put in are
// where that was put.
func originalPosition(edited []byte, edits []edit, position int) int {
	at, characters := 0, 1
	for at < len(edited) && characters < position { // from characters to bytes
		_, size := utf8.DecodeRune(edited[at:])
		at += size
		characters++
	}
	shift := 0 // what the parts before have grown by, in bytes and in characters
	grown := 0
	for _, e := range edits {
		begin := e.start + shift
		if at < begin {
			break
		}
		if at < begin+len(e.by) {
			return utf8.RuneCount(edited[:begin]) - grown + 1
		}
		shift += len(e.by) - (e.end - e.start)
		grown += utf8.RuneCountInString(e.by) - e.characters
	}
	return position - grown
}

// applyEdits returns the text with its parts replaced; they are in order and do not overlap.
func applyEdits(text []byte, edits []edit) []byte {
	if len(edits) == 0 {
		return text
	}
	var edited []byte
	at := 0
	for i, e := range edits {
		edits[i].characters = utf8.RuneCount(text[e.start:e.end])
		edited = append(append(edited, text[at:e.start]...), e.by...)
		at = e.end
	}
	return append(edited, text[at:]...)
}
