package copydata

import "github.com/cleavedb/cleave/internal/pgerr"

// newline is how lines end. The first line decides it, and PostgreSQL holds all others to it.
type newline uint8

const (
	unknownNewline newline = iota
	lineFeed
	carriageReturn
	returnAndFeed
)

// ending is what a look for the end of a line has found.
type ending uint8

const (
	needMore  ending = iota // the line may go on
	lineEnds                // here, with a newline or with the data
	marker                  // the line is the mark \. that ends the data
	unclosed                // the data ends inside of quotes
	noMoreYet               // nothing has come, and nothing will
)

// nextLine yields the line that begins at start, or nothing if its end has not come. The look for its end leaves in row.at
// where the line ends with its newline, and in row.content where without.
func (s *Splitter) nextLine(look func(*Splitter) (ending, error)) (found bool, err error) {
	before := s.style
	how, err := look(s)
	if err != nil {
		return false, err
	}
	end := s.row.at
	switch how {
	case needMore, noMoreYet:
		return false, nil
	case marker:
		s.yield(End, end)
		s.ended = true
		return true, nil
	case lineEnds, unclosed:
	}
	if end-s.start > s.config.MaxRow {
		return false, s.tooLong()
	}
	return true, s.yieldLine(how, before, end)
}

// yieldLine yields the header or a row.
func (s *Splitter) yieldLine(how ending, before newline, end int) error {
	lines, alone := 1+s.row.returns, 1+s.row.returns // what is counted as long as nobody knows how lines end
	if before == lineFeed {
		lines = 1 + s.row.feeds
	}
	s.line += lines
	kind := HeaderPiece
	if s.began {
		kind = Malformed
		if how == lineEnds && s.findFields(s.data[s.start:s.row.content]) {
			kind = Row
		}
	}
	s.began = true
	if kind == Row {
		if err := s.decode(); err != nil {
			return err
		}
	}
	s.yield(kind, end)
	s.piece.lines, s.piece.alone = lines, alone
	if kind == Row {
		s.piece.Values = s.values
	}
	return nil
}

// lineEnd ends the line at the newline or carriage return that is there, or says that the next character decides.
func (s *Splitter) lineEnd(at int) (ending, error) {
	s.row.at, s.row.content = at+1, at
	if s.data[at] == '\n' {
		if s.style == carriageReturn || s.style == returnAndFeed {
			return needMore, s.stray("newline", `\n`)
		}
		s.style = lineFeed
		return lineEnds, nil
	}
	switch s.style {
	case lineFeed:
		return needMore, s.stray("carriage return", `\r`)
	case carriageReturn:
		return lineEnds, nil
	case unknownNewline, returnAndFeed:
	}
	if at+1 == len(s.data) && !s.finished {
		s.row.at = at
		return needMore, nil
	}
	if at+1 < len(s.data) && s.data[at+1] == '\n' {
		s.row.at, s.style = at+2, returnAndFeed
		return lineEnds, nil
	}
	if s.style == returnAndFeed {
		return needMore, s.stray("carriage return", `\r`)
	}
	s.style = carriageReturn
	return lineEnds, nil
}

// dataEnds is the end of a line at the end of the data.
func (s *Splitter) dataEnds() ending {
	s.row.at, s.row.content = len(s.data), len(s.data)
	switch {
	case !s.finished:
		return needMore
	case s.start == len(s.data):
		return noMoreYet
	default:
		return lineEnds
	}
}

// stray is a newline unlike those before. A server that got this row first would take it for the way in which lines end.
func (s *Splitter) stray(what, escape string) *pgerr.Error {
	line := s.line + 1
	if s.format.kind == CSV {
		return badFormat(line, "unquoted %s found in data", what).WithHint("Use quoted CSV field to represent %s.", what)
	}
	return badFormat(line, "literal %s found in data", what).WithHint(`Use "%s" to represent %s.`, escape, what)
}

// markEnd looks at what follows the two characters of the mark, which end before this place. The mark is one if a newline follows
// that is like those before; in CSV it is data if not, which [lineEnds] says.
func (s *Splitter) markEnd(at int) (ending, error) {
	if s.style == returnAndFeed {
		switch c, come := s.byteAt(at); {
		case !come:
			return needMore, nil
		case c == '\n' && s.format.kind == Text:
			return needMore, s.markMismatch()
		case c != '\r':
			return lineEnds, s.corruptMark()
		}
		at++
	}
	c, come := s.byteAt(at)
	if !come {
		return needMore, nil
	}
	if c != '\r' && c != '\n' {
		return lineEnds, s.corruptMark()
	}
	if c != '\n' && (s.style == lineFeed || s.style == returnAndFeed) || c != '\r' && s.style == carriageReturn {
		return needMore, s.markMismatch()
	}
	s.row.at = at + 1
	return marker, nil
}

// byteAt returns the byte at a place, 0 if the data has ended before, or says that it has not come.
func (s *Splitter) byteAt(at int) (c byte, come bool) {
	if at < len(s.data) {
		return s.data[at], true
	}
	return 0, s.finished
}

// corruptMark is no error in CSV, where such a mark is data.
func (s *Splitter) corruptMark() error {
	if s.format.kind == CSV {
		return nil
	}
	return badFormat(s.line+1, "end-of-copy marker corrupt")
}

func (s *Splitter) markMismatch() error {
	return badFormat(s.line+1, "end-of-copy marker does not match previous newline style")
}
