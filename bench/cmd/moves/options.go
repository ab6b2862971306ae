package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
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
	streams int
}

// allParts are what can be asked for.
var allParts = []string{"copy", "pause", "curve", "load"}

// quick is what -quick stands for: a minute, and the part that is measured beside a peer. The others take minutes each.
var quick = rig.Quick{"rows": "100000", "rounds": "3", "parts": "copy"}

func parseOptions(arguments []string) (options, error) {
	o := options{paces: []int{500, 2000}}
	flags := flag.NewFlagSet("moves", flag.ContinueOnError)
	parts := flags.String("parts", strings.Join(allParts, ","), "which parts to run")
	flags.StringVar(&o.folder, "folder", "", "where servers have their data (default: the system's temporary folder)")
	flags.IntVar(&o.rows, "rows", 500_000, "rows of the table, of about 200 bytes each")
	flags.IntVar(&o.rounds, "rounds", 5, "how often each part is measured")
	flags.IntVar(&o.clients, "clients", 8, "clients that write")
	flags.IntVar(&o.streams, "streams", 1, "streams of the copy")
	quickly := flags.Bool("quick", false, "a short run: "+quick.Usage())
	if err := flags.Parse(arguments); err != nil {
		return options{}, err
	}
	if *quickly {
		if err := quick.Preset(flags); err != nil {
			return options{}, err
		}
	}
	o.parts = strings.FieldsFunc(*parts, func(r rune) bool { return r == ',' || r == ' ' })
	return o, o.check()
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
	if o.rows < 1 || o.rounds < 1 || o.clients < 1 || o.streams < 1 {
		return errors.New("-rows, -rounds, -clients and -streams are at least 1")
	}
	return nil
}
