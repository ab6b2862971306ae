package api

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRulesAreReadAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string]RebalanceRule{
		"events=region:eu":                                    {Keyspace: "events", Label: "region", Value: "eu"},
		"events=region:a=b:c":                                 {Keyspace: "events", Label: "region", Value: "a=b:c"},
		"events@2026-01-01:2026-07-01=region:eu":              {Keyspace: "events", From: []string{"2026-01-01"}, To: []string{"2026-07-01"}, Label: "region", Value: "eu"},
		"main@:4000000000000000=region:eu":                    {Keyspace: "main", To: []string{"4000000000000000"}, Label: "region", Value: "eu"},
		"main@4000000000000000:=region:":                      {Keyspace: "main", From: []string{"4000000000000000"}, Label: "region"},
		`parts@["eu","a:b"]:us=region:eu`:                     {Keyspace: "parts", From: []string{"eu", "a:b"}, To: []string{"us"}, Label: "region", Value: "eu"},
		"main#4711=region:eu":                                 {Keyspace: "main", Key: []string{"4711"}, Label: "region", Value: "eu"},
		`main#["a=b","#@"]=region:eu`:                         {Keyspace: "main", Key: []string{"a=b", "#@"}, Label: "region", Value: "eu"},
		`{"keyspace":"main","label":"region","value":"eu"}`:   {Keyspace: "main", Label: "region", Value: "eu"},
		`{"keyspace":"m","key":["1"],"label":"r","value":""}`: {Keyspace: "m", Key: []string{"1"}, Label: "r"},
	} {
		got, err := ParseRule(text)
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", text, diff)
		}
		if written := want.String(); written != text && !strings.HasPrefix(text, "{") {
			t.Errorf("%s is written as %s", text, written)
		}
	}
	for _, odd := range []RebalanceRule{{Keyspace: "m", Key: []string{"x"}, Label: "r", Value: "a=b"}, {Keyspace: "m", Key: []string{"x"}, From: []string{"a"}, Label: "r"}, {Keyspace: "m", Key: []string{""}, Label: "r"}, {Keyspace: "m", Key: []string{"[1"}, Label: "r"}} {
		if got, err := ParseRule(odd.String()); err != nil || cmp.Diff(odd, got) != "" {
			t.Errorf("%s is read as %+v: %v", odd, got, err)
		}
	}
	for _, wrong := range []string{"", "events", "=region:eu", "events=region", "events=:eu", "events@2026=region:eu", "events@1:2", "main#=region:eu", "main#1", "main#[1=region:eu", `{"keyspace":"main","colour":"red"}`, "{", "a@[1:2=r:e"} {
		if got, err := ParseRule(wrong); err == nil {
			t.Errorf("%q is read as %+v", wrong, got)
		}
	}
}

func TestSeveralRules(t *testing.T) {
	for text, want := range map[string]int{"": 0, " ; ": 0, "a=r:eu; b@1:2=r:us ;": 2, `[{"keyspace":"a","label":"r","value":"eu"}]`: 1} {
		if got, err := ParseRules(text); err != nil || len(got) != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, wrong := range []string{"a=r:eu;b", `[{"keyspace":1}]`, "["} {
		if got, err := ParseRules(wrong); err == nil {
			t.Errorf("%q is read as %+v", wrong, got)
		}
	}
}
