//go:build !unix

package main

import "os"

var brokenPipe []os.Signal

func isBrokenPipe(error) bool { return false }
