package moves_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// design has the crash table.
const design = "../../internal/reshard/DESIGN.md"

// Rows of the crash table begin with their names. Cases name them in a field, and tests that need more than a point in their comments.
var (
	rowInDesign = regexp.MustCompile(`(?m)^\| ([MW]\d+[a-z]?) \|`)
	rowInTests  = regexp.MustCompile(`(?:row: "|lines? |, | and )([MW]\d+[a-z]?)\b`)
)

// TestEveryRowHasACase: each row of the crash table is named by a case, and each case names a row that there is.
func TestEveryRowHasACase(t *testing.T) {
	t.Parallel()
	rows, named := namesIn(t, rowInDesign, design), map[string]string{}
	if len(rows) < 50 {
		t.Fatalf("the crash table has only %d rows: it is written otherwise than it was", len(rows))
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for name := range namesIn(t, rowInTests, file) {
			named[name] = file
		}
	}
	for name := range rows {
		if named[name] == "" {
			t.Errorf("row %s of %s has no case", name, design)
		}
	}
	for name, file := range named {
		if !rows[name] {
			t.Errorf("%s names row %s, which %s does not have", file, name, design)
		}
	}
}

// namesIn are what an expression finds in a file.
func namesIn(t *testing.T, expression *regexp.Regexp, file string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, found := range expression.FindAllStringSubmatch(string(text), -1) {
		names[found[1]] = true
	}
	return names
}
