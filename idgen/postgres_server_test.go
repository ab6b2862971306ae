package idgen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// postgresServer is a PostgreSQL server of a test's own: a fresh cluster in a temporary folder, reached over a Unix socket.
type postgresServer struct {
	bin        string // where initdb and postgres are
	dir        string // cluster, socket and log
	credential *syscall.Credential
	process    *os.Process
	exited     chan struct{}
}

// startPostgres creates a cluster and starts its server, which ends with the test. Without PostgreSQL on the machine the test is
// skipped, or fails if CLEAVE_REQUIRE_POSTGRES is set.
func startPostgres(t *testing.T) *postgresServer {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a PostgreSQL server: not with -short")
	}
	bin := findPostgres()
	if bin == "" {
		if os.Getenv("CLEAVE_REQUIRE_POSTGRES") != "" {
			t.Fatal("CLEAVE_REQUIRE_POSTGRES is set and initdb was not found: install PostgreSQL or set CLEAVE_PG_BIN")
		}
		t.Skip("initdb was not found: install PostgreSQL or set CLEAVE_PG_BIN")
	}
	s := &postgresServer{bin: bin, credential: unprivileged(t)}
	// Not t.TempDir: its parent is closed to other users, and its name may be too long for a socket.
	dir, err := os.MkdirTemp("", "idgen-pg-")
	if err != nil {
		t.Fatal(err)
	}
	s.dir = dir
	t.Cleanup(func() {
		s.stop(syscall.SIGQUIT)
		if t.Failed() {
			if log, err := os.ReadFile(filepath.Join(dir, "log")); err == nil {
				t.Logf("server log:\n%s", log[max(0, len(log)-4000):])
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if s.credential != nil {
		if err := os.Chown(dir, int(s.credential.Uid), int(s.credential.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	s.initialise(t)
	s.start(t)
	return s
}

// findPostgres returns the folder that holds initdb, or "".
func findPostgres() string {
	var candidates []string
	if dir := os.Getenv("CLEAVE_PG_BIN"); dir != "" {
		candidates = append(candidates, dir)
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		if resolved, err := filepath.EvalSymlinks(path); err == nil {
			candidates = append(candidates, filepath.Dir(resolved))
		}
	}
	packaged, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(packaged, func(a, b string) int { return packagedVersion(b) - packagedVersion(a) })
	for _, dir := range append(candidates, packaged...) {
		if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err == nil {
			return dir
		}
	}
	return ""
}

func packagedVersion(dir string) int {
	version, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	return version
}

// unprivileged is who the server runs as when the test runs as root, whom PostgreSQL refuses.
func unprivileged(t *testing.T) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(account.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(account.Gid, 10, 32)
		if uidErr == nil && gidErr == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	t.Fatal("running as root, and there is no user postgres or nobody to run the server as")
	return nil
}

func (s *postgresServer) data() string { return filepath.Join(s.dir, "data") }

// tool looks beside initdb first, then on the path.
func (s *postgresServer) tool(name string) string {
	if path := filepath.Join(s.bin, name); isFile(path) {
		return path
	}
	return name
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func (s *postgresServer) initialise(t *testing.T) {
	t.Helper()
	initdb := exec.Command(s.tool("initdb"), "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.Dir = s.dir
	initdb.SysProcAttr = serverAttributes(s.credential)
	if output, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, output)
	}
}

// start starts the server and waits until it answers. After a crash the old processes may need a moment to go, so a server that
// ends at once is started again for a while.
func (s *postgresServer) start(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if err := s.launch(); err != nil {
			t.Fatal(err)
		}
		if s.answers(deadline) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("the server does not start")
}

// launch starts the server process. The death signal comes when the starting thread ends, so that thread is kept.
func (s *postgresServer) launch() error {
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	server := exec.Command(s.tool("postgres"), "-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off",
		"-c", "timezone=UTC", "-c", "max_connections=40")
	server.Dir = s.dir
	server.Stdout, server.Stderr = log, log
	server.SysProcAttr = serverAttributes(s.credential)
	started := make(chan error)
	exited := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer log.Close()
		err := server.Start()
		started <- err
		if err == nil {
			_ = server.Wait()
		}
		close(exited)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	s.process, s.exited = server.Process, exited
	return nil
}

// answers waits until the server takes connections; false if it ends instead.
func (s *postgresServer) answers(deadline time.Time) bool {
	for time.Now().Before(deadline) {
		select {
		case <-s.exited:
			return false
		default:
		}
		if _, err := s.psql("postgres", "SELECT 1"); err == nil {
			return true
		}
		time.Sleep(20 * time.Millisecond)
	}
	return false
}

// stop ends the server, by SIGQUIT (at once, in order) or SIGKILL (a crash), and waits for it.
func (s *postgresServer) stop(signal syscall.Signal) {
	if s.process == nil {
		return
	}
	_ = s.process.Signal(signal)
	<-s.exited
	s.process = nil
}

// psql runs SQL in one session, as a superuser, and returns its output: fields separated by |, no headers.
func (s *postgresServer) psql(database, sql string) (string, error) {
	// A test that would hang says where instead.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, s.tool("psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose",
		"-h", s.dir, "-U", "postgres", "-d", database, "-f", "-")
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
