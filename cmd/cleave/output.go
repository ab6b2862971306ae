package main

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
)

// Formats of output.
const (
	formatTable = "table"
	formatCSV   = "csv"
	formatJSON  = "json"
	formatSVG   = "svg"
)

// output says where and how a command prints.
type output struct {
	format  string
	file    string
	allowed []string
}

// flags adds --format and --output. The first format is the default.
func (o *output) flags(cmd *cobra.Command, formats ...string) {
	o.allowed = formats
	cmd.Flags().StringVar(&o.format, "format", formats[0], "how to print: "+strings.Join(formats, ", "))
	cmd.Flags().StringVarP(&o.file, "output", "o", "", "write to this file instead of standard output")
	complete(cmd, "format", formats)
}

// complete offers fixed words for a flag in the shell.
func complete(cmd *cobra.Command, flag string, words []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(slices.Clone(words), cobra.ShellCompDirectiveNoFileComp))
}

func (o *output) check() error {
	if !slices.Contains(o.allowed, o.format) {
		return wrongInputf("unknown format %q: use %s", o.format, strings.Join(o.allowed, ", "))
	}
	if o.file == "" {
		return nil
	}
	// Said before the work, not after it.
	if folder, err := os.Stat(filepath.Dir(o.file)); err != nil || !folder.IsDir() {
		return wrongInputf("cannot write %s: %s is not a folder", o.file, filepath.Dir(o.file))
	}
	if there, err := os.Stat(o.file); err == nil && there.IsDir() {
		return wrongInputf("cannot write %s: it is a folder", o.file)
	}
	return nil
}

// write runs print with the chosen destination. A regular file appears whole or not at all; what is something else, such
// as a pipe or a device, is written to.
func (o *output) write(cmd *cobra.Command, print func(io.Writer) error) error {
	if o.file == "" {
		return buffered(cmd.OutOrStdout(), print)
	}
	path := o.file
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if there, err := os.Stat(path); err == nil && !there.Mode().IsRegular() {
		return writeInto(path, print)
	}
	return writeWhole(path, print)
}

// buffered keeps the first error of any write and returns it at the end, so that print need not look at each.
func buffered(w io.Writer, print func(io.Writer) error) error {
	buffer := bufio.NewWriter(w)
	if err := print(buffer); err != nil {
		return err
	}
	return buffer.Flush()
}

func writeInto(path string, print func(io.Writer) error) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return wrongInput(fmt.Errorf("cannot write: %w", err))
	}
	return errors.Join(buffered(file, print), file.Close())
}

func writeWhole(path string, print func(io.Writer) error) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".cleave-*")
	if err != nil {
		return wrongInput(fmt.Errorf("cannot write %s: %w", path, err))
	}
	defer os.Remove(temporary.Name()) // fails harmlessly once it has been renamed
	err = errors.Join(buffered(temporary, print), temporary.Chmod(0o644), temporary.Close())
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

// printTable prints rows for people; columns whose cells are numbers stand right.
func printTable(w io.Writer, header []string, rows [][]any) error {
	t := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.AppendHeader(toRow(header))
	for _, row := range rows {
		t.AppendRow(row)
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

func toRow(cells []string) table.Row {
	row := make(table.Row, len(cells))
	for i, c := range cells {
		row[i] = c
	}
	return row
}

func printCSV(w io.Writer, header []string, rows [][]string) error {
	out := csv.NewWriter(w)
	if err := out.Write(header); err != nil {
		return err
	}
	return out.WriteAll(rows)
}

func printJSON(w io.Writer, value any) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(value)
}

// counted is a number of things with their name, as in "1 shard" and "2 shards".
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

// grouped prints a number of things for people: with commas while it is short enough to be read.
func grouped(n float64) string {
	if n >= 1e15 {
		return strconv.FormatFloat(n, 'g', 4, 64)
	}
	digits := strconv.FormatFloat(math.Round(n), 'f', 0, 64)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// progress tells people at a terminal what takes long, from the third second on.
type progress struct {
	w       io.Writer
	started time.Time
	shown   bool
}

func newProgress(cmd *cobra.Command) *progress {
	p := &progress{started: time.Now()}
	if file, ok := cmd.ErrOrStderr().(*os.File); ok && isTerminal(file) {
		p.w = file
	}
	return p
}

func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// step says what is being done now.
func (p *progress) step(format string, args ...any) {
	if p.w == nil || time.Since(p.started) < 2*time.Second {
		return
	}
	p.shown = true
	fmt.Fprintf(p.w, "\r\033[K%s", fmt.Sprintf(format, args...))
}

// done clears the line.
func (p *progress) done() {
	if p.shown {
		fmt.Fprint(p.w, "\r\033[K")
	}
}
