package rig

import (
	"flag"
	"slices"
	"strings"
)

// Quick is what a program's flag -quick stands for: flags and their values.
type Quick map[string]string

// Usage lists the flags.
func (q Quick) Usage() string {
	var usage []string
	for name, value := range q {
		usage = append(usage, "-"+name+" "+value)
	}
	slices.Sort(usage)
	return strings.Join(usage, " ")
}

// Preset sets what was not given by hand.
func (q Quick) Preset(flags *flag.FlagSet) error {
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range q {
		if !given[name] {
			if err := flags.Set(name, value); err != nil {
				return err
			}
		}
	}
	return nil
}
