package merge

import (
	"fmt"
	"io"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// ErrUnsorted is the error for a source whose rows are not in the order, so that nobody can say which row is next.
var ErrUnsorted = pgerr.New(pgerr.InternalError, "a server's rows do not come in the order that was asked for").
	WithDetail("Rows of several servers are merged as they come, which needs the same order on all of them.").
	WithHint(`Look whether an index of the server is corrupt, as after an update of the system's collations; ORDER BY on text needs COLLATE "C" there.`)

// Options say which of the merged rows are given. What they count is what is left of what comes before: first DISTINCT, then OFFSET,
// then LIMIT.
type Options struct {
	// Distinct is the number of leading keys of which at least one must differ from the row before: of rows that are equal in all of them
	// the first is given. 0 gives all.
	Distinct int
	// Skip is how many rows are passed over: OFFSET.
	Skip int64
	// Limit is how many rows are given; below 0 it is all of them.
	Limit int64
	// Ties is the number of leading keys that make rows ties (WITH TIES: the terms of ORDER BY, which the keys of a DISTINCT may follow): those
	// that are equal to the last row in all of them are given beyond the limit. 0 gives none.
	Ties int
}

// Merger gives the rows of its sources in order; among equal ones those of a source with a lower number come first. It is a Source
// itself.
type Merger struct {
	order   *Order
	options Options // Skip and Limit are what is left of them
	inputs  []input
	// turn is the input that is read, if the order has no keys.
	turn int
	// queue is a heap of the numbers of those inputs that have a row, the one whose row is next at its top.
	queue []int
	// hasLast: a row was taken off the queue, whether it was given or not. It came from the input at the top. last are its keys, and lastBytes
	// is their memory.
	hasLast   bool
	last      [][]byte
	lastBytes []byte
	// failed is what ended the Merger: io.EOF if nothing is wrong.
	failed error
}

// input is a source with the row that it gave last.
type input struct {
	source Source
	row    []byte
	keys   [][]byte
}

// New returns a Merger of sources each of which gives its rows in the order. If the order has no keys, the sources are read one
// after the other.
func New(order *Order, sources []Source, o Options) *Merger {
	count := len(order.keys)
	m := &Merger{
		order: order, options: o, inputs: make([]input, len(sources)), queue: make([]int, 0, len(sources)),
		last: make([][]byte, count), lastBytes: make([]byte, 0, 8*count+1), // never nil, which would be NULL
	}
	keys := make([][]byte, count*len(sources))
	for i, source := range sources {
		m.inputs[i] = input{source: source, keys: keys[i*count : (i+1)*count]}
	}
	if o.Distinct > count || o.Ties > count || o.Distinct < 0 || o.Ties < 0 {
		m.failed = fmt.Errorf("merge by %d keys: DISTINCT has %d and WITH TIES %d", count, o.Distinct, o.Ties)
	}
	return m
}

// Next returns the next row, which is valid until the next call. Once it has returned an error, it returns the same ever after. After
// the last row that the options ask for it reads nothing more, unless it looks for ties.
func (m *Merger) Next() ([]byte, error) {
	for m.failed == nil {
		if m.options.Limit == 0 && (m.options.Ties == 0 || !m.hasLast) {
			m.failed = io.EOF
			break
		}
		if row, ok := m.next(); ok {
			return row, nil
		}
	}
	return nil, m.failed
}

// next takes a row, and says whether it is one to give.
func (m *Merger) next() ([]byte, bool) {
	if m.failed = m.advance(); m.failed != nil {
		return nil, false
	}
	in := &m.inputs[m.queue[0]]
	isRepeated := m.options.Distinct > 0 && m.isLikeLast(in, m.options.Distinct)
	isTie := m.options.Limit == 0 && m.isLikeLast(in, m.options.Ties)
	m.take(in)
	switch {
	case isRepeated:
		return nil, false
	case m.options.Skip > 0:
		m.options.Skip--
		return nil, false
	case m.options.Limit > 0:
		m.options.Limit--
	case m.options.Limit == 0 && !isTie:
		m.failed = io.EOF
		return nil, false
	}
	return in.row, true
}

// isLikeLast says whether an input's row is equal to the one that was taken last in that many keys.
func (m *Merger) isLikeLast(in *input, keys int) bool {
	return m.hasLast && m.order.compareKeys(in.keys, m.last, keys) == 0
}

// take keeps the keys of a row that is given away, since its source may then overwrite it.
func (m *Merger) take(in *input) {
	m.hasLast = true
	m.lastBytes = m.lastBytes[:0]
	for i, key := range in.keys {
		if key == nil {
			m.last[i] = nil
			continue
		}
		begin := len(m.lastBytes)
		m.lastBytes = append(m.lastBytes, key...)
		m.last[i] = m.lastBytes[begin:]
	}
}

// advance brings the next row to the top of the queue. The error is io.EOF if there is none.
func (m *Merger) advance() error {
	var err error
	switch {
	case len(m.order.keys) == 0:
		err = m.readInTurn()
	case !m.hasLast:
		err = m.fill()
	default:
		err = m.replace()
	}
	if err == nil && len(m.queue) == 0 {
		err = io.EOF
	}
	return err
}

// readInTurn leaves the queue with the input that has the next row.
func (m *Merger) readInTurn() error {
	m.queue = m.queue[:0]
	for ; m.turn < len(m.inputs); m.turn++ {
		if ok, err := m.read(m.turn); err != nil {
			return err
		} else if ok {
			m.queue = append(m.queue, m.turn)
			return nil
		}
	}
	return nil
}

// fill makes the queue of the first row of every input.
func (m *Merger) fill() error {
	for number := range m.inputs {
		if ok, err := m.read(number); err != nil {
			return err
		} else if ok {
			m.queue = append(m.queue, number)
		}
	}
	for at := len(m.queue)/2 - 1; at >= 0; at-- {
		m.sink(at)
	}
	return nil
}

// replace takes the row at the top off the queue and puts the next one of its input in.
func (m *Merger) replace() error {
	number := m.queue[0]
	ok, err := m.read(number)
	if err != nil {
		return err
	}
	if !ok {
		end := len(m.queue) - 1
		m.queue[0] = m.queue[end]
		m.queue = m.queue[:end]
	} else if m.order.compareKeys(m.inputs[number].keys, m.last, len(m.last)) < 0 {
		return ErrUnsorted
	}
	m.sink(0)
	return nil
}

// read reads a row, and says whether there was one.
func (m *Merger) read(number int) (bool, error) {
	in := &m.inputs[number]
	row, err := in.source.Next()
	if err == io.EOF { //nolint:errorlint // one that is wrapped is a connection that was lost, not the end of the rows
		return false, nil
	}
	if err != nil {
		return false, err
	}
	in.row = row
	return true, m.order.find(row, in.keys)
}

// sink moves an input down the queue until none below it has a row that comes before its own.
func (m *Merger) sink(at int) {
	for {
		child := 2*at + 1
		if child >= len(m.queue) {
			return
		}
		if child+1 < len(m.queue) && m.isBefore(m.queue[child+1], m.queue[child]) {
			child++
		}
		if !m.isBefore(m.queue[child], m.queue[at]) {
			return
		}
		m.queue[at], m.queue[child] = m.queue[child], m.queue[at]
		at = child
	}
}

func (m *Merger) isBefore(a, b int) bool {
	order := m.order.compareKeys(m.inputs[a].keys, m.inputs[b].keys, len(m.last))
	return order < 0 || order == 0 && a < b
}
