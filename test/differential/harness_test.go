package differential_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestDifferencesAreReported makes two plain servers differ, once in every way that counts, and wants to hear of it.
func TestDifferencesAreReported(t *testing.T) {
	servers := plainServers(t, 2)
	p := pair{plain: servers[0], router: servers[1], isRouter: true}
	const refuse = "-- router\ncreate function f() returns int language plpgsql as 'begin raise feature_not_supported; end'\n\n"
	for i, c := range []struct {
		name, text string
		want       string // a part of what is said, empty if nothing must be
		only       pass   // the only pass that can tell, empty for all
	}{
		{name: "nothing", text: "select 1"},
		{name: "a value", text: "-- router\ncreate table t as select 1 as a\n\nselect current_setting('port') is null, (select count(*) from pg_tables where schemaname = '{schema}')", want: `row "f" | "1"`, only: simplePass},
		{name: "a null", text: "select (select oid::int * null from pg_class where relname = 't' and relnamespace = '{schema}'::regnamespace) as a"},
		{name: "one row more", text: "create table t (a int)\n\n-- router\ninsert into t values (1)\n\nselect * from t", want: "row"},
		{name: "order", text: "create table t (a int)\n\n-- router\ninsert into t values (2)\n\ninsert into t values (1)\n\ndelete from t where a = 3\n\n" +
			"-- router\nupdate t set a = a\n\n-- router\ndelete from t where a = 2\n\ninsert into t values (2)\n\n-- router\nupdate t set a = a where a = 1\n\nselect * from t", want: "row"},
		{name: "any order", text: "create table t (a int)\n\n-- router\ninsert into t values (0)\n\ninsert into t values (1), (2)\n\n-- router\nupdate t set a = a where a = 1\n\n" +
			"-- router\ndelete from t where a = 0\n\n-- unordered\nselect * from t"},
		{name: "a column's name", text: view("1 as b", "1 as a") + "select * from v", want: `columns "a"`},
		{name: "a column's type", text: view("1::bigint as a", "1 as a") + "select * from v", want: "type 23"},
		{name: "a column's modifier", text: view("'x'::varchar(5) as a", "'x'::varchar(4) as a") + "select * from v", want: "modifier 8"},
		{name: "a tag", text: "create table t (a int)\n\n-- router\ninsert into t values (1)\n\ndelete from t", want: "done DELETE 1"},
		{name: "an error", text: view("1 as a", "1 as b") + "select a from v", want: "error ERROR 42703 at 8"},
		{name: "an error's position", text: "-- router\ncreate view v as select 1 as a\n\nselect b, a from v", want: "42P01 at 18"},
		{name: "words of errors", text: "create function f() returns int language plpgsql as 'begin raise ''%'', current_setting(''port''); end'\n\nselect f()"},
		{name: "a notice", text: "create function f() returns int language plpgsql as 'begin raise notice ''%'', current_setting(''port''); return 1; end'\n\nselect f()", want: "notice NOTICE 00000"},
		{name: "a parameter", text: "-- router\nset application_name = 'x'\n\n-- router\nset timezone = 'Asia/Tokyo'\n\nset timezone = 'Asia/Tokyo'", want: "parameter TimeZone=Asia/Tokyo"},
		{name: "the transaction's state", text: "-- router\nbegin\n\nselect 1", want: "ready T"},
		{name: "data", text: "create table t (a int)\n\n-- router\ninsert into t values (7)\n\ncopy t to stdout", want: "data"},
		{name: "a silent refusal", text: refuse + "create or replace function f() returns int language sql as 'select 1'\n\n-- router\ncreate or replace function f() returns int language plpgsql as 'begin raise feature_not_supported; end'\n\nselect f()", want: "not written down"},
		{name: "a refusal", text: refuse + "-- expect: refused: feature\nselect f()"},
		{name: "a difference that is written down", text: view("1 as b", "1 as a") + "-- expect: different: names\nselect * from v"},
		{name: "a difference that is none", text: "-- expect: different: names\nselect 1", want: "the answers are equal"},
		{name: "a refusal in one protocol", text: "-- expect: refused extended: feature\n-- protocol: simple\nselect 1"},
		{name: "a refusal in the other protocol", text: "-- expect: refused extended: feature\n-- protocol: extended\nselect 1", want: "a refusal is written down"},
		{name: "a refusal that is none", text: "-- expect: refused: feature\nselect 1", want: "a refusal is written down"},
		{name: "another error for a refusal", text: "-- expect: refused: feature\nselect 1/0", want: "a refusal is written down"},
		{name: "a refusal for another reason", text: refuse + "-- expect: refused: ORDER BY\nselect f()", want: "not for"},
		{name: "a refusal in a transaction", text: refuse + "begin\n\n-- expect: refused: feature\nselect f()\n\nselect 1\n\nrollback"},
		{name: "a router's statement that fails", text: "-- router\nselect 1/0", want: "22012"},
		{name: "a notification", text: "listen x\n\n-- session: other\nselect pg_notify('x', current_setting('port'))\n\n-- session: main\n-- wait", want: "notification x"},
		{name: "a parameter's type", text: "-- router\ncreate function g(bigint) returns int language sql as 'select 1'\n\ncreate function g(int) returns int language sql as 'select 1'\n\n" +
			"-- router\ndrop function g(int)\n\n-- parse: s\nselect g($1)", want: "parameters 23"},
		{name: "an answer to what a server fails at", text: "-- expect: answer\nselect 1"},
		{name: "an answer that is none", text: "-- expect: answer\nselect 1/0", want: "it must succeed"},
		{name: "a refusal in the simple protocol", text: "-- expect: refused simple: feature\n-- protocol: extended\nselect 1"},
		{name: "binary data", text: "create table t (a int)\n\n-- router\ninsert into t values (7)\n\ncopy t to stdout (format binary)", want: "data"},
		{name: "data in any order", text: "create table t (a int)\n\n-- router\ninsert into t values (0)\n\ninsert into t values (1), (2)\n\n-- router\nupdate t set a = a where a = 1\n\n" +
			"-- router\ndelete from t where a = 0\n\n-- unordered\ncopy t to stdout (format binary)\n\n-- unordered\ncopy t to stdout"},
		{name: "data from the plain server", text: "create table t (a int)\n\n-- from: copy (select 1) to stdout (format binary)\ncopy t from stdin (format binary)\n\n-- router\ninsert into t values (2)\n\n" +
			"select * from t", want: "done SELECT 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, how := range []pass{simplePass, textPass, binaryPass} {
				if c.only != "" && c.only != how {
					continue
				}
				s, err := parseScript(fmt.Sprintf("harness%d", i), c.text)
				if err != nil {
					t.Fatal(err)
				}
				problems, _ := p.run(t.Context(), s, how)
				if said := strings.Join(problems, "\n"); (c.want == "") != (len(problems) == 0) || !strings.Contains(said, c.want) {
					t.Errorf("%s pass: it was said:\n%s\nwant %q", how, said, c.want)
				}
			}
		})
	}
}

