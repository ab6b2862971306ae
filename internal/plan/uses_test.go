package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/plan"
)

// TestEveryStatementSaysWhatItUses: with the names that the catalogue has, whatever the text calls them.
func TestEveryStatementSaysWhatItUses(t *testing.T) {
	all := maps(t)
	for text, want := range map[string]string{
		"select * from orders o, public.countries, orders p where o.user_id = 5 and p.user_id = o.user_id": "public.orders public.countries",
		"select 1":                 "",
		"select * from \"ORDERS\"": ".ORDERS",
		"with orders as (select 1) select * from orders":                       "",
		"with x as (delete from orders where user_id = 5 returning *) table x": "public.orders",
		"explain delete from orders where user_id = 5":                         "public.orders",
		"copy notes from stdin":                                                "public.notes",
		"create table new (a int)":                                             "app.new",
		"create temp table new as select * from notes":                         ".new public.notes",
		"alter table notes add a int":                                          "public.notes",
		"drop table notes, jobs":                                               "public.notes public.jobs",
		"insert into countries (code) values ('x')":                            "public.countries",
		"declare c cursor for select * from orders where user_id = 5":          "public.orders",
		"select * from pg_class":                                               "pg_catalog.pg_class",
		"begin":                                                                "",
		"select * from nowhere.at_all":                                         "nowhere.at_all",
	} {
		p, err := planOf(t, text, contextOf(t, text, all))
		if err != nil {
			t.Fatal(err)
		}
		if p.Statements[0].Refusal != nil {
			t.Errorf("%s is refused: %v", text, p.Statements[0].Refusal)
		}
		var found []string
		for _, name := range p.Statements[0].Uses {
			found = append(found, name.Schema+"."+name.Name)
		}
		if got := strings.Join(found, " "); got != want {
			t.Errorf("%s uses %q, want %q", text, got, want)
		}
	}
}

func TestWordsForTimes(t *testing.T) {
	for _, text := range []string{"now", "NOW", " now ", "today", "Tomorrow 10:00", "yesterday UTC", "[now,infinity)", `{"x": "now"}`, "{now,2024-01-01}"} {
		if !plan.VariesInTime([]byte(text)) {
			t.Errorf("%q is taken for the same at all times", text)
		}
	}
	for _, text := range []string{"", "2024-01-01", "infinity", "epoch", "knowledge", "nowhere", "todays", "allballs", strings.Repeat("now ", 100)} {
		if plan.VariesInTime([]byte(text)) {
			t.Errorf("%q is taken for a word for a time", text)
		}
	}
}

// TestRoutesOfManyRowsAreWhole: of a long INSERT, every row has its key.
func TestRoutesOfManyRowsAreWhole(t *testing.T) {
	const rows = 3000
	text := "insert into orders (id, user_id) values ($1, $2)" + strings.Repeat(", (1, 5)", rows-1)
	p, err := planOf(t, text, contextOf(t, text, maps(t)))
	if err != nil {
		t.Fatal(err)
	}
	r := &p.Statements[0].Route
	if r.Parts != plan.ByRow || r.RowKeys != rows || len(r.Keys) != rows {
		t.Fatalf("%d keys of %d rows, divided %d", len(r.Keys), r.RowKeys, r.Parts)
	}
	if i := slices.IndexFunc(r.Keys[1:], func(key []plan.KeyPart) bool { return key[0].Operand.Kind != plan.FromLiteral }); i >= 0 || r.Keys[rows-1][0].Operand.Literal != 2*rows-3 {
		t.Errorf("row %d has another key: %+v", i+1, r.Keys[rows-1])
	}
}

// TestStatementsOfManyTablesAreRefused rather than planned for minutes.
func TestStatementsOfManyTablesAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"joins":      "select from orders" + strings.Repeat(" join items using (user_id)", 2000),
		"subqueries": "select from orders where user_id = 5" + strings.Repeat(" and exists (select from items)", 2000),
	} {
		p, err := planOf(t, text, contextOf(t, text, maps(t)))
		if err != nil {
			t.Fatal(err)
		}
		if s := &p.Statements[0]; s.Rule != "too-many-sources" {
			t.Errorf("%s: refused by %q", name, s.Rule)
		}
	}
	text := "select from orders where " + strings.Repeat("(user_id = 1 or user_id = 2) and ", 500) + "true"
	if p, err := planOf(t, text, contextOf(t, text, maps(t))); err != nil || len(p.Statements[0].Route.Keys) != 2 {
		t.Errorf("many lists: %v, %+v", err, p.Statements[0].Route)
	}
}
