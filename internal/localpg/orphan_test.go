package localpg_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

// TestNoOrphans kills the process that runs a server. All processes of the server go, and the folder can be opened at
// once, with all that was committed.
func TestNoOrphans(t *testing.T) {
	pgtest.Installations(t)
	dir := filepath.Join(folder(t), "server")
	parent, pid := startParent(t, dir)
	family := append(childrenOf(t, pid), pid)
	if len(family) < 4 {
		t.Fatalf("the server has only the processes %v", family)
	}

	connection, err := pgx.Connect(t.Context(), orphanDSN(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close(t.Context())
	if _, err := connection.Exec(t.Context(), "CREATE TABLE kept AS SELECT 7 AS n"); err != nil {
		t.Fatal(err)
	}

	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	server := start(t, localpg.Config{Dir: dir}) // waits until the old server is gone
	if got := value(t, server, "SELECT n FROM kept"); got != "7" {
		t.Errorf("got %s", got)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		left, err := localpg.Alive(family)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("alive long after the parent's end: %v", left)
		}
	}
}

// startParent runs this program as the parent of a server in the folder.
func startParent(t *testing.T, dir string) (*exec.Cmd, int) {
	t.Helper()
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentVariable+"="+dir)
	output, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = parent.Process.Kill()
		_ = parent.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the parent says: %s", line)
	}
	return parent, pid
}

func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	found, err := localpg.Children(pid)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// orphanDSN reads the port from the server's own file, since the parent keeps it to itself.
func orphanDSN(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	const portLine = 3
	return "postgres://postgres@127.0.0.1:" + strings.Split(string(text), "\n")[portLine] + "/postgres?sslmode=disable"
}
