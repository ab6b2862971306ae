package session

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/cleavedb/cleave/internal/pool"
	"github.com/cleavedb/cleave/internal/wire"
)

// answer is what a backend said to a statement of the session's own.
type answer struct {
	rows    [][]string // NULL is empty
	failure *wire.Fields
	// params are the types of the parameters, if they were asked for.
	params []uint32
	// types are those of the columns, by their numbers at home.
	types []uint32
	// columns are those of the rows, if they were asked for, as columnsOf writes them.
	columns string
	// described is the description of the rows itself, if there was one.
	described []byte
	// tag is the last command tag, status that of the transaction.
	tag    string
	status byte
}

// ask runs a statement on the attached backend, outside the client's sight but for notices of parameters, and waits.
func (s *session) ask(sql string) (answer, error) {
	return s.exchange(wire.AppendQuery(nil, sql))
}

// askParams runs a statement with parameters.
func (s *session) askParams(sql string, oids []uint32, formats []int16, values [][]byte) (answer, error) {
	out := wire.AppendParse(nil, "", sql, oids)
	out = wire.AppendBind(out, "", "", formats, values, nil)
	out = wire.AppendExecute(out, "", 0)
	return s.exchange(wire.AppendSync(out))
}

// askTypes lets the server say of which types a statement's parameters are, and which columns it has.
func (s *session) askTypes(text string, oids []uint32) (answer, error) {
	out := wire.AppendParse(nil, "", text, s.numbering().declared(oids))
	out = wire.AppendDescribe(out, 'S', "")
	return s.exchange(wire.AppendSync(out))
}

// asks says, until what it returns is called, that backends are there for a question of the session's own: whoever cancels may find them before it or after it, when
// they do nothing, and is remembered.
func (s *session) asks() (end func()) {
	before := s.asking.Swap(true)
	return func() { s.asking.Store(before) }
}

// exchange writes messages and reads up to ReadyForQuery.
func (s *session) exchange(out []byte) (answer, error) {
	s.state.unnamed = nil
	s.beginWait(time.Now())
	defer s.asks()()
	if _, err := s.backend.Conn().Write(out); err != nil {
		return answer{}, fmt.Errorf("write to shard %q: %w", s.backend.ShardName(), err)
	}
	return s.hear(0)
}

// hear reads what the attached backend answers, up to a ReadyForQuery. So many come first for what nobody asked for: of that, only a failure counts.
func (s *session) hear(first int) (answer, error) {
	var a answer
	r := s.hearing(s.backend)
	for {
		kind, message, err := r.next()
		if err != nil {
			return answer{}, err
		}
		if kind != wire.RespReadyForQuery {
			if err := s.note(&a, kind, message); err != nil {
				return answer{}, err
			}
			continue
		}
		if a.status, err = wire.DecodeReadyForQuery(wire.Body(message)); err != nil {
			return answer{}, err
		}
		if first == 0 {
			return a, s.hearRest(&a, r)
		}
		first--
		a.rows, a.tag = nil, ""
	}
}

// hearRest takes in what has come with the answer and is none: a server may tell of parameters and notifications at any time. It may also say farewell, which is no failure
// of what it has answered; whoever comes next finds the connection closed.
func (s *session) hearRest(a *answer, r *messageReader) error {
	for len(r.data) > 0 {
		kind, message, err := r.next()
		if err != nil {
			return err
		}
		if kind == wire.RespError {
			return nil
		}
		if err := s.note(a, kind, message); err != nil {
			return err
		}
	}
	return nil
}

// messageReader cuts what a backend sends into messages. It reads as much as has come, so that an answer of many messages takes one call of the system.
type messageReader struct {
	backend *pool.Backend
	buffer  []byte
	data    []byte // what was read of it and not returned
}

// hearingBuffer is the size of the first buffer; a longer message gets a longer one.
const hearingBuffer = 2 << 10

