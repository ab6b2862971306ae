package sqltext

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func normalise(t testing.TB, text string) *Normalized {
	t.Helper()
	var n Normalized
	if err := n.Scan([]byte(text), true); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return &n
}

func TestNormalForm(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "",
		"  select\t1 ; -- done":                  "select \x00i ;",
		"select a/**/from\n/* x */ t":            "select a from t",
		"SELECT 'a'\n'b',E'c',$$d$$,U&'e',B'1'":  "SELECT \x00s,\x00e,\x00d,\x00u,\x00b",
		"select x'1f', n'g', n 'g'":              "select \x00x, n\x00c, n \x00s",
		"select -5, 2147483648, 1.5, 1e5":        "select -\x00i, \x00l, \x00f, \x00f",
		"select 9223372036854775808":             "select \x00n",
		"select 0000000000000000000002147483647": "select \x00i",
		"select 0x1F, 1_000, 1":                  "select 0x1F, 1_000, \x00i",
		`select "A  b", U&"d!61" uescape  '!'`:   `select "A  b", U&"d!61" uescape '!'`,
		"select 1..2, $1 ,a$1":                   "select \x00i..\x00i, $1 ,a$1",
		"select a-- x\r-b":                       "select a -b",
	} {
		if got := normalise(t, text).Text; string(got) != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestWhatElseIsFound(t *testing.T) {
	for _, c := range []struct {
		text               string
		params, statements int
		first              FirstWord
		literals           []Kind
	}{
		{"", 0, 0, NoWord, nil},
		{" ; ; ", 0, 0, NoWord, nil},
		{"; commit; select $3, $12, $2", 12, 2, Commit, nil},
		{"(select 1)", 0, 1, NoWord, []Kind{Integer}},
		{"sElEcT 'a', 1.5", 0, 1, Select, []Kind{String, Float}},
		{"deallocates", 0, 1, NoWord, nil},
		{`"select" 1`, 0, 1, NoWord, []Kind{Integer}},
		{"CHECKPOINT", 0, 1, Checkpoint, nil},
	} {
		n := normalise(t, c.text)
		if n.Params != c.params || n.Statements != c.statements || n.FirstWord != c.first {
			t.Errorf("%q: %d parameters, %d statements, first word %d", c.text, n.Params, n.Statements, n.FirstWord)
		}
		if got := kinds(n); !slices.Equal(got, c.literals) {
			t.Errorf("%q: literals %v, want %v", c.text, got, c.literals)
		}
	}
}

func kinds(n *Normalized) (kinds []Kind) {
	for _, literal := range n.Literals {
		kinds = append(kinds, literal.Kind)
	}
	return kinds
}

// TestEveryFirstWord holds that the words are told apart, in either case.
func TestEveryFirstWord(t *testing.T) {
	seen := map[FirstWord]bool{}
	for _, word := range strings.Fields("abort alter analyze begin call checkpoint close cluster comment commit copy create deallocate declare delete discard do drop end execute explain fetch grant import insert listen load lock merge move notify prepare reassign refresh reindex release reset revoke rollback savepoint security select set show start table truncate unlisten update vacuum values with") {
		first := normalise(t, word).FirstWord
		if first == NoWord || seen[first] || first != normalise(t, strings.ToUpper(word)).FirstWord {
			t.Errorf("%s is first word %d", word, first)
		}
		seen[first] = true
	}
	if len(seen) != int(With) {
		t.Errorf("%d words were seen of %d", len(seen), With)
	}
}

func TestUnsound(t *testing.T) {
	var n Normalized
	for _, text := range []string{
		"'", "'a", "'a'\n'", `E'\'`, `E'\`, "B'", "$$a", "$a$ $$", `"`, `"a""`, `""`, `U&""`, "/*", "/*/", "select 1 /* /* */", "1a", "1e", "1e+", "0x", "0b2", "0b12", "1e5$", "1_0$a",
		"1_", "$1a", "$2147483648", strings.Repeat("@", 64), "a\x00b", "'a'\x00",
	} {
		if err := n.Scan([]byte(text), true); err == nil {
			t.Errorf("%q passes", text)
		}
		if len(n.Text) != 0 || n.Statements != 0 || len(n.Literals) != 0 {
			t.Errorf("of %q something is said", text)
		}
	}
	if err := n.Scan([]byte("U&'a'"), false); err == nil {
		t.Error("U&'a' passes with standard_conforming_strings off, in which PostgreSQL refuses it")
	}
	if err := n.Scan([]byte("select 'a\x00b'"), true); err == nil {
		t.Error("a NUL in a string passes")
	}
}

func TestStandardConformingStringsOff(t *testing.T) {
	var n Normalized
	if err := n.Scan([]byte(`select 'a\'b', 'c', N'd\''`), false); err != nil {
		t.Fatal(err)
	}
	if want := []Kind{EscapeString, String, NationalString}; !slices.Equal(kinds(&n), want) {
		t.Errorf("literals %v, want %v", kinds(&n), want)
	}
}

func TestValues(t *testing.T) {
	for text, want := range map[string]string{
		"5": "5", "1.5": "1.5", "''": "", "'a'": "a", "'it''s'": "it's", "''''": "'", "'a'\n'b'": "ab", "'a''' -- '\n '''b'": "a''b", "$$a'b$$": "a'b", "$x$a$$b$x$": "a$$b",
		"$$$$": "",
	} {
		value, ok := normalise(t, "select "+text).Value([]byte("select "+text), 0)
		if !ok || string(value) != want {
			t.Errorf("%s is %q, %v", text, value, ok)
		}
	}
	for _, text := range []string{"E'a'", "U&'a'", "B'1'", "X'1'", "N'a'"} {
		if value, ok := normalise(t, "select "+text).Value([]byte("select "+text), 0); ok {
			t.Errorf("%s is %q", text, value)
		}
	}
}

// TestValuesStay: a value lives until the next scan, whatever other values are asked for.
func TestValuesStay(t *testing.T) {
	text := []byte("select 'a''b', 'c''d', '" + strings.Repeat("''", 100) + "'")
	n := normalise(t, string(text))
	first, _ := n.Value(text, 0)
	_, _ = n.Value(text, 1)
	_, _ = n.Value(text, 2)
	if string(first) != "a'b" {
		t.Errorf("the first value became %q", first)
	}
}

// spelled is a token as it is, or the kind of a literal.
type spelled struct {
	kind Kind
	text string
}

// tokensOf returns what the normal form must tell apart.
func tokensOf(t testing.TB, text string) (tokens []spelled) {
	t.Helper()
	s := NewScanner([]byte(text), true)
	for {
		token, ok := s.Next()
		if !ok {
			break
		}
		spelling := text[token.Start:token.End]
		switch {
		case token.Kind == Integer:
			spelling = string(integerMark([]byte(spelling)))
		case token.Kind.IsLiteral() && !endsName(tokens):
			spelling = ""
		}
		tokens = append(tokens, spelled{token.Kind, spelling})
	}
	if s.Err() != nil {
		t.Fatalf("%q: %v", text, s.Err())
	}
	return tokens
}

// endsName tells whether a string after these tokens says what the name or the string before UESCAPE means.
func endsName(tokens []spelled) bool {
	n := len(tokens)
	return n >= 2 && strings.EqualFold(tokens[n-1].text, "uescape") && (tokens[n-2].kind == QuotedWord || tokens[n-2].kind == UnicodeString)
}

// spellings has a literal for every mark.
var spellings = map[byte]string{
	'i': " 1 ", 'l': " 9223372036854775807 ", 'n': " 9223372036854775808 ", 'f': " 1.5 ", 's': " 'a' ", 'e': " E'a' ", 'd': " $$a$$ ", 'u': " U&'a' ",
	'b': " B'1' ", 'x': " X'1' ", 'c': "'a' ",
}

// expand makes a text of a normal form again, with other literals.
func expand(form []byte) string {
	var text strings.Builder
	for i := 0; i < len(form); i++ {
		if form[i] == 0 {
			i++
			text.WriteString(spellings[form[i]])
			continue
		}
		text.WriteByte(form[i])
	}
	return text.String()
}

// checkForm holds the promise of the package: the tokens can be had from the normal form alone, so texts with the same form
// have the same tokens.
func checkForm(t testing.TB, text string) {
	t.Helper()
	n := normalise(t, text)
	back := expand(n.Text)
	if got, want := tokensOf(t, back), tokensOf(t, text); !slices.Equal(got, want) {
		t.Fatalf("%q becomes %q, whose tokens are\n%q, not\n%q", text, n.Text, got, want)
	}
	again := normalise(t, back)
	if again.Statements != n.Statements || again.Params != n.Params || again.FirstWord != n.FirstWord || !slices.Equal(kinds(again), kinds(n)) {
		t.Fatalf("%q becomes %+v, and %q %+v", text, n, back, again)
	}
}

func TestFormTellsTheTokens(t *testing.T) {
	var n Normalized
	for _, text := range statements {
		if n.Scan([]byte(text), true) == nil {
			checkForm(t, text)
		}
	}
}

func FuzzFormTellsTheTokens(f *testing.F) {
	for _, text := range statements {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var n Normalized
		if n.Scan([]byte(text), true) == nil {
			checkForm(t, text)
		}
		_ = n.Scan([]byte(text), false)
	})
}

// pieces are what texts are made of at random; separators are what may stand between any two of them.
var (
	pieces = []string{
		"a", "A", "select", `"a b"`, `U&"a"`, "uescape", "n", "e", "$1", "$a", "0x1F", "1_0", "+", "-", "*", "/", "@-", "=", "<>", "::", ":=", ":", ".", "..", ",", "(", ")", "[", "]",
		";", "{", "é",
	}
	separators = []string{" ", "\t", "\n", "  ", "\t/**/", " --\n", " /* ' /* */ */ ", "\f--'\r"}
)

// TestBlanksAndValuesDoNotMatter: other blanks and other values make the same form, other tokens another.
func TestBlanksAndValuesDoNotMatter(t *testing.T) {
	literals := [][2]string{{"1", "234"}, {"5000000000", "5000000001"}, {"1.5", ".7e3"}, {"'a'", "'b''c'"}, {"$$a$$", "$x$b$x$"}, {"E'a'", `e'\''`}, {"B'1'", "b'0'"}}
	rapid.Check(t, func(t *rapid.T) {
		var one, other strings.Builder
		for i := range rapid.IntRange(0, 12).Draw(t, "tokens") {
			if i > 0 {
				one.WriteString(rapid.SampledFrom(separators).Draw(t, "separator"))
				other.WriteString(rapid.SampledFrom(separators).Draw(t, "separator"))
			}
			if rapid.Bool().Draw(t, "literal") {
				values := rapid.SampledFrom(literals).Draw(t, "values")
				one.WriteString(values[0] + " , ")
				other.WriteString(values[1] + " , ")
				continue
			}
			piece := rapid.SampledFrom(pieces).Draw(t, "piece")
			one.WriteString(piece)
			other.WriteString(piece)
		}
		var a, b Normalized
		if a.Scan([]byte(one.String()), true) != nil || b.Scan([]byte(other.String()), true) != nil {
			t.Skip("unsound")
		}
		if strings.Contains(one.String(), "uescape") {
			return // the string that follows stays
		}
		if !bytes.Equal(a.Text, b.Text) {
			t.Fatalf("%q becomes %q, and %q %q", one.String(), a.Text, other.String(), b.Text)
		}
		if Fingerprint(a.Text) != Fingerprint(b.Text) {
			t.Fatal("equal forms have other fingerprints")
		}
	})
}

func TestScanDoesNotAllocate(t *testing.T) {
	text := []byte(kilobyte)
	n := normalise(t, kilobyte)
	if allocations := testing.AllocsPerRun(100, func() {
		_ = n.Scan(text, true)
		for i, l := range n.Literals {
			if !bytes.Contains(text[l.Start:l.End], []byte("''")) { // a value without them has to be made
				n.Value(text, i)
			}
		}
	}); allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
}
