package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/placement/draw"
)

func newMap() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:   "map",
		Short: "Show, back up, restore and check the shard map",
		Long: `The shard map of a running cluster: all shards, keyspaces, ranges, pins and tables at one version.
It is kept in etcd, and every shard has recorded what it owns, so it can be checked and rebuilt.`,
		Example: `  cleave map show
  cleave map export --output map.json
  cleave map check`,
		Args: cobra.ArbitraryArgs,
		RunE: helpOrUnknown,
	}
	c.flags(cmd)
	cmd.AddCommand(newMapShow(&c), newMapCreate(&c), newMapExport(&c), newMapImport(&c), newMapRebuild(&c), newMapCheck(&c))
	return cmd
}

func newMapShow(c *connection) *cobra.Command {
	var out output
	var keyspaces []string
	var shape string
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print or draw the map",
		Long: `Print what the map has, or draw it: a picture for each keyspace, in the colours of its shards.
Ranges of a hash are drawn as wide as they are; those of the key itself equally wide, since nobody
knows how many keys are in them.`,
		Example: `  cleave map show
  cleave map show --format svg --output map.svg
  cleave map show --format svg --keyspace users --shape strip --output users.svg`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			drawn, known := shapes[shape]
			if !known {
				return wrongInputf("unknown shape %q: use ring or strip", shape)
			}
			document, err := ask(cmd, c, "asking for the map", func(ctx context.Context, client *api.Client) ([]byte, error) { return client.MapDocument(ctx) })
			if err != nil {
				return err
			}
			if out.format == formatJSON {
				return out.write(cmd, func(w io.Writer) error { return printDocument(w, document) })
			}
			return showMap(cmd, &out, document, keyspaces, drawn)
		},
	}
	out.flags(cmd, formatTable, formatJSON, formatSVG)
	cmd.Flags().StringArrayVar(&keyspaces, "keyspace", nil, "draw only this keyspace; may be repeated")
	cmd.Flags().StringVar(&shape, "shape", "ring", "how to draw: ring or strip")
	complete(cmd, "shape", []string{"ring", "strip"})
	return cmd
}

// shapes are the words for --shape.
var shapes = map[string]draw.Shape{"ring": draw.Ring, "strip": draw.Strip}

func showMap(cmd *cobra.Command, out *output, document []byte, keyspaces []string, shape draw.Shape) error {
	m, err := topology.Decode(document)
	if err != nil {
		return err
	}
	if out.format == formatTable {
		return out.write(cmd, func(w io.Writer) error { return printMap(w, m) })
	}
	panels, err := mapPanels(m, keyspaces)
	if err != nil {
		return err
	}
	title := fmt.Sprintf("Shard map, version %d", m.Version())
	return out.write(cmd, func(w io.Writer) error { return draw.Maps(w, title, shape, panels...) })
}

// mapPanels makes a picture of every keyspace, or of those that are named.
func mapPanels(m *topology.Map, names []string) ([]draw.Panel, error) {
	for _, name := range names {
		if m.Keyspace(name) == nil {
			return nil, fmt.Errorf("keyspace %q does not exist", name)
		}
	}
	var panels []draw.Panel
	for _, k := range m.Keyspaces() {
		if len(names) > 0 && !slices.Contains(names, k.Name()) {
			continue
		}
		title := fmt.Sprintf("%s, by %s, %d ranges", k.Name(), k.Strategy(), k.RangeCount())
		drawable := k.Hashes()
		if drawable == nil {
			var err error
			if drawable, err = equallyWide(k.Keys()); err != nil {
				return nil, err
			}
			title += ", drawn equally wide"
		}
		panels = append(panels, draw.Panel{Title: title, Map: drawable})
	}
	if len(panels) == 0 {
		return nil, errors.New("there is nothing to draw: the map has no keyspaces")
	}
	return panels, nil
}

