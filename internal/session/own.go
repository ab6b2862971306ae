package session

import (
	"bytes"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/wire"
)

// own is a statement that the session itself answers: by what it keeps, or by what it makes of what shards answer.
type own interface {
	// takeBind takes what a Bind says: parameters, and the formats of rows.
	takeBind(s *session, m *wire.Bind) *pgerr.Error
	// description is that of the rows, in the formats that the client wants; nil if it gives none.
	description() []byte
	// run does what the statement says, gives its rows to who takes them, and returns the command tag.
	run(s *session, to rowTaker) (tag string, refused *pgerr.Error)
}

// rowTaker takes the rows of an answer.
type rowTaker interface {
	// begin is called before the first row, if there is an answer.
	begin()
	take(row []byte) *pgerr.Error
}

// directRows passes rows on to the client.
type directRows struct {
	s *session
	// describes is what is told before the first; nil: the client has been told.
	describes own
}

func (d *directRows) begin() {
	if d.describes != nil {
		d.s.out = append(d.s.out, d.describes.description()...)
	}
}

func (d *directRows) take(row []byte) *pgerr.Error { return d.s.giveRow(row) }

// keptRows keeps rows for later.
type keptRows struct{ to *spool }

func (k *keptRows) begin() {}

func (k *keptRows) take(row []byte) *pgerr.Error { return k.to.add(row) }

// queryOwn answers a simple query.
func (s *session) queryOwn(o own, p *planned) error {
	began, end := time.Now(), s.limitTime()
	tag, refused := o.run(s, &directRows{s: s, describes: o})
	end()
	p.stats.Observe(s.home(), time.Since(began), wire.CommandRows([]byte(tag)), 0, refused != nil)
	if refused != nil {
		return s.refuseQuery(refused)
	}
	s.tellTag(tag)
	return s.sync()
}

// bindOwn makes a portal.
func (s *session) bindOwn(o own, st *statement, m *wire.Bind) *pgerr.Error {
	if refused := o.takeBind(s, m); refused != nil {
		return refused
	}
	if refused := s.columnsStay(st, o, m.Portal); refused != nil {
		return refused
	}
	s.ops = append(s.ops, op{kind: opLocal, data: bindComplete, undo: s.keepPortal(m.Portal, portal{statement: st, own: o, changes: s.changes})})
	return nil
}

// executeOwn runs a portal; if the client wants so many rows at a time, the others are kept.
func (s *session) executeOwn(p *portal, name []byte, maxRows int32) *pgerr.Error {
	if refused := s.leaveSpread(); refused != nil {
		return refused
	}
	if refused := s.goOn(); refused != nil {
		return refused
	}
	s.answerLocally()
	gives := p.own.description() != nil
	switch {
	case p.kept != nil && !gives:
		return portalDone(name)
	case p.kept != nil:
		return s.givePortion(p.kept, maxRows)
	}
	if only := p.statement.single(); only != nil && only.Reads && p.changes != s.changes {
		return pgerr.New(pgerr.FeatureNotSupported, "a portal over several shards must be run before the transaction writes anything else").
			WithDetail("It is answered in steps when it is run, and would see more than there was when it was made.").WithHint("Send Execute right behind Bind.")
	}
	kept := s.newPortions()
	var to rowTaker = &directRows{s: s}
	limited := maxRows > 0 && gives
	if limited {
		to = &keptRows{to: &kept.rows}
	}
	end := s.limitTime()
	tag, refused := p.own.run(s, to)
	end()
	if refused != nil {
		kept.close()
		return s.ownFailed(refused)
	}
	kept.completed(tag)
	p.kept = kept
	if limited {
		return s.givePortion(kept, maxRows)
	}
	s.addLocal(wire.AppendCommandComplete(nil, tag))
	return nil
}

// ownFailed has the client's messages passed over up to its Sync if it was told of an error already.
func (s *session) ownFailed(refused *pgerr.Error) *pgerr.Error {
	if refused == stepFailed {
		s.skipping = true
	}
	return refused
}

// keepBind is a Bind for later, with so many parameters.
func keepBind(m *wire.Bind, statement string, params int) (*wire.Bind, *pgerr.Error) {
	if m.ParamCount() != params {
		return nil, pgerr.New(pgerr.ProtocolViolation, "bind message supplies %d parameters, but prepared statement \"%s\" requires %d", m.ParamCount(), statement, params)
	}
	kept, err := wire.DecodeBind(append([]byte{0, 0}, bytes.Clone(m.Tail())...))
	if err != nil {
		return nil, asError(err)
	}
	return &kept, nil
}

// fitFormats says whether there is a format for each of so many columns, or one for all.
func fitFormats(formats []int16, columns int) *pgerr.Error {
	if n := len(formats); n > 1 && n != columns {
		return pgerr.New(pgerr.ProtocolViolation, "bind message has %d result formats but query has %d columns", n, columns)
	}
	return nil
}

// formatOf is that of a column, of formats of which there are none, one for all, or one for each.
func formatOf(formats []int16, column int) int16 {
	switch len(formats) {
	case 0:
		return wire.FormatText
	case 1:
		return formats[0]
	default:
		return formats[column]
	}
}

// describedIn is a description of rows with other formats; nil of none.
func describedIn(description []byte, formats []int16) []byte {
	if description == nil {
		return nil
	}
	described, err := wire.DecodeRowDescription(wire.Body(description))
	if err != nil {
		return description
	}
	var columns []wire.Column
	for i, column := range described.Columns() {
		column.Format = formatOf(formats, i)
		columns = append(columns, column)
	}
	return wire.AppendRowDescription(nil, columns)
}
