package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestEmbeddedConfigIsChecked(t *testing.T) {
	for name, config := range map[string]EmbeddedConfig{
		"folder":   {},
		"negative": {Dir: t.TempDir(), Quota: -1},
		"peers":    {Dir: t.TempDir(), Name: "a", Peers: map[string]int{"b": 1}},
	} {
		if _, err := StartEmbedded(t.Context(), config); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEmbeddedFolderInUse(t *testing.T) {
	etcd := startMember(t)
	if _, err := StartEmbedded(t.Context(), EmbeddedConfig{Dir: etcd.dir, Fast: true}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second server in the same folder: %v", err)
	}
	etcd.e.Close()
	etcd.e.Close()
	etcd.start(t) // The folder is free again, and so is the port.
}

func TestEmbeddedPortInUse(t *testing.T) {
	etcd := startMember(t)
	_, err := StartEmbedded(t.Context(), EmbeddedConfig{Dir: t.TempDir(), ClientPort: etcd.port, Fast: true})
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a second server on the same port: %v", err)
	}
}

func TestEmbeddedFolderIsNone(t *testing.T) {
	needsServers(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := StartEmbedded(t.Context(), EmbeddedConfig{Dir: file}); err == nil || !strings.Contains(err.Error(), "make data folder") {
		t.Error(err)
	}
}

// TestEmbeddedDoesNotComeUp starts one of two members: without the other it never serves.
func TestEmbeddedDoesNotComeUp(t *testing.T) {
	needsServers(t)
	ports := freePorts(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	config := EmbeddedConfig{Dir: t.TempDir(), Name: "a", Peers: map[string]int{"a": ports[0], "b": ports[1]}, Fast: true}
	if _, err := StartEmbedded(ctx, config); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestEmbeddedSurvivesKill kills a member's process in the middle of writing and opens its folder again.
func TestEmbeddedSurvivesKill(t *testing.T) {
	etcd := startProcesses(t, 1)
	s := openStore(t, etcd.endpoints())
	m := newMap(t, 4)
	if err := s.Create(testContext(t), m); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		m = swap(t, s, m)
		etcd.kill(0)
		etcd.start(t)
		if got := readCold(t, etcd); !equalMaps(got, m) {
			t.Fatalf("version %d came back, %d was acknowledged", got.Version(), m.Version())
		}
	}
}

// TestEmbeddedLog gives etcd something to complain about.
func TestEmbeddedLog(t *testing.T) {
	needsServers(t)
	file := filepath.Join(t.TempDir(), "etcd.log")
	e, err := StartEmbedded(t.Context(), EmbeddedConfig{Dir: t.TempDir(), Fast: true, LogFile: file})
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
	text, err := os.ReadFile(file)
	if err != nil || len(text) == 0 || strings.Contains(string(text), `"level":"info"`) {
		t.Errorf("the log is %q: %v", text, err)
	}
}
