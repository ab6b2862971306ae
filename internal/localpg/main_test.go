package localpg_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

// parentVariable makes this program the parent of a server, for a test that kills it.
const parentVariable = "CLEAVE_TEST_SERVER_FOLDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentVariable); dir != "" {
		runParent(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// runParent starts a server, tells the number of its process, and waits to be killed.
func runParent(dir string) {
	server, err := localpg.Start(context.Background(), localpg.Config{Dir: dir, Template: true})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(server.PID())
	<-server.Exited()
}

// folder makes one that the server's user can enter.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(pgtest.Scratch(), "cleave-localpg-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// start starts a server that the test may stop, and that is stopped at the latest when the test ends.
func start(t testing.TB, config localpg.Config) *localpg.Server {
	t.Helper()
	pgtest.Installations(t)
	server, err := localpg.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.StopImmediately(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// startFails returns the error of a start that must fail.
func startFails(t testing.TB, config localpg.Config) error {
	t.Helper()
	pgtest.Installations(t)
	server, err := localpg.Start(t.Context(), config)
	if err == nil {
		_ = server.StopImmediately()
		t.Fatal("the server was started")
	}
	return err
}

func connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close(context.Background()) })
	return connection
}

// run runs statements that must succeed.
func run(t testing.TB, server *localpg.Server, statements ...string) {
	t.Helper()
	connection := connect(t, server.DSN("postgres"))
	for _, sql := range statements {
		if _, err := connection.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if err := connection.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// value asks for one value, as text.
func value(t testing.TB, server *localpg.Server, sql string) string {
	t.Helper()
	connection := connect(t, server.DSN("postgres"))
	var answer string
	if err := connection.QueryRow(t.Context(), "SELECT ("+sql+")::text").Scan(&answer); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, os.ErrNotExist)
}

// names lists what is in a folder.
func names(t testing.TB, folder string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	return found
}
