package session

import (
	"encoding/binary"
	"slices"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/wire"
)

// carried says which columns of a portal's rows have to be looked into.
type carried struct {
	// formats are those that the client asked for: none, one for all columns, or one for each.
	formats []int16
	// types are those of the columns, by their numbers at home; 0: the column is in text format. None if no column carries anything. They
	// are known when the portal has been described.
	types []uint32
	known bool
}

func (c *carried) isBinary(column int) bool {
	switch len(c.formats) {
	case 0:
		return false
	case 1:
		return c.formats[0] == 1
	default:
		return column < len(c.formats) && c.formats[column] == 1
	}
}

// learn takes the types of all columns.
func (c *carried) learn(types []uint32) {
	c.known, c.types = true, nil
	if !slices.ContainsFunc(types, mayCarry) {
		return
	}
	c.types = slices.Clone(types)
	for i := range c.types {
		if !c.isBinary(i) {
			c.types[i] = 0
		}
	}
}

// mayCarry says whether values of a type may have numbers of users' types in them.
func mayCarry(oid uint32) bool {
	return oid >= firstUserOID || oid == recordOID || oid == recordArrayOID
}

// crossesNumbers says whether the unit goes to a shard that has other numbers than the home shard, or may have.
func (s *session) crossesNumbers() bool {
	home := s.home()
	elsewhere := func(shard int) bool {
		if shard == home {
			return false
		}
		n := s.server.numbers.get(shard)
		return n == nil || n.differ
	}
	if len(s.spreadTo) > 0 {
		return slices.ContainsFunc(s.spreadTo, elsewhere)
	}
	if shard := s.shardNow(); shard != noShard {
		return elsewhere(shard)
	}
	return s.isSpread()
}

// hasSettledColumns says whether a statement has the same columns each time it runs under one plan.
func hasSettledColumns(st *plan.Statement) bool { return st.Command == plan.Pass && st.Cursor == nil }

// carriedOut says what has to be looked into of the rows that a Bind asks for; nil: nothing.
func (s *session) carriedOut(st *statement, m *wire.Bind) *carried {
	isBinary := false
	for i := range m.ResultFormatCount() {
		isBinary = isBinary || m.ResultFormat(i) == 1
	}
	if !isBinary || !s.crossesNumbers() {
		return nil
	}
	isKnown := st.resultsOf == st.planned
	if isKnown && st.results == nil {
		return nil
	}
	c := &carried{formats: make([]int16, m.ResultFormatCount())}
	for i := range c.formats {
		c.formats[i] = m.ResultFormat(i)
	}
	if isKnown {
		c.learn(st.results)
	}
	return c
}

// carriedIn are the types of a Bind's parameters if some of them may carry numbers; nil: none does.
func (s *session) carriedIn(st *statement, only *plan.Statement, m *wire.Bind) ([]uint32, *pgerr.Error) {
	isBinary := false
	for i := range m.ParamCount() {
		_, binary, null := m.Param(i)
		isBinary = isBinary || binary && !null
	}
	if !isBinary || only.Command != plan.Pass || len(only.Virtual) > 0 || !s.crossesNumbers() {
		return nil, nil
	}
	types := st.oids
	if len(types) < m.ParamCount() || slices.Contains(types, 0) {
		var refused *pgerr.Error
		if types, refused = s.paramTypes(st); refused != nil {
			return nil, refused
		}
	}
	if !slices.ContainsFunc(types, mayCarry) {
		return nil, nil
	}
	return types, nil
}

// askColumns has the attached backend describe a portal whose rows may have to be looked into.
func (s *session) askColumns(i int) {
	c := s.ops[i].carried
	if c == nil || c.known {
		return
	}
	if n := s.numbering(); n == nil || !n.differ {
		return
	}
	s.toServer = wire.AppendDescribe(s.toServer, 'P', s.ops[i].portal)
	s.expects = append(s.expects, expect{kind: expectDescribe, hidden: true, op: i})
}

