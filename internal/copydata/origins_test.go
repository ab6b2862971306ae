package copydata

import (
	"testing"

	"pgregory.net/rapid"
)

// TestOriginsFindEveryLine: for any rows and destinations, a line that a destination counts is the line that the client counts.
func TestOriginsFindEveryLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(1, 70).Draw(t, "destinations")
		o := NewOrigins(count)
		head := rapid.IntRange(0, 2).Draw(t, "header")
		if head > 0 {
			o.Add(0, &Piece{Kind: HeaderPiece, lines: head, alone: head})
		}
		client, here, got := head, make([]int, count), make([]bool, count)
		type known struct{ destination, here, client int }
		var all []known
		for range rapid.IntRange(0, 300).Draw(t, "rows") {
			d := rapid.IntRange(0, count-1).Draw(t, "destination")
			p := Piece{Kind: Row, lines: 1, alone: 1}
			if rapid.IntRange(0, 9).Draw(t, "wide") == 0 {
				p.lines, p.alone = rapid.IntRange(1, 4).Draw(t, "lines"), rapid.IntRange(1, 4).Draw(t, "alone")
			}
			o.Add(d, &p)
			client += p.lines
			if !got[d] && head == 0 {
				here[d] += p.alone
			} else {
				here[d] += p.lines
			}
			got[d] = true
			all = append(all, known{d, here[d], client})
		}
		for _, k := range all {
			if line, found := o.Line(k.destination, head+k.here); !found || line != k.client {
				t.Fatalf("line %d of destination %d is line %d, %t; want %d", head+k.here, k.destination, line, found, k.client)
			}
		}
		for d, lines := range here {
			if line, found := o.Line(d, head+lines+1); found {
				t.Fatalf("destination %d has %d lines, and line %d is said to be %d", d, lines, lines+1, line)
			}
		}
	})
}

// TestOriginsHaveALimit: what is beyond it is not known, which is better than wrong.
func TestOriginsHaveALimit(t *testing.T) {
	const perBlock = blockWords * wordBits / 2
	for name, p := range map[string]*Piece{"rows": {Kind: Row, lines: 1, alone: 1}, "wide rows": {Kind: Row, lines: 2, alone: 2}} {
		o := NewOrigins(4)
		o.limit = 2 * blockWords * wordBits / 8
		for i := range 3 * perBlock {
			o.Add(i%4, p)
		}
		if o.rows == 0 || o.rows > 2*perBlock || !o.full {
			t.Errorf("%s: %d are kept, full: %t", name, o.rows, o.full)
		}
		if line, found := o.Line(3, p.lines); !found || line != 4*p.lines {
			t.Errorf("%s: the first is line %d, %t", name, line, found)
		}
		if line, found := o.Line(3, p.lines*perBlock); found {
			t.Errorf("%s: one that is not kept is said to be line %d", name, line)
		}
	}
}

func TestContext(t *testing.T) {
	o := NewOrigins(2)
	row := &Piece{Kind: Row, lines: 1, alone: 1}
	for _, d := range []int{0, 1, 1, 0, 1} {
		o.Add(d, row)
	}
	for _, c := range []struct{ table, context, want string }{
		{"orders", `COPY orders, line 3, column total: "x"`, `COPY orders, line 5, column total: "x"`},
		{"orders", `COPY orders, line 2: "a	b"`, `COPY orders, line 3: "a	b"`},
		{"orders", `COPY orders, line 1`, `COPY orders, line 2`},
		{"a, line 3", `COPY a, line 3, line 2, column b: null input`, `COPY a, line 3, line 3, column b: null input`},
		{"a\nb", "COPY a\nb, line 2", "COPY a\nb, line 3"},
		{"t", "PL/pgSQL function f() line 1 at RAISE\nCOPY t, line 2: \"x\nCOPY t, line 1\"", "PL/pgSQL function f() line 1 at RAISE\nCOPY t, line 3: \"x\nCOPY t, line 1\""},
		{"t", `COPY t, line 9`, `COPY t, line 9 of the rows for shard "b"`},
		{"t", `COPY t, line 99999999999999999999`, "COPY t, line 99999999999999999999\nnumbers of lines are those of the rows for shard \"b\""},
		{"t", `COPY t, Zeile 2`, "COPY t, Zeile 2\nnumbers of lines are those of the rows for shard \"b\""},
		{"t", `COPY t`, `COPY t`},
		{"t", "PL/pgSQL function f() line 1 at RAISE", "PL/pgSQL function f() line 1 at RAISE"},
		{"t", "", ""},
	} {
		if got := o.Context(c.context, c.table, 1, "b"); got != c.want {
			t.Errorf("%q: got %q, want %q", c.context, got, c.want)
		}
	}
}
