package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEveryPartIsMeasured runs all parts shortly. That both sides answer alike is asked for on the way; then they do not.
func TestEveryPartIsMeasured(t *testing.T) {
	pgtest.Installations(t)
	o, err := parseOptions([]string{"-rows", "2000", "-rounds", "1", "-shards", "2", "-queries", "1,5", "-folder", pgtest.Folder(t)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := openLab(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.closers.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(l.folder); !os.IsNotExist(err) {
			t.Errorf("the folder is still there: %v", err)
		}
	}()
	var out strings.Builder
	l.out = &out
	if err := l.measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"A table of 2000 events", "20 groups", "one row by an indexed column", "all rows in order", "MiB more while it streams", "200 × 20 rows", "beyond the pull", "Q1 pricing", "Q5 local", "\n  all ",
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("nothing is said of %q:\n%s", part, out.String())
		}
	}
	c, err := connect(t.Context(), l.urls()[theirs], []string{"DELETE FROM events WHERE id = 7"})
	if err != nil {
		t.Fatal(err)
	}
	c.close()
	if err := l.measureEvents(t.Context()); err == nil || !strings.Contains(err.Error(), "not equal") {
		t.Errorf("a row is missing, and nobody says so: %v", err)
	}
	if err := l.measureStream(t.Context()); err == nil || !strings.Contains(err.Error(), "1999 rows of 2000") {
		t.Errorf("a row is missing in the stream, and nobody says so: %v", err)
	}
}

func TestRatiosAreOfTheSameRound(t *testing.T) {
	const ms = time.Millisecond
	times := [2][]time.Duration{{10 * ms, 30 * ms, 20 * ms}, {10 * ms, 10 * ms, 10 * ms}}
	for _, c := range []struct {
		comparison
		want []string
	}{
		{comparison{name: "a", most: 2}, []string{"a", "2.00", "1.00 – 3.00", "≤ 2: reached"}},
		{comparison{name: "b", most: 1.9}, []string{"b", "2.00", "1.00 – 3.00", "≤ 1.9: missed"}},
		{comparison{name: "c", inverted: 0.6}, []string{"c", "0.50", "0.33 – 1.00", "≥ 0.6: missed"}},
		{comparison{name: "d"}, []string{"d", "2.00", "1.00 – 3.00", ""}},
	} {
		if got := (figure{c.comparison, times}).cells(); !slices.Equal(got, c.want) {
			t.Errorf("%q, not %q", got, c.want)
		}
	}
	all := together(comparison{name: "all"}, []figure{{times: times}, {times: [2][]time.Duration{{0, 10 * ms, 0}, {10 * ms, 10 * ms, 30 * ms}}}})
	if got := all.ratios(); !slices.Equal(got, []float64{0.5, 2, 0.5}) {
		t.Errorf("together %v", got)
	}
}

func TestOptions(t *testing.T) {
	o, err := parseOptions([]string{"-quick", "-rounds", "7", "-queries", "3,22"})
	if err != nil {
		t.Fatal(err)
	}
	if o.rounds != 7 || o.rows != 200_000 || !slices.Equal(o.queries, []int{3, 22}) || !slices.Equal(o.parts, allParts) {
		t.Errorf("-quick -rounds 7 -queries 3,22 gave %+v", o)
	}
	for _, wrong := range []string{"-rounds 0", "-parts ,", "-parts all", "-shards 1", "-rows 1", "-queries 23", "-queries x"} {
		if _, err := parseOptions(strings.Fields(wrong)); err == nil {
			t.Errorf("%s was accepted", wrong)
		}
	}
}
