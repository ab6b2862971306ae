package copydata

import "encoding/binary"

// Extend appends a row to dst with more values behind its last, as the server expects them if more columns are named behind those of the data. Each
// value is in the form of the data's kind, not written as such yet; nil is NULL. A row that has too few values stays as it is: the server says which is missing.
func (f *Format) Extend(dst, row []byte, values [][]byte) []byte {
	if f.kind == Binary {
		return f.extendBinary(dst, row, values)
	}
	end := len(row)
	if end > 0 && row[end-1] == '\n' {
		end--
	}
	if end > 0 && row[end-1] == '\r' {
		end--
	}
	if f.count(row[:end]) < f.columns {
		return append(dst, row...)
	}
	dst = append(dst, row[:end]...)
	return append(f.AppendValues(dst, values), row[end:]...)
}

// AppendValues appends what a line of text or CSV has behind its last value if it is extended.
func (f *Format) AppendValues(dst []byte, values [][]byte) []byte {
	for _, value := range values {
		dst = f.appendValue(append(dst, f.delimiter), value)
	}
	return dst
}

// extendBinary is Extend for a row of fields, each with its length before it.
func (f *Format) extendBinary(dst, row []byte, values [][]byte) []byte {
	const size = 2
	if len(row) < size || int(binary.BigEndian.Uint16(row)) != f.columns {
		return append(dst, row...)
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(f.columns+len(values)))
	dst = append(dst, row[size:]...)
	for _, value := range values {
		size := uint32(len(value))
		if value == nil {
			size = ^uint32(0)
		}
		dst = append(binary.BigEndian.AppendUint32(dst, size), value...)
	}
	return dst
}

// count is how many values a line has.
func (f *Format) count(line []byte) int {
	count, quoted := 1, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case f.kind == Text && c == '\\':
			i++
		case f.kind == CSV && quoted && c == f.escape && i+1 < len(line) && (line[i+1] == f.quote || line[i+1] == f.escape):
			i++
		case f.kind == CSV && c == f.quote:
			quoted = !quoted
		case c == f.delimiter && !quoted:
			count++
		}
	}
	return count
}

// Writes says whether a value can be written so that it is read as that value. In text, what the data has for NULL is NULL, however it is written.
func (f *Format) Writes(value []byte) bool {
	return value == nil || f.kind != Text || string(value) != f.null && (!f.hasDefault || string(value) != f.defaultMark)
}

// appendValue writes a value.
func (f *Format) appendValue(dst, value []byte) []byte {
	if value == nil {
		return append(dst, f.null...)
	}
	if f.kind == CSV {
		dst = append(dst, f.quote)
		for _, c := range value {
			if c == f.quote || c == f.escape {
				dst = append(dst, f.escape)
			}
			dst = append(dst, c)
		}
		return append(dst, f.quote)
	}
	for _, c := range value {
		switch c {
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case f.delimiter, '\\':
			dst = append(dst, '\\', c)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}
