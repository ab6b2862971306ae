package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// smallDisk returns a folder on a file system of its own, of the given size.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	needsServers(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestEmbeddedStartsOnFullDisk(t *testing.T) {
	dir := smallDisk(t, "1m")
	_, err := StartEmbedded(t.Context(), EmbeddedConfig{Dir: dir, Fast: true})
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), dir) {
		t.Error(err)
	}
}

// TestEmbeddedDiskFills fills the disk under a running server: writers are told, and the server's process lives to say why.
func TestEmbeddedDiskFills(t *testing.T) {
	dir := smallDisk(t, "160m")
	etcd := startProcesses(t, 1, func(c *EmbeddedConfig) { c.Dir = dir })
	s := openStore(t, etcd.endpoints(), impatient)
	m := newMap(t, 2)
	err := s.Create(testContext(t), m)
	if err != nil {
		t.Fatal(err)
	}
	if err := fill(filepath.Join(dir, "filler")); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	for err == nil {
		changed := next(t, m, pinKeys(int(m.Version())*100_000, 5000))
		err = s.Swap(testContext(t), m, changed)
		m = changed
	}
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("a writer on a full disk: %v", err)
	}
	p := etcd.running[0]
	why, _ := p.out.ReadString('\n')
	_ = p.command.Wait()
	if code := p.command.ProcessState.ExitCode(); code != memberFailed || !strings.Contains(why, "no space left") {
		t.Errorf("the member ended with code %d, saying %q", code, why)
	}
}

// TestPausedMember stops one member of three without closing its connections: whoever asked it asks another.
func TestPausedMember(t *testing.T) {
	t.Parallel()
	etcd := startProcesses(t, 3)
	s := openStore(t, etcd.endpoints(), func(c *Config) { c.RequestTimeout = 2 * time.Second })
	m := newMap(t, 2)
	if err := s.Create(testContext(t), m); err != nil {
		t.Fatal(err)
	}
	f := follow(t, s)
	waitFor(t, f, m)
	paused := etcd.running[(etcd.leader(t)+1)%3].command.Process
	if err := paused.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 3 { // One of them at least goes to the paused one first.
		m = swap(t, s, m)
	}
	waitFor(t, f, m)
	if err := paused.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

func fill(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	for block := make([]byte, 1<<16); err == nil; {
		_, err = f.Write(block)
	}
	return err
}
