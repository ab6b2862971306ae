package merge

import (
	"encoding/binary"
	"math"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// ErrMalformed is the error for a row, or a value in it, that no server sends.
var ErrMalformed = pgerr.New(pgerr.ProtocolViolation, "a server sent a malformed row").
	WithHint("Look whether what answers is a PostgreSQL server of a version that is supported.")

// Source gives rows, as bodies of DataRow messages: the number of fields in 16 bits, then for each its length in 32 bits, -1 for
// NULL, and its bytes. A row is valid until the next call. At the end the error is io.EOF.
type Source interface {
	Next() ([]byte, error)
}

// cutCount returns how many fields a row has, and the fields.
func cutCount(row []byte) (int, []byte, bool) {
	if len(row) < 2 {
		return 0, nil, false
	}
	count := int(int16(binary.BigEndian.Uint16(row)))
	return count, row[2:], count >= 0
}

// cutField returns the first of the fields, nil for NULL, and those after it.
func cutField(fields []byte) (field, rest []byte, ok bool) {
	const null = math.MaxUint32
	if len(fields) < 4 {
		return nil, nil, false
	}
	size := binary.BigEndian.Uint32(fields)
	fields = fields[4:]
	if size == null {
		return nil, fields, true
	}
	if uint64(size) > uint64(len(fields)) {
		return nil, nil, false
	}
	return fields[:size:size], fields[size:], true
}