// hearing returns a reader for one answer, with the session's buffer.
func (s *session) hearing(backend *pool.Backend) *messageReader {
	r := &s.answers
	r.backend, r.data = backend, nil
	if len(r.buffer) != hearingBuffer {
		r.buffer = make([]byte, hearingBuffer)
	}
	return r
}

// next returns the next message, whole. It is valid until the next call.
func (r *messageReader) next() (kind byte, message []byte, err error) {
	for {
		if len(r.data) >= wire.HeaderSize {
			kind, size, err := wire.Frame(r.data)
			if err != nil {
				return 0, nil, err
			}
			if len(r.data) >= size {
				message, r.data = r.data[:size], r.data[size:]
				return kind, message, nil
			}
			if size > len(r.buffer) {
				r.buffer = append(make([]byte, 0, size), r.data...)[:size]
				r.data = r.buffer[:len(r.data)]
			}
		}
		if err := r.fill(); err != nil {
			return 0, nil, fmt.Errorf("read from shard %q: %w", r.backend.ShardName(), err)
		}
	}
}

// fill reads on behind what there is.
func (r *messageReader) fill() error {
	have := copy(r.buffer, r.data)
	n, err := r.backend.Conn().Read(r.buffer[have:])
	r.data = r.buffer[:have+n]
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// readMessage reads one message, whole.
func readMessage(backend *pool.Backend) (kind byte, message []byte, err error) {
	var header [wire.HeaderSize]byte
	if _, err := io.ReadFull(backend.Conn(), header[:]); err != nil {
		return 0, nil, fmt.Errorf("read from shard %q: %w", backend.ShardName(), err)
	}
	kind, size, err := wire.Frame(header[:])
	if err != nil {
		return 0, nil, err
	}
	message = make([]byte, size)
	copy(message, header[:])
	if _, err := io.ReadFull(backend.Conn(), message[wire.HeaderSize:]); err != nil {
		return 0, nil, fmt.Errorf("read from shard %q: %w", backend.ShardName(), err)
	}
	return kind, message, nil
}

func (s *session) note(a *answer, kind byte, message []byte) error {
	switch kind {
	case wire.RespDataRow:
		row, err := wire.DecodeDataRow(wire.Body(message))
		if err != nil {
			return err
		}
		values := make([]string, row.Count())
		for i, v := range row.Values() {
			values[i] = string(v)
		}
		a.rows = append(a.rows, values)
	case wire.RespParameterDescription:
		if n := s.numbering(); n != nil {
			n.describeParameters(message)
		}
		oids, err := wire.DecodeParameterDescription(wire.Body(message))
		if err != nil {
			return err
		}
		for i := range oids.Count() {
			a.params = append(a.params, oids.At(i))
		}
	case wire.RespRowDescription:
		if n := s.numbering(); n != nil {
			n.describeColumns(message)
		}
		columns, err := columnsOf(message)
		if err != nil {
			return err
		}
		if a.types, _, err = describedTypes(message); err != nil {
			return err
		}
		a.columns, a.described = columns, bytes.Clone(message)
	case wire.RespError:
		fields, err := wire.DecodeError(wire.Body(message))
		if err != nil {
			return err
		}
		s.asVictim(&fields)
		if a.failure == nil {
			a.failure = &fields
		}
	case wire.RespCommandComplete:
		tag, err := wire.DecodeCommandComplete(wire.Body(message))
		if err != nil {
			return err
		}
		a.tag = string(tag)
	case wire.RespNotice:
		if !s.takeTold(nil, message) && s.notices {
			s.out = append(s.out, message...)
		}
	case wire.RespParameterStatus:
		s.noteAsked(message)
	case wire.RespNotification:
		s.out = append(s.out, message...)
	}
	return nil
}

// noteAsked passes on a parameter's new value, if it is one that the client was not told yet.
func (s *session) noteAsked(message []byte) {
	if s.noteParameter(message) && s.ready {
		s.out = append(s.out, message...)
	}
}
