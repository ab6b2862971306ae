package main

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/bench/rig"
)

// options are what the flags say.
type options struct {
	parts, targets, modes, scripts []string

	clients []int         // of pgbench
	length  time.Duration // of one measurement
	rounds  int
	scale   int // of pgbench's tables

	pool        int    // server connections that pgbouncer keeps
	rate        int    // of the latency part; 0: half of what was measured
	connections int    // of the latency part
	idleClients int    // of the idle part
	pgbouncer   string // its program

	router       string // an address, a command, or nothing for the binary built from this tree
	routerPID    int
	routerConfig string
	routerSetup  string
	sharded      bool // whether our own router is asked to find the shard of every key
}

// What can be asked for.
var (
	allParts   = []string{"throughput", "latency", "idle"}
	allModes   = []string{"simple", "extended", "prepared"}
	allScripts = []string{"select", "update"}
	allTargets = append(slices.Clone(usualTargets), "guarded")
)

// usualTargets are measured unless others are asked for. The one more, guarded, is the relay before the router's own database:
// beside the relay it shows what the shard's guard costs, beside the router what the router does.
var usualTargets = []string{"direct", "pgbouncer", "relay", "router", "stub", "pgbouncer@stub", "relay@stub", "router@stub"}

// quick is what -quick stands for: some minutes, and a look at everything.
var quick = rig.Quick{"clients": "1,32", "modes": "simple,prepared", "seconds": "1", "rounds": "3", "scale": "5"}

func parseOptions(arguments []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("wire", flag.ContinueOnError)
	list := func(name string, all []string, usage string) *string {
		return flags.String(name, strings.Join(all, ","), usage)
	}
	parts := list("parts", allParts, "which parts to run")
	targets := list("targets", usualTargets, "what to measure; name@stub is that proxy before the stub, guarded is the relay before the router's sharded table")
	modes := list("modes", allModes, "pgbench's protocols")
	scripts := list("scripts", allScripts, "what pgbench does")
	clients := flags.String("clients", "1,8,32,200", "numbers of pgbench's clients")
	seconds := flags.Float64("seconds", 3, "length of one measurement")
	flags.IntVar(&o.rounds, "rounds", 3, "rounds; their medians count")
	flags.IntVar(&o.scale, "scale", 10, "scale of pgbench's tables: 100,000 rows each")
	flags.IntVar(&o.pool, "pool", 20, "server connections that pgbouncer keeps")
	flags.IntVar(&o.rate, "rate", 0, "statements a second in the latency part (default half of what pgbouncer can do)")
	flags.IntVar(&o.connections, "connections", 32, "connections of the latency part")
	flags.IntVar(&o.idleClients, "idle", 5000, "clients of the idle part")
	flags.StringVar(&o.pgbouncer, "pgbouncer", "", "pgbouncer's program (default: the one installed)")
	flags.StringVar(&o.router, "router", "", "the router: host:port, or a command in which {listen} and {server} are filled in (default: cleave serve, built from this tree)")
	flags.IntVar(&o.routerPID, "router-pid", 0, "the process of a router that is given by its address, for its processor time and memory")
	flags.StringVar(&o.routerConfig, "router-config", "", "a file with lines to add to the configuration of cleave serve")
	flags.StringVar(&o.routerSetup, "router-setup", "", "SQL to run through the router before it is measured")
	flags.BoolVar(&o.sharded, "sharded", true, "have pgbench_accounts sharded by aid, on the one shard, if the router is built from this tree")
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
	o.parts, o.targets, o.modes, o.scripts = split(*parts), split(*targets), split(*modes), split(*scripts)
	for _, text := range split(*clients) {
		count, err := strconv.Atoi(text)
		if err != nil {
			return options{}, fmt.Errorf("-clients: %w", err)
		}
		o.clients = append(o.clients, count)
	}
	return o, o.check()
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func (o options) check() error {
	for name, choice := range map[string]struct{ given, all []string }{
		"parts": {o.parts, allParts}, "targets": {o.targets, allTargets}, "modes": {o.modes, allModes}, "scripts": {o.scripts, allScripts},
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
	for name, value := range map[string]int{"rounds": o.rounds, "scale": o.scale, "pool": o.pool, "connections": o.connections, "idle": o.idleClients} {
		if value < 1 {
			return fmt.Errorf("-%s %d: at least 1", name, value)
		}
	}
	if o.length < time.Second {
		return fmt.Errorf("-seconds %g: pgbench measures at least one", o.length.Seconds())
	}
	if len(o.clients) == 0 || slices.Min(o.clients) < 1 || slices.Max(o.clients) > maxClients {
		return fmt.Errorf("-clients: numbers from 1 to %d", maxClients)
	}
	if o.rate < 0 {
		return fmt.Errorf("-rate %d is negative", o.rate)
	}
	return nil
}
