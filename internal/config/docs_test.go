package config_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cleavedb/cleave/internal/config"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the table of fields in docs/configuration.md")

const (
	docsPage  = "../../docs/configuration.md"
	tableFrom = "<!-- fields: begin -->\n"
	tableTo   = "<!-- fields: end -->\n"
)

// TestThePageListsEveryField as the code has them; -rewrite brings the page up to date.
func TestThePageListsEveryField(t *testing.T) {
	before, rest, begins := strings.Cut(readPage(t), tableFrom)
	table, after, ends := strings.Cut(rest, tableTo)
	if !begins || !ends {
		t.Fatalf("%s lacks the marks around its table", docsPage)
	}
	want := fieldTable()
	if *rewrite {
		if err := os.WriteFile(docsPage, []byte(before+tableFrom+want+tableTo+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, table); diff != "" {
		t.Errorf("the page is not up to date, run this test with -rewrite: %s", diff)
	}
}

func fieldTable() string {
	var table strings.Builder
	table.WriteString("| field | default | variable | meaning |\n|---|---|---|---|\n")
	for _, f := range config.Fields() {
		fmt.Fprintf(&table, "| `%s` | %s | `%s` | %s |\n", f.Path, defaultCell(f), f.Env, f.Doc)
	}
	return table.String()
}

// defaultCell shows a default that is a value as code, and one that is described in words.
func defaultCell(f config.Field) string {
	switch {
	case f.Default == "":
		return "–"
	case f.Example != "":
		return f.Default
	}
	return "`" + f.Default + "`"
}

// TestThePageHasExamplesThatLoad, and that warn of nothing but files that are not on this machine.
func TestThePageHasExamplesThatLoad(t *testing.T) {
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(readPage(t), -1)
	if len(examples) == 0 {
		t.Fatal("there is no example")
	}
	for _, example := range examples {
		c := mustLoad(t, example[1])
		for _, warning := range c.Warnings() {
			if !strings.Contains(warning, "cannot be read here") {
				t.Error(warning)
			}
		}
	}
}

// TestThePageNamesOnlyFields: a variable on the page is one of a field, or one that is known to be read elsewhere.
func TestThePageNamesOnlyFields(t *testing.T) {
	var environ []string
	known := map[string]bool{}
	for _, f := range config.Fields() {
		known[f.Env] = true
	}
	for _, name := range regexp.MustCompile(`CLEAVE_[A-Z0-9_]*[A-Z0-9]`).FindAllString(readPage(t), -1) {
		if !known[name] {
			environ = append(environ, name+"=x")
		}
	}
	if len(environ) == 0 {
		t.Fatal("the variables that are read elsewhere are not on the page")
	}
	if warnings := mustLoad(t, "", environ...).Warnings(); len(warnings) > 0 {
		t.Errorf("%q", warnings)
	}
}

func readPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(docsPage)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}
