// Package pgtest gives PostgreSQL servers to tests and benchmarks, and takes them away again: real ones, fresh, ready to
// be shards, in about a quarter of a second.
//
// [Start] and [StartN] are for most; [StartWith] takes a configuration, and [StartReplica] makes a replica. A test that
// needs the programs and no server asks [Installations], and [Folder] for a place. With -short all of them skip the test; without PostgreSQL on
// the machine they skip it too, or fail it if CLEAVE_REQUIRE_POSTGRES is set.
//
// When the test ends, its servers are ended and their folders removed, whatever the test did to them; if it failed, the
// ends of their logs are printed. It does not share servers between tests: who wants that shares in a parent test, or lets them begin as copies of
// a [Model]. Running
// them is the work of package localpg. All functions must be called from the test's own goroutine, as they may end it.
package pgtest

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/cleavedb/cleave/internal/localpg"
)

// logLines is how much of a server's log a failed test prints.
const logLines = 40

// Start starts a server that loses its data when the machine goes down, and not before.
func Start(t testing.TB) *localpg.Server {
	t.Helper()
	return StartN(t, 1)[0]
}

// StartWhole starts one on which databases can be made.
func StartWhole(t testing.TB) *localpg.Server {
	t.Helper()
	return StartWith(t, localpg.Config{Whole: true})[0]
}

// StartN starts that many servers side by side.
func StartN(t testing.TB, count int) []*localpg.Server {
	t.Helper()
	return StartWith(t, make([]localpg.Config, count)...)
}

// StartWith starts servers with the given configurations, side by side. Each one is made from the template and without
// fsync, and gets a folder of its own if it names none; a folder that the test brings stays.
func StartWith(t testing.TB, configs ...localpg.Config) []*localpg.Server {
	t.Helper()
	require(t)
	configs = disposable(t, configs)
	servers, err := localpg.StartAll(t.Context(), configs)
	skipOrFail(t, err)
	for _, server := range servers {
		endWith(t, server)
	}
	return servers
}

// StartReplica starts a replica of the server.
func StartReplica(t testing.TB, primary *localpg.Server) *localpg.Server {
	t.Helper()
	require(t)
	config := disposable(t, make([]localpg.Config, 1))[0]
	replica, err := localpg.StartReplica(t.Context(), primary, config)
	skipOrFail(t, err)
	endWith(t, replica)
	return replica
}

// Installations returns every installation of PostgreSQL on the machine, the newest first.
func Installations(t testing.TB) []localpg.Installation {
	t.Helper()
	return require(t)
}

// disposable fills in what a test's servers are like.
func disposable(t testing.TB, configs []localpg.Config) []localpg.Config {
	t.Helper()
	root := ""
	filled := make([]localpg.Config, len(configs))
	for i, config := range configs {
		if config.Dir == "" {
			if root == "" {
				root = Folder(t)
			}
			config.Dir = filepath.Join(root, strconv.Itoa(i+1))
		}
		config.Fast, config.Template = true, true
		config.Settings = modest(config.Settings)
		filled[i] = config
	}
	return filled
}

// modest adds what makes servers that live for seconds begin and end faster.
func modest(settings map[string]string) map[string]string {
	more := map[string]string{"shared_buffers": "16MB"}
	maps.Copy(more, settings)
	return more
}

// Folder makes one that the servers' user can enter, which one below t.TempDir is not. It goes with the test.
func Folder(t testing.TB) string {
	t.Helper()
	root, err := os.MkdirTemp(Scratch(), "cleave-pgtest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(root, 0o711); err != nil {
		t.Fatal(err)
	}
	return root
}

const (
	// inMemory is where Linux has files that are on no disk.
	inMemory = "/dev/shm"
	// enoughMemory is what has to be free there: tests that run at a time have some dozens of servers, of 40 MiB each and what they write.
	enoughMemory = 4 << 30
)

// Scratch is where tests' data go: to memory if there is much, since copying the files of a new server to a disk takes longer than most
// tests; else, or if the user has chosen a folder, to where all temporary files go.
var Scratch = sync.OnceValue(func() string {
	var free syscall.Statfs_t
	if os.Getenv("TMPDIR") != "" || syscall.Statfs(inMemory, &free) != nil || free.Bavail*uint64(free.Bsize) < enoughMemory { //nolint:gosec // a size is positive
		return ""
	}
	return inMemory
})

// endWith ends the server with the test.
func endWith(t testing.TB, server *localpg.Server) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of %s:\n%s", server.LogFile(), server.LogTail(logLines))
		}
		clearMemory(server)
		if err := server.StopImmediately(); err != nil {
			t.Error(err)
		}
	})
}

// clearMemory starts a server that has crashed once more: only that frees its shared memory, of which a machine has
// not many pieces. If the test has spoilt the data it fails, and there is nothing to be done.
func clearMemory(server *localpg.Server) {
	select {
	case <-server.Exited():
		if _, err := os.Stat(filepath.Join(server.Dir(), "data", "postmaster.pid")); err == nil {
			_ = server.Restart(context.Background())
		}
	default:
	}
}

func require(t testing.TB) []localpg.Installation {
	t.Helper()
	if testing.Short() {
		t.Skip("needs PostgreSQL: not with -short")
	}
	found, err := localpg.Find(t.Context())
	skipOrFail(t, err)
	return found
}

// skipOrFail ends a test that has no server: as skipped if that is for want of programs and nobody asked for them.
func skipOrFail(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, localpg.ErrNotInstalled) && os.Getenv("CLEAVE_REQUIRE_POSTGRES") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
