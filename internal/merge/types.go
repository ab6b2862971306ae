package merge

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
)

// OIDs of PostgreSQL's own types, the same on every server.
const (
	oidBool        = 16
	oidBytea       = 17
	oidChar        = 18
	oidName        = 19
	oidInt8        = 20
	oidInt2        = 21
	oidInt4        = 23
	oidText        = 25
	oidOID         = 26
	oidCIDR        = 650
	oidFloat4      = 700
	oidFloat8      = 701
	oidMacaddr8    = 774
	oidMoney       = 790
	oidMacaddr     = 829
	oidInet        = 869
	oidBpchar      = 1042
	oidVarchar     = 1043
	oidDate        = 1082
	oidTime        = 1083
	oidTimestamp   = 1114
	oidTimestamptz = 1184
	oidInterval    = 1186
	oidTimetz      = 1266
	oidBit         = 1560
	oidVarbit      = 1562
	oidNumeric     = 1700
	oidUUID        = 2950
	oidPgLSN       = 3220
	oidXid8        = 5069
)

// kind is how values of a type are ordered.
type kind struct {
	// size is how long every value is; 0 if that differs.
	size int
	// isValid looks at what size does not say; nil if there is nothing. Only valid values are compared.
	isValid func(value []byte) bool
	compare func(a, b []byte) int
	// hasCollation: the order is that of a collation, of which C is the one known here.
	hasCollation bool
}

// accepts says whether compare can be given the value.
func (k *kind) accepts(value []byte) bool {
	return (k.size == 0 || len(value) == k.size) && (k.isValid == nil || k.isValid(value))
}

var kinds = map[uint32]*kind{
	oidBool:        {size: 1, isValid: isBool, compare: bytes.Compare},
	oidChar:        {size: 1, compare: bytes.Compare},
	oidInt2:        {size: 2, compare: compareInt2},
	oidInt4:        {size: 4, compare: compareInt4},
	oidInt8:        {size: 8, compare: compareInt8},
	oidOID:         {size: 4, compare: bytes.Compare},
	oidXid8:        {size: 8, compare: bytes.Compare},
	oidPgLSN:       {size: 8, compare: bytes.Compare},
	oidFloat4:      {size: 4, compare: compareFloat4},
	oidFloat8:      {size: 8, compare: compareFloat8},
	oidNumeric:     {isValid: isNumeric, compare: compareNumeric},
	oidMoney:       {size: 8, compare: compareInt8},
	oidDate:        {size: 4, compare: compareInt4},
	oidTime:        {size: 8, compare: compareInt8},
	oidTimetz:      {size: 12, compare: compareTimetz},
	oidTimestamp:   {size: 8, compare: compareInt8},
	oidTimestamptz: {size: 8, compare: compareInt8},
	oidInterval:    {size: 16, compare: compareInterval},
	oidUUID:        {size: 16, compare: bytes.Compare},
	oidMacaddr:     {size: 6, compare: bytes.Compare},
	oidMacaddr8:    {size: 8, compare: bytes.Compare},
	oidInet:        {isValid: isInet, compare: compareInet},
	oidCIDR:        {isValid: isInet, compare: compareInet},
	oidBytea:       {compare: bytes.Compare},
	oidBit:         {isValid: isBits, compare: compareBits},
	oidVarbit:      {isValid: isBits, compare: compareBits},
	oidName:        {compare: bytes.Compare, hasCollation: true},
	oidText:        {compare: bytes.Compare, hasCollation: true},
	oidVarchar:     {compare: bytes.Compare, hasCollation: true},
	oidBpchar:      {compare: compareBpchar, hasCollation: true},
}

func isBool(value []byte) bool { return value[0] <= 1 }

func int64At(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }
func int32At(b []byte) int32 { return int32(binary.BigEndian.Uint32(b)) }
func int16At(b []byte) int16 { return int16(binary.BigEndian.Uint16(b)) }

func compareInt2(a, b []byte) int { return cmp.Compare(int16At(a), int16At(b)) }
func compareInt4(a, b []byte) int { return cmp.Compare(int32At(a), int32At(b)) }
func compareInt8(a, b []byte) int { return cmp.Compare(int64At(a), int64At(b)) }

