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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/test/cluster"

	"github.com/cleavedb/cleave/internal/thorough"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// connect goes to a shard as the greeting says.
func connect(t *testing.T, c *cluster.Dev, data string, shard int) *pgx.Conn {
	t.Helper()
	password, err := os.ReadFile(filepath.Join(data, "password"))
	if err != nil {
		t.Fatal(err)
	}
	address := c.Status(t).Shards[shard].Primary.Address
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
	data := filepath.Join(cluster.Folder(t), "cluster")
	c := cluster.Start(t, "--data", data, "--shards", "3")
	for _, want := range []string{"psql -h 127.0.0.1 -p", "-U cleave cleave", data, "3 shards"} {
		if !strings.Contains(c.Output.String(), want) {
			t.Errorf("the greeting lacks %q:\n%s", want, c.Output.String())
		}
	}
	before := c.Status(t)
	if len(before.Shards) != 3 || len(before.Findings) != 0 || len(before.Routers) != 1 || before.Leader != "dev" {
		t.Errorf("status: %+v", before)
	}
	conn := connect(t, c, data, 1)
	if _, err := conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 42 AS answer"); err != nil {
		t.Fatal(err)
	}
	running := servers(t, data)
	if len(running) != 3 {
		t.Errorf("%d servers run", len(running))
	}
	if code := c.Interrupt(t); code != 0 {
		t.Errorf("Ctrl-C ended it with exit code %d", code)
	}
	gone(t, running)
	if left := servers(t, data); len(left) != 0 {
		t.Errorf("servers were not stopped in order: %v", left)
	}

	c = cluster.Start(t, "--data", data) // the number of shards is the folder's
	keeps(t, c, data, before)

	// Everything dies at once: the process, and with it its servers.
	running = servers(t, data)
	c.Kill()
	c.Wait(t)
	gone(t, running)
	c = cluster.Start(t, "--data", data, "--shards", "3")
	keeps(t, c, data, before)
	for _, id := range servers(t, data) {
		_ = syscall.Kill(id, syscall.SIGKILL)
	}
	c.Kill()
	c.Wait(t)
	c = cluster.Start(t, "--data", data)
	keeps(t, c, data, before)
	if code := c.Interrupt(t); code != 0 {
		t.Errorf("Ctrl-C ended it with exit code %d", code)
	}
}

// keeps checks that the cluster has the same map and data as before.
func keeps(t *testing.T, c *cluster.Dev, data string, before api.Status) {
	t.Helper()
	now := c.Status(t)
	if now.Cluster != before.Cluster || now.MapVersion != before.MapVersion || len(now.Shards) != len(before.Shards) {
		t.Errorf("it was cluster %s at version %d with %d shards, it is %s at %d with %d",
			before.Cluster, before.MapVersion, len(before.Shards), now.Cluster, now.MapVersion, len(now.Shards))
	}
	var answer int
	if err := connect(t, c, data, 1).QueryRow(t.Context(), "SELECT answer FROM kept").Scan(&answer); err != nil || answer != 42 {
		t.Errorf("the data is not there any more: %d, %v", answer, err)
	}
}

func TestReplicasStream(t *testing.T) {
	thorough.Only(t)
	data := filepath.Join(cluster.Folder(t), "cluster")
	c := cluster.Start(t, "--data", data, "--shards", "1", "--replicas", "1")
	shards := c.Status(t).Shards
	if len(shards[0].Replicas) != 1 || !shards[0].ReplicaStatus[0].Up {
		t.Fatalf("%+v", shards[0])
	}
	conn := connect(t, c, data, 0)
	var streaming int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'").Scan(&streaming); err != nil || streaming != 1 {
		t.Errorf("%d replicas stream, %v", streaming, err)
	}
	if code := c.Interrupt(t); code != 0 {
		t.Errorf("Ctrl-C ended it with exit code %d", code)
	}
}

