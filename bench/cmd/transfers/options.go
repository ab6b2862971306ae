package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/bench/rig"
)

// options are what the flags say.
type options struct {
	parts, sides []string

	mode     string
	clients  int
	length   time.Duration // of one measurement
	warmUp   time.Duration // that comes before
	rounds   int
	shards   int
	accounts int

	flush    time.Duration // that a flush takes longer
	others   float64       // share of the processors that others may use
	other    string        // another router's program
	folder   string        // that the temporary one is made in
	profiles string        // the folder for the router's profiles
}

// What can be asked for.
var (
	allParts = []string{"transfers", "reads"}
	allModes = []string{"prepared", "simple"}
	allSides = []string{oneServer, crossShard, sameShard, mixed, byHand, byRelays, unguarded}
)

// quick is what -quick stands for: a minute or two, and a look at everything.
var quick = rig.Quick{"seconds": "1", "rounds": "3"}

const (
	// maxClients have room on a server that allows 100 connections, twice, beside a few others.
	maxClients = 40
	maxShards  = 16
	// maxFlush is what PostgreSQL allows.
	maxFlush = 100 * time.Millisecond
)

// warmUp is how long clients work before it counts: routers prepare statements, and servers pass on what they have counted, every second.
const warmUp = time.Second

func parseOptions(arguments []string) (options, error) {
	o := options{warmUp: warmUp}
	flags := flag.NewFlagSet("transfers", flag.ContinueOnError)
	parts := flags.String("parts", strings.Join(allParts, ","), "which parts to run")
	sides := flags.String("sides", strings.Join(allSides, ","), "what to measure in the part transfers, besides "+oneServer)
	flags.StringVar(&o.mode, "mode", allModes[0], "how clients send the updates: prepared, as pgx does, or simple, as psql does; BEGIN and COMMIT are simple always")
	flags.IntVar(&o.clients, "clients", 16, "clients that transfer")
	seconds := flags.Float64("seconds", 3, "length of one measurement, after a second to warm up")
	flags.IntVar(&o.rounds, "rounds", 9, "rounds; their medians count")
	flags.IntVar(&o.shards, "shards", 4, "shards behind the router")
	flags.IntVar(&o.accounts, "accounts", 100_000, "accounts")
	flags.DurationVar(&o.flush, "flush", 0, "what a flush takes longer on all servers, for a disk that is slower than this machine's (commit_delay)")
	flags.Float64Var(&o.others, "others", 1, "share of the processors that other processes may use: transfers are measured when it is not more, and again if it was")
	flags.StringVar(&o.other, "other", "", "another build of the router, to be measured beside this tree's: the program's path")
	flags.StringVar(&o.folder, "folder", os.TempDir(), "where to make the temporary folder with the servers' data; it has to be on a disk")
	flags.StringVar(&o.profiles, "cpuprofile", "", "a folder for profiles of the router's processor time, one for each side, made in further runs at the end")
	quickly := flags.Bool("quick", false, "a short version: "+quick.Usage())
	if err := flags.Parse(arguments); err != nil {
		return options{}, err
	}
	if *quickly {
		if err := quick.Preset(flags); err != nil {
			return options{}, err
		}
	}
	o.length = time.Duration(*seconds * float64(time.Second))
	o.parts, o.sides = split(*parts), split(*sides)
	return o, o.check()
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func (o options) check() error {
	for name, choice := range map[string]struct{ given, all []string }{
		"parts": {o.parts, allParts}, "sides": {o.sides, allSides}, "mode": {[]string{o.mode}, allModes},
	} {
		if len(choice.given) == 0 {
			return fmt.Errorf("-%s is empty", name)
		}
		for _, one := range choice.given {
			if !slices.Contains(choice.all, one) {
				return fmt.Errorf("-%s: %q is none of %s", name, one, strings.Join(choice.all, ", "))
			}
		}
	}
	for name, number := range map[string]struct{ given, least, most int }{
		"clients": {o.clients, 1, maxClients}, "rounds": {o.rounds, 1, 1000}, "shards": {o.shards, 2, maxShards}, "accounts": {o.accounts, 1000, 10_000_000},
	} {
		if number.given < number.least || number.given > number.most {
			return fmt.Errorf("-%s %d: from %d to %d", name, number.given, number.least, number.most)
		}
	}
	if o.length < 100*time.Millisecond {
		return fmt.Errorf("-seconds %g: at least 0.1", o.length.Seconds())
	}
	if o.flush < 0 || o.flush > maxFlush {
		return fmt.Errorf("-flush %v: from 0 to %v", o.flush, maxFlush)
	}
	return nil
}
