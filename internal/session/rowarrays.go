package session

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/cleavedb/cleave/internal/wire"
)

// arraysFrom is from how many rows on shards get arrays of values instead of lists of rows: reading such a list takes PostgreSQL longer
// than inserting it, and a list of another length is another statement.
const arraysFrom = 16

// arrayTypes are the arrays of types of PostgreSQL's own whose elements are delimited by commas.
var arrayTypes = map[uint32]uint32{
	16: 1000, 17: 1001, 20: 1016, 21: 1005, 23: 1007, 25: 1009, 114: 199, 650: 651, 700: 1021, 701: 1022, 869: 1041, 1042: 1014, 1043: 1015, 1082: 1182,
	1083: 1183, 1114: 1115, 1184: 1185, 1186: 1187, 1700: 1231, 2950: 2951, 3802: 3807,
}

// rowArrays is an INSERT of many rows whose values are all parameters, as shards have to see it: with one array for each column. PostgreSQL
// casts a column of unnest as it casts the values of a list, and takes the rows in the same order.
type rowArrays struct {
	run     *statement
	columns []arrayColumn
	// numbers are, row by row, those of the parameters that the client gave; outside are those that stand elsewhere in the text.
	numbers, outside []int
}

// arrayColumn is what all values of a column have in common.
type arrayColumn struct {
	element uint32
	binary  bool
}

// rowsAsArrays returns nil if the rows cannot be sent as arrays, or need not.
func (s *session) rowsAsArrays(found *rowText, types []uint32, src source) *rowArrays {
	if len(found.rows) < arraysFrom || !found.onlyParams || found.highest > min(len(types), src.bind.ParamCount()) {
		return nil
	}
	a := &rowArrays{}
	first, last := found.rows[0].start, found.rows[len(found.rows)-1].end
	for _, p := range found.params {
		if p.start > first && p.end < last {
			a.numbers = append(a.numbers, p.number)
		}
	}
	width := len(a.numbers) / len(found.rows)
	if width == 0 || width*len(found.rows) != len(a.numbers) {
		return nil
	}
	for at := range width {
		column, ok := s.arrayColumn(a.numbers, at, width, types, src.bind)
		if !ok {
			return nil
		}
		a.columns = append(a.columns, column)
	}
	a.make(found, types, src)
	return a
}

// arrayColumn looks whether a column's values are of one type and in one form.
func (s *session) arrayColumn(numbers []int, at, width int, types []uint32, bind *wire.Bind) (column arrayColumn, ok bool) {
	column.element = types[numbers[at]-1]
	if arrayTypes[column.element] == 0 {
		return column, false
	}
	seen := false
	for ; at < len(numbers); at += width {
		if types[numbers[at]-1] != column.element {
			return column, false
		}
		_, isBinary, null := bind.Param(numbers[at] - 1)
		switch {
		case null:
		case seen && isBinary != column.binary:
			return column, false
		case !isBinary && s.foreignEncoding && !s.readableEncoding(): // a quote may be a part of another character
			return column, false
		default:
			seen, column.binary = true, isBinary
		}
	}
	return column, true
}

// make writes the text that all shards get.
func (a *rowArrays) make(found *rowText, types []uint32, src source) {
	arrays := make([]string, len(a.columns))
	a.run = &statement{planned: src.statement.planned}
	for i, column := range a.columns {
		arrays[i] = fmt.Sprintf("pg_catalog.unnest($%d)", i+1)
		a.run.oids = append(a.run.oids, arrayTypes[column.element])
	}
	rows := edit{start: found.values, end: found.rows[len(found.rows)-1].end, by: "SELECT * FROM ROWS FROM (" + strings.Join(arrays, ", ") + ")"}
	places := map[int]int{} // of the parameters that stand elsewhere
	var edits []edit
	for _, p := range found.params {
		if p.start > rows.start && p.end < rows.end {
			continue
		}
		if places[p.number] == 0 {
			a.outside = append(a.outside, p.number)
			a.run.oids = append(a.run.oids, types[p.number-1])
			places[p.number] = len(a.run.oids)
		}
		edits = append(edits, edit{start: p.start, end: p.end, by: fmt.Sprintf("$%d", places[p.number])})
	}
	at := 0
	for at < len(edits) && edits[at].start < rows.start {
		at++
	}
	a.run.edits = append(append(append(a.run.edits, edits[:at]...), rows), edits[at:]...)
	a.run.text = string(applyEdits(found.text, a.run.edits))
}

// part is what one shard gets: arrays of the chosen rows' values.
func (a *rowArrays) part(chosen func(row int) bool, bind *wire.Bind) part {
	width := len(a.columns)
	formats, values := make([]int16, 0, width+len(a.outside)), make([][]byte, 0, width+len(a.outside))
	for at, column := range a.columns {
		array, format := newArray(column), int16(0)
		for row := range len(a.numbers) / width {
			if chosen(row) {
				value, _, null := bind.Param(a.numbers[row*width+at] - 1)
				array.add(value, null)
			}
		}
		if column.binary {
			format = 1
		}
		formats, values = append(formats, format), append(values, array.finish())
	}
	for _, number := range a.outside {
		value, format := boundParam(bind, number)
		formats, values = append(formats, format), append(values, value)
	}
	return part{statement: a.run, edits: a.run.edits, data: bindTail(formats, values, resultFormats(bind))}
}

// arrayWriter writes an array of one dimension in one of PostgreSQL's two forms.
type arrayWriter struct {
	column   arrayColumn
	data     []byte
	count    uint32
	hasNulls bool
}

// The header of an array in binary form: dimensions, whether there are nulls, the elements' type, then size and lower bound.
const (
	arrayNullsAt   = 4
	arrayElementAt = 8
	arraySizeAt    = 12
	arrayBoundAt   = 16
	arrayHeader    = 20
)

func newArray(column arrayColumn) *arrayWriter {
	w := &arrayWriter{column: column, data: []byte{'{'}}
	if column.binary {
		w.data = make([]byte, arrayHeader)
	}
	return w
}

func (w *arrayWriter) add(value []byte, null bool) {
	w.hasNulls = w.hasNulls || null
	w.count++
	switch {
	case w.column.binary && null:
		w.data = binary.BigEndian.AppendUint32(w.data, ^uint32(0))
	case w.column.binary:
		w.data = append(binary.BigEndian.AppendUint32(w.data, uint32(len(value))), value...)
	default:
		w.addText(value, null)
	}
}

func (w *arrayWriter) addText(value []byte, null bool) {
	if w.count > 1 {
		w.data = append(w.data, ',')
	}
	if null {
		w.data = append(w.data, "NULL"...)
		return
	}
	w.data = append(w.data, '"')
	for _, c := range value {
		if c == '"' || c == '\\' {
			w.data = append(w.data, '\\')
		}
		w.data = append(w.data, c)
	}
	w.data = append(w.data, '"')
}

func (w *arrayWriter) finish() []byte {
	if !w.column.binary {
		return append(w.data, '}')
	}
	binary.BigEndian.PutUint32(w.data, 1)
	if w.hasNulls {
		binary.BigEndian.PutUint32(w.data[arrayNullsAt:], 1)
	}
	binary.BigEndian.PutUint32(w.data[arrayElementAt:], w.column.element)
	binary.BigEndian.PutUint32(w.data[arraySizeAt:], w.count)
	binary.BigEndian.PutUint32(w.data[arrayBoundAt:], 1)
	return w.data
}
