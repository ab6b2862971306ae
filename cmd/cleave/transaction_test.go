package main

import (
	"strings"
	"testing"
)

// TestResolveAsInItsHelp: the example can be run as it stands.
func TestResolveAsInItsHelp(t *testing.T) {
	cmd := newTransactionResolve(&connection{})
	words := strings.Fields(cmd.Example)
	if err := cmd.ParseFlags(words[3:]); err != nil {
		t.Fatal(err)
	}
	if yes, err := cmd.Flags().GetBool("yes"); err != nil || !yes {
		t.Errorf("%q is refused, %v", cmd.Example, err)
	}
}
