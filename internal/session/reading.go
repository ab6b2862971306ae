package session

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// A literal is read when its statement is prepared, under the settings of that moment, and again whenever the server sees reason to, under
// those of then. So what a prepared statement means after a setting has changed is different from backend to backend, unless its literals
// mean the same under both.

// reading is a parameter on which it depends how a text is read; concerns says whether it may matter for a statement.
type reading struct {
	parameter string
	concerns  func(st *statement, literals [][]byte) bool
}

var readings = []reading{
	{"timezone", anyLiteral(mayBeTime)},
	{"timezone_abbreviations", anyLiteral(mayBeTime)},
	{dateStyle, anyLiteral(mayBeTime)},
	{"intervalstyle", anyLiteral(func(text []byte) bool { return bytes.IndexByte(text, '-') >= 0 && bytes.ContainsAny(text, digits) })},
	{"lc_monetary", anyLiteral(func(text []byte) bool { return bytes.ContainsAny(text, digits) })},
	{"standard_conforming_strings", inText(`\`)},
	{"backslash_quote", inText(`\`)},
	{"array_nulls", inText("null")},
	{"transform_null_equals", inText("null")},
	{"xmloption", inText("xml")},
	{"client_encoding", func(st *statement, _ [][]byte) bool { return isForeign(st.text) }},
}

const digits = "0123456789"

func anyLiteral(is func(text []byte) bool) func(*statement, [][]byte) bool {
	return func(_ *statement, literals [][]byte) bool {
		for _, text := range literals {
			if is(text) {
				return true
			}
		}
		return false
	}
}

func inText(part string) func(*statement, [][]byte) bool {
	return func(st *statement, _ [][]byte) bool { return mentions(st.text, part) }
}

// mentions says whether a text has a part, in either case, without making another text.
func mentions(text, part string) bool {
	for i := 0; i+len(part) <= len(text); i++ {
		if strings.EqualFold(text[i:i+len(part)], part) {
			return true
		}
	}
	return false
}

// isForeign says whether a text has characters that another encoding may write in another way.
func isForeign(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0
}

// mayBeTime says whether a text could be read as a date or a time: it has three numbers, or as many digits, or two numbers and the name of a
// month, or of a year and a day in it, or hours and minutes, or a word such as today.
func mayBeTime(text []byte) bool {
	numbers, longest, letters, word := 0, 0, 0, false
	for i, run := 0, 0; i < len(text); i++ {
		switch c := text[i]; {
		case c >= '0' && c <= '9':
			if run++; run == 1 {
				numbers++
			}
			longest, letters = max(longest, run), 0
		case c|0x20 >= 'a' && c|0x20 <= 'z':
			letters++
			word, run = word || letters >= 3, 0
		default:
			run, letters = 0, 0
		}
	}
	switch {
	case numbers == 0:
		return plan.VariesInTime(text)
	case numbers >= 3, longest >= 6, bytes.IndexByte(text, ':') >= 0:
		return true
	case numbers == 2 && (word || longest >= 3 && bytes.IndexByte(text, '.') >= 0):
		return true
	}
	return plan.VariesInTime(text)
}

// noteReading notes under which settings a statement is prepared, if its text has anything in it that depends on some.
func (s *session) noteReading(st *statement) {
	if st.readUnder = nil; strings.ContainsAny(st.text, "'$\\") || mentions(st.text, "null") || isForeign(st.text) {
		st.readUnder = s.effective()
	}
}

// readsViewsAsMade refuses to read the texts of views anew where they would mean something else than when they were made. PostgreSQL reads them once.
func (s *session) readsViewsAsMade() *pgerr.Error {
	for parameter, other := range map[string]func(value string) bool{
		"array_nulls": func(value string) bool {
			return !slices.Contains([]string{"on", "true", "yes", "1"}, strings.ToLower(value))
		},
		"xmloption": func(value string) bool { return !strings.EqualFold(value, "content") },
	} {
		if e, set := s.effective().find(parameter); set && slices.ContainsFunc(e.values, other) {
			return pgerr.New(pgerr.FeatureNotSupported, "this query of a view is not supported over several shards under another %s", parameter).
				WithDetail("The router puts the view's query into the statement, where its literals may mean something else than when it was made.").WithHint("RESET %s first.", parameter)
		}
	}
	return nil
}

// stillReads refuses a prepared statement that may not mean any more what it meant when it was prepared.
func (s *session) stillReads(st *statement) *pgerr.Error {
	if st.readUnder == nil {
		return nil
	}
	now := s.effective()
	if st.readUnder == now || st.readUnder.meaning == now.meaning {
		return nil
	}
	var literals [][]byte
	for _, r := range readings {
		before, had := st.readUnder.find(r.parameter)
		after, has := now.find(r.parameter)
		if had == has && before.sql == after.sql {
			continue
		}
		if literals == nil {
			var refused *pgerr.Error
			if literals, refused = s.stringsOf(st); refused != nil {
				return refused
			}
		}
		if r.concerns(st, literals) {
			return pgerr.New(pgerr.FeatureNotSupported, "prepared statement \"%s\" was prepared under another %s", st.name, r.parameter).
				WithDetail("It has a literal that may mean something else now, and some shards have read it before the change.").
				WithHint("Prepare it again, or give the value as a parameter.")
		}
	}
	return nil
}

// stringsOf are the literals of a statement that are strings; those that only PostgreSQL can read are as they are written.
func (s *session) stringsOf(st *statement) ([][]byte, *pgerr.Error) {
	scan, text, refused := st.literals(s.standardConforming())
	if refused != nil {
		return nil, refused
	}
	found := [][]byte{}
	for i := range scan.Literals {
		literal := &scan.Literals[i]
		if literal.Kind == sqltext.Integer || literal.Kind == sqltext.Float {
			continue
		}
		value, readable := scan.Value(text, i)
		if !readable {
			value = text[literal.Start:literal.End]
		}
		found = append(found, value)
	}
	return found, nil
}
