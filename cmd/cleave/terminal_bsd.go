//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package main

import "golang.org/x/sys/unix"

// How to ask for a terminal's settings, and to change them.
const (
	getTerminal = unix.TIOCGETA
	setTerminal = unix.TIOCSETA
)
