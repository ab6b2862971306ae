// Command ratios runs the benchmarks of package bench and prints, for each, how Cleave's time stands to each peer's.
//
// All benchmarks run once per pass and passes follow one another, so that a disturbance of the machine hits everybody
// alike; the median of the passes counts. A ratio below 1 means that Cleave is faster.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	bench := flag.String("bench", ".", "which benchmarks to run, a regular expression")
	benchtime := flag.String("benchtime", "0.2s", "time for each benchmark and pass")
	count := flag.Int("count", 3, "passes")
	flag.Parse()
	if err := run(*bench, *benchtime, *count); err != nil {
		fmt.Fprintln(os.Stderr, "ratios:", err)
		os.Exit(1)
	}
}

func run(bench, benchtime string, count int) error {
	if count < 1 {
		return fmt.Errorf("%d passes: at least one is needed", count)
	}
	folder, err := os.MkdirTemp("", "cleave-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	binaries, err := build(folder)
	if err != nil {
		return err
	}
	results := results{}
	for pass := range count {
		fmt.Fprintf(os.Stderr, "pass %d of %d\n", pass+1, count)
		for _, binary := range binaries {
			output, err := exec.Command(binary, "-test.run=^$", "-test.bench="+bench, "-test.benchtime="+benchtime, "-test.benchmem").Output()
			if err != nil {
				return fmt.Errorf("running the benchmarks: %w\n%s", err, output)
			}
			results.read(output)
		}
	}
	return results.print()
}

// build compiles the benchmarks beside peers, in this module, and those of ours against each other.
func build(folder string) (binaries []string, err error) {
	for i, pattern := range []string{".", "./shardmap", "./internal/control"} {
		module := ".."
		if i == 0 {
			module = "."
		}
		binary := filepath.Join(folder, fmt.Sprintf("bench%d.test", len(binaries)))
		compile := exec.Command("go", "test", "-C", module, "-c", "-o", binary, pattern)
		compile.Stderr = os.Stderr
		if err := compile.Run(); err != nil {
			return nil, fmt.Errorf("building the benchmarks of %s: %w", pattern, err)
		}
		binaries = append(binaries, binary)
	}
	return binaries, nil
}

// measurement is what the passes gave for one implementation.
type measurement struct {
	nanos  []float64
	allocs float64
}

func (m *measurement) median() float64 {
	slices.Sort(m.nanos)
	return m.nanos[len(m.nanos)/2]
}

// results has the measurements by case, then by implementation.
type results map[string]map[string]*measurement

var (
	line = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+([0-9.e+]+) ns/op`)
	heap = regexp.MustCompile(`([0-9]+) allocs/op`)
)

func (r results) read(output []byte) {
	lines := bufio.NewScanner(bytes.NewReader(output))
	for lines.Scan() {
		found := line.FindStringSubmatch(lines.Text())
		if found == nil {
			continue
		}
		group, impl := split(found[1])
		nanos, err := strconv.ParseFloat(found[2], 64)
		if impl == "" || err != nil {
			continue
		}
		if r[group] == nil {
			r[group] = map[string]*measurement{}
		}
		if r[group][impl] == nil {
			r[group][impl] = &measurement{}
		}
		m := r[group][impl]
		m.nanos = append(m.nanos, nanos)
		if allocs := heap.FindStringSubmatch(lines.Text()); allocs != nil {
			m.allocs, _ = strconv.ParseFloat(allocs[1], 64)
		}
	}
}

// split takes the part impl= out of a benchmark's name.
func split(name string) (group, impl string) {
	var rest []string
	for part := range strings.SplitSeq(name, "/") {
		if value, ok := strings.CutPrefix(part, "impl="); ok {
			impl = value
		} else {
			rest = append(rest, part)
		}
	}
	return strings.Join(rest, "/"), impl
}

func ours(impl string) bool { return strings.HasPrefix(impl, "cleave") }

func (r results) print() error {
	groups := make([]string, 0, len(r))
	for group := range r {
		groups = append(groups, group)
	}
	slices.SortFunc(groups, natural)
	if len(groups) == 0 {
		return errors.New("no benchmark ran")
	}
	for _, group := range groups {
		fmt.Println(group)
		for _, us := range sorted(r[group]) {
			if !ours(us) {
				continue
			}
			mine := r[group][us]
			fmt.Printf("  %-18s %9.2f ns  %g allocs", us, mine.median(), mine.allocs)
			for _, peer := range sorted(r[group]) {
				if peer != us && (!ours(peer) || us == "cleave") {
					fmt.Printf("   %s %.2f", peer, mine.median()/r[group][peer].median())
				}
			}
			fmt.Println()
		}
	}
	fmt.Println("ratios are our time over theirs: below 1, Cleave is faster")
	return nil
}

func sorted(impls map[string]*measurement) []string {
	names := make([]string, 0, len(impls))
	for name := range impls {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

var number = regexp.MustCompile(`\d+`)

// natural orders names with the numbers in them by value.
func natural(a, b string) int {
	pad := func(s string) string {
		return number.ReplaceAllStringFunc(s, func(n string) string { return fmt.Sprintf("%09s", n) })
	}
	return strings.Compare(pad(a), pad(b))
}
