package clients_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// programTime is how long a program may take before it counts as stuck.
const programTime = 2 * time.Minute

// outcome is what a program says of a case, in a line of the form "ok types", "not ok types: why" or "skip types: why".
type outcome struct{ verdict, name, why string }

// parseOutcomes reads the lines of that form and leaves out all others.
func parseOutcomes(output string) []outcome {
	var all []outcome
	for line := range strings.Lines(output) {
		for _, verdict := range []string{"ok", "not ok", "skip"} {
			rest, found := strings.CutPrefix(line, verdict+" ")
			if !found {
				continue
			}
			name, why, _ := strings.Cut(strings.TrimSpace(rest), ": ")
			all = append(all, outcome{verdict, name, why})
		}
	}
	return all
}

// runProgram runs the command against the target, with a subtest for each case it speaks of.
func runProgram(t *testing.T, to target, environment []string, name string, arguments ...string) (covered []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programTime)
	defer cancel()
	command := exec.CommandContext(ctx, name, arguments...)
	command.Dir = "programs"
	command.Env = append(to.environment(), environment...)
	var output, errors bytes.Buffer
	command.Stdout, command.Stderr = &output, &errors
	err := command.Run()
	for _, o := range parseOutcomes(output.String()) {
		covered = append(covered, o.name)
		t.Run(o.name, func(t *testing.T) {
			switch o.verdict {
			case "not ok":
				t.Error(o.why)
			case "skip":
				t.Skip(o.why)
			}
		})
	}
	if err != nil || t.Failed() {
		t.Errorf("%s: %v\n%s%s", name, err, output.String(), errors.String())
	}
	return covered
}

func TestParseOutcomes(t *testing.T) {
	got := parseOutcomes("hello\nok types\nnot ok copy: it: broke\nskip cursor: has none\nokay\n")
	want := []outcome{{"ok", "types", ""}, {"not ok", "copy", "it: broke"}, {"skip", "cursor", "has none"}}
	if len(got) != len(want) {
		t.Fatalf("got %v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %v, want %v", got[i], want[i])
		}
	}
}

func needsProgram(name string) func() string {
	return func() string {
		if _, err := exec.LookPath(name); err != nil {
			return err.Error()
		}
		return ""
	}
}

// pythonProgram is the distribution's, whose packages the libraries are.
const pythonProgram = "/usr/bin/python3"

func needsPython(modules ...string) func() string {
	return func() string {
		output, err := exec.Command(pythonProgram, "-c", "import "+strings.Join(modules, ", ")).CombinedOutput()
		if err != nil {
			return pythonProgram + ": " + err.Error() + ": " + string(output)
		}
		return ""
	}
}

func python(file string) func(t *testing.T, to target) []string {
	return func(t *testing.T, to target) []string {
		return runProgram(t, to, []string{"PYTHONDONTWRITEBYTECODE=1"}, pythonProgram, "-W", "error::ResourceWarning", file)
	}
}

// nodePath is where the library may be: with the project's tools, or the distribution's.
func nodePath() string {
	tools, err := filepath.Abs("../../.tools/clients/node_modules")
	if err != nil {
		return "NODE_PATH=/usr/share/nodejs"
	}
	return "NODE_PATH=" + tools + ":/usr/share/nodejs"
}

func needsNode() string {
	command := exec.Command("node", "-e", `require("pg")`)
	command.Env = append(os.Environ(), nodePath())
	if output, err := command.CombinedOutput(); err != nil {
		return "node: " + err.Error() + ": " + string(output)
	}
	return ""
}

func node(file string) func(t *testing.T, to target) []string {
	return func(t *testing.T, to target) []string {
		return runProgram(t, to, []string{nodePath()}, "node", file)
	}
}

// jdbcDriver is where the distribution puts it, with what it needs beside it.
const jdbcDriver = "/usr/share/java/postgresql.jar"

func needsJava() string {
	if _, err := os.Stat(jdbcDriver); err != nil {
		return err.Error()
	}
	return needsProgram("javac")()
}

func java(file string) func(t *testing.T, to target) []string {
	return func(t *testing.T, to target) []string {
		return runProgram(t, to, nil, "java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", "/usr/share/java/*", file)
	}
}