func TestShardsComeAndGo(t *testing.T) {
	data := filepath.Join(cluster.Folder(t), "cluster")
	c := cluster.Start(t, "--data", data, "--shards", "1")
	added, err := c.API.AddShard(t.Context(), api.AddShard{})
	if err == nil {
		t.Errorf("a shard without a name was added: %+v", added)
	}
	request := api.AddShard{}
	request.Name = "extra"
	if _, err := c.API.AddShard(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(data, "extra")); err != nil {
		t.Error(err)
	}
	c.Interrupt(t)
	c = cluster.Start(t, "--data", data, "--shards", "1")
	if got := len(c.Status(t).Shards); got != 2 {
		t.Errorf("%d shards after opening again", got)
	}
	if _, err := c.API.RemoveShard(t.Context(), "extra"); err != nil {
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
		if now := servers(t, data); len(now) == 1 && now[0] != id && c.Status(t).Shards[0].Up {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the server was not started again")
		}
	}
	c.Interrupt(t)
}

// fails runs 'cleave dev' that must not start, and returns what it said.
func fails(t *testing.T, flags ...string) string {
	t.Helper()
	path, err := cluster.Binary()
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
	data := filepath.Join(cluster.Folder(t), "cluster")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, flag := range []string{"--listen", "--http"} {
		other := map[string]string{"--listen": "--http", "--http": "--listen"}[flag]
		said := fails(t, "--data", data, flag, taken.Addr().String(), other, cluster.FreeAddress(t))
		if !strings.Contains(said, taken.Addr().String()) || !strings.Contains(said, "address already in use") || strings.Contains(said, "\n") {
			t.Errorf("%s in use: %s", flag, said)
		}
	}
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was made: %v", err)
	}
	c := cluster.Start(t, "--data", data, "--shards", "1")
	said := fails(t, "--data", data, "--listen", cluster.FreeAddress(t), "--http", cluster.FreeAddress(t))
	if !strings.Contains(said, "in use by another cleave") || strings.Contains(said, "\n") {
		t.Errorf("folder in use: %s", said)
	}
	if len(c.Status(t).Shards) != 1 {
		t.Error("the first cluster suffered")
	}
	c.Interrupt(t)
	strange := cluster.Folder(t)
	if err := os.WriteFile(filepath.Join(strange, "letter"), []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := fails(t, "--data", strange, "--listen", cluster.FreeAddress(t), "--http", cluster.FreeAddress(t)); !strings.Contains(said, "not empty") {
		t.Errorf("somebody else's folder: %s", said)
	}
}

// TestAStartThatWasKilledIsFinishedByTheNext kills a first start after ever more of it.
func TestAStartThatWasKilledIsFinishedByTheNext(t *testing.T) {
	for _, at := range []string{"starting etcd", "making", "adding shard1", "adding shard2"} {
		t.Run(at, func(t *testing.T) {
			if at != "adding shard2" && at != "making" {
				thorough.Only(t)
			}
			data := filepath.Join(cluster.Folder(t), "cluster")
			c, output := cluster.Launch(t, "--data", data, "--shards", "2")
			lines := bufio.NewScanner(output)
			for lines.Scan() && !strings.Contains(lines.Text(), at) {
			}
			if at == "making" {
				time.Sleep(300 * time.Millisecond) // into the middle of initdb
			}
			c.Kill()
			_, _ = io.Copy(io.Discard, output)
			_ = c.Command.Wait()
			c = cluster.Start(t, "--data", data, "--shards", "2")
			status := c.Status(t)
			findings := slices.DeleteFunc(status.Findings, func(f api.Finding) bool { return f.Code == "name_taken" }) // by the one that was killed, for some seconds
			if len(status.Shards) != 2 || len(findings) != 0 {
				t.Errorf("%+v", status)
			}
			c.Interrupt(t)
		})
	}
}

