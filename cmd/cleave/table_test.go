package main

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"
)

// runSQL is the script command 'sql ADDRESS TEXT': it runs statements on a server of the script.
func runSQL(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sql address text")
	}
	conn, err := pgx.Connect(context.Background(), fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", args[0]))
	ts.Check(err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(context.Background(), args[1])
	ts.Check(err)
}

func TestParseColumns(t *testing.T) {
	for text, want := range map[string][]string{
		"id": {"id"}, "Tenant_ID, day": {"tenant_id", "day"}, `"Odd",b`: {"Odd", "b"}, `"a.b"`: {"a.b"},
		"": nil, "a,": nil, "a.b": nil, `"open`: nil, "two words": nil,
	} {
		got, err := parseColumns(text)
		if (err != nil) != (want == nil) || !slices.Equal(got, want) {
			t.Errorf("%q was read as %q, %v; want %q", text, got, err, want)
		}
	}
}
