// Package cluster runs the binary for suites of tests as people run it: 'cleave dev' in a folder of its own, on free ports, with
// real servers below it; or several 'cleave serve' beside servers and an etcd that are there.
//
// It builds the binary once for a suite, whose TestMain calls [Main] to have it removed again. [Start] returns when the
// cluster is ready; [Launch] does not wait. [StartRouters] makes a cluster with several routers, to be stopped and killed one
// by one. What a test asks of the cluster is its own business. Processes end with the test that started them, and folders are
// removed. Functions that take a test must be called from its own goroutine, as they may end it. Where PostgreSQL is missing
// they skip the test, as package pgtest does.
package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/test/binaries"
)

// Binary builds cleave once for all tests of a suite and returns its path.
var Binary = sync.OnceValues(func() (string, error) {
	if err := lookAtSources(); err != nil {
		return "", fmt.Errorf("look at the sources: %w", err)
	}
	path, folder, err := binaries.Get(binaries.Plain)
	binaryFolder = folder
	return path, err
})

// lookAtSources has 'go test' know what the binary is made of: it remembers that a suite has passed, by the files that were looked at, and the suite itself contains
// nothing of what it tests.
func lookAtSources() error {
	root, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		above := filepath.Dir(root)
		if above == root {
			return errors.New("the tests run in no module")
		}
		root = above
	}
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := entry.Name(); {
		case entry.IsDir() && path != root && (name == "testdata" || strings.HasPrefix(name, ".") || name == "bench" || name == "test" || name == "bin"):
			return filepath.SkipDir
		case !entry.IsDir() && !strings.HasSuffix(name, "_test.go"):
			_, err = os.Stat(path)
		}
		return err
	})
}

// binaryFolder has the binary, so that Main need not build one to remove it.
var binaryFolder string

// Main runs the tests and removes the binary if one of them had it built; it returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	if binaryFolder != "" {
		_ = os.RemoveAll(binaryFolder)
	}
	return code
}

// Dev is a running 'cleave dev'.
type Dev struct {
	Command *exec.Cmd
	// Listen is where clients connect.
	Listen string
	API    *api.Client
	Output Transcript
	ended  chan error
}

// Transcript is what a process has said so far; it may go on while a test reads it.
type Transcript struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *Transcript) add(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.WriteString(line + "\n")
}

// String returns all of it.
func (o *Transcript) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Folder makes one that the servers' user can enter.
func Folder(t *testing.T) string {
	t.Helper()
	pgtest.Installations(t) // skips where there is no PostgreSQL
	return pgtest.Folder(t)
}

// Launch runs 'cleave dev' without waiting for it; the reader is what it says. It is killed when the test ends.
func Launch(t *testing.T, flags ...string) (*Dev, io.Reader) {
	t.Helper()
	path, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	http := FreeAddress(t)
	d := &Dev{ended: make(chan error, 1), Listen: FreeAddress(t), API: &api.Client{BaseURL: "http://" + http}}
	d.Command = exec.Command(path, append([]string{"dev", "--http", http, "--listen", d.Listen}, flags...)...)
	d.Command.Stderr = os.Stderr
	output, err := d.Command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	return d, output
}

// Start runs 'cleave dev' until it says that it is ready. It is killed when the test ends, and its servers with it.
func Start(t *testing.T, flags ...string) *Dev {
	t.Helper()
	d, output := Launch(t, flags...)
	ready := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			d.Output.add(lines.Text())
			if strings.HasPrefix(lines.Text(), "cleave: ready") {
				ready <- true
			}
		}
		select {
		case ready <- false:
		default:
		}
		d.ended <- d.Command.Wait()
	}()
	select {
	case ok := <-ready:
		if !ok {
			t.Fatalf("it ended before it was ready:\n%s", d.Output.String())
		}
	case <-time.After(3 * time.Minute):
		t.Fatal("it is not ready after three minutes")
	}
	return d
}

// Kill ends it outright.
func (d *Dev) Kill() { _ = d.Command.Process.Kill() }

// Interrupt is Ctrl-C; it waits for the end and returns the exit code.
func (d *Dev) Interrupt(t *testing.T) int {
	t.Helper()
	if err := d.Command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	return d.Wait(t)
}

// Wait waits for the end of a cluster that [Start] returned, and returns the exit code.
func (d *Dev) Wait(t *testing.T) int {
	t.Helper()
	select {
	case err := <-d.ended:
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

// Status asks the cluster how it is.
func (d *Dev) Status(t *testing.T) api.Status {
	t.Helper()
	status, err := d.API.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return status
}
