package session

import (
	"crypto/tls"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"syscall"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/wire"
)

// copyIn passes a client's COPY data on to the backend that asked for it, until the client ends it or the backend has something
// to say: a notice, or an error, after which it passes over the rest.
func (s *session) copyIn() error {
	if s.heldBefore() {
		return s.clientGone(s.sayGoodbye(unexpectedInCopy(s.inHand)))
	}
	if err := s.write(); err != nil {
		return s.clientGone(err)
	}
	listener := s.listen()
	err := s.feed(listener.heard)
	s.endListening(listener)
	if err != nil {
		return s.clientGone(err)
	}
	return nil
}

// feed sends messages on as they come, whatever their length, until the server is heard.
func (s *session) feed(heard <-chan struct{}) error {
	for s.copying && s.copyWritten(heard) {
		if !s.in.buffered() {
			s.in.recycle()
			err := s.in.fill(s.server.config.MaxMessage)
			if isTimeout(err) && isClosed(heard) {
				return nil
			}
			if err != nil {
				return s.readFailed(err)
			}
		}
		done, err := s.copyBuffered()
		if err != nil {
			return err
		}
		s.copying = !done
	}
	return nil
}

// renderSync ends the unit. Whether a server that is asked to COPY FROM STDIN answers a Sync or passes over it depends on whether it looks
// for data before it refuses, which nobody can tell from outside: so it gets the Sync when the COPY is over.
func (s *session) renderSync(i int) {
	o := &s.ops[i]
	e := expect{kind: expectSync, op: i, hidden: o.hidden, unsent: s.unitCopies()}
	if e.unsent {
		s.toServer = wire.AppendFlush(s.toServer)
	} else {
		s.toServer = wire.AppendSync(s.toServer)
	}
	s.expects = append(s.expects, e)
}

// unitCopies says whether the unit has a COPY FROM in the extended protocol.
func (s *session) unitCopies() bool {
	return slices.ContainsFunc(s.ops, func(o op) bool {
		if o.kind != opExecute || o.planned == nil {
			return false
		}
		only := o.statement.single()
		return only != nil && only.Copy && !only.Reads
	})
}

// syncNow sends the Sync that was put off, if its turn has come.
func (s *session) syncNow() error {
	e := &s.expects[s.head]
	if !e.unsent {
		return nil
	}
	e.unsent = false
	s.written()
	_, err := s.backend.Conn().Write(wire.AppendSync(nil))
	return err
}

// forgetSync: a server that waits for COPY data passes over a Sync that came with the statement, and waits for another one
// after the data.
func (s *session) forgetSync() {
	if last := len(s.expects) - 1; last > s.head && s.expects[last].kind == expectSync {
		s.expects = s.expects[:last]
		s.ops = s.ops[:len(s.ops)-1]
	}
}

// listener waits for a backend to say something.
type listener struct {
	heard chan struct{} // closed when it has, or has hung up
	ended chan struct{} // closed after that, when the one who waits for the client has been woken too
}

func (s *session) listen() listener {
	l := listener{make(chan struct{}), make(chan struct{})}
	go func() {
		defer close(l.ended)
		s.awaitInput()
		close(l.heard)
		_ = s.conn.SetReadDeadline(longAgo)
	}()
	return l
}

