package localpg_test

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

// TestUnfinishedDataAreMadeAnew: what an interrupted start leaves is cleared away.
func TestUnfinishedDataAreMadeAnew(t *testing.T) {
	dir := folder(t)
	left := filepath.Join(dir, "data.new-123", "global")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	giveToServer(t, filepath.Join(dir, "data"))
	server := start(t, localpg.Config{Dir: dir, Template: true, Fast: true})
	value(t, server, "SELECT 1")
	if exists(left) {
		t.Error("unfinished data are still there")
	}
}

// giveToServer makes the server's user the owner.
func giveToServer(t *testing.T, path string) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	for _, name := range []string{"postgres", "nobody"} {
		if found, err := user.Lookup(name); err == nil {
			uid, _ := strconv.Atoi(found.Uid)
			gid, _ := strconv.Atoi(found.Gid)
			if err := os.Chown(path, uid, gid); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("there is no user to run servers as")
}

// TestNothingOfOthersIsTouched: a folder that is not ours to fill stays as it is.
func TestNothingOfOthersIsTouched(t *testing.T) {
	for name, file := range map[string]string{
		"something else":        "data/thesis.txt",
		"an incomplete cluster": "data/PG_VERSION",
		"a data folder itself":  "PG_VERSION",
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t)
			path := filepath.Join(dir, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			major := strconv.Itoa(pgtest.Installations(t)[0].Major) + "\n"
			if err := os.WriteFile(path, []byte(major), 0o600); err != nil {
				t.Fatal(err)
			}
			if filepath.Dir(path) != dir {
				giveToServer(t, filepath.Dir(path))
			}
			err := startFails(t, localpg.Config{Dir: dir, Template: true, Fast: true})
			if !strings.Contains(err.Error(), "data folder of PostgreSQL") {
				t.Errorf("got %v", err)
			}
			if text, err := os.ReadFile(path); err != nil || string(text) != major {
				t.Errorf("got %q, %v", text, err)
			}
		})
	}
}

// TestClosedParent: the server's user cannot pass a folder that is root's alone; root is told, and nothing is made.
func TestClosedParent(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root runs servers as another user")
	}
	closed := filepath.Join(folder(t), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	err := startFails(t, localpg.Config{Dir: filepath.Join(closed, "a", "b"), Template: true, Fast: true})
	if !strings.Contains(err.Error(), "may not enter "+closed) || !strings.Contains(err.Error(), "chmod o+x "+closed) {
		t.Errorf("got %v", err)
	}
	if got := names(t, closed); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
}

// TestOnlyTheDataAreTheServers: whoever gets the rights of the server's user cannot touch what root writes.
func TestOnlyTheDataAreTheServers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root runs servers as another user")
	}
	dir, err := os.MkdirTemp("", "cleave-localpg-") // closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server := start(t, localpg.Config{Dir: dir, Template: true, Fast: true, User: "nobody"})
	account, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	owners := func(path string) string {
		output, err := exec.Command("stat", "-c", "%u", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(output))
	}
	for path, want := range map[string]string{"": "0", "lock": "0", "server.log": "0", "data": account.Uid, "data/global": account.Uid} {
		if got := owners(filepath.Join(dir, path)); got != want {
			t.Errorf("%q belongs to %s, want %s", path, got, want)
		}
	}
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The data say whose they are.
	value(t, start(t, localpg.Config{Dir: dir}), "SELECT 1")
}

// TestCopiesDiffer: servers from one template have identifiers of their own, everywhere, and survive a crash with them.
func TestCopiesDiffer(t *testing.T) {
	servers := pgtest.StartN(t, 2)
	seen := map[string]bool{}
	for _, server := range servers {
		identifier := value(t, server, "SELECT system_identifier FROM pg_control_system()")
		seen[identifier] = true
		run(t, server, "CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n")
		if err := server.Crash(); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := value(t, server, "SELECT system_identifier FROM pg_control_system()"); got != identifier {
			t.Errorf("the identifier changed from %s to %s", identifier, got)
		}
		if got := value(t, server, "SELECT count(*) FROM kept"); got != "1000" {
			t.Errorf("got %s rows", got)
		}
	}
	if len(seen) != len(servers) {
		t.Errorf("the identifiers are %v", seen)
	}
}

// TestEveryInstallation starts a copy and a server of its own with every version at hand.
func TestEveryInstallation(t *testing.T) {
	for _, installation := range pgtest.Installations(t) {
		t.Run(installation.Version, func(t *testing.T) {
			for _, template := range []bool{true, false} {
				server := start(t, localpg.Config{Dir: folder(t), Bin: installation.Bin, Fast: true, Template: template})
				if got := value(t, server, "SELECT current_setting('server_version_num')::int / 10000"); got != strconv.Itoa(installation.Major) {
					t.Errorf("got %s", got)
				}
			}
		})
	}
}

// emptyCache makes a folder in which templates are looked for, and returns where they will be.
func emptyCache(t *testing.T) string {
	t.Helper()
	cache := folder(t)
	if err := os.Chmod(cache, 0o1777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("TMPDIR", cache)
	return filepath.Join(cache, "cleave", "templates")
}

// TestTemplateIsMadeOnce: many starts at once find no template, one makes it, all use it.
func TestTemplateIsMadeOnce(t *testing.T) {
	pgtest.Installations(t)
	root := folder(t)
	templates := emptyCache(t)
	var group sync.WaitGroup
	for i := range 3 {
		group.Go(func() {
			server, err := localpg.Start(t.Context(), localpg.Config{Dir: filepath.Join(root, strconv.Itoa(i)), Fast: true, Template: true})
			if err != nil {
				t.Error(err)
				return
			}
			if err := server.StopImmediately(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := names(t, templates); len(got) != 2 || got[1] != got[0]+".lock" {
		t.Errorf("the templates are %v", got)
	}
}

// TestPlantedTemplates: a folder of templates that others can write to is not used.
func TestPlantedTemplates(t *testing.T) {
	pgtest.Installations(t)
	root := folder(t)
	templates := emptyCache(t)
	if err := os.MkdirAll(templates, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(templates, 0o777); err != nil {
		t.Fatal(err)
	}
	err := startFails(t, localpg.Config{Dir: filepath.Join(root, "server"), Fast: true, Template: true})
	if !strings.Contains(err.Error(), templates) {
		t.Errorf("got %v", err)
	}
	if got := names(t, root); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
}
