package copydata

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// splitCase is data and what becomes of it.
type splitCase struct {
	name    string
	columns int
	options []Option
	version int
	data    string
	want    string // the pieces
	refused string // the message of the error after them
}

func runSplitCases(t *testing.T, cases []splitCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newFormat(t, c.columns, c.options...)
			for way, sizes := range map[string][]int{"whole": nil, "bytewise": bytewise(c.data), "by five": {5, 5, 5, 5, 5, 5}} {
				pieces, err := split(t, f, Config{Keys: allKeys(f), ServerVersion: c.version}, c.data, sizes...)
				if got := merged(pieces); got != c.want || message(err) != c.refused {
					t.Errorf("%s: got %s, error %q; want %s, error %q", way, got, message(err), c.want, c.refused)
				}
				if err == nil && joined(pieces) != c.data {
					t.Errorf("%s: put together: %q", way, joined(pieces))
				}
			}
		})
	}
}

// merged is what is shown of pieces, with what is ignored as one, however it came.
func merged(pieces []Piece) string {
	var kept []Piece
	for i, p := range pieces {
		if p.Kind != Ignored || i == 0 || pieces[i-1].Kind != Ignored {
			kept = append(kept, p)
		}
	}
	return shown(kept)
}

func TestText(t *testing.T) {
	runSplitCases(t, []splitCase{
		{name: "nothing", columns: 2},
		{name: "rows", columns: 2, data: "1\tx\n2\t\n", want: `("1", "x") ("2", "")`},
		{name: "last row without newline", columns: 2, data: "1\tx\n2\ty", want: `("1", "x") ("2", "y")`},
		{name: "NULL", columns: 2, data: "\\N\t\\\\N\n", want: `(NULL, "\N")`},
		{name: "NULL of one's own", columns: 2, options: []Option{option("null", "-")}, data: "-\t\\-\n", want: `(NULL, "-")`},
		{name: "escapes", columns: 1, data: `\b\f\n\r\t\v\q\\` + "\n", want: "(\"\b\f\n\r\t\vq\\\")"},
		{name: "numeric escapes", columns: 1, data: `\101\7\0601\x41\x4g\xg\777` + "\n", want: "(\"A\a01A\x04gxg\xff\")"},
		{name: "escaped delimiter and newlines", columns: 2, data: "a\\\tb\tc\\\nd\\\re\n", want: "(\"a\tb\", \"c\nd\re\")"},
		{name: "too few and too many", columns: 2, data: "1\n1\t2\n1\t2\t3\n\n", want: `malformed ("1", "2") malformed malformed`},
		{name: "too many behind an escape", columns: 2, data: "\\1\t2\t3\n", want: "malformed"},
		{name: "end", columns: 1, data: "1\n\\.\nrest\nof\n", want: `("1") end ignored`},
		{name: "end after escaped newline is none", columns: 1, data: "1\\\n\\\\.\n", want: "(\"1\n\\.\")"},
		{name: "end behind a row", columns: 1, data: "1\\.\n", refused: "end-of-copy marker is not alone on its line"},
		{name: "end without newline", columns: 1, data: "1\n\\.", want: `("1")`, refused: "end-of-copy marker corrupt"},
		{name: "end and more", columns: 1, data: "1\n\\.x\n", want: `("1")`, refused: "end-of-copy marker corrupt"},
		{name: "end with other newline", columns: 1, data: "1\n\\.\r\n", want: `("1")`, refused: "end-of-copy marker does not match previous newline style"},
		{name: "end with half a newline", columns: 1, data: "1\r\n\\.\n", want: `("1")`, refused: "end-of-copy marker does not match previous newline style"},
		{name: "end in CRLF", columns: 1, data: "1\r\n\\.\r\n2", want: `("1") end ignored`},
		{name: "CRLF", columns: 1, data: "1\r\n2\r\n3", want: `("1") ("2") ("3")`},
		{name: "CR", columns: 1, data: "1\r2\r", want: `("1") ("2")`},
		{name: "one CR", columns: 1, data: "1\r", want: `("1")`},
		{name: "CR among LF", columns: 1, data: "1\n2\r\n", want: `("1")`, refused: "literal carriage return found in data"},
		{name: "CR among CRLF", columns: 1, data: "1\r\n2\r3\r\n", want: `("1")`, refused: "literal carriage return found in data"},
		{name: "LF among CRLF", columns: 1, data: "1\r\n2\n", want: `("1")`, refused: "literal newline found in data"},
		{name: "LF among CR", columns: 1, data: "1\r2\n", want: `("1")`, refused: "literal newline found in data"},
		{name: "header", columns: 1, options: []Option{{Name: "header", Bare: true}}, data: "a\tb\tc\n1\n", want: `header ("1")`},
		{name: "header alone", columns: 1, options: []Option{option("header", "match")}, data: "a", want: "header"},
		{name: "NUL", columns: 2, data: "a\x00b\t\x00\n", want: "(\"a\x00b\", \"\x00\")"},
		{name: "ends in a backslash", columns: 1, data: `1\`, want: `("1")`},
		{name: "ends in a mark and a backslash", columns: 1, data: `\N\`, want: `(NULL)`},
		{name: "default", columns: 2, options: []Option{option("default", `\D`)}, data: "\\D\t\\\\D\n", want: `(DEFAULT, "\D")`},
		{name: "default that is empty", columns: 2, options: []Option{option("default", "")}, data: "\t1\n", want: `(DEFAULT, "1")`},
	})
}

func TestCSV(t *testing.T) {
	csv := func(more ...Option) []Option { return append([]Option{option("format", "csv")}, more...) }
	list := func(name string, columns ...string) Option { return Option{Name: name, List: columns} }
	runSplitCases(t, []splitCase{
		{name: "rows", columns: 2, options: csv(), data: "1,x\n2,\"\"\n,\n", want: `("1", "x") ("2", "") (NULL, NULL)`},
		{name: "quotes", columns: 2, options: csv(), data: "\"a,\"\"b\"\"\",c\"d,e\"f\n", want: `("a,"b"", "cd,ef")`},
		{name: "newlines in quotes", columns: 2, options: csv(), data: "\"a\nb\r\n\",1\n\"\r\",2\n", want: "(\"a\nb\r\n\", \"1\") (\"\r\", \"2\")"},
		{name: "escape of its own", columns: 2, options: csv(option("escape", `\`)), data: `"a\"b\\","\c\` + "\n\"\n" + `\"x",y` + "\n", want: "(\"a\"b\\\", \"\\c\\\n\") (\"\\x\", \"y\")"},
		{name: "quote of one's own", columns: 2, options: csv(option("quote", "'")), data: "'a''','\"'\n", want: `("a'", """)`},
		{name: "NULL", columns: 2, options: csv(option("null", "NULL")), data: "NULL,\"NULL\"\n", want: `(NULL, "NULL")`},
		{name: "force null", columns: 2, options: csv(list("force_null", "b")), data: "\"\",\"\"\n", want: `("", NULL)`},
		{name: "force not null", columns: 2, options: csv(list("force_not_null", "b")), data: ",\n", want: `(NULL, "")`},
		{name: "force all", columns: 2, options: csv(Option{Name: "force_null", Star: true}), data: "\"\",x\n", want: `(NULL, "x")`},
		{name: "default", columns: 2, options: csv(option("default", "D")), data: "D,\"D\"\n", want: `(DEFAULT, "D")`},
		{name: "not closed", columns: 1, options: csv(), data: "1\n\"2\n3\n", want: `("1") malformed`},
		{name: "too few and too many", columns: 2, options: csv(), data: "1\n\"1\"\n\"1\",\"2\",3\n1,2,3\n", want: "malformed malformed malformed malformed"},
		{name: "CR outside of quotes", columns: 1, options: csv(), data: "\"\r\"\n1\r\n", want: "(\"\r\")", refused: "unquoted carriage return found in data"},
		{name: "header with newline", columns: 1, options: csv(option("header", "on")), data: "\"a\nb\"\n1\n", want: `header ("1")`},
		{name: "end", columns: 1, options: csv(), version: 170000, data: "1\n\\.\nrest", want: `("1") end ignored`},
		{name: "end of nobody knows", columns: 1, options: csv(), data: "1\n\\.\nrest", want: `("1")`, refused: `a line \. in CSV is not supported in COPY into a sharded table`},
		{name: "end is a row", columns: 1, options: csv(), version: 180000, data: "1\n\\.\n2\n", want: `("1") ("\.") ("2")`},
		{name: "end is data", columns: 1, options: csv(), data: "\\.x\n\\.", want: `("\.x") ("\.")`},
		{name: "end in quotes", columns: 1, options: csv(), data: "\"a\n\\.\nb\"\n", want: "(\"a\n\\.\nb\")"},
		{name: "end with another newline", columns: 1, options: csv(), data: "1\n\\.\r", want: `("1")`, refused: "end-of-copy marker does not match previous newline style"},
		{name: "end in CRLF", columns: 1, options: csv(), version: 150000, data: "1\r\n\\.\r\n", want: `("1") end`},
		{name: "a backslash is one", columns: 1, options: csv(), data: "\\\n\\N\n", want: `("\") ("\N")`},
	})
}