// equallyWide lays ranges of a key, which have an order but no length, out over the space evenly.
func equallyWide(keys *placement.KeyMap) (*placement.Map, error) {
	count := big.NewInt(int64(keys.Len()))
	ranges := make([]placement.OwnedHashRange, keys.Len())
	for i := range ranges {
		start := new(big.Int).Lsh(big.NewInt(int64(i)), 64)
		ranges[i].Lo, ranges[i].Owner = start.Quo(start, count).Uint64(), keys.At(i).Owner
		if i > 0 {
			ranges[i-1].Hi = ranges[i].Lo
		}
	}
	return placement.NewMap(keys.Shards(), ranges)
}

func printMap(w io.Writer, m *topology.Map) error {
	fmt.Fprintf(w, "Map version %d of cluster %s\n", m.Version(), m.Cluster())
	held := m.Holdings()
	var shards [][]any
	for s := range m.Shards() {
		has := held[s.Number()]
		shards = append(shards, []any{s.Name(), s.Number(), s.State(), s.Weight(), s.Primary(), has.Ranges, has.Pins, has.Tables, has.Copies})
	}
	var keyspaces []api.Keyspace
	for _, k := range m.Keyspaces() {
		keyspaces = append(keyspaces, api.DescribeKeyspace(k, false))
	}
	var tables [][]any
	for _, t := range m.Tables() {
		spec := t.Spec()
		tables = append(tables, []any{spec.Name, spec.Kind, spec.Keyspace, strings.Join(spec.Key, ", "), spec.Shard})
	}
	return errors.Join(
		printSome(w, "shards", []string{"shard", "number", "state", "weight", "address", "ranges", "pins", "tables", "copies"}, shards),
		printKeyspaces(w, keyspaces),
		printSome(w, "tables", []string{"table", "kind", "keyspace", "key", "shard"}, tables),
	)
}

// printSome prints a table, or that there is nothing to print.
func printSome(w io.Writer, what string, header []string, rows [][]any) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintf(w, "There are no %s yet.\n", what)
		return err
	}
	return printTable(w, header, rows)
}

// printDocument prints a map's document for people.
func printDocument(w io.Writer, document []byte) error {
	var indented bytes.Buffer
	if err := json.Indent(&indented, bytes.TrimSpace(document), "", "  "); err != nil {
		return fmt.Errorf("read the shard map: %w", err)
	}
	_, err := fmt.Fprintln(w, indented.String())
	return err
}

func newMapCreate(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "create",
		Short: "Make a new cluster: its first, empty map",
		Long: `Make the first map of a new cluster, with nothing in it. Refused if there is a map. A cluster that
has lost its map gets it back by 'cleave map import' or 'cleave map rebuild', not by this.`,
		Example: "  cleave map create",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			made, err := ask(cmd, c, "creating the map", func(ctx context.Context, client *api.Client) (api.MapChanged, error) { return client.CreateMap(ctx) })
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Cluster %s has a map, version %d.\n", made.Cluster, made.MapVersion)
			return err
		},
	}
}

func newMapExport(c *connection) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the map as a document, to keep or to edit",
		Long: `Write the whole map as one JSON document, which 'cleave map import' takes back. It holds no
passwords, only where they are.`,
		Example: "  cleave map export --output map.json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			document, err := ask(cmd, c, "asking for the map", func(ctx context.Context, client *api.Client) ([]byte, error) { return client.MapDocument(ctx) })
			if err != nil {
				return err
			}
			return out.write(cmd, func(w io.Writer) error { return printDocument(w, document) })
		},
	}
	out.format, out.allowed = formatJSON, []string{formatJSON}
	cmd.Flags().StringVarP(&out.file, "output", "o", "", "write to this file instead of standard output")
	_ = cmd.MarkFlagFilename("output", "json")
	return cmd
}

func newMapImport(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Put a map in force, from a backup or edited",
		Long: `Put the map in a document in force; '-' is standard input. It must be of this cluster, or there must
be no map yet. Its version is raised above all before it. What the shards really hold is not
changed: 'cleave map check' tells whether they agree.`,
		Example: "  cleave map import map.json",
		Args:    needs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			document, err := readDocument(cmd, args[0])
			if err != nil {
				return err
			}
			changed, err := ask(cmd, c, "importing the map", func(ctx context.Context, client *api.Client) (api.MapChanged, error) {
				return client.ImportMap(ctx, document)
			})
			if err != nil {
				return err
			}
			warn(cmd, changed.Findings)
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "The map of cluster %s is in force, version %d.\n", changed.Cluster, changed.MapVersion)
			return err
		},
	}
}

