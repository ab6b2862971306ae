package sqltext

import "bytes"

// Value returns what literal i of the text stands for: a number's digits, a string's characters. It is not ok for the kinds
// that need PostgreSQL to be understood: escapes, Unicode escapes, bits, and national strings. Text must be the text that was
// scanned. The value is valid until the next Scan, as long as the text does not change.
func (n *Normalized) Value(text []byte, i int) (value []byte, ok bool) {
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
		return n.unquoted(quoted), true
	case DollarString:
		delimiter := 2 + bytes.IndexByte(quoted[1:], '$')
		return quoted[delimiter : len(quoted)-delimiter], true
	default:
		return nil, false
	}
}

// unquoted undoes doubled quotes, and joins the parts of a string that goes on after a newline. It adds to the scratch buffer,
// so that the values of earlier literals stay.
func (n *Normalized) unquoted(quoted []byte) []byte {
	begin := len(n.scratch)
	l := lexer{text: quoted}
	for i := 1; i < len(quoted); {
		length := bytes.IndexByte(quoted[i:], '\'')
		n.scratch = append(n.scratch, quoted[i:i+length]...)
		i += length + 1
		if l.at(i) == '\'' {
			n.scratch = append(n.scratch, '\'')
			i++
			continue
		}
		next := l.continuation(i)
		if next < 0 {
			break
		}
		i = next + 1
	}
	return n.scratch[begin:]
}
