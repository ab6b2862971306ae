package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/cleavedb/cleave/bench/rig"
)

// results has the samples by workload, then by target's name.
type results map[workload]map[string][]sample

func (r results) add(w workload, name string, s sample) {
	if r[w] == nil {
		r[w] = map[string][]sample{}
	}
	r[w][name] = append(r[w][name], s)
}

// rate is the median of statements a second; 0 if there is none.
func (r results) rate(w workload, name string) float64 {
	return medianOf(r[w][name], func(s sample) float64 { return s.rate })
}

// processor is the median of processor time for a statement; 0 if there is none.
func (r results) processor(w workload, name string) time.Duration {
	return time.Duration(medianOf(r[w][name], func(s sample) float64 { return float64(s.processor) }))
}

func medianOf[T any](all []T, value func(T) float64) float64 {
	values := make([]float64, len(all))
	for i, one := range all {
		values[i] = value(one)
	}
	return rig.Median(values)
}

// workloads are all combinations that are asked for.
func (o options) workloads() []workload {
	var all []workload
	for _, script := range o.scripts {
		for _, mode := range o.modes {
			for _, clients := range o.clients {
				all = append(all, workload{script, mode, clients})
			}
		}
	}
	return all
}

// throughput measures every workload and prints the tables.
func (l *lab) throughput(ctx context.Context) error {
	workloads := l.options.workloads()
	for i, w := range workloads {
		fmt.Fprintf(os.Stderr, "throughput %d of %d: %s %s, %d clients\n", i+1, len(workloads), w.script, w.mode, w.clients)
		if err := l.rounds(ctx, w); err != nil {
			return err
		}
	}
	l.printThroughput(os.Stdout, workloads)
	return nil
}

// rounds lets the targets take turns. Who failed once sits out the rest.
func (l *lab) rounds(ctx context.Context, w workload) error {
	failed := map[string]bool{}
	for round := range l.options.rounds {
		for i := range l.targets {
			t := l.targets[(i+round)%len(l.targets)] // whoever goes first is another one every time
			if failed[t.name] {
				continue
			}
			s, err := l.measure(ctx, t, w)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				fmt.Fprintf(os.Stderr, "  %s: %v\n", t.name, err)
				failed[t.name] = true
				delete(l.results[w], t.name)
				continue
			}
			l.results.add(w, t.name, s)
		}
	}
	return nil
}

func (l *lab) printThroughput(out io.Writer, workloads []workload) {
	for _, base := range []string{"direct", "stub"} {
		names := l.names(base)
		if len(names) == 0 {
			continue
		}
		fmt.Fprintf(out, "\nThroughput over %s; medians of %d rounds\n", base, l.options.rounds)
		rig.PrintTable(out, l.throughputTable(base, names, workloads))
		fmt.Fprintf(out, "\nProcessor time for a statement, over the relay's\n")
		rig.PrintTable(out, l.processorTable(base, names, workloads))
	}
}

// names are the targets that are compared with the base, without itself.
func (l *lab) names(of string) []string {
	var names []string
	for _, t := range l.targets {
		if t.name != of && base(t.name) == of {
			names = append(names, t.name)
		}
	}
	return names
}

// named is the name of a kind of proxy before the base.
func named(kind, base string) string {
	if base == "stub" {
		return kind + "@stub"
	}
	return kind
}

func (l *lab) throughputTable(base string, names []string, workloads []workload) [][]string {
	router, relay, pgbouncer := named("router", base), named("relay", base), named("pgbouncer", base)
	compared := slices.Contains(names, router)
	head := append([]string{"script", "mode", "clients", base + " tps"}, names...)
	if compared {
		head = append(head, "router/relay", "router/pgbouncer")
	}
	rows := [][]string{head}
	for _, w := range workloads {
		rate := func(name string) float64 { return l.results.rate(w, name) }
		row := append(w.cells(), rig.Number(rate(base), "%.0f"))
		for _, name := range names {
			row = append(row, rig.Ratio(rate(name), rate(base)))
		}
		if compared {
			row = append(row, rig.Ratio(rate(router), rate(relay)), rig.Ratio(rate(router), rate(pgbouncer)))
		}
		rows = append(rows, row)
	}
	return rows
}

func (l *lab) processorTable(base string, names []string, workloads []workload) [][]string {
	relay := named("relay", base)
	others := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == relay })
	rows := [][]string{append([]string{"script", "mode", "clients", relay + " µs"}, others...)}
	for _, w := range workloads {
		processor := func(name string) float64 { return float64(l.results.processor(w, name)) / float64(time.Microsecond) }
		row := append(w.cells(), rig.Number(processor(relay), "%.1f"))
		for _, name := range others {
			row = append(row, rig.Ratio(processor(name), processor(relay)))
		}
		rows = append(rows, row)
	}
	return rows
}

func (w workload) cells() []string {
	return []string{w.script, w.mode, strconv.Itoa(w.clients)}
}
