package pgtest_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestNothingIsLeft: whatever a test did to its server, afterwards there is no process and no folder.
func TestNothingIsLeft(t *testing.T) {
	for name, use := range map[string]func(*testing.T, *localpg.Server) error{
		"running": func(*testing.T, *localpg.Server) error { return nil },
		"stopped": func(t *testing.T, s *localpg.Server) error { return s.Stop(t.Context()) },
		"crashed": func(_ *testing.T, s *localpg.Server) error { return s.Crash() },
	} {
		var server *localpg.Server
		t.Run(name, func(t *testing.T) {
			server = pgtest.Start(t)
			if err := use(t, server); err != nil {
				t.Fatal(err)
			}
		})
		if server == nil {
			t.Skip("no server was started")
		}
		select {
		case <-server.Exited():
		default:
			t.Errorf("%s: the server still runs", name)
		}
		if _, err := os.Stat(filepath.Dir(server.Dir())); !os.IsNotExist(err) {
			t.Errorf("%s: the folder is still there: %v", name, err)
		}
	}
}

// TestFolderOfTheTestStays: a folder that the test brings is the test's to remove.
func TestFolderOfTheTestStays(t *testing.T) {
	pgtest.Installations(t)
	dir, err := os.MkdirTemp("", "cleave-pgtest-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	t.Run("first", func(t *testing.T) { pgtest.StartWith(t, localpg.Config{Dir: dir}) })
	if _, err := os.Stat(filepath.Join(dir, "data", "PG_VERSION")); err != nil {
		t.Error(err)
	}
}
