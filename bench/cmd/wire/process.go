package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cleavedb/cleave/bench/relay"
	"github.com/cleavedb/cleave/bench/stub"
)

// childFlag makes the program a child of itself: what it measures must be a process of its own, whose processor time can
// be told from the rest.
const childFlag = "-child"

// runChild serves on a free port, which it prints, until its standard input ends.
func runChild(ctx context.Context, kind, server string) error {
	serve := map[string]func(context.Context, net.Listener, string) error{"relay": relay.Serve, "stub": stub.Serve}[kind]
	if serve == nil {
		return fmt.Errorf("there is no child of the kind %q", kind)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // it ends with the process: nothing interrupts a read of the standard input
		_, _ = os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	fmt.Println(listener.Addr())
	return serve(ctx, listener, server)
}

// startChild starts the program as a child before the server.
func startChild(kind, server string) (*process, string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, "", fmt.Errorf("find this program: %w", err)
	}
	command := exec.Command(program, childFlag, kind, server)
	if _, err := command.StdinPipe(); err != nil { // closed by Wait, and by the end of this process
		return nil, "", err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	child, err := startProcess(command)
	if err != nil {
		return nil, "", err
	}
	address, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("start the %s: %w", kind, err), child.stop())
	}
	return child, strings.TrimSpace(address), nil
}

// process is one that this program started.
type process struct {
	command *exec.Cmd
	ended   chan struct{} // closed at its end
}

func startProcess(command *exec.Cmd) (*process, error) {
	if command.Stderr == nil {
		command.Stderr = os.Stderr
	}
	endWithParent(command)
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", command.Path, err)
	}
	p := &process{command: command, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = command.Wait() // how it ended is of no interest: it was told to
	}()
	return p, nil
}

func (p *process) pid() int { return p.command.Process.Pid }

// patience is how long a process may take to end when it is asked to, and a proxy to answer when it is started.
const patience = 20 * time.Second

// stop asks the process to end, and ends it if it does not. It may be called twice.
func (p *process) stop() error {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return nil
	case <-time.After(patience):
	}
	_ = p.command.Process.Kill()
	<-p.ended
	return fmt.Errorf("%s had to be killed", p.command.Path)
}

// processorTime is what the process has used so far, for itself and in the kernel. With no process it is 0.
func processorTime(pid int) (time.Duration, error) {
	if pid == 0 {
		return 0, nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("ask for the processor time: %w", err)
	}
	return parseStat(string(text))
}

// ticksPerSecond is the unit of /proc, whatever the kernel's own clock is.
const ticksPerSecond = 100

func parseStat(text string) (time.Duration, error) {
	const user, system = 11, 12 // counted from after the name, which may hold anything
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) <= system {
		return 0, fmt.Errorf("the process's state is cut short: %q", text)
	}
	var ticks int64
	for _, field := range []string{fields[user], fields[system]} {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the processor time: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// residentMemory is how many bytes of the process are in memory.
func residentMemory(pid int) (int64, error) {
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
