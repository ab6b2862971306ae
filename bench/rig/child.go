package rig

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/cleavedb/cleave/bench/relay"
	"github.com/cleavedb/cleave/bench/stub"
)

// ChildFlag makes a program a child of itself: what it measures must be a process of its own, whose processor time can
// be told from the rest. A program that uses [StartChild] calls [RunChild] if its arguments are this flag, the kind and the server.
const ChildFlag = "-child"

// RunChild serves on a free port, which it prints, until its standard input ends. There are the kinds relay and stub.
func RunChild(ctx context.Context, kind, server string) error {
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

// StartChild starts the program as a child before the server, and returns its address too.
func StartChild(kind, server string) (*Process, string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, "", fmt.Errorf("find this program: %w", err)
	}
	command := exec.Command(program, ChildFlag, kind, server)
	if _, err := command.StdinPipe(); err != nil { // closed by Wait, and by the end of this process
		return nil, "", err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	child, err := Start(command)
	if err != nil {
		return nil, "", err
	}
	address, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("start the %s: %w", kind, err), child.Stop())
	}
	return child, strings.TrimSpace(address), nil
}
