package session

import (
	"encoding/binary"
	"fmt"
	"slices"
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

// textual are the types whose values are sent in binary form as they are in text form. They always go in binary form: whether NULL is a word
// in the text form of an array depends on the setting array_nulls, and quotes on the encoding.
var textual = map[uint32]bool{25: true, 114: true, 1042: true, 1043: true}

// rowArrays is an INSERT of many rows whose values are all parameters, as shards have to see it: with one array for each column. PostgreSQL
// casts a column of unnest as it casts the values of a list, and takes the rows in the same order.
type rowArrays struct {
	run *statement
	// source is where the text takes the rows from.
	source string
	// types are those of the client's parameters, for which this was made.
	types   []uint32
	columns []arrayColumn
	// numbers are, row by row, those of the parameters that the client gave; outside are those that stand elsewhere in the text.
	numbers, outside []int
}

// arrayColumn is what all values of a column have in common; whether they are binary differs from one Bind to the next.
type arrayColumn struct {
	element uint32
	textual bool // its type is
	// seen: there is a value; binary: all values are in this form; nulls: there are nulls.
	seen, binary, nulls bool
}

// rowsAsArrays returns nil if the rows cannot be sent as arrays, or need not.
func (s *session) rowsAsArrays(found *rowText, types []uint32, src source) *rowArrays {
	if len(found.rows) < arraysFrom || !found.onlyParams || found.highest > min(len(types), src.bind.ParamCount()) {
		return nil
	}
	known := src.statement.rows
	if a := known.arrays; a == nil || a.run.planned != src.statement.planned || !slices.Equal(a.types, types) {
		if known.arrays = newRowArrays(found, types); known.arrays == nil {
			return nil
		}
		known.arrays.make(found, src)
	}
	if !known.arrays.allBinary(src.bind) && !s.evenForms(known.arrays, src.bind) {
		return nil
	}
	return known.arrays
}

// newRowArrays returns nil if the values of a column are of several types.
func newRowArrays(found *rowText, types []uint32) *rowArrays {
	a := &rowArrays{types: types}
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
	a.columns = make([]arrayColumn, width)
	for i, number := range a.numbers {
		column, element := &a.columns[i%width], types[number-1]
		if i < width {
			column.element, column.textual = element, textual[element]
		}
		if element != column.element || arrayTypes[element] == 0 {
			return nil
		}
	}
	return a
}

// allBinary says whether all values can be sent in binary form, as those of most drivers can, without looking at one.
func (a *rowArrays) allBinary(bind *wire.Bind) bool {
	width := len(a.columns)
	for i, number := range a.numbers {
		if !bind.IsBinary(number-1) && !a.columns[i%width].textual {
			return false
		}
	}
	for i := range a.columns {
		a.columns[i].binary = true
	}
	return true
}

// evenForms looks whether the values of each column are all in the same form. Nulls need the binary form.
func (s *session) evenForms(a *rowArrays, bind *wire.Bind) bool {
	unreadable := s.foreignEncoding && !s.readableEncoding() // a quote may be a part of another character
	width := len(a.columns)
	for i := range a.columns {
		a.columns[i] = arrayColumn{element: a.columns[i].element, textual: a.columns[i].textual}
	}
	for i, number := range a.numbers {
		_, isBinary, null := bind.Param(number - 1)
		column := &a.columns[i%width]
		isBinary = isBinary || column.textual
		switch {
		case null:
			column.nulls = true
		case column.seen && isBinary != column.binary || !isBinary && unreadable:
			return false
		default:
			column.seen, column.binary = true, isBinary
		}
	}
	for i := range a.columns {
		column := &a.columns[i]
		if column.binary = column.binary || !column.seen; column.nulls && !column.binary {
			return false
		}
	}
	return true
}

// make writes the text that all shards get.
func (a *rowArrays) make(found *rowText, src source) {
	arrays := make([]string, len(a.columns))
	a.run = &statement{planned: src.statement.planned}
	for i, column := range a.columns {
		arrays[i] = fmt.Sprintf("pg_catalog.unnest($%d)", i+1)
		a.run.oids = append(a.run.oids, arrayTypes[column.element])
	}
	a.source = " FROM ROWS FROM (" + strings.Join(arrays, ", ") + ")"
	rows := edit{start: found.values, end: found.rows[len(found.rows)-1].end, by: "SELECT *" + a.source}
	places := map[int]int{} // of the parameters that stand elsewhere
	var edits []edit
	for _, p := range found.params {
		if p.start > rows.start && p.end < rows.end {
			continue
		}
		if places[p.number] == 0 {
			a.outside = append(a.outside, p.number)
			a.run.oids = append(a.run.oids, a.types[p.number-1])
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

// atMoment is the statement that shards get with a moment in it, which stands outside of the rows, or in columns that are the same for all.
func (a *rowArrays) atMoment(found *rowText, m *momentEdits) *statement {
	if m == nil {
		return a.run
	}
	edits := slices.Clone(a.run.edits)
	at := slices.IndexFunc(edits, func(e edit) bool { return e.start == found.values })
	edits[at].by = "SELECT *" + m.values + a.source
	edits = weave(edits, m.edits)
	return &statement{planned: a.run.planned, oids: a.run.oids, edits: edits, text: string(applyEdits(found.text, edits))}
}

// parts are what the shards get, each the arrays of its rows' values. order has the shard of each row. Parameters are read in the order in
// which they came: looking for one that was passed already begins with the first.
func (a *rowArrays) parts(order []int, shards int, bind *wire.Bind, run *statement) []part {
	width := len(a.columns)
	arrays := make([]arrayWriter, shards*width)
	room := arrayHeader + 2*len(bind.Tail())/len(arrays)
	for i := range arrays {
		arrays[i].begin(a.columns[i%width], room)
	}
	for i, number := range a.numbers {
		value, _, null := bind.Param(number - 1)
		arrays[order[i/width]*width+i%width].add(value, null)
	}
	parts := make([]part, shards)
	for at := range parts {
		parts[at] = part{statement: run, edits: run.edits, data: a.tail(arrays[at*width:(at+1)*width], bind)}
	}
	return parts
}

// tail is what one shard's Bind message has behind the names.
func (a *rowArrays) tail(arrays []arrayWriter, bind *wire.Bind) []byte {
	formats, values := make([]int16, 0, len(arrays)+len(a.outside)), make([][]byte, 0, len(arrays)+len(a.outside))
	for i := range arrays {
		format := int16(0)
		if arrays[i].column.binary {
			format = 1
		}
		formats, values = append(formats, format), append(values, arrays[i].finish())
	}
	for _, number := range a.outside {
		value, format := boundParam(bind, number)
		formats, values = append(formats, format), append(values, value)
	}
	return bindTail(formats, values, resultFormats(bind))
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

// begin leaves room for so many bytes at first.
func (w *arrayWriter) begin(column arrayColumn, room int) {
	w.column, w.data = column, make([]byte, arrayHeader, room)
	if !column.binary {
		w.data = append(w.data[:0], '{')
	}
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
		w.addText(value)
	}
}

// addText adds a value in text form, in which there are no nulls.
func (w *arrayWriter) addText(value []byte) {
	if w.count > 1 {
		w.data = append(w.data, ',')
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
