package binding

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/placement/key"
)

// PostgreSQL counts from 2000-01-01. Its dates run from 4714-11-24 BC to 5874897-12-31, its timestamps to 294276-12-31.
const (
	firstDay   = -2451545
	lastDay    = 2145031948
	firstMicro = -211813488000000000
	endMicro   = 9223371331200000000

	microsPerSecond = 1_000_000
	microsPerDay    = 24 * 60 * 60 * microsPerSecond
)

func readDate(src *source) (key.Value, Outcome) {
	if src.binary {
		return binaryDate(src.bytes)
	}
	if days, rest, ok := cutDay(src.bytes); ok && len(rest) == 0 {
		return key.OfDate(int32(days)), Bound
	}
	return key.Value{}, Ask
}

func binaryDate(b []byte) (key.Value, Outcome) {
	if len(b) != 4 {
		return key.Value{}, AnyShard
	}
	days := int32(binary.BigEndian.Uint32(b))
	infinite := days == math.MinInt32 || days == math.MaxInt32
	if !infinite && (days < firstDay || days > lastDay) {
		return key.Value{}, AnyShard
	}
	return key.OfDate(days), Bound
}

func readTimestamptz(part *plan.KeyPart, src *source, s Session) (key.Value, Outcome) {
	var micros int64
	if src.binary {
		var ok bool
		if micros, ok = binaryMicros(src.bytes); !ok {
			return key.Value{}, AnyShard
		}
	} else {
		var ok bool
		if micros, ok = parseTimestamptz(src.bytes, s.TimeZoneUTC); !ok {
			return key.Value{}, Ask
		}
	}
	if part.Store {
		micros = rounded(micros, part.TypeMod)
	}
	return key.OfTimestamptz(micros), Bound
}

func binaryMicros(b []byte) (int64, bool) {
	if len(b) != 8 {
		return 0, false
	}
	micros := int64(binary.BigEndian.Uint64(b))
	infinite := micros == math.MinInt64 || micros == math.MaxInt64
	return micros, infinite || micros >= firstMicro && micros < endMicro
}

// rounded applies the modifier of a timestamptz(p): halves are rounded away from the year 2000.
func rounded(micros int64, precision int32) int64 {
	const most = 6
	if precision < 0 || precision >= most || micros == math.MinInt64 || micros == math.MaxInt64 {
		return micros
	}
	unit := int64(1)
	for range most - precision {
		unit *= 10
	}
	if micros < 0 {
		return -((-micros + unit/2) / unit * unit)
	}
	return (micros + unit/2) / unit * unit
}

// parseTimestamptz reads YYYY-MM-DD HH:MM:SS[.ffffff] with an offset from UTC, or without one where that is UTC. No setting
// changes what that means. Whatever else PostgreSQL takes is not ok.
func parseTimestamptz(text []byte, isUTC bool) (micros int64, ok bool) {
	days, rest, ok := cutDay(text)
	if !ok || len(rest) == 0 || rest[0] != ' ' && rest[0] != 'T' {
		return 0, false
	}
	clock, rest, ok := cutClock(rest[1:])
	if !ok {
		return 0, false
	}
	offset, ok := parseOffset(rest, isUTC)
	return days*microsPerDay + clock - offset*microsPerSecond, ok
}

// cutDay reads YYYY-MM-DD and returns days since 2000-01-01.
func cutDay(text []byte) (days int64, rest []byte, ok bool) {
	const form = len("YYYY-MM-DD")
	if len(text) < form || text[4] != '-' || text[7] != '-' {
		return 0, nil, false
	}
	year, month, day := number(text[:4]), number(text[5:7]), number(text[8:form])
	if year < 1 || month < 1 || month > 12 || day < 1 {
		return 0, nil, false
	}
	t := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	if t.Day() != day {
		return 0, nil, false // there is no such day in that month
	}
	const epoch = 946684800 // 2000-01-01 in seconds since 1970-01-01
	return (t.Unix() - epoch) / (24 * 60 * 60), text[form:], true
}

// cutClock reads HH:MM:SS[.ffffff] and returns microseconds.
func cutClock(text []byte) (micros int64, rest []byte, ok bool) {
	const form = len("HH:MM:SS")
	if len(text) < form || text[2] != ':' || text[5] != ':' {
		return 0, nil, false
	}
	hour, minute, second := number(text[:2]), number(text[3:5]), number(text[6:form])
	if hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59 {
		return 0, nil, false
	}
	micros = int64((hour*60+minute)*60+second) * microsPerSecond
	rest = text[form:]
	if len(rest) == 0 || rest[0] != '.' {
		return micros, rest, true
	}
	fraction, rest, ok := cutFraction(rest[1:])
	return micros + fraction, rest, ok
}

// cutFraction reads one to six digits after the point, and returns microseconds.
func cutFraction(text []byte) (micros int64, rest []byte, ok bool) {
	unit, digits := int64(microsPerSecond), 0
	for digits < len(text) && text[digits] >= '0' && text[digits] <= '9' {
		unit /= 10
		micros += int64(text[digits]-'0') * unit
		digits++
	}
	return micros, text[digits:], digits >= 1 && digits <= 6
}

// parseOffset reads Z, +HH or +HH:MM and returns seconds east of UTC.
func parseOffset(text []byte, isUTC bool) (seconds int64, ok bool) {
	switch len(text) {
	case 0:
		return 0, isUTC
	case 1:
		return 0, text[0] == 'Z'
	case len("+HH"), len("+HH:MM"):
	default:
		return 0, false
	}
	hours, minutes := number(text[1:3]), 0
	if len(text) > len("+HH") {
		minutes = number(text[4:])
		if text[3] != ':' {
			return 0, false
		}
	}
	// PostgreSQL knows offsets of less than sixteen hours.
	if hours < 0 || hours > 15 || minutes < 0 || minutes > 59 {
		return 0, false
	}
	seconds = int64(hours*60+minutes) * 60
	switch text[0] {
	case '+':
		return seconds, true
	case '-':
		return -seconds, true
	}
	return 0, false
}

// number reads digits; -1 if there is another character.
func number(digits []byte) int {
	n := 0
	for _, c := range digits {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}