// binaryData builds binary data of parts: strings as they are, int16 and int32 as big-endian numbers.
func binaryData(parts ...any) string {
	var b strings.Builder
	for _, part := range parts {
		switch v := part.(type) {
		case string:
			b.WriteString(v)
		case int16:
			b.Write([]byte{byte(v >> 8), byte(v)})
		case int32:
			b.Write([]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
		}
	}
	return b.String()
}

func TestBinary(t *testing.T) {
	header := binaryData(signature, int32(0), int32(0))
	row := binaryData(int16(2), int32(1), "x", int32(-1))
	with := func(parts ...any) string { return header + binaryData(parts...) }
	options := []Option{option("format", "binary")}
	cases := []splitCase{
		{name: "nothing"},
		{name: "rows", data: with(row, int16(2), int32(0), int32(3), "abc", int16(-1)), want: `header ("x", NULL) ("", "abc") end`},
		{name: "no trailer", data: with(row), want: `header ("x", NULL)`},
		{name: "half a count", data: with(row, "\x00"), want: `header ("x", NULL) ignored`},
		{name: "extension", data: binaryData(signature, int32(0xffff), int32(3), "abc", row), want: `header ("x", NULL)`},
		{name: "more behind the trailer", data: with(int16(-1), "x"), want: "header end", refused: "received copy data after EOF marker"},
		{name: "half a header", data: header[:14], want: "malformed"},
		{name: "flags", data: binaryData(signature, int32(1<<16), int32(0), row), want: "malformed ignored"},
		{name: "negative extension", data: binaryData(signature, int32(0), int32(-1), row), want: "malformed ignored"},
		{name: "long extension", data: binaryData(signature, int32(0), int32(99), row), want: "malformed"},
		{name: "other count", data: with(int16(3), row), want: "header malformed ignored"},
		{name: "negative count", data: with(int16(-2), row), want: "header malformed ignored"},
		{name: "negative length", data: with(int16(2), int32(-2), row), want: "header malformed ignored"},
		{name: "ends in a field", data: with(row, int16(2), int32(5), "abc"), want: `header ("x", NULL) malformed`},
		{name: "ends in a length", data: with(row, int16(2), "\x00"), want: `header ("x", NULL) malformed`},
	}
	for i := range cases {
		cases[i].columns, cases[i].options = 2, options
	}
	runSplitCases(t, cases)
}

// TestAnotherSignature: how much of the data is malformed depends on how much of it has come, not that it is.
func TestAnotherSignature(t *testing.T) {
	const data = "PGCOPX\n\xff\r\n\x00 and more"
	f := newFormat(t, 2, option("format", "binary"))
	for _, sizes := range [][]int{nil, {3, 4, 5}, bytewise(data)} {
		pieces, err := split(t, f, Config{}, data, sizes...)
		if err != nil || pieces[0].Kind != Malformed || len(strings.Fields(merged(pieces))) > 2 || joined(pieces) != data {
			t.Errorf("%s, %v", merged(pieces), err)
		}
	}
}

// TestKeysInAnyOrder: values come in the order of the keys, not of the columns, and a column may be asked for twice.
func TestKeysInAnyOrder(t *testing.T) {
	for name, c := range map[string]struct {
		options []Option
		data    string
	}{
		"plain":   {nil, "1\t2\t3\n"},
		"escaped": {nil, "1\t\\x32\t3\n"},
		"quoted":  {[]Option{option("format", "csv")}, "1,\"2\",3\n"},
		"binary":  {[]Option{option("format", "binary")}, binaryData(signature, int32(0), int32(0), int16(3), int32(1), "1", int32(1), "2", int32(1), "3")},
	} {
		f := newFormat(t, 3, c.options...)
		pieces, err := split(t, f, Config{Keys: []int{2, 0, 2}}, c.data, 3, 3)
		if err != nil || shownValues(pieces[len(pieces)-1].Values) != `("3", "1", "3")` {
			t.Errorf("%s: %s, %v", name, shown(pieces), err)
		}
		if _, err := NewSplitter(f, Config{Keys: []int{3}}); err == nil {
			t.Errorf("%s: a key outside the columns was taken", name)
		}
	}
}

func TestRowsThatAreTooLong(t *testing.T) {
	long := strings.Repeat("x", 100)
	for name, c := range map[string]struct {
		kind, data string
	}{
		"text":             {"text", "1\n" + long + "\n"},
		"text, no newline": {"text", "1\n" + long},
		"csv":              {"csv", "1\n\"" + long},
		"binary":           {"binary", binaryData(signature, int32(0), int32(0), int16(1), int32(1), "1", int16(1), int32(100))},
		"binary extension": {"binary", binaryData(signature, int32(0), int32(100))},
	} {
		f := newFormat(t, 1, option("format", c.kind))
		for _, sizes := range [][]int{nil, bytewise(c.data)} {
			_, err := split(t, f, Config{MaxRow: 99}, c.data, sizes...)
			var known *pgerr.Error
			if !errors.As(err, &known) || known.Code != pgerr.ProgramLimitExceeded {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := split(t, f, Config{MaxRow: 10_000}, c.data); err != nil {
			t.Errorf("%s with room: %v", name, err)
		}
	}
}

// TestALongRowIsForgotten: its buffer does not stay for as long as the COPY lasts.
func TestALongRowIsForgotten(t *testing.T) {
	s, err := NewSplitter(newFormat(t, 1), Config{})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 2*smallBuffer)
	if pieces, err := feed(s, long+"\nshort\nrest", []int{smallBuffer, smallBuffer + 10, 1}); err != nil || len(pieces) != 3 {
		t.Fatalf("%d pieces, %v", len(pieces), err)
	}
	if cap(s.own) > smallBuffer {
		t.Errorf("%d bytes are kept", cap(s.own))
	}
}

// TestErrorsStay: nothing comes after an error.
func TestErrorsStay(t *testing.T) {
	s, err := NewSplitter(newFormat(t, 1), Config{})
	if err != nil {
		t.Fatal(err)
	}
	s.Feed([]byte("1\n2\r\n3\n"))
	if _, err := drain(s, nil); err == nil {
		t.Fatal("no error")
	}
	s.Feed([]byte("4\n"))
	if pieces, err := drain(s, nil); err == nil || len(pieces) > 0 {
		t.Errorf("then %s, %v", shown(pieces), err)
	}
}

// TestForeignEscapes: a byte that an escape stands for is in the shard's encoding, which matters for keys alone.
func TestForeignEscapes(t *testing.T) {
	const data = "\\351\t\\x41\n"
	for encoding, want := range map[string]string{
		"latin1": `the escape "\\351" in a shard key is not supported with data in encoding "LATIN1"`, "UTF8": "", "SQL_ASCII": "",
	} {
		f, err := NewFormat([]Option{option("encoding", encoding)}, columnNames[:2], "UTF8")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := split(t, f, Config{Keys: []int{0}}, data); message(err) != want {
			t.Errorf("%s: %v", encoding, err)
		}
		if _, err := split(t, f, Config{Keys: []int{1}}, data); err != nil {
			t.Errorf("%s, the other column: %v", encoding, err)
		}
	}
}

// TestLinesAreCounted as PostgreSQL counts them.
func TestLinesAreCounted(t *testing.T) {
	f := newFormat(t, 1, option("format", "csv"))
	pieces, err := split(t, f, Config{}, "\"1\n1\"\n2\n\"3\n3\n3\r\"\n4\n")
	if err != nil {
		t.Fatal(err)
	}
	var lines []int
	for _, p := range pieces {
		lines = append(lines, p.Line)
	}
	if want := []int{1, 2, 5, 6}; !slices.Equal(lines, want) {
		t.Errorf("lines %v, want %v", lines, want)
	}
}
