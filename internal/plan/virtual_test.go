package plan_test

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/plan"
)

// TestTextsStayRightWithTheRoutersAnswers puts an answer where a view or function of the router stands, as a session does. What
// comes out must be SQL.
func TestTextsStayRightWithTheRoutersAnswers(t *testing.T) {
	all, replaced := maps(t), 0
	forms := []string{
		"explain table cleave.routers", "with x as (table cleave.routers) table x", "with x as (select 1) table cleave.routers",
		"select array(table cleave.routers), exists (table only cleave.shards)", "copy (table cleave.routers) to stdout", "declare c cursor for table cleave.shards",
		"select * from only (cleave.shards) s (a, b), lateral cleave.version()", "select (cleave.version()), lower(cleave.version()) from cleave.shards * join only cleave.pins on true",
		"(table cleave.routers) union table cleave.shards order by 1 limit 1", "select * from (table cleave.routers) x",
	}
	for _, text := range append(texts(t), forms...) {
		if !strings.Contains(strings.ToLower(text), "cleave") {
			continue
		}
		p, err := planOf(t, text, contextOf(t, text, all))
		if err != nil {
			continue
		}
		for i := range p.Statements {
			if len(p.Statements[i].Virtual) == 0 {
				continue
			}
			answered := answer(text, p.Statements[i].Virtual)
			if _, err := facts.Of(answered); err != nil {
				t.Errorf("%s\nbecomes\n%s\n%v", text, answered, err)
			}
			replaced++
		}
	}
	if replaced < len(forms)+20 {
		t.Errorf("only %d statements were answered", replaced)
	}
}

// answer replaces the places of a text, the last ones first.
func answer(text string, places []plan.Virtual) string {
	for len(places) > 0 {
		last := 0
		for i := range places {
			if places[i].Start > places[last].Start {
				last = i
			}
		}
		v := places[last]
		by := "(SELECT 1 AS " + v.Name + ")"
		if !v.Aliased && (!v.Function || v.FromClause) {
			by += " AS " + v.Name
		}
		text = text[:v.Start] + by + text[v.End:]
		places = append(append([]plan.Virtual{}, places[:last]...), places[last+1:]...)
	}
	return strings.TrimSpace(text)
}
