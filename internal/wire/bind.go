package wire

import (
	"encoding/binary"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// Bind gives a statement its parameters. It remembers where the parameter is that was asked for last, so asking for all
// of them in order costs one pass; therefore only one goroutine may ask at a time.
type Bind struct {
	Portal, Statement []byte

	tail          []byte // all after the statement's name
	formats       []byte // none, one for all, or one for each, two bytes each
	paramCount    int
	params        []byte // each with its length before it
	resultFormats []byte // as formats

	next int    // the parameter that rest begins with
	rest []byte // what of params lies ahead
}

// DecodeBind decodes Bind.
func DecodeBind(body []byte) (Bind, error) {
	r := reader{rest: body}
	b := Bind{Portal: r.string(), Statement: r.string()}
	b.tail = r.rest[:len(r.rest):len(r.rest)]
	b.formats = r.list(2)
	b.paramCount = int(r.uint16())
	b.params = r.rest
	for range b.paramCount {
		if r.value(); r.err != nil {
			return Bind{}, r.err
		}
	}
	b.params = b.params[:len(b.params)-len(r.rest)]
	b.rest = b.params
	b.resultFormats = r.list(2)
	if err := r.end(); err != nil {
		return Bind{}, err
	}
	if err := b.checkFormats(); err != nil {
		return Bind{}, err
	}
	return b, nil
}

// checkFormats leaves those of the result to the server, which alone knows how many columns there are.
func (b *Bind) checkFormats() error {
	if n := len(b.formats) / 2; n > 1 && n != b.paramCount {
		return pgerr.New(pgerr.ProtocolViolation, "bind message has %d parameter formats but %d parameters", n, b.paramCount)
	}
	if b.paramCount == 0 {
		return nil // a format for nothing is never looked at
	}
	for i := 0; i < len(b.formats); i += 2 {
		if format := int16(binary.BigEndian.Uint16(b.formats[i:])); format != FormatText && format != FormatBinary {
			return pgerr.New(pgerr.InvalidParameterValue, "unsupported format code: %d", format)
		}
	}
	return nil
}

// ParamCount returns how many parameters there are.
func (b *Bind) ParamCount() int { return b.paramCount }

// Param returns the i-th parameter, from 0, and whether it is in binary format or NULL.
func (b *Bind) Param(i int) (value []byte, binary, null bool) {
	if i < 0 || i >= b.paramCount {
		panic("wire: no such parameter")
	}
	if i < b.next {
		b.next, b.rest = 0, b.params
	}
	r := reader{rest: b.rest}
	for ; b.next <= i; b.next++ {
		value = r.value()
	}
	b.rest = r.rest
	return value, b.IsBinary(i), value == nil
}

// IsBinary says whether the i-th parameter, from 0, is in binary format. It does not look at values, which [Bind.Param] has to pass over.
func (b *Bind) IsBinary(i int) bool {
	switch len(b.formats) {
	case 0:
		return false
	case 2:
		return b.formats[1] == FormatBinary
	default:
		return b.formats[2*i+1] == FormatBinary
	}
}

// ResultFormatCount returns how many formats were asked for: none is text, one is for all columns.
func (b *Bind) ResultFormatCount() int { return len(b.resultFormats) / 2 }

// ResultFormat returns the i-th format that was asked for, from 0. Nobody has checked it.
func (b *Bind) ResultFormat(i int) int16 {
	return int16(binary.BigEndian.Uint16(b.resultFormats[2*i:]))
}

// Tail returns all that comes after the statement's name, for [AppendBindTail].
func (b *Bind) Tail() []byte { return b.tail }
