package rig

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Median is the middle value, of an even number the lower one; 0 of none.
func Median[T cmp.Ordered](values []T) T {
	if len(values) == 0 {
		var none T
		return none
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}

// None stands for what was not measured.
const None = "–"

// Number is a value for a table; 0 is [None].
func Number(value float64, format string) string {
	if value == 0 {
		return None
	}
	return fmt.Sprintf(format, value)
}

// Ratio is a value over another, for a table.
func Ratio(value, to float64) string {
	if to == 0 {
		return None
	}
	return Number(value/to, "%.2f")
}

// PrintTable aligns the rows' cells.
func PrintTable(out io.Writer, rows [][]string) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(table, "  "+strings.Join(row, "\t"))
	}
	_ = table.Flush()
}
