//go:build unix

package main

import (
	"errors"
	"os"
	"syscall"
)

var brokenPipe = []os.Signal{syscall.SIGPIPE}

func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
