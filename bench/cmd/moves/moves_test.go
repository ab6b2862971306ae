package main

import (
	"slices"
	"strings"
	"testing"
)

func TestOptions(t *testing.T) {
	o, err := parseOptions([]string{"-quick", "-rounds", "7"})
	if err != nil {
		t.Fatal(err)
	}
	if o.rounds != 7 || o.rows != 100_000 || !slices.Equal(o.parts, []string{"copy"}) {
		t.Errorf("-quick -rounds 7 gave %+v", o)
	}
	if o, err = parseOptions(nil); err != nil || !slices.Equal(o.parts, allParts) {
		t.Errorf("without options %+v, %v", o, err)
	}
	for _, wrong := range []string{"-parts ,", "-parts pauses", "-rows 0", "-rounds 0", "-clients 0", "-streams 0", "-streams 1,x", "-streams ,", "-paces 0"} {
		if _, err := parseOptions(strings.Fields(wrong)); err == nil {
			t.Errorf("%s was accepted", wrong)
		}
	}
}
