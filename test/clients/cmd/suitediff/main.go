// Command suitediff compares two runs of one Go test suite, each a file of go test's JSON events: one against plain
// PostgreSQL, one against the router. It prints how many tests passed, failed and were skipped in each, and which fail
// only in the second, with the first thing that each of them complained of.
//
// With one file it prints the numbers of that one and what failed. It runs nothing itself: pgx-suite.sh does. A test
// that never ended, because its process died, counts as failed. The command fails if a test fails only in the second run.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "suitediff:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, files []string) error {
	if len(files) != 1 && len(files) != 2 {
		return errors.New("give the file of one run, or of two")
	}
	var suites []suite
	for _, file := range files {
		s, err := readFile(file)
		if err != nil {
			return err
		}
		suites = append(suites, s)
	}
	there := suites[0]
	fmt.Fprintf(out, "there: %s\n", there.numbers())
	if len(suites) == 1 {
		there.list(out, "failed there", there.failed())
		return nil
	}
	here := suites[1]
	fmt.Fprintf(out, "here:  %s\n", here.numbers())
	onlyHere := slices.DeleteFunc(there.passed(), func(test string) bool { return here.outcomes[test] == "pass" || here.outcomes[test] == "skip" })
	skippedHere := slices.DeleteFunc(there.passed(), func(test string) bool { return here.outcomes[test] != "skip" })
	fmt.Fprintf(out, "of %d that pass there, %d pass here\n", len(there.passed()), len(there.passed())-len(onlyHere)-len(skippedHere))
	here.list(out, "pass there and are skipped here", skippedHere)
	here.list(out, "fail only here", onlyHere)
	if len(onlyHere) > 0 {
		return fmt.Errorf("%d tests fail only here", len(onlyHere))
	}
	return nil
}

// suite is one run. An outcome is pass, fail, skip, or run for a test that never ended.
type suite struct {
	outcomes   map[string]string
	complaints map[string]string // of a test, the first line that speaks of an error
}

func readFile(name string) (suite, error) {
	file, err := os.Open(name)
	if err != nil {
		return suite{}, fmt.Errorf("open a run: %w", err)
	}
	defer file.Close()
	return read(file)
}

// read takes the outcomes out of the events. Whole packages are no tests, except one that fails without any: it did not
// build.
func read(from io.Reader) (suite, error) {
	s := suite{outcomes: map[string]string{}, complaints: map[string]string{}}
	hasTests := map[string]bool{}
	decoder := json.NewDecoder(from)
	for {
		var event struct{ Action, Package, Test, Output string }
		err := decoder.Decode(&event)
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return suite{}, fmt.Errorf("read a run: %w", err)
		}
		name := event.Package + " " + event.Test
		switch event.Action {
		case "output":
			s.hear(name, event.Output)
			continue
		case "run", "pass", "fail", "skip":
		default:
			continue
		}
		switch {
		case event.Test != "":
			hasTests[event.Package] = true
			s.outcomes[name] = event.Action
		case event.Action == "fail" && !hasTests[event.Package]:
			s.outcomes[event.Package] = "fail"
		}
	}
}

// hear keeps a test's first line about an error: the server's own words if there are any, else the test's.
func (s suite) hear(test, line string) {
	line = strings.TrimSpace(line)
	fromServer := strings.Contains(line, "SQLSTATE")
	had, known := s.complaints[test]
	switch {
	case fromServer && !strings.Contains(had, "SQLSTATE"), !known && strings.Contains(line, "_test.go:"):
		s.complaints[test] = line
	}
}

func (s suite) passed() []string {
	return s.with(func(outcome string) bool { return outcome == "pass" })
}

func (s suite) failed() []string {
	return s.with(func(outcome string) bool { return outcome == "fail" || outcome == "run" })
}

func (s suite) with(wanted func(outcome string) bool) []string {
	var tests []string
	for test, outcome := range s.outcomes {
		if wanted(outcome) {
			tests = append(tests, test)
		}
	}
	slices.Sort(tests)
	return tests
}

func (s suite) numbers() string {
	skipped := s.with(func(outcome string) bool { return outcome == "skip" })
	return fmt.Sprintf("%d passed, %d failed, %d skipped", len(s.passed()), len(s.failed()), len(skipped))
}

func (s suite) list(out io.Writer, title string, tests []string) {
	if len(tests) > 0 {
		fmt.Fprintf(out, "%s:\n", title)
	}
	for _, test := range tests {
		fmt.Fprintf(out, "  %s\n", test)
		if complaint := s.complaints[test]; complaint != "" {
			fmt.Fprintf(out, "      %s\n", complaint)
		}
	}
}
