package session

import (
	"fmt"
	"strings"
	"testing"
)

// TestSpoolsAreReadInAnyOrder: from the first row on, and each by its number, whether it is in memory or in the file.
func TestSpoolsAreReadInAnyOrder(t *testing.T) {
	const rows = 3000 // of 4 KiB on average: a third of them does not stay in memory
	content := func(n int64) string {
		return fmt.Sprint(n, " ") + strings.Repeat("x", int(n*7919%8192))
	}
	p := &spool{of: &allowance{Rows: Rows{}.withDefaults()}}
	defer p.close()
	for n := range int64(rows) {
		if refused := p.add([]byte(content(n))); refused != nil {
			t.Fatal(refused)
		}
	}
	if p.file == nil {
		t.Fatal("all of it is in memory")
	}
	is := func(n int64, row []byte) {
		t.Helper()
		if string(row) != content(n) {
			t.Fatalf("row %d is %.20q, of %d bytes", n, row, len(row))
		}
	}
	for n := range int64(rows) {
		row, refused := p.next()
		if refused != nil {
			t.Fatal(refused)
		}
		is(n, row)
	}
	if row, refused := p.next(); row != nil || refused != nil {
		t.Errorf("behind the last: %q, %v", row, refused)
	}
	for i := range int64(2 * rows) {
		n := rows - 1 - i // back from the last
		if i >= rows {
			n = i * 2741 % rows
		}
		row, refused := p.get(n)
		if refused != nil {
			t.Fatal(refused)
		}
		is(n, row)
	}
	for _, n := range []int64{-1, rows} {
		if row, refused := p.get(n); refused == nil {
			t.Errorf("row %d is %.20q", n, row)
		}
	}
}
