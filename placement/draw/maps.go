package draw

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/placement"
)

// Shape is how a map is drawn.
type Shape int

const (
	// Ring bends the space to a circle that starts at the top and runs clockwise.
	Ring Shape = iota
	// Strip lays the space out in lines, left to right and top to bottom.
	Strip
)

// Panel is one map with a heading.
type Panel struct {
	Title string
	Map   *placement.Map
}

const (
	margin      = 24.0
	mapTop      = 62.0
	legendLine  = 18.0
	legendLimit = 24 // shards that get a line each; more get a chart
	chartHeight = 150.0
	extremes    = 5 // shards named at each end of a chart
	ringCells   = 2160
	stripLines  = 24
)

// layout has the measures that depend on how many shards there are: many need room.
type layout struct {
	panel  float64 // a panel's width
	side   float64 // of the map, a square
	legend float64 // where the legend begins
	height float64 // of the legend
}

func layoutFor(shards int) layout {
	if shards <= legendLimit {
		return layout{panel: 420, side: 372, legend: mapTop + 372 + 30, height: float64(shards)*legendLine + 20}
	}
	return layout{panel: 720, side: 672, legend: mapTop + 672 + 30, height: chartHeight + 50 + extremes*legendLine}
}

// Maps draws the panels side by side. A shard has the same colour in all of them.
func Maps(w io.Writer, title string, shape Shape, panels ...Panel) error {
	if len(panels) == 0 {
		return errors.New("nothing to draw")
	}
	names := shardNames(panels)
	g := layoutFor(len(names))
	c := &canvas{width: g.panel * float64(len(panels)), height: g.legend + g.height + 36}
	c.text(margin, 28, 17, "start", inkColour, title)
	merged := false
	for i, p := range panels {
		left := float64(i)*g.panel + margin
		c.text(left, 50, 12, "start", quietColour, p.Title)
		cells := ringCells
		if shape == Strip {
			cells = stripLines * int(g.side)
		}
		spots, coarse := spotOwners(p.Map, cells)
		merged = merged || coarse
		owners := numbersIn(p.Map, names)
		if shape == Strip {
			drawStrip(c, g, left, spots, owners, names)
		} else {
			drawRing(c, g, left, spots, owners, names, p.Map)
		}
		drawLegend(c, g, left, p.Map, owners, names)
	}
	if merged {
		c.text(margin, c.height-26, 11, "start", quietColour, "Some ranges are finer than the picture: a spot shows the shard")
		c.text(margin, c.height-12, 11, "start", quietColour, "that owns the most of it. The shares are exact.")
	}
	return c.writeTo(w, title)
}