// ownValues are a Bind's parameters, without the names before them, as the attached backend has to see them.
func (s *session) ownValues(tail []byte, types []uint32) []byte {
	n := s.numbering()
	if types == nil || n == nil || !n.differ {
		return tail
	}
	m, err := wire.DecodeBind(append([]byte{0, 0}, tail...)) // a copy, with names in it
	if err != nil {
		return tail // the server says what is wrong
	}
	for i := range min(m.ParamCount(), len(types)) {
		if value, isBinary, null := m.Param(i); isBinary && !null {
			direction{n, true}.value(types[i], value) // what is built otherwise, the server refuses
		}
	}
	return m.Tail()
}

// noteResults learns of which types the rows are that a description, with the home shard's numbers, announces; nil: there are none.
func (s *session) noteResults(e *expect, message []byte) error {
	if e.op < 0 {
		return nil
	}
	o := &s.ops[e.op]
	if e.kind == expectQuery {
		return s.noteTextResults(o, message)
	}
	st := o.statement
	if st != nil && st.origin != nil {
		st = st.origin
	}
	settled := st != nil && st.single() != nil && hasSettledColumns(st.single())
	learns := settled && st.resultsOf != st.planned
	if !learns && (o.carried == nil || o.carried.known) {
		return nil
	}
	types, _, err := describedTypes(message)
	if err != nil {
		return err
	}
	if o.carried != nil {
		o.carried.learn(types)
	}
	if learns {
		if st.results, st.resultsOf = nil, st.planned; slices.ContainsFunc(types, mayCarry) {
			st.results = types
		}
	}
	return nil
}

// noteTextResults is noteResults for a simple query, whose rows are in binary format only if they come from a cursor that is.
func (s *session) noteTextResults(o *op, message []byte) error {
	n := s.numbering()
	if n == nil || !n.differ || message == nil {
		return nil
	}
	description, err := wire.DecodeRowDescription(wire.Body(message))
	if err != nil {
		return err
	}
	o.carried = nil
	for _, c := range description.Columns() {
		if c.Format != wire.FormatBinary {
			continue
		}
		types, formats, err := describedTypes(message)
		if err == nil {
			o.carried = &carried{formats: formats}
			o.carried.learn(types)
		}
		return err
	}
	return nil
}

func describedTypes(message []byte) (types []uint32, formats []int16, err error) {
	if message == nil {
		return nil, nil, nil
	}
	description, err := wire.DecodeRowDescription(wire.Body(message))
	if err != nil {
		return nil, nil, err
	}
	for _, c := range description.Columns() {
		types, formats = append(types, c.TypeOID), append(formats, c.Format)
	}
	return types, formats, nil
}

// looksInto says whether the rows that come next have to be looked into.
func (s *session) looksInto() bool {
	if s.head >= len(s.expects) || s.expects[s.head].op < 0 {
		return false
	}
	c := s.ops[s.expects[s.head].op].carried
	return c != nil && len(c.types) > 0
}

// exchangeRow gives the values of a DataRow, which is changed in place, the home shard's numbers.
func (s *session) exchangeRow(types []uint32, message []byte) error {
	n := s.numbering()
	if n == nil || !n.differ {
		return nil
	}
	body := wire.Body(message)
	if len(body) < 2 || int(binary.BigEndian.Uint16(body)) != len(types) {
		return errDesync
	}
	in := valueReader(body[2:])
	if !(direction{n, false}).fields(&in, types) {
		return errDesync
	}
	return nil
}

// fields exchanges the numbers in the columns of a row; those of type 0 are not looked into.
func (d direction) fields(in *valueReader, types []uint32) bool {
	for _, oid := range types {
		value, ok := in.sized()
		if !ok || oid != 0 && value != nil && !d.value(oid, value) {
			return false
		}
	}
	return true
}
