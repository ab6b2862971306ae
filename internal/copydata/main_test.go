package copydata

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/pgerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// columnNames are those of the tests' tables.
var columnNames = []string{"a", "b", "c"}

func option(name, value string) Option { return Option{Name: name, Value: value} }

func newFormat(t testing.TB, columns int, options ...Option) *Format {
	t.Helper()
	f, err := NewFormat(options, columnNames[:columns], "UTF8")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// allKeys asks for every column.
func allKeys(f *Format) []int {
	keys := make([]int, f.columns)
	for i := range keys {
		keys[i] = i
	}
	return keys
}

// split cuts the data, which comes in chunks of the given sizes and then whole, into copies of pieces.
func split(t testing.TB, f *Format, config Config, data string, sizes ...int) ([]Piece, error) {
	t.Helper()
	s, err := NewSplitter(f, config)
	if err != nil {
		t.Fatal(err)
	}
	return feed(s, data, sizes)
}

// feed is split with a Splitter that is there.
func feed(s *Splitter, data string, sizes []int) (pieces []Piece, err error) {
	rest, buffer := []byte(data), []byte(nil)
	for len(rest) > 0 {
		size := len(rest)
		if len(sizes) > 0 {
			size, sizes = min(max(sizes[0], 1), size), sizes[1:]
		}
		buffer = append(buffer[:0], rest[:size]...)
		rest = rest[size:]
		s.Feed(buffer)
		if pieces, err = drain(s, pieces); err != nil {
			return pieces, err
		}
		clear(buffer[:cap(buffer)]) // as a reader would overwrite it
	}
	s.Finish()
	return drain(s, pieces)
}

func drain(s *Splitter, pieces []Piece) ([]Piece, error) {
	for {
		p, err := s.Next()
		if p == nil || err != nil {
			return pieces, err
		}
		kept := *p
		kept.Raw = bytes.Clone(p.Raw)
		kept.Values = slices.Clone(p.Values)
		for i := range kept.Values {
			kept.Values[i].Bytes = bytes.Clone(kept.Values[i].Bytes)
		}
		pieces = append(pieces, kept)
	}
}

// bytewise are sizes of chunks that bring every byte alone.
func bytewise(data string) []int { return slices.Repeat([]int{1}, len(data)) }

// shown prints pieces in a line: what they are, and their values.
func shown(pieces []Piece) string {
	kinds := map[PieceKind]string{HeaderPiece: "header", Row: "row", Malformed: "malformed", End: "end", Ignored: "ignored"}
	parts := make([]string, len(pieces))
	for i, p := range pieces {
		parts[i] = kinds[p.Kind]
		if p.Kind == Row {
			parts[i] = shownValues(p.Values)
		}
	}
	return strings.Join(parts, " ")
}

func shownValues(values []Value) string {
	fields := make([]string, len(values))
	for i, v := range values {
		switch {
		case v.Null:
			fields[i] = "NULL"
		case v.Default:
			fields[i] = "DEFAULT"
		default:
			fields[i] = `"` + string(v.Bytes) + `"`
		}
	}
	return "(" + strings.Join(fields, ", ") + ")"
}

func joined(pieces []Piece) string {
	var all []byte
	for _, p := range pieces {
		all = append(all, p.Raw...)
	}
	return string(all)
}

// message is an error's, without what is not for the client.
func message(err error) string {
	var known *pgerr.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &known):
		return known.Message
	default:
		return err.Error()
	}
}
