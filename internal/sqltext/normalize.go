package sqltext

import (
	"bytes"

	"github.com/zeebo/xxh3"
)

// Normalized is a text's normal form and what was found on the way. It may be used again for another text, and keeps its
// buffers then.
type Normalized struct {
	// Text is the normal form: one space between tokens that had any separation, none at the ends, two bytes in the place
	// of every literal, of which the first is a NUL. All else is as it stands in the text.
	Text []byte
	// Literals are those that were taken out, in order. The string that belongs to a UESCAPE is not among them, since it
	// says what a name or another string means, nor is any [Number].
	Literals []Literal
	// Params is the greatest number of a parameter.
	Params int
	// Statements is how many there are, those that are empty not counted. It takes a grammar to be always right: a column
	// that has the label CASE or END, without AS, in the body of a routine is taken for the keyword.
	Statements int
	// FirstWord is what the first of them begins with.
	FirstWord FirstWord
}

// Fingerprint returns a hash of a normal form.
func Fingerprint(key []byte) uint64 { return xxh3.Hash(key) }

// marks is what stands for a literal in the normal form, after a NUL. Integers have theirs by type.
var marks = [...]byte{
	Float: 'f', String: 's', EscapeString: 'e', DollarString: 'd', UnicodeString: 'u', BitString: 'b', HexString: 'x',
	NationalString: 'c',
}

// Scan reads the text. StandardConforming is the session's setting standard_conforming_strings. If it returns an error then
// the text is unsound, PostgreSQL will refuse it, and n says nothing of it.
func (n *Normalized) Scan(text []byte, standardConforming bool) error {
	n.Text, n.Literals = n.Text[:0], n.Literals[:0]
	n.Params, n.Statements, n.FirstWord = 0, 0, NoWord
	if bytes.IndexByte(text, 0) >= 0 {
		return errNUL // or it could be taken for a literal's mark
	}
	l := lexer{text: text, standardConforming: standardConforming}
	var s splitter
	form, literals, params := n.Text, n.Literals, 0
	at := l.skip(0)
	copied, end := at, at // what is before copied is in the normal form already
	for at < len(text) {
		kind := Word
		if end = wordEnd(text, at); end < at+2 {
			kind, end = l.token(at)
		}
		switch {
		case kind == Unsound:
			return l.problem
		case kind == Param:
			params = max(params, paramNumber(text[at+1:end]))
		case kind.IsLiteral() && !s.names(kind):
			form = append(append(form, text[copied:at]...), 0, mark(kind, text[at:end]))
			literals = append(literals, Literal{Kind: kind, Start: at, End: end})
			copied = end
		}
		s.see(kind, text[at:end])
		if at = end; isOneBlank(text, at) {
			at++ // nearly always, and it stays as it is
		} else if at = l.skip(end); at != end && at < len(text) {
			form = append(append(form, text[copied:end]...), ' ')
			copied = at
		}
	}
	form = append(form, text[copied:end]...)
	n.Text, n.Literals = form, literals
	n.Params, n.Statements, n.FirstWord = params, s.statements, s.first
	return nil
}

// isOneBlank tells whether there is one space at i and no other separation after it.
func isOneBlank(text []byte, i int) bool {
	return i+1 < len(text) && text[i] == ' ' && class[text[i+1]]&mayBeBlank == 0
}

func mark(kind Kind, literal []byte) byte {
	if kind == Integer {
		return integerMark(literal)
	}
	return marks[kind]
}
