package key

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// String returns the value as PostgreSQL prints it with its default settings and TimeZone UTC; [Type.Parse] reads it back.
func (v Value) String() string {
	switch v.typ {
	case Bigint, Integer, Smallint:
		return strconv.FormatInt(v.number, 10)
	case Text, Varchar:
		return v.bytes
	case UUID:
		id := v.uuid()
		digits := hex.EncodeToString(id[:])
		return digits[:8] + "-" + digits[8:12] + "-" + digits[12:16] + "-" + digits[16:20] + "-" + digits[20:]
	case Date:
		return dateString(v.number)
	case Timestamptz:
		return timestamptzString(v.number)
	case Bytea:
		return `\x` + hex.EncodeToString([]byte(v.bytes))
	default:
		return "key.Value of " + v.typ.String()
	}
}

func dateString(days int64) string {
	switch days {
	case math.MaxInt32:
		return "infinity"
	case math.MinInt32:
		return "-infinity"
	}
	day, era := dayString(days)
	return day + era
}

func timestamptzString(micros int64) string {
	switch micros {
	case math.MaxInt64:
		return "infinity"
	case math.MinInt64:
		return "-infinity"
	}
	days, rest := micros/microsPerDay, micros%microsPerDay
	if rest < 0 {
		days, rest = days-1, rest+microsPerDay
	}
	day, era := dayString(days)
	seconds, fraction := rest/1_000_000, rest%1_000_000
	clock := fmt.Sprintf(" %02d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
	if fraction != 0 {
		clock += strings.TrimRight(fmt.Sprintf(".%06d", fraction), "0")
	}
	return day + clock + "+00" + era
}

// dayString prints days since 2000-01-01 as YYYY-MM-DD, and " BC" for the years before the first.
func dayString(days int64) (day, era string) {
	year, month, dayOfMonth := civilDate(days + epochDays)
	if year <= 0 {
		year, era = 1-year, " BC"
	}
	return fmt.Sprintf("%04d-%02d-%02d", year, month, dayOfMonth), era
}

// civilDate is the inverse of civilDays.
func civilDate(days int64) (year, month, day int64) {
	days += 719468 // from 1 March of the year 0
	era := days / 146097
	if days < 0 {
		era = (days - 146096) / 146097
	}
	dayOfEra := days - era*146097
	yearOfEra := (dayOfEra - dayOfEra/1460 + dayOfEra/36524 - dayOfEra/146096) / 365
	dayOfYear := dayOfEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	shifted := (5*dayOfYear + 2) / 153 // months since March
	day = dayOfYear - (153*shifted+2)/5 + 1
	month = shifted + 3
	year = yearOfEra + era*400
	if month > 12 {
		month, year = month-12, year+1
	}
	return year, month, day
}
