package session

import (
	"slices"
	"unicode/utf8"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
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
	s.dropPortal(nil)
	s.lastTag = s.lastTag[:0]
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
	if err := s.refuse(e); err != nil {
		return err
	}
	return s.sync()
}

func (s *session) emptyQuery() error {
	s.addLocal(wire.AppendEmptyQuery(nil))
	return s.sync()
}

// oneStatement is the way of most simple queries.
func (s *session) oneStatement(p *planned, text []byte) error {
	st := &p.plan.Statements[0]
	if s.takesNothing() && !endsFailure(st) {
		return s.refuseQuery(inFailedTransaction)
	}
	if st.Refusal != nil {
		return s.refuseQuery(s.refusalOf(st, func() string { return string(s.withoutEnds(text)) }, nil))
	}
	if done, tag, refused := s.runLocal(st, func() string { return string(s.withoutEnds(text)) }); refused != nil {
		return s.refuseQuery(s.placed(refused, text))
	} else if done {
		s.tellTag(tag)
		return s.sync()
	}
	src := source{scan: &s.scan, text: text, planned: p}
	s.momentEdits = nil
	how, refused := s.timingOf(st, src)
	if refused == nil && how == byEdits {
		how, refused = s.editMoment(st, src)
	}
	switch {
	case refused != nil:
		return s.refuseQuery(refused)
	case how == byText:
		return s.runAtMoment(p, st, src)
	}
	o := op{kind: opQuery, data: text, planned: p}
	refused = s.prepareQuery(st, &o, src)
	s.momentEdits = nil
	if refused != nil {
		return s.refuseQuery(refused)
	}
	if answered := s.own; answered != nil {
		s.own = nil
		return s.queryOwn(answered, p)
	}
	s.ops = append(s.ops, o)
	if len(s.spreadTo) > 0 || s.tx.implicit && !s.inText {
		return s.sync()
	}
	return s.flush()
}

// placed gives an error whose place is one in the only statement of a text that in the client's text.
func (s *session) placed(refused *pgerr.Error, text []byte) *pgerr.Error {
	switch {
	case refused.Position == 0:
		return refused
	case s.atMoment:
		return refused.At(0)
	}
	return refused.At(s.textBefore + utf8.RuneCount(text[:s.spanOf(text).start]) + refused.Position)
}

// takesNothing says whether the transaction has failed, and nothing is under way that may end that.
func (s *session) takesNothing() bool {
	return s.currentStatus() == statusFailed && !s.unsynced && !s.needsServer()
}

// withoutEnds is the only statement of a text, without what stands before and behind it: comments, blanks, semicolons. Its plan does not
// tell where that is: it may have been made for another text, with other comments and literals.
func (s *session) withoutEnds(text []byte) []byte {
	at := s.spanOf(text)
	return text[at.start:at.end]
}

func (s *session) spanOf(text []byte) span {
	at, begun := span{}, false
	scanner := sqltext.NewScanner(text, s.standardConforming())
	for token, more := scanner.Next(); more; token, more = scanner.Next() {
		if token.Kind == sqltext.Punctuation && text[token.Start] == ';' {
			continue
		}
		if !begun {
			at.start, begun = token.Start, true
		}
		at.end = token.End
	}
	return at
}

// manyStatements runs several statements in one piece on one shard, as PostgreSQL does: in one implicit transaction.
func (s *session) manyStatements(p *planned, text []byte) error {
	if s.takesNothing() || s.tx.implicit || goesStepByStep(p.plan.Statements) || s.wantsConsistent() && beginsBlock(p.plan.Statements) {
		return s.stepThrough(p, text)
	}
	s.counts.begin()
	o, together, refused := s.placeTogether(p, text)
	s.counts.end(together && refused == nil)
	switch {
	case refused != nil:
		return s.refuseQuery(refused)
	case !together:
		return s.stepThrough(p, text)
	}
	o.data = applyEdits(text, o.edits)
	s.ops = append(s.ops, o)
	return s.flush()
}

// placeTogether finds the shard of all statements of a text; together is false if they have to run one by one.
func (s *session) placeTogether(p *planned, text []byte) (o op, together bool, refused *pgerr.Error) {
	o = op{kind: opQuery, data: text, original: text, planned: p}
	for i := range p.plan.Statements {
		if refused := p.plan.Statements[i].Refusal; refused != nil {
			return o, false, refused
		}
	}
	for i := range p.plan.Statements {
		st := &p.plan.Statements[i]
		src := source{scan: &s.scan, text: text, makes: o.makes}
		o.at = i
		apart, refused := s.goesApart(st, src)
		if apart {
			return o, false, nil
		}
		var more []edit
		if refused == nil {
			more, refused = s.rewrite(st, &o, src)
		}
		if refused == nil {
			refused = s.routeTo(st, src)
		}
		if refused != nil {
			return o, false, refused
		}
		if o.inner != nil { // it leaves something in the session that has to be noted
			return o, false, nil
		}
		o.edits = append(o.edits, more...)
	}
	return o, true, nil
}

// beginsBlock says whether a transaction block begins in a text.
func beginsBlock(statements []plan.Statement) bool {
	return slices.ContainsFunc(statements, func(st plan.Statement) bool { return st.Command == plan.Begin || st.Transaction.Chain })
}

// prepareQuery routes a statement and writes it as the shard is to see it.
func (s *session) prepareQuery(st *plan.Statement, o *op, src source) *pgerr.Error {
	if refused := s.routeTo(st, src); refused != nil || s.own != nil {
		return refused
	}
	if st.Binary {
		var refused *pgerr.Error
		if o.carried, refused = s.carriedByCopy(st, src.text); refused != nil {
			return refused
		}
	}
	if o.explain = s.explain(st); o.explain != nil {
		s.explaining = true
	}
	if len(s.spreadTo) > 0 && s.spreadParts == plan.ByRow {
		return s.divideRows(st, o, src)
	}
	if !st.Plain || s.loading != nil || s.momentEdits != nil {
		edits, refused := s.rewrite(st, o, src)
		if refused != nil {
			return refused
		}
		if len(edits) > 0 {
			o.data, o.edits = applyEdits(o.data, edits), edits
		}
	}
	if s.isUnbound(st) {
		return s.ownQuery(o)
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
