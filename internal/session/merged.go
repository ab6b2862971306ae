package session

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/cleavedb/cleave/internal/compose"
	"github.com/cleavedb/cleave/internal/merge"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/wire"
)

// merging is a statement whose rows come in order from every shard, and are passed on in the order of all as they come.
type merging struct {
	s       *session
	c       *composing
	to      rowTaker
	order   *merge.Order
	options merge.Options
	hidden  int
	rows    int64
	begun   bool
	row     []byte // scratch
}

// mergeOf says how the rows of a statement are merged; nil if a server has to put them in order.
func (s *session) mergeOf(c *composing, to rowTaker) *merging {
	how := c.outline.composition.Merge
	if how == nil || c.copied != "" || len(c.outline.composition.Pulls) != 1 || !c.showsPlainTypes() {
		return nil
	}
	m := &merging{s: s, c: c, to: to, hidden: len(how.Keys), options: merge.Options{Limit: unlimited}}
	var keys []merge.Key
	for i, k := range how.Keys {
		column := &c.outline.pulls[0].columns[i]
		if !column.binary || !merge.HasOrder(column.oid, column.collationName(), c.outline.plainOrder) {
			return nil
		}
		keys = append(keys, merge.Key{Column: i, Type: column.oid, Descending: k.Descending, NullsFirst: k.NullsFirst})
	}
	var err error
	if m.order, err = merge.NewOrder(keys); err != nil {
		return nil // a server knows the order
	}
	var known bool
	if how.Offset != nil {
		if m.options.Skip, known = s.countFor(c, how.Offset); !known {
			return nil
		}
	}
	if how.Limit != nil {
		if m.options.Limit, known = s.countFor(c, how.Limit); !known {
			return nil
		}
	}
	if how.Ties {
		m.options.Ties = len(keys)
	}
	return m
}

// collationName is what PostgreSQL calls the collation of a column; empty if it has none.
func (c *pulledColumn) collationName() string {
	if c.collated && c.collation == "" {
		return defaultCollation
	}
	return c.collation
}

// showsPlainTypes says whether no column has to be looked into before the client gets it: values in binary format may carry numbers of users' types.
func (c *composing) showsPlainTypes() bool {
	for i, oid := range c.outline.types {
		if c.format(i) == 1 && mayCarry(oid) {
			return false
		}
	}
	return true
}

// countFor is a number of rows; it is not known if a server has to say what is wrong with it.
func (s *session) countFor(c *composing, said *compose.Count) (int64, bool) {
	operand := plan.Operand{Kind: plan.FromLiteral, Literal: said.Literal, Negative: said.Negative}
	if said.Param > 0 {
		operand = plan.Operand{Kind: plan.FromParam, Param: said.Param}
	}
	count, refused := s.limitOf(operand, c.src)
	return count, refused == nil && count >= 0
}

// run has the shards give their rows, and merges them.
func (m *merging) run(p pull, shards []int) (int64, *pgerr.Error) {
	formats := make([]int16, len(m.c.outline.pulls[0].columns))
	for i := range formats {
		formats[i] = 1
		if i >= m.hidden {
			formats[i] = m.c.format(i - m.hidden)
		}
	}
	shards = m.s.present(shards)
	var parts []part
	for range shards {
		parts = append(parts, m.c.part(p.text, formats))
	}
	if refused := m.s.runParts(&spreadRun{shards: shards, parts: parts, types: m.c.carriedTypes(), planned: pulledPlan, divided: plan.Same, to: m}); refused != nil {
		return m.rows, refused
	}
	m.begin()
	return m.rows, nil
}

func (m *merging) begin() {
	if !m.begun {
		m.begun = true
		m.to.begin()
	}
}

// take is never called: rows are asked for.
func (m *merging) take(int, []byte) *pgerr.Error { return badRow }

