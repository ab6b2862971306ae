package draw

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/cleavedb/cleave/placement"
)

// Row is one algorithm in a comparison.
type Row struct {
	// Name is the algorithm.
	Name string
	// Counts are items per shard after the change.
	Counts []float64
	// Overlap is the share of items that stay where they are.
	Overlap float64
}

const (
	rowHeight     = 62.0
	labelWidth    = 190.0
	barsWidth     = 420.0
	movementWidth = 260.0
	headHeight    = 96.0
	stayColour    = "#3a9d6e"
	moveColour    = "#e07b39"
)

// Comparison draws, for each algorithm, how many items each shard has and how many of all items had to move.
func Comparison(w io.Writer, title, note string, rows []Row) error {
	if len(rows) == 0 {
		return errors.New("nothing to draw")
	}
	c := &canvas{
		width:  margin*2 + labelWidth + barsWidth + margin + movementWidth,
		height: headHeight + rowHeight*float64(len(rows)) + margin,
	}
	c.text(margin, 30, 17, "start", inkColour, title)
	c.text(margin, 52, 12, "start", quietColour, note)
	bars := margin + labelWidth
	movement := bars + barsWidth + margin
	c.text(bars, 82, 12, "start", inkColour, "items on each shard (dashed: the mean)")
	c.text(movement, 82, 12, "start", inkColour, "items that stay and that move")
	for i, row := range rows {
		top := headHeight + rowHeight*float64(i)
		f := placement.Measure(row.Counts)
		c.text(margin, top+24, 14, "start", inkColour, row.Name)
		c.text(margin, top+41, 11, "start", quietColour, fmt.Sprintf("std %s, max/mean %.2f", short(f.Std), f.Peak()))
		drawBars(c, bars, top+6, row.Counts, f)
		drawMovement(c, movement, top+14, row.Overlap)
	}
	return c.writeTo(w, title)
}

func drawBars(c *canvas, left, top float64, counts []float64, f placement.Figures) {
	height := rowHeight - 16
	// Two means fit; a taller bar is cut and marked, or one bad algorithm would flatten all the others.
	scale := height / 2 / max(f.Mean, math.SmallestNonzeroFloat64)
	width := barsWidth / float64(len(counts))
	for i, count := range counts {
		bar := min(count*scale, height)
		x := left + float64(i)*width
		c.rect(x, top+height-bar, max(width-1, 0.5), bar, colour(i, len(counts)), fmt.Sprintf("shard %d: %.0f", i, count))
		if count*scale > height {
			c.rect(x, top, max(width-1, 0.5), 3, inkColour, fmt.Sprintf("shard %d: %.0f, more than fits", i, count))
		}
	}
	c.dashed(left, top+height/2, left+barsWidth, top+height/2)
}

func drawMovement(c *canvas, left, top, overlap float64) {
	const height = 22
	c.rect(left, top, movementWidth*overlap, height, stayColour, "stay "+percent(overlap))
	c.rect(left+movementWidth*overlap, top, movementWidth*(1-overlap), height, moveColour, "move "+percent(1-overlap))
	c.text(left, top+height+14, 11, "start", stayColour, "stay "+percent(overlap))
	c.text(left+movementWidth, top+height+14, 11, "end", moveColour, "move "+percent(1-overlap))
}

func short(v float64) string {
	if v >= 10_000 {
		return fmt.Sprintf("%.1fk", v/1000)
	}
	return fmt.Sprintf("%.1f", v)
}
