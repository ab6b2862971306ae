package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cleavedb/cleave/bench/rig"
)

// The two sides of a comparison: what is measured, and what it is measured by.
const (
	ours = iota
	theirs
)

// comparison is one thing that is done in two ways.
type comparison struct {
	name  string
	sides [2]func() error
	// most is the greatest ratio of times that is wanted; 0: none is.
	most float64
	// inverted: the ratio is shown the other way round, as that of throughputs, and may not be less than this.
	inverted float64
}

// figure is what was measured of a comparison.
type figure struct {
	comparison
	// times are those of both sides, round by round.
	times [2][]time.Duration
}

// shortest is how long one measurement takes at least: what is faster than that is repeated.
const shortest = 250 * time.Millisecond

// compare measures both sides by turns.
func (l *lab) compare(ctx context.Context, c comparison) (figure, error) {
	f := figure{comparison: c}
	var repeats [2]int
	for i, do := range c.sides {
		var err error
		if repeats[i], err = warmUp(do); err != nil {
			return f, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	for round := range l.options.rounds {
		if ctx.Err() != nil {
			return f, context.Cause(ctx)
		}
		order := []int{ours, theirs}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, side := range order {
			took, err := timeOf(c.sides[side], repeats[side])
			if err != nil {
				return f, fmt.Errorf("%s: %w", c.name, err)
			}
			f.times[side] = append(f.times[side], took)
		}
	}
	return f, nil
}

// warmUp does something as often as it can be done in the shortest time, and at least twice, and returns how often.
func warmUp(do func() error) (repeats int, err error) {
	if err := do(); err != nil {
		return 0, err
	}
	for began := time.Now(); repeats == 0 || time.Since(began) < shortest; repeats++ {
		if err := do(); err != nil {
			return 0, err
		}
	}
	return repeats, nil
}

// timeOf is how long something takes, of as many times as it is done.
func timeOf(do func() error, repeats int) (time.Duration, error) {
	began := time.Now()
	for range repeats {
		if err := do(); err != nil {
			return 0, err
		}
	}
	return time.Since(began) / time.Duration(repeats), nil
}

// ratios are ours over theirs, round by round.
func (f figure) ratios() []float64 {
	ratios := make([]float64, len(f.times[ours]))
	for round := range ratios {
		ratios[round] = float64(f.times[ours][round]) / float64(f.times[theirs][round])
	}
	return ratios
}

// together is a figure of several: what all of them took, round by round.
func together(c comparison, figures []figure) figure {
	f := figure{comparison: c}
	for side := range f.times {
		f.times[side] = make([]time.Duration, len(figures[0].times[side]))
		for _, one := range figures {
			for round, took := range one.times[side] {
				f.times[side][round] += took
			}
		}
	}
	return f
}

// cells are a figure's in a table.
func (f figure) cells() []string {
	ratios := slices.Sorted(slices.Values(f.ratios()))
	middle, least, most := rig.Median(ratios), ratios[0], ratios[len(ratios)-1]
	wanted := ""
	switch {
	case f.inverted > 0:
		middle, least, most = 1/middle, 1/most, 1/least
		wanted = verdict(fmt.Sprintf("≥ %g", f.inverted), middle >= f.inverted)
	case f.most > 0:
		wanted = verdict(fmt.Sprintf("≤ %g", f.most), middle <= f.most)
	}
	return []string{f.name, fmt.Sprintf("%.2f", middle), fmt.Sprintf("%.2f – %.2f", least, most), wanted}
}

// verdict says whether what was wanted was reached.
func verdict(wanted string, reached bool) string {
	if reached {
		return wanted + ": reached"
	}
	return wanted + ": missed"
}

// print prints figures as a table.
func (l *lab) print(out io.Writer, title, ratio string, figures ...figure) {
	fmt.Fprintf(out, "\n%s; medians of %d rounds, %d shards\n", title, l.options.rounds, l.options.shards)
	rows := [][]string{{"", ratio, "from – to", "wanted"}}
	for _, f := range figures {
		rows = append(rows, f.cells())
	}
	rig.PrintTable(out, rows)
}
