package wire

import (
	"bytes"
	"encoding/binary"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// Errors are made once: a client that sends nonsense should not make the router allocate as well.
var (
	errNoData       error = pgerr.New(pgerr.ProtocolViolation, "no data left in message")
	errInsufficient error = pgerr.New(pgerr.ProtocolViolation, "insufficient data left in message")
	errString       error = pgerr.New(pgerr.ProtocolViolation, "invalid string in message")
	errFormat       error = pgerr.New(pgerr.ProtocolViolation, "invalid message format")
)

// reader takes a message apart from its front. The first failure stays, and all that is read after it is empty, so that
// a decoder reads everything and asks once, at the end.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.rest = nil
}

// bytes takes the next n bytes; a negative n is more than there are.
func (r *reader) bytes(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.fail(errInsufficient)
		return nil
	}
	taken := r.rest[:n:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.fail(errNoData)
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) uint16() uint16 {
	if b := r.bytes(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) int16() int16 { return int16(r.uint16()) }

func (r *reader) int32() int32 { return int32(r.uint32()) }

// string takes what is before the next NUL, and the NUL.
func (r *reader) string() []byte {
	end := bytes.IndexByte(r.rest, 0)
	if end < 0 {
		r.fail(errString)
		return nil
	}
	taken := r.rest[:end:end]
	r.rest = r.rest[end+1:]
	return taken
}

// value takes a length and that many bytes. NULL, whose length is -1, is nil; an empty value is not.
func (r *reader) value() []byte {
	length := r.int32()
	if length == -1 {
		return nil
	}
	return r.bytes(int(length))
}

// list takes a count of 16 bits and that many items of a fixed size.
func (r *reader) list(itemSize int) []byte {
	return r.bytes(int(r.uint16()) * itemSize)
}

// end returns the first failure; bytes that nobody took are one.
func (r *reader) end() error {
	if len(r.rest) > 0 {
		r.fail(errFormat)
	}
	return r.err
}
