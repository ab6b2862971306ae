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
	{"limits", "LIMIT without an order"}, {"steps", "Queries that no shard can answer alone"}, {"prepared", "PREPARE and EXECUTE"}, {"explain", "EXPLAIN"}, {"views", "Views"}, {"definitions", "Definitions"}, {"partitions", "Partitions of sharded tables"},
}

const supportPage = "../../docs/sql-support.md"

const supportHead = `# What SQL is supported

Made by the planner's own tests (go test ./internal/plan -rewrite), so it says what this version does. In the examples orders, items and their
like are sharded by user_id, countries is a reference table, and notes and other tables are not declared. Ids of parcels and letters are made by
shards, and so are the keys of people. Somebody has made a function lower besides PostgreSQL's.

- *one shard*: the statement runs where its key lives, as PostgreSQL runs it;
- *one shard, or in steps*: it runs there if all keys that it names turn out to be on one shard;
- *one shard, or refused*: it runs only then;
- *in parts*: every shard concerned runs it on its own rows, side by side, in one transaction if it writes;
- *in steps*: rows of several shards are brought together, and PostgreSQL or the router finishes the work ([how-queries-run.md](how-queries-run.md));
- *every shard*: all shards run it, in one transaction;
- *home shard*: what is not declared lives there;
- *error*: it is wrong, or at the wrong time.

`

// support is what the page for users says.
type support struct {
	body                             strings.Builder
	answered, refused, refusedSelect int
	// reasons are those of refusals, by how they begin, each with its first example.
	reasons  []string
	examples map[string]string
	counts   map[string]int
}

// TestSupportPage holds the page for users to what the golden files say.
func TestSupportPage(t *testing.T) {
	s := &support{examples: map[string]string{}, counts: map[string]int{}}
	for _, topic := range supportTopics {
		content := string(must[[]byte](t)(os.ReadFile("testdata/" + topic.file + ".txt")))
		fmt.Fprintf(&s.body, "## %s\n\n| statement | what becomes of it |\n|---|---|\n", topic.title)
		for _, block := range strings.Split(strings.TrimSpace(content), "\n\n") {
			text, result, isCase := strings.Cut(block, "\n----\n")
			if isCase && !strings.Contains(text, "-- ") && !strings.Contains(text, "\n") {
				s.add(text, result)
			}
		}
		s.body.WriteString("\n")
	}
	page := s.page()
	if *rewrite {
		if err := os.WriteFile(supportPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if written := string(must[[]byte](t)(os.ReadFile(supportPage))); written != page {
		t.Error("docs/sql-support.md is not what the golden files say: go test ./internal/plan -rewrite")
	}
}

// add notes what becomes of a statement.
func (s *support) add(text, result string) {
	outcome := outcomeOf(result)
	if reason, isRefused := strings.CutPrefix(outcome, "refused: "); isRefused {
		s.refused++
		if strings.HasPrefix(result, "SELECT ") {
			s.refusedSelect++
		}
		if s.counts[reason]++; s.counts[reason] == 1 {
			s.reasons, s.examples[reason] = append(s.reasons, reason), text
		}
	} else {
		s.answered++
	}
	fmt.Fprintf(&s.body, "| %s | %s |\n", codeCell(text), cell(outcome))
}

func (s *support) page() string {
	var page strings.Builder
	page.WriteString(supportHead)
	fmt.Fprintf(&page, "Of %d examples %d are answered and %d refused, each with the reason and what to do instead; %d of these are queries.\n\n", s.answered+s.refused, s.answered, s.refused, s.refusedSelect)
	page.WriteString("## What is refused\n\n| what the router says | examples | the first of them |\n|---|---|---|\n")
	for _, reason := range s.reasons {
		fmt.Fprintf(&page, "| %s | %d | %s |\n", cell(reason), s.counts[reason], codeCell(s.examples[reason]))
	}
	page.WriteString("\n" + strings.TrimRight(s.body.String(), "\n") + "\n")
	return page.String()
}

func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }

func codeCell(text string) string { return "`" + cell(text) + "`" }

var refusedBy = regexp.MustCompile(`refused by \S+ (\S+) (.*)`)

// outcomeOf says in a few words what a plan is.
func outcomeOf(result string) string {
	first, _, _ := strings.Cut(result, "\n")
	switch {
	case strings.Contains(first, " refused by "):
		found := refusedBy.FindStringSubmatch(first)
		if code, why := found[1], found[2]; code != "0A000" {
			return "error " + code + ": " + why
		}
		return "refused: " + found[2]
	case strings.Contains(first, " keyed "), strings.Contains(first, " any owner of "):
		return "one shard"
	case strings.Contains(first, " in steps "):
		return "in steps"
	case strings.Contains(first, " whole ") && strings.Contains(result, "\n  pull 0: "):
		return "one shard, or in steps"
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
