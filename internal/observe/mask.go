package observe

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/sqltext"
)

// maskSettings takes the values out of statements that set a parameter. Literals are gone from a statement's text before it comes
// here, but SET takes words for values as well (SET app.token = S3CRET), and every role may read the texts. It also
// says whether there was anything to take out.
func maskSettings(text string) (masked string, sets bool) {
	var b strings.Builder
	var s setting
	scanner := sqltext.NewScanner([]byte(text), true)
	copied, seen := 0, 0
	for token, more := scanner.Next(); more; token, more = scanner.Next() {
		before := s
		s = s.after(token.Kind, text[token.Start:token.End])
		switch {
		case s == inValue && before != inValue:
			b.WriteString(text[copied:valueStart(text, token)])
			b.WriteByte('?')
			sets = true
		case before == inValue && s != inValue:
			copied = token.Start
		}
		seen = token.End
	}
	if s != inValue { // whatever could not be read is left out
		b.WriteString(text[min(copied, seen):seen])
	}
	return b.String(), sets
}

// valueStart is where a value may begin after an equals sign, which may stick to what follows, or the word TO.
func valueStart(text string, assignment sqltext.Token) int {
	at := assignment.End
	if text[assignment.Start] == '=' {
		at = assignment.Start + 1
	}
	if strings.HasPrefix(text[at:], " ") {
		at++
	}
	return at
}

// setting is how much was seen of a statement that may set a parameter.
type setting int

const (
	atStart   setting = iota // of a statement
	elsewhere                // it sets none, or none yet
	harmless                 // it sets none, whatever follows
	inName                   // behind SET
	inValue                  // behind = or TO
)

// settingStatements may have SET with a parameter and a value in them. Others, such as UPDATE, have columns there.
var settingStatements = []string{"ALTER", "CREATE"}

// after returns what was seen when one more token is.
func (s setting) after(kind sqltext.Kind, token string) setting {
	word := strings.ToUpper(token)
	switch {
	case token == ";":
		return atStart
	case s == inValue, s == harmless:
		return s
	case kind == sqltext.Word && word == "SET" && s != inName:
		return inName
	case s == atStart && !slices.Contains(settingStatements, word):
		return harmless
	case s != inName:
		return elsewhere
	case token[0] == '=', kind == sqltext.Word && word == "TO":
		return inValue
	case kind == sqltext.Word, kind == sqltext.QuotedWord, token == ".":
		return inName
	}
	return elsewhere // SET NULL, and the like
}
