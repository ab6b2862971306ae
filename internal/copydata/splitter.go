package copydata

import (
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// DefaultMaxRow is how long a row can be at most in PostgreSQL, whose buffer for a line holds no more.
const DefaultMaxRow = 1<<30 - 1

// smallBuffer is what a Splitter keeps of its buffer after a long row.
const smallBuffer = 4 << 20

// Config of a Splitter.
type Config struct {
	// Keys are the columns whose values are wanted, by their place in COPY's list from 0. None by default.
	Keys []int
	// MaxRow is how many bytes a row may have; DefaultMaxRow by default, and never more.
	MaxRow int
	// ServerVersion is that of all servers that get the data, as a number: 150018 is 15.18. If they do not agree about a line \.
	// in CSV, which ends the data before PostgreSQL 18 and is a row since, or if nobody knows, 0, the default: such a line is then
	// refused.
	ServerVersion int
}

// PieceKind says what a piece of the data is.
type PieceKind uint8

// The kinds of pieces, in the order in which they can come.
const (
	// HeaderPiece is the header: it goes to every server that gets rows, before them.
	HeaderPiece PieceKind = iota + 1
	// Row is a row, with its values.
	Row
	// Malformed is a row that every server refuses, with an error that tells the client what is wrong. It goes to any one.
	Malformed
	// End is the mark that says that no more rows come. It need not go anywhere.
	End
	// Ignored is what comes after the end, or after a row that makes it impossible to say where the next one begins. It goes
	// nowhere.
	Ignored
)

// Value of a column. Bytes are those after escapes and quotes were resolved, in the encoding of the data; in binary those
// that its type's receive function would get.
type Value struct {
	Bytes []byte
	// Null and Default: there are no bytes, and the column is NULL, or gets its default.
	Null, Default bool
}

// Piece is a part of the data. It and all that it has are valid until the next call of a method of the Splitter's.
type Piece struct {
	Kind PieceKind
	// Raw is the piece as it came, with the newline at its end.
	Raw []byte
	// Values are those of the keys, in the order of Config.Keys.
	Values []Value
	// Line is the number of the piece's last line, as PostgreSQL counts them in the error of a COPY of all of the data.
	Line int

	lines int // that the piece adds in the client's data
	alone int // that it adds if it is the first that a server gets
}

// Splitter cuts data into pieces.
//
// Feed it what came, take pieces with Next until there is none, and so on; after the last data tell it so by Finish, and
// take the pieces that are left.
type Splitter struct {
	format   *Format
	config   Config
	byKey    []int // indexes of config.Keys, in the order of the columns
	specials [256]bool

	data     []byte // what has come and was not yielded begins at start
	start    int
	own      []byte // the buffer for what is left of one chunk when the next one comes
	finished bool
	err      error

	began   bool // a header was yielded, or there is none
	ended   bool // what comes now is ignored
	trailer bool // what comes now is an error

	style newline
	line  int
	row   rowScan

	newlines, returns, backslashes, quotes, escapes finder

	piece   Piece
	values  []Value
	decoded []byte
	spans   []span // of the keys' columns, in the order of byKey
}

// rowScan is what is known of the row that begins at start, as far as it has come.
type rowScan struct {
	at      int  // where to go on looking for its end
	inside  bool // of quotes
	special bool // it has backslashes, in text, or quotes, in CSV
	feeds   int  // newlines and carriage returns in quotes
	returns int
	field   int // in binary: how many fields are known
	content int // where the row ends without its newline
}

// span is where a column is, counted from the beginning of its row; from is negative if it is NULL in binary.
type span struct{ from, to int }

// NewSplitter returns a Splitter for data of the format. Keys outside the format's columns are a fault of the caller's and an
// error.
func NewSplitter(format *Format, config Config) (*Splitter, error) {
	s := &Splitter{
		format: format, config: config, specials: format.specials(), began: format.kind != Binary && format.header == HeaderNone,
		newlines: finder{'\n', -1}, returns: finder{'\r', -1}, backslashes: finder{'\\', -1},
		quotes: finder{format.quote, -1}, escapes: finder{format.escape, -1},
		values: make([]Value, len(config.Keys)), spans: make([]span, len(config.Keys)), byKey: make([]int, len(config.Keys)),
	}
	if s.config.MaxRow <= 0 || s.config.MaxRow > DefaultMaxRow {
		s.config.MaxRow = DefaultMaxRow
	}
	for i, column := range config.Keys {
		if column < 0 || column >= format.columns {
			return nil, fmt.Errorf("split rows of %d columns by column %d", format.columns, column)
		}
		s.byKey[i] = i
	}
	slices.SortStableFunc(s.byKey, func(a, b int) int { return config.Keys[a] - config.Keys[b] })
	return s, nil
}

// Feed adds data. The chunk must not change until Next has returned nil, and is not kept after that.
func (s *Splitter) Feed(chunk []byte) {
	if s.start == len(s.data) {
		s.begin(chunk)
		return
	}
	s.save()
	length := len(s.own)
	s.own = append(s.own, chunk...)
	s.data = s.own
	for _, f := range s.finders() {
		f.grown(s.data, length)
	}
}

// begin goes on with this data, when nothing is left of what came before.
func (s *Splitter) begin(data []byte) {
	s.data, s.start, s.row.at = data, 0, 0
	for _, f := range s.finders() {
		f.at = -1
	}
}

// Finish says that no more data comes.
func (s *Splitter) Finish() { s.finished = true }

// Next returns the next piece, or nil if more data is needed; after Finish nil means that there are no more. An error is for
// the client, and comes again.
func (s *Splitter) Next() (*Piece, error) {
	if s.err != nil {
		return nil, s.err
	}
	found, err := s.next()
	if err != nil {
		s.err = err
		return nil, err
	}
	if !found {
		return nil, s.keep()
	}
	return &s.piece, nil
}

func (s *Splitter) next() (found bool, err error) {
	if s.ended || s.trailer {
		return s.afterEnd()
	}
	switch s.format.kind {
	case Binary:
		return s.nextBinary()
	case Text:
		return s.nextLine((*Splitter).textEnd)
	case CSV:
		return s.nextLine((*Splitter).csvEnd)
	default:
		return false, fmt.Errorf("unknown kind of data %d", s.format.kind)
	}
}

// afterEnd yields what PostgreSQL ignores.
func (s *Splitter) afterEnd() (found bool, err error) {
	if s.start == len(s.data) {
		return false, nil
	}
	if s.trailer {
		return false, badFormat(s.line, "received copy data after EOF marker")
	}
	s.yield(Ignored, len(s.data))
	return true, nil
}

// yield makes what ends there the piece, and begins the next one behind it.
func (s *Splitter) yield(kind PieceKind, end int) {
	s.piece = Piece{Kind: kind, Raw: s.data[s.start:end:end], Line: s.line}
	s.start = end
	s.row = rowScan{at: end}
}

// keep saves what is left of the data, because the caller's buffer will be used again.
func (s *Splitter) keep() error {
	switch rest := len(s.data) - s.start; {
	case rest == 0:
		s.begin(nil)
	case rest > s.config.MaxRow:
		s.err = s.tooLong()
	default:
		s.save()
	}
	return s.err
}

// save moves what is left of the data to the beginning of the Splitter's own buffer, unless it is there.
func (s *Splitter) save() {
	if s.start == 0 && len(s.own) > 0 && &s.own[0] == &s.data[0] {
		return
	}
	rest := s.data[s.start:]
	if cap(s.own) > smallBuffer && len(rest) < smallBuffer/2 {
		s.own = nil
	}
	s.own = append(s.own[:0], rest...)
	s.row.at -= s.start
	for _, f := range s.finders() {
		f.shift(s.start)
	}
	s.data, s.start = s.own, 0
}

func (s *Splitter) finders() [5]*finder {
	return [...]*finder{&s.newlines, &s.returns, &s.backslashes, &s.quotes, &s.escapes}
}

func (s *Splitter) tooLong() error {
	return pgerr.New(pgerr.ProgramLimitExceeded, "a row of COPY is too long").
		WithDetail("The row in line %d has more than %d bytes.", s.line+1, s.config.MaxRow).
		WithHint("A quote that is not closed makes one row of many.")
}

// badCopyFile is the SQLSTATE of data that is not as COPY wants it.
const badCopyFile = "22P04"

// badFormat is an error that PostgreSQL would find in the data as a whole, but might not find in a part of it.
func badFormat(line int, format string, arguments ...any) *pgerr.Error {
	return pgerr.New(badCopyFile, format, arguments...).WithDetail("It is in line %d of the data.", line)
}
