package main

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

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
		Cmds:      map[string]func(*testscript.TestScript, bool, []string){"wrong": wrong, "cluster": startCluster, "recorded": waitUntilRecorded, "sql": runSQL, "take": take, "until": until},
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

// take is the script command 'take VARIABLE REGEXP': what the expression's group has found in the output of the last command.
func take(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: take variable regexp")
	}
	form, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	found := form.FindStringSubmatch(ts.ReadFile("stdout"))
	if len(found) != 2 {
		ts.Fatalf("%q was not found in\n%s", args[1], ts.ReadFile("stdout"))
	}
	ts.Setenv(args[0], found[1])
}

// until is the script command 'until REGEXP command [args]': it runs a command again and again until its output has what is looked for.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until regexp command [args]")
	}
	form, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		ts.Check(ts.Exec(args[1], args[2:]...))
		if form.MatchString(ts.ReadFile("stdout")) {
			return
		}
	}
	ts.Fatalf("%q does not come", args[0])
}
