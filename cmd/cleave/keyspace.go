package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
)

func newKeyspace() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:   "keyspace",
		Short: "List, create and drop keyspaces",
		Long: `The keyspaces of a running cluster. A keyspace is a family of tables with the same key types and
the same ranges, so that rows with equal keys live together.`,
		Example: `  cleave keyspace list
  cleave keyspace create users --key bigint
  cleave keyspace show users --ranges`,
		Args: cobra.ArbitraryArgs,
		RunE: helpOrUnknown,
	}
	c.flags(cmd)
	cmd.AddCommand(newKeyspaceList(&c), newKeyspaceShow(&c), newKeyspaceCreate(&c), newKeyspaceDrop(&c))
	return cmd
}

func newKeyspaceList(c *connection) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the keyspaces",
		Example: "  cleave keyspace list\n  cleave keyspace list --format json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			list, err := ask(cmd, c, "asking for the keyspaces", func(ctx context.Context, client *api.Client) (api.KeyspaceList, error) { return client.Keyspaces(ctx) })
			if err != nil {
				return err
			}
			return out.write(cmd, func(w io.Writer) error {
				if out.format == formatJSON {
					return printJSON(w, list)
				}
				return printKeyspaces(w, list.Keyspaces)
			})
		},
	}
	out.flags(cmd, formatTable, formatJSON)
	return cmd
}

func printKeyspaces(w io.Writer, keyspaces []api.Keyspace) error {
	if len(keyspaces) == 0 {
		_, err := fmt.Fprintln(w, "There are no keyspaces yet: 'cleave keyspace create NAME --key bigint' makes one.")
		return err
	}
	rows := make([][]any, len(keyspaces))
	for i, k := range keyspaces {
		rows[i] = []any{k.Name, k.Strategy, keyText(k.KeyspaceHead), k.Assignment.Algorithm, k.RangeCount, k.PinCount, len(k.Shares)}
	}
	return printTable(w, []string{"keyspace", "strategy", "key", "algorithm", "ranges", "pins", "shards"}, rows)
}

func keyText(k topology.KeyspaceHead) string {
	switch {
	case k.Strategy == topology.BySchema:
		return "schema name"
	case len(k.Key) == 1:
		return k.Key[0]
	default:
		return "(" + strings.Join(k.Key, ", ") + ")"
	}
}

func newKeyspaceShow(c *connection) *cobra.Command {
	var out output
	var ranges bool
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show a keyspace and what each shard has of it",
		Example: "  cleave keyspace show users\n  cleave keyspace show users --ranges",
		Args:    needsName("keyspace", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			k, err := ask(cmd, c, "asking for the keyspace", func(ctx context.Context, client *api.Client) (api.Keyspace, error) {
				return client.Keyspace(ctx, args[0], ranges)
			})
			if err != nil {
				return err
			}
			return out.write(cmd, func(w io.Writer) error {
				if out.format == formatJSON {
					return printJSON(w, k)
				}
				return printKeyspace(w, k)
			})
		},
	}
	out.flags(cmd, formatTable, formatJSON)
	cmd.Flags().BoolVar(&ranges, "ranges", false, "list every range")
	return cmd
}

func printKeyspace(w io.Writer, k api.Keyspace) error {
	text := fmt.Sprintf("Keyspace %s: by %s, key %s", k.Name, k.Strategy, keyText(k.KeyspaceHead))
	if k.Assignment.Algorithm != "" {
		text += ", ranges by " + k.Assignment.Algorithm
	}
	if k.Seed != "" {
		text += ", seed " + k.Seed
	}
	fmt.Fprintln(w, text)
	rows := make([][]any, len(k.Shares))
	for i, s := range k.Shares {
		rows[i] = []any{s.Shard, s.Ranges, s.Pins}
		if k.Strategy != topology.ByRange {
			rows[i] = append(rows[i], fmt.Sprintf("%.2f %%", 100*s.Share))
		}
	}
	header := []string{"shard", "ranges", "pins"}
	if k.Strategy != topology.ByRange {
		header = append(header, "of the space")
	}
	if err := printTable(w, header, rows); err != nil || len(k.Ranges) == 0 {
		return err
	}
	return printRanges(w, k)
}

func printRanges(w io.Writer, k api.Keyspace) error {
	busy := map[string]float64{} // by where the range begins
	var pins [][]any
	for _, t := range k.Traffic {
		if len(t.Key) > 0 {
			pins = append(pins, []any{t.Key.String(), perSecond(t.StatementsPerSecond)})
			continue
		}
		busy[t.From.String()] = t.StatementsPerSecond
	}
	rows := make([][]any, len(k.Ranges))
	for i, r := range k.Ranges {
		to := "the end"
		if i+1 < len(k.Ranges) {
			to = k.Ranges[i+1].From.String()
		}
		rows[i] = []any{r.From.String(), to, r.Shard, perSecond(busy[r.From.String()]), rangeNotes(r)}
	}
	if err := printTable(w, []string{"from", "to", "shard", "statements/s", "notes"}, rows); err != nil || len(pins) == 0 {
		return err
	}
	return printTable(w, []string{"pinned key", "statements/s"}, pins)
}

// perSecond writes a rate, and nothing for one that nobody tells.
func perSecond(rate float64) string {
	if rate == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", rate)
}

