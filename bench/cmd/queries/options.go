package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/bench/rig"
	"github.com/cleavedb/cleave/test/queries/tpch"
)

// options are what the flags say.
type options struct {
	parts   []string
	queries []int // of TPC-H
	rows    int
	rounds  int
	shards  int
	folder  string // that the temporary one is made in
}

// allParts are what can be asked for.
var allParts = []string{"events", "lookup", "stream", "join", "tiny", "tpch"}

// quick is what -quick stands for: a minute, and a look at everything.
var quick = rig.Quick{"rows": "200000", "rounds": "3"}

func parseOptions(arguments []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("queries", flag.ContinueOnError)
	parts := flags.String("parts", strings.Join(allParts, ","), "which parts to run")
	queries := flags.String("queries", "", "which queries of TPC-H to run, by their numbers (default all)")
	flags.IntVar(&o.rows, "rows", 1_000_000, "rows of the table of events; the tables of the part join have a tenth of that and a hundredth")
	flags.IntVar(&o.rounds, "rounds", 9, "rounds; the medians of their ratios count")
	flags.IntVar(&o.shards, "shards", 4, "shards behind the router")
	flags.StringVar(&o.folder, "folder", os.TempDir(), "where to make the temporary folder with the servers' data")
	quickly := flags.Bool("quick", false, "a short version: "+quick.Usage())
	if err := flags.Parse(arguments); err != nil {
		return options{}, err
	}
	if *quickly {
		if err := quick.Preset(flags); err != nil {
			return options{}, err
		}
	}
	o.parts = split(*parts)
	for _, word := range split(*queries) {
		number, err := strconv.Atoi(word)
		if err != nil || number < 1 || number > len(tpch.Queries()) {
			return options{}, fmt.Errorf("-queries: %q is no number from 1 to %d", word, len(tpch.Queries()))
		}
		o.queries = append(o.queries, number)
	}
	return o, o.check()
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
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
	const maxShards = 16
	for name, number := range map[string]struct{ given, least, most int }{
		"rounds": {o.rounds, 1, 1000}, "shards": {o.shards, 2, maxShards}, "rows": {o.rows, 1000, 100_000_000},
	} {
		if number.given < number.least || number.given > number.most {
			return fmt.Errorf("-%s %d: from %d to %d", name, number.given, number.least, number.most)
		}
	}
	return nil
}
