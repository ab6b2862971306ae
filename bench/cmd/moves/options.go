package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/bench/rig"
)

type options struct {
	folder  string
	rows    int
	rounds  int
	paces   []int
	clients int
	parts   []string
	streams []int
}

// allParts are what can be asked for.
var allParts = []string{"copy", "pause", "curve", "load"}

// quick is what -quick stands for: a minute, and the part that is measured beside a peer. The others take minutes each.
var quick = rig.Quick{"rows": "100000", "rounds": "3", "parts": "copy"}

func parseOptions(arguments []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("moves", flag.ContinueOnError)
	parts := flags.String("parts", strings.Join(allParts, ","), "which parts to run")
	flags.StringVar(&o.folder, "folder", "", "where servers have their data (default: the system's temporary folder)")
	flags.IntVar(&o.rows, "rows", 500_000, "rows of the table, of about 200 bytes each")
	flags.IntVar(&o.rounds, "rounds", 5, "how often each part is measured")
	flags.IntVar(&o.clients, "clients", 8, "clients that write")
	streams := flags.String("streams", "1,2", "how many streams copies have that are compared with as many pipes; the first is what the other parts use")
	paces := flags.String("paces", "500,2000", "writes a second, for pause and curve")
	quickly := flags.Bool("quick", false, "a short run: "+quick.Usage())
	if err := flags.Parse(arguments); err != nil {
		return options{}, err
	}
	if *quickly {
		if err := quick.Preset(flags); err != nil {
			return options{}, err
		}
	}
	o.parts = list(*parts)
	var err error
	if o.streams, err = numbers("streams", *streams); err != nil {
		return o, err
	}
	if o.paces, err = numbers("paces", *paces); err != nil {
		return o, err
	}
	return o, o.check()
}

// list takes a text with commas apart.
func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// numbers reads numbers above 0 with commas between them.
func numbers(flag, text string) (all []int, err error) {
	for _, word := range list(text) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-%s: %q is not a number above 0", flag, word)
		}
		all = append(all, n)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("-%s is empty", flag)
	}
	return all, nil
}

func (o options) check() error {
	if len(o.parts) == 0 {
		return errors.New("-parts is empty")
	}
	for _, part := range o.parts {
		if !slices.Contains(allParts, part) {
			return fmt.Errorf("-parts: %q is none of %s", part, strings.Join(allParts, ", "))
		}
	}
	if o.rows < 1 || o.rounds < 1 || o.clients < 1 {
		return errors.New("-rows, -rounds and -clients are at least 1")
	}
	return nil
}
