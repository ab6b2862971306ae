package admin

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestThePageNamesEveryRoute, and none that there is not.
func TestThePageNamesEveryRoute(t *testing.T) {
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{} // the page has some of them twice
	for _, found := range regexp.MustCompile("`((?:GET|POST|PUT|PATCH|DELETE) /[^`]*)`").FindAllStringSubmatch(string(page), -1) {
		named[found[1]] = true
	}
	var served []string
	for _, r := range routes() {
		served = append(served, r.method+" "+r.path)
	}
	slices.Sort(served)
	if diff := cmp.Diff(served, slices.Sorted(maps.Keys(named))); diff != "" {
		t.Errorf("what is served (-) and what docs/api.md names (+) differ:\n%s", diff)
	}
}
