package main

import (
	"strings"
	"testing"
)

func TestThePasswordIsTheFirstLine(t *testing.T) {
	for input, want := range map[string]string{
		"": "", "secret": "secret", "secret\n": "secret", "secret\r\n": "secret", "secret\nmore": "secret", " in blanks \n": " in blanks ", "\nlate": "",
	} {
		if got, err := readLine(strings.NewReader(input)); err != nil || got != want {
			t.Errorf("%q is read as %q, %v", input, got, err)
		}
	}
	if _, err := readLine(strings.NewReader(strings.Repeat("x", longestPassword+1))); err == nil {
		t.Error("there is no end to a password")
	}
}
