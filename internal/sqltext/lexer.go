package sqltext

import (
	"bytes"
	"errors"
	"fmt"
	"math"
)

// lexer finds the tokens of one text.
type lexer struct {
	text               []byte
	standardConforming bool
	// national: the N of N'…' was the last token, so the string that comes now is a national one.
	national bool
	// problem is why the last token was unsound.
	problem error
}

// What a byte may begin or be part of.
const (
	isSpace uint8 = 1 << iota
	isDigit
	isWordStart
	isWordPart
	isOperator
	isTag      // of a dollar quote, after its first character
	mayBeBlank // white space, or a character that comments begin with
)

var class = func() (c [256]uint8) {
	for _, b := range []byte(" \t\n\r\f\v") {
		c[b] |= isSpace | mayBeBlank
	}
	for b := '0'; b <= '9'; b++ {
		c[b] |= isDigit | isWordPart | isTag
	}
	for b := range 256 {
		if lower := b | 0x20; b >= 0x80 || b == '_' || lower >= 'a' && lower <= 'z' && b >= 'A' {
			c[b] |= isWordStart | isWordPart | isTag
		}
	}
	c['$'] |= isWordPart
	c['-'] |= mayBeBlank
	c['/'] |= mayBeBlank
	for _, b := range []byte("~!@#^&|`?+-*/%<>=") {
		c[b] |= isOperator
	}
	return c
}()

// longestOperator is one less than PostgreSQL's NAMEDATALEN.
const longestOperator = 63

// longestRun bounds how many signs in a row are looked at: a run of + is as many operators, and each of them would have to
// look at all that follow.
const longestRun = 128

var (
	errComment      = errors.New("a /* comment does not end")
	errString       = errors.New("a quoted string does not end")
	errName         = errors.New("a quoted name does not end")
	errEmptyName    = errors.New("a quoted name is empty")
	errDollar       = errors.New("a dollar-quoted string does not end")
	errUnsafe       = errors.New("a string with Unicode escapes while standard_conforming_strings is off")
	errNumber       = errors.New("junk after a number")
	errParam        = errors.New("junk after a parameter")
	errParamNumber  = errors.New("a parameter's number is too large")
	errLongOperator = errors.New("an operator is too long")
	errNUL          = errors.New("read SQL: there is a NUL")
)

// at returns the byte there, or NUL at the end of the text, which occurs nowhere else.
func (l *lexer) at(i int) byte {
	if i < len(l.text) {
		return l.text[i]
	}
	return 0
}

func (l *lexer) is(i int, what uint8) bool {
	return i < len(l.text) && class[l.text[i]]&what != 0
}

func (l *lexer) unsound(at int, problem error) (Kind, int) {
	l.problem = fmt.Errorf("read SQL at byte %d: %w", at, problem)
	return Unsound, at
}

// skip returns where the first token at or after i begins, or where the text ends. A comment that does not end is left
// standing, for token to complain about.
func (l *lexer) skip(i int) int {
	if i < len(l.text) && class[l.text[i]]&mayBeBlank != 0 {
		return l.skipBlanks(i)
	}
	return i
}

func (l *lexer) skipBlanks(i int) int {
	for i < len(l.text) {
		switch c := l.text[i]; {
		case class[c]&isSpace != 0:
			i++
		case c == '-' && l.at(i+1) == '-':
			i = l.lineEnd(i + 2)
		case c == '/' && l.at(i+1) == '*':
			end := l.commentEnd(i)
			if end < 0 {
				return i
			}
			i = end
		default:
			return i
		}
	}
	return i
}

// lineEnd returns where the line ends, before its newline.
func (l *lexer) lineEnd(i int) int {
	for i < len(l.text) && l.text[i] != '\n' && l.text[i] != '\r' {
		i++
	}
	return i
}

// commentEnd returns where the comment at i and those nested in it end, or -1 if they do not.
func (l *lexer) commentEnd(i int) int {
	depth := 0
	for i < len(l.text) {
		switch {
		case l.text[i] == '/' && l.at(i+1) == '*':
			depth++
			i += 2
		case l.text[i] == '*' && l.at(i+1) == '/':
			depth--
			i += 2
			if depth == 0 {
				return i
			}
		default:
			i++
		}
	}
	return -1
}

