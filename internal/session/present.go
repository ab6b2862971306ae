package session

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/wire"
)

// keptColumn is a column of rows that the session keeps for longer than one answer: whoever fetches them may want them as text or in binary format, whatever
// was wanted before. Values are kept in binary format, which no setting of the session changes; those of types whose values carry numbers of types, or that have
// no such format, as text.
type keptColumn struct {
	oid    uint32
	binary bool
}

// format is the one in which its values are kept.
func (c keptColumn) format() int16 {
	if c.binary {
		return wire.FormatBinary
	}
	return wire.FormatText
}

// keptFormats are those of all columns.
func keptFormats(columns []keptColumn) []int16 {
	formats := make([]int16, len(columns))
	for i, c := range columns {
		formats[i] = c.format()
	}
	return formats
}

// Types whose binary format the session can write as text.
const (
	nameOID, int8OID, int2OID, int4OID, jsonOID, xmlOID  = 19, 20, 21, 23, 114, 142
	unknownOID, bpcharOID, varcharOID, uuidOID, jsonbOID = 705, 1042, 1043, 2950, 3802
)

// looksAlike are types whose values are the same in both formats.
var looksAlike = []uint32{nameOID, textOID, jsonOID, xmlOID, unknownOID, bpcharOID, varcharOID}

// asText writes a value in binary format as text; false if that is for a server to do.
func asText(oid uint32, value []byte) ([]byte, bool) {
	switch {
	case slices.Contains(looksAlike, oid):
		return value, true
	case oid == boolOID && len(value) == 1:
		return []byte(map[bool]string{true: "t", false: "f"}[value[0] != 0]), true
	case oid == int2OID && len(value) == 2:
		return strconv.AppendInt(nil, int64(int16(binary.BigEndian.Uint16(value))), 10), true
	case oid == int4OID && len(value) == 4:
		return strconv.AppendInt(nil, int64(int32(binary.BigEndian.Uint32(value))), 10), true
	case oid == int8OID && len(value) == 8:
		return strconv.AppendInt(nil, int64(binary.BigEndian.Uint64(value)), 10), true
	case oid == uuidOID && len(value) == 16:
		h := hex.EncodeToString(value)
		return []byte(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]), true
	case oid == jsonbOID && len(value) > 0 && value[0] == 1: // the version
		return value[1:], true
	}
	return nil, false
}

// isEasy says whether the session can write values of a type as text.
func isEasy(oid uint32) bool {
	return slices.Contains(looksAlike, oid) || slices.Contains([]uint32{boolOID, int2OID, int4OID, int8OID, uuidOID, jsonbOID}, oid)
}

// ofOutput are the parameters that say how a value is written as text.
var ofOutput = []string{"datestyle", "intervalstyle", "timezone", "extra_float_digits", "bytea_output", "lc_monetary", "xmlbinary", "search_path"}

// writtenUnder is what settings there are now that change texts which the session keeps; the encoding changes all of them.
func (s *session) writtenUnder(columns []keptColumn) string {
	now := s.effective()
	var under strings.Builder
	names := []string{"client_encoding"}
	if slices.ContainsFunc(columns, func(c keptColumn) bool { return !c.binary }) {
		names = append(names, ofOutput...)
	}
	for _, name := range names {
		e, _ := now.find(name)
		under.WriteString(e.sql + "\x00")
	}
	return under.String()
}

var writtenOtherwise = pgerr.New(pgerr.FeatureNotSupported, "the cursor was declared under other settings").
	WithDetail("The router keeps its rows, which need several shards, and some of their values as texts that were written under other settings: client_encoding, DateStyle, TimeZone and their like.").
	WithHint("Change settings before the cursor is declared.")

// presenting gives rows of a cursor to somebody, in the formats that are wanted.
type presenting struct {
	s       *session
	c       *cursor
	formats []int16
	to      rowTaker
	// asked are the columns that a server has to write in another format.
	asked []int
	// refused is why no more rows are given.
	refused *pgerr.Error
	fields  [][]byte // scratch
	row     []byte   // scratch
}

// presentingOf is for a cursor whose rows can be given in the formats that are wanted.
func (s *session) presentingOf(c *cursor, formats []int16, to rowTaker) (*presenting, *pgerr.Error) {
	if c.written != s.writtenUnder(c.columns) {
		return nil, writtenOtherwise
	}
	p := &presenting{s: s, c: c, formats: formats, to: to}
	for i, column := range c.columns {
		switch wanted := formatOf(formats, i); {
		case wanted == column.format(), slices.Contains(looksAlike, column.oid):
		case wanted == wire.FormatText && isEasy(column.oid):
		case column.oid == recordOID || column.oid == recordArrayOID:
			return nil, pgerr.New(pgerr.FeatureNotSupported, "rows as values are not supported in binary format from a cursor over several shards").
				WithDetail("The router keeps them as text, which no server reads back.").WithHint("Fetch them in text format, or cast them to a type.")
		default:
			p.asked = append(p.asked, i)
		}
	}
	return p, nil
}

