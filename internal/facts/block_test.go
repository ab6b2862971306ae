package facts_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/facts"
)

// TestEveryTableHangsOnTheOutermostQuery: whoever walks the blocks meets every table of a query, and each place once.
func TestEveryTableHangsOnTheOutermostQuery(t *testing.T) {
	content, err := os.ReadFile("testdata/tables.sql")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, text := range strings.Split(strings.TrimSpace(string(content)), "\n") {
		s := one(t, text)
		for s.Inner != nil {
			s = *s.Inner
		}
		if s.Query == nil {
			continue
		}
		met := make([]int, len(s.Tables))
		s.Query.Walk(func(b *facts.Block) bool {
			b.Reads(func(source *facts.Source) bool {
				if source.Kind == facts.TableSource {
					met[source.Table]++
				}
				return false
			})
			return true
		})
		for i, table := range s.Tables {
			if want := min(1, int(facts.Subject-min(table.Role, facts.Subject))); met[i] != want {
				t.Errorf("%s: table %s is met %d times", text, table.Name, met[i])
			}
		}
		checked++
	}
	if checked < 80 {
		t.Errorf("only %d queries were checked", checked)
	}
}

func TestCommonTableExpressionsAreCounted(t *testing.T) {
	for text, want := range map[string]string{
		"with a as (select 1), b as (select * from a) select * from b, a":                                  "a 2, b 1",
		"with a as (select 1) select 1":                                                                    "a 0",
		"with a as (select 1) select * from public.a":                                                      "a 0",
		"with a as (select 1) select * from a where exists (with a as (select 2) select * from a, a b)":    "a 1",
		"with recursive a as (select 1 union all select * from a) select * from a":                         "a 2 recursive",
		"with recursive a as (select * from b), b as (select 1) select * from a":                           "a 1, b 1",
		"with recursive a as (with recursive b as (select 1 union select * from a) table b) select 1":      "a 1 recursive",
		"with a as (select * from a) select * from a":                                                      "a 1",
		"with a as (select 1) insert into a select * from a":                                               "a 1",
		"with a as (select 1) update a set x = (select * from a) from a b where exists (table a)":          "a 3",
		"select * from (with a as (select 1) select * from a) x":                                           "",
		"with a as (delete from b returning *) select * from a":                                            "a 1",
		"with a as (select 1) merge into a using a b on true when matched then delete":                     "a 1",
		"with recursive a as (select 1 union select * from a) search depth first by b set c select from a": "a 2 recursive extended",
	} {
		s := one(t, text)
		var found []string
		for _, common := range s.Query.With {
			line := fmt.Sprintf("%s %d", common.Name, common.References)
			if common.Recursive {
				line += " recursive"
			}
			if common.Extended {
				line += " extended"
			}
			if common.Query == nil {
				line += " without a query"
			}
			found = append(found, line)
		}
		if got := strings.Join(found, ", "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestValuesAreFoundByTheirNumber counts the words VALUES of the whole text, whatever they are there.
func TestValuesAreFoundByTheirNumber(t *testing.T) {
	for text, want := range map[string]int{
		"insert into t values (1), (2)":                                               0,
		"insert into t (values (1), (2))":                                             0,
		"insert into t (values) values (1)":                                           1,
		"insert into values values (1)":                                               1,
		"insert into t as values (a) values (1)":                                      1,
		`insert into "values" ("values") overriding user value values (1)`:            0,
		"with a as (values (1)) insert into t values (2)":                             1,
		"insert into t select 1":                                                      -1,
		"insert into t default values":                                                -1,
		"insert into t /* values (0) */ values (1)":                                   0,
		"insert into t values ((select 1 from (values (1)) a)), (2)":                  0,
		"insert into t select * from (values (1)) a":                                  -1,
		"explain insert into t values (1)":                                            0,
		"insert into a.values (b, values[1]) values (1, 'values (2)') returning null": 2,
	} {
		s := one(t, text)
		for s.Inner != nil {
			s = *s.Inner
		}
		if s.Query.ValuesAt != want {
			t.Errorf("%s: %d, want %d", text, s.Query.ValuesAt, want)
		}
	}
	statements, err := facts.Of("values (1); insert into t values (2); insert into t values (3)")
	if err != nil || statements[1].Query.ValuesAt != 1 || statements[2].Query.ValuesAt != 2 {
		t.Errorf("%v, %d and %d", err, statements[1].Query.ValuesAt, statements[2].Query.ValuesAt)
	}
}

// TestConditionsSayNoMoreThanIsTrue writes what is taken from conditions, in a form of its own.
func TestConditionsSayNoMoreThanIsTrue(t *testing.T) {
	for text, want := range map[string]string{
		"a = 1":                              "a = 1",
		"1 = a":                              "a = 1",
		"1 < a":                              "a > 1",
		"a.b = c":                            "a.b = c",
		"a = 1 and b = 2 and f(c)":           "(a = 1 and b = 2)",
		"a = 1 and f(c)":                     "a = 1",
		"a = 1 or b = 2":                     "(a = 1 or b = 2)",
		"a = 1 or f(c)":                      "",
		"not a = 1":                          "",
		"a <> 1":                             "",
		"a between 1 and 2":                  "(a >= 1 and a <= 2)",
		"a between symmetric 1 and 2":        "",
		"a not between 1 and 2":              "",
		"a between b and f(c)":               "a >= b",
		"(a, b) = (1, c)":                    "(a = 1 and b = c)",
		"(a, b) = (1, f(c))":                 "a = 1",
		"(a, b) < (1, 2)":                    "",
		"(a, b) = (1, 2, 3)":                 "",
		"a in (1)":                           "a = 1",
		"a in (1, 2)":                        "a of 1 2",
		"a not in (1, 2)":                    "",
		"(a, b) in ((1, 2), (3, 4))":         "a b of 1,2 3,4",
		"(a, b) in ((1, 2), (3, 4, 5))":      "",
		"1 in (a, b)":                        "",
		"a in (1, b)":                        "a of 1 ?",
		"a = any ($1)":                       "a of elements of $1",
		"a = any ($1::int[])":                "a of elements of $1::int4[]",
		"a = any (array[1, 2])":              "a of 1 2",
		"a = any (array[1, 2]::int8[])":      "a of 1::int8 2::int8",
		"a = any (array[[1], [2]])":          "a of ? ?",
		"a = any (array(select 1))":          "",
		"a = all ($1)":                       "",
		"a = any (select 1)":                 "",
		"a is not distinct from 1":           "",
		"a operator(pg_catalog.=) 1":         "a builtin = 1",
		"a operator(x.=) 1":                  "",
		"a = 1::int8::text":                  "a = 1::int8::text",
		"a + 1 = 2":                          "",
		"a = null":                           "a = null",
		"a.* = 1":                            "",
		"(a = 1) is true":                    "",
		"case when a = 1 then true end":      "",
		"exists (select from t where a = 1)": "",
		"a = 1 and (b = 2 or (c = 3 and d))": "(a = 1 and (b = 2 or c = 3))",
		"a ~~ 'x' or b = 1":                  "",
		"a = b collate \"C\"":                "",
		"a[1] = 1":                           "",
		"a = default_value":                  "a = default_value",
		"row(a) in (row(1), row(2))":         "a of 1 2",
		"a = 1 and (values (1)) = 2":         "a = 1",
	} {
		s := one(t, "select from t where "+text)
		if got := written(&s.Query.Where); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func written(c *facts.Condition) string {
	sign := c.Operator
	if c.Builtin {
		sign = "builtin " + sign
	}
	switch c.Kind {
	case facts.AllOf, facts.AnyOf:
		var parts []string
		for i := range c.Parts {
			parts = append(parts, written(&c.Parts[i]))
		}
		return "(" + strings.Join(parts, map[facts.ConditionKind]string{facts.AllOf: " and ", facts.AnyOf: " or "}[c.Kind]) + ")"
	case facts.Compares:
		return writtenTerm(&c.Left) + " " + sign + " " + writtenTerm(&c.Right)
	case facts.OneOf:
		var columns, rows []string
		for i := range c.Columns {
			columns = append(columns, writtenTerm(&c.Columns[i]))
		}
		for _, row := range c.Rows {
			var values []string
			for i := range row {
				values = append(values, writtenOperand(&row[i]))
			}
			rows = append(rows, strings.Join(values, ","))
		}
		if len(rows) == 0 {
			rows = []string{"elements of " + writtenOperand(&c.Array)}
		}
		return strings.Join(columns, " ") + " of " + strings.Join(rows, " ")
	default:
		return ""
	}
}

func writtenTerm(t *facts.Term) string {
	if t.IsColumn() {
		return strings.Join(t.Column, ".")
	}
	return writtenOperand(&t.Value)
}

func writtenOperand(o *facts.Operand) string {
	text := "?"
	switch o.Kind {
	case facts.Constant:
		text = o.Text
	case facts.Param:
		text = fmt.Sprintf("$%d", o.Param)
	case facts.Null:
		text = "null"
	default:
	}
	parts := []string{text}
	for _, cast := range o.Casts {
		name := cast.Name
		if cast.Array {
			name += "[]"
		}
		parts = append(parts, name)
	}
	return strings.Join(parts, "::")
}