// token returns the kind and the end of the token at start, where skip has found one.
func (l *lexer) token(start int) (Kind, int) {
	c := l.text[start]
	switch what := class[c]; {
	case what&isWordStart != 0:
		end := wordEnd(l.text, start)
		if end == start+1 && end < len(l.text) {
			return l.prefixed(start)
		}
		return Word, end
	case what&isDigit != 0:
		return l.number(start)
	case what&isOperator != 0:
		return l.operator(start)
	}
	switch c {
	case '\'':
		return l.plainString(start)
	case '"':
		return l.quotedWord(start, start)
	case '$':
		return l.dollar(start)
	case '.':
		if l.is(start+1, isDigit) {
			return l.number(start)
		}
		return l.pair(start, '.', 0)
	case ':':
		return l.pair(start, ':', '=')
	case ',', '(', ')', '[', ']', ';':
		return Punctuation, start + 1
	}
	return Other, start + 1
}

// wordEnd returns where the word at i ends, or i if there is none.
func wordEnd(text []byte, i int) int {
	if class[text[i]]&isWordStart == 0 {
		return i
	}
	for i++; i < len(text) && class[text[i]]&isWordPart != 0; i++ {
	}
	return i
}

// pair returns a punctuation of two characters if one of the given follows, else of one.
func (l *lexer) pair(start int, second, orSecond byte) (Kind, int) {
	if next := l.at(start + 1); next != 0 && (next == second || next == orSecond) {
		return Punctuation, start + 2
	}
	return Punctuation, start + 1
}

// prefixed reads what begins with a word of one letter, which may say what kind of quotes follow.
func (l *lexer) prefixed(start int) (Kind, int) {
	letter, next := l.text[start]|0x20, l.text[start+1]
	if next == '&' && letter == 'u' {
		return l.unicode(start)
	}
	if next != '\'' {
		return Word, start + 1
	}
	switch letter {
	case 'e':
		_, end := l.escapedString(start + 1)
		return l.ended(EscapeString, start, end)
	case 'b':
		return l.ended(BitString, start, l.digitString(start+1))
	case 'x':
		return l.ended(HexString, start, l.digitString(start+1))
	case 'n':
		l.national = true
	}
	return Word, start + 1
}

func (l *lexer) unicode(start int) (Kind, int) {
	switch l.at(start + 2) {
	case '"':
		return l.quotedWord(start, start+2)
	case '\'':
		if !l.standardConforming {
			return l.unsound(start, errUnsafe)
		}
		return l.ended(UnicodeString, start, l.standardString(start+2))
	}
	return Word, start + 1
}

// ended makes a string that does not end, which has a negative end, unsound.
func (l *lexer) ended(kind Kind, start, end int) (Kind, int) {
	if end < 0 {
		return l.unsound(start, errString)
	}
	return kind, end
}

// plainString reads a string without a prefix.
func (l *lexer) plainString(start int) (Kind, int) {
	kind, end := l.unprefixed(start)
	if l.national {
		kind, l.national = NationalString, false
	}
	return l.ended(kind, start, end)
}

func (l *lexer) unprefixed(start int) (Kind, int) {
	if l.standardConforming {
		return String, l.standardString(start)
	}
	escapes, end := l.escapedString(start)
	if escapes {
		return EscapeString, end
	}
	return String, end
}

// standardString returns the end of a string whose first quote is at i, in which only a quote is doubled; -1 if there is none.
func (l *lexer) standardString(i int) int {
	for {
		length := bytes.IndexByte(l.text[i+1:], '\'')
		if length < 0 {
			return -1
		}
		i += length + 2
		if l.at(i) == '\'' {
			continue
		}
		next := l.continuation(i)
		if next < 0 {
			return i
		}
		i = next
	}
}

// escapedString returns the end of a string whose first quote is at i, in which a backslash takes the next character's
// meaning, and whether there is one.
func (l *lexer) escapedString(i int) (escapes bool, end int) {
	for i++; i < len(l.text); i++ {
		switch l.text[i] {
		case '\\':
			escapes = true
			i++
		case '\'':
			if l.at(i+1) == '\'' {
				i++
				continue
			}
			next := l.continuation(i + 1)
			if next < 0 {
				return escapes, i + 1
			}
			i = next
		}
	}
	return escapes, -1
}

