package session

import "bytes"

// arrayReader reads an array in PostgreSQL's text form: {1,2,"a b",NULL}. Whatever it does not know, such as bounds and inner
// arrays, it does not read.
type arrayReader struct {
	text []byte
	at   int
}

func (r *arrayReader) skipBlanks() {
	for r.at < len(r.text) && bytes.IndexByte([]byte(" \t\n\r\v\f"), r.text[r.at]) >= 0 {
		r.at++
	}
}

func (r *arrayReader) take(c byte) bool {
	r.skipBlanks()
	if r.at < len(r.text) && r.text[r.at] == c {
		r.at++
		return true
	}
	return false
}

// elements reads all of the array; not ok if it is in a form that is not known here.
func (r *arrayReader) elements() (elements []arrayElement, ok bool) {
	if !r.take('{') {
		return nil, false
	}
	if r.take('}') {
		return nil, r.onlyBlanks()
	}
	for {
		value, null, ok := r.element()
		if !ok {
			return nil, false
		}
		elements = append(elements, arrayElement{value, null})
		if r.take('}') {
			return elements, r.onlyBlanks()
		}
		if !r.take(',') {
			return nil, false
		}
	}
}

type arrayElement struct {
	value []byte
	null  bool
}

func (r *arrayReader) onlyBlanks() bool {
	r.skipBlanks()
	return r.at == len(r.text)
}

// element reads one element.
func (r *arrayReader) element() (value []byte, null, ok bool) {
	r.skipBlanks()
	if r.at < len(r.text) && r.text[r.at] == '"' {
		value, ok = r.quoted()
		return value, false, ok
	}
	start := r.at
	for r.at < len(r.text) && bytes.IndexByte([]byte(`,}{"\`), r.text[r.at]) < 0 {
		r.at++
	}
	if r.at == len(r.text) || bytes.IndexByte([]byte(`{"\`), r.text[r.at]) >= 0 {
		return nil, false, false
	}
	value = bytes.TrimRight(r.text[start:r.at], " \t\n\r\v\f")
	return value, bytes.EqualFold(value, []byte("NULL")), len(value) > 0
}

func (r *arrayReader) quoted() (value []byte, ok bool) {
	r.at++
	value = []byte{}
	for r.at < len(r.text) {
		switch c := r.text[r.at]; c {
		case '"':
			r.at++
			return value, true
		case '\\':
			if r.at++; r.at == len(r.text) {
				return nil, false
			}
			value = append(value, r.text[r.at])
		default:
			value = append(value, c)
		}
		r.at++
	}
	return nil, false
}
