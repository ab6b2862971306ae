package dev

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// config is a cluster of one shard in a folder that the servers' user can enter.
func config(t *testing.T) Config {
	t.Helper()
	pgtest.Installations(t)
	dir, err := os.MkdirTemp("", "cleave-machine-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return Config{Dir: filepath.Join(dir, "cluster"), Shards: 1, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

func open(t *testing.T, c Config) *Machine {
	t.Helper()
	m, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func TestTooLittleDiskStartsNothing(t *testing.T) {
	c := config(t)
	c.free = func(string) (uint64, error) { return 100 << 20, nil }
	_, err := Open(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "too little disk") || !strings.Contains(err.Error(), "100 MB") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(c.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was made: %v", err)
	}
	// A folder that holds a cluster is not removed, whatever fails.
	c.free = nil
	if err := open(t, c).Close(); err != nil {
		t.Fatal(err)
	}
	c.free = func(string) (uint64, error) { return 1 << 20, nil }
	if _, err := Open(t.Context(), c); err == nil {
		t.Error("it was opened without room to recover")
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "shard1")); err != nil {
		t.Errorf("the cluster was removed: %v", err)
	}
}

func TestAPortThatIsTakenByNowIsReplaced(t *testing.T) {
	c := config(t)
	m := open(t, c)
	before := m.Specs()[0].Primary.Address
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", before)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	m = open(t, c)
	if now := m.Specs()[0].Primary.Address; now == before {
		t.Errorf("still at %s", now)
	}
	if !m.Existed() {
		t.Error("the folder is taken for a new one")
	}
}

func TestTheServersAskForThePassword(t *testing.T) {
	m := open(t, config(t))
	address := m.Specs()[0].Primary.Address
	if conn, err := pgx.Connect(t.Context(), "postgres://cleave:wrong@"+address+"/cleave"); err == nil {
		_ = conn.Close(t.Context())
		t.Error("any password will do")
	}
	password, err := m.Specs()[0].Password.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), "postgres://cleave:"+password+"@"+address+"/cleave")
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close(t.Context())
}

func TestARemovedShardsTablesAreKept(t *testing.T) {
	m := open(t, config(t))
	for _, name := range []string{"empty", "full"} {
		spec, err := m.Provision(t.Context(), topology.ShardSpec{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		if name == "full" {
			password, _ := spec.Password.Resolve()
			conn, err := pgx.Connect(t.Context(), "postgres://cleave:"+password+"@"+spec.Primary.Address+"/cleave")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(t.Context(), "CREATE TABLE precious (a int)"); err != nil {
				t.Fatal(err)
			}
			_ = conn.Close(t.Context())
		}
		if err := m.Retire(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	left, err := filepath.Glob(filepath.Join(m.Dir(), "*.removed-*"))
	if err != nil || len(left) != 1 || !strings.Contains(left[0], "full.removed-") {
		t.Errorf("left: %v, %v", left, err)
	}
	for _, wrong := range []string{"etcd", "password", "shard1", "a-replica1"} {
		if _, err := m.Provision(t.Context(), topology.ShardSpec{Name: wrong}); err == nil {
			t.Errorf("a shard was named %s", wrong)
		}
	}
	if err := m.Retire(t.Context(), "nobody"); err != nil {
		t.Errorf("a server that was not made here: %v", err)
	}
}

func TestSettingsThatMakeNoSense(t *testing.T) {
	for _, c := range []Config{{}, {Dir: "x", Shards: -1}, {Dir: "x", Shards: 65}, {Dir: "x", Replicas: 4}} {
		if _, err := Open(t.Context(), c); err == nil {
			t.Errorf("%+v was opened", c)
		}
	}
}
