package copydata

import "github.com/cleavedb/cleave/internal/pgerr"

// markIsData is the first version of PostgreSQL to which a line \. in CSV is a row like others.
const markIsData = 180000

// csvEnd looks for the end of a line of CSV: a newline outside of quotes.
func (s *Splitter) csvEnd() (ending, error) {
	if s.row.at == s.start {
		if how, err := s.csvMark(); err != nil || how != lineEnds {
			return how, err
		}
	}
	for {
		if !s.row.inside {
			how, opened, err := s.outsideQuotes()
			if err != nil || !opened {
				return how, err
			}
		}
		if closed := s.insideQuotes(); !closed {
			if !s.finished {
				return needMore, nil
			}
			s.row.at = len(s.data)
			return unclosed, nil
		}
	}
}

// csvMark looks whether a line is the mark that ends the data; [lineEnds] says that it is not.
func (s *Splitter) csvMark() (ending, error) {
	for i, c := range []byte(`\.`) {
		if has, come := s.byteAt(s.start + i); !come {
			return needMore, nil
		} else if has != c {
			return lineEnds, nil
		}
	}
	if s.config.ServerVersion >= markIsData {
		return lineEnds, nil
	}
	how, err := s.markEnd(s.start + len(`\.`))
	if err == nil && how == marker && s.config.ServerVersion == 0 {
		s.row.at = s.start
		return needMore, pgerr.New(pgerr.FeatureNotSupported, `a line \. in CSV is not supported in COPY into a sharded table`).
			WithDetail("It ends the data for servers before PostgreSQL 18 and is a row for others; line %d is one.", s.line+1).
			WithHint(`End the data without it, or quote it if it is a value: "\.".`)
	}
	return how, err
}

// outsideQuotes goes on to the next quote, or to the end of the line.
func (s *Splitter) outsideQuotes() (how ending, opened bool, err error) {
	at := s.row.at
	quote := s.quotes.from(s.data, at)
	stop := min(s.newlines.from(s.data, at), s.returns.from(s.data, at))
	if quote < stop {
		s.row.inside, s.row.special, s.row.at = true, true, quote+1
		return needMore, true, nil
	}
	if stop == len(s.data) {
		return s.dataEnds(), false, nil
	}
	how, err = s.lineEnd(stop)
	return how, false, err
}

// insideQuotes goes on to the quote that closes them, if it has come. A quote that is doubled closes them and opens them again.
func (s *Splitter) insideQuotes() (closed bool) {
	for {
		at := s.row.at
		quote := s.quotes.from(s.data, at)
		if s.format.escape != s.format.quote {
			if escape := s.escapes.from(s.data, at); escape < quote {
				if !s.skipEscape(escape) {
					return false
				}
				continue
			}
		}
		s.countNewlines(quote)
		if quote == len(s.data) {
			s.row.at = quote
			return false
		}
		s.row.at, s.row.inside = quote+1, false
		return true
	}
}

// skipEscape goes past an escape, and past what it escapes, unless that has not come.
func (s *Splitter) skipEscape(at int) (come bool) {
	s.countNewlines(at)
	s.row.at = at
	next, come := s.byteAt(at + 1)
	switch {
	case !come:
		return false
	case at+1 < len(s.data) && (next == s.format.quote || next == s.format.escape):
		s.row.at = at + 2
	default:
		s.row.at = at + 1
	}
	return true
}

// countNewlines counts those in quotes, from where the scan is to there.
func (s *Splitter) countNewlines(to int) {
	for at := s.newlines.from(s.data, s.row.at); at < to; at = s.newlines.from(s.data, at+1) {
		s.row.feeds++
	}
	for at := s.returns.from(s.data, s.row.at); at < to; at = s.returns.from(s.data, at+1) {
		s.row.returns++
	}
}
