package copydata

import (
	"bytes"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// findFields finds the columns of the keys in a line without its newline, and says whether it has as many columns as it should.
func (s *Splitter) findFields(line []byte) bool {
	switch {
	case !s.row.special:
		return s.plainFields(line)
	case s.format.kind == Text:
		return s.escapedFields(line)
	default:
		return s.quotedFields(line)
	}
}

// plainFields is for lines in which every delimiter is one.
func (s *Splitter) plainFields(line []byte) bool {
	if bytes.Count(line, []byte{s.format.delimiter})+1 != s.format.columns {
		return false
	}
	column, from := 0, 0
	for i, key := range s.byKey {
		for ; column < s.config.Keys[key]; column++ {
			from += bytes.IndexByte(line[from:], s.format.delimiter) + 1
		}
		to := len(line)
		if column < s.format.columns-1 {
			to = from + bytes.IndexByte(line[from:], s.format.delimiter)
		}
		s.spans[i] = span{from, to}
	}
	return true
}

// escapedFields is for text with backslashes.
func (s *Splitter) escapedFields(line []byte) bool {
	fields := fieldNoter{s: s}
	special := &s.specials
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case !special[c]:
		case c == '\\':
			i++
		default:
			fields.note(i)
		}
	}
	return fields.end(len(line))
}

// quotedFields is for CSV with quotes.
func (s *Splitter) quotedFields(line []byte) bool {
	fields := fieldNoter{s: s}
	special, inside := &s.specials, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case !special[c]:
		case inside && c == s.format.escape && s.escaped(line, i):
			i++
		case c == s.format.quote:
			inside = !inside
		case c == s.format.delimiter && !inside:
			fields.note(i)
		}
	}
	return fields.end(len(line)) && !inside
}

// escaped says whether the escape at this place inside of quotes has something to escape.
func (s *Splitter) escaped(text []byte, at int) bool {
	return at+1 < len(text) && (text[at+1] == s.format.quote || text[at+1] == s.format.escape)
}

// fieldNoter is told where fields end and notes those of the keys.
type fieldNoter struct {
	s                 *Splitter
	column, key, from int
}

func (f *fieldNoter) note(end int) {
	for f.key < len(f.s.byKey) && f.s.config.Keys[f.s.byKey[f.key]] == f.column {
		f.s.spans[f.key] = span{f.from, end}
		f.key++
	}
	f.column++
	f.from = end + 1
}

func (f *fieldNoter) end(at int) bool {
	f.note(at)
	return f.column == f.s.format.columns
}

