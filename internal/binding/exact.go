package binding

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"

	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/placement/key"
)

// isExact says whether a comparison of a column with a value of another family holds for one key at most: a numeric is equal to one integer,
// a timestamp to one date, at whose beginning it is.
func isExact(own family, typ uint32) bool {
	return own == integers && typ == oidNumeric || own == dates && typ == oidTimestamp
}

// readExact finds the only key that a value of another family is equal to: AnyShard if there is none.
func readExact(part *plan.KeyPart, src *source, own family, typ uint32) (key.Value, Outcome) {
	cast := part.Operand.CastOID
	if src.opaque || cast != 0 && (src.oid != 0 && src.oid != cast || part.Operand.CastMod >= 0) {
		return key.Value{}, Ask
	}
	if own == dates {
		return dateOfTimestamp(src)
	}
	var n int64
	var outcome Outcome
	switch {
	case src.binary && cast == 0 || src.oid == typ && src.binary:
		n, outcome = binaryNumeric(src.bytes)
	case src.binary:
		return key.Value{}, Ask
	default:
		n, outcome = textNumeric(src.bytes, src.negative)
	}
	if outcome != Bound {
		return key.Value{}, outcome
	}
	return keyOfInt(part, n)
}

// keyOfInt is AnyShard for a number that the column cannot have.
func keyOfInt(part *plan.KeyPart, n int64) (key.Value, Outcome) {
	value, err := key.OfInt(part.Type, n)
	if err != nil {
		return key.Value{}, AnyShard
	}
	return value, Bound
}

// textNumeric reads digits with or without a sign and a fraction.
func textNumeric(text []byte, negative bool) (int64, Outcome) {
	whole, fraction, _ := bytes.Cut(text, []byte("."))
	n, ok := textInt(&source{bytes: whole, negative: negative})
	if !ok {
		return 0, Ask
	}
	for _, c := range fraction {
		if c < '0' || c > '9' {
			return 0, Ask
		}
	}
	if len(bytes.Trim(fraction, "0")) > 0 {
		return 0, AnyShard
	}
	return n, Bound
}

// binaryNumeric reads PostgreSQL's own form: the number of digits to the base of 10000, the weight of the first of them, the sign, the
// scale, and the digits.
func binaryNumeric(b []byte) (int64, Outcome) {
	const header, base, negative = 8, 10_000, 0x4000
	if len(b) < header || len(b) != header+2*int(binary.BigEndian.Uint16(b)) {
		return 0, Ask
	}
	weight, sign := int(int16(binary.BigEndian.Uint16(b[2:]))), binary.BigEndian.Uint16(b[4:])
	if sign != 0 && sign != negative {
		return 0, Ask
	}
	digits := b[header:]
	var n uint64
	for i := 0; i <= weight || i*2 < len(digits); i++ {
		digit := uint64(0)
		if i*2 < len(digits) {
			digit = uint64(binary.BigEndian.Uint16(digits[i*2:]))
		}
		switch {
		case digit >= base:
			return 0, Ask
		case i > weight && digit > 0, i <= weight && n > (math.MaxUint64-digit)/base:
			return 0, AnyShard
		case i <= weight:
			n = n*base + digit
		}
	}
	switch {
	case sign == negative && n <= 1<<63:
		return -int64(n), Bound
	case sign == 0 && n < 1<<63:
		return int64(n), Bound
	}
	return 0, AnyShard
}

// dateOfTimestamp finds the date that a timestamp is the beginning of.
func dateOfTimestamp(src *source) (key.Value, Outcome) {
	var micros int64
	if src.binary {
		var ok bool
		if micros, ok = binaryMicros(src.bytes); !ok {
			return key.Value{}, AnyShard
		}
		switch micros {
		case math.MinInt64:
			return key.OfDate(math.MinInt32), Bound
		case math.MaxInt64:
			return key.OfDate(math.MaxInt32), Bound
		}
	} else {
		days, rest, ok := cutDay(src.bytes)
		if !ok || len(rest) == 0 || rest[0] != ' ' && rest[0] != 'T' {
			return key.Value{}, Ask
		}
		clock, rest, ok := cutClock(rest[1:])
		if !ok || len(rest) > 0 {
			return key.Value{}, Ask
		}
		micros = days*microsPerDay + clock
	}
	if micros%microsPerDay != 0 {
		return key.Value{}, AnyShard
	}
	return key.OfDate(int32(micros / microsPerDay)), Bound
}

// readFloat finds the integer that a floating-point number is equal to, if it is small enough to be the only one that is; else it is Refused.
func readFloat(part *plan.KeyPart, src *source, typ uint32) (key.Value, Outcome) {
	value, ok := floatOf(part, src, typ)
	if !ok {
		return key.Value{}, Refused
	}
	exact := float64(1 << 53)
	if typ == oidFloat4 {
		exact = 1 << 24
	}
	switch {
	case value != math.Trunc(value):
		return key.Value{}, AnyShard
	case math.Abs(value) >= exact:
		return key.Value{}, Refused
	}
	return keyOfInt(part, int64(value))
}

// floatOf reads a finite number of one of the two types.
func floatOf(part *plan.KeyPart, src *source, typ uint32) (value float64, ok bool) {
	cast := part.Operand.CastOID
	if src.opaque || cast != 0 && src.oid != 0 && src.oid != cast || src.binary && cast != 0 && src.oid != cast {
		return 0, false
	}
	switch {
	case src.binary && typ == oidFloat4 && len(src.bytes) == 4:
		value = float64(math.Float32frombits(binary.BigEndian.Uint32(src.bytes)))
	case src.binary && typ == oidFloat8 && len(src.bytes) == 8:
		value = math.Float64frombits(binary.BigEndian.Uint64(src.bytes))
	case src.binary || len(bytes.Trim(src.bytes, "0123456789+-.eE")) > 0:
		return 0, false
	default:
		bits := 64
		if typ == oidFloat4 {
			bits = 32
		}
		var err error
		if value, err = strconv.ParseFloat(string(src.bytes), bits); err != nil {
			return 0, false
		}
	}
	return value, !math.IsNaN(value) && !math.IsInf(value, 0)
}
