package plan_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// supportTopics are the golden files that users are shown, with what they are called, in the page's order.
var supportTopics = []struct{ file, title string }{
	{"keyed", "Statements with the key"}, {"ids", "Statements with an id that tells where its row is"}, {"lists", "Lists of keys"}, {"ranges", "Ranges of keys"}, {"joins", "Joins with reference tables"},
	{"equalities", "Joins of sharded tables"}, {"outer", "Outer joins"}, {"subqueries", "Subqueries"}, {"nested", "More subqueries"}, {"common", "Common table expressions"},
	{"operations", "Set operations"}, {"insert", "INSERT"}, {"rows", "INSERT of several rows"}, {"made", "INSERT without the key"}, {"write", "UPDATE and DELETE"}, {"moves", "Statements that set the key"},
	{"merge", "MERGE"}, {"reference", "Reference tables"}, {"copies", "Writes to reference tables"}, {"copy", "COPY"}, {"functions", "Functions"}, {"local", "Functions of one shard"},
	{"prepared", "PREPARE and EXECUTE"}, {"explain", "EXPLAIN"}, {"definitions", "Definitions"},
}

const supportPage = "../../docs/sql-support.md"

const supportHead = `# What SQL is supported

Made by the planner's own tests (go test ./internal/plan -rewrite), so it says what this version does. In the examples orders, items and their
like are sharded by user_id, countries is a reference table, and notes and other tables are not declared. Ids of parcels and letters are made by
shards, and so are the keys of people. Somebody has made a function lower besides PostgreSQL's.

- *one shard*: the statement runs where its key lives, as PostgreSQL runs it;
- *one shard, or refused*: it runs if all keys that it names turn out to be on one shard;
- *in parts*: every shard concerned runs it on its own rows, side by side, in one transaction if it writes;
- *every shard*: all shards run it, in one transaction;
- *home shard*: what is not declared lives there.

`

// TestSupportPage holds the page for users to what the golden files say.
func TestSupportPage(t *testing.T) {
	var page strings.Builder
	page.WriteString(supportHead)
	answered, refused := 0, 0
	var body strings.Builder
	for _, topic := range supportTopics {
		content := string(must[[]byte](t)(os.ReadFile("testdata/" + topic.file + ".txt")))
		fmt.Fprintf(&body, "## %s\n\n| statement | what becomes of it |\n|---|---|\n", topic.title)
		for _, block := range strings.Split(strings.TrimSpace(content), "\n\n") {
			text, result, isCase := strings.Cut(block, "\n----\n")
			if !isCase || strings.Contains(text, "-- ") || strings.Contains(text, "\n") {
				continue
			}
			outcome := outcomeOf(result)
			if strings.HasPrefix(outcome, "refused") {
				refused++
			} else {
				answered++
			}
			fmt.Fprintf(&body, "| `%s` | %s |\n", strings.ReplaceAll(text, "|", "\\|"), strings.ReplaceAll(outcome, "|", "\\|"))
		}
		body.WriteString("\n")
	}
	fmt.Fprintf(&page, "Of %d examples %d are answered and %d refused, each with the reason and what to do instead.\n\n", answered+refused, answered, refused)
	page.WriteString(strings.TrimRight(body.String(), "\n") + "\n")
	if *rewrite {
		if err := os.WriteFile(supportPage, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if written := string(must[[]byte](t)(os.ReadFile(supportPage))); written != page.String() {
		t.Error("docs/sql-support.md is not what the golden files say: go test ./internal/plan -rewrite")
	}
}

var refusedBy = regexp.MustCompile(`refused by \S+ (\S+) (.*)`)

// outcomeOf says in a few words what a plan is.
func outcomeOf(result string) string {
	first, _, _ := strings.Cut(result, "\n")
	switch {
	case strings.Contains(first, " refused by "):
		return "refused: " + refusedBy.FindStringSubmatch(first)[2]
	case strings.Contains(first, " keyed "), strings.Contains(first, " any owner of "):
		return "one shard"
	case strings.Contains(first, " whole "):
		return "one shard, or refused"
	case strings.Contains(first, " in parts "), strings.Contains(first, " by row "), strings.Contains(first, " by line "), strings.Contains(first, " kept "):
		return "in parts"
	case strings.Contains(first, " everywhere "):
		return "every shard"
	case strings.Contains(first, " on shard "):
		return "the shard that has it"
	case strings.Contains(first, " anywhere "):
		return "any shard"
	default:
		return "home shard"
	}
}
