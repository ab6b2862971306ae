package main

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/virtual"
)

// threeWays are the commands, functions and routes about shards and where rows are: all below these have a line in docs/api.md.
var threeWays = struct {
	commands, functions, routes *regexp.Regexp
}{
	regexp.MustCompile(`^cleave (adopt|shard|split|merge|move|tenant|rebalance|verify)( |$)`),
	regexp.MustCompile(`^cleave\.(move_|split_|merge_|tenant_|rebalance_|verify$)`),
	regexp.MustCompile(`^[A-Z]+ /v1/(shards|moves|rebalance|verify|keyspaces/\{name\}/)`),
}

// TestThreeWaysAreTheSame: the page's table of commands, SQL and HTTP has nothing that there is not, and lacks nothing.
func TestThreeWaysAreTheSame(t *testing.T) {
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "\n| command | SQL | HTTP |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	if !found || table == "" {
		t.Fatal("docs/api.md has no table of commands, SQL and HTTP")
	}
	var named [3]map[string]bool
	for i := range named {
		named[i] = map[string]bool{}
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			t.Fatalf("a line of another form: %s", line)
		}
		for i := range named {
			for _, name := range quoted.FindAllStringSubmatch(cells[i+1], -1) {
				named[i][name[1]] = true
			}
		}
	}
	inSQL := map[string]bool{}
	for name := range virtual.Functions() {
		inSQL["cleave."+name] = true
	}
	for name := range virtual.Views() {
		inSQL["cleave."+name] = true
	}
	commands := map[string]bool{}
	noteCommands(newRoot(), commands)
	compareNames(t, "commands", named[0], commands, threeWays.commands)
	compareNames(t, "SQL", named[1], inSQL, threeWays.functions)
	compareNames(t, "HTTP", named[2], describedRoutes(t), threeWays.routes)
}

// compareNames wants everything that is named to be there, and everything to be named that has to be.
func compareNames(t *testing.T, what string, named, there map[string]bool, has *regexp.Regexp) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if !there[name] {
			t.Errorf("%s: docs/api.md names %s, which there is not", what, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if has.MatchString(name) && !named[name] {
			t.Errorf("%s: docs/api.md lacks %s", what, name)
		}
	}
}

// noteCommands notes the commands that do something by themselves.
func noteCommands(c *cobra.Command, all map[string]bool) {
	if !c.HasSubCommands() {
		all[c.CommandPath()] = true
	}
	for _, below := range c.Commands() {
		noteCommands(below, all)
	}
}

// describedRoutes are those of the API's description, which a test of package admin holds against what is served.
func describedRoutes(t *testing.T) map[string]bool {
	t.Helper()
	description, err := os.ReadFile("../../internal/admin/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	routes, path := map[string]bool{}, ""
	for _, found := range regexp.MustCompile(`(?m)^  (/\S*):$|^    (get|post|put|patch|delete):$`).FindAllStringSubmatch(string(description), -1) {
		if found[1] != "" {
			path = found[1]
			continue
		}
		routes[strings.ToUpper(found[2])+" "+path] = true
	}
	return routes
}
