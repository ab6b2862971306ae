package main

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/placement/draw"
	"github.com/cleavedb/cleave/placement/hash"
)

// compare is one run of `cleave placement compare`.
type compare struct {
	out           output
	tuning        tuning
	keys          keySource
	before, after int
	algorithms    []string
	level         string
}

// defaultComparison is what is compared unless --algorithms says otherwise: rings with few and many points show what
// virtual nodes are for. 'all' stands for it too.
var defaultComparison = []string{
	"modulo", "fibonacci", "jump", "ring:1", "ring:100", "ring:150", "ring:1000", "ring32:150", "rendezvous", "rendezvous-fast",
	"weighted-ring", "weighted-rendezvous", "bounded", "slots", "minimal", "doubling",
}

func newCompare() *cobra.Command {
	var c compare
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Compare algorithms: balance, speed, and what a change of shards moves",
		Long: `Place the same keys with every algorithm, before and after a change of the number of
shards. Overlap is the share of keys that stay where they are, in percent; items per
shard and std, their standard deviation over the shards, are after the change. Seconds
are for building both placements and placing all keys in both (more than ten million
made-up keys are hashed on the way, and then that is counted too).

There are two levels, and two tables. At key level every key goes through the
algorithm: what a cache or a library sees. At slot level the algorithm places slots
(1,024 by default) and keys fall into slots: what a cluster sees that moves slots.
A table shows both unless --level chooses; the other formats show the key level
unless --level slot is given.`,
		Example: `  cleave placement compare --items 1000000 --before 20 --after 21
  cleave placement compare --algorithms ring:150,jump,minimal --format csv
  cleave placement compare --keys ids.txt --key-type uuid --level slot
  cleave placement compare --format svg --output compare.svg`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	c.out.flags(cmd, formatTable, formatCSV, formatJSON, formatSVG)
	c.tuning.flags(cmd)
	c.keys.flags(cmd, 1_000_000, hash.Default)
	cmd.Flags().IntVar(&c.before, "before", 20, "shards before")
	cmd.Flags().IntVar(&c.after, "after", 21, "shards after")
	cmd.Flags().StringSliceVar(&c.algorithms, "algorithms", []string{"all"}, "which to compare; ring:100 is a ring with 100 virtual nodes a shard")
	cmd.Flags().StringVar(&c.level, "level", "", "key, slot or both")
	complete(cmd, "level", []string{"key", "slot", "both"})
	complete(cmd, "algorithms", algorithmNames())
	return cmd
}

// comparison is one row of the result.
type comparison struct {
	Level         string     `json:"level"`
	Algorithm     string     `json:"algorithm"`
	Seconds       float64    `json:"seconds"`
	Overlap       float64    `json:"overlap"`
	ShardsBefore  int        `json:"shards_before"`
	ShardsAfter   int        `json:"shards_after"`
	ItemsPerShard float64    `json:"items_per_shard"`
	Std           float64    `json:"std"`
	Skew          *float64   `json:"skew"` // null if a shard has nothing
	Entropy       float64    `json:"entropy"`
	Reference     *reference `json:"reference,omitempty"`
	counts        []float64
}

func (c *compare) run(cmd *cobra.Command) error {
	if err := errors.Join(c.out.check(), checkCount("before", c.before, 1), checkCount("after", c.after, 1)); err != nil {
		return err
	}
	levels, err := c.levels()
	if err != nil {
		return err
	}
	hashes, count, err := c.keys.hashes(cmd.InOrStdin())
	if err != nil {
		return err
	}
	rows, skipped, err := c.rows(newProgress(cmd), levels, hashes)
	if err != nil {
		return err
	}
	for _, s := range skipped {
		fmt.Fprintln(cmd.ErrOrStderr(), "cleave: left out", s)
	}
	return c.out.write(cmd, func(w io.Writer) error { return c.print(w, levels, rows, count) })
}

func (c *compare) levels() ([]placement.Level, error) {
	switch c.level {
	case "key":
		return []placement.Level{placement.KeyLevel}, nil
	case "slot":
		return []placement.Level{placement.SlotLevel}, nil
	case "both":
		return []placement.Level{placement.KeyLevel, placement.SlotLevel}, nil
	case "":
		if c.out.format == formatTable {
			return []placement.Level{placement.KeyLevel, placement.SlotLevel}, nil
		}
		return []placement.Level{placement.KeyLevel}, nil
	default:
		return nil, wrongInputf("unknown level %q: use key, slot or both", c.level)
	}
}

// rows compares at every level. An algorithm that cannot make the change is an error if it was asked for by name, and is
// left out, with its reason, if it was not.
func (c *compare) rows(p *progress, levels []placement.Level, hashes iter.Seq[uint64]) (rows []comparison, skipped []string, err error) {
	defer p.done()
	names, chosen := c.algorithms, true
	if len(names) == 0 {
		return nil, nil, wrongInput(errors.New("--algorithms names none"))
	}
	if len(names) == 1 && names[0] == "all" {
		names, chosen = defaultComparison, false
	}
	for _, level := range levels {
		for i, name := range names {
			p.step("%s level: %s (%d of %d)", level, name, i+1, len(names))
			row, err := c.row(level, strings.TrimSpace(name), hashes)
			var wrong *inputError
			switch {
			case err == nil:
				rows = append(rows, row)
			case chosen || errors.As(err, &wrong):
				return nil, nil, wrongInput(err)
			default:
				skipped = append(skipped, fmt.Sprintf("%s at %s level: %v", name, level, err))
			}
		}
	}
	return rows, skipped, nil
}

