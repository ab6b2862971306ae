package key

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// The Append functions build a key for a keyspace that is ordered by the raw value: comparing two such encodings byte by
// byte gives PostgreSQL's order of the values, first column first. An encoding of the first columns alone is a prefix and
// sorts before every key that continues it, so a range of a composite keyspace can begin at a prefix.

// AppendInt appends a bigint, integer or smallint.
func AppendInt(dst []byte, k int64) []byte {
	u := uint64(k) ^ 1<<63
	return append(dst, byte(u>>56), byte(u>>48), byte(u>>40), byte(u>>32), byte(u>>24), byte(u>>16), byte(u>>8), byte(u))
}

// AppendText appends a text or varchar in C order. PostgreSQL's text has no NUL, so a NUL ends it: a shorter text sorts
// before its continuations whatever column follows.
func AppendText(dst []byte, k string) []byte {
	return append(append(dst, k...), 0)
}

// AppendUUID appends a uuid.
func AppendUUID(dst []byte, k [16]byte) []byte {
	return append(dst, k[:]...)
}

// AppendDate appends a date, given as days since 2000-01-01.
func AppendDate(dst []byte, days int32) []byte {
	return AppendInt(dst, int64(days))
}

// AppendTimestamptz appends a timestamptz, given as microseconds since 2000-01-01 00:00:00 UTC.
func AppendTimestamptz(dst []byte, micros int64) []byte {
	return AppendInt(dst, micros)
}

// AppendBytea appends a bytea. A zero byte inside is escaped so that the end, two zero bytes, sorts before it.
func AppendBytea(dst, k []byte) []byte {
	for _, b := range k {
		dst = append(dst, b)
		if b == 0 {
			dst = append(dst, 0xff)
		}
	}
	return append(dst, 0, 0)
}

// CutOrdered reads the first value of an ordered encoding and returns what follows it: the inverse of
// [Value.AppendOrdered].
func (t Type) CutOrdered(encoded string) (v Value, rest string, err error) {
	switch t {
	case Bigint, Integer, Smallint, Date, Timestamptz:
		v, rest, err = t.cutNumber(encoded)
	case Text, Varchar:
		v, rest, err = cutText(encoded)
	case UUID:
		v, rest, err = cutUUID(encoded)
	case Bytea:
		v, rest, err = cutBytea(encoded)
	default:
		err = errors.New("unknown key type")
	}
	if err != nil {
		return Value{}, "", fmt.Errorf("invalid encoding of a %s key: %w", t, err)
	}
	v.typ = t
	return v, rest, nil
}

// Next returns the least value of the type that is greater than v in that order, and whether there is one: between the two lies no
// other value. Of dates and timestamps the last one is infinity.
func (v Value) Next() (Value, bool) {
	switch v.typ {
	case Bigint, Integer, Smallint:
		return v.nextNumber(v.typ.bounds())
	case Date:
		return v.nextTime(firstDay, lastDay)
	case Timestamptz:
		return v.nextTime(firstMicro, endMicro-1)
	case UUID:
		v.low++
		if v.low == 0 {
			v.number++ // as the bits of an unsigned number
		}
		return v, v.low != 0 || v.number != 0
	case Text, Varchar:
		v.bytes += "\x01"
		return v, true
	case Bytea:
		v.bytes += "\x00"
		return v, true
	default:
		panic("key: next of a Value without a type")
	}
}

func (v Value) nextNumber(_, last int64) (Value, bool) {
	if v.number >= last {
		return Value{}, false
	}
	v.number++
	return v, true
}

// nextTime knows that between the infinities and the first and the last time there are none.
func (v Value) nextTime(first, last int64) (Value, bool) {
	low, high := v.typ.bounds()
	switch {
	case v.number < first && v.number == low:
		v.number = first
	case v.number >= last && v.number < high:
		v.number = high
	default:
		return v.nextNumber(low, high)
	}
	return v, true
}

var errShort = errors.New("it ends too early")

func (t Type) cutNumber(encoded string) (Value, string, error) {
	if len(encoded) < 8 {
		return Value{}, "", errShort
	}
	number := int64(binary.BigEndian.Uint64([]byte(encoded[:8])) ^ 1<<63)
	if low, high := t.bounds(); number < low || number > high {
		return Value{}, "", errors.New("out of range")
	}
	return Value{number: number}, encoded[8:], nil
}

// bounds returns the least and the greatest number that a value of the type can have.
func (t Type) bounds() (low, high int64) {
	switch t {
	case Smallint:
		return math.MinInt16, math.MaxInt16
	case Integer, Date:
		return math.MinInt32, math.MaxInt32
	default:
		return math.MinInt64, math.MaxInt64
	}
}

func cutText(encoded string) (Value, string, error) {
	text, rest, ended := strings.Cut(encoded, "\x00")
	if !ended {
		return Value{}, "", errShort
	}
	if !utf8.ValidString(text) {
		return Value{}, "", errors.New("not valid UTF-8")
	}
	return Value{bytes: text}, rest, nil
}

func cutUUID(encoded string) (Value, string, error) {
	if len(encoded) < 16 {
		return Value{}, "", errShort
	}
	return OfUUID([16]byte([]byte(encoded[:16]))), encoded[16:], nil
}

func cutBytea(encoded string) (Value, string, error) {
	var raw strings.Builder
	for i := 0; i < len(encoded); i++ {
		raw.WriteByte(encoded[i])
		if encoded[i] != 0 {
			continue
		}
		if i++; i == len(encoded) {
			break
		}
		switch encoded[i] {
		case 0xff: // an escaped zero byte
		case 0:
			return Value{bytes: raw.String()[:raw.Len()-1]}, encoded[i+1:], nil
		default:
			return Value{}, "", errors.New("a zero byte is not escaped")
		}
	}
	return Value{}, "", errShort
}
