package sqltext

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	pg_query "github.com/pganalyze/pg_query_go/v6"
)

// statements are texts in which the rules meet: each has once been a way to read SQL wrongly.
var statements = []string{
	"", " ", ";", ";;", "select 1", "select 1;", "select 1; select 2", "; select 1 ;; select 2 ;", pgbenchSelect, kilobyte,
	// numbers
	"select 1.", "select .5", "select 1..2", "select 1...5", "select 1.5.3", "select 1e5", "select 1e", "select 1e+", "select 1E-5",
	"select 0x1F", "select 0b1", "select 0o7", "select 0x", "select 0b12", "select 1_000", "select 1__0", "select 1_", "select 1a",
	"select 1.5e5$", "select 1e5$a$x$a$", "select 1$a$x$a$", "select 1_0.5_0e1_0", "select 0x_1F", "select 0X1f.5", "select 1._5",
	"select 1e5.5", "select 00x1", "select 0_1", "select 1.e5", "select .5e", "select 5.a", "select -5", "select 1-1", "select 1--1",
	"select 2147483647, 2147483648, 9223372036854775807, 9223372036854775808, 00000000000000000000000001", "select a[1:2]",
	// parameters and dollars
	"select $1, $2", "select $1a", "select $1$2", "select $2147483647", "select $2147483648", "select $99999999999999999999",
	"select $$a$$", "select $a$b$a$", "select $a$ $b$ $a$", "select $a$ $$ $a$", "select $$ $a$$", "select $a$a$", "select $a $a$",
	"select a$b$c", "select $1$a$x$a$", "select $é$x$é$", "select $a1$x$a1$", "select $1a$x$1a$", "select $", "select $ 1", "select $a$",
	"do $$begin; end$$; select 1", "select $a$ $a $a$", "select $$$$", "select $$$a$$$",
	// strings
	"select 'a'", "select ''", "select ''''", "select 'it''s'", "select 'a'\n'b'", "select 'a' 'b'", "select 'a' \t\r\n -- c\n  'b'",
	"select 'a' -- c\n'b'", "select 'a'\n--c", "select 'a'\n/* c */'b'", "select 'a'\n--'b'", "select 'a", "select '", `select 'a\'`, `select 'a\\'`,
	"select 'a'\n'b''c'\n'd'", "select 'a'-'b'", "select 'a'\n-'b'", "select 'a'--b", "select 'a'\v\n'b'",
	`select E'a\'b'`, `select e'a''b'`, `select E'\\'`, `select E'\`, `select E'\'`, `select E'a'` + "\n" + `'b\'c'`, `select E'\u0061\U00000061\x61\141'`,
	"select B'101'", "select b'1''0'", "select X'1F'", "select x'1F'\n'2E'", "select x'zz'", "select N'abc'", "select n'a'\n'b'", "select n 'abc'",
	"select U&'d!0061t' UESCAPE '!'", `select U&'d\0061t'`, `select u&"d\0061t"`, `select U&"a""b" uescape '!'`, "select u &'a'", "select u&a", "select u&",
	"select U&'a'\n'b'", `select U&""`, "select ee'a'", "select $1E'a'",
	// names
	`select "a"`, `select "a""b"`, `select ""`, `select """"`, `select "a`, `select "`, "select naïve", "select a.b.c", "select _a$1", `select a"b"c`, "select été.été",
	// operators
	"select 1+-1", "select a=-1", "select a<=-1", "select a@-1", "select a@--1", "select 2*/* x */3", "select 2*--x\n3", "select */*", "select a->>'b'",
	"select a<>b, a!=b, a>=b, a<=b, a=>b", "select a::int", "select a:=b", "select a:b", "select a ? b", "select a ?| b", "select +-+-1", "select ~-1", "select -~-",
	"select %-+", "select a/**/-b", "select a-/**/b", "select a|/-1", "select - -1", "select -/-1", "select " + strings.Repeat("+", 63) + "@", "select " + strings.Repeat("@", 63), "select " + strings.Repeat("@", 64),
	// comments
	"/* a */ select 1", "select /* /* */ */ 1", "select /* /* */ 1", "select 1 --", "--", "/**/", "/*/", "/*/**/", "select/**/1", "select 1 /*/ */", "select /***/1", "select 1/*", "--a\r1", "select /*'*/1/*'*/",
	// characters that are no SQL
	"select {", `select \`, "select \x01", "select \x7f", "select \xff", "select a\vb", "select a\u00a0b",
	// semicolons that end nothing
	"create rule r as on insert to t do also (insert into a values (1); insert into b values (2)); select 1",
	"create function f() returns int begin atomic select 1; select case when true then 1 end; end; select 1",
	"create or replace procedure p(a int, begin int) language sql begin atomic insert into t values (1); insert into t values (2); end",
	"create function f() returns int language sql as 'select 1; select 2'; select 1", "create table t(a int); create table u(a int)",
	"create function f() returns int begin atomic select a.end from t as a; select 1 as case; end; begin; end", "begin; select 1; end", "(select 1); select 2", "create function begin() returns int return 1; select 1",
	// statements of every kind
	"INSERT INTO t (a, b) VALUES (1, 'x'), ($1, $2) ON CONFLICT (a) DO UPDATE SET b = excluded.b RETURNING *", "COPY t FROM STDIN", "SET search_path TO a, 'b'", "LISTEN c",
	"WITH x AS (SELECT 1) TABLE x", "EXPLAIN (ANALYZE, COSTS OFF) SELECT 1", "PREPARE p (int) AS SELECT $1", "EXECUTE p(1)", "select interval '1' day, date '2026-01-31', timestamp with time zone 'now'",
	"select array[1,2][1], row(1,2), (a).b, a[1:], x.*", "select * from json_table('{}', '$' columns (a int path '$.a'))", "select 1 as \"select\"", "vacuum (full) t",
}

func FuzzAgainstPostgres(f *testing.F) {
	for _, text := range statements {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsRune(text, 0) {
			t.Skip("no text that comes from a client has a NUL")
		}
		for _, form := range elsewhere {
			if form.MatchString(text) {
				t.Skip("libpg_query is not PostgreSQL there")
			}
		}
		compareTokens(t, text)
		if !body.MatchString(text) || slices.Contains(statements, text) {
			compareStatements(t, text)
		}
	})
}

// elsewhere are the forms in which libpg_query reads other tokens than PostgreSQL; TestServer has them.
var elsewhere = []*regexp.Regexp{
	regexp.MustCompile(`\$[0-9]+[A-Za-z_\x80-\x{10ffff}]`), // it takes junk after a parameter
	regexp.MustCompile(`\$[0-9]{10}`),                      // it takes any number for a parameter
	regexp.MustCompile(`'\s*--`),                           // it ends a string before a comment, even if it goes on after
}

// body is what begins a routine's body, in which statements are counted without a grammar.
var body = regexp.MustCompile(`(?i)atomic`)

// compareTokens: whatever PostgreSQL's scanner accepts is accepted here, with the same tokens.
func compareTokens(t *testing.T, text string) {
	t.Helper()
	theirs, err := pg_query.Scan(text)
	if err != nil {
		return
	}
	s := NewScanner([]byte(text), true)
	for _, want := range theirs.Tokens {
		if want.Token == pg_query.Token_C_COMMENT || want.Token == pg_query.Token_SQL_COMMENT {
			continue
		}
		got, ok := s.Next()
		if !ok {
			t.Fatalf("%q ends before %v (%v), for PostgreSQL it does not", text, want, s.Err())
		}
		if got.Start != int(want.Start) || got.End != int(want.End) || !agree(got.Kind, want) {
			t.Fatalf("%q has %+v %q, for PostgreSQL %v", text, got, text[got.Start:got.End], want)
		}
	}
	if got, ok := s.Next(); ok || s.Err() != nil {
		t.Fatalf("%q goes on with %+v (%v), for PostgreSQL it does not", text, got, s.Err())
	}
}

// agree compares the kinds of a token, as far as PostgreSQL tells them apart.
func agree(got Kind, want *pg_query.ScanToken) bool {
	isNumber := got == Integer || got == Float || got == Number
	switch want.Token {
	case pg_query.Token_ICONST:
		return got == Integer || got == Number
	case pg_query.Token_FCONST:
		return isNumber
	case pg_query.Token_SCONST:
		return got == String || got == EscapeString || got == DollarString || got == NationalString
	case pg_query.Token_USCONST:
		return got == UnicodeString
	case pg_query.Token_BCONST:
		return got == BitString
	case pg_query.Token_XCONST:
		return got == HexString
	case pg_query.Token_PARAM:
		return got == Param
	case pg_query.Token_IDENT:
		return got == Word || got == QuotedWord
	case pg_query.Token_UIDENT:
		return got == QuotedWord
	default:
		return !isNumber && !got.IsLiteral() && got != Param && got != QuotedWord && (want.KeywordKind == pg_query.KeywordKind_NO_KEYWORD) == (got != Word)
	}
}

// compareStatements: whatever PostgreSQL's grammar accepts has as many statements.
func compareStatements(t *testing.T, text string) {
	t.Helper()
	tree, err := pg_query.Parse(text)
	if err != nil {
		return
	}
	var n Normalized
	if err := n.Scan([]byte(text), true); err != nil {
		t.Fatalf("%q is unsound: %v", text, err)
	}
	if n.Statements != len(tree.Stmts) {
		t.Fatalf("%q has %d statements, for PostgreSQL %d", text, n.Statements, len(tree.Stmts))
	}
}
