package key

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Value is one value of one key type: what a key column holds.
type Value struct {
	typ    Type
	number int64  // integers; days; microseconds; a uuid's upper half
	low    uint64 // a uuid's lower half
	bytes  string // text, bytea
}

// Type returns the type that the value was parsed as.
func (v Value) Type() Type { return v.typ }

// Hash returns the value's hash, with the seed or the hash of the key's previous column.
func (v Value) Hash(seed uint64) uint64 {
	switch v.typ {
	case Bigint, Integer, Smallint:
		return HashInt(v.number, seed)
	case Text, Varchar:
		return HashText(v.bytes, seed)
	case UUID:
		return HashUUID(v.uuid(), seed)
	case Date:
		return HashDate(int32(v.number), seed)
	case Timestamptz:
		return HashTimestamptz(v.number, seed)
	case Bytea:
		return arrayOfOne(bytesExtended(v.bytes, seed))
	default:
		panic("key: hash of a Value without a type")
	}
}

// AppendOrdered appends the value's ordered encoding.
func (v Value) AppendOrdered(dst []byte) []byte {
	switch v.typ {
	case Bigint, Integer, Smallint, Date, Timestamptz:
		return AppendInt(dst, v.number)
	case Text, Varchar:
		return AppendText(dst, v.bytes)
	case UUID:
		return AppendUUID(dst, v.uuid())
	case Bytea:
		return AppendBytea(dst, []byte(v.bytes))
	default:
		panic("key: order of a Value without a type")
	}
}

// Parse reads a value in the form in which PostgreSQL prints it with its default settings (ISO dates, hex bytea).
func (t Type) Parse(s string) (Value, error) {
	v, err := t.parse(s)
	if err != nil {
		return Value{}, fmt.Errorf("invalid %s key %q: %w", t, s, err)
	}
	v.typ = t
	return v, nil
}

func (t Type) parse(s string) (Value, error) {
	switch t {
	case Bigint:
		return parseInt(s, 64)
	case Integer:
		return parseInt(s, 32)
	case Smallint:
		return parseInt(s, 16)
	case Text, Varchar:
		return parseText(s)
	case UUID:
		return parseUUID(s)
	case Date:
		return parseDate(s)
	case Timestamptz:
		return parseTimestamptz(s)
	case Bytea:
		return parseBytea(s)
	default:
		return Value{}, errors.New("unknown key type")
	}
}

func parseInt(s string, bitSize int) (Value, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, bitSize)
	if err != nil {
		return Value{}, errors.Unwrap(err)
	}
	return Value{number: n}, nil
}

func parseText(s string) (Value, error) {
	if !utf8.ValidString(s) {
		return Value{}, errors.New("not valid UTF-8")
	}
	if strings.IndexByte(s, 0) >= 0 {
		return Value{}, errors.New("PostgreSQL text cannot hold a NUL")
	}
	return Value{bytes: s}, nil
}

var uuidForm = regexp.MustCompile(`^([0-9a-fA-F]{8})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{12})$`)

func parseUUID(s string) (Value, error) {
	groups := uuidForm.FindStringSubmatch(s)
	if groups == nil {
		return Value{}, errors.New("a uuid has 32 hexadecimal digits, in groups of 8-4-4-4-12")
	}
	var id [16]byte
	_, err := hex.Decode(id[:], []byte(strings.Join(groups[1:], "")))
	return OfUUID(id), err
}

func parseBytea(s string) (Value, error) {
	digits, ok := strings.CutPrefix(s, `\x`)
	if !ok {
		return Value{}, errors.New(`a bytea is written \x and hexadecimal digits`)
	}
	raw, err := hex.DecodeString(digits)
	if err != nil {
		return Value{}, err
	}
	return Value{bytes: string(raw)}, nil
}

// epochDays is 2000-01-01, where PostgreSQL counts from, in days since 1970-01-01.
const epochDays = 10957

// PostgreSQL's dates run from 4714-11-24 BC to 5874897-12-31, its timestamps to 294276-12-31.
const (
	firstDay = -2451545
	lastDay  = 2145031948
	// firstMicro and endMicro are PostgreSQL's MIN_TIMESTAMP and END_TIMESTAMP.
	firstMicro = -211813488000000000
	endMicro   = 9223371331200000000
)

func parseDate(s string) (Value, error) {
	switch strings.ToLower(s) {
	case "infinity":
		return Value{number: math.MaxInt32}, nil
	case "-infinity":
		return Value{number: math.MinInt32}, nil
	}
	text, bc := strings.CutSuffix(s, " BC")
	days, err := parseDay(text, bc)
	if err != nil {
		return Value{}, err
	}
	return Value{number: days}, nil
}

