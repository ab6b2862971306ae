package localpg_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

// eventually waits until the query answers as wanted: replication takes its time.
func eventually(t *testing.T, server *localpg.Server, sql, want string) {
	t.Helper()
	got := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if got = value(t, server, sql); got == want {
			return
		}
	}
	t.Fatalf("%s: still %s, want %s", sql, got, want)
}

func startReplica(t *testing.T, primary *localpg.Server, config localpg.Config) *localpg.Server {
	t.Helper()
	replica, err := localpg.StartReplica(t.Context(), primary, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := replica.StopImmediately(); err != nil {
			t.Error(err)
		}
	})
	return replica
}

// TestReplica follows a replica's life: copied, following, away and back, following its primary to another port, promoted.
func TestReplica(t *testing.T) {
	needBasebackup(t)
	root := folder(t)
	password := filepath.Join(root, "password")
	if err := os.WriteFile(password, []byte(`pa:ss\word'`), 0o600); err != nil {
		t.Fatal(err)
	}
	primaryConfig := localpg.Config{
		Dir: filepath.Join(root, "primary"), Fast: true, PasswordFile: password, Superuser: "my self",
		Settings: map[string]string{"max_connections": "150"}, // which a replica must not fall below
	}
	primary := start(t, primaryConfig)
	run(t, primary, "CREATE TABLE rows AS SELECT 1 AS n")

	config := localpg.Config{Dir: filepath.Join(root, "re plica"), Fast: true}
	replica := startReplica(t, primary, config)
	run(t, primary, "INSERT INTO rows VALUES (2)")
	eventually(t, replica, "SELECT count(*) FROM rows", "2")
	eventually(t, primary, "SELECT count(*) FROM pg_replication_slots WHERE active", "1")
	if a, b := value(t, primary, "SELECT system_identifier FROM pg_control_system()"), value(t, replica, "SELECT system_identifier FROM pg_control_system()"); a != b {
		t.Errorf("the replica has the identifier %s, its primary %s", b, a)
	}

	if err := replica.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, primary, "INSERT INTO rows VALUES (3)")
	if err := primary.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	primary = start(t, primaryConfig) // on another port
	replica = startReplica(t, primary, config)
	eventually(t, replica, "SELECT count(*) FROM rows", "3")

	if err := replica.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, replica, "INSERT INTO rows VALUES (4)")
	if err := replica.Promote(t.Context()); err == nil {
		t.Error("a primary was promoted")
	}
	if err := replica.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := value(t, replica, "SELECT count(*) || ' ' || pg_is_in_recovery() FROM rows"); got != "4 false" {
		t.Errorf("got %s", got)
	}
	if got := value(t, primary, "SELECT count(*) FROM rows"); got != "3" {
		t.Errorf("the old primary has %s rows", got)
	}
}

// TestFailedReplicaLeavesNothing: neither a folder, nor a slot that would keep the primary's log for ever.
func TestFailedReplicaLeavesNothing(t *testing.T) {
	needBasebackup(t)
	primary := pgtest.Start(t)
	root := folder(t)
	_, err := localpg.StartReplica(t.Context(), primary, localpg.Config{
		Dir: filepath.Join(root, "replica"), Fast: true, Settings: map[string]string{"shared_buffers": "1PB"},
	})
	if err == nil || !strings.Contains(err.Error(), "shared_buffers") {
		t.Errorf("got %v", err)
	}
	if got := names(t, root); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
	if got := value(t, primary, "SELECT count(*) FROM pg_replication_slots"); got != "0" {
		t.Errorf("%s slots are left", got)
	}
}

func TestReplicaForATest(t *testing.T) {
	needBasebackup(t)
	primary := pgtest.Start(t)
	replica := pgtest.StartReplica(t, primary)
	if got := value(t, replica, "SELECT pg_is_in_recovery()"); got != "true" {
		t.Errorf("got %s", got)
	}
}

// needBasebackup skips a test where the programs come without it, as some packages do.
func needBasebackup(t *testing.T) {
	t.Helper()
	if _, err := localpg.Basebackup(pgtest.Installations(t)[0], t.Context()); err != nil {
		t.Skip(err)
	}
}