// shardNames lists all shards of all panels, each once, in order.
func shardNames(panels []Panel) []string {
	var names []string
	seen := map[string]bool{"": true} // an empty seat is no shard
	for _, p := range panels {
		for _, name := range p.Map.Shards() {
			if !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}

// numbersIn maps the map's shard numbers to places in names; empty seats, which own nothing, are -1.
func numbersIn(m *placement.Map, names []string) []int {
	place := map[string]int{"": -1}
	for i, name := range names {
		place[name] = i
	}
	shards := m.Shards()
	numbers := make([]int, len(shards))
	for i, name := range shards {
		numbers[i] = place[name]
	}
	return numbers
}

// spotOwners cuts the space into equal spots and says which shard owns the most of each; coarse if any
// spot holds more than a border.
func spotOwners(m *placement.Map, spots int) (result []int, coarse bool) {
	starts := make([]uint64, spots)
	for i := range starts {
		start := new(big.Int).Lsh(big.NewInt(int64(i)), 64)
		starts[i] = start.Quo(start, big.NewInt(int64(spots))).Uint64()
	}
	result = make([]int, spots)
	share := make(map[int]uint64)
	at := 0
	for i, lo := range starts {
		last := uint64(math.MaxUint64)
		if i+1 < spots {
			last = starts[i+1] - 1
		}
		clear(share)
		pieces := 0
		for {
			r := m.At(at)
			end := min(r.Hi-1, last) // an open range ends at the last hash: 0 - 1
			share[m.Lookup(end)] += end - max(r.Lo, lo) + 1
			pieces++
			if r.Hi-1 > last || at+1 == m.Len() {
				break
			}
			at++
			if r.Hi-1 == last {
				break
			}
		}
		result[i] = most(share)
		coarse = coarse || pieces > 2 // two is a border
	}
	return result, coarse
}

func most(share map[int]uint64) int {
	best, length := -1, uint64(0)
	for owner, n := range share {
		if n > length || n == length && owner < best {
			best, length = owner, n
		}
	}
	return best
}

// runs calls yield for each longest run of spots with one owner.
func runs(spots []int, yield func(owner, from, to int)) {
	from := 0
	for i := 1; i <= len(spots); i++ {
		if i == len(spots) || spots[i] != spots[from] {
			yield(spots[from], from, i)
			from = i
		}
	}
}

func drawRing(c *canvas, g layout, left float64, spots, owners []int, names []string, m *placement.Map) {
	outer := g.side / 2
	inner := outer * 0.62
	x, y := left+outer, mapTop+outer
	paths := make([]strings.Builder, len(names))
	runs(spots, func(owner, from, to int) {
		arc(&paths[owners[owner]], x, y, inner, outer, float64(from)/ringCells, float64(to)/ringCells)
	})
	for i := range paths {
		if paths[i].Len() > 0 {
			c.path(paths[i].String(), colour(i, len(names)), names[i])
		}
	}
	f := m.Figures()
	c.text(x, y-14, 22, "middle", inkColour, fmt.Sprintf("%d shards", f.Shards))
	c.text(x, y+8, 13, "middle", quietColour, counted(m.Len(), "range"))
	skew := fmt.Sprintf("max/min %.2f", f.Skew())
	if math.IsInf(f.Skew(), 0) {
		skew = "not every shard owns a part"
	}
	c.text(x, y+28, 13, "middle", quietColour, skew)
}

// arc appends a piece of the annulus; from and to are parts of a turn. A whole turn is drawn as two halves, because an
// arc that ends where it begins is nothing.
func arc(d *strings.Builder, x, y, inner, outer, from, to float64) {
	if to-from > 0.999 {
		arc(d, x, y, inner, outer, from, from+0.5)
		arc(d, x, y, inner, outer, from+0.5, to-1e-6)
		return
	}
	large := 0
	if to-from > 0.5 {
		large = 1
	}
	point := func(r, turn float64) (float64, float64) {
		sin, cos := math.Sincos(turn * 2 * math.Pi)
		return x + r*sin, y - r*cos
	}
	ax, ay := point(outer, from)
	bx, by := point(outer, to)
	cx, cy := point(inner, to)
	dx, dy := point(inner, from)
	fmt.Fprintf(d, "M%.1f %.1fA%.1f %.1f 0 %d 1 %.1f %.1fL%.1f %.1fA%.1f %.1f 0 %d 0 %.1f %.1fZ", ax, ay, outer, outer, large, bx, by, cx, cy, inner, inner, large, dx, dy)
}

func drawStrip(c *canvas, g layout, left float64, spots, owners []int, names []string) {
	paths := make([]strings.Builder, len(names))
	line := len(spots) / stripLines
	height := g.side / stripLines
	for row := range stripLines {
		runs(spots[row*line:(row+1)*line], func(owner, from, to int) {
			fmt.Fprintf(&paths[owners[owner]], "M%.1f %.1fh%dv%.1fh-%dZ", left+float64(from), mapTop+float64(row)*height, to-from, height-2, to-from)
		})
	}
	for i := range paths {
		if paths[i].Len() > 0 {
			c.path(paths[i].String(), colour(i, len(names)), names[i])
		}
	}
}

func drawLegend(c *canvas, g layout, left float64, m *placement.Map, owners []int, names []string) {
	var bars []bar
	for number, e := range m.Extents() {
		if i := owners[number]; i >= 0 {
			bars = append(bars, bar{names[i], colour(i, len(names)), e.Share()})
		}
	}
	if len(names) <= legendLimit {
		drawLines(c, g, left, bars)
	} else {
		drawChart(c, g, left, bars, m.Figures().Mean)
	}
}

// bar is one shard's share.
type bar struct {
	name, colour string
	share        float64
}

// drawLines gives every shard a line: colour, name, bar, share.
func drawLines(c *canvas, g layout, left float64, bars []bar) {
	full := slices.MaxFunc(bars, byShare).share
	for i, b := range bars {
		y := g.legend + float64(i)*legendLine
		c.rect(left, y-10, 12, 12, b.colour, "")
		c.text(left+18, y, 12, "start", inkColour, shorten(b.name, 22))
		c.rect(left+170, y-9, 130*b.share/full, 9, b.colour, b.name)
		c.text(left+g.side, y, 12, "end", inkColour, percent(b.share))
	}
}

func byShare(a, b bar) int { return cmp.Compare(a.share, b.share) }

// drawChart draws the shares of many shards as bars in order of size, with their mean, and names those at both ends.
func drawChart(c *canvas, g layout, left float64, bars []bar, mean float64) {
	slices.SortStableFunc(bars, func(a, b bar) int { return byShare(b, a) })
	bottom := g.legend + chartHeight
	width := g.side / float64(len(bars))
	full := bars[0].share
	for i, b := range bars {
		height := chartHeight * b.share / full
		c.rect(left+float64(i)*width, bottom-height, width, height, b.colour, b.name+" "+percent(b.share))
	}
	level := bottom - chartHeight*mean/full
	c.dashed(left, level, left+g.side, level)
	c.text(left+g.side, level-5, 11, "end", inkColour, "mean "+percent(mean))
	c.text(left, bottom+22, 12, "start", quietColour, "the most")
	c.text(left+g.side/2, bottom+22, 12, "start", quietColour, "the least")
	for i := range min(extremes, len(bars)) {
		y := bottom + 42 + float64(i)*legendLine
		drawEntry(c, left, y, bars[i])
		drawEntry(c, left+g.side/2, y, bars[len(bars)-1-i])
	}
}

func drawEntry(c *canvas, x, y float64, b bar) {
	c.rect(x, y-10, 12, 12, b.colour, "")
	c.text(x+18, y, 12, "start", inkColour, shorten(b.name, 22))
	c.text(x+220, y, 12, "end", inkColour, percent(b.share))
}

func shorten(s string, limit int) string {
	runes := []rune(s)
	if len(runes) <= limit {
		return s
	}
	return string(runes[:limit-1]) + "…"
}

// counted prints a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
