package session

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/topology"
)

// sagaTable is what of the tables of sagas the view reads.
const sagaTable = `CREATE TABLE sagas.sagas (key bigint, id uuid DEFAULT gen_random_uuid(), type text DEFAULT 'order', idempotency_key text DEFAULT 'k', state text, step text, attempts int DEFAULT 0,
	created_at timestamptz DEFAULT now() - interval '90 minutes', due_at timestamptz, holder text, last_error text, failed_step text, failure text, note text)`

var sagaSpec = topology.TableSpec{Name: "sagas.sagas", Kind: topology.Sharded, Keyspace: "main", Key: []string{"key"}}

func rowsOf(t *testing.T, conn *pgx.Conn, sql string) (rows [][]any) {
	t.Helper()
	found, err := conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	rows, err = pgx.CollectRows(found, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return rows
}

// TestSagasOfAllShards: each is shown once, by the shard that owns its key; those that have ended are not.
func TestSagasOfAllShards(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, setUp: []string{"CREATE SCHEMA sagas", sagaTable}, tables: []topology.TableSpec{sagaSpec}})
	client := w.client(t)
	if rows := rowsOf(t, client, "SELECT * FROM cleave.sagas"); len(rows) != 0 {
		t.Errorf("there are sagas: %v", rows)
	}
	here, there := w.key(t, 1, 0), w.key(t, 2, 0)
	execute(t, client, `INSERT INTO sagas.sagas (key, state, step, attempts, last_error, due_at, holder) VALUES ($1, 'stuck', 'charge', 3, 'it''s "closed"', NULL, NULL), ($2, 'running', NULL, 0, NULL, now(), 'r'), ($2, 'completed', NULL, 0, NULL, NULL, NULL)`, here, there)
	// A row that a shard has and does not own, as while data are moved, is not shown by it.
	stray := w.onShard(t, 2)
	execute(t, stray, "SET session_replication_role = replica")
	execute(t, stray, "INSERT INTO sagas.sagas (key, state) VALUES ($1, 'stuck')", here)
	want := [][]any{
		{"s1", strconv.FormatInt(here, 10), "stuck", "charge", int32(3), `it's "closed"`, true, true, nil},
		{"s2", strconv.FormatInt(there, 10), "running", nil, int32(0), nil, true, false, "r"},
	}
	const shown = `SELECT shard, key, state, step, attempts, last_error, age BETWEEN interval '89 minutes' AND interval '2 hours', due_at IS NULL, holder FROM cleave.sagas`
	for _, style := range []string{"postgres", "sql_standard", "iso_8601"} {
		execute(t, client, "SET IntervalStyle = "+style)
		if rows := rowsOf(t, client, shown+" ORDER BY shard"); fmt.Sprint(rows) != fmt.Sprint(want) {
			t.Errorf("the sagas are\n%v, not\n%v", rows, want)
		}
	}
	if rows := rowsOf(t, client, shown+" WHERE state = 'stuck'"); fmt.Sprint(rows) != fmt.Sprint(want[:1]) {
		t.Errorf("stuck are %v", rows)
	}
	execute(t, client, "BEGIN")
	if rows := rowsOf(t, client, shown); len(rows) != 2 {
		t.Errorf("in a transaction: %v", rows)
	}
	execute(t, client, "COMMIT")
	w.sagasAreRefused(t, client)
}

// sagasAreRefused to who may not read the tables, and where there are too many.
func (w *world) sagasAreRefused(t *testing.T, client *pgx.Conn) {
	t.Helper()
	execute(t, client, "CREATE ROLE nosy")
	execute(t, client, "SET ROLE nosy")
	if code, _ := refusalOf(t, client, "SELECT * FROM cleave.sagas"); code != "42501" {
		t.Errorf("without rights: %s", code)
	}
	execute(t, client, "RESET ROLE")
	execute(t, client, fmt.Sprintf("INSERT INTO sagas.sagas (key, state) SELECT %d, 'running' FROM generate_series(1, %d)", w.key(t, 1, 0), sagasShown))
	if code, _ := refusalOf(t, client, "SELECT * FROM cleave.sagas LIMIT 1"); code != "54000" {
		t.Errorf("with too many: %s", code)
	}
	w.settled(t)
}

// TestSagasThatAreNot: without the tables, or with others of that name, the view is empty; one table on the home shard is read.
func TestSagasThatAreNot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	client := w.client(t)
	count := func(want int) {
		t.Helper()
		if rows := rowsOf(t, client, "SELECT * FROM cleave.sagas"); len(rows) != want {
			t.Errorf("there are %d sagas, not %d: %v", len(rows), want, rows)
		}
	}
	count(0)
	home := w.onShard(t, 1)
	execute(t, home, "CREATE SCHEMA sagas")
	count(0)
	execute(t, home, sagaTable)
	execute(t, home, "INSERT INTO sagas.sagas (key, state) VALUES (1, 'stuck')")
	count(1)
	execute(t, home, "CREATE FUNCTION public.evil() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'it was run'; END $$")
	for _, trap := range [][]string{
		{"ALTER TABLE sagas.sagas RENAME TO kept", "CREATE VIEW sagas.sagas AS SELECT evil() AS trap, * FROM sagas.kept"},
		{"DROP VIEW sagas.sagas", "CREATE TYPE trap AS (a bigint)", "CREATE FUNCTION to_text(trap) RETURNS json LANGUAGE plpgsql AS $$ BEGIN RAISE 'it was run'; END $$", "CREATE CAST (trap AS json) WITH FUNCTION to_text(trap)",
			strings.Replace(sagaTable, "key bigint", "key trap", 1), "INSERT INTO sagas.sagas (key, state) VALUES (ROW(1), 'stuck')"},
		{"DROP TABLE sagas.sagas", "CREATE TABLE sagas.sagas (key bigint)"},
	} {
		for _, sql := range trap {
			execute(t, home, sql)
		}
		count(0)
	}
}

// TestThePageNamesTheColumnsOfSagas: column names are a part of the interface.
func TestThePageNamesTheColumnsOfSagas(t *testing.T) {
	page, err := os.ReadFile("../../docs/sql-interface.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, columns := range map[string][]ViewColumn{activityView: activityColumns, sagasView: sagasColumns} {
		quoted := slices.Collect(func(yield func(string) bool) {
			for _, c := range columns {
				if !yield("`" + c.Name + "`") {
					return
				}
			}
		})
		if line := fmt.Sprintf("| `cleave.%s` | %s", name, strings.Join(quoted, ", ")); !strings.Contains(string(page), line) {
			t.Errorf("docs/sql-interface.md lacks a line that begins with\n%s", line)
		}
	}
}
