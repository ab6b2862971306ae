package facts_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/facts"
)

// TestSyntaxThatOlderServersReadAsCalls: where a newer grammar has a word of its own, an older server calls the function that
// somebody gave that name.
func TestSyntaxThatOlderServersReadAsCalls(t *testing.T) {
	for text, want := range map[string]string{
		"select json(1)":                                     "json",
		"select json_scalar(1)":                              "json_scalar",
		"select json_serialize(x) from y":                    "json_serialize",
		"select json_value(x, 'y')":                          "json_value",
		"select json_query(x, 'y')":                          "json_query",
		"select json_exists(x, 'y')":                         "json_exists",
		"select json_array(1, 2)":                            "json_array",
		"select json_array(select 1)":                        "json_array",
		"select json_array()":                                "json_array",
		"select json_object('a': 1)":                         "json_object",
		"select json_object()":                               "json_object",
		"select json_object('{a, 1}')":                       "json_object",
		"select json_arrayagg(x) from y":                     "json_arrayagg",
		"select json_objectagg('a': x) from y":               "json_objectagg",
		"select * from json_table('1', '$' columns (a int))": "json_table",
		"merge into a using b on true when matched then delete returning merge_action()": "merge_action",
	} {
		s := one(t, text)
		at := slices.IndexFunc(s.Calls, func(c facts.Call) bool { return c.Name == want && c.Schema == "" && c.Word })
		if at < 0 {
			t.Errorf("%s: %+v", text, s.Calls)
			continue
		}
		if c := s.Calls[at]; !strings.HasPrefix(text[c.Start:c.End], want+"(") {
			t.Errorf("%s: the call is %q", text, text[c.Start:c.End])
		}
	}
}

// TestWhatStandsAroundTables: the words that belong to a table's name.
func TestWhatStandsAroundTables(t *testing.T) {
	for text, want := range map[string]string{
		"select * from a.b":                           "a.b",
		"select * from only a.b x":                    "only a.b",
		"select * from only ( a.b ) where 1 = 1":      "only ( a.b )",
		"select * from a.b * as x":                    "a.b *",
		"select * from (a.b cross join c)":            "a.b",
		"table a.b":                                   "table a.b command",
		"table only a.b order by 1":                   "table only a.b command",
		"select 1 union all (table a . b limit 1)":    "table a . b command",
		"select * from a.b tablesample system (1), c": "a.b sampled",
	} {
		s := one(t, text)
		got := text[s.Tables[0].WideStart:s.Tables[0].WideEnd]
		if s.Tables[0].Command {
			got += " command"
		}
		if s.Tables[0].Sampled {
			got += " sampled"
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestPartsOfStatements: what ALTER TABLE does, which schemas PREPARE and columns name, which calls are more than calls.
func TestPartsOfStatements(t *testing.T) {
	alter := one(t, "alter table a add b int default f(), drop c, inherit d")
	if !slices.Equal(alter.Object.Actions, []string{"AddColumn", "DropColumn", "AddInherit"}) {
		t.Errorf("ALTER TABLE does %q", alter.Object.Actions)
	}
	if s := one(t, "create table a partition of b for values from (f()) to (2)"); !s.Options.Bounds {
		t.Error("the bounds are not seen")
	}
	if s := one(t, "prepare p as select x.f() from y.t"); !slices.Equal(s.Prepared.Schemas, []string{"y", "x"}) {
		t.Errorf("PREPARE names %q", s.Prepared.Schemas)
	}
	if s := one(t, "select a.b.c, a.b.*, d.e, f from a.b"); !slices.Equal(s.Qualifiers, []string{"a"}) {
		t.Errorf("columns are qualified by %q", s.Qualifiers)
	}
	for text, want := range map[string]bool{
		"select f(1)": false, "select f(distinct 1)": true, "select f(variadic x)": true, "select f(1) over ()": true, "select f(*)": true,
		"select f(1) filter (where true)": true, "select f(1) within group (order by 1)": true, "select * from f(1)": false,
		"select * from f(1) with ordinality": true, "select * from f(1) as (a int)": true, "select * from f(1) as x (a)": false,
	} {
		if s := one(t, text); s.Calls[0].Modified != want {
			t.Errorf("%s: %+v", text, s.Calls[0])
		}
	}
}
