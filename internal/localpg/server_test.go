package localpg_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

// TestDataOutliveTheServer: data made by initdb, as for dev, are there after a stop and a new start.
func TestDataOutliveTheServer(t *testing.T) {
	dir := filepath.Join(folder(t), "deep", "below")
	server := start(t, localpg.Config{Dir: dir})
	run(t, server, "CREATE TABLE kept AS SELECT 7 AS n")
	for range 2 { // the second finds nothing to stop
		if err := server.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	<-server.Exited()
	if exists(filepath.Join(dir, "data", "postmaster.pid")) {
		t.Error("the server did not end in order")
	}
	again := start(t, localpg.Config{Dir: dir})
	if got := value(t, again, "SELECT n FROM kept"); got != "7" {
		t.Errorf("got %s", got)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"data", "lock", "server.log"}) {
		t.Errorf("the folder holds %v", got)
	}
}

func TestServerIsReadyToBeAShard(t *testing.T) {
	server := pgtest.StartWith(t, localpg.Config{Settings: map[string]string{"Max_Connections": "37", "work_mem": "5MB"}})[0]
	for setting, want := range map[string]string{
		"wal_level": "logical", "max_connections": "37", "max_prepared_transactions": "37", "work_mem": "5MB",
		"TimeZone": "UTC", "server_encoding": "UTF8", "listen_addresses": "127.0.0.1", "unix_socket_directories": "",
		"fsync": "off", "synchronous_commit": "on", "full_page_writes": "on", "port": strconv.Itoa(server.Port()),
	} {
		if got := value(t, server, "SELECT current_setting('"+setting+"')"); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
}

func TestSafeUnlessAskedOtherwise(t *testing.T) {
	server := start(t, localpg.Config{Dir: folder(t), Locale: "C"})
	for sql, want := range map[string]string{
		"SELECT current_setting('fsync')":                                "on",
		"SELECT datcollate FROM pg_database WHERE datname = 'template1'": "C",
	} {
		if got := value(t, server, sql); got != want {
			t.Errorf("%s: got %q, want %q", sql, got, want)
		}
	}
}

// TestCrash kills a server whose session is busy and would not notice, and brings it back.
func TestCrash(t *testing.T) {
	server := pgtest.Start(t)
	run(t, server, "CREATE TABLE kept AS SELECT 7 AS n")
	busy := connect(t, server.DSN("postgres"))
	backend := int(busy.PgConn().PID())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = busy.Exec(context.Background(), "SELECT count(*) FROM generate_series(1, 1000000000000)")
	}()
	for value(t, server, "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%generate_series(1, 1000%'") != "2" {
	}
	exited := server.Exited()
	for range 2 { // the second finds nothing to kill
		if err := server.Crash(); err != nil {
			t.Fatal(err)
		}
	}
	<-exited
	<-ended
	if left, err := localpg.Alive([]int{backend, server.PID()}); err != nil || len(left) != 0 {
		t.Fatalf("alive after the crash: %v, %v", left, err)
	}
	port := server.Port()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if server.Port() != port {
		t.Errorf("the port changed from %d to %d", port, server.Port())
	}
	if got := value(t, server, "SELECT n FROM kept"); got != "7" {
		t.Errorf("got %s", got)
	}
	select {
	case <-server.Exited():
		t.Error("a server that runs again has exited")
	default:
	}
}

func TestRestartOfARunningServer(t *testing.T) {
	server := pgtest.Start(t)
	first := server.PID()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if server.PID() == first {
		t.Error("it is the same process")
	}
	value(t, server, "SELECT 1")
}

// TestOwnerNoticesTheEnd: a server that somebody else kills is noticed, and can be started again.
func TestOwnerNoticesTheEnd(t *testing.T) {
	server := pgtest.Start(t)
	process, err := os.FindProcess(server.PID())
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-server.Exited()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	value(t, server, "SELECT 1")
}

