package merge

import (
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
)

// rowOf is a row of the given fields, nil for NULL.
func rowOf(fields ...[]byte) []byte {
	row := binary.BigEndian.AppendUint16(nil, uint16(len(fields)))
	for _, field := range fields {
		if field == nil {
			row = binary.BigEndian.AppendUint32(row, 1<<32-1)
			continue
		}
		row = binary.BigEndian.AppendUint32(row, uint32(len(field)))
		row = append(row, field...)
	}
	return row
}

func int8Of(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// fieldsOf is the contrary of rowOf.
func fieldsOf(t testing.TB, row []byte) [][]byte {
	t.Helper()
	count, rest, ok := cutCount(row)
	fields := make([][]byte, count)
	for i := range fields {
		if fields[i], rest, ok = cutField(rest); !ok {
			break
		}
	}
	if !ok || len(rest) > 0 {
		t.Fatalf("%q is no row", row)
	}
	return fields
}

// list is a source of rows that overwrites each before it gives the next, as one that reads into a buffer does.
type list struct {
	rows   [][]byte
	buffer []byte
	end    error // io.EOF if nil
	reads  int
}

func (l *list) Next() ([]byte, error) {
	l.reads++
	for i := range l.buffer {
		l.buffer[i] = 0xA5
	}
	if len(l.rows) == 0 {
		if l.end != nil {
			return nil, l.end
		}
		return nil, io.EOF
	}
	l.buffer = append(l.buffer[:0], l.rows[0]...)
	l.rows = l.rows[1:]
	return l.buffer, nil
}

// readAll returns copies of the rows, and the error at their end unless it is io.EOF.
func readAll(s Source) ([][]byte, error) {
	var rows [][]byte
	for {
		row, err := s.Next()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		rows = append(rows, slices.Clone(row))
	}
}
