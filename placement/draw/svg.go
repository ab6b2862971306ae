package draw

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"math"
)

// canvas collects the elements of one picture.
type canvas struct {
	bytes.Buffer
	width, height float64
}

const (
	inkColour   = "#1d2430"
	quietColour = "#6b7480"
	paperColour = "#ffffff"
)

// writeTo wraps the elements in a document.
func (c *canvas) writeTo(w io.Writer, title string) error {
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]g" height="%[2]g" viewBox="0 0 %[1]g %[2]g" font-family="Inter, Segoe UI, Helvetica, Arial, sans-serif" role="img">
<title>%[3]s</title>
<rect width="100%%" height="100%%" fill="%[4]s"/>
%[5]s</svg>
`, c.width, c.height, html.EscapeString(title), paperColour, c.String())
	return err
}

func (c *canvas) text(x, y, size float64, anchor, colour, s string) {
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" font-size="%g" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, size, anchor, colour, html.EscapeString(s))
}

func (c *canvas) rect(x, y, width, height float64, colour, title string) {
	if title == "" {
		fmt.Fprintf(c, `<rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" fill="%s"/>`+"\n", x, y, width, height, colour)
		return
	}
	fmt.Fprintf(c, `<rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" fill="%s"><title>%s</title></rect>`+"\n", x, y, width, height, colour, html.EscapeString(title))
}

func (c *canvas) dashed(x1, y1, x2, y2 float64) {
	fmt.Fprintf(c, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="1" stroke-dasharray="3 3"/>`+"\n", x1, y1, x2, y2, inkColour)
}

func (c *canvas) path(d, colour, title string) {
	fmt.Fprintf(c, `<path d="%s" fill="%s"><title>%s</title></path>`+"\n", d, colour, html.EscapeString(title))
}

// fewColours are told apart easily, also by most who see colours differently.
var fewColours = []string{"#3b6fd4", "#e07b39", "#3a9d6e", "#b8479b", "#c9a227", "#5ab1cf", "#8c5bd1", "#d9534f", "#7a8f3c", "#4d5a78", "#e39ab8", "#936b4a"}

// colour gives shard i of n its colour. With many shards, hues step by the golden angle, so that neighbours differ, and
// lightness alternates, so that near hues still do.
func colour(i, n int) string {
	if n <= len(fewColours) {
		return fewColours[i]
	}
	hue := math.Mod(float64(i)*137.508, 360)
	return fmt.Sprintf("hsl(%.0f,%d%%,%d%%)", hue, 58+(i%2)*14, 42+(i%3)*11)
}

func percent(share float64) string {
	if share < 0.0995 {
		return fmt.Sprintf("%.2f %%", share*100)
	}
	return fmt.Sprintf("%.1f %%", share*100)
}
