//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import "os"

// canSilence is false where a terminal cannot be kept from showing what is typed: the password is read as from a file.
func canSilence(*os.File) bool { return false }

func withoutEcho(_ *os.File, read func() error) error { return read() }
