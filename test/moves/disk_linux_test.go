package moves_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/faults"
)

// smallDisk is a file system of its own, which can be filled.
type smallDisk struct{ folder string }

func newSmallDisk(t *testing.T, size string) smallDisk {
	t.Helper()
	pgtest.Installations(t) // skips, before anything is mounted
	d := smallDisk{filepath.Join(pgtest.Folder(t), "disk")}
	if err := os.Mkdir(d.folder, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", d.folder, "tmpfs", 0, "mode=0711,size="+size); err != nil {
		if os.Getuid() == 0 && os.Getenv("CLEAVE_REQUIRE_POSTGRES") != "" {
			t.Fatalf("mount a small disk: %v", err)
		}
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.folder, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d
}

// fill leaves no space, also where others give some back, until the function that it returns is called.
func (d smallDisk) fill(t *testing.T) (empty func()) {
	t.Helper()
	file, err := os.Create(filepath.Join(d.folder, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var filling sync.WaitGroup
	filling.Go(func() {
		for block := make([]byte, 1<<16); ; {
			if _, err := file.Write(block); err == nil {
				continue
			}
			select {
			case <-time.After(5 * time.Millisecond):
			case <-stop:
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		close(stop)
		filling.Wait()
		if err := errors.Join(file.Close(), os.Remove(file.Name())); err != nil {
			t.Error(err)
		}
	})
}

// What a server is told to write until its disk is full: a table, which it refuses then, or its log, without which it cannot go on and ends.
const (
	tables = "CREATE TEMPORARY TABLE IF NOT EXISTS filler (t text); INSERT INTO filler SELECT repeat(i::text, 1000) FROM generate_series(1, 1000) AS i"
	log    = "SELECT pg_logical_emit_message(false, 'filler', repeat('f', 1000000))"
)

// feels has a server write until it has met the end of its disk: one that has room in its tables and in its log may not for long.
func feels(t *testing.T, one *faults.Shard, what string) {
	t.Helper()
	conn, err := one.Connect(t.Context())
	if err != nil {
		return // it has
	}
	defer conn.Close(context.Background())
	for deadline := time.Now().Add(patience); err == nil; _, err = conn.Exec(t.Context(), what) {
		if time.Now().After(deadline) {
			t.Fatal("there is still space")
		}
	}
	t.Logf("the server says: %v", err)
}

// TestADiskIsFull, of the target or of the source, and the server may end for it: the move waits or says that it cannot go on, nobody loses a row, and it goes on when there is space again: line M34.
func TestADiskIsFull(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	disk := newSmallDisk(t, "200m")
	s := newStage(t, faults.Config{Routers: 2, Folders: []string{"", filepath.Join(disk.folder, "server")}}, 4)
	s.load.Faulty = true
	s.load.Start(t.Context())
	defer s.load.Stop()
	full := s.Shards[1]
	for _, c := range []struct {
		name, point string
		from, to    string
		fills       string
		// says: it cannot go on without writing there, and says so.
		says   bool
		always bool // also where there is not much time
	}{
		{"of the target, copying", "move.copy.rows", "s1", "s2", tables, true, true},
		{"of the source, copying", "move.copy.rows", "s2", "s1", log, false, false},
		{"of the target, catching up", "move.catching-up", "s1", "s2", tables, true, false},
		{"of the source, cleaning", "move.cleaning.rows", "s2", "s1", tables, false, false},
		{"of the target, switching", "move.switch.close", "s1", "s2", log, false, false},
		{"of the source, switching", "move.switch.close", "s2", "s1", log, false, false},
		{"of the target, copying, and it ends", "move.copy.rows", "s1", "s2", log, true, false},
	} {
		if !c.always && !thorough.Asked() {
			continue
		}
		ok := t.Run(c.name, func(t *testing.T) {
			id := s.heldAt(t, c.point, api.StartMove{From: c.from, To: c.to, Streams: 1}) // or another stream would have copied by then
			empty := disk.fill(t)
			defer empty()
			feels(t, full, c.fills)
			s.release(t, c.point)
			if c.says {
				m := s.until(t, id, "it says what is wrong", func(m api.Move) bool { return m.Error != "" })
				t.Logf("the move says in phase %s: %s", m.Phase, m.Error)
			}
			time.Sleep(2 * time.Second) // it does what it can
			empty()
			s.eventually(t, "the server is back", func() error {
				if err := full.Restart(t.Context()); err != nil { // if it has ended
					return err
				}
				conn, err := full.Connect(t.Context())
				if err == nil {
					err = conn.Close(t.Context())
				}
				return err
			})
			s.eventually(t, "the move has ended", func() error {
				m, err := s.Routers[0].API().Move(t.Context(), id)
				switch {
				case err != nil || m.Phase == "done":
					return err
				case m.Stopped != "" && c.point == "move.copy.rows": // that begins anew by itself
					t.Fatalf("it has stopped: %s", m.Stopped)
				case m.Stopped != "":
					s.wish(t, id, "resume")
				}
				return errors.New(m.Phase + ": " + m.Error)
			})
			s.agrees(t)
		})
		if !ok {
			break
		}
	}
	s.finish(t)
}
