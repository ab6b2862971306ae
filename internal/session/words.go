package session

import (
	"strings"

	"github.com/cleavedb/cleave/internal/sqltext"
)

// timeWords are the words of the grammar for the current time, with their types; timeCalls are functions that tell the same, written with parentheses.
var (
	timeWords = map[string]string{
		"current_date": "date", "current_time": "timetz", "current_timestamp": "timestamptz", "localtime": "time", "localtimestamp": "timestamp",
	}
	timeCalls = map[string]bool{"now": true, "transaction_timestamp": true}
)

// longestTimeWord is the length of the longest of them, maxPrecision how many digits of a second PostgreSQL has.
const (
	longestTimeWord = len("transaction_timestamp")
	maxPrecision    = 6
)

// tokenText is a text with its tokens.
type tokenText struct {
	text   []byte
	tokens []sqltext.Token
}

// is says whether a token of the text is that word or sign.
func (t *tokenText) is(at int, word string) bool {
	return at >= 0 && at < len(t.tokens) && strings.EqualFold(string(t.text[t.tokens[at].Start:t.tokens[at].End]), word)
}

// momentWords are the edits that put a moment in the place of the current time in a text. They may be too many or too few, as where a word is a label: who knows how many there are has to
// compare. Sound: the text could be read.
func momentWords(text []byte, standardConforming bool, moment string) (edits []edit, sound bool) {
	t := tokenText{text: text}
	scanner := sqltext.NewScanner(text, standardConforming)
	for token, more := scanner.Next(); more; token, more = scanner.Next() {
		t.tokens = append(t.tokens, token)
	}
	for i, token := range t.tokens {
		word := text[token.Start:token.End]
		if token.Kind != sqltext.Word || len(word) > longestTimeWord {
			continue
		}
		lower := strings.ToLower(string(word))
		switch of, isWord := timeWords[lower]; {
		case isWord && !t.is(i-1, ".") && !t.is(i-1, "as"):
			edits = append(edits, t.word(i, of, moment))
		case timeCalls[lower] && t.is(i+1, "(") && t.is(i+2, ")"):
			if start := t.callStart(i); start >= 0 {
				edits = append(edits, edit{start: start, end: t.tokens[i+2].End, by: momentOf(moment, "timestamptz", "")})
			}
		}
	}
	return edits, scanner.Err() == nil
}

// word is the edit for a word of the grammar, and the precision behind it.
func (t *tokenText) word(at int, of, moment string) edit {
	e := edit{start: t.tokens[at].Start, end: t.tokens[at].End}
	precision := ""
	if of != "date" && t.is(at+1, "(") && at+2 < len(t.tokens) && t.tokens[at+2].Kind == sqltext.Integer && t.is(at+3, ")") {
		digits := string(t.text[t.tokens[at+2].Start:t.tokens[at+2].End])
		if e.end = t.tokens[at+3].End; len(digits) == 1 && digits[0]-'0' <= maxPrecision { // more than there are is all
			precision = "(" + digits + ")"
		}
	}
	e.by = momentOf(moment, of, precision)
	return e
}

// callStart is where the call of a function begins, with its schema if it is PostgreSQL's own; below 0 if it is in another one.
func (t *tokenText) callStart(at int) int {
	switch {
	case !t.is(at-1, "."):
		return t.tokens[at].Start
	case t.is(at-2, "pg_catalog") && !t.is(at-3, "."):
		return t.tokens[at-2].Start
	default:
		return -1
	}
}

// momentOf is a moment as a value of a type of time.
func momentOf(moment, of, precision string) string {
	value := moment + "::pg_catalog.timestamptz"
	if of != "timestamptz" || precision != "" {
		value += "::pg_catalog." + of + precision
	}
	return "(" + value + ")"
}
