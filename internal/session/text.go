package session

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/pool"
)

// OIDs of the types that the router's own functions take in binary form.
const (
	oidBool    = 16
	oidInt8    = 20
	oidInt2    = 21
	oidInt4    = 23
	oidText    = 25
	oidVarchar = 1043
	oidUUID    = 2950
)

// paramText returns a parameter of one of the router's own functions as text.
func (s *session) paramText(value []byte, isBinary bool, number int, src source) (string, *pgerr.Error) {
	if !isBinary {
		return string(value), nil
	}
	oid := uint32(0)
	if number <= len(src.statement.oids) {
		oid = src.statement.oids[number-1]
	}
	switch {
	case (oid == oidInt8 || oid == 0) && len(value) == 8:
		return strconv.FormatInt(int64(binary.BigEndian.Uint64(value)), 10), nil //nolint:gosec // the same bits
	case oid == oidInt4 && len(value) == 4:
		return strconv.FormatInt(int64(int32(binary.BigEndian.Uint32(value))), 10), nil //nolint:gosec // the same bits
	case oid == oidInt2 && len(value) == 2:
		return strconv.FormatInt(int64(int16(binary.BigEndian.Uint16(value))), 10), nil //nolint:gosec // the same bits
	case oid == oidText || oid == oidVarchar:
		return string(value), nil
	case oid == oidUUID && len(value) == 16:
		return hex.EncodeToString(value), nil
	case oid == oidBool && len(value) == 1:
		return strconv.FormatBool(value[0] != 0), nil
	}
	return "", pgerr.New(pgerr.FeatureNotSupported, "parameter $%d in binary form is not supported here", number).WithDetail("The router writes it into the text.").WithHint("Send it as text.")
}

// readable turns a plan's key into a text for people: literals become question marks.
func readable(normalized string) string {
	var b strings.Builder
	for i := 0; i < len(normalized); i++ {
		if c := normalized[i]; c == 0 {
			b.WriteByte('?')
			i++ // the kind
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func textsOf(row pool.Row) []string {
	texts := make([]string, len(row))
	for i, value := range row {
		texts[i] = string(value)
	}
	return texts
}