// endListening takes away the deadlines by which listening goes on and ends, unless the session is being ended by one.
func (s *session) endListening(l listener) {
	server := s.backend.Conn()
	_ = server.SetReadDeadline(longAgo)
	<-l.ended
	_ = server.SetReadDeadline(noDeadline)
	_ = s.conn.SetReadDeadline(noDeadline)
	if s.ctx.Err() != nil {
		s.kill()
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// copyBuffered passes on the whole messages that have come.
func (s *session) copyBuffered() (done bool, err error) {
	for s.in.buffered() && !done {
		kind, body, err := s.in.next(s.server.config.MaxMessage)
		if err != nil {
			return false, s.readFailed(err)
		}
		s.forgetSync()
		switch kind {
		case wire.MsgCopyData:
			s.toServer = wire.AppendCopyData(s.toServer, body)
		case wire.MsgCopyDone:
			s.toServer, done = wire.AppendCopyDone(s.toServer), true
		case wire.MsgCopyFail:
			reason, err := wire.DecodeCopyFail(body)
			if err != nil {
				return false, err
			}
			s.toServer, done = wire.AppendCopyFail(s.toServer, reason), true
		case wire.MsgFlush, wire.MsgSync: // PostgreSQL passes over them too
		case wire.MsgTerminate:
			return false, errEnd
		default:
			return false, s.sayGoodbye(unexpectedInCopy(kind))
		}
	}
	if done && !s.unitEnds() { // in the extended protocol the server keeps its answer until it is asked for it
		s.toServer = wire.AppendFlush(s.toServer)
	}
	if len(s.toServer) > 0 {
		s.writeCopy()
	}
	return done, nil
}

func unexpectedInCopy(kind byte) *pgerr.Error {
	return pgerr.Fatal(pgerr.ProtocolViolation, "unexpected message type 0x%02X during COPY from stdin", kind)
}

// heldBefore says whether the message that is being handled waits for a COPY that came before it to be run: then it stands where
// the server takes nothing but data.
func (s *session) heldBefore() bool {
	switch s.inHand {
	case wire.MsgSync, wire.MsgFlush, wire.MsgCopyData, wire.MsgCopyDone, wire.MsgCopyFail:
		return false
	default:
		return len(s.ops) == s.opsBefore
	}
}

// copyWrite is COPY data on its way to a server.
type copyWrite struct {
	data []byte
	done chan struct{} // closed when it is written, or cannot be
	err  error         // set before that
}

// writeCopy writes COPY data in the background. However little it is, what went before may fill the buffers on the way, and a
// server that waits until its notices are read does not read either.
func (s *session) writeCopy() {
	conn, w := s.backend.Conn(), &copyWrite{data: s.toServer, done: make(chan struct{})}
	s.toServer, s.copyWrite, s.writing = nil, w, w.done
	go func() {
		defer close(w.done)
		_, w.err = conn.Write(w.data)
	}()
}

// copyWritten waits until what is on its way to the server is written. It is false if the server has to be heard first: it has
// said something, or hung up.
func (s *session) copyWritten(heard <-chan struct{}) bool {
	if s.writing == nil {
		return !isClosed(heard)
	}
	select {
	case <-heard:
		return false
	case <-s.writing:
	}
	w, written := s.copyWrite, s.writing
	s.copyWrite, s.writing = nil, nil
	if w == nil || w.done != written {
		return true // it was the statement itself, which is long
	}
	if cap(w.data) <= maxKeptBuffer {
		s.toServer = w.data[:0]
	}
	s.copying = w.err == nil // or the reason is in what the server said before it hung up
	return s.copying
}

// awaitInput waits until the backend has sent something or its read deadline has passed. Nothing is read.
func (s *session) awaitInput() {
	socket := s.backend.Conn()
	if secured, ok := socket.(*tls.Conn); ok {
		socket = secured.NetConn()
	}
	raw, err := socket.(syscall.Conn).SyscallConn() //nolint:forcetypeassert // backends are reached by TCP
	if err != nil {
		return // closed, as whoever reads will find
	}
	_ = raw.Read(func(uintptr) bool { return s.backend.HasInput() })
}

// putBack makes the message that was taken last the next one again.
func (r *reader) putBack(body []byte) { r.start -= wire.HeaderSize + len(body) }

// copyUnawaited takes COPY data that nobody has asked for yet. What asks for it may be in the unit, so that is run first; if it
// does not, the data is left over from a COPY that failed, and PostgreSQL passes over it too.
func (s *session) copyUnawaited(body []byte) error {
	if len(s.ops) == 0 {
		return nil
	}
	s.in.putBack(body)
	return s.flush()
}

// waitPinned waits for the client while backends that the session keeps may have something to tell it: notifications.
func (s *session) waitPinned() error {
	var listening *pinned
	for _, p := range s.pinned {
		if p.has(pinListen) {
			listening = p
		}
	}
	if listening == nil {
		return s.readMore()
	}
	stop := s.watch(listening)
	err := s.readMore()
	if lost := stop(); lost != nil {
		return s.sayGoodbye(pgerr.Fatal(pgerr.AdminShutdown, "terminating connection: the backend that this session listened on was lost").
			WithDetail("%s", lost).WithHint("Connect again."))
	}
	return err
}

const pinListen = "LISTEN"

// watch relays what a backend says unasked, until stop is called.
func (s *session) watch(p *pinned) (stop func() error) {
	conn := p.backend.Conn()
	result := make(chan error, 1)
	go func() {
		err := caught(func() error { return s.relayUnasked(p) })
		if err != nil {
			_ = s.conn.SetReadDeadline(longAgo) // the client's reader must not wait on
		}
		result <- err
	}()
	return func() error {
		_ = conn.SetReadDeadline(longAgo)
		err := <-result
		_ = conn.SetReadDeadline(noDeadline)
		if p := (*panicked)(nil); errors.As(err, &p) {
			panic(p)
		}
		return err
	}
}

// caught runs a function beside the session's goroutine. A panic becomes an error, to be raised again in that goroutine: the
// session ends by it, and not the router.
func caught(f func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = &panicked{cause, debug.Stack()}
		}
	}()
	return f()
}

// panicked is a panic on its way to the goroutine of the session.
type panicked struct {
	cause any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("%v\n%s", p.cause, p.stack) }

// relayUnasked passes on notifications. A message that has begun when it is stopped is finished first.
func (s *session) relayUnasked(p *pinned) error {
	var buf []byte
	chunk := make([]byte, 4<<10)
	for {
		n, err := p.backend.Conn().Read(chunk)
		buf = append(buf, chunk[:n]...)
		for {
			kind, size, frameErr := wire.Frame(buf)
			if frameErr != nil {
				return frameErr
			}
			if size == 0 || size > len(buf) {
				break
			}
			switch kind {
			case wire.RespParameterStatus:
				if err := s.hearUnasked(p, buf[:size]); err != nil {
					return nil //nolint:nilerr // the reader of the client hears of it
				}
			case wire.RespNotification, wire.RespNotice:
				if _, err := s.conn.Write(buf[:size]); err != nil {
					return nil //nolint:nilerr // the reader of the client hears of it
				}
			case wire.RespError:
				fields, err := wire.DecodeError(wire.Body(buf[:size]))
				if err != nil {
					return err
				}
				return errors.New(fields.Message)
			}
			buf = buf[size:]
		}
		switch {
		case err == nil:
		case isTimeout(err) && len(buf) == 0:
			return nil
		case isTimeout(err):
			_ = p.backend.Conn().SetReadDeadline(noDeadline)
		default:
			return err
		}
	}
}

// hearUnasked notes a parameter's new value and passes it on, if the client was not told yet. The session has no backend at the
// moment and its goroutine waits for the client.
func (s *session) hearUnasked(p *pinned, message []byte) error {
	s.state = p.backend.State.(*serverState) //nolint:forcetypeassert // OnLogin puts it there
	isNews := s.noteParameter(message)
	s.state, s.reportedBefore = nil, nil // there is no transaction to take it back with
	if !isNews {
		return nil
	}
	_, err := s.conn.Write(message)
	return err
}
