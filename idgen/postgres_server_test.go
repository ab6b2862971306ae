package idgen

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

// postgresServer is a PostgreSQL server of a test's own, to be talked to as psql does.
type postgresServer struct {
	*localpg.Server
	client string // the path of psql
}

// startPostgres starts a server that ends with the test.
func startPostgres(t *testing.T) *postgresServer {
	t.Helper()
	server := pgtest.StartWhole(t)
	client, err := server.Installation().Tool("psql")
	if err != nil {
		t.Fatal(err)
	}
	return &postgresServer{server, client}
}

// crash kills the server.
func (s *postgresServer) crash(t *testing.T) {
	t.Helper()
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
}

// restart brings a server back that has crashed.
func (s *postgresServer) restart(t *testing.T) {
	t.Helper()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// psql runs SQL in one session, as a superuser, and returns its output: fields separated by |, no headers.
func (s *postgresServer) psql(database, sql string) (string, error) {
	// A test that would hang says where instead.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, s.client, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose",
		"-d", s.DSN(database), "-f", "-")
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "PGTZ=UTC"}
	command.Stdin = strings.NewReader(sql)
	var output, problems bytes.Buffer
	command.Stdout, command.Stderr = &output, &problems
	if err := command.Run(); err != nil {
		return "", errors.Join(err, errors.New(problems.String()))
	}
	return strings.TrimSpace(output.String()), nil
}

// database creates a database for one test and runs the given SQL in it.
func (s *postgresServer) database(t *testing.T, name string, sql ...string) *postgresDatabase {
	t.Helper()
	if _, err := s.psql("postgres", "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	db := &postgresDatabase{server: s, name: name}
	for _, text := range sql {
		db.run(t, text)
	}
	return db
}

// postgresDatabase is one database of a test server.
type postgresDatabase struct {
	server *postgresServer
	name   string
}

// run runs SQL that must succeed and returns its output.
func (d *postgresDatabase) run(t *testing.T, sql string) string {
	t.Helper()
	output, err := d.server.psql(d.name, sql)
	if err != nil {
		t.Fatalf("%v\n%s", err, sql[:min(len(sql), 400)])
	}
	return output
}

// fails runs SQL that must fail with an error that contains the text.
func (d *postgresDatabase) fails(t *testing.T, sql, want string) {
	t.Helper()
	output, err := d.server.psql(d.name, sql)
	if err == nil {
		t.Fatalf("%s: got %q, want an error with %q", sql, output, want)
	}
	if !strings.Contains(err.Error(), want) {
		t.Fatalf("%s: got error %v, want one with %q", sql, err, want)
	}
}

// number runs a query that returns one integer.
func (d *postgresDatabase) number(t *testing.T, sql string) int64 {
	t.Helper()
	output := d.run(t, sql)
	number, err := strconv.ParseInt(output, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return number
}

// numbers runs a query that returns one integer a line.
func (d *postgresDatabase) numbers(t *testing.T, sql string) []int64 {
	t.Helper()
	var numbers []int64
	for line := range strings.Lines(d.run(t, sql)) {
		number, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		numbers = append(numbers, number)
	}
	return numbers
}
