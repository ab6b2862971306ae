package copydata

// textEnd looks for the end of a line of text: a newline that has no backslash before it.
func (s *Splitter) textEnd() (ending, error) {
	at := s.row.at
	for {
		stop := min(s.newlines.from(s.data, at), s.returns.from(s.data, at))
		backslash := s.backslashes.from(s.data, at)
		switch {
		case backslash < stop:
			s.row.special = true
			s.row.at = backslash
			if backslash+1 == len(s.data) {
				if !s.finished {
					return needMore, nil
				}
				return s.dataEnds(), nil
			}
			if s.data[backslash+1] == '.' {
				return s.textMark(backslash)
			}
			at = backslash + 2
		case stop == len(s.data):
			return s.dataEnds(), nil
		default:
			return s.lineEnd(stop)
		}
	}
}

// textMark looks at a mark that ends the data. One that has a row before it on its line is taken by some versions of
// PostgreSQL and refused by others.
func (s *Splitter) textMark(at int) (ending, error) {
	how, err := s.markEnd(at + 2)
	if err == nil && how == marker && at != s.start {
		return needMore, badFormat(s.line+1, "end-of-copy marker is not alone on its line")
	}
	return how, err
}
