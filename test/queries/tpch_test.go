package queries_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/test/queries/tpch"
)

// testTPCH fills the tables and runs all queries.
func testTPCH(t *testing.T, s servers) {
	s.both(t, "CREATE SCHEMA tpch", "SET search_path = tpch; "+tpch.Create)
	for _, k := range tpch.Keyspaces {
		s.keyspace(t, k.Name, k.Key)
	}
	s.declare(t, tpch.Declare("tpch")...)
	data := tpch.Generate(tpch.Scale, seed)
	for _, table := range tpch.Tables {
		s.load(t, "tpch."+table, data[table])
	}
	s.both(t, "ANALYZE")
	for _, q := range tpch.Queries() {
		t.Run(fmt.Sprintf("Q%d", q.Number), func(t *testing.T) {
			plain, router := s.dialIn(t, "tpch") // one that takes too long takes its connection along
			for _, how := range protocols {
				t.Run(string(how), func(t *testing.T) { compareQuery(t, plain.PgConn(), router.PgConn(), q, how) })
			}
		})
	}
}

// compareQuery runs a query on both.
func compareQuery(t *testing.T, plain, router *pgconn.PgConn, q tpch.Query, how protocol) {
	sql, parameters := q.Literal(), []string(nil)
	if how != simple {
		sql, parameters = q.Prepared()
	}
	want, err := ask(t.Context(), plain, how, sql, parameters)
	if err != nil {
		t.Fatal("PostgreSQL: ", err)
	}
	if len(want.rows) == 0 || slices.ContainsFunc(want.rows[0], func(value []byte) bool { return value == nil }) {
		t.Fatalf("the query has nothing to find: %v", want.rows)
	}
	got, err := ask(t.Context(), router, how, sql, parameters)
	if err != nil {
		t.Fatal("the router: ", err)
	}
	if problem := difference(want, got, q.Ordered); problem != "" {
		t.Errorf("%s: %s", q.Name, problem)
	}
}