func (c *compare) row(level placement.Level, name string, hashes iter.Seq[uint64]) (comparison, error) {
	algorithm, err := c.tuning.algorithm(name)
	if err != nil {
		return comparison{}, err
	}
	runtime.GC() // what the row before left behind is not this one's time
	started := time.Now()
	change, err := placement.NewChange(algorithm, level, placement.Numbered("shard-", c.before), placement.Numbered("shard-", c.after))
	if err != nil {
		return comparison{}, err
	}
	o := placement.Compare(change, hashes)
	f := placement.Measure(o.CountsAfter)
	row := comparison{
		Level: level.String(), Algorithm: name, Seconds: time.Since(started).Seconds(), Overlap: 100 * o.Overlap(),
		ShardsBefore: c.before, ShardsAfter: c.after, ItemsPerShard: f.Mean, Std: f.Std, Entropy: f.Entropy, counts: o.CountsAfter,
	}
	if skew := f.Skew(); !math.IsInf(skew, 0) {
		row.Skew = &skew
	}
	if level == placement.KeyLevel && c.before == 20 && c.after == 21 && o.Keys == 1_000_000 && c.keys.file == "" {
		row.Reference = references[name]
	}
	return row, nil
}

func (c *compare) print(w io.Writer, levels []placement.Level, rows []comparison, count int) error {
	switch c.out.format {
	case formatCSV:
		return c.printCSV(w, levels, rows)
	case formatJSON:
		return printJSON(w, map[string]any{"items": count, "rows": rows})
	case formatSVG:
		return c.printSVG(w, rows, count)
	default:
		return c.printTables(w, levels, rows, count)
	}
}

var compareColumns = []string{"algorithm", "seconds", "overlap", "shards_before", "shards_after", "items_per_shard", "std"}

// printCSV has exactly the columns that programs rely on; with both levels a first column tells them apart.
func (c *compare) printCSV(w io.Writer, levels []placement.Level, rows []comparison) error {
	columns := compareColumns
	if len(levels) > 1 {
		columns = append([]string{"level"}, columns...)
	}
	var cells [][]string
	for _, r := range rows {
		line := []string{
			r.Algorithm, decimal(r.Seconds, 6), decimal(r.Overlap, 4), strconv.Itoa(r.ShardsBefore), strconv.Itoa(r.ShardsAfter),
			decimal(r.ItemsPerShard, 2), decimal(r.Std, 2),
		}
		if len(levels) > 1 {
			line = append([]string{r.Level}, line...)
		}
		cells = append(cells, line)
	}
	return printCSV(w, columns, cells)
}

func decimal(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }

func (c *compare) printSVG(w io.Writer, rows []comparison, count int) error {
	drawn := make([]draw.Row, len(rows))
	for i, r := range rows {
		drawn[i] = draw.Row{Name: r.Algorithm, Counts: r.counts, Overlap: r.Overlap / 100}
		if c.level == "both" {
			drawn[i].Name += " (" + r.Level + " level)"
		}
	}
	title := fmt.Sprintf("From %d to %d shards, %s items", c.before, c.after, grouped(float64(count)))
	return draw.Comparison(w, title, "Left: where the items are after the change. Right: what the change cost.", drawn)
}

func (c *compare) printTables(w io.Writer, levels []placement.Level, rows []comparison, count int) error {
	for i, level := range levels {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if level == placement.KeyLevel {
			fmt.Fprintf(w, "Key level: each of %s keys goes through the algorithm.\n", grouped(float64(count)))
		} else {
			fmt.Fprintf(w, "Slot level: the algorithm places %s slots, %s keys fall into slots.\n",
				grouped(float64(c.tuning.config.Slots)), grouped(float64(count)))
		}
		if err := printComparison(w, level, rows); err != nil {
			return err
		}
		if through := c.throughMaps(rows); level == placement.KeyLevel && through != "" {
			fmt.Fprintln(w, "Through the map that they make:", through)
		}
	}
	return explainReferences(w, rows)
}

// throughMaps names the algorithms that place keys through their map.
func (c *compare) throughMaps(rows []comparison) string {
	var names []string
	for _, r := range rows {
		algorithm, err := c.tuning.algorithm(r.Algorithm)
		if err == nil && r.Level == placement.KeyLevel.String() && algorithm.Info().Keys != "direct" {
			names = append(names, r.Algorithm)
		}
	}
	return strings.Join(names, ", ")
}

func printComparison(w io.Writer, level placement.Level, rows []comparison) error {
	header := []string{"algorithm", "seconds", "overlap %", "before", "after", "items/shard", "std", "max/min"}
	var cells [][]any
	for _, r := range rows {
		if r.Level != level.String() {
			continue
		}
		skew := "inf"
		if r.Skew != nil {
			skew = decimal(*r.Skew, 2)
		}
		cells = append(cells, []any{r.Algorithm, decimal(r.Seconds, 3), decimal(r.Overlap, 2), r.ShardsBefore, r.ShardsAfter, decimal(r.ItemsPerShard, 1), decimal(r.Std, 2), skew})
	}
	return printTable(w, header, cells)
}
