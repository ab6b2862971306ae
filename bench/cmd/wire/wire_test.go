package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/bench/rig"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

// TestMain lets the test's binary be the program, which starts itself as its children.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == rig.ChildFlag {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// TestEverythingIsMeasured runs the whole program, shortly, with what needs no other program.
func TestEverythingIsMeasured(t *testing.T) {
	found := pgtest.Installations(t)
	if _, err := findPgbench(found[0].Bin); err != nil {
		t.Skip(err)
	}
	o, err := parseOptions([]string{
		"-targets", "direct,relay,stub,relay@stub", "-clients", "2", "-modes", "prepared", "-seconds", "1", "-rounds", "1", "-scale", "1", "-rate", "200",
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := openLab(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.closers.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(l.folder); !os.IsNotExist(err) {
			t.Errorf("the folder is still there: %v", err)
		}
	}()
	for _, w := range o.workloads() {
		if err := l.rounds(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		for _, name := range o.targets {
			if l.results.rate(w, name) == 0 {
				t.Errorf("%v was not measured on %s", w, name)
			}
		}
		if l.results.processor(w, "relay") == 0 {
			t.Errorf("%v cost the relay nothing", w)
		}
	}
	q, err := l.openLoop(t.Context(), l.targets[1], o.rate)
	if err != nil {
		t.Fatal(err)
	}
	if q.p50 <= 0 || q.p50 > q.p99 || q.p99 > q.p999 {
		t.Errorf("quantiles %+v", q)
	}
	if _, _, err := memoryOfIdle(t.Context(), l.targets[1], 20); err != nil {
		t.Error(err)
	}
}

// TestTargetThatCannotDoItIsLeftOut measures one that is there beside one that is not.
func TestTargetThatCannotDoItIsLeftOut(t *testing.T) {
	l := &lab{targets: []*target{{name: "direct"}, {name: "relay"}, {name: "router"}}, results: results{}, options: options{rounds: 1}}
	w := workload{"select", "simple", 8}
	l.results.add(w, "direct", sample{rate: 1000})
	l.results.add(w, "router", sample{rate: 500, processor: 20 * time.Microsecond})
	var out strings.Builder
	l.printThroughput(&out, []workload{w})
	for _, line := range []string{
		"script mode clients direct tps relay router router/relay router/pgbouncer",
		"select simple 8 1000 – 0.50 – –",
		"script mode clients relay µs router",
		"select simple 8 – –",
	} {
		if !slices.ContainsFunc(strings.Split(out.String(), "\n"), func(l string) bool { return strings.Join(strings.Fields(l), " ") == line }) {
			t.Errorf("no line %q in\n%s", line, out.String())
		}
	}
}

func TestParsePgbench(t *testing.T) {
	const output = `scaling factor: 10
number of transactions actually processed: 31337
latency average = 0.250 ms
initial connection time = 3.219 ms
tps = 15999.5 (without initial connection time)
`
	count, rate, err := parsePgbench(output)
	if count != 31337 || rate != 15999.5 || err != nil {
		t.Errorf("%g transactions, %g a second, %v", count, rate, err)
	}
	for _, bad := range []string{"", "tps = 3 (without initial connection time)", strings.Replace(output, "31337", "0", 1)} {
		if _, _, err := parsePgbench(bad); err == nil {
			t.Errorf("%q was understood", bad)
		}
	}
}

func TestQuantile(t *testing.T) {
	values := make([]time.Duration, 1000)
	for i := range values {
		values[i] = time.Duration(i)
	}
	for share, want := range map[float64]time.Duration{0.5: 500, 0.99: 990, 0.999: 999, 1: 999} {
		if got := quantile(values, share); got != want {
			t.Errorf("quantile %g is %d", share, got)
		}
	}
}

func TestOptions(t *testing.T) {
	o, err := parseOptions([]string{"-quick", "-rounds", "7"})
	if err != nil {
		t.Fatal(err)
	}
	if o.rounds != 7 || !slices.Equal(o.clients, []int{1, 32}) {
		t.Errorf("-quick -rounds 7 gave %+v", o)
	}
	for _, wrong := range []string{"-clients 0", "-clients x", "-modes fast", "-targets", "-rounds 0", "-seconds 0.5", "-parts ,", "-rate -1"} {
		if _, err := parseOptions(strings.Fields(wrong)); err == nil {
			t.Errorf("%s was accepted", wrong)
		}
	}
}

func TestAddressOrCommand(t *testing.T) {
	for text, want := range map[string]bool{
		"127.0.0.1:6432": true, "localhost:6432": true, "cleave": false, "./router --listen {listen}": false, "router {listen}:1": false,
	} {
		if got := isAddress(text); got != want {
			t.Errorf("%q: an address is %v", text, got)
		}
	}
}
