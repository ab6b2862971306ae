package copydata

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// TestDefaults are PostgreSQL's, and others for each kind.
func TestDefaults(t *testing.T) {
	for _, c := range []struct {
		options []Option
		want    Format
	}{
		{nil, Format{delimiter: '\t', null: `\N`}},
		{[]Option{option("format", "text"), option("null", "")}, Format{delimiter: '\t'}},
		{[]Option{option("format", "csv")}, Format{kind: CSV, delimiter: ',', quote: '"', escape: '"'}},
		{[]Option{option("quote", "'"), option("format", "csv")}, Format{kind: CSV, delimiter: ',', quote: '\'', escape: '\''}},
		{[]Option{option("format", "csv"), option("escape", `\`), {Name: "header", Bare: true}, {Name: "freeze", Bare: true}}, Format{kind: CSV, header: HeaderSkipped, delimiter: ',', quote: '"', escape: '\\'}},
		{[]Option{option("format", "csv"), option("header", "MATCH"), option("delimiter", ";"), option("on_error", "STOP")}, Format{kind: CSV, header: HeaderMatched, delimiter: ';', quote: '"', escape: '"'}},
		{[]Option{option("format", "csv"), option("header", "off"), option("log_verbosity", "verbose")}, Format{kind: CSV, delimiter: ',', quote: '"', escape: '"'}},
		{[]Option{{Name: "delimiter", Star: true}, {Name: "null", List: []string{"a", "b"}}}, Format{delimiter: '*', null: "a.b"}},
	} {
		got, err := NewFormat(c.options, columnNames, "UTF8")
		c.want.columns, c.want.encoding = len(columnNames), "UTF8"
		if err != nil || fmt.Sprintf("%+v", *got) != fmt.Sprintf("%+v", c.want) {
			t.Errorf("%v: got %+v, %v; want %+v", c.options, got, err, c.want)
		}
	}
}

func TestEncodings(t *testing.T) {
	for _, c := range []struct {
		client  string
		options []Option
		want    string // the encoding, nothing if refused
	}{
		{"UTF8", nil, "UTF8"}, {"utf-8", nil, "UTF8"}, {"SQL_ASCII", nil, "SQL_ASCII"}, {"LATIN1", nil, "LATIN1"},
		{"LATIN1", []Option{option("encoding", "Unicode")}, "UTF8"},
		{"UTF8", []Option{option("encoding", "iso_8859-15")}, "LATIN9"},
		{"SJIS", nil, ""}, {"BIG5", nil, ""}, {"GBK", nil, ""}, {"UHC", nil, ""}, {"GB18030", nil, ""}, {"JOHAB", nil, ""}, {"SHIFT_JIS_2004", nil, ""},
		{"UTF8", []Option{option("encoding", "windows-932")}, ""},
		{"SJIS", []Option{option("encoding", "UTF8")}, "UTF8"},
		{"UTF8", []Option{option("null", "é")}, "UTF8"},
		{"LATIN1", []Option{option("null", "\xe9")}, ""},
		{"LATIN1", []Option{option("null", "\xe9"), option("encoding", "UTF8")}, ""},
		{"UTF8", []Option{option("null", "é"), option("encoding", "LATIN1")}, ""},
		{"nonsense", nil, ""},
	} {
		f, err := NewFormat(c.options, columnNames, c.client)
		var refused *pgerr.Error
		switch {
		case c.want != "" && (err != nil || f.Encoding() != c.want):
			t.Errorf("%s, %v: %v", c.client, c.options, err)
		case c.want == "" && (!errors.As(err, &refused) || refused.Code != pgerr.FeatureNotSupported || refused.Detail == "" || refused.Hint == ""):
			t.Errorf("%s, %v: %v", c.client, c.options, err)
		}
	}
}

// TestOptionsThatAreRefused here, though some server might take them.
func TestOptionsThatAreRefused(t *testing.T) {
	csv := option("format", "csv")
	for _, options := range [][]Option{
		{option("on_error", "ignore")}, {csv, option("quote", "\n")}, {csv, option("escape", "\r")}, {option("of_another_version", "1")},
	} {
		_, err := NewFormat(options, columnNames, "UTF8")
		var refused *pgerr.Error
		if !errors.As(err, &refused) {
			t.Errorf("%v: %v", options, err)
		}
	}
	if _, err := NewFormat(nil, nil, "UTF8"); err == nil {
		t.Error("no columns: no error")
	}
}

// TestOptionsLeftToTheServer are refused by it: each breaks one rule.
func TestOptionsLeftToTheServer(t *testing.T) {
	s := startServer(t)
	csv, binary := option("format", "csv"), option("format", "binary")
	for _, options := range [][]Option{
		{option("format", "xml")}, {{Name: "format", Bare: true}}, {option("header", "perhaps")}, {csv, csv}, {{Name: "force_quote", Star: true}, csv},
		{binary, option("delimiter", "|")}, {binary, option("null", "")}, {binary, option("header", "true")},
		{option("quote", "'")}, {option("escape", "'")}, {{Name: "force_null", List: []string{"a"}}}, {{Name: "force_not_null", List: []string{"a"}}},
		{option("delimiter", "||")}, {option("delimiter", "")}, {option("delimiter", "é")}, {option("delimiter", "\n")}, {option("delimiter", "a")}, {option("delimiter", `\`)},
		{csv, option("quote", "''")}, {csv, option("escape", "ab")}, {csv, option("delimiter", `"`)}, {csv, option("quote", ",")},
		{option("null", "a\n")}, {option("null", "a\tb")}, {csv, option("null", "a,b")}, {csv, option("null", `"`)}, {csv, option("delimiter", ";"), option("null", ";")},
		{csv, {Name: "force_null", List: []string{"c"}}}, {csv, {Name: "force_not_null", Bare: true}},
	} {
		c := &copyCase{options: options, columns: 2}
		if _, err := NewFormat(options, columnNames[:c.columns], "UTF8"); !errors.Is(err, ErrRefusedByServer) {
			t.Errorf("%s: %v", c.sql(0), err)
		}
		if _, err := s.copyInto(t, c, 0, ""); err == nil {
			t.Errorf("%s: the server has no objection", c.sql(0))
		}
	}
	for _, options := range [][]Option{ // of versions that may not be here
		{binary, option("default", "D")}, {option("default", "a\n")}, {option("default", "a\tb")}, {csv, option("default", `"`)}, {option("default", `\N`)}, {option("reject_limit", "3")},
	} {
		if _, err := NewFormat(options, columnNames, "UTF8"); !errors.Is(err, ErrRefusedByServer) {
			t.Errorf("%v: %v", options, err)
		}
	}
}

// TestServersTakeTheSameOptions: what is left to the server it refuses, and what is taken it takes, unless it is too old for it.
func TestServersTakeTheSameOptions(t *testing.T) {
	s := startServer(t)
	taken := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		for range 8 {
			c := &copyCase{options: rapid.SliceOfN(rapid.Custom(drawOption), 0, 3).Draw(t, "options"), columns: 2}
			_, err := NewFormat(c.options, columnNames[:c.columns], "UTF8")
			var refused *pgerr.Error
			if errors.As(err, &refused) || c.isTooNew(s.version) {
				continue
			}
			data := ""
			if slices.ContainsFunc(c.options, func(o Option) bool { return o.Value == "binary" }) {
				data = binaryData(signature, int32(0), int32(0))
			}
			_, serverError := s.copyInto(t, c, 0, data)
			if serverError != nil && strings.Contains(serverError.Error(), "header line") {
				serverError = nil // that is about the data
			}
			if errors.Is(err, ErrRefusedByServer) != (serverError != nil) {
				t.Fatalf("%s: %v, and the server: %v", c.sql(0), err, serverError)
			}
			taken[err == nil]++
		}
	})
	t.Log(taken)
	if taken[true] == 0 || taken[false] == 0 {
		t.Errorf("options taken and refused: %v", taken)
	}
}

// isTooNew says whether the server does not know an option yet.
func (c *copyCase) isTooNew(version int) bool {
	return slices.ContainsFunc(c.options, func(o Option) bool {
		return o.Name == "default" && version < 160000 || strings.HasPrefix(o.Name, "force_") && o.Star && version < 170000
	})
}

func drawOption(t *rapid.T) Option {
	characters := []string{",", "|", "\t", "x", "X", "1", ".", `\`, `"`, "'", "\n", "\r", "", "ab", "é", "NULL", "a,b", `\N`, `"x`, "a\n"}
	name := rapid.SampledFrom([]string{"format", "format", "format", "header", "delimiter", "quote", "escape", "null", "default", "force_null", "force_not_null", "force_quote", "freeze"}).Draw(t, "name")
	switch name {
	case "format":
		return option(name, rapid.SampledFrom([]string{"text", "csv", "csv", "csv", "binary", "CSV", "json"}).Draw(t, "format"))
	case "header":
		return option(name, rapid.SampledFrom([]string{"true", "ON", "0", "1", "2", "match", "maybe"}).Draw(t, "header"))
	case "freeze":
		return option(name, "false")
	case "force_null", "force_not_null", "force_quote":
		return rapid.SampledFrom([]Option{{Name: name, Star: true}, {Name: name, List: []string{"a"}}, {Name: name, List: []string{"b", "a"}}, {Name: name, List: []string{"c"}}, {Name: name, Bare: true}}).Draw(t, "columns")
	default:
		return rapid.SampledFrom([]Option{{Name: name, Bare: true}, {Name: name, Star: true}, option(name, rapid.SampledFrom(characters).Draw(t, "value")), option(name, rapid.SampledFrom(characters).Draw(t, "other"))}).Draw(t, name)
	}
}
