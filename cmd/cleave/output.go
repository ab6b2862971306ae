package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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
	return nil
}

// write runs print with the chosen destination. A file appears whole or not at all.
func (o *output) write(cmd *cobra.Command, print func(io.Writer) error) error {
	if o.file == "" {
		return print(cmd.OutOrStdout())
	}
	temporary, err := os.CreateTemp(filepath.Dir(o.file), ".cleave-*")
	if err != nil {
		return wrongInput(fmt.Errorf("cannot write %s: %w", o.file, err))
	}
	defer os.Remove(temporary.Name()) // fails harmlessly once it has been renamed
	if err := print(temporary); err != nil {
		_ = temporary.Close()
		return err
	}
	if err := temporary.Chmod(0o644); err != nil {
		return fmt.Errorf("writing %s: %w", o.file, err)
	}
	if err := temporary.Close(); err != nil {
		return fmt.Errorf("writing %s: %w", o.file, err)
	}
	return os.Rename(temporary.Name(), o.file)
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