func float4At(b []byte) float64 {
	return float64(math.Float32frombits(binary.BigEndian.Uint32(b)))
}

func float8At(b []byte) float64 {
	return math.Float64frombits(binary.BigEndian.Uint64(b))
}

func compareFloat4(a, b []byte) int { return compareFloats(float4At(a), float4At(b)) }
func compareFloat8(a, b []byte) int { return compareFloats(float8At(a), float8At(b)) }

// compareFloats has NaN above all, where cmp.Compare has it below.
func compareFloats(a, b float64) int {
	switch aIsNaN, bIsNaN := math.IsNaN(a), math.IsNaN(b); {
	case aIsNaN && bIsNaN:
		return 0
	case aIsNaN:
		return 1
	case bIsNaN:
		return -1
	}
	return cmp.Compare(a, b)
}

const (
	microsPerSecond = 1_000_000
	microsPerDay    = 24 * 60 * 60 * microsPerSecond
	daysPerMonth    = 30 // in comparisons of intervals
)

// compareTimetz compares what the time is in UTC, though that may be before 0 or after 24 hours, and then the zones, which are seconds
// to the west.
func compareTimetz(a, b []byte) int {
	aZone, bZone := int32At(a[8:]), int32At(b[8:])
	aTime, bTime := int64At(a)+int64(aZone)*microsPerSecond, int64At(b)+int64(bZone)*microsPerSecond
	return cmp.Or(cmp.Compare(aTime, bTime), cmp.Compare(aZone, bZone))
}

func compareInterval(a, b []byte) int {
	aDays, aMicros := spanOf(a)
	bDays, bMicros := spanOf(b)
	return cmp.Or(cmp.Compare(aDays, bDays), cmp.Compare(aMicros, bMicros))
}

// spanOf returns an interval as days, and what is left of a day: together they are more than 64 bits hold.
func spanOf(interval []byte) (days, micros int64) {
	micros = int64At(interval)
	days = int64(int32At(interval[8:])) + int64(int32At(interval[12:]))*daysPerMonth + micros/microsPerDay
	micros %= microsPerDay
	if micros < 0 {
		days, micros = days-1, micros+microsPerDay
	}
	return days, micros
}

// compareBpchar ignores the blanks at the end.
func compareBpchar(a, b []byte) int {
	return bytes.Compare(bytes.TrimRight(a, " "), bytes.TrimRight(b, " "))
}

// isBits looks whether there are as many bytes as the number of bits before them needs.
func isBits(value []byte) bool {
	return len(value) >= 4 && int32At(value) >= 0 && len(value)-4 == (int(int32At(value))+7)/8
}

// compareBits compares the bits, of which those that fill the last byte are 0, and then how many there are: more bytes are more bits.
func compareBits(a, b []byte) int {
	return cmp.Or(bytes.Compare(a[4:], b[4:]), cmp.Compare(int32At(a), int32At(b)))
}

// Addresses have their family, the bits of their netmask, whether it is a cidr, the length of the address, and the address.
const (
	inetHeader = 4
	inetV4     = 2
	inetV6     = 3
)

func isInet(value []byte) bool {
	if len(value) < inetHeader || len(value) != inetHeader+int(value[3]) || int(value[1]) > 8*int(value[3]) {
		return false
	}
	return value[0] == inetV4 && value[3] == 4 || value[0] == inetV6 && value[3] == 16
}

// compareInet compares networks as far as both netmasks go, then the netmasks, then the addresses.
func compareInet(a, b []byte) int {
	if a[0] != b[0] {
		return cmp.Compare(a[0], b[0])
	}
	common := int(min(a[1], b[1]))
	return cmp.Or(compareFirstBits(a[inetHeader:], b[inetHeader:], common), cmp.Compare(a[1], b[1]), bytes.Compare(a[inetHeader:], b[inetHeader:]))
}

func compareFirstBits(a, b []byte, count int) int {
	whole, rest := count/8, count%8
	if order := bytes.Compare(a[:whole], b[:whole]); order != 0 || rest == 0 {
		return order
	}
	unused := 8 - rest
	return cmp.Compare(a[whole]>>unused, b[whole]>>unused)
}
