package sqltext

import "bytes"

// splitter counts the statements of a text while its tokens go by. A semicolon ends one, unless it stands in parentheses, as
// between the actions of a rule, or in a routine's body between BEGIN ATOMIC and END.
type splitter struct {
	statements int
	first      FirstWord
	begun      bool // the statement has a token
	parens     int
	// watching: this statement has something in it that makes words matter which otherwise do not.
	watching bool
	routine  routine
	last     lastToken
}

// lastToken is what the token before was, as far as it matters to the next.
type lastToken uint8

const (
	irrelevant lastToken = iota
	uescape              // the word UESCAPE: the next string belongs to a name
	label                // the word AS, or a dot: the next word is a name whatever it says
)

// see takes the next token. Most of them say nothing but that there is a statement.
func (s *splitter) see(kind Kind, token []byte) {
	const always = 1<<Punctuation | 1<<QuotedWord | 1<<UnicodeString
	if !s.begun || s.watching || always>>kind&1 != 0 {
		s.seeClosely(kind, token)
	}
}

func (s *splitter) seeClosely(kind Kind, token []byte) {
	if kind == Punctuation && token[0] == ';' && s.parens == 0 && s.routine.depth == 0 {
		*s = splitter{statements: s.statements, first: s.first}
		return
	}
	if !s.begun {
		s.begin(kind, token)
		if kind == Word {
			return
		}
	}
	last := s.last
	s.last = irrelevant
	switch kind {
	case Punctuation:
		s.punctuation(token[0])
	case QuotedWord, UnicodeString:
		s.watching = true
	case Word:
		if s.watching {
			s.word(token, last)
		}
	default:
	}
}

// begin takes the first token of a statement.
func (s *splitter) begin(kind Kind, token []byte) {
	s.begun = true
	s.statements++
	if kind != Word {
		return
	}
	first := firstWordOf(token)
	if s.statements == 1 {
		s.first = first
	}
	if first == Create {
		s.watching, s.routine.state = true, afterCreate
	}
}

func (s *splitter) punctuation(c byte) {
	switch c {
	case '(':
		s.parens++
	case ')':
		s.parens = max(s.parens-1, 0)
	case '.':
		s.last = label
	}
}

func (s *splitter) word(word []byte, last lastToken) {
	switch {
	case isWord(word, "as"):
		s.last = label
	case isWord(word, "uescape"):
		s.last = uescape
	}
	if s.parens == 0 && last != label {
		s.routine.word(word)
	}
}

// names tells, before it is seen, whether a token is a string after UESCAPE and so a part of a name.
func (s *splitter) names(kind Kind) bool { return s.last == uescape && kind.isString() }

// routine follows a statement that may be CREATE FUNCTION or CREATE PROCEDURE with a body of statements.
type routine struct {
	state routineState
	// depth counts what END will close: the body, and every CASE in it.
	depth int
}

type routineState uint8

const (
	noRoutine   routineState = iota
	afterCreate              // CREATE, OR and REPLACE were seen
	inRoutine                // FUNCTION or PROCEDURE was seen
	afterBegin               // BEGIN was the last word
	inBody                   // BEGIN ATOMIC was seen
)

func (r *routine) word(word []byte) {
	switch r.state {
	case noRoutine:
	case afterCreate:
		switch {
		case isWord(word, "function"), isWord(word, "procedure"):
			r.state = inRoutine
		case !isWord(word, "or") && !isWord(word, "replace"):
			r.state = noRoutine
		}
	case inRoutine:
		if isWord(word, "begin") {
			r.state = afterBegin
		}
	case afterBegin:
		r.state = inRoutine
		if isWord(word, "atomic") {
			r.state, r.depth = inBody, 1
		}
	case inBody:
		switch {
		case isWord(word, "case"):
			r.depth++
		case isWord(word, "end"):
			r.depth = max(r.depth-1, 0)
		}
	}
}

// isWord compares a word without quotes with one in lower case letters.
func isWord(word []byte, lower string) bool {
	return len(word) == len(lower) && word[0]|0x20 == lower[0] && bytes.EqualFold(word, []byte(lower))
}
