package main

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"io"
	"math/big"
	"regexp"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/placement/draw"
)

// shapes are the words for --shape.
var shapes = map[string]draw.Shape{"ring": draw.Ring, "strip": draw.Strip}

// panelsInARow is how many keyspaces are drawn side by side before the picture goes on below.
const panelsInARow = 3

// drawMap draws the keyspaces of a map.
func drawMap(cmd *cobra.Command, out *output, version uint64, keyspaces []*topology.Keyspace, shape draw.Shape) error {
	panels, err := mapPanels(keyspaces)
	if err != nil {
		return err
	}
	title := fmt.Sprintf("Shard map, version %d", version)
	return out.write(cmd, func(w io.Writer) error {
		if len(panels) <= panelsInARow {
			return draw.Maps(w, title, shape, panels...)
		}
		return drawRows(w, title, shape, panels)
	})
}

// mapPanels makes a picture of every keyspace.
func mapPanels(keyspaces []*topology.Keyspace) ([]draw.Panel, error) {
	var panels []draw.Panel
	for _, k := range keyspaces {
		title := fmt.Sprintf("%s, by %s, %s", k.Name(), k.Strategy(), counted(k.RangeCount(), "range"))
		drawable := k.Hashes()
		if drawable == nil {
			var err error
			if drawable, err = equallyWide(k.Keys()); err != nil {
				return nil, err
			}
			title += ", drawn equally wide"
		}
		panels = append(panels, draw.Panel{Title: title, Map: drawable})
	}
	if len(panels) == 0 {
		return nil, errors.New("there is nothing to draw: the map has no keyspaces")
	}
	return panels, nil
}

// equallyWide lays ranges of a key, which have an order but no length, out over the space evenly.
func equallyWide(keys *placement.KeyMap) (*placement.Map, error) {
	count := big.NewInt(int64(keys.Len()))
	ranges := make([]placement.OwnedHashRange, keys.Len())
	for i := range ranges {
		start := new(big.Int).Lsh(big.NewInt(int64(i)), 64)
		ranges[i].Lo, ranges[i].Owner = start.Quo(start, count).Uint64(), keys.At(i).Owner
		if i > 0 {
			ranges[i-1].Hi = ranges[i].Lo
		}
	}
	return placement.NewMap(keys.Shards(), ranges)
}

// pictureHead matches the beginning of a picture, up to its height.
var pictureHead = regexp.MustCompile(`^<svg [^>]*?width="([0-9.]+)" height="([0-9.]+)"`)

// drawRows draws many panels as rows, one picture below the other. A shard has the same colour in all of them, because every
// keyspace knows all shards of the map.
func drawRows(w io.Writer, title string, shape draw.Shape, panels []draw.Panel) error {
	rows := slices.Collect(slices.Chunk(panels, panelsInARow))
	var content bytes.Buffer
	var width, height float64
	for i, row := range rows {
		var picture bytes.Buffer
		if err := draw.Maps(&picture, fmt.Sprintf("%s (%d of %d)", title, i+1, len(rows)), shape, row...); err != nil {
			return err
		}
		size := pictureHead.FindSubmatch(picture.Bytes())
		if size == nil {
			return errors.New("draw the map: a row has no size")
		}
		rowWidth, _ := strconv.ParseFloat(string(size[1]), 64) // it matched as digits
		rowHeight, _ := strconv.ParseFloat(string(size[2]), 64)
		fmt.Fprintf(&content, `<svg y="%g"`, height)
		content.Write(bytes.TrimPrefix(picture.Bytes(), []byte("<svg")))
		width, height = max(width, rowWidth), height+rowHeight
	}
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]g" height="%[2]g" viewBox="0 0 %[1]g %[2]g" role="img">
<title>%[3]s</title>
<rect width="100%%" height="100%%" fill="#ffffff"/>
%[4]s</svg>
`, width, height, html.EscapeString(title), content.String())
	return err
}
