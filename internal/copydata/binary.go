package copydata

import (
	"bytes"
	"encoding/binary"
)

// The parts of binary data whose length is fixed.
const (
	signature   = "PGCOPY\n\xff\r\n\x00"
	headerSize  = len(signature) + 4 + 4 // with flags and the length of an extension
	countSize   = 2
	lengthSize  = 4
	trailerMark = -1
	nullLength  = -1
	criticals   = 0xffff0000 // flags that a reader must know, and PostgreSQL knows none that it takes
)

func (s *Splitter) nextBinary() (found bool, err error) {
	if !s.began {
		return s.binaryHeader()
	}
	rest := s.data[s.start:]
	if len(rest) < countSize {
		if s.finished && len(rest) > 0 {
			s.yield(Ignored, len(s.data)) // half a count is an end to PostgreSQL
			return true, nil
		}
		return false, nil
	}
	switch count := int16(binary.BigEndian.Uint16(rest)); int(count) {
	case trailerMark:
		s.yield(End, s.start+countSize)
		s.trailer = true
		return true, nil
	case s.format.columns:
		return s.binaryRow()
	default:
		s.line++
		s.refuseRest(s.start + countSize)
		return true, nil
	}
}

func (s *Splitter) binaryHeader() (found bool, err error) {
	rest := s.data[s.start:]
	if !bytes.HasPrefix(rest, []byte(signature)[:min(len(rest), len(signature))]) {
		s.refuseRest(len(s.data))
		return true, nil
	}
	if len(rest) < headerSize {
		return s.incomplete(), nil
	}
	flags, extension := binary.BigEndian.Uint32(rest[len(signature):]), int32(binary.BigEndian.Uint32(rest[len(signature)+4:]))
	switch {
	case flags&criticals != 0 || extension < 0:
		s.refuseRest(s.start + headerSize)
		return true, nil
	case int(extension) > s.config.MaxRow:
		return false, s.tooLong()
	case len(rest)-headerSize < int(extension):
		return s.incomplete(), nil
	}
	s.yield(HeaderPiece, s.start+headerSize+int(extension))
	s.began = true
	return true, nil
}

// incomplete yields what has come of a header or a row if no more comes, as malformed.
func (s *Splitter) incomplete() (found bool) {
	if !s.finished || s.start == len(s.data) {
		return false
	}
	s.refuseRest(len(s.data))
	return true
}

// refuseRest yields as malformed what ends there, behind which nothing can be told apart.
func (s *Splitter) refuseRest(end int) {
	s.yield(Malformed, end)
	s.piece.lines, s.piece.alone = 1, 1
	s.ended = true
}

// binaryRow goes through the fields of a row as far as they have come.
func (s *Splitter) binaryRow() (found bool, err error) {
	if s.row.at == s.start {
		s.row.at += countSize
	}
	for s.row.field < s.format.columns {
		if len(s.data)-s.row.at < lengthSize {
			return s.incompleteRow(), nil
		}
		from := s.row.at + lengthSize
		length := int(int32(binary.BigEndian.Uint32(s.data[s.row.at:])))
		switch {
		case length < nullLength:
			s.line++
			s.refuseRest(from)
			return true, nil
		case from-s.start+length > s.config.MaxRow:
			return false, s.tooLong()
		case length > len(s.data)-from:
			return s.incompleteRow(), nil
		}
		s.noteField(from, length)
		s.row.at = from + max(length, 0)
		s.row.field++
	}
	s.yieldBinary()
	return true, nil
}

func (s *Splitter) incompleteRow() (found bool) {
	if s.finished {
		s.line++
	}
	return s.incomplete()
}

// noteField notes where a key's column is, counted from the row's beginning.
func (s *Splitter) noteField(from, length int) {
	for i, key := range s.byKey {
		if s.config.Keys[key] != s.row.field {
			continue
		}
		s.spans[i] = span{from - s.start, from - s.start + length}
		if length == nullLength {
			s.spans[i] = span{-1, -1}
		}
	}
}

func (s *Splitter) yieldBinary() {
	s.line++
	s.yield(Row, s.row.at)
	for i, key := range s.byKey {
		at := s.spans[i]
		s.values[key] = Value{Null: at.from < 0}
		if at.from >= 0 {
			s.values[key].Bytes = s.piece.Raw[at.from:at.to:at.to]
		}
	}
	s.piece.Values, s.piece.lines, s.piece.alone = s.values, 1, 1
}
