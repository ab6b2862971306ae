// Package apps_test moves applications in that other people wrote: their schemas, by their own migrations, over the router; then their
// tables are declared, with the rows they have, and they are used by their own code. Everything is done on a plain PostgreSQL as well, and
// must come to the same.
//
// Applications come from the distribution's packages, which scripts/install-apps.sh installs. One that is missing is skipped, or is a
// failure if CLEAVE_REQUIRE_APPS is set. Each has a folder with its settings and a program that uses it, and a test.
//
// What single statements give is compared by the differential suite, what drivers and ORMs expect of a server by test/clients.
package apps_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/test/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// python is the distribution's, whose packages the applications are.
const python = "/usr/bin/python3"

// programTime is how long a program may take before it counts as stuck.
const programTime = 5 * time.Minute

// needsPython skips the test if modules are missing, or fails if it must not be skipped.
func needsPython(t *testing.T, modules ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	pgtest.Installations(t)
	output, err := exec.Command(python, "-c", "import "+strings.Join(modules, ", ")).CombinedOutput()
	switch {
	case err == nil:
	case os.Getenv("CLEAVE_REQUIRE_APPS") != "":
		t.Fatalf("%v: %s", err, output)
	default:
		t.Skipf("scripts/install-apps.sh installs what is missing: %v: %s", err, output)
	}
}

// target is a database that an application is run on.
type target struct{ host, port, user, database string }

func plainTarget(t *testing.T) target {
	t.Helper()
	server := pgtest.Start(t)
	return target{"127.0.0.1", strconv.Itoa(server.Port()), server.Superuser(), "postgres"}
}

// routerTarget is how 'cleave dev' lets people in.
func routerTarget(dev *cluster.Dev) target {
	host, port, _ := net.SplitHostPort(dev.Listen)
	return target{host, port, "cleave", "cleave"}
}

// environment is the target as libpq's variables, instead of those of whoever runs the test.
func (to target) environment() []string {
	var list []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "PG") {
			list = append(list, variable)
		}
	}
	return append(list, "PGHOST="+to.host, "PGPORT="+to.port, "PGUSER="+to.user, "PGDATABASE="+to.database, "PGCONNECT_TIMEOUT=20")
}

func (to target) connect(t *testing.T) *pgx.Conn {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", to.user, net.JoinHostPort(to.host, to.port), to.database))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// dumpSchema is what pg_dump says of the schema public, without the key that it makes up each time.
func (to target) dumpSchema(ctx context.Context) (string, error) {
	dump, err := output(ctx, to.environment(), ".", "pg_dump", "--schema-only", "--no-owner", "--no-privileges", "--schema=public")
	var kept strings.Builder
	for line := range strings.Lines(dump) {
		if !strings.HasPrefix(line, `\restrict `) && !strings.HasPrefix(line, `\unrestrict `) {
			kept.WriteString(line)
		}
	}
	return kept.String(), err
}

// django runs the programs of a Django project.
type django struct {
	folder string
	// environment is what it is told besides the target.
	environment []string
}

// run runs Python in the project's folder and returns what it says.
func (d *django) run(ctx context.Context, to target, arguments ...string) (string, error) {
	environment := append(to.environment(), "DJANGO_SETTINGS_MODULE=settings", "PYTHONPATH=.", "PYTHONDONTWRITEBYTECODE=1", "PYTHONIOENCODING=utf-8", "LC_ALL=C.UTF-8")
	return output(ctx, append(environment, d.environment...), d.folder, python, arguments...)
}

// output runs a program; an error has the end of what it complained about.
func output(ctx context.Context, environment []string, folder, program string, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir, command.Env = folder, environment
	var said, complained bytes.Buffer
	command.Stdout, command.Stderr = &said, &complained
	if err := command.Run(); err != nil {
		complaint := complained.String()
		return "", fmt.Errorf("%s %s: %w\n%s", program, strings.Join(arguments, " "), err, complaint[max(0, len(complaint)-4000):])
	}
	return said.String(), nil
}