// rows gives rows.
func (p *presenting) rows(rows passage) *pgerr.Error {
	if len(p.asked) > 0 && rows.count > 0 {
		a, refused := p.s.askShard(p.s.home(), func() (answer, error) { return p.withServer(rows) })
		switch {
		case refused != nil:
			return refused
		case a.failure != nil:
			return withoutPlace(a).failure.PGError()
		}
		return p.refused
	}
	for n := range rows.count {
		row, refused := p.c.rows.get(rows.at(n))
		if refused == nil {
			refused = p.give(row, nil)
		}
		if refused != nil {
			return refused
		}
	}
	return nil
}

// give gives one row; written are the values that a server has written, with their lengths before them.
func (p *presenting) give(row []byte, written [][]byte) *pgerr.Error {
	fields, ok := splitRow(row, p.fields[:0])
	if p.fields = fields; !ok || len(fields) != len(p.c.columns) {
		return badRow
	}
	p.row = binary.BigEndian.AppendUint16(p.row[:0], uint16(len(fields)))
	next := 0
	for i, field := range fields {
		column := p.c.columns[i]
		switch {
		case next < len(p.asked) && p.asked[next] == i:
			p.row = append(p.row, written[next]...)
			next++
		case formatOf(p.formats, i) == column.format() || isNullField(field):
			p.row = append(p.row, field...)
		default:
			text, ok := asText(column.oid, field[4:])
			if !ok && !slices.Contains(looksAlike, column.oid) {
				return badRow
			}
			p.row = append(binary.BigEndian.AppendUint32(p.row, uint32(len(text))), text...)
		}
	}
	return p.to.take(p.row)
}

// isNullField says whether a field, with its length before it, is NULL.
func isNullField(field []byte) bool { return int32(binary.BigEndian.Uint32(field)) < 0 }

// withServer has the attached backend write values in the formats that are wanted: it is given each row's as parameters, and gives them back. Some rows
// at a time, so that neither side waits for the other to read.
func (p *presenting) withServer(rows passage) (answer, error) {
	out := p.parse()
	var batch [][]byte
	for n := int64(0); n < rows.count && p.refused == nil; n++ {
		row, refused := p.c.rows.get(rows.at(n))
		if refused != nil {
			p.refused = refused
			break
		}
		row = slices.Clone(row)
		batch = append(batch, row)
		if out = p.bind(out, row); len(out) < relayBuffer && n+1 < rows.count {
			continue
		}
		if a, err := p.exchange(wire.AppendSync(out), batch); err != nil || a.failure != nil {
			return a, err
		}
		out, batch = out[:0], batch[:0]
	}
	return answer{}, nil
}

// parse prepares the statement that gives its parameters back.
func (p *presenting) parse() []byte {
	var params []string
	var oids []uint32
	for i, column := range p.asked {
		params, oids = append(params, "$"+strconv.Itoa(i+1)), append(oids, p.c.columns[column].oid)
	}
	return wire.AppendParse(nil, "", "SELECT "+strings.Join(params, ", "), p.s.numbering().declared(oids))
}

// bind runs it for a row.
func (p *presenting) bind(out, row []byte) []byte {
	p.fields, _ = splitRow(row, p.fields[:0]) // what is wrong with it is found when it is given
	var given, wanted []int16
	var values [][]byte
	for _, i := range p.asked {
		var value []byte
		if i < len(p.fields) && !isNullField(p.fields[i]) {
			value = append([]byte{}, p.fields[i][4:]...)
		}
		given, wanted, values = append(given, p.c.columns[i].format()), append(wanted, formatOf(p.formats, i)), append(values, value)
	}
	return wire.AppendExecute(wire.AppendBind(out, "", "", given, values, wanted), "", 0)
}

// exchange sends messages that run the statement for some rows, and gives these with what is answered.
func (p *presenting) exchange(messages []byte, batch [][]byte) (answer, error) {
	s := p.s
	s.state.unnamed = nil
	s.beginWait(time.Now())
	if _, err := s.backend.Conn().Write(messages); err != nil {
		return answer{}, fmt.Errorf("write to shard %q: %w", s.backend.ShardName(), err)
	}
	var a answer
	r := &messageReader{backend: s.backend, buffer: make([]byte, 2*relayBuffer)}
	for {
		kind, message, err := r.next()
		if err != nil {
			return answer{}, err
		}
		switch kind {
		case wire.RespDataRow:
			if p.refused == nil {
				p.refused = p.giveWritten(&batch, wire.Body(message))
			}
		case wire.RespReadyForQuery:
			if a.status, err = wire.DecodeReadyForQuery(wire.Body(message)); err == nil {
				err = s.hearRest(&a, r)
			}
			return a, err
		default:
			if err := s.note(&a, kind, message); err != nil {
				return answer{}, err
			}
		}
	}
}

// giveWritten gives the next row of a batch.
func (p *presenting) giveWritten(batch *[][]byte, answered []byte) *pgerr.Error {
	written, ok := splitRow(answered, nil)
	if !ok || len(written) != len(p.asked) || len(*batch) == 0 {
		return badRow
	}
	row := (*batch)[0]
	*batch = (*batch)[1:]
	return p.give(row, written)
}
