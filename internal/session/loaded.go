package session

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/copydata"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/wire"
)

// timedValues are columns that the rows of a COPY do not have, and that the router adds to them: their defaults are computed from the current time, and
// every shard would have its own.
type timedValues struct {
	format  *copydata.Format
	columns []plan.TimedColumn
	values  [][]byte
	// tail is what a row of text has behind its last value then.
	tail    string
	scratch []byte
}

// addTimed finds out what has to be added to the rows of a COPY; nil if nothing has to.
func (s *session) addTimed(columns []plan.TimedColumn, format *copydata.Format) (*timedValues, *pgerr.Error) {
	if len(columns) == 0 {
		return nil, nil
	}
	if refused := s.takeMoment(); refused != nil {
		return nil, refused
	}
	t := &timedValues{format: format, columns: columns}
	for i := range columns {
		value, refused := s.timedValue(&columns[i], format.Kind() == copydata.Binary)
		if refused != nil {
			return nil, refused
		}
		if !format.Writes(value) {
			return nil, unwritable(&columns[i])
		}
		t.values = append(t.values, value)
	}
	t.tail = string(format.AppendValues(nil, t.values))
	return t, nil
}

// sendFunctions write values of the types in binary form that columns can be added of.
var sendFunctions = map[uint32]string{25: "textsend", 1082: "date_send", 1083: "time_send", 1114: "timestamp_send", 1184: "timestamptz_send", 1266: "timetz_send"}

// timedValue lets the home shard compute a default, in the form that COPY's data is in; nil is NULL.
func (s *session) timedValue(column *plan.TimedColumn, isBinary bool) ([]byte, *pgerr.Error) {
	sql, err := column.At(s.tx.moment)
	if err != nil {
		return nil, unwritable(column)
	}
	ask := func(question func() (answer, error)) (answer, *pgerr.Error) { return s.askShard(s.home(), question) }
	kind, refused := s.askWord(fmt.Sprintf("SELECT pg_catalog.format_type(%d, %d)", column.TypeOID, column.TypeMod), ask)
	if refused != nil {
		return nil, refused
	}
	value := "CAST(" + sql + " AS " + kind + ")"
	form := "pg_catalog.to_json(" + value + ") OPERATOR(pg_catalog.#>>) '{}'" // a text that is read in the same way whatever is set
	if isBinary {
		form = "pg_catalog.encode(pg_catalog." + sendFunctions[column.TypeOID] + "(" + value + "), 'hex')"
	}
	text, refused := s.askWord("SELECT coalesce('=' OPERATOR(pg_catalog.||) ("+form+"), '')", ask)
	if refused != nil || text == "" {
		return nil, refused
	}
	if text = text[1:]; !isBinary {
		return []byte(text), nil
	}
	sent, err := hex.DecodeString(text)
	if err != nil {
		return nil, pgerr.New(pgerr.InternalError, "a shard's answer about a default could not be read").WithDetail("%s", err)
	}
	return append([]byte{}, sent...), nil
}

// columnsOf is the edit that names the columns behind those that COPY lists.
func (t *timedValues) columnsOf(text []byte, standardConforming bool) []edit {
	var names strings.Builder
	for i := range t.columns {
		names.WriteString(", " + sqltext.QuoteIdentifier(t.columns[i].Name))
	}
	scanner := sqltext.NewScanner(text, standardConforming)
	for token, more := scanner.Next(); more; token, more = scanner.Next() {
		if token.Kind == sqltext.Punctuation && text[token.Start] == ')' { // of the list, which stands behind the table's name
			return []edit{{start: token.Start, end: token.Start, by: names.String()}}
		}
	}
	return nil
}

// asked is a shard's question for rows as the client is to see it: with the columns that it gives.
func (t *timedValues) asked(out, message []byte) []byte {
	const countAt, formatSize = wire.HeaderSize + 1, 2
	size := countAt + formatSize*(1+t.format.Columns())
	if len(message) < size {
		return append(out, message...)
	}
	at := len(out)
	out = append(out, message[:size]...)
	binary.BigEndian.PutUint32(out[at+1:], uint32(size-1))
	binary.BigEndian.PutUint16(out[at+countAt:], uint16(t.format.Columns()))
	return out
}

// row is a row with the values added. It is good until the next one.
func (t *timedValues) row(row []byte) []byte {
	if t == nil {
		return row
	}
	t.scratch = t.format.Extend(t.scratch[:0], row, t.values)
	return t.scratch
}

// header is the header of text or CSV with the names added.
func (t *timedValues) header(line []byte) []byte {
	if t == nil || t.format.Kind() == copydata.Binary {
		return line
	}
	names := make([][]byte, len(t.columns))
	for i := range names {
		names[i] = []byte(t.columns[i].Name)
	}
	return slices.Clone(t.format.Extend(nil, line, names))
}

// where takes the values that were added out of what a shard says of a line.
func (t *timedValues) where(where string) string {
	if t == nil || t.format.Kind() == copydata.Binary {
		return where
	}
	return strings.Replace(where, t.tail, "", 1)
}
