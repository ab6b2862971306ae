package api

import (
	"slices"
	"testing"
)

// TestPointsAreValuesOrLists: a value is taken as it is, and of a list nothing is left out.
func TestPointsAreValuesOrLists(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"": nil, "acme": {"acme"}, "2026-01-01 12:00:00+00": {"2026-01-01 12:00:00+00"}, `["acme", 9223372036854775807]`: {"acme", "9223372036854775807"}, `["acme\u0001"] `: {"acme\x01"},
	} {
		if point, err := ParsePoint(text); err != nil || !slices.Equal(point, want) {
			t.Errorf("%s is %q, %v", text, point, err)
		}
	}
	for _, wrong := range []string{"[1", "[1]2", `["a"]]`} {
		if point, err := ParsePoint(wrong); err == nil {
			t.Errorf("%s is %q", wrong, point)
		}
	}
	for _, point := range [][]string{{"acme"}, {"acme\x01"}, {"a:b"}, {""}, {"a", "1"}} {
		if read, err := ParsePoint(PointText(point)); err != nil || !slices.Equal(read, point) {
			t.Errorf("%q is written %s, and read as %q, %v", point, PointText(point), read, err)
		}
	}
	if text := PointText([]string{"acme\x01"}); text != `["acme\u0001"]` {
		t.Errorf("what nobody sees is written %s", text)
	}
}
