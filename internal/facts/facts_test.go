package facts_test

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
)

func one(t *testing.T, text string) facts.Statement {
	t.Helper()
	statements, err := facts.Of(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if len(statements) != 1 {
		t.Fatalf("%s: %d statements", text, len(statements))
	}
	return statements[0]
}

// named returns the tables of a statement, each with what it is, and those of the statement inside.
func named(s *facts.Statement) []string {
	roles := []string{"nested", "from", "target", "subject", "created", "like", "parent", "referenced"}
	var names []string
	for _, table := range s.Tables {
		name := roles[table.Role] + " " + strings.TrimPrefix(table.Schema+"."+table.Name, ".")
		if table.Written {
			name += " written"
		}
		if table.Locked {
			name += " locked"
		}
		names = append(names, name)
	}
	if s.Inner != nil {
		names = append(names, named(s.Inner)...)
	}
	return names
}

// TestEveryTableIsSeen reads statements, one a line, with a table t in every place of the grammar where a table can stand.
func TestEveryTableIsSeen(t *testing.T) {
	content, err := os.ReadFile("testdata/tables.sql")
	if err != nil {
		t.Fatal(err)
	}
	places := strings.Split(strings.TrimSpace(string(content)), "\n")
	if len(places) < 150 {
		t.Fatalf("only %d statements were found", len(places))
	}
	for _, text := range places {
		statements, err := facts.Of(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		names := named(&statements[0])
		if !slices.ContainsFunc(names, func(name string) bool { return strings.Fields(name)[1] == "t" }) {
			t.Errorf("%s: t is not among %q", text, names)
		}
	}
}

// TestRoles shows what each table is to its statement.
func TestRoles(t *testing.T) {
	for text, want := range map[string]string{
		"select * from a join b on true, (select * from c) x":                               "from a, from b, nested c",
		"with x as (select * from a) select * from x, b where exists (select from x, c)":    "nested a, from b, nested c",
		"with a as (select 1) insert into a select * from a, b":                             "target a written, nested b",
		"with a as (select 1) update a set x = 1 from b where y in (table a)":               "from b, target a written",
		"with a as (delete from b returning *) delete from a using a x, c":                  "nested b written, from c, target a written",
		"merge into a using b on true when matched then delete":                             "nested a written, nested b",
		"select * from a, b for update":                                                     "from a locked, from b locked",
		"select * from a, b x for update of x":                                              "from a, from b locked",
		"select * from (select * from a, (select * from b) y) x for share":                  "nested a locked, nested b locked",
		"select * from (select * from a) x, b where c in (select c from d) for update of x": "nested a locked, from b, nested d",
		"with x as (select * from a) select * from x for update":                            "nested a",
		"select * from a where x in (select x from b for update)":                           "from a, nested b locked",
		"select * from public.a":                                                            "from public.a",
		"create table a (x int references b, like c) inherits (d)":                          "created a, parent d, referenced b, like c",
		"create temp view a as select * from b":                                             "created a, from b",
		"copy a from stdin":                                                                 "subject a written",
		"copy a to stdout":                                                                  "subject a",
		"drop index a, b.c":                                                                 "subject a, subject b.c",
		"comment on column a.b.c is ''":                                                     "subject a.b",
		"set constraints a, b deferred":                                                     "",
		"prepare p as select * from a":                                                      "",
	} {
		s := one(t, text)
		got := named(&s)
		wanted := strings.Split(want, ", ")
		slices.Sort(got)
		slices.Sort(wanted)
		if strings.Join(got, ", ") != strings.Join(wanted, ", ") {
			t.Errorf("%s\n got %q\nwant %q", text, got, wanted)
		}
	}
}

func TestStatementsEndWhereTheyEnd(t *testing.T) {
	text := " /* a */ select 'é;' -- x\n ; ; insert into t values (1) /* b; */ ;select 3 -- end"
	statements, err := facts.Of(text)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, s := range statements {
		found = append(found, text[s.Start:s.End])
	}
	if want := []string{"select 'é;'", "insert into t values (1)", "select 3"}; !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}

func TestCallsEndWhereTheyEnd(t *testing.T) {
	text := `select a.f(')', $$($$, (1), "x)") , g ( ), b at time zone 'x' from c . h (array[1])`
	s := one(t, text)
	var found []string
	for _, c := range s.Calls {
		found = append(found, c.Schema+"."+c.Name+" <"+text[c.Start:c.End]+">")
	}
	want := []string{`c.h <c . h (array[1])>`, `a.f <a.f(')', $$($$, (1), "x)")>`, ".g <g ( )>", "pg_catalog.timezone <>"}
	if !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}

func TestSyntaxErrorsSayWhere(t *testing.T) {
	for text, want := range map[string]int{"selec": 1, "select 'é' from": 16, "select 1; sel": 11, "select 'x": 8, "select \"": 8, "select (": 9} {
		_, err := facts.Of(text)
		var refused *facts.SyntaxError
		if !errors.As(err, &refused) || refused.Position != want || refused.Message == "" {
			t.Errorf("%q: %v, want position %d", text, err, want)
		}
	}
}

// others returns a long text with names that are all different.
func others(before, prefix, suffix string) string {
	var text strings.Builder
	text.WriteString(before)
	for i := 0; text.Len() < facts.MaxText/16; i++ {
		text.WriteString(prefix + "n" + strconv.Itoa(i) + suffix)
	}
	return text.String()
}

// TestNoTextEndsTheProcess has texts that would make the grammar's C code run out of stack or time.
func TestNoTextEndsTheProcess(t *testing.T) {
	const many = facts.MaxText / 16
	chain := func(length int, before, piece, after string, ends ...string) string {
		n := (length - len(before) - len(after) - 16) / (len(piece) + len(strings.Join(ends, "")))
		return before + strings.Repeat(piece, n) + after + strings.Repeat(strings.Join(ends, ""), n)
	}
	repeat := func(before, piece, after string, ends ...string) string {
		return chain(many, before, piece, after, ends...)
	}
	longest := func(before, piece string) string { return chain(facts.MaxText, before, piece, "") }
	for name, text := range map[string]string{
		"plus":             longest("select 1", "+1"),
		"plus with commas": repeat("select 1", "+f(1,2,3)", ""),
		"is null":          repeat("select 1", " isnull", ""),
		"cast":             repeat("select 1", "::a", ""),
		"collate":          repeat("select 1", " collate a", ""),
		"time zone":        repeat("select 1", " at time zone 1", ""),
		"operator":         repeat("select 1", " operator(a.+) 1", ""),
		"union":            longest("select 1", " union select 1,2"),
		"intersect":        repeat("select 1", " intersect select 1,2", ""),
		"join":             longest("select from a", " cross join a"),
		"join on":          repeat("select from a", " join a on f(1,2)", ""),
		"natural join":     repeat("select from a", " natural join a", ""),
		"parentheses":      repeat("select ", "(", "1", ")"),
		"calls":            repeat("select ", "f(", "1", ")"),
		"calls and plus":   repeat("select ", "1+f(1,", "1", ")"),
		"subqueries":       repeat("select ", "(select ", "1", ")"),
		"arrays":           repeat("select array", "[", "1", "]"),
		"with":             repeat("", "with a as (", "select 1", ") select 1"),
		"not":              repeat("select ", "not ", "true"),
		"minus":            repeat("select ", "- ", "1"),
		"case":             repeat("select ", "case when true then ", "1", " end"),
		"from":             repeat("select from ", "(select from ", "a", ") a"),
		"unclosed":         strings.Repeat("(", many),
		"unclosed string":  "select '" + strings.Repeat("+1", many/2-8),
		"operator chain":   strings.Repeat("+", many),
		"operator chains":  repeat("select 1", strings.Repeat("+-", 64)+"1", ""),
		"explain":          repeat("", "explain ", "select 1"),
		"too long":         strings.Repeat(" ", facts.MaxText+1),
		"indirection":      repeat("select (a)", "[1]", ""),
		"fields":           repeat("select (a)", ".b", ""),
		"other fields":     others("select (a)", ".", ""),
		"functions":        others("select f()", ",f", "()"),
		"tables":           others("select from t", ",t", ""),
		"types":            others("select 1", ",1::t", ""),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := facts.Of(text)
			var tooMuch *pgerr.Error
			var refused *facts.SyntaxError
			if err != nil && !errors.As(err, &tooMuch) && !errors.As(err, &refused) {
				t.Errorf("the error is %T: %v", err, err)
			}
		})
	}
}