// digitString returns the end of a string whose first quote is at i, in which no quote can be.
func (l *lexer) digitString(i int) int {
	for {
		length := bytes.IndexByte(l.text[i+1:], '\'')
		if length < 0 {
			return -1
		}
		end := i + length + 2
		if i = l.continuation(end); i < 0 {
			return end
		}
	}
}

// continuation returns the quote with which a string that ended at i goes on, -1 if it does not: strings with nothing but
// white space and at least one newline between them are one.
func (l *lexer) continuation(i int) int {
	newline := false
	for i < len(l.text) {
		switch c := l.text[i]; {
		case c == '\n' || c == '\r':
			newline = true
			i++
		case class[c]&isSpace != 0:
			i++
		case c == '-' && l.at(i+1) == '-':
			i = l.lineEnd(i + 2)
		case c == '\'' && newline:
			return i
		default:
			return -1
		}
	}
	return -1
}

func (l *lexer) quotedWord(start, quote int) (Kind, int) {
	if l.at(quote+1) == '"' && l.at(quote+2) != '"' {
		return l.unsound(start, errEmptyName)
	}
	for i := quote + 1; ; i += 2 {
		length := bytes.IndexByte(l.text[min(i, len(l.text)):], '"')
		if length < 0 {
			return l.unsound(start, errName)
		}
		i += length
		if l.at(i+1) != '"' {
			return QuotedWord, i + 1
		}
	}
}

// dollar reads a parameter, a dollar-quoted string, or a lone dollar.
func (l *lexer) dollar(start int) (Kind, int) {
	if l.is(start+1, isDigit) {
		return l.param(start)
	}
	tag := start + 1
	if l.is(tag, isWordStart) {
		for l.is(tag, isTag) {
			tag++
		}
	}
	if l.at(tag) != '$' {
		return Other, start + 1
	}
	delimiter := l.text[start : tag+1]
	length := bytes.Index(l.text[tag+1:], delimiter)
	if length < 0 {
		return l.unsound(start, errDollar)
	}
	return DollarString, tag + 1 + length + len(delimiter)
}

func (l *lexer) param(start int) (Kind, int) {
	end := l.digits(start + 1)
	if l.is(end, isWordStart) {
		return l.unsound(start, errParam)
	}
	if paramNumber(l.text[start+1:end]) > math.MaxInt32 {
		return l.unsound(start, errParamNumber)
	}
	return Param, end
}

// paramNumber returns the number, or one that is too large.
func paramNumber(digits []byte) int {
	n := 0
	for _, d := range digits {
		if n = n*10 + int(d-'0'); n > math.MaxInt32 {
			break
		}
	}
	return n
}

func (l *lexer) digits(i int) int {
	for l.is(i, isDigit) {
		i++
	}
	return i
}

// operator reads a run of operator characters: up to where a comment begins, and without a trailing + or - unless one of
// those characters is there that SQL itself has no operators of. So =-1 is = and -1.
func (l *lexer) operator(start int) (Kind, int) {
	if !l.is(start+1, isOperator) {
		return Operator, start + 1 // nearly always
	}
	if l.text[start] == '/' && l.text[start+1] == '*' {
		return l.unsound(start, errComment)
	}
	end, beyondSQL := start, false
	for ; l.is(end, isOperator); end++ {
		switch l.text[end] {
		case '~', '!', '@', '#', '^', '&', '|', '`', '?', '%':
			beyondSQL = true
		}
		if end > start && l.beginsComment(end) {
			break
		}
	}
	if end-start > longestRun {
		return l.unsound(start, errLongOperator)
	}
	for !beyondSQL && end > start+1 && (l.text[end-1] == '+' || l.text[end-1] == '-') {
		end--
	}
	if end-start > longestOperator {
		return l.unsound(start, errLongOperator)
	}
	return Operator, end
}

func (l *lexer) beginsComment(i int) bool {
	return l.text[i] == '-' && l.at(i+1) == '-' || l.text[i] == '/' && l.at(i+1) == '*'
}
