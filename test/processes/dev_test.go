// Package processes_test runs the binary as people do: 'cleave dev' on this machine and 'cleave serve' beside an etcd and
// servers that are there, real ones all of them, stopped by Ctrl-C, killed outright, started again, and told to use what
// is taken.
package processes_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

// binary builds cleave once for all tests.
var binary = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "cleave-processes-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "cleave")
	output, err := exec.Command("go", "build", "-o", path, "github.com/cleavedb/cleave/cmd/cleave").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// cluster is a running 'cleave dev'.
type cluster struct {
	command *exec.Cmd
	output  transcript
	api     *api.Client
	ended   chan error
}

// transcript is what a process has said so far; it may go on while a test reads it.
type transcript struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *transcript) add(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.WriteString(line + "\n")
}

func (o *transcript) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// folder is one that the servers' user can enter.
func folder(t *testing.T) string {
	t.Helper()
	pgtest.Installations(t) // skips where there is no PostgreSQL
	path, err := os.MkdirTemp("", "cleave-dev-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(path); err != nil {
			t.Error(err)
		}
	})
	return path
}

// freeAddress is one that nobody listens on now.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// launch runs 'cleave dev' without waiting for it.
func launch(t *testing.T, flags ...string) (*cluster, io.Reader) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	http := freeAddress(t)
	c := &cluster{ended: make(chan error, 1), api: &api.Client{BaseURL: "http://" + http}}
	c.command = exec.Command(path, append([]string{"dev", "--http", http, "--listen", freeAddress(t)}, flags...)...)
	c.command.Stderr = os.Stderr
	output, err := c.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.kill() })
	return c, output
}

// start runs 'cleave dev' until it says that it is ready.
func start(t *testing.T, flags ...string) *cluster {
	t.Helper()
	c, output := launch(t, flags...)
	ready := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			c.output.add(lines.Text())
			if strings.HasPrefix(lines.Text(), "cleave: ready") {
				ready <- true
			}
		}
		select {
		case ready <- false:
		default:
		}
		c.ended <- c.command.Wait()
	}()
	select {
	case ok := <-ready:
		if !ok {
			t.Fatalf("it ended before it was ready:\n%s", c.output.String())
		}
	case <-time.After(3 * time.Minute):
		t.Fatal("it is not ready after three minutes")
	}
	return c
}

func (c *cluster) kill() {
	_ = c.command.Process.Kill()
}

// interrupt is Ctrl-C; it waits for the end and returns the exit code.
func (c *cluster) interrupt(t *testing.T) int {
	t.Helper()
	if err := c.command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	return c.wait(t)
}

func (c *cluster) wait(t *testing.T) int {
	t.Helper()
	select {
	case err := <-c.ended:
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode()
		}
		return 0
	case <-time.After(2 * time.Minute):
		t.Fatal("it does not end")
		return 0
	}
}

