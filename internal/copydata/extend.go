package copydata

import "encoding/binary"

// Extend appends a row to dst with more values behind its last, as the server expects them if more columns are named behind those of the data. Each
// value is in the form of the data's kind, not written as such yet. A row that has too few values stays as it is: the server says which is missing.
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
		dst = append(binary.BigEndian.AppendUint32(dst, uint32(len(value))), value...)
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

// appendValue writes a value that has no line break in it.
func (f *Format) appendValue(dst, value []byte) []byte {
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
		if c == f.delimiter || c == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, c)
	}
	return dst
}
