package sqltext

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

// TestServer asks a server where the scanner of libpg_query cannot be asked: what strings mean, with either setting of
// standard_conforming_strings, and the forms that libpg_query reads otherwise.
func TestServer(t *testing.T) {
	conn, err := pgconn.Connect(t.Context(), pgtest.Start(t).DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	settings := map[bool]string{true: "on", false: "off"}
	for conforming, setting := range settings {
		if _, err := conn.Exec(t.Context(), "SET escape_string_warning = off; SET standard_conforming_strings = "+setting).ReadAll(); err != nil {
			t.Fatal(err)
		}
		for _, literal := range []string{"'a' -- c\n'b'", "'a'\n-- c\n -- d\n'b''c'", `'a\b'`, `'a\\'`, "$1a", "$2147483648", "'a'\r'b'", "'a'\f\n'b'"} {
			askAboutString(t, conn, literal, conforming)
		}
		rapid.Check(t, func(r *rapid.T) {
			parts := rapid.SliceOfN(rapid.SampledFrom([]string{"'", "'", "'", `\`, "a", "\n", " ", "--", "$", "$x$", "E", "e'", "\r", "é"}), 1, 12).Draw(r, "parts")
			askAboutString(r, conn, strings.Join(parts, ""), conforming)
		})
	}
}

type fataler interface {
	Helper()
	Fatalf(format string, arguments ...any)
}

// askAboutString compares the value of one literal. What the server takes must be sound.
func askAboutString(t fataler, conn *pgconn.PgConn, literal string, conforming bool) {
	t.Helper()
	text := "SELECT (" + literal + "\n)::text"
	result, serverErr := conn.Exec(context.Background(), text).ReadAll()
	var n Normalized
	if err := n.Scan([]byte(text), conforming); err != nil {
		if serverErr == nil {
			t.Fatalf("the server takes %q: %v", text, err)
		}
		return
	}
	if serverErr != nil || len(result) != 1 || len(n.Literals) != 1 || n.Params != 0 {
		return
	}
	value, ok := n.Value([]byte(text), 0)
	if got := string(result[0].Rows[0][0]); ok && string(value) != got {
		t.Fatalf("%q is %q, for the server %q (standard_conforming_strings %v)", text, value, got, conforming)
	}
}
