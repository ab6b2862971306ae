package merge

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// counter gives rows whose first key goes up by step. It is as cheap as a source can be, so that the merging is measured.
type counter struct {
	row        []byte
	next, step uint64
	left       int
}

func newCounter(first, step uint64, rows int) *counter {
	return &counter{row: rowOf(int8Of(0), int8Of(7), []byte("a note of some forty characters or so ..")), next: first, step: step, left: rows}
}

func (c *counter) Next() ([]byte, error) {
	if c.left == 0 {
		return nil, io.EOF
	}
	c.left--
	binary.BigEndian.PutUint64(c.row[6:], c.next)
	c.next += c.step
	return c.row, nil
}

// BenchmarkMerge is per row.
func BenchmarkMerge(b *testing.B) {
	for _, c := range []struct {
		name    string
		sources int
		options Options
		keys    []Key
	}{
		{"sources=4", 4, Options{Limit: -1}, []Key{{Type: oidInt8}}},
		{"sources=4/distinct", 4, Options{Limit: -1, Distinct: 1}, []Key{{Type: oidInt8}}},
		{"sources=4/text second", 4, Options{Limit: -1}, []Key{{Column: 1, Type: oidInt8}, {Column: 2, Type: oidText}}},
		{"sources=4/none", 4, Options{Limit: -1}, nil},
		{"sources=64", 64, Options{Limit: -1}, []Key{{Type: oidInt8}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			order, err := NewOrder(c.keys)
			if err != nil {
				b.Fatal(err)
			}
			sources := make([]Source, c.sources)
			for i := range sources {
				sources[i] = newCounter(uint64(i), uint64(c.sources), b.N/c.sources+1)
			}
			m := New(order, sources, c.options)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if _, err := m.Next(); err != nil && !errors.Is(err, io.EOF) {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCompare(b *testing.B) {
	order, err := NewOrder([]Key{{Type: oidInt8}, {Column: 1, Type: oidInt8}})
	if err != nil {
		b.Fatal(err)
	}
	one, other := rowOf(int8Of(1), int8Of(2)), rowOf(int8Of(1), int8Of(3))
	b.ReportAllocs()
	for b.Loop() {
		if n, err := order.Compare(one, other); n >= 0 || err != nil {
			b.Fatal(n, err)
		}
	}
}
