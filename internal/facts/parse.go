package facts

import (
	"errors"
	"strings"
	"unicode/utf8"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"github.com/pganalyze/pg_query_go/v6/parser"
)

// Of reads a text and returns what is known of each statement, none for an empty text. A text that the grammar does not accept
// is a [*SyntaxError]; one that must not be read, because of its length, depth or encoding, is a [*pgerr.Error] for the client.
// Strings are read as standard_conforming_strings = on has them.
func Of(text string) ([]Statement, error) {
	if err := checkText(text); err != nil {
		return nil, err
	}
	found, err := scan(text)
	if err != nil {
		return nil, err
	}
	if found.depth() > maxRun {
		return nil, tooDeep()
	}
	tree, err := pgquery.Parse(text)
	if err != nil {
		return nil, refusalOf(err)
	}
	statements := make([]Statement, 0, len(tree.Stmts))
	for _, raw := range tree.Stmts {
		s, err := statementOf(text, found, raw)
		if err != nil {
			return nil, err
		}
		statements = append(statements, *s)
	}
	return statements, nil
}

// checkText refuses what the grammar's C code must not see.
func checkText(text string) error {
	switch {
	case len(text) > MaxText:
		return tooLong(len(text))
	case strings.IndexByte(text, 0) >= 0, !utf8.ValidString(text):
		return notUTF8()
	case longestRun(text) > maxOperators:
		return tooManyOperators()
	}
	return nil
}

// maxOperators bounds the signs in a row. PostgreSQL's scanner takes a run such as ++++ one sign at a time and looks at all of
// the rest each time, so a megabyte of them would keep a processor busy for many minutes.
const maxOperators = 128

// longestRun returns how many + and - stand in a row at most, up to where a comment begins. It does not matter that some of
// them stand in literals: nobody has such literals.
func longestRun(text string) int {
	longest, run, comment := 0, 0, false
	for i := range len(text) {
		if text[i] != '+' && text[i] != '-' {
			run, comment = 0, false
			continue
		}
		comment = comment || run > 0 && text[i-1:i+1] == "--"
		if run++; !comment {
			longest = max(longest, run)
		}
	}
	return longest
}

// refusalOf says in this package's types what the grammar said.
func refusalOf(err error) error {
	var refused *parser.Error
	if !errors.As(err, &refused) {
		return tooDeep() // the tree could not be decoded: it has more levels than the decoder follows
	}
	if strings.HasPrefix(refused.Message, "memory exhausted") || strings.HasPrefix(refused.Message, "stack depth limit") {
		return tooDeep()
	}
	return &SyntaxError{Message: refused.Message, Position: refused.Cursorpos}
}

// statementOf takes the facts of one statement from its tree.
func statementOf(text string, found tokens, raw *pgquery.RawStmt) (*Statement, error) {
	end := len(text)
	if raw.StmtLen > 0 {
		end = int(raw.StmtLocation + raw.StmtLen)
	}
	inside := found.between(int(raw.StmtLocation), end)
	if len(inside.all) == 0 {
		return nil, &SyntaxError{Message: "syntax error"}
	}
	w := &walker{tokens: inside}
	s := w.statement(raw.Stmt)
	s.ByLiteral = s.ByLiteral || inside.find(pgquery.Token_UESCAPE, 0) >= 0 // even a name may depend on it
	s.Start, s.End = int(inside.all[0].Start), int(inside.all[len(inside.all)-1].End)
	if w.tooDeep {
		return nil, tooDeep()
	}
	return s, nil
}