// view makes a view that the two servers define differently.
func view(router, plain string) string {
	return "-- router\ncreate view v as select " + router + "\n\ncreate or replace view w as select " + plain + "\n\n" +
		"do $$ begin if to_regclass('v') is null then alter view w rename to v; end if; end $$\n\n"
}

// TestShapesMustSayThatTheyFail: a statement that is merely wrong has equal answers, and must not pass for that.
func TestShapesMustSayThatTheyFail(t *testing.T) {
	const failed = "error ERROR 42P01 at 5: why"
	for _, c := range []struct {
		step  step
		lines []string
		fine  bool
	}{
		{step{}, []string{failed, "ready I"}, true},
		{step{isShape: true}, []string{"done SELECT 1", "ready I"}, true},
		{step{isShape: true}, []string{failed, "ready I"}, false},
		{step{isShape: true, fails: []string{"42P01"}}, []string{failed, "ready I"}, true},
		{step{isShape: true, fails: []string{"42P02"}}, []string{failed, "ready I"}, false},
		{step{isShape: true, fails: []string{"42P01"}}, []string{"done SELECT 1", "ready I"}, false},
		{step{isShape: true, fails: []string{"42P01"}, each: "sample"}, []string{"done SELECT 1", "ready I"}, true},
	} {
		if unexpected := c.step.unexpected(c.lines, true); (unexpected == "") != c.fine {
			t.Errorf("%+v, %q: %q", c.step, c.lines, unexpected)
		}
	}
}

