package main

import (
	"strings"
	"testing"
)

func TestThePasswordIsTheFirstLine(t *testing.T) {
	for _, c := range []struct{ input, want string }{
		{"", ""}, {"secret", "secret"}, {"secret\n", "secret"}, {"secret\r\n", "secret"}, {"secret\nmore", "secret"}, {" in blanks \n", " in blanks "}, {"\nlate", ""},
	} {
		if got, err := readLine(strings.NewReader(c.input)); err != nil || got != c.want {
			t.Errorf("%q is read as %q, %v", c.input, got, err)
		}
	}
	if _, err := readLine(strings.NewReader(strings.Repeat("x", longestPassword+1))); err == nil {
		t.Error("there is no end to a password")
	}
}
