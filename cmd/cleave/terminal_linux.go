package main

import "golang.org/x/sys/unix"

// How to ask for a terminal's settings, and to change them.
const (
	getTerminal = unix.TCGETS
	setTerminal = unix.TCSETS
)