func rangeNotes(r topology.RangeSpec) string {
	var notes []string
	if r.Held {
		notes = append(notes, "held")
	}
	for _, c := range r.Copies {
		notes = append(notes, fmt.Sprintf("%s on %s", c.State, c.Shard))
	}
	return strings.Join(notes, ", ")
}

// keyspaceFlags are the flags of 'keyspace create'.
type keyspaceFlags struct {
	request  api.CreateKeyspace
	strategy string
	splitAt  []string
	given    func(flag string) bool // whether the user set it
}

func newKeyspaceCreate(c *connection) *cobra.Command {
	var f keyspaceFlags
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a keyspace, its ranges dealt to the active shards",
		Long: `Create a keyspace:
  by hash    ranges of PostgreSQL's hash of the key, made by an algorithm of 'cleave placement'
  by range   ranges of the key itself, split at the points you name
  by schema  whole PostgreSQL schemas, one for each tenant

A key of several columns is named with commas, and so are its split points, which may leave the
last values out.`,
		Example: `  cleave keyspace create users
  cleave keyspace create messages --key bigint,text --algorithm ring --virtual-nodes 200
  cleave keyspace create orders --strategy range --key bigint --split-at 1000000 --split-at 2000000
  cleave keyspace create tenants --strategy schema`,
		Args: needsName("keyspace", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := f.complete(args[0])
			if err != nil {
				return err
			}
			made, err := ask(cmd, c, "creating keyspace "+args[0], func(ctx context.Context, client *api.Client) (api.KeyspaceChanged, error) {
				return client.CreateKeyspace(ctx, request)
			})
			if err != nil {
				return err
			}
			k := made.Keyspace
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Keyspace %s: by %s, key %s, %s on %s. Map version %d.\n", k.Name, k.Strategy, keyText(k.KeyspaceHead), counted(k.RangeCount, "range"), counted(len(k.Shares), "shard"), made.MapVersion)
			return err
		},
	}
	f.flags(cmd)
	return cmd
}

// strategies are the words for --strategy.
var strategies = []string{string(topology.ByHash), string(topology.ByRange), string(topology.BySchema)}

func (f *keyspaceFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.strategy, "strategy", string(topology.ByHash), "what the ranges are ranges of: "+strings.Join(strategies, ", "))
	flags.StringSliceVar(&f.request.Key, "key", nil, "the key's types, such as bigint or bigint,text (default bigint; none for schemas)")
	flags.StringVar(&f.request.Algorithm, "algorithm", "", "makes the ranges of a keyspace by hash or schema: "+strings.Join(algorithmNames(), ", ")+" (default slots)")
	flags.IntVar(&f.request.Slots, "slots", 0, "logical slots, a power of two, for algorithms that place slots (default 1024)")
	flags.IntVar(&f.request.VirtualNodes, "virtual-nodes", 0, "points of a shard on a ring (default 150)")
	flags.StringArrayVar(&f.splitAt, "split-at", nil, "where a keyspace by range is split; may be repeated")
	flags.StringVar(&f.request.Seed, "seed", "", "seed of the hash, a signed 64-bit number (default random)")
	f.given = flags.Changed
	complete(cmd, "strategy", strategies)
	complete(cmd, "algorithm", algorithmNames())
}

// complete makes a request of the flags.
func (f *keyspaceFlags) complete(name string) (api.CreateKeyspace, error) {
	request := f.request
	request.Name, request.Strategy = name, topology.Strategy(f.strategy)
	if !slices.Contains(strategies, f.strategy) {
		return request, wrongInputf("unknown strategy %q: use %s", f.strategy, strings.Join(strategies, ", "))
	}
	if request.Algorithm != "" {
		if err := checkAlgorithm(request.Algorithm); err != nil {
			return request, err
		}
	}
	// The API takes 0 for its default; here somebody who types 0 means it.
	if f.given("slots") && request.Slots < 1 || f.given("virtual-nodes") && request.VirtualNodes < 1 {
		return request, wrongInputf("--slots and --virtual-nodes must be above 0")
	}
	for _, text := range f.splitAt {
		point, err := parsePoint(text, len(request.Key))
		if err != nil {
			return request, err
		}
		request.SplitAt = append(request.SplitAt, point)
	}
	return request, nil
}

// parsePoint reads a split point. That of a key with one column is taken as it is, whatever is in it; others are separated
// by commas and quoted as in CSV.
func parsePoint(text string, columns int) (topology.Point, error) {
	if columns < 2 {
		return topology.Point{text}, nil
	}
	values, err := csv.NewReader(strings.NewReader(text)).Read()
	if err != nil {
		return nil, wrongInputf("--split-at %q: write the values with commas between them, in double quotes where they hold commas", text)
	}
	return values, nil
}

func newKeyspaceDrop(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:     "drop NAME",
		Short:   "Drop a keyspace that no table uses",
		Example: "  cleave keyspace drop users",
		Args:    needsName("keyspace", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			changed, err := ask(cmd, c, "dropping keyspace "+args[0], func(ctx context.Context, client *api.Client) (api.MapChanged, error) {
				return client.DropKeyspace(ctx, args[0])
			})
			if err != nil {
				return err
			}
			warn(cmd, changed.Findings)
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Keyspace %s is out of the map, version %d.\n", args[0], changed.MapVersion)
			return err
		},
	}
}