func TestLongTextsOfSiblingsAreRead(t *testing.T) {
	for name, text := range map[string]string{
		"rows":    "insert into t values (1, 'x')" + strings.Repeat(", (2, 'y')", 5_000),
		"in":      "select * from t where a in (1" + strings.Repeat(", 1", 10_000) + ")",
		"columns": "select 1" + strings.Repeat(", a + 1", 5_000),
		"or":      "select * from t where a = 1" + strings.Repeat(" or a = 1", 3_000),
		"banner":  "--" + strings.Repeat("-", 1000) + "\n/*" + strings.Repeat("*", 1000) + "*/ select '" + strings.Repeat("=", 1000) + "'",
		"many":    strings.Repeat("select 1 + 1 + 1;", 2_000),
	} {
		if _, err := facts.Of(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTextsThatAreNoTextAreRefused(t *testing.T) {
	for _, text := range []string{"select 1\x00; drop table t", "select '\xff'", "\xc3"} {
		_, err := facts.Of(text)
		var refused *pgerr.Error
		if !errors.As(err, &refused) || refused.Code != "22021" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestNamesOfCommands(t *testing.T) {
	for text, want := range map[string]string{
		"table t": "SELECT", "select 1 into t": "SELECT INTO", "end": "COMMIT", "rollback to a": "ROLLBACK", "start transaction": "START TRANSACTION",
		"reset a": "RESET", "set a to 1": "SET", "show a": "SHOW", "analyze": "ANALYZE", "move c": "MOVE", "close c": "CLOSE CURSOR",
		"drop materialized view v": "DROP MATERIALIZED VIEW", "alter table t rename a to b": "ALTER TABLE", "alter view v rename to w": "ALTER VIEW", //nolint:misspell // it is SQL
		"create type t as enum ()": "CREATE TYPE", "create aggregate a(int) (sfunc = f, stype = int)": "CREATE AGGREGATE", "revoke a from b": "REVOKE ROLE",
		"create procedure p() language sql as ''": "CREATE PROCEDURE", "create materialized view v as select 1": "CREATE MATERIALIZED VIEW", //nolint:misspell // it is SQL
		"create user mapping for a server b": "CREATE USER MAPPING", "create language l": "CREATE EXTENSION", "alter server s version 'x'": "ALTER SERVER",
		"discard temp": "DISCARD TEMP", "do ''": "DO", "create text search configuration c (parser = p)": "CREATE TEXT SEARCH CONFIGURATION",
	} {
		if s := one(t, text); s.Name != want {
			t.Errorf("%s is called %s, want %s", text, s.Name, want)
		}
	}
}

func TestKindsAreTheGrammars(t *testing.T) {
	kinds := facts.Kinds()
	if len(kinds) < 100 || !slices.Contains(kinds, "SelectStmt") || !slices.Contains(kinds, "CheckPointStmt") {
		t.Errorf("the grammar has %d kinds of statements: %q", len(kinds), kinds)
	}
}

// TestEveryOperatorIsSeen also has the words that stand for operators.
func TestEveryOperatorIsSeen(t *testing.T) {
	for text, want := range map[string]string{
		"select a + b - c + d, - e":                                                      "+ -",
		"select 1 operator(x.====) 2":                                                    "x.====",
		"select a in (1, 2), b not in (3)":                                               "= <>",
		"select a in (select 1)":                                                         "=",
		"select a > all (select 1), a @@ any (array[1])":                                 "> @@",
		"select a between 1 and 2":                                                       ">= <= < >",
		"select a not between symmetric 1 and 2":                                         ">= <= < >",
		"select a is distinct from b, nullif(c, d)":                                      "=",
		"select a like b, a not ilike c, d similar to 'e'":                               "~~ !~~* ~",
		"select case a when 1 then 2 end":                                                "=",
		"select case when a then 2 end":                                                  "",
		"select from a join b using (c)":                                                 "=",
		"select from a natural join b":                                                   "=",
		"select from (select from a join b using (c)) d":                                 "=",
		"select from a order by b using ~<~":                                             "~<~",
		"select (a, b) < (c, d)":                                                         "<",
		"update t set a = 1 where b = 2":                                                 "=",
		"insert into t values (1) on conflict (a) do update set b = c || d where e >= f": "|| >=",
		"explain select 1":                                                               "",
		"call f(1 %% 2)":                                                                 "%%",
		"copy t from stdin where a <-> b":                                                "<->",
	} {
		s := one(t, text)
		var found []string
		for _, o := range s.Operators {
			found = append(found, strings.TrimPrefix(o.Schema+"."+o.Name, "."))
		}
		if got := strings.Join(found, " "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
