package draw_test

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/placement/draw"
)

// A picture of three shards on a ring.
func ExampleMaps() {
	ring, err := placement.New("ring", placement.Config{})
	if err != nil {
		panic(err)
	}
	m, err := ring.Ranges(nil, placement.Numbered("shard-", 3))
	if err != nil {
		panic(err)
	}
	var svg bytes.Buffer
	if err := draw.Maps(&svg, "Three shards", draw.Ring, draw.Panel{Title: "a ring", Map: m}); err != nil {
		panic(err)
	}
	fmt.Println(strings.HasPrefix(svg.String(), "<svg"), strings.Count(svg.String(), "<path"), "colours")
	// Output: true 3 colours
}