// parseDay reads YYYY-MM-DD with a year of four or more digits and returns days since 2000-01-01.
func parseDay(s string, bc bool) (int64, error) {
	parts := strings.Split(s, "-")
	if len(parts) != 3 || len(parts[0]) < 4 || len(parts[1]) != 2 || len(parts[2]) != 2 {
		return 0, errors.New("a date is written YYYY-MM-DD")
	}
	var fields [3]int
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 31)
		if err != nil {
			return 0, errors.New("a date is written YYYY-MM-DD")
		}
		fields[i] = int(n)
	}
	year, month, day := fields[0], fields[1], fields[2]
	if year == 0 {
		return 0, errors.New("there is no year 0")
	}
	if bc {
		year = 1 - year
	}
	if month < 1 || month > 12 || day < 1 || day > daysIn(year, month) {
		return 0, errors.New("no such day")
	}
	days := civilDays(int64(year), int64(month), int64(day)) - epochDays
	if days < firstDay || days > lastDay {
		return 0, errors.New("out of PostgreSQL's range")
	}
	return days, nil
}

func daysIn(year, month int) int {
	return time.Date(2000+((year%400)+400)%400, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// civilDays counts days since 1970-01-01 in the proleptic Gregorian calendar. The year is counted from 1 March, so that
// the leap day is its last, and the calendar repeats every 400 years (146,097 days).
func civilDays(year, month, day int64) int64 {
	if month <= 2 {
		year--
		month += 12
	}
	era := year / 400
	if year < 0 {
		era = (year - 399) / 400
	}
	yearOfEra := year - era*400
	dayOfYear := (153*(month-3)+2)/5 + day - 1
	return era*146097 + yearOfEra*365 + yearOfEra/4 - yearOfEra/100 + dayOfYear - 719468
}

func parseTimestamptz(s string) (Value, error) {
	switch strings.ToLower(s) {
	case "infinity":
		return Value{number: math.MaxInt64}, nil
	case "-infinity":
		return Value{number: math.MinInt64}, nil
	}
	text, bc := strings.CutSuffix(s, " BC")
	date, clock, ok := strings.Cut(text, " ")
	if !ok {
		date, clock, ok = strings.Cut(text, "T")
	}
	if !ok {
		return Value{}, errors.New("a timestamptz is written YYYY-MM-DD HH:MM:SS[.ffffff]+ZZ")
	}
	days, err := parseDay(date, bc)
	if err != nil {
		return Value{}, err
	}
	micros, err := parseClock(clock)
	if err != nil {
		return Value{}, err
	}
	if days > endMicro/microsPerDay {
		return Value{}, errors.New("out of PostgreSQL's range")
	}
	// Days alone can reach just past the least representable value, so the sum is checked in halves that cannot wrap.
	total := days*microsPerDay + micros
	if total < firstMicro || total >= endMicro {
		return Value{}, errors.New("out of PostgreSQL's range")
	}
	return Value{number: total}, nil
}

const microsPerDay = 24 * 60 * 60 * 1_000_000

var clockForm = regexp.MustCompile(`^([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?(?:Z|([+-])([0-9]{2})(?::?([0-9]{2})(?::([0-9]{2}))?)?)$`)

// parseClock reads HH:MM:SS[.ffffff] and the offset from UTC that must follow, and returns microseconds in UTC.
func parseClock(s string) (int64, error) {
	f := clockForm.FindStringSubmatch(s)
	if f == nil {
		return 0, errors.New("a time is written HH:MM:SS[.ffffff] and its offset from UTC, +HH, +HH:MM or Z")
	}
	hour, minute, second := digits(f[1]), digits(f[2]), digits(f[3])
	micro := digits((f[4] + "000000")[:6])
	zoneHour, zoneMinute, zoneSecond := digits(f[6]), digits(f[7]), digits(f[8])
	// PostgreSQL knows offsets of less than sixteen hours.
	if hour > 23 || minute > 59 || second > 59 || zoneHour > 15 || zoneMinute > 59 || zoneSecond > 59 {
		return 0, errors.New("no such time")
	}
	offset := (zoneHour*60+zoneMinute)*60 + zoneSecond
	if f[5] == "-" {
		offset = -offset
	}
	return ((hour*60+minute)*60+second-offset)*1_000_000 + micro, nil
}

// digits reads a number that a form has checked; nothing is zero.
func digits(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
