package sqltext

import (
	"slices"
	"testing"
)

func TestComments(t *testing.T) {
	for text, want := range map[string][]string{
		"":                      nil,
		"SELECT 1":              nil,
		"/* a */ SELECT 1 -- b": {" a ", " b"},
		"SELECT '/* no */', \"-- no\", $$/*no*/$$": nil,
		"/* a /* b */ c */ SELECT -- d\n 1 /**/":   {" a /* b */ c ", " d", ""},
		"SELECT 1 -/* x */ 2":                      {" x "},
		"SELECT 1 /* open":                         nil,
	} {
		var got []string
		Comments([]byte(text), true, func(c []byte) bool { got = append(got, string(c)); return true })
		if !slices.Equal(got, want) {
			t.Errorf("%q has %q, want %q", text, got, want)
		}
	}
}
