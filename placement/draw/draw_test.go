package draw_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/placement/draw"
)

func mapOf(t *testing.T, algorithm string, from *placement.Map, shards []placement.Shard) *placement.Map {
	t.Helper()
	a, err := placement.New(algorithm, placement.Config{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := a.Ranges(from, shards)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// parsed checks that the picture is well-formed XML and returns all of its text.
func parsed(t *testing.T, picture []byte) string {
	t.Helper()
	decoder := xml.NewDecoder(bytes.NewReader(picture))
	var text strings.Builder
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		if chars, ok := token.(xml.CharData); ok {
			text.Write(chars)
			text.WriteByte('\n')
		}
	}
}

func drawn(t *testing.T, shape draw.Shape, panels ...draw.Panel) (picture []byte, text string) {
	t.Helper()
	var out bytes.Buffer
	if err := draw.Maps(&out, "a <title> & more", shape, panels...); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), parsed(t, out.Bytes())
}

func TestFewAndManyShards(t *testing.T) {
	for _, shape := range []draw.Shape{draw.Ring, draw.Strip} {
		few, text := drawn(t, shape, draw.Panel{Title: "few", Map: mapOf(t, "minimal", nil, placement.Numbered("shard-", 3))})
		for _, want := range []string{"shard-0", "shard-1", "shard-2", "33.4 %", "a <title> & more"} {
			if !strings.Contains(text, want) {
				t.Errorf("three shards: no %q in the picture", want)
			}
		}
		if strings.Contains(text, "finer than the picture") {
			t.Error("three ranges are said to be too fine to draw")
		}
		many, text := drawn(t, shape, draw.Panel{Title: "many", Map: mapOf(t, "ring", nil, placement.Numbered("shard-", 300))})
		for _, want := range []string{"the most", "the least", "mean 0.33 %", "finer than the picture"} {
			if !strings.Contains(text, want) {
				t.Errorf("three hundred shards: no %q in the picture", want)
			}
		}
		if len(few) > 20_000 || len(many) > 600_000 {
			t.Errorf("pictures of %d and %d bytes", len(few), len(many))
		}
	}
}

func TestOneShardFillsTheRing(t *testing.T) {
	picture, text := drawn(t, draw.Ring, draw.Panel{Map: mapOf(t, "minimal", nil, placement.Named("only <one>"))})
	if !strings.Contains(text, "only <one>") || bytes.Count(picture, []byte("<path")) != 1 {
		t.Errorf("one shard: %s", picture)
	}
}

func TestEmptySeatsAreNotDrawn(t *testing.T) {
	shards := placement.Numbered("shard-", 5)
	before := mapOf(t, "rendezvous-fast", nil, shards)
	after := mapOf(t, "rendezvous-fast", before, append(shards[:2:2], shards[3:]...))
	_, text := drawn(t, draw.Ring, draw.Panel{Title: "before", Map: before}, draw.Panel{Title: "after", Map: after})
	// Three times in the first picture: its part of the ring, its line, its bar.
	if n := strings.Count(text, "shard-2\n"); n != 3 {
		t.Errorf("shard-2 left, but stands %d times in the pictures:\n%s", n, text)
	}
}

func TestComparison(t *testing.T) {
	var out bytes.Buffer
	rows := []draw.Row{{Name: "even", Counts: []float64{5, 5}, Overlap: 0.5}, {Name: "uneven & more", Counts: []float64{100, 0, 0}, Overlap: 1}}
	if err := draw.Comparison(&out, "title", "note", rows); err != nil {
		t.Fatal(err)
	}
	text := parsed(t, out.Bytes())
	for _, want := range []string{"even", "uneven & more", "stay 50.0 %", "move 50.0 %", "more than fits"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the picture", want)
		}
	}
}

func TestNothingToDraw(t *testing.T) {
	if draw.Maps(io.Discard, "", draw.Ring) == nil || draw.Comparison(io.Discard, "", "", nil) == nil {
		t.Error("nothing was drawn without a word")
	}
}
