// Command cleave is the one binary of Cleave: it runs a process of a cluster or a whole local one, asks a running cluster
// over its HTTP API, and plans and explains placement.
//
// Each subcommand has a file. They read flags, call a library, and print: no decision about data is made here.
// Input that is wrong ends with one line on stderr and exit code 2, anything else that fails with exit code 1.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
)

// version is set by the build.
var version = "devel"

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// run executes one command line and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	// A reader that has seen enough, such as head, is no reason to die without running the deferred clean-ups.
	if len(brokenPipe) > 0 { // ignoring no signal in particular would ignore them all
		signal.Ignore(brokenPipe...)
	}
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil || isBrokenPipe(err) {
		return exitOK
	}
	fmt.Fprintln(stderr, "cleave:", oneLine(err))
	explain(stderr, err)
	var wrong *inputError
	if errors.As(err, &wrong) {
		return exitUsage
	}
	return exitFailed
}

// inputError is a mistake in what the user typed or gave.
type inputError struct{ error }

func (e *inputError) Unwrap() error { return e.error }

// wrongInput marks an error as the user's to mend; nil stays nil.
func wrongInput(err error) error {
	if err == nil {
		return nil
	}
	return &inputError{err}
}

func wrongInputf(format string, args ...any) error {
	return wrongInput(fmt.Errorf(format, args...))
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