func readDocument(cmd *cobra.Command, path string) ([]byte, error) {
	var document []byte
	var err error
	if path == "-" {
		document, err = io.ReadAll(cmd.InOrStdin())
	} else {
		document, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, wrongInput(err)
	}
	if !json.Valid(document) {
		return nil, wrongInputf("%s is not JSON: 'cleave map export' writes what is needed", path)
	}
	return document, nil
}

func newMapRebuild(c *connection) *cobra.Command {
	var out output
	var shards []string
	var apply bool
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Make the map anew from what the shards have recorded",
		Long: `Ask the shards what each has recorded that it owns, and put the map together from that: for when
etcd and every backup of it are lost. Shows the map; with --apply it comes in force. Without
--shard the shards of the map in force are asked.`,
		Example: `  cleave map rebuild --shard 10.0.0.11:5432 --shard 10.0.0.12:5432
  cleave map rebuild --shard 10.0.0.11:5432 --shard 10.0.0.12:5432 --apply`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			request := api.RebuildMap{Apply: apply}
			for _, address := range shards {
				request.Shards = append(request.Shards, topology.ShardSpec{Primary: topology.InstanceSpec{Address: address}})
			}
			rebuilt, err := ask(cmd, c, "asking the shards", func(ctx context.Context, client *api.Client) (api.RebuiltMap, error) {
				return client.RebuildMap(ctx, request)
			})
			if err != nil {
				return err
			}
			warn(cmd, rebuilt.Findings)
			return out.write(cmd, func(w io.Writer) error {
				if out.format == formatJSON {
					return printJSON(w, rebuilt)
				}
				return printRebuilt(w, rebuilt)
			})
		},
	}
	out.flags(cmd, formatTable, formatJSON)
	cmd.Flags().StringArrayVar(&shards, "shard", nil, "host:port of a shard to ask; may be repeated")
	cmd.Flags().BoolVar(&apply, "apply", false, "put the rebuilt map in force")
	return cmd
}

func printRebuilt(w io.Writer, rebuilt api.RebuiltMap) error {
	document, err := json.Marshal(rebuilt.Map)
	if err != nil {
		return err
	}
	m, err := topology.Decode(document)
	if err != nil {
		return err
	}
	if err := printMap(w, m); err != nil {
		return err
	}
	last := "Nothing was changed: with --apply this map comes in force."
	if rebuilt.MapVersion > 0 {
		last = fmt.Sprintf("The rebuilt map is in force, version %d.", rebuilt.MapVersion)
	}
	_, err = fmt.Fprintln(w, last)
	return err
}

func newMapCheck(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Hold the map against what the shards have recorded",
		Long: `Ask every shard what it has recorded and compare that with the map, and the shards with each other.
Says 'ok' or what was found; exit code 1 means that there are problems, not only warnings.`,
		Example: "  cleave map check",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings, err := ask(cmd, c, "asking the shards", func(ctx context.Context, client *api.Client) ([]api.Finding, error) { return client.CheckMap(ctx) })
			if err != nil {
				return err
			}
			return reportCheck(cmd, findings)
		},
	}
}

// reportCheck prints what was found, and fails if any of it is a problem.
func reportCheck(cmd *cobra.Command, findings []api.Finding) error {
	for _, f := range findings {
		fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(findingLine(f)))
	}
	if problems := countProblems(findings); problems > 0 {
		return fmt.Errorf("the map and the shards do not agree: problems found: %d", problems)
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), "ok")
	return err
}

func countProblems(findings []api.Finding) int {
	problems := 0
	for _, f := range findings {
		if f.Severity == api.Problem {
			problems++
		}
	}
	return problems
}
