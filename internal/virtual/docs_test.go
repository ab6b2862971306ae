package virtual_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/virtual"
)

// TestThePageNamesEveryColumn: column names are a part of the interface.
func TestThePageNamesEveryColumn(t *testing.T) {
	page, err := os.ReadFile("../../docs/sql-interface.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, columns := range virtual.Views() {
		quoted := make([]string, len(columns))
		for i, c := range columns {
			quoted[i] = "`" + c.Name + "`"
		}
		line := fmt.Sprintf("| `cleave.%s` | %s", name, strings.Join(quoted, ", "))
		if !strings.Contains(string(page), line) {
			t.Errorf("docs/sql-interface.md lacks a line that begins with\n%s", line)
		}
	}
}

// TestThePageNamesEveryFunction with every parameter: somebody who reads it alone finds all that can be said.
func TestThePageNamesEveryFunction(t *testing.T) {
	page, err := os.ReadFile("../../docs/sql-interface.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(page), "\n## Functions\n")
	list, _, _ = strings.Cut(list, "\n## ")
	if !found || list == "" {
		t.Fatal("docs/sql-interface.md has no list of functions")
	}
	for name, parameters := range virtual.Functions() {
		at := slices.IndexFunc(strings.Split(list, "\n"), func(line string) bool {
			cells := strings.SplitN(line, " | ", 2)
			return strings.Contains(cells[0], "`cleave."+name+"(") || strings.Contains(cells[0], "`"+name+"`") || strings.Contains(cells[0], "`"+name+"(")
		})
		if at < 0 {
			t.Errorf("docs/sql-interface.md lacks a line for cleave.%s", name)
			continue
		}
		line := strings.Split(list, "\n")[at]
		if len(parameters) <= 2 { // they are shown by an example
			continue
		}
		for i, parameter := range parameters {
			said := strings.Contains(line, parameter) || strings.Contains(line, strings.ReplaceAll(parameter, "_", " ")) || strings.Contains(line, "[, …]")
			if i >= 2 && !said {
				t.Errorf("the line of cleave.%s lacks its parameter %s:\n%s", name, parameter, line)
			}
		}
	}
}