// TestStopWithoutTime ends the server at once, says so, and loses no commit.
func TestStopWithoutTime(t *testing.T) {
	server := pgtest.Start(t)
	run(t, server, "CREATE TABLE kept AS SELECT 7 AS n")
	none, cancel := context.WithCancel(t.Context())
	cancel()
	if err := server.Stop(none); err == nil || !strings.Contains(err.Error(), "recover") {
		t.Errorf("got %v", err)
	}
	<-server.Exited()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := value(t, server, "SELECT n FROM kept"); got != "7" {
		t.Errorf("got %s", got)
	}
}

func TestFailedStartSaysWhyAndLeavesNothing(t *testing.T) {
	root := folder(t)
	err := startFails(t, localpg.Config{Dir: filepath.Join(root, "a", "b"), Template: true, Fast: true, Settings: map[string]string{"shared_buffers": "1PB"}})
	if !strings.Contains(err.Error(), "shared_buffers") {
		t.Errorf("the error does not tell the reason: %v", err)
	}
	if got := names(t, root); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
}

// TestFailedStartKeepsData: what a start did not make it does not remove.
func TestFailedStartKeepsData(t *testing.T) {
	config := localpg.Config{Dir: folder(t), Template: true, Fast: true}
	server := start(t, config)
	run(t, server, "CREATE TABLE kept AS SELECT 7 AS n")
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	broken := config
	broken.Settings = map[string]string{"no_such_setting": "1"}
	if err := startFails(t, broken); !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("the error does not tell the reason: %v", err)
	}
	if got := value(t, start(t, config), "SELECT n FROM kept"); got != "7" {
		t.Errorf("got %s", got)
	}
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	pgtest.Installations(t)
	root := folder(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := localpg.Start(ctx, localpg.Config{Dir: filepath.Join(root, "a")})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if got := names(t, root); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
}

func TestPortInUse(t *testing.T) {
	root := folder(t)
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	err = startFails(t, localpg.Config{Dir: filepath.Join(root, "1"), Template: true, Fast: true, Port: port})
	var taken *localpg.PortInUseError
	if !errors.As(err, &taken) || taken.Port != port {
		t.Errorf("got %v", err)
	}
	if got := names(t, root); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
}

// TestAllOrNone: two servers want one port, so both go, and the one that was there before keeps its data.
func TestAllOrNone(t *testing.T) {
	root := folder(t)
	old := localpg.Config{Dir: filepath.Join(root, "old"), Template: true, Fast: true}
	server := start(t, old)
	run(t, server, "CREATE TABLE kept AS SELECT 7 AS n")
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	port := server.Port()
	configs := []localpg.Config{old, {Dir: filepath.Join(root, "new", "1")}, {Dir: filepath.Join(root, "new", "2")}}
	for i := range configs {
		configs[i].Template, configs[i].Fast = true, true
	}
	configs[1].Port, configs[2].Port = port, port
	_, err := localpg.StartAll(t.Context(), configs)
	var taken *localpg.PortInUseError
	if !errors.As(err, &taken) || taken.Port != port {
		t.Errorf("got %v", err)
	}
	if got := names(t, root); !slices.Equal(got, []string{"old"}) {
		t.Errorf("left: %v", got)
	}
	if got := value(t, start(t, old), "SELECT n FROM kept"); got != "7" {
		t.Errorf("got %s", got)
	}
}

func TestManyAtOnce(t *testing.T) {
	servers := pgtest.StartN(t, 4)
	seen := map[string]bool{}
	for _, server := range servers {
		seen[server.Addr()] = true
		if got := value(t, server, "SELECT current_setting('data_directory')"); got != filepath.Join(server.Dir(), "data") {
			t.Errorf("%s answers for %s", server.Dir(), got)
		}
	}
	if len(seen) != len(servers) {
		t.Errorf("the addresses are %v", seen)
	}
}

// TestFolderInUse: neither a second start nor one that does not see the first's lock gets in, and the server stays.
func TestFolderInUse(t *testing.T) {
	server := pgtest.Start(t)
	second := localpg.Config{Dir: server.Dir()}
	for _, lock := range []string{"held", "removed"} {
		if lock == "removed" { // as if the server had been started by hand
			if err := os.Remove(filepath.Join(server.Dir(), "lock")); err != nil {
				t.Fatal(err)
			}
		}
		err := startFails(t, second)
		var inUse *localpg.InUseError
		if !errors.As(err, &inUse) || inUse.PID != server.PID() || inUse.Dir != server.Dir() {
			t.Errorf("lock %s: got %v", lock, err)
		}
		if !exists(filepath.Join(server.Dir(), "data", "postmaster.pid")) {
			t.Fatalf("lock %s: the server's postmaster.pid is gone", lock)
		}
	}
	value(t, server, "SELECT 1")
}