// decode reads the keys' values of the line that begins at start.
func (s *Splitter) decode() error {
	s.decoded = s.decoded[:0]
	for i, key := range s.byKey {
		field := s.data[s.start:][s.spans[i].from:s.spans[i].to:s.spans[i].to]
		var err error
		if s.format.kind == CSV {
			s.values[key] = s.csvValue(field, s.config.Keys[key])
		} else {
			s.values[key], err = s.textValue(field)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// marked returns the value of a field that is one of the marks. They are compared with what was sent, before anything is
// resolved.
func (s *Splitter) marked(field []byte) (Value, bool) {
	switch {
	case string(field) == s.format.null:
		return Value{Null: true}, true
	case s.format.hasDefault && string(field) == s.format.defaultMark:
		return Value{Default: true}, true
	default:
		return Value{}, false
	}
}

func (s *Splitter) textValue(field []byte) (Value, error) {
	backslash := -1
	if s.row.special {
		if endsInBackslash(field) {
			field = field[:len(field)-1] // the data has ended before what it escapes, and PostgreSQL drops it
		}
		backslash = bytes.IndexByte(field, '\\')
	}
	if value, is := s.marked(field); is {
		return value, nil
	}
	if backslash < 0 {
		return Value{Bytes: field}, nil
	}
	return s.unescape(field, backslash)
}

// endsInBackslash says whether the last character is a backslash that escapes nothing.
func endsInBackslash(field []byte) bool {
	count := 0
	for count < len(field) && field[len(field)-1-count] == '\\' {
		count++
	}
	return count%2 == 1
}

// unescape resolves backslashes, of which this is the first.
func (s *Splitter) unescape(field []byte, first int) (Value, error) {
	begin := len(s.decoded)
	s.decoded = append(s.decoded, field[:first]...)
	for i := first; i < len(field); {
		if field[i] != '\\' {
			s.decoded = append(s.decoded, field[i])
			i++
			continue
		}
		c, length, numeric := resolve(field[i+1:])
		if numeric && c >= 0x80 && s.format.foreignEscapes() {
			return Value{}, s.foreignEscape(field[i : i+1+length])
		}
		s.decoded = append(s.decoded, c)
		i += 1 + length
	}
	return Value{Bytes: s.decoded[begin:len(s.decoded):len(s.decoded)]}, nil
}

// resolve returns the byte that an escape stands for, of which the backslash is gone, how long it is, and whether it is a number.
func resolve(escape []byte) (c byte, length int, numeric bool) {
	switch c = escape[0]; {
	case c >= '0' && c <= '7':
		value, length := number(escape, 3, 8)
		return value, length, true
	case c == 'x' && len(escape) > 1 && digit(escape[1]) < 16:
		value, length := number(escape[1:], 2, 16)
		return value, 1 + length, true
	default:
		return single(c), 1, false
	}
}

func single(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'v':
		return '\v'
	default:
		return c
	}
}

// number reads up to that many digits; what does not fit into a byte is cut off, as PostgreSQL does it.
func number(text []byte, most int, base byte) (value byte, length int) {
	for length < most && length < len(text) && digit(text[length]) < base {
		value = value*base + digit(text[length])
		length++
	}
	return value, length
}

// digit is a hexadecimal digit's value, and more than any for other characters.
func digit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	default:
		return 0xff
	}
}

// foreignEscape: the escape is a byte in the shard's encoding, amid text in the client's.
func (s *Splitter) foreignEscape(escape []byte) error {
	return pgerr.New(pgerr.FeatureNotSupported, "the escape %q in a shard key is not supported with data in encoding %q", escape, s.format.encoding).
		WithDetail("It stands for a byte in the encoding of the shards, which is another; it is in line %d of the data.", s.line).
		WithHint("Write the character itself, or send the data in UTF8.")
}

func (s *Splitter) csvValue(field []byte, column int) Value {
	f := s.format
	if !s.row.special || bytes.IndexByte(field, f.quote) < 0 {
		value, is := s.marked(field)
		switch {
		case !is:
			return Value{Bytes: field}
		case value.Null && f.forceNotNull != nil && f.forceNotNull[column]:
			return Value{Bytes: field}
		default:
			return value
		}
	}
	content := s.unquote(field)
	if f.forceNull != nil && f.forceNull[column] && string(content) == f.null {
		return Value{Null: true}
	}
	return Value{Bytes: content}
}

// unquote resolves quotes and escapes.
func (s *Splitter) unquote(field []byte) []byte {
	quote, escape := s.format.quote, s.format.escape
	if last := len(field) - 1; field[0] == quote && field[last] == quote && last > 0 {
		content := field[1:last:last]
		if bytes.IndexByte(content, quote) < 0 && (escape == quote || bytes.IndexByte(content, escape) < 0) {
			return content
		}
	}
	begin, inside := len(s.decoded), false
	for i := 0; i < len(field); i++ {
		switch c := field[i]; {
		case inside && c == escape && s.escaped(field, i):
			i++
			s.decoded = append(s.decoded, field[i])
		case c == quote:
			inside = !inside
		default:
			s.decoded = append(s.decoded, c)
		}
	}
	return s.decoded[begin:len(s.decoded):len(s.decoded)]
}