// hear reads what the shards answer, always from the one that has the next row.
func (m *merging) hear(shards []int) error {
	s, g := m.s, m.s.gather
	buffers := int64(len(shards) * 4 * relayBuffer)
	s.server.allowance.hold(buffers)
	defer s.server.allowance.give(buffers)
	legs := make([]*legRows, len(shards))
	sources := make([]merge.Source, len(shards))
	for i, shard := range shards {
		legs[i] = &legRows{s: s, all: legs, at: i, shard: shard, reader: messageReader{backend: s.legs[shard].backend, buffer: make([]byte, 4*relayBuffer)}}
		sources[i] = legs[i]
	}
	merger := merge.New(m.order, sources, m.options)
	for !g.failed {
		row, err := merger.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, errPartFailed) {
			break
		}
		if err == nil {
			err = m.give(row)
		}
		if err != nil {
			if errors.Is(err, stepFailed) {
				g.failed = true
				return errors.Join(s.stepError, m.drain(legs))
			}
			g.failNow(s, asError(err))
		}
	}
	return m.drain(legs)
}

// drain hears all that shards have still to say. What is left of a statement that has failed is ended soon.
func (m *merging) drain(legs []*legRows) error {
	if m.s.gather.failed {
		defer m.s.endRestSoon()()
	}
	for _, l := range legs {
		for !l.done {
			if _, err := l.Next(); err != nil && l.broken != nil {
				return l.broken
			}
		}
	}
	return nil
}

// give passes a row on without what it was ordered by.
func (m *merging) give(row []byte) error {
	rest := row[2:]
	for range m.hidden {
		size := 4
		if n := int32(binary.BigEndian.Uint32(rest)); n > 0 {
			size += int(n)
		}
		rest = rest[size:]
	}
	m.begin()
	m.rows++
	m.row = binary.BigEndian.AppendUint16(m.row[:0], binary.BigEndian.Uint16(row)-uint16(m.hidden))
	m.row = append(m.row, rest...)
	if refused := m.to.take(m.row); refused != nil {
		return refused
	}
	return nil
}

// errPartFailed ends a merge one of whose sources has failed: the client has been told.
var errPartFailed = errors.New("a shard has failed")

// legRows are the rows of one shard.
type legRows struct {
	s      *session
	all    []*legRows
	at     int // its place among the shards of the statement
	shard  int
	reader messageReader
	done   bool
	used   bool  // it has said something that counts
	broken error // what ends the session
}

// Next returns the next row; all else that the shard says is seen to.
func (l *legRows) Next() ([]byte, error) {
	for !l.done {
		kind, message, err := l.reader.next()
		if err == nil && kind == wire.RespDataRow {
			if leg := l.s.legs[l.shard]; leg != nil && leg.head < len(leg.expects) && leg.expects[leg.head].op < 0 {
				continue // of what the router itself has asked before
			}
			l.used = true
			return wire.Body(message), nil
		}
		if err := l.see(kind, message, err); err != nil {
			return nil, err
		}
	}
	if l.s.gather.failed {
		return nil, errPartFailed
	}
	return nil, io.EOF
}

// see puts the leg to work for one message that is no row.
func (l *legRows) see(kind byte, message []byte, failure error) error {
	s := l.s
	s.gather.at, s.gather.used = l.at, l.used
	s.resume(s.legs[l.shard])
	show := false
	if failure == nil {
		show, failure = s.reply(kind, message)
	}
	if failure != nil {
		l.done = true
		if lost := s.lostReply(failure); !errors.Is(lost, errLegLost) {
			l.broken = lost
			return lost
		}
		if !s.gather.failed { // the statement is answered without it
			s.gather.heard(true)
			l.workOnRest()
			return nil
		}
		return errPartFailed
	}
	l.used = s.gather.used
	if show {
		s.out = append(s.out, message...)
	}
	s.out = append(s.out, s.instead...)
	s.instead = s.instead[:0]
	s.giveLocal()
	if l.done = s.head == len(s.expects); l.done {
		s.gather.heard(false)
		l.workOnRest() // before somebody else can have the backend
		if err := s.settle(); err != nil {
			l.broken = err
			return err
		}
	}
	if s.backend != nil {
		s.setAside()
	}
	if s.gather.failed && l.done {
		return errPartFailed
	}
	return nil
}

// workOnRest says that the legs that have more to say may be cancelled.
func (l *legRows) workOnRest() {
	var rest []*leg
	for _, other := range l.all {
		if !other.done && l.s.legs[other.shard] != nil {
			rest = append(rest, l.s.legs[other.shard])
		}
	}
	l.s.setWorking(rest)
}
