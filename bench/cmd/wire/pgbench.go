package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/bench/rig"
)

// updateScript changes one row, chosen at random, in a transaction of its own.
const updateScript = `\set aid random(1, 100000 * :scale)
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;
`

// workload is what pgbench is asked to do.
type workload struct {
	script, mode string
	clients      int
}

// sample is what one run of pgbench gave.
type sample struct {
	rate      float64       // statements a second
	processor time.Duration // of the target, for a statement
}

// measure runs the workload once.
func (l *lab) measure(ctx context.Context, t *target, w workload) (sample, error) {
	script, err := l.scriptFlags(w.script)
	if err != nil {
		return sample{}, err
	}
	threads := min(w.clients, 2) // more would take from the target what it needs
	flags := append([]string{
		"-n", "-c", strconv.Itoa(w.clients), "-j", strconv.Itoa(threads), "-T", strconv.Itoa(int(l.options.length.Seconds())), "-M", w.mode,
	}, script...)
	before, err := rig.ProcessorTime(t.pid)
	if err != nil {
		return sample{}, err
	}
	output, err := l.runPgbench(ctx, t, w.mode, flags...)
	if err != nil {
		return sample{}, err
	}
	after, err := rig.ProcessorTime(t.pid)
	if err != nil {
		return sample{}, err
	}
	count, rate, err := parsePgbench(output)
	if err != nil {
		return sample{}, err
	}
	return sample{rate: rate, processor: time.Duration(float64(after-before) / count)}, nil
}

func (l *lab) scriptFlags(script string) ([]string, error) {
	if script == "select" {
		return []string{"-S"}, nil
	}
	path := filepath.Join(l.folder, "update.sql")
	if err := os.WriteFile(path, []byte(updateScript), 0o644); err != nil {
		return nil, fmt.Errorf("write the script: %w", err)
	}
	return []string{"-s", strconv.Itoa(l.options.scale), "-f", path}, nil
}

// runPgbench returns what it printed. It fails also if pgbench went on without some of its clients.
func (l *lab) runPgbench(ctx context.Context, t *target, mode string, flags ...string) (string, error) {
	config, err := t.config(mode)
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, l.pgbench, append(flags, config.Database)...)
	command.Env = append(os.Environ(), "PGHOST="+config.Host, "PGPORT="+strconv.Itoa(int(config.Port)), "PGUSER="+role, "PGSSLMODE=disable", "PGOPTIONS="+t.settings)
	output, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("pgbench: %w: %s", err, firstLine(string(output)))
	}
	return string(output), nil
}

// firstLine is the first that speaks of an error, or else the first.
func firstLine(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	for _, line := range lines {
		if strings.Contains(line, "error:") || strings.Contains(line, "ERROR:") || strings.Contains(line, "FATAL:") {
			return line
		}
	}
	return lines[0]
}

var (
	processed = regexp.MustCompile(`number of transactions actually processed: (\d+)`)
	perSecond = regexp.MustCompile(`tps = ([0-9.]+) \(without initial connection time\)`)
)

// parsePgbench reads how many transactions there were, and how many a second.
func parsePgbench(output string) (count, rate float64, err error) {
	for pattern, value := range map[*regexp.Regexp]*float64{processed: &count, perSecond: &rate} {
		found := pattern.FindStringSubmatch(output)
		if found == nil {
			return 0, 0, fmt.Errorf("pgbench does not say %q: %s", pattern, output)
		}
		if *value, err = strconv.ParseFloat(found[1], 64); err != nil {
			return 0, 0, fmt.Errorf("read pgbench's numbers: %w", err)
		}
	}
	if count == 0 {
		return 0, 0, fmt.Errorf("pgbench got nothing done: %s", output)
	}
	return count, rate, nil
}
