package compose_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/compose"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// known are the columns of the tables that tests name.
var known = map[string][]string{
	"orders": {"user_id", "id", "total", "at"}, "parts": {"key", "size", "name"},
}

var named = regexp.MustCompile(`\b(?:FROM|JOIN|,) (orders|parts)\b`)

// asked takes a query apart, and returns the conditions of its pulls. Divides says what every shard can answer for its own rows; nil: nothing.
func asked(t *testing.T, sql string, divides func(string) bool) []string {
	t.Helper()
	q := compose.Query{Text: sql, Divides: divides}
	var scan sqltext.Normalized
	if err := scan.Scan([]byte(sql), true); err != nil {
		t.Fatal(err)
	}
	q.Literals = scan.Literals
	for _, at := range named.FindAllStringSubmatchIndex(sql, -1) {
		q.Tables = append(q.Tables, compose.Table{Start: at[2], Columns: known[sql[at[2]:at[3]]]})
	}
	q.Steady = func(_, name string) bool { return name != "random" }
	q.SteadyOperator = func(_, name string) bool {
		return slices.Contains([]string{"=", "<", ">", "<=", ">=", "+"}, name)
	}
	q.Builtin = func(string, string) bool { return true }
	q.Aggregate = func(string, string) bool { return false }
	c, err := compose.Split(q)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	literal := func(number int) string { return sql[scan.Literals[number].Start:scan.Literals[number].End] }
	var texts []string
	for _, p := range c.Pulls {
		_, where, _ := strings.Cut(p.SQL.Fill(compose.Places{Literal: literal}), " WHERE ")
		texts = append(texts, where)
	}
	return texts
}

func TestConditionsAreAskedWhereTheTableIs(t *testing.T) {
	for sql, want := range map[string][]string{
		"SELECT o.id FROM orders o, parts p WHERE o.total = p.size AND o.total BETWEEN 1 AND 5":               {"total BETWEEN 1 AND 5", ""},
		"SELECT o.id FROM orders o, parts p WHERE o.total = p.size AND o.total NOT BETWEEN SYMMETRIC 5 AND 1": {"total NOT BETWEEN SYMMETRIC 5 AND 1", ""},
		"SELECT o.id FROM orders o, parts p WHERE o.total = p.size AND o.total BETWEEN 1 AND random()":        {"", ""},
	} {
		got := asked(t, sql, nil)
		for i := range got {
			got[i] = strings.ReplaceAll(got[i], "orders.", "")
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s\nasks %q, not %q", sql, got, want)
		}
	}
}

// TestOnlyWhatShardsHaveIsAskedOfThem: what a condition's query names of queries around it has to be where the condition is asked.
func TestOnlyWhatShardsHaveIsAskedOfThem(t *testing.T) {
	for sql, want := range map[string][]string{
		"SELECT o.id FROM orders o, parts p WHERE o.total = p.size AND EXISTS (SELECT FROM orders i WHERE i.user_id = o.user_id AND i.id = total)": {
			"EXISTS (SELECT FROM orders i WHERE i.user_id = o.user_id AND i.id = total)", "",
		},
		"SELECT o.id FROM orders o, parts p, (SELECT 2 AS k) s WHERE o.total = p.size AND EXISTS (SELECT FROM orders i WHERE i.user_id = o.user_id AND i.id = k)":          {"", ""},
		"SELECT p.key FROM parts p WHERE EXISTS (SELECT FROM orders o WHERE o.id = p.size AND EXISTS (SELECT FROM orders i WHERE i.user_id = o.user_id AND i.id = p.key))": {"", ""},
	} {
		got := asked(t, sql, func(sql string) bool { return strings.Contains(sql, "EXISTS") && !strings.Contains(sql, "parts") })
		if !slices.Equal(got, want) {
			t.Errorf("%s\nasks %q, not %q", sql, got, want)
		}
	}
}

// TestWhatShardsHaveCheckedIsNotPulled: tables of a condition's query need not be pulled if shards check the condition.
func TestWhatShardsHaveCheckedIsNotPulled(t *testing.T) {
	const exists = "EXISTS (SELECT FROM orders a, orders b WHERE a.user_id = b.user_id AND a.user_id = o.user_id)"
	got := asked(t, "SELECT o.id FROM orders o, parts p WHERE o.total = p.size AND "+exists, func(sql string) bool { return !strings.Contains(sql, "parts") })
	if want := []string{exists, ""}; !slices.Equal(got, want) {
		t.Errorf("asks %q, not %q", got, want)
	}
}
