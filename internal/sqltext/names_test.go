package sqltext

import (
	"slices"
	"testing"
)

func TestSplitNames(t *testing.T) {
	for _, c := range []struct {
		list      string
		separator byte
		want      []string
		ok        bool
	}{
		{"", ',', nil, true},
		{" \t", ',', nil, true},
		{"public", ',', []string{"public"}, true},
		{` "$user" , Public,"a""b,c" `, ',', []string{"$user", "public", `a"b,c`}, true},
		{"Ärger.ÖL", '.', []string{"Ärger", "Öl"}, true}, // Ö has no lower case in SQL, L has
		{`app."Orders"`, '.', []string{"app", "Orders"}, true},
		{`""`, ',', []string{""}, true},
		{`a""`, ',', []string{`a""`}, true},
		{`"open`, ',', nil, false},
		{`"open""`, ',', nil, false},
		{"a b", ',', []string{"a"}, false},
		{`"a"b`, ',', []string{"a"}, false},
		{"a,", ',', []string{"a"}, false},
		{",a", ',', nil, false},
	} {
		names, ok := SplitNames(c.list, c.separator)
		if ok != c.ok || !slices.Equal(names, c.want) {
			t.Errorf("%q: %q, %v; want %q, %v", c.list, names, ok, c.want, c.ok)
		}
	}
}
