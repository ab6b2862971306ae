package binding

import (
	"encoding/binary"

	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/placement/key"
)

// readInt reads an integer that has to fit into its own type, into that of its cast and into the column's. If it does not,
// then there is an error, or it is compared with a column that cannot have such a value.
func readInt(part *plan.KeyPart, src *source) (key.Value, Outcome) {
	place := part.Operand.CastOID
	if place == 0 {
		place = columnOID(part.Type)
	}
	own := src.oid
	if own == 0 {
		own = place
	}
	var n int64
	var ok bool
	if src.binary {
		if n, ok = binaryInt(src.bytes, own); !ok {
			return key.Value{}, AnyShard
		}
	} else if n, ok = textInt(src); !ok {
		return key.Value{}, Ask
	}
	if !fits(n, own) || !fits(n, part.Operand.CastOID) {
		return key.Value{}, AnyShard
	}
	value, err := key.OfInt(part.Type, n)
	if err != nil {
		return key.Value{}, AnyShard
	}
	return value, Bound
}

func fits(n int64, oid uint32) bool {
	switch oid {
	case oidInt2:
		return n == int64(int16(n))
	case oidInt4:
		return n == int64(int32(n))
	default:
		return true
	}
}

func binaryInt(b []byte, oid uint32) (int64, bool) {
	switch {
	case oid == oidInt2 && len(b) == 2:
		return int64(int16(binary.BigEndian.Uint16(b))), true
	case oid == oidInt4 && len(b) == 4:
		return int64(int32(binary.BigEndian.Uint32(b))), true
	case oid == oidInt8 && len(b) == 8:
		return int64(binary.BigEndian.Uint64(b)), true
	}
	return 0, false
}

// textInt reads digits with or without a sign. PostgreSQL takes blanks around them too, and newer versions other bases.
func textInt(src *source) (int64, bool) {
	digits, negative := src.bytes, src.negative
	if len(digits) > 0 && (digits[0] == '-' || digits[0] == '+') {
		negative = digits[0] == '-'
		digits = digits[1:]
	}
	return parseInt(digits, negative)
}

// parseInt reads digits; not ok if there are others, none, or too many for an int8.
func parseInt(digits []byte, negative bool) (int64, bool) {
	const tenth = 1 << 63 / 10
	if len(digits) == 0 {
		return 0, false
	}
	var n uint64
	for _, c := range digits {
		d := uint64(c - '0')
		if d > 9 || n > tenth {
			return 0, false
		}
		n = n*10 + d
	}
	switch {
	case negative && n <= 1<<63:
		return -int64(n), true
	case !negative && n < 1<<63:
		return int64(n), true
	}
	return 0, false
}
