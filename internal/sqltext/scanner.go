package sqltext

// Scanner gives the tokens of a text, one after the other.
type Scanner struct {
	lexer lexer
	at    int
}

// NewScanner returns a scanner at the beginning of the text. StandardConforming is the session's setting
// standard_conforming_strings.
func NewScanner(text []byte, standardConforming bool) Scanner {
	return Scanner{lexer: lexer{text: text, standardConforming: standardConforming}}
}

// Next returns the next token. There is none at the end of the text, nor where it is unsound; see [Scanner.Err].
func (s *Scanner) Next() (Token, bool) {
	start := s.lexer.skip(s.at)
	if s.lexer.problem != nil || start == len(s.lexer.text) {
		s.at = start
		return Token{}, false
	}
	kind, end := s.lexer.token(start)
	if kind == Unsound {
		return Token{}, false
	}
	s.at = end
	return Token{Kind: kind, Start: start, End: end}, true
}

// Err says why the tokens ended before the text did; nil if they did not.
func (s *Scanner) Err() error { return s.lexer.problem }
