package session

import (
	"io"
	"net"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/wire"
)

const (
	firstBuffer   = 2 << 10
	maxKeptBuffer = 64 << 10
)

// reader frames what a client sends. A message stays valid until [reader.recycle], however many follow it.
type reader struct {
	conn       net.Conn
	buf        []byte
	start, end int // what is read and not yet taken
}

// buffered says whether a whole message is there.
func (r *reader) buffered() bool {
	_, size, err := wire.Frame(r.buf[r.start:r.end])
	return err != nil || size > 0 && size <= r.end-r.start
}

// endsUnit says whether what follows is the rest of one statement and then Sync, waiting for it if need be: nobody who waits for
// an answer has sent something else than Sync or Flush last.
func (r *reader) endsUnit(limit int) bool {
	for at := r.start; ; {
		kind, size, err := wire.Frame(r.buf[at:r.end])
		switch {
		case err != nil:
			return false
		case size == 0, at+size > r.end:
			taken := at - r.start
			if r.fill(limit) != nil {
				return false
			}
			at = r.start + taken
		case kind == wire.MsgSync:
			return true
		case kind == wire.MsgDescribe, kind == wire.MsgExecute:
			at += size
		default:
			return false
		}
	}
}

// next returns the next message, waiting for it if need be.
func (r *reader) next(limit int) (kind byte, body []byte, err error) {
	for {
		kind, size, err := wire.Frame(r.buf[r.start:r.end])
		if err != nil {
			return 0, nil, err
		}
		if size > 0 && size <= r.end-r.start {
			message := r.buf[r.start : r.start+size]
			r.start += size
			return kind, wire.Body(message), nil
		}
		if err := r.fill(limit); err != nil {
			return 0, nil, err
		}
	}
}

// fill reads once. Memory grows with what has come, not with what a length promises.
func (r *reader) fill(limit int) error {
	if _, size, err := wire.Frame(r.buf[r.start:r.end]); err != nil {
		return err
	} else if size > limit {
		return pgerr.New(pgerr.ProgramLimitExceeded, "message of %d bytes is too long", size).
			WithDetail("The router takes messages of up to %d bytes.", limit).WithHint("Raise limits.max_message.")
	}
	r.makeRoom()
	n, err := r.conn.Read(r.buf[r.end:])
	r.end += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// makeRoom leaves messages that were taken where they are: their owner may still need them.
func (r *reader) makeRoom() {
	if r.end < len(r.buf) {
		return
	}
	unread := r.end - r.start
	size := max(firstBuffer, len(r.buf))
	for size < 2*unread {
		size *= 2
	}
	grown := make([]byte, size)
	r.end = copy(grown, r.buf[r.start:r.end])
	r.buf, r.start = grown, 0
}

// recycle gives the room of all messages that were taken to those to come.
func (r *reader) recycle() {
	if r.start < r.end {
		if r.start > len(r.buf)/2 {
			r.end = copy(r.buf, r.buf[r.start:r.end])
			r.start = 0
		}
		return
	}
	r.start, r.end = 0, 0
	if len(r.buf) > maxKeptBuffer {
		r.buf = nil
	}
}
