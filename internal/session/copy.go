package session

import (
	"errors"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/wire"
)

// copyIn passes a client's COPY data on to the backend that asked for it, until the client ends it or the backend has had
// enough. Messages go on as they come, whatever their length.
func (s *session) copyIn() error {
	if err := s.write(); err != nil {
		return s.clientGone(err)
	}
	for {
		done, err := s.copyBuffered()
		if err != nil {
			return s.clientGone(err)
		}
		if done {
			s.copying = false
		}
		if done || s.backend.HasInput() { // a notice, or an error: then the server passes over the rest
			return nil
		}
		s.in.recycle()
		if err := s.in.fill(s.server.config.MaxMessage); err != nil {
			return s.clientGone(s.readFailed(err))
		}
	}
}

// copyBuffered passes on the whole messages that have come.
func (s *session) copyBuffered() (done bool, err error) {
	for s.in.buffered() && !done {
		kind, body, err := s.in.next(s.server.config.MaxMessage)
		if err != nil {
			return false, s.readFailed(err)
		}
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
			return false, s.sayGoodbye(pgerr.Fatal(pgerr.ProtocolViolation, "unexpected message type 0x%02X during COPY from stdin", kind))
		}
	}
	if done && !s.unitEnds() { // in the extended protocol the server keeps its answer until it is asked for it
		s.toServer = wire.AppendFlush(s.toServer)
	}
	if len(s.toServer) == 0 {
		return done, nil
	}
	_, err = s.backend.Conn().Write(s.toServer)
	s.toServer = s.toServer[:0]
	if cap(s.toServer) > maxKeptBuffer {
		s.toServer = nil
	}
	if err != nil {
		// The reason is in what the server said before it hung up.
		return true, nil //nolint:nilerr // receive finds it
	}
	return done, nil
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
	go func() { result <- s.relayUnasked(p) }()
	return func() error {
		_ = conn.SetReadDeadline(longAgo)
		err := <-result
		_ = conn.SetReadDeadline(noDeadline)
		return err
	}
}

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
			case wire.RespNotification, wire.RespNotice, wire.RespParameterStatus:
				if _, err := s.conn.Write(buf[:size]); err != nil {
					return nil //nolint:nilerr // the reader of the client hears of it
				}
			case wire.RespError:
				_ = s.conn.SetReadDeadline(longAgo) // the client's reader must not wait on
				fields, err := wire.DecodeError(wire.Body(buf[:size]))
				if err != nil {
					return err
				}
				return errors.New(fields.Message)
			}
			buf = buf[size:]
		}
		if err != nil {
			if isTimeout(err) && len(buf) == 0 {
				return nil
			}
			if isTimeout(err) {
				_ = p.backend.Conn().SetReadDeadline(noDeadline)
				continue
			}
			_ = s.conn.SetReadDeadline(longAgo) // the client's reader must not wait on
			return err
		}
	}
}
