package differential_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// groundPage is made from the scripts: what is marked in them holds, or else the router's test fails.
const groundPage = "../../docs/regression-ground.md"

var rewriteFlag = flag.Bool("rewrite", false, "write docs/regression-ground.md")

// readGround reads the topics, and before them the tables that they have in common.
func readGround(t *testing.T) (tables script, topics []script) {
	t.Helper()
	scripts, err := readScripts("testdata/ground/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scripts {
		if s.name == "tables" {
			tables = s
			continue
		}
		for i := range s.steps {
			st := &s.steps[i]
			st.isShape = true
			st.unordered = st.unordered || !st.ordered && !endsInOrder(st.text)
		}
		topics = append(topics, s)
	}
	return tables, topics
}

// runGround runs the topics one after the other in one schema. What a topic changes, no other one reads.
func (p pair) runGround(t *testing.T, total *count) {
	const schema = "ground"
	tables, topics := readGround(t)
	if err := p.makeSchema(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	for _, s := range append([]script{tables}, topics...) {
		t.Run(s.name, func(t *testing.T) {
			r := &run{pair: p, ctx: t.Context(), script: s, how: textPass, schema: schema, most: len(s.steps) + 1, strict: true, sessions: map[string]*twins{}}
			problems, counted := r.all()
			report(t, problems)
			total.add(counted)
		})
	}
}

func TestTheGroundIsWrittenDown(t *testing.T) {
	_, topics := readGround(t)
	page := writeGround(topics)
	if *rewriteFlag {
		if err := os.WriteFile(groundPage, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	written, err := os.ReadFile(groundPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != page {
		t.Error("docs/regression-ground.md is not what testdata/ground says: go test ./test/differential -run TestTheGroundIsWrittenDown -rewrite")
	}
}

const groundTitle = `# The ground of PostgreSQL's regression tests, on sharded tables

Statements on the subjects of PostgreSQL's own regression tests, written anew over tables that are sharded by different keys, reference tables and tables that are not
declared, are run on one plain PostgreSQL and through the router on three shards. Equal means: rows byte for byte, in order where an ORDER BY decides it; names and types of columns; command tags; and
of errors the SQLSTATE, the words and the position. The statements are in test/differential/testdata/ground, and each that is refused (0A000) or answered differently is marked there with the reason. A mark that
is missing, or that does not hold any longer, fails the test, which also makes this page (go test ./test/differential -run TestTheGroundIsWrittenDown -rewrite). What only sets the scene, such as CREATE TABLE and BEGIN, is not counted.

`

// writeGround writes the page.
func writeGround(topics []script) string {
	var page, exceptions strings.Builder
	page.WriteString(groundTitle)
	page.WriteString("| topic | statements | equal | refused | different | share |\n|---|---|---|---|---|---|\n")
	var all groundCount
	for _, s := range topics {
		counted, lines := countGround(s)
		all.statements += counted.statements
		all.refused += counted.refused
		all.different += counted.different
		fmt.Fprintf(&page, "| %s %s\n", s.name, counted)
		if len(lines) > 0 {
			fmt.Fprintf(&exceptions, "\n### %s\n\n%s", s.name, strings.Join(lines, ""))
		}
	}
	fmt.Fprintf(&page, "| **all** %s\n", all)
	if exceptions.Len() > 0 {
		page.WriteString("\n## What is not equal\n" + exceptions.String())
	}
	return page.String()
}

// groundCount is what became of a topic's statements.
type groundCount struct{ statements, refused, different int }

func (c groundCount) String() string {
	equal := c.statements - c.refused - c.different
	return fmt.Sprintf("| %d | %d | %d | %d | %.1f %% |", c.statements, equal, c.refused, c.different, 100*float64(equal)/float64(max(1, c.statements)))
}

// countGround counts a topic's statements and lists those that are not equal.
func countGround(s script) (c groundCount, exceptions []string) {
	for _, st := range s.steps {
		if st.setsTheScene() {
			continue
		}
		c.statements++
		switch {
		case st.refused != "":
			c.refused++
			exceptions = append(exceptions, fmt.Sprintf("- `%s`: refused, %s\n", oneLine(st.text), st.refused))
		case st.different != "":
			c.different++
			exceptions = append(exceptions, fmt.Sprintf("- `%s`: different, %s\n", oneLine(st.text), st.different))
		}
	}
	return c, exceptions
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// setsTheScene says whether a step is not what the topic is about.
func (st *step) setsTheScene() bool {
	switch {
	case st.routerOnly || st.text == "":
		return true
	case st.refused != "" || st.different != "":
		return false
	}
	word, _, _ := strings.Cut(oneLine(st.text), " ")
	return slices.Contains(strings.Fields("create drop begin commit rollback savepoint set reset analyze"), word)
}
