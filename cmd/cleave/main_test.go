package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"cleave": func() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) },
	})
}

// TestScripts runs the binary as a person would: a script a topic under testdata/script.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireExplicitExec: true,
		Cmds:      map[string]func(*testscript.TestScript, bool, []string){"wrong": wrong, "cluster": startCluster, "recorded": waitUntilRecorded, "sql": runSQL},
		Condition: scriptCondition,
	})
}

// wrong runs a command that must refuse its input: exit code 2, one line on stderr, nothing on stdout.
func wrong(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: wrong command [args]")
	}
	err := ts.Exec(args[0], args[1:]...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitUsage {
		ts.Fatalf("%v ended with %v, want exit code %d", args, err, exitUsage)
	}
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("%v printed %q", args, out)
	}
	if lines := strings.Count(ts.ReadFile("stderr"), "\n"); lines != 1 {
		ts.Fatalf("%v said %d lines, want one", args, lines)
	}
}
