package session

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestErrorsSayWhatTheyAreAbout: programs read the names of columns and constraints from an error's fields, whoever has made it.
func TestErrorsSayWhatTheyAreAbout(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{
		setUp: []string{
			`CREATE SCHEMA "Od""d"`, `CREATE TABLE "Od""d"."It's" ("a ""key""" bigint NOT NULL, n int, CONSTRAINT once UNIQUE ("a ""key""", n) DEFERRABLE)`,
		},
		tables: []topology.TableSpec{{Name: `"Od""d"."It's"`, Kind: topology.Sharded, Keyspace: "main", Key: []string{`a "key"`}}},
	})
	odd := `"Od""d"."It's"`
	a, b := text(w.key(t, 1, 0)), text(w.key(t, 2, 0))
	for _, sql := range [][]string{
		{"INSERT INTO orders (note) VALUES ('x')"}, {"INSERT INTO orders DEFAULT VALUES"}, {"INSERT INTO orders VALUES (NULL, 'x')"}, {"INSERT INTO orders VALUES (1, 'x'), (NULL, 'y')"},
		{"INSERT INTO orders (note) SELECT 'x'"}, {"INSERT INTO orders VALUES (DEFAULT, 'x')"}, {"INSERT INTO " + odd + " (n) VALUES (1)"}, {"INSERT INTO " + odd + " VALUES (NULL, 1)"},
		{"INSERT INTO orders VALUES (" + a + ", 'x'), (" + b + ", 'x')", "INSERT INTO orders VALUES (" + b + ", 'y')"},
		{"BEGIN", "SET CONSTRAINTS ALL DEFERRED", "INSERT INTO " + odd + " VALUES (" + a + ", 1)", "INSERT INTO " + odd + " VALUES (" + b + ", 1)", "INSERT INTO " + odd + " VALUES (" + b + ", 1)", "COMMIT"},
	} {
		want, got := fieldsOfLast(t, connectTo(t, w.plain.Addr()), sql), fieldsOfLast(t, w.client(t), sql)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: PostgreSQL (-) and the router (+) differ:\n%s", sql[len(sql)-1], diff)
		}
	}
	w.settled(t)
}

// fieldsOfLast runs statements and returns what the error of the last is about, by both protocols.
func fieldsOfLast(t testing.TB, conn *pgx.Conn, sql []string) (fields [][]string) {
	t.Helper()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeDescribeExec} {
		var err error
		for _, statement := range sql {
			_, err = conn.Exec(t.Context(), statement, mode)
		}
		var failure *pgconn.PgError
		if !errors.As(err, &failure) {
			t.Fatalf("%s: %v", sql[len(sql)-1], err)
		}
		fields = append(fields, []string{failure.Code, failure.Message, failure.SchemaName, failure.TableName, failure.ColumnName, failure.DataTypeName, failure.ConstraintName})
		execute(t, conn, "ROLLBACK")
	}
	return fields
}
