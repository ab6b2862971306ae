//go:build failpoints

package failpoint

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/failpoint/orders"
)

// TestMain lets the test's own program be the process that comes to a point, if it is told so.
func TestMain(m *testing.M) {
	if point := os.Getenv("POINT_TO_HIT"); point != "" {
		Hit("another")
		Hit(point)
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// run starts a process that comes to a point.
func run(t *testing.T, orderFolder string) *exec.Cmd {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), "POINT_TO_HIT=here", "CLEAVE_FAILPOINTS="+orderFolder)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return command
}

// end is how a process ended.
func end(command *exec.Cmd) syscall.WaitStatus {
	_ = command.Wait()
	return command.ProcessState.Sys().(syscall.WaitStatus)
}

func give(t *testing.T, orderFolder string, o orders.Order) {
	t.Helper()
	if err := orders.Give(orderFolder, "here", o); err != nil {
		t.Fatal(err)
	}
}

func TestAProcessObeys(t *testing.T) {
	for _, orderFolder := range []string{"", t.TempDir()} {
		if status := end(run(t, orderFolder)); status.ExitStatus() != 3 {
			t.Errorf("without an order: %v", status)
		}
	}
	orderFolder := t.TempDir()
	give(t, orderFolder, orders.Order{Act: orders.Kill})
	if status := end(run(t, orderFolder)); status.Signal() != syscall.SIGKILL {
		t.Errorf("told to kill itself: %v", status)
	}
	if status := end(run(t, orderFolder)); status.ExitStatus() != 3 {
		t.Errorf("after the order was obeyed: %v", status)
	}
	begin := time.Now()
	give(t, orderFolder, orders.Order{Act: orders.Sleep, For: 300 * time.Millisecond})
	if status := end(run(t, orderFolder)); status.ExitStatus() != 3 || time.Since(begin) < 300*time.Millisecond {
		t.Errorf("told to sleep: %v after %v", status, time.Since(begin))
	}
}

func TestAProcessIsStopped(t *testing.T) {
	orderFolder := t.TempDir()
	give(t, orderFolder, orders.Order{Act: orders.Stop})
	command := run(t, orderFolder)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(command.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("it was not stopped: %v, %v", status, err)
	}
	if err := command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if status := end(command); status.ExitStatus() != 3 {
		t.Errorf("when it goes on: %v", status)
	}
}

func TestDurationOfATest(t *testing.T) {
	defer func(before string) { folder = before }(folder)
	folder = t.TempDir()
	if err := orders.SetDuration(folder, "a", time.Second); err != nil {
		t.Fatal(err)
	}
	if Duration("a", time.Hour) != time.Second || Duration("b", time.Hour) != time.Hour {
		t.Errorf("a is %v, b is %v", Duration("a", time.Hour), Duration("b", time.Hour))
	}
}
