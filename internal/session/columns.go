package session

import (
	"encoding/binary"
	"math"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/wire"
)

// A client that was told the columns of a prepared statement reads all rows of it by them, unless it asks again. PostgreSQL refuses to
// run one whose columns have changed; but the router prepares it anew on every backend that lacks it, and there it would have others.
// So the session remembers what it has told, and compares when the statement had to be planned anew.

// columnsOf writes down what a client knows of columns: their names and types, as far as all shards have the same.
func columnsOf(message []byte) (string, error) {
	description, err := wire.DecodeRowDescription(wire.Body(message))
	if err != nil {
		return "", err
	}
	var columns []byte
	for _, c := range description.Columns() {
		oid := c.TypeOID
		if oid >= firstUserOID {
			oid = math.MaxUint32
		}
		columns = append(append(columns, c.Name...), 0)
		columns = binary.BigEndian.AppendUint32(columns, oid)
	}
	return string(columns), nil
}

// learnsColumns says whether the description that comes next is one to remember.
func (s *session) learnsColumns() bool {
	st := s.describedNow()
	return st != nil && (st.told == "" || st.toldUnder != st.planned)
}

// describedNow is the statement whose description is expected next, nil if none is.
func (s *session) describedNow() *statement {
	if s.head >= len(s.expects) || s.expects[s.head].kind != expectDescribe || s.expects[s.head].hidden || s.expects[s.head].op < 0 {
		return nil
	}
	st := s.ops[s.expects[s.head].op].statement
	if st != nil && st.origin != nil {
		return st.origin
	}
	return st
}

// noteColumns remembers what the client is told.
func (s *session) noteColumns(message []byte) error {
	if !s.learnsColumns() {
		return nil
	}
	columns, err := columnsOf(message)
	if err != nil {
		return err
	}
	st := s.describedNow()
	st.told, st.toldUnder = columns, st.planned
	return nil
}

// columnsHold returns the statement to run for a Bind: the client's, or another one just like it if it is told the new columns now. It
// fails if the client counts on columns that are no more.
func (s *session) columnsHold(st *statement, portal []byte) (*statement, *pgerr.Error) {
	if only := st.single(); st.told == "" || st.toldUnder == st.planned || only != nil && len(only.Virtual) > 0 { // the router's own views do not change
		return st, nil
	}
	if s.in.describesNext(s.server.config.MaxMessage, portal) {
		return s.renewed(st), nil
	}
	now, refused := s.columnsNow(st)
	if refused != nil {
		return nil, refused
	}
	if now != st.told {
		return nil, pgerr.New(pgerr.FeatureNotSupported, "cached plan must not change result type")
	}
	st.toldUnder = st.planned
	return st, nil
}

// renewed returns a statement whose columns the client is about to be told. One that it was told others of is replaced by another
// just like it: backends may have it as it was, and would refuse to run it.
func (s *session) renewed(st *statement) *statement {
	if st.told == "" || st.toldUnder == st.planned {
		return st
	}
	fresh := *st
	fresh.told, fresh.serverName, fresh.epoch = "", "", s.contextEpoch
	s.keepStatement(&fresh)
	return &fresh
}

// columnsNow asks a shard that runs the statement.
func (s *session) columnsNow(st *statement) (string, *pgerr.Error) {
	if known, asked := st.planned.columns(st.oids); asked {
		return known, nil
	}
	shard := s.shardNow()
	if len(s.spreadTo) > 0 {
		shard = s.spreadTo[0]
	}
	question := func() (answer, error) { return s.askTypes(st.text, st.oids) }
	ask := func() (answer, *pgerr.Error) { return s.asideOn(shard, question) }
	if s.mayAskInside() && s.backend.Shard() == shard {
		ask = func() (answer, *pgerr.Error) { return s.inside("", question) }
	}
	a, refused := ask()
	if refused != nil {
		return "", refused
	}
	if a.failure != nil { // the same that the statement itself would meet
		return "", a.failure.PGError()
	}
	if a.params == nil {
		a.params = []uint32{}
	}
	st.planned.keepTypes(st.oids, a.params, a.columns)
	return a.columns, nil
}

// describesNext says whether the next message asks for the columns of a portal, waiting for it if need be: a Bind is never the last.
func (r *reader) describesNext(limit int, portal []byte) bool {
	for !r.buffered() {
		if r.fill(limit) != nil {
			return false
		}
	}
	kind, size, err := wire.Frame(r.buf[r.start:r.end])
	if err != nil || kind != wire.MsgDescribe {
		return false
	}
	m, err := wire.DecodeDescribe(wire.Body(r.buf[r.start : r.start+size]))
	return err == nil && m.Kind == 'P' && string(m.Name) == string(portal)
}
