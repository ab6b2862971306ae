package session

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestADumpOfNumbersRestores: sequences of sharded tables go on after the greatest number of all shards.
func TestADumpOfNumbersRestores(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	for _, program := range []string{"pg_dump", "psql"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("there is no " + program)
		}
	}
	w := newWorld(t, numbersConfig(3))
	client := w.client(t)
	greatest := int64(0)
	for number := 1; number <= 3; number++ {
		greatest = max(greatest, insertParcel(t, client, w.key(t, number, 0)))
	}
	execute(t, client, "INSERT INTO logs (note) VALUES ('x'), ('y')")
	dump := w.dump(t)
	for _, sign := range []string{"cleave", "-9223", "MINVALUE -", "14073748835532"} {
		if strings.Contains(dump, sign) {
			t.Errorf("the dump has %q in it:\n%s", sign, dump)
		}
	}
	restored := restore(t, dump)
	if got := one[int64](t, restored, "INSERT INTO parcels (user_id) VALUES (1) RETURNING id"); got != greatest+1 {
		t.Errorf("the next id is %d, want %d", got, greatest+1)
	}
	if got := one[int64](t, restored, "INSERT INTO people (name) VALUES ('x') RETURNING id"); got != 1 {
		t.Errorf("the first key is %d", got)
	}
	if got := one[int64](t, restored, "INSERT INTO logs (note) VALUES ('z') RETURNING id"); got != 3 {
		t.Errorf("the next number of a table on one shard is %d", got)
	}
	w.settled(t)
}

// dump is what pg_dump gives of the router.
func (w *world) dump(t *testing.T) string {
	t.Helper()
	host, port, err := net.SplitHostPort(w.address)
	if err != nil {
		t.Fatal(err)
	}
	dump, err := exec.CommandContext(t.Context(), "pg_dump", "-h", host, "-p", port, "-U", "postgres", "--no-comments", "postgres").CombinedOutput()
	if err != nil {
		t.Fatalf("pg_dump: %v\n%s", err, dump)
	}
	return string(dump)
}

// restore makes a database of a dump, on a plain server, and logs in to it.
func restore(t *testing.T, dump string) *pgx.Conn {
	t.Helper()
	server := pgtest.StartWhole(t)
	execute(t, connectTo(t, server.Addr()), "CREATE DATABASE restored")
	host, port, err := net.SplitHostPort(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	restore := exec.CommandContext(t.Context(), "psql", "-h", host, "-p", port, "-U", "postgres", "-v", "ON_ERROR_STOP=1", "-q", "restored")
	restore.Stdin = strings.NewReader(dump)
	if said, err := restore.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v\n%s", err, said)
	}
	conn := must[*pgx.Conn](t)(pgx.Connect(t.Context(), "postgres://postgres@"+server.Addr()+"/restored?sslmode=disable"))
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// TestADumpRestores: pg_dump through the router gives every row once and nothing of the router's own, so that it can be restored anywhere.
func TestADumpRestores(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"pg_dump", "psql"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("there is no " + program)
		}
	}
	w := newWorld(t, worldConfig{shards: 3})
	client := w.client(t)
	for _, sql := range []string{
		"CREATE TYPE mood AS ENUM ('fine', 'sad')", "ALTER TABLE orders ADD COLUMN how mood DEFAULT 'sad'", "CREATE INDEX by_note ON orders (note)",
		"INSERT INTO orders SELECT * FROM (VALUES (1::bigint, 'one', 'fine'::mood)) AS v", "INSERT INTO orders VALUES (2, 'two'), (3, 'three'), (4, NULL), (5, E'a\\tb')",
		"INSERT INTO countries VALUES ('de', 'Germany')", "INSERT INTO undeclared VALUES (1, 'x')",
		`CREATE MATERIALIZED VIEW counted ("how ;", n) AS SELECT 'sad'::mood, 0 FROM orders WHERE id = 1 AND false UNION ALL SELECT how, count(*) FROM orders GROUP BY how -- all`, //nolint:misspell // it is SQL
		"CREATE VIEW noted AS SELECT a FROM undeclared WHERE false UNION ALL SELECT a FROM undeclared",
	} {
		execute(t, client, sql)
	}
	dump := w.dump(t)
	if strings.Contains(dump, "cleave") {
		t.Errorf("the dump has something of the router's in it:\n%s", dump)
	}
	said := one[string](t, restore(t, dump), "SELECT string_agg(o::text, ' ' ORDER BY id) || (SELECT count(*) FROM countries) || (SELECT count(*) FROM undeclared) || (SELECT string_agg(c::text, '' ORDER BY n) FROM counted c) || (SELECT count(*) FROM noted) FROM orders o")
	if want := "(1,one,fine) (2,two,sad) (3,three,sad) (4,,sad) (5,\"a\tb\",sad)11(fine,1)(sad,4)1"; said != want {
		t.Errorf("restored: %s, want %s", said, want)
	}
	w.settled(t)
}