func (c *cluster) status(t *testing.T) api.Status {
	t.Helper()
	status, err := c.api.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// connect goes to a shard as the greeting says.
func (c *cluster) connect(t *testing.T, data string, shard int) *pgx.Conn {
	t.Helper()
	password, err := os.ReadFile(filepath.Join(data, "password"))
	if err != nil {
		t.Fatal(err)
	}
	address := c.status(t).Shards[shard].Primary.Address
	conn, err := pgx.Connect(t.Context(), fmt.Sprintf("postgres://cleave:%s@%s/cleave?sslmode=disable", strings.TrimSpace(string(password)), address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// servers are the process ids of the postmasters below the folder.
func servers(t *testing.T, data string) []int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(data, "*", "*", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	more, _ := filepath.Glob(filepath.Join(data, "*", "postmaster.pid"))
	var ids []int
	for _, file := range append(files, more...) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		id, err := strconv.Atoi(strings.SplitN(string(content), "\n", 2)[0])
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// gone waits until none of the processes is there.
func gone(t *testing.T, ids []int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		left := 0
		for _, id := range ids {
			if syscall.Kill(id, 0) == nil {
				left++
			}
		}
		if left == 0 {
			return
		}
	}
	t.Errorf("of the servers %v some still run", ids)
}

func TestAClusterIsMadeAndOpenedAgain(t *testing.T) {
	data := filepath.Join(folder(t), "cluster")
	c := start(t, "--data", data, "--shards", "3")
	for _, want := range []string{"psql -h 127.0.0.1 -p", "-U cleave cleave", data, "3 shards"} {
		if !strings.Contains(c.output.String(), want) {
			t.Errorf("the greeting lacks %q:\n%s", want, c.output.String())
		}
	}
	before := c.status(t)
	if len(before.Shards) != 3 || len(before.Findings) != 0 || len(before.Routers) != 1 || before.Leader != "dev" {
		t.Errorf("status: %+v", before)
	}
	conn := c.connect(t, data, 1)
	if _, err := conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 42 AS answer"); err != nil {
		t.Fatal(err)
	}
	running := servers(t, data)
	if len(running) != 3 {
		t.Errorf("%d servers run", len(running))
	}
	if code := c.interrupt(t); code != 0 {
		t.Errorf("Ctrl-C ended it with exit code %d", code)
	}
	gone(t, running)
	if left := servers(t, data); len(left) != 0 {
		t.Errorf("servers were not stopped in order: %v", left)
	}

	c = start(t, "--data", data) // the number of shards is the folder's
	keeps(t, c, data, before)

	// Everything dies at once: the process, and with it its servers.
	running = servers(t, data)
	c.kill()
	c.wait(t)
	gone(t, running)
	c = start(t, "--data", data, "--shards", "3")
	keeps(t, c, data, before)
	for _, id := range servers(t, data) {
		_ = syscall.Kill(id, syscall.SIGKILL)
	}
	c.kill()
	c.wait(t)
	c = start(t, "--data", data)
	keeps(t, c, data, before)
	if code := c.interrupt(t); code != 0 {
		t.Errorf("Ctrl-C ended it with exit code %d", code)
	}
}

// keeps checks that the cluster has the same map and data as before.
func keeps(t *testing.T, c *cluster, data string, before api.Status) {
	t.Helper()
	now := c.status(t)
	if now.Cluster != before.Cluster || now.MapVersion != before.MapVersion || len(now.Shards) != len(before.Shards) {
		t.Errorf("it was cluster %s at version %d with %d shards, it is %s at %d with %d",
			before.Cluster, before.MapVersion, len(before.Shards), now.Cluster, now.MapVersion, len(now.Shards))
	}
	var answer int
	if err := c.connect(t, data, 1).QueryRow(t.Context(), "SELECT answer FROM kept").Scan(&answer); err != nil || answer != 42 {
		t.Errorf("the data is not there any more: %d, %v", answer, err)
	}
}

func TestReplicasStream(t *testing.T) {
	data := filepath.Join(folder(t), "cluster")
	c := start(t, "--data", data, "--shards", "1", "--replicas", "1")
	shards := c.status(t).Shards
	if len(shards[0].Replicas) != 1 || !shards[0].ReplicaStatus[0].Up {
		t.Fatalf("%+v", shards[0])
	}
	conn := c.connect(t, data, 0)
	var streaming int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'").Scan(&streaming); err != nil || streaming != 1 {
		t.Errorf("%d replicas stream, %v", streaming, err)
	}
	if code := c.interrupt(t); code != 0 {
		t.Errorf("Ctrl-C ended it with exit code %d", code)
	}
}

func TestShardsComeAndGo(t *testing.T) {
	data := filepath.Join(folder(t), "cluster")
	c := start(t, "--data", data, "--shards", "1")
	added, err := c.api.AddShard(t.Context(), api.AddShard{})
	if err == nil {
		t.Errorf("a shard without a name was added: %+v", added)
	}
	request := api.AddShard{}
	request.Name = "extra"
	if _, err := c.api.AddShard(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(data, "extra")); err != nil {
		t.Error(err)
	}
	c.interrupt(t)
	c = start(t, "--data", data, "--shards", "1")
	if got := len(c.status(t).Shards); got != 2 {
		t.Errorf("%d shards after opening again", got)
	}
	if _, err := c.api.RemoveShard(t.Context(), "extra"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(data, "extra")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the removed shard's folder: %v", err)
	}
	if got := len(servers(t, data)); got != 1 {
		t.Errorf("%d servers run", got)
	}
	// A server that dies by itself is started again.
	id := servers(t, data)[0]
	if err := syscall.Kill(id, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if now := servers(t, data); len(now) == 1 && now[0] != id && c.status(t).Shards[0].Up {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the server was not started again")
		}
	}
	c.interrupt(t)
}

// fails runs 'cleave dev' that must not start, and returns what it said.
func fails(t *testing.T, flags ...string) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	output, err := exec.Command(path, append([]string{"dev"}, flags...)...).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("%v: %v, want exit code 1", flags, err)
	}
	text := strings.TrimSpace(string(output))
	if lines := strings.Split(text, "\n"); !strings.HasPrefix(lines[len(lines)-1], "cleave: ") {
		t.Errorf("%v said:\n%s", flags, text)
	}
	return text
}

func TestWhatIsTakenIsSaidInOneLine(t *testing.T) {
	data := filepath.Join(folder(t), "cluster")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, flag := range []string{"--listen", "--http"} {
		other := map[string]string{"--listen": "--http", "--http": "--listen"}[flag]
		said := fails(t, "--data", data, flag, taken.Addr().String(), other, freeAddress(t))
		if !strings.Contains(said, taken.Addr().String()) || !strings.Contains(said, "address already in use") || strings.Contains(said, "\n") {
			t.Errorf("%s in use: %s", flag, said)
		}
	}
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was made: %v", err)
	}
	c := start(t, "--data", data, "--shards", "1")
	said := fails(t, "--data", data, "--listen", freeAddress(t), "--http", freeAddress(t))
	if !strings.Contains(said, "in use by another cleave") || strings.Contains(said, "\n") {
		t.Errorf("folder in use: %s", said)
	}
	if len(c.status(t).Shards) != 1 {
		t.Error("the first cluster suffered")
	}
	c.interrupt(t)
	strange := folder(t)
	if err := os.WriteFile(filepath.Join(strange, "letter"), []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := fails(t, "--data", strange, "--listen", freeAddress(t), "--http", freeAddress(t)); !strings.Contains(said, "not empty") {
		t.Errorf("somebody else's folder: %s", said)
	}
}