// TestTheGreetingLeadsToTheRouter, which serves from then on.
func TestTheGreetingLeadsToTheRouter(t *testing.T) {
	data := filepath.Join(cluster.Folder(t), "cluster")
	c := cluster.Start(t, "--data", data, "--shards", "2")
	defer c.Interrupt(t)
	port := regexp.MustCompile(`-p (\d+) -U cleave cleave`).FindStringSubmatch(c.Output.String())
	if port == nil {
		t.Fatalf("no port in the greeting:\n%s", c.Output.String())
	}
	conn, err := pgx.Connect(t.Context(), "postgres://cleave@127.0.0.1:"+port[1]+"/cleave")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var version string
	if err := conn.QueryRow(t.Context(), "SELECT cleave.version()").Scan(&version); err != nil || !strings.HasPrefix(version, "Cleave ") {
		t.Errorf("it is %q, %v", version, err)
	}
	if _, err := conn.Exec(t.Context(), "CREATE ROLE eve LOGIN PASSWORD 'secret'"); err != nil {
		t.Fatal(err)
	}
	other, err := pgx.Connect(t.Context(), "postgres://eve:secret@127.0.0.1:"+port[1]+"/cleave")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	var role string
	if err := other.QueryRow(t.Context(), "SELECT current_user").Scan(&role); err != nil || role != "eve" {
		t.Errorf("a role with a password is %q, %v", role, err)
	}
}

func TestTheStateIsReadable(t *testing.T) {
	data := filepath.Join(cluster.Folder(t), "cluster")
	c := cluster.Start(t, "--data", data, "--shards", "1")
	c.Interrupt(t)
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
	data := filepath.Join(cluster.Folder(t), "cluster")
	c := cluster.Start(t, "--data", data, "--shards", "2")
	if _, err := c.API.CreateKeyspace(t.Context(), api.CreateKeyspace{Name: "users"}); err != nil {
		t.Fatal(err)
	}
	if _, err := connect(t, c, data, 0).Exec(t.Context(), "CREATE TABLE kept AS SELECT 42 AS answer"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all shards have recorded the map", func() bool { return len(c.Status(t).Findings) == 0 })
	before := c.Status(t)
	c.Interrupt(t)
	if err := os.RemoveAll(filepath.Join(data, "etcd")); err != nil {
		t.Fatal(err)
	}
	c = cluster.Start(t, "--data", data)
	now := c.Status(t)
	if now.Cluster != before.Cluster || len(now.Shards) != 2 || now.Keyspaces != 1 || now.MapVersion <= before.MapVersion {
		t.Errorf("it was %+v, it is %+v", before, now)
	}
	var answer int
	if err := connect(t, c, data, 0).QueryRow(t.Context(), "SELECT answer FROM kept").Scan(&answer); err != nil || answer != 42 {
		t.Errorf("the data is not there any more: %d, %v", answer, err)
	}
	c.Interrupt(t)
}

// TestServersThatTheMapForgotAreKept imports a map from before a shard was added.
func TestServersThatTheMapForgotAreKept(t *testing.T) {
	thorough.Only(t)
	data := filepath.Join(cluster.Folder(t), "cluster")
	c := cluster.Start(t, "--data", data, "--shards", "1")
	old, err := c.API.MapDocument(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	request := api.AddShard{}
	request.Name = "late"
	if _, err := c.API.AddShard(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if _, err := connect(t, c, data, 1).Exec(t.Context(), "CREATE TABLE kept AS SELECT 42 AS answer"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.API.ImportMap(t.Context(), api.ImportMap{Document: old, Force: true}); err != nil {
		t.Fatal(err)
	}
	c.Interrupt(t)
	c = cluster.Start(t, "--data", data)
	if !strings.Contains(c.Output.String(), "server late runs but is no shard of the map") {
		t.Errorf("it was not said:\n%s", c.Output.String())
	}
	if _, err := os.Stat(filepath.Join(data, "late")); err != nil {
		t.Errorf("the server's folder: %v", err)
	}
	c.Interrupt(t)
}
