package key

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// The Of functions make values of what a program has already, where [Type.Parse] reads text. None of them allocates.

// OfInt returns a bigint, integer or smallint. It is an error if the number is out of the type's range.
func OfInt(t Type, n int64) (Value, error) {
	switch t {
	case Bigint, Integer, Smallint:
	default:
		return Value{}, fmt.Errorf("a %s key is no integer", t)
	}
	if low, high := t.bounds(); n < low || n > high {
		return Value{}, fmt.Errorf("invalid %s key %d: out of range", t, n)
	}
	return Value{typ: t, number: n}, nil
}

// OfText returns a text or varchar, as the type says; the caller knows that s is valid UTF-8 without a NUL. The value shares
// the string's memory.
func OfText(t Type, s string) Value {
	if t != Varchar {
		t = Text
	}
	return Value{typ: t, bytes: s}
}

// OfUUID returns a uuid.
func OfUUID(id [16]byte) Value {
	return Value{typ: UUID, number: int64(binary.BigEndian.Uint64(id[:8])), low: binary.BigEndian.Uint64(id[8:])}
}

// OfDate returns a date, given as days since 2000-01-01; the least and the greatest int32 are -infinity and infinity.
func OfDate(days int32) Value {
	return Value{typ: Date, number: int64(days)}
}

// OfTimestamptz returns a timestamptz, given as microseconds since 2000-01-01 00:00:00 UTC; the least and the greatest int64
// are -infinity and infinity.
func OfTimestamptz(micros int64) Value {
	return Value{typ: Timestamptz, number: micros}
}

// OfBytea returns a bytea. The value shares the string's memory.
func OfBytea(b string) Value {
	return Value{typ: Bytea, bytes: b}
}

// Clone returns a value with memory of its own, for one that must outlive the buffer that it was made over.
func (v Value) Clone() Value {
	v.bytes = strings.Clone(v.bytes)
	return v
}

// uuid returns the bytes of a uuid.
func (v Value) uuid() (id [16]byte) {
	binary.BigEndian.PutUint64(id[:8], uint64(v.number))
	binary.BigEndian.PutUint64(id[8:], v.low)
	return id
}