// TestAStartThatWasKilledIsFinishedByTheNext kills a first start after ever more of it.
func TestAStartThatWasKilledIsFinishedByTheNext(t *testing.T) {
	for _, at := range []string{"starting etcd", "making", "adding shard1", "adding shard2"} {
		t.Run(at, func(t *testing.T) {
			data := filepath.Join(folder(t), "cluster")
			c, output := launch(t, "--data", data, "--shards", "2")
			lines := bufio.NewScanner(output)
			for lines.Scan() && !strings.Contains(lines.Text(), at) {
			}
			if at == "making" {
				time.Sleep(300 * time.Millisecond) // into the middle of initdb
			}
			c.kill()
			_, _ = io.Copy(io.Discard, output)
			_ = c.command.Wait()
			c = start(t, "--data", data, "--shards", "2")
			status := c.status(t)
			if len(status.Shards) != 2 || len(status.Findings) != 0 {
				t.Errorf("%+v", status)
			}
			c.interrupt(t)
		})
	}
}

func TestTheFrontDoorSaysWhatIsMissing(t *testing.T) {
	data := filepath.Join(folder(t), "cluster")
	c := start(t, "--data", data, "--shards", "1")
	defer c.interrupt(t)
	port := regexp.MustCompile(`-p (\d+) -U cleave cleave`).FindStringSubmatch(c.output.String())
	if port == nil {
		t.Fatalf("no port in the greeting:\n%s", c.output.String())
	}
	_, err := pgx.Connect(t.Context(), "postgres://cleave@127.0.0.1:"+port[1]+"/cleave")
	if err == nil || !strings.Contains(err.Error(), "the router is not built yet") || !strings.Contains(err.Error(), "57P03") {
		t.Errorf("a client was answered: %v", err)
	}
}

func TestTheStateIsReadable(t *testing.T) {
	data := filepath.Join(folder(t), "cluster")
	c := start(t, "--data", data, "--shards", "1")
	c.interrupt(t)
	content, err := os.ReadFile(filepath.Join(data, "cluster.json"))
	if err != nil {
		t.Fatal(err)
	}
	var state map[string]any
	if err := json.Unmarshal(content, &state); err != nil || state["complete"] != true {
		t.Errorf("%s: %v", content, err)
	}
	for _, name := range []string{"password", "pgpass"} {
		info, err := os.Stat(filepath.Join(data, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

// TestALocalClusterThatLostItsMapKeepsItsData removes the folder of etcd, and the map with it.
func TestALocalClusterThatLostItsMapKeepsItsData(t *testing.T) {
	data := filepath.Join(folder(t), "cluster")
	c := start(t, "--data", data, "--shards", "2")
	if _, err := c.api.CreateKeyspace(t.Context(), api.CreateKeyspace{Name: "users"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.connect(t, data, 0).Exec(t.Context(), "CREATE TABLE kept AS SELECT 42 AS answer"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all shards have recorded the map", func() bool { return len(c.status(t).Findings) == 0 })
	before := c.status(t)
	c.interrupt(t)
	if err := os.RemoveAll(filepath.Join(data, "etcd")); err != nil {
		t.Fatal(err)
	}
	c = start(t, "--data", data)
	now := c.status(t)
	if now.Cluster != before.Cluster || len(now.Shards) != 2 || now.Keyspaces != 1 || now.MapVersion <= before.MapVersion {
		t.Errorf("it was %+v, it is %+v", before, now)
	}
	var answer int
	if err := c.connect(t, data, 0).QueryRow(t.Context(), "SELECT answer FROM kept").Scan(&answer); err != nil || answer != 42 {
		t.Errorf("the data is not there any more: %d, %v", answer, err)
	}
	c.interrupt(t)
}

// TestServersThatTheMapForgotAreKept imports a map from before a shard was added.
func TestServersThatTheMapForgotAreKept(t *testing.T) {
	data := filepath.Join(folder(t), "cluster")
	c := start(t, "--data", data, "--shards", "1")
	old, err := c.api.MapDocument(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	request := api.AddShard{}
	request.Name = "late"
	if _, err := c.api.AddShard(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if _, err := c.connect(t, data, 1).Exec(t.Context(), "CREATE TABLE kept AS SELECT 42 AS answer"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.api.ImportMap(t.Context(), api.ImportMap{Document: old, Force: true}); err != nil {
		t.Fatal(err)
	}
	c.interrupt(t)
	c = start(t, "--data", data)
	if !strings.Contains(c.output.String(), "server late runs but is no shard of the map") {
		t.Errorf("it was not said:\n%s", c.output.String())
	}
	if _, err := os.Stat(filepath.Join(data, "late")); err != nil {
		t.Errorf("the server's folder: %v", err)
	}
	c.interrupt(t)
}
