package dev

import (
	"context"
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
	return Config{Dir: filepath.Join(pgtest.Folder(t), "cluster"), Shards: 1, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
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
	for name, sql := range map[string]string{
		"empty": "", "full": "CREATE TABLE precious (a int)", "stray": "CREATE SCHEMA cleave; CREATE TABLE cleave.precious (a int)",
		"elsewhere": "CREATE DATABASE other TEMPLATE template0",
	} {
		spec, err := m.Provision(t.Context(), topology.ShardSpec{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		if sql != "" {
			execute(t, spec, "cleave", sql)
		}
		if name == "elsewhere" {
			execute(t, spec, "other", "CREATE TABLE precious (a int)")
		}
		untouched, err := m.Untouched(t.Context(), name)
		if err != nil || untouched != (name == "empty") {
			t.Errorf("%s: untouched %v, %v", name, untouched, err)
		}
		kept, err := m.Retire(t.Context(), name)
		if err != nil || (kept != "") != (name != "empty") {
			t.Errorf("%s: kept %q, %v", name, kept, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(m.Dir(), "*.removed-*"))
	if err != nil || len(left) != 3 {
		t.Errorf("left: %v, %v", left, err)
	}
	for _, wrong := range []string{"etcd", "password", "shard1", "a-replica1"} {
		if _, err := m.Provision(t.Context(), topology.ShardSpec{Name: wrong}); err == nil {
			t.Errorf("a shard was named %s", wrong)
		}
	}
	if _, err := m.Retire(t.Context(), "nobody"); err != nil {
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

func execute(t *testing.T, spec topology.ShardSpec, database, sql string) {
	t.Helper()
	password, err := spec.Password.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), "postgres://cleave:"+password+"@"+spec.Primary.Address+"/"+database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for statement := range strings.SplitSeq(sql, ";") {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLostPartsAreMissed takes away what a cluster cannot do without. Nothing may take its place by itself.
func TestLostPartsAreMissed(t *testing.T) {
	for part, want := range map[string]string{"shard1": "data of shard1 are gone", "password": "password is gone"} {
		t.Run(part, func(t *testing.T) {
			c := config(t)
			if err := open(t, c).Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(c.Dir, part), filepath.Join(c.Dir, "lost")); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v", err)
			}
			if err := os.Rename(filepath.Join(c.Dir, "lost"), filepath.Join(c.Dir, part)); err != nil {
				t.Fatal(err)
			}
			open(t, c)
		})
	}
}

// TestTablesDoNotLandInOurSchema creates one as the role that is named like it.
func TestTablesDoNotLandInOurSchema(t *testing.T) {
	m := open(t, config(t))
	spec := m.Specs()[0]
	execute(t, spec, "cleave", "CREATE SCHEMA cleave; CREATE TABLE mine (a int)")
	execute(t, spec, "cleave", "SELECT a FROM public.mine")
}

func TestNothingIsStartedWithoutPostgreSQL(t *testing.T) {
	c := config(t)
	t.Setenv("CLEAVE_PG_BIN", "/nowhere")
	var said []string
	c.Progress = func(step string) { said = append(said, step) }
	if _, err := Open(t.Context(), c); err == nil || len(said) != 0 || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v, after %v", err, said)
	}
}
