// Package qualified finds what a search_path decides about in SQL, for tests of SQL that must mean the same under everybody's: text that runs with
// its owner's rights, or on a client's own connection. Who may create a type or an operator could otherwise run code there as somebody else.
//
// It goes by the tokens, so it is strict rather than clever: a few sound ways to write something (CAST, a table of a WITH) are found too, and are better
// written otherwise. It knows SQL and the parts of PL/pgSQL that the shards' functions are made of. Start reading at [Bare].
package qualified

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/sqltext"
)

// Bare returns the names, types and operators of a text that do not say of which schema they are, each with what follows.
func Bare(sql string) []string {
	r := &reader{text: sql}
	scanner := sqltext.NewScanner([]byte(sql), true)
	for token, more := scanner.Next(); more; token, more = scanner.Next() {
		r.tokens = append(r.tokens, token)
	}
	if err := scanner.Err(); err != nil {
		return []string{err.Error()}
	}
	for at, token := range r.tokens {
		if why := r.bare(at, token); why != "" {
			rest := sql[token.Start:]
			r.found = append(r.found, fmt.Sprintf("%s: %.40s", why, strings.Join(strings.Fields(rest), " ")))
		}
	}
	return r.found
}

// reader looks at one token after the other.
type reader struct {
	text   string
	tokens []sqltext.Token
	found  []string
	// declaring: between DECLARE and BEGIN.
	declaring bool
}

// word is a token as it is compared: in lower case, and empty where there is none.
func (r *reader) word(at int) string {
	if at < 0 || at >= len(r.tokens) {
		return ""
	}
	token := r.tokens[at]
	return strings.ToLower(r.text[token.Start:token.End])
}

func (r *reader) kind(at int) sqltext.Kind {
	if at < 0 || at >= len(r.tokens) {
		return sqltext.Unsound
	}
	return r.tokens[at].Kind
}

// system says whether a name begins here that is the system's own.
func (r *reader) system(at int) bool { return r.word(at) == "pg_catalog" && r.word(at+1) == "." }

// schema says whether a name with a schema begins here.
func (r *reader) schema(at int) bool { return r.kind(at) >= sqltext.Word && r.word(at+1) == "." }

func (r *reader) bare(at int, token sqltext.Token) string {
	switch token.Kind {
	case sqltext.Operator:
		return r.bareOperator(at)
	case sqltext.Punctuation:
		if r.word(at) == "::" && !r.soundType(at+1) {
			return "a type without a schema"
		}
	case sqltext.Word, sqltext.QuotedWord:
		return r.bareWord(at)
	default: // a literal or a parameter
	}
	return ""
}

// options are what PL/pgSQL's RAISE is told, with a sign that is no operator.
var options = []string{"errcode", "message", "detail", "hint", "schema", "table", "column", "constraint", "datatype"}

// beforeNumbers are words after which a sign is a number's own.
var beforeNumbers = []string{"(", ",", "else", "return", "then"}

func (r *reader) bareOperator(at int) string {
	before, after := r.word(at-1), r.word(at+1)
	switch sign := r.word(at); {
	case before == ".", sign == "=>": // OPERATOR(pg_catalog.+), and the name of an argument
	case sign == "=" && (slices.Contains(options, before) || r.word(at-2) == "set"):
	case sign == "*" && before == "(" && after == ")": // count(*)
	case sign == "-" && r.kind(at+1).IsLiteral() && (slices.Contains(beforeNumbers, before) || before == ")" && r.kind(at-2) == sqltext.Operator): // a negative number
	default:
		return "an operator without a schema"
	}
	return ""
}

// types are those that the grammar itself knows, and PL/pgSQL's record.
var types = []string{"bigint", "bit", "boolean", "decimal", "integer", "interval", "numeric", "real", "record", "smallint", "timestamp"}

func (r *reader) soundType(at int) bool { return r.system(at) || slices.Contains(types, r.word(at)) }

var (
	// lookUps have an operator looked up by its name alone.
	lookUps = []string{"between", "ilike", "like", "nullif", "overlaps", "similar", "cast"}
	// callable are words before a parenthesis that are no functions.
	callable = []string{
		"all", "and", "any", "array", "as", "bit", "by", "case", "coalesce", "conflict", "else", "elsif", "exists", "extract", "from", "greatest", "if", "in", "lateral", "least",
		"not", "on", "operator", "or", "returning", "return", "row", "select", "then", "values", "when", "where", "with",
	}
	// beforeStrings are words before a string that are no types.
	beforeStrings = []string{
		"and", "as", "by", "else", "exception", "from", "in", "info", "is", "like", "not", "or", "perform", "return", "returning", "select", "sqlstate", "then", "when", "where", "prepared", "transaction",
	}
)

func (r *reader) bareWord(at int) string {
	before, word, after := r.word(at-1), r.word(at), r.word(at+1)
	switch {
	case word == "declare":
		r.declaring = true
	case word == "begin":
		r.declaring = false
	case r.declaring && (before == "declare" || before == ";"):
		if !r.soundType(at + 1) {
			return "a variable's type without a schema"
		}
	case before == ".":
	case slices.Contains(lookUps, word):
		return "an operator without a schema"
	case word == "in" && after == "(", word == "distinct" && (before == "is" || before == "not"), word == "using" && after == "(":
		return "an operator without a schema"
	case word == "case" && after != "when" && before != "end":
		return "an operator without a schema"
	case word == "collate" && !r.system(at+1):
		return "a collation without a schema"
	case after == "(" && before != "as" && !slices.Contains(callable, word):
		return "a function without a schema"
	case r.readsTable(at) && !r.schema(at+1):
		return "a table without a schema"
	case r.kind(at+1).IsLiteral() && strings.HasSuffix(after, "'") && !slices.Contains(beforeStrings, word):
		return "a type without a schema"
	}
	return ""
}

// readsTable says whether the name of a table follows.
func (r *reader) readsTable(at int) bool {
	before, after := r.word(at-1), r.word(at+1)
	switch r.word(at) {
	case "from":
		return after != "(" && after != "rows" && after != "lateral"
	case "join":
		return after != "(" && after != "lateral"
	case "into":
		return before == "insert"
	case "update":
		return before != "for" && before != "do"
	}
	return false
}
