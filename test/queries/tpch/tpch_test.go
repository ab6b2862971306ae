package tpch

import (
	"bytes"
	"strings"
	"testing"
)

func TestRowsAreTheSameForASeed(t *testing.T) {
	first, second, other := Generate(0.001, 1), Generate(0.001, 1), Generate(0.001, 2)
	for _, table := range Tables {
		if len(first[table]) == 0 || !bytes.Equal(first[table], second[table]) {
			t.Errorf("%s: %d and %d bytes", table, len(first[table]), len(second[table]))
		}
	}
	if bytes.Equal(first["lineitem"], other["lineitem"]) {
		t.Error("another seed makes the same rows")
	}
	if lines, orders := bytes.Count(first["lineitem"], []byte("\n")), bytes.Count(first["orders"], []byte("\n")); orders != 1500 || lines < 3*orders || lines > 5*orders {
		t.Errorf("%d orders have %d lines", orders, lines)
	}
}

func TestEveryParameterHasItsPlace(t *testing.T) {
	queries := Queries()
	if len(queries) != 22 {
		t.Errorf("%d queries", len(queries))
	}
	for _, q := range queries {
		prepared, values := q.Prepared()
		if strings.ContainsAny(q.Literal()+prepared, "{}") || strings.Contains(q.Literal(), "$") || !strings.HasPrefix(q.Literal(), "select") && !strings.HasPrefix(q.Literal(), "with") {
			t.Errorf("Q%d: %s\n%s", q.Number, q.Literal(), prepared)
		}
		for i, value := range values {
			if !strings.Contains(q.Literal(), value) || !strings.Contains(prepared, "$"+string(rune('1'+i))) {
				t.Errorf("Q%d: parameter %d has no place", q.Number, i+1)
			}
		}
	}
}
