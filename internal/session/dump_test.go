package session

import (
	"net"
	"os/exec"
	"strings"
	"testing"
)

// TestADumpRestores: pg_dump through the router gives every row once and nothing of the router's own, so that it can be restored anywhere.
func TestADumpRestores(t *testing.T) {
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
	} {
		execute(t, client, sql)
	}
	host, port, err := net.SplitHostPort(w.address)
	if err != nil {
		t.Fatal(err)
	}
	dump, err := exec.CommandContext(t.Context(), "pg_dump", "-h", host, "-p", port, "-U", "postgres", "--no-comments", "postgres").CombinedOutput()
	if err != nil {
		t.Fatalf("pg_dump: %v\n%s", err, dump)
	}
	if strings.Contains(string(dump), "cleave") {
		t.Errorf("the dump has something of the router's in it:\n%s", dump)
	}
	plain := connectTo(t, w.plain.Addr())
	execute(t, plain, "CREATE DATABASE restored")
	host, port, _ = net.SplitHostPort(w.plain.Addr())
	restore := exec.CommandContext(t.Context(), "psql", "-h", host, "-p", port, "-U", "postgres", "-v", "ON_ERROR_STOP=1", "-q", "restored")
	restore.Stdin = strings.NewReader(string(dump))
	if said, err := restore.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v\n%s", err, said)
	}
	read := exec.CommandContext(t.Context(), "psql", "-h", host, "-p", port, "-U", "postgres", "-At", "-c",
		"SELECT string_agg(o::text, ' ' ORDER BY id) || (SELECT count(*) FROM countries) || (SELECT count(*) FROM undeclared) FROM orders o", "restored")
	said, err := read.CombinedOutput()
	if want := "(1,one,fine) (2,two,sad) (3,three,sad) (4,,sad) (5,\"a\tb\",sad)11"; err != nil || strings.TrimSpace(string(said)) != want {
		t.Errorf("restored: %s, %v, want %s", said, err, want)
	}
	w.settled(t)
}
