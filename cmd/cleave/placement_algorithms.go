package main

import (
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/placement"
)

func newAlgorithms() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "algorithms",
		Short: "List the assignment algorithms",
		Long: `List the assignment algorithms: what each does, where it comes from, how it places
keys one by one and what its maps are made of.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			return out.write(cmd, func(w io.Writer) error { return printAlgorithms(w, out.format) })
		},
	}
	out.flags(cmd, formatTable, formatCSV, formatJSON)
	return cmd
}

func printAlgorithms(w io.Writer, format string) error {
	infos := placement.Algorithms()
	switch format {
	case formatJSON:
		return printJSON(w, infos)
	case formatCSV:
		var rows [][]string
		for _, i := range infos {
			rows = append(rows, []string{i.Name, i.Summary, i.Keys, i.Ranges, strconv.FormatBool(i.Weighted), strconv.FormatBool(i.Remembers), i.Origin})
		}
		return printCSV(w, []string{"name", "summary", "keys", "ranges", "weighted", "remembers", "origin"}, rows)
	default:
		var rows [][]any
		for _, i := range infos {
			rows = append(rows, []any{i.Name, i.Summary, i.Keys, i.Ranges, yesNo(i.Weighted), i.Origin})
		}
		return printTable(w, []string{"algorithm", "what it does", "keys one by one", "its maps are", "weights", "origin"}, rows)
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
