package session

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/wire"
)

// carriedByCopy says what has to be looked into of a COPY in binary format; nil: nothing. Of rows from the client the load is told.
func (s *session) carriedByCopy(st *plan.Statement, text []byte) (*carried, *pgerr.Error) {
	if !st.Binary || !st.Copy {
		return nil, nil
	}
	if crosses, refused := s.crossesKnown(); refused != nil || !crosses {
		return nil, refused
	}
	types := st.Types
	if types == nil {
		var refused *pgerr.Error
		if types, refused = s.copiedTypes(text[st.Start:st.End]); refused != nil {
			return nil, refused
		}
	}
	switch {
	case !slices.ContainsFunc(types, mayCarry):
		return nil, nil
	case st.Reads || copiesQuery(st):
		return &carried{types: types, known: true}, nil
	case s.loading != nil:
		s.loading.types = types
		return nil, nil
	default:
		return nil, pgerr.New(pgerr.FeatureNotSupported, "COPY FROM in binary format is not supported here").
			WithDetail("The rows have values of types that users have made, whose numbers are others on the shard that they go to.").WithHint("Use the text or csv format.")
	}
}

// crossesKnown is crossesNumbers after asking shards whose numbers are not known yet.
func (s *session) crossesKnown() (bool, *pgerr.Error) {
	for _, shard := range append(slices.Clone(s.spreadTo), s.shardNow()) {
		if shard == noShard {
			continue
		}
		if refused := s.learnNumbers(shard); refused != nil {
			return false, refused
		}
	}
	return s.crossesNumbers(), nil
}

// copiedTypes are those of the columns of the query in a COPY, by their numbers at home.
func (s *session) copiedTypes(text []byte) ([]uint32, *pgerr.Error) {
	query := inParentheses(text, s.standardConforming())
	a, refused := s.aside(func() (answer, error) { return s.askTypes(query, nil) })
	if refused != nil {
		return nil, refused
	}
	if a.failure != nil { // the same that the statement itself would meet
		return nil, a.failure.PGError()
	}
	return a.types, nil
}

// inParentheses is what stands between the first parenthesis of a text and the one that closes it.
func inParentheses(text []byte, standardConforming bool) string {
	at := spanInParentheses(text, standardConforming)
	return string(text[at.start:at.end])
}

func spanInParentheses(text []byte, standardConforming bool) span {
	scanner := sqltext.NewScanner(text, standardConforming)
	depth, start := 0, 0
	for token, more := scanner.Next(); more; token, more = scanner.Next() {
		if token.Kind != sqltext.Punctuation {
			continue
		}
		switch string(text[token.Start:token.End]) {
		case "(":
			if depth++; depth == 1 {
				start = token.End
			}
		case ")":
			if depth--; depth == 0 {
				return span{start, token.Start}
			}
		}
	}
	return span{}
}

// copySignature begins the data of a COPY in binary format; flags and the length of more follow it. No row begins so: it would have too
// many columns.
var copySignature = []byte("PGCOPY\n\xff\r\n\x00")

// exchangeCopied gives the rows in a message of a COPY, which is changed in place, the home shard's numbers.
func (s *session) exchangeCopied(types []uint32, message []byte) error {
	n := s.numbering()
	if n == nil || !n.differ {
		return nil
	}
	if !(direction{n, false}).rows(wire.Body(message), types) {
		return errDesync
	}
	return nil
}

// rows exchanges the numbers in rows of a COPY, which may have the header before them and the end behind them.
func (d direction) rows(data []byte, types []uint32) bool {
	in := valueReader(data)
	if bytes.HasPrefix(data, copySignature) {
		const flags = 4
		if _, ok := in.next(len(copySignature) + flags); !ok {
			return false
		}
		if _, ok := in.sized(); !ok {
			return false
		}
	}
	for len(in) > 0 {
		count, ok := in.next(2)
		if !ok {
			return false
		}
		switch int16(binary.BigEndian.Uint16(count)) {
		case -1:
			return len(in) == 0
		case int16(len(types)):
			if !d.fields(&in, types) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// own is a row of the client's as a shard has to see it.
func (l *load) own(at int, row []byte) []byte {
	if l.types == nil || !l.binary {
		return row
	}
	n := l.s.server.numbers.get(l.shards[at])
	if n == nil || !n.differ {
		return row
	}
	l.scratch = append(l.scratch[:0], row...)
	direction{n, true}.rows(l.scratch, l.types) // what is built otherwise, the shard refuses
	return l.scratch
}