// TestTwoStartsInOneFolder: of starts that find the same folder empty one makes the data, and the others keep out.
func TestTwoStartsInOneFolder(t *testing.T) {
	pgtest.Installations(t)
	dir := filepath.Join(folder(t), "server")
	servers := make([]*localpg.Server, 4)
	failures := make([]error, len(servers))
	var group sync.WaitGroup
	for i := range servers {
		group.Go(func() {
			servers[i], failures[i] = localpg.Start(t.Context(), localpg.Config{Dir: dir, Template: true, Fast: true})
		})
	}
	group.Wait()
	started := 0
	for i, server := range servers {
		var inUse *localpg.InUseError
		switch {
		case failures[i] == nil:
			started++
			value(t, server, "SELECT 1")
			if err := server.StopImmediately(); err != nil {
				t.Error(err)
			}
		case !errors.As(failures[i], &inUse):
			t.Errorf("got %v", failures[i])
		}
	}
	if started != 1 {
		t.Errorf("%d servers were started", started)
	}
}

// TestProcessNumberGivenAgain: the number in a crashed server's postmaster.pid is that of another server now, as after the
// restart of a container.
func TestProcessNumberGivenAgain(t *testing.T) {
	servers := pgtest.StartN(t, 2)
	other, crashed := servers[0], servers[1]
	if err := crashed.Crash(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(crashed.Dir(), "data", "postmaster.pid")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n")
	if err := os.WriteFile(path, []byte(strconv.Itoa(other.PID())+"\n"+rest), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := crashed.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	value(t, crashed, "SELECT 1")
	value(t, other, "SELECT 1")
}

func TestPassword(t *testing.T) {
	root := folder(t)
	file := filepath.Join(root, "password")
	const password = `it's: a "pass\word" @/?`
	if err := os.WriteFile(file, []byte(password+"\nsecond line"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "server")
	server := start(t, localpg.Config{Dir: dir, Fast: true, Template: true, Superuser: "boss man", PasswordFile: file})
	if got := value(t, server, "SELECT current_user"); got != "boss man" {
		t.Errorf("got %s", got)
	}
	config, err := pgx.ParseConfig(server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{"", "wrong"} {
		config.Password = wrong
		if connection, err := pgx.ConnectConfig(t.Context(), config); err == nil {
			_ = connection.Close(t.Context())
			t.Errorf("the password %q was accepted", wrong)
		}
	}
	if got := names(t, dir); !slices.Equal(got, []string{"data", "lock", "server.log"}) {
		t.Errorf("the folder holds %v", got)
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	root := folder(t)
	empty := filepath.Join(root, "empty")
	if err := os.WriteFile(empty, []byte("\npassword"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "server")
	for want, config := range map[string]localpg.Config{
		"needs a folder":       {},
		"not a port":           {Dir: dir, Port: 70000},
		"negative":             {Dir: dir, StopTimeout: -1},
		"not the name":         {Dir: dir, Settings: map[string]string{"a b": ""}},
		"not for the caller":   {Dir: dir, Settings: map[string]string{"Port": "1"}},
		"begins with an empty": {Dir: dir, PasswordFile: empty},
		"read the superuser's": {Dir: dir, PasswordFile: filepath.Join(root, "none")},
		"no program initdb":    {Dir: dir, Bin: root},
		"no-such-user":         {Dir: dir, User: "no-such-user"},
		"invalid locale":       {Dir: dir, Locale: "no_SUCH"},
		"not a directory":      {Dir: filepath.Join(empty, "below")},
	} {
		if err := startFails(t, config); !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if got := names(t, root); !slices.Equal(got, []string{"empty"}) {
		t.Errorf("left behind: %v", got)
	}
}
