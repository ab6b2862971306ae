package virtual_test

import (
	"fmt"
	"os"
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