func TestShapesAreFilledIn(t *testing.T) {
	numbers, err := newCast(oneColumn("n", "bigint", "int8", []string{"1", "2", "3", "4", "5", "-6", "7"}, "+8"), strings.Fields("p p q q r r r"))
	if err != nil {
		t.Fatal(err)
	}
	pairs, err := newCast(composite("p", [][]string{{"1", "a"}, {"2", "b"}, {"3", "c"}, {"4", "d"}, {"5", "it's"}, {"6", "f"}, {"7", "g"}}, nil), strings.Fields("p p q q r r r"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ shape, number, pair string }{
		{"{columns}", "k bigint not null", "k bigint not null, j text not null"},
		{"{types} {key} {key o}", "bigint k o.k", "bigint, text k, j o.k, o.j"},
		{"{a} | {e} | {z} | {cast f}", "1 | 5 | 7 | (-6)::bigint", "1, 'a' | 5, 'it''s' | 7, 'g' | 6::bigint, 'f'::text"},
		{"{$1} | {$2}", "$1 | $2", "$1, $2 | $3, $4"},
		{"{= a} | {o = $2}", "k = 1 | o.k = $2", "k = 1 and j = 'a' | o.k = $3 and o.j = $4"},
		{"{o = i} | {set c}", "o.k = i.k | k = 3", "o.k = i.k and o.j = i.j | k = 3, j = 'c'"},
		{"{in a c} | {o in $1 $2}", "k in (1, 3) | o.k in ($1, $2)", "(k, j) in ((1, 'a'), (3, 'c')) | (o.k, o.j) in (($1, $2), ($3, $4))"},
		{"{> a} | {o <= f} | {between a b}", "k > 1 | o.k <= -6 | k between 1 and 2", "k > 1 | o.k <= 6 | k between 1 and 2"},
		{"{array a f}", `'{"1","-6"}'`, `'{"1","6"}'`},
		{"{schema}.t '{}' '{NULL}'", "{schema}.t '{}' '{NULL}'", "{schema}.t '{}' '{NULL}'"},
	} {
		for _, filled := range []struct {
			cast *cast
			want string
		}{{numbers, c.number}, {pairs, c.pair}} {
			if got, err := filled.cast.fill(step{text: c.shape}); err != nil || got.text != filled.want {
				t.Errorf("%s: %s, %v, want %s", c.shape, got.text, err, filled.want)
			}
		}
	}
	for _, wrong := range []string{"{nothing}", "{array y}", "{= some a}", "{$x}"} {
		if got, err := numbers.fill(step{text: wrong}); err == nil {
			t.Errorf("%s: %s", wrong, got.text)
		}
	}
}

func TestRowsOfShapesAreInOrderWhereTheStatementSaysSo(t *testing.T) {
	for text, want := range map[string]bool{
		"select 1 order by 1":          true,
		"select 1":                     false,
		"select (select 1 order by 1)": false,
		"(select 1 order by 1) union (select 2) order by 1 limit 1": true,
		"select row_number() over (order by id) from t":             false,
	} {
		if got := endsInOrder(text); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

func TestScriptsWithMistakesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"-- expct: refused\nselect 1":         "not known",
		"-- expect: nothing\nselect 1":        "refusal",
		"-- expect: refused\nselect 1":        "needs a part",
		"-- protocol: both\nselect 1":         "none of",
		"\n\nselect 1\n\n-- param:\nselect 1": "x.sql:5",
		"-- rows: many\nselect 1":             "many",
	} {
		if _, err := parseScript("x", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestScriptsAreReadAsWritten(t *testing.T) {
	s, err := parseScript("x", "-- Prose.\n\n-- session: a\n-- param: int8 5\n-- param: text a b\n-- param: text\nselect $1\n  -- not: a directive\nfrom t\n\n-- end\n\n-- empty\n\n-- data: 1\n-- data: \ncopy t from stdin\n")
	if err != nil || len(s.steps) != 4 {
		t.Fatalf("%+v, %v", s, err)
	}
	first := s.steps[0]
	if first.line != 3 || first.session != "a" || first.text != "select $1\n  -- not: a directive\nfrom t" || len(first.params) != 3 || *first.params[1].value != "a b" || first.params[2].value != nil {
		t.Errorf("%+v", first)
	}
	if !s.steps[1].end || s.steps[1].session != "a" || !s.steps[2].empty || len(s.steps[3].data) != 2 || !s.steps[3].copies {
		t.Errorf("%+v", s.steps[1:])
	}
}

func TestWordsOfErrorsAreCompared(t *testing.T) {
	for _, c := range []struct {
		want, got string
		same      bool
	}{
		{"error ERROR 22012 at 0: why | row 1", "error ERROR 22012 at 0: why | row 2", true},
		{"error ERROR 22012 at 0: why | ", "error ERROR 22012 at 0: what | ", false},
		{"done SELECT 1", "done SELECT 1", true},
	} {
		if difference := otherWords([]string{c.want}, []string{c.got}); (difference == "") != c.same {
			t.Errorf("%q and %q: %s", c.want, c.got, difference)
		}
	}
}

func TestAnErrorMayComeEarlierButNotLater(t *testing.T) {
	const failed, other, columns, row, ready = "error ERROR 22012 at 0: why", "error ERROR 22013 at 0: why", `columns "a"`, `row "1"`, "ready I"
	for _, c := range []struct {
		want, got []string
		same      bool
	}{
		{[]string{"ParseComplete", "BindComplete", columns, failed, ready}, []string{failed, ready}, true},
		{[]string{"ParseComplete", "BindComplete", columns, failed, ready}, []string{"ParseComplete", failed, ready}, true},
		{[]string{"ParseComplete", "BindComplete", columns, failed, ready}, []string{other, ready}, false},
		{[]string{"ParseComplete", "BindComplete", columns, row, failed, ready}, []string{failed, ready}, false},
		{[]string{"ParseComplete", failed, ready}, []string{"ParseComplete", "BindComplete", failed, ready}, false},
		{[]string{"ParseComplete", "BindComplete", columns, row, ready}, []string{failed, ready}, false},
		{[]string{"ParseComplete", "BindComplete", columns, ready}, []string{"ParseComplete", columns, ready}, false},
		{[]string{row, ready}, []string{row}, false},
		{[]string{row}, []string{row, ready}, false},
		{nil, []string{failed}, false},
	} {
		if difference := firstDifference(c.want, c.got); (difference == "") != c.same {
			t.Errorf("%q and %q: %s", c.want, c.got, difference)
		}
	}
}
