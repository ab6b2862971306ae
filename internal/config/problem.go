package config

import (
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that must be mended.
type Problem struct {
	Place   string // file and line, or environment variable; empty where the value is a default
	Field   string // its path; empty if it is about the file as a whole
	Message string // what is wrong and what to do

	// about are other fields that it has to do with: the one whose value makes this one wrong, or the one that was meant.
	about []string
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
	*all = append(*all, Problem{Place: place, Field: field, Message: fmt.Sprintf(format, args...)})
}

// addAbout adds a problem that has to do with another field too.
func (all *Problems) addAbout(other, place, field, format string, args ...any) {
	all.add(place, field, format, args...)
	(*all)[len(*all)-1].about = []string{other}
}

// outside returns the problems that have nothing to do with fields that could not be read: of those it is only known that
// they could not, and what is asked of their values, or of others because of them, may be answered by what was meant.
func (all Problems) outside(unread Problems) Problems {
	return slices.DeleteFunc(slices.Clone(all), func(p Problem) bool {
		return slices.ContainsFunc(unread, p.concerns)
	})
}

// concerns tells whether both have to do with one field, or one of them with a section that the other's field is in.
func (p Problem) concerns(other Problem) bool {
	for _, field := range append(p.about, p.Field) {
		for _, wrong := range append(other.about, other.Field) {
			if field == wrong || strings.HasPrefix(field, wrong+".") {
				return true
			}
		}
	}
	return false
}
