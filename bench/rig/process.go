package rig

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is one that this program started.
type Process struct {
	command *exec.Cmd
	ended   chan struct{} // closed at its end
}

// Start starts a process. What it says goes to the error output, unless the command says where.
func Start(command *exec.Cmd) (*Process, error) {
	if command.Stderr == nil {
		command.Stderr = os.Stderr
	}
	endWithParent(command)
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", command.Path, err)
	}
	p := &Process{command: command, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = command.Wait() // how it ended is of no interest: it was told to
	}()
	return p, nil
}

// PID is the process's number.
func (p *Process) PID() int { return p.command.Process.Pid }

// Patience is how long a process may take to end when it is asked to, and a proxy to answer when it is started.
const Patience = 20 * time.Second

// Stop asks the process to end, and ends it if it does not. It may be called twice.
func (p *Process) Stop() error {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return nil
	case <-time.After(Patience):
	}
	_ = p.command.Process.Kill()
	<-p.ended
	return fmt.Errorf("%s had to be killed", p.command.Path)
}

// FreePort returns a port that nobody listens on now.
func FreePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil //nolint:forcetypeassert // it is TCP
}

// Eventually tries until it succeeds or the context ends.
func Eventually(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ProcessorTime is what the process has used so far, for itself and in the kernel. With no process it is 0.
func ProcessorTime(pid int) (time.Duration, error) {
	if pid == 0 {
		return 0, nil
	}
	used, err := readUsage(pid)
	return used.own, err
}

// FamilyTime is what the process and its children have used so far, also those that have ended: a PostgreSQL server is its first process,
// whose children do the work.
func FamilyTime(pid int) (time.Duration, error) {
	first, err := readUsage(pid)
	if err != nil {
		return 0, err
	}
	total := first.own + first.gone
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended since, and is counted with its parent the next time
		}
		if used, err := parseUsage(string(text)); err == nil && used.parent == pid {
			total += used.own + used.gone
		}
	}
	return total, nil
}

// ResidentMemory is how many bytes of the process are in memory.
func ResidentMemory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("ask for the memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kilobytes, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read the memory: %w", err)
			}
			return kilobytes << 10, nil
		}
	}
	return 0, fmt.Errorf("process %d has no memory", pid)
}

// usage is what the kernel has counted of a process.
type usage struct {
	parent int
	own    time.Duration // of itself
	gone   time.Duration // of its children that have ended
}

func readUsage(pid int) (usage, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, fmt.Errorf("ask for the processor time: %w", err)
	}
	return parseUsage(string(text))
}

// ticksPerSecond is the unit of /proc, whatever the kernel's own clock is.
const ticksPerSecond = 100

func parseUsage(text string) (usage, error) {
	const parent, own, gone = 1, 11, 13 // counted from after the name, which may hold anything; the times are two numbers each
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < gone+2 {
		return usage{}, fmt.Errorf("the process's state is cut short: %q", text)
	}
	numbers := make([]int64, gone+2)
	for i := range numbers {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil && i != 0 { // the first is a letter
			return usage{}, fmt.Errorf("read the process's state: %w", err)
		}
		numbers[i] = n
	}
	ticks := func(at int) time.Duration {
		return time.Duration(numbers[at]+numbers[at+1]) * time.Second / ticksPerSecond
	}
	return usage{parent: int(numbers[parent]), own: ticks(own), gone: ticks(gone)}, nil
}
