package config

import (
	"fmt"
	"strings"
)

// Problem is one thing that must be mended.
type Problem struct {
	Place   string // file and line, or environment variable; empty where the value is a default
	Field   string // its path; empty if it is about the file as a whole
	Message string // what is wrong and what to do
}

// String is one line.
func (p Problem) String() string {
	parts := make([]string, 0, 3)
	for _, part := range []string{p.Place, p.Field, p.Message} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// Problems is the error of [Load] and [Config.Check]: all that was found.
type Problems []Problem

func (all Problems) Error() string {
	lines := make([]string, len(all))
	for i, p := range all {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// err is nil if there are none.
func (all Problems) err() error {
	if len(all) == 0 {
		return nil
	}
	return all
}

func (all *Problems) add(place, field, format string, args ...any) {
	*all = append(*all, Problem{place, field, fmt.Sprintf(format, args...)})
}

// outside returns the problems in other parts of the file than these others are in: what is wrong with a field that could
// not be read is only that.
func (all Problems) outside(others Problems) Problems {
	part := func(p Problem) string {
		first, _, _ := strings.Cut(p.Field, ".")
		return first
	}
	taken := map[string]bool{}
	for _, p := range others {
		taken[part(p)] = true
	}
	var rest Problems
	for _, p := range all {
		if !taken[part(p)] {
			rest = append(rest, p)
		}
	}
	return rest
}
