//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// canSilence says whether the file is a terminal that can be kept from showing what is typed.
func canSilence(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), getTerminal)
	return err == nil
}

// withoutEcho runs the function while the terminal does not show what is typed. It shows it again however that ends, Ctrl-C
// included, which then ends the process as ever.
func withoutEcho(terminal *os.File, read func() error) error {
	fd := int(terminal.Fd())
	before, err := unix.IoctlGetTermios(fd, getTerminal)
	if err != nil {
		return fmt.Errorf("look at the terminal: %w", err)
	}
	silent := *before
	silent.Lflag &^= unix.ECHO
	silent.Lflag |= unix.ICANON | unix.ISIG
	silent.Iflag |= unix.ICRNL
	restore := sync.OnceValue(func() error { return unix.IoctlSetTermios(fd, setTerminal, before) })
	interrupted, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	leave := context.AfterFunc(interrupted, func() {
		_ = restore()
		os.Exit(exitFailed)
	})
	defer leave()
	if err := unix.IoctlSetTermios(fd, setTerminal, &silent); err != nil {
		return fmt.Errorf("silence the terminal: %w", err)
	}
	err = read()
	if restoreErr := restore(); err == nil && restoreErr != nil {
		err = fmt.Errorf("let the terminal show again what is typed: %w", restoreErr)
	}
	return err
}
