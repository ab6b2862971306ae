package merge

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// newOrder is an order of int8 columns, the first ones of a row.
func newOrder(t testing.TB, keys int) *Order {
	t.Helper()
	terms := make([]Key, keys)
	for i := range terms {
		terms[i] = Key{Column: i, Type: oidInt8}
	}
	o, err := NewOrder(terms)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// numbers is a source of rows of one int8.
func numbers(ns ...int64) *list {
	l := &list{}
	for _, n := range ns {
		l.rows = append(l.rows, rowOf(int8Of(n)))
	}
	return l
}

func values(t testing.TB, rows [][]byte) []int64 {
	t.Helper()
	ns := make([]int64, len(rows))
	for i, row := range rows {
		ns[i] = int64At(fieldsOf(t, row)[0])
	}
	return ns
}

func TestMergerOptions(t *testing.T) {
	for _, c := range []struct {
		options Options
		want    []int64
	}{
		{Options{Limit: -1}, []int64{1, 1, 2, 2, 2, 3, 4, 4}},
		{Options{Limit: 0}, nil},
		{Options{Limit: 0, Ties: 1}, nil},
		{Options{Limit: 0, Skip: 2, Ties: 1}, nil},
		{Options{Limit: 3}, []int64{1, 1, 2}},
		{Options{Limit: 3, Ties: 1}, []int64{1, 1, 2, 2, 2}},
		{Options{Limit: 3, Skip: 2, Ties: 1}, []int64{2, 2, 2}},
		{Options{Limit: 2, Skip: 5}, []int64{3, 4}},
		{Options{Limit: 2, Skip: 5, Ties: 1}, []int64{3, 4, 4}},
		{Options{Limit: 5, Skip: 7}, []int64{4}},
		{Options{Limit: 5, Skip: 9}, nil},
		{Options{Limit: -1, Distinct: 1}, []int64{1, 2, 3, 4}},
		{Options{Limit: 2, Skip: 1, Distinct: 1}, []int64{2, 3}},
		{Options{Limit: 2, Skip: 1, Distinct: 1, Ties: 1}, []int64{2, 3}},
		{Options{Limit: 9, Ties: 1}, []int64{1, 1, 2, 2, 2, 3, 4, 4}},
	} {
		m := New(newOrder(t, 1), []Source{numbers(1, 2, 4), numbers(), numbers(2, 2, 3), numbers(1, 4)}, c.options)
		rows, err := readAll(m)
		if got := values(t, rows); !slices.Equal(got, c.want) || err != nil {
			t.Errorf("%+v: %v, %v; want %v", c.options, got, err, c.want)
		}
		if row, err := m.Next(); row != nil || !errors.Is(err, io.EOF) {
			t.Errorf("%+v: %q, %v after the end", c.options, row, err)
		}
	}
}

// TestMergerReadsNoMoreThanAsked: a source may be a server that would have to work for its next row.
func TestMergerReadsNoMoreThanAsked(t *testing.T) {
	for limit, want := range []int{0, 1, 2, 3} {
		for keys, others := range []int{0, 1} {
			one, other := numbers(1, 2, 3, 4), numbers(9)
			if _, err := readAll(New(newOrder(t, keys), []Source{one, other}, Options{Limit: int64(limit)})); err != nil {
				t.Fatal(err)
			}
			if others = min(others, want); one.reads != want || other.reads != others {
				t.Errorf("LIMIT %d by %d keys: read %d and %d times, want %d and %d", limit, keys, one.reads, other.reads, want, others)
			}
		}
	}
}

func TestMergerWithoutKeysReadsInTurn(t *testing.T) {
	m := New(newOrder(t, 0), []Source{numbers(3, 1), numbers(), numbers(2, 9, 2)}, Options{Limit: 3, Skip: 1})
	rows, err := readAll(m)
	if got := values(t, rows); !slices.Equal(got, []int64{1, 2, 9}) || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

func TestMergerWithoutSources(t *testing.T) {
	for keys := range 2 {
		if row, err := New(newOrder(t, keys), nil, Options{Limit: -1}).Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%q, %v", row, err)
		}
	}
}

func TestMergerErrors(t *testing.T) {
	lost := fmt.Errorf("read from a server: %w", io.EOF)
	broken := numbers(1, 2)
	broken.end = lost
	short := numbers(1)
	short.rows = append(short.rows, rowOf(int8Of(2)[:7]))
	narrow := &list{rows: [][]byte{rowOf()}}
	for _, c := range []struct {
		sources []Source
		options Options
		want    error
		rows    int
	}{
		{[]Source{numbers(1, 2, 3), broken}, Options{Limit: -1}, lost, 4},
		{[]Source{numbers(1, 3, 2), numbers(4)}, Options{Limit: -1}, ErrUnsorted, 2},
		{[]Source{numbers(4), numbers(1, 2, 1)}, Options{Limit: -1}, ErrUnsorted, 2},
		{[]Source{numbers(1, 2), short}, Options{Limit: -1}, ErrMalformed, 2},
		{[]Source{numbers(1, 2), narrow}, Options{Limit: -1}, ErrMalformed, 0},
		{[]Source{numbers(1, 2)}, Options{Limit: -1, Distinct: 2}, nil, 0},
		{[]Source{numbers(1, 2)}, Options{Limit: -1, Ties: 2}, nil, 0},
	} {
		m := New(newOrder(t, 1), c.sources, c.options)
		var rows int
		var err error
		for err == nil {
			if _, err = m.Next(); err == nil {
				rows++
			}
		}
		if c.want != nil && !errors.Is(err, c.want) || c.want != lost && errors.Is(err, io.EOF) || rows != c.rows { //nolint:errorlint // the very one
			t.Errorf("%+v: %v after %d rows; want %v after %d", c.options, err, rows, c.want, c.rows)
		}
		if _, again := m.Next(); again != err { //nolint:errorlint // the very one
			t.Errorf("%v, then %v", err, again)
		}
	}
}

func TestOrderErrors(t *testing.T) {
	const enum, jsonb, int4Array = 16400, 3802, 1007
	for _, oid := range []uint32{0, enum, jsonb, int4Array} {
		if _, err := NewOrder([]Key{{Type: oid}}); err == nil || HasOrder(oid, `"C"`, true) {
			t.Errorf("type %d has an order", oid)
		}
	}
	if _, err := NewOrder([]Key{{Column: -1, Type: oidInt8}}); err == nil {
		t.Error("a column below 0 was taken")
	}
}

// TestMalformedValues: what is not as long as it says, or says what no server does, is not compared.
func TestMalformedValues(t *testing.T) {
	for oid, values := range map[uint32][]string{
		oidBool:     {"", "\x02", "\x00\x00"},
		oidInt8:     {"", "1234567"},
		oidTimetz:   {"12345678"},
		oidInterval: {"12345678"},
		oidNumeric: {
			"", "\x00\x01\x00\x00\x00\x00\x00\x00", "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01", "\x00\x01\x00\x00\x00\x00\x00\x00\x27\x10", "\x00\x01\x00\x00\x40\x01\x00\x00\x00\x01",
			"\x00\x01\x00\x00\x00\x00\x40\x00\x00\x01", "\x00\x01\xef\xff\x00\x00\x00\x00\x00\x01", "\x00\x02\xf0\x00\x00\x00\x00\x00\x00\x01\x00\x01",
		},
		oidVarbit: {"", "\x00\x00\x00\x09\x00", "\x00\x00\x00\x01", "\xff\xff\xff\xff"},
		oidInet:   {"", "\x02\x21\x00\x04\x01\x02\x03\x04", "\x02\x00\x00\x04\x01\x02\x03", "\x03\x00\x00\x04\x01\x02\x03\x04", "\x04\x00\x00\x04\x01\x02\x03\x04"},
	} {
		order, err := NewOrder([]Key{{Type: oid}})
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range values {
			if _, err := order.Compare(rowOf(nil), rowOf([]byte(value))); !errors.Is(err, ErrMalformed) {
				t.Errorf("%q of type %d: %v", value, oid, err)
			}
		}
	}
}

func TestHasOrder(t *testing.T) {
	for _, c := range []struct {
		oid         uint32
		collation   string
		databaseIsC bool
		want        bool
	}{
		{oidInt8, "", false, true},
		{oidText, `"C"`, false, true},
		{oidText, `"POSIX"`, false, true},
		{oidText, `"default"`, false, false},
		{oidText, `"default"`, true, true},
		{oidText, `"en_US"`, true, false},
		{oidText, `public."C"`, true, false},
		{oidText, "", true, false},
		{oidBpchar, `"default"`, false, false},
		{oidVarchar, "ucs_basic", true, false},
		{oidName, "", false, true},
		{oidName, `"C"`, false, true},
		{oidName, `"default"`, false, false},
		{oidName, `"en_US"`, true, false},
	} {
		if got := HasOrder(c.oid, c.collation, c.databaseIsC); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestMergerLaw: whatever the sources, the result is what sorting all rows gives.
func TestMergerLaw(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		order, err := NewOrder([]Key{{Column: 1, Type: oidInt8, Descending: rapid.Bool().Draw(rt, "descending")}, {Column: 0, Type: oidInt8, NullsFirst: rapid.Bool().Draw(rt, "nulls first")}})
		if err != nil {
			rt.Fatal(err)
		}
		compare := func(a, b []byte) int {
			order, err := order.Compare(a, b)
			if err != nil {
				rt.Fatal(err)
			}
			return order
		}
		field := rapid.SampledFrom([][]byte{nil, int8Of(-1), int8Of(0), int8Of(2)})
		var sources []Source
		var all [][]byte
		for source := range rapid.IntRange(0, 9).Draw(rt, "sources") {
			var rows [][]byte
			for i := range rapid.IntRange(0, 6).Draw(rt, "rows") {
				rows = append(rows, rowOf(field.Draw(rt, "second"), field.Draw(rt, "first"), int8Of(int64(source*10+i))))
			}
			slices.SortStableFunc(rows, compare)
			sources = append(sources, &list{rows: rows})
			all = append(all, rows...)
		}
		slices.SortStableFunc(all, compare)
		got, err := readAll(New(order, sources, Options{Limit: -1}))
		if err != nil || !slices.EqualFunc(got, all, slices.Equal) {
			rt.Errorf("%v\n%q, want\n%q", err, got, all)
		}
	})
}
