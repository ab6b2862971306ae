package sqltext

import "bytes"

// Value returns what literal i of the text stands for: a number's digits, a string's characters. It is not ok for the kinds
// that need PostgreSQL to be understood: escapes, Unicode escapes, bits, and national strings. Text must be the text that was
// scanned. The value stays as long as the text does not change.
func (n *Normalized) Value(text []byte, i int) (value []byte, ok bool) {
	if i >= len(n.Literals) || n.Literals[i].End > len(text) {
		return nil, false
	}
	literal := n.Literals[i]
	quoted := text[literal.Start:literal.End]
	switch literal.Kind {
	case Integer, Float:
		return quoted, true
	case String:
		inner := quoted[1 : len(quoted)-1]
		if bytes.IndexByte(inner, '\'') < 0 {
			return inner, true
		}
		return unquoted(quoted), true
	case DollarString:
		delimiter := 2 + bytes.IndexByte(quoted[1:], '$')
		return quoted[delimiter : len(quoted)-delimiter], true
	default:
		return nil, false
	}
}

// unquoted undoes doubled quotes, and joins the parts of a string that goes on after a newline. It does not write into a buffer
// that lasts: the values of several literals, of several texts, are in use at once.
func unquoted(quoted []byte) []byte {
	value := make([]byte, 0, len(quoted))
	l := lexer{text: quoted}
	for i := 1; i < len(quoted); {
		length := bytes.IndexByte(quoted[i:], '\'')
		value = append(value, quoted[i:i+length]...)
		i += length + 1
		if l.at(i) == '\'' {
			value = append(value, '\'')
			i++
			continue
		}
		next := l.continuation(i)
		if next < 0 {
			break
		}
		i = next + 1
	}
	return value
}
