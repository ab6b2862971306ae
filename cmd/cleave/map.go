package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
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
  cleave map show --keyspace users
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
			if out.format == formatJSON && len(keyspaces) > 0 {
				return wrongInputf("as JSON the map is shown whole: 'cleave keyspace show NAME --format json' shows one keyspace")
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
	cmd.Flags().StringArrayVar(&keyspaces, "keyspace", nil, "show or draw only this keyspace; may be repeated")
	cmd.Flags().StringVar(&shape, "shape", "ring", "how to draw: ring or strip")
	complete(cmd, "shape", []string{"ring", "strip"})
	return cmd
}

func showMap(cmd *cobra.Command, out *output, document []byte, names []string, shape draw.Shape) error {
	m, err := topology.Decode(document)
	if err != nil {
		return err
	}
	keyspaces, err := chosen(m, names)
	if err != nil {
		return err
	}
	switch {
	case out.format == formatSVG:
		return drawMap(cmd, out, m.Version(), keyspaces, shape)
	case len(names) > 0:
		return out.write(cmd, func(w io.Writer) error { return printChosen(w, m, keyspaces) })
	default:
		return out.write(cmd, func(w io.Writer) error { return printMap(w, m) })
	}
}

// chosen returns the keyspaces with these names, or all of them.
func chosen(m *topology.Map, names []string) ([]*topology.Keyspace, error) {
	for _, name := range names {
		if m.Keyspace(name) == nil {
			return nil, fmt.Errorf("keyspace %q does not exist", name)
		}
	}
	var keyspaces []*topology.Keyspace
	for _, k := range m.Keyspaces() {
		if len(names) == 0 || slices.Contains(names, k.Name()) {
			keyspaces = append(keyspaces, k)
		}
	}
	return keyspaces, nil
}

// printChosen prints some keyspaces, what each shard has of them, and their tables.
func printChosen(w io.Writer, m *topology.Map, keyspaces []*topology.Keyspace) error {
	printMapHead(w, m)
	for _, k := range keyspaces {
		if err := printKeyspace(w, api.DescribeKeyspace(k, false)); err != nil {
			return err
		}
	}
	return printTables(w, m, func(t topology.TableSpec) bool {
		return slices.ContainsFunc(keyspaces, func(k *topology.Keyspace) bool { return k.Name() == t.Keyspace })
	})
}

func printMapHead(w io.Writer, m *topology.Map) {
	fmt.Fprintf(w, "Map version %d of cluster %s\n", m.Version(), m.Cluster())
}

func printMap(w io.Writer, m *topology.Map) error {
	printMapHead(w, m)
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
	return errors.Join(
		printSome(w, "shards", []string{"shard", "number", "state", "weight", "address", "ranges", "pins", "tables", "copies"}, shards),
		printKeyspaces(w, keyspaces),
		printTables(w, m, func(topology.TableSpec) bool { return true }),
	)
}

func printTables(w io.Writer, m *topology.Map, wanted func(topology.TableSpec) bool) error {
	var tables [][]any
	for _, t := range m.Tables() {
		if spec := t.Spec(); wanted(spec) {
			tables = append(tables, []any{spec.Name, spec.Kind, spec.Keyspace, strings.Join(spec.Key, ", "), spec.Shard})
		}
	}
	return printSome(w, "tables", []string{"table", "kind", "keyspace", "key", "shard"}, tables)
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

// rebuildFlags are the flags of 'map rebuild'.
type rebuildFlags struct {
	shards     []string
	login      loginFlags
	apply      bool
	allowOlder bool
}

func newMapRebuild(c *connection) *cobra.Command {
	var out output
	var f rebuildFlags
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Make the map anew from what the shards have recorded",
		Long: `Ask the shards what each has recorded that it owns, and put the map together from that: for when
etcd and every backup of it are lost. Shows the map; with --apply it comes in force. Without
--shard the shards of the map in force are asked.

What says how to log in to the named shards, and is left out, comes from the configuration of the
cluster's processes. A local cluster ('cleave dev') keeps the password of its servers in the file
'password' of its folder.

A shard that was away has recorded an older map than the others. Where only its word says who owns
something, the map is refused; --allow-older takes its word.`,
		Example: `  cleave map rebuild --shard 10.0.0.11:5432 --shard 10.0.0.12:5432
  cleave map rebuild --shard 10.0.0.11:5432 --shard 10.0.0.12:5432 --user app --password-env APP_PASSWORD --apply
  cleave map rebuild --shard 127.0.0.1:40001 --shard 127.0.0.1:40002 --password-file /var/lib/cleave/dev/password`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			request, err := f.request(cmd)
			if err != nil {
				return err
			}
			rebuilt, err := ask(cmd, c, "asking the shards", func(ctx context.Context, client *api.Client) (api.RebuiltMap, error) {
				return client.RebuildMap(ctx, request)
			})
			if err != nil {
				return f.withHint(err)
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
	cmd.Flags().StringArrayVar(&f.shards, "shard", nil, "host:port of a shard to ask; may be repeated")
	f.login.flags(cmd)
	cmd.Flags().BoolVar(&f.apply, "apply", false, "put the rebuilt map in force")
	cmd.Flags().BoolVar(&f.allowOlder, "allow-older", false, "take shards at their word that have recorded an older map than others")
	return cmd
}

// withHint adds how to log in to a refusal that may have come of not knowing it.
func (f *rebuildFlags) withHint(err error) error {
	var refused *api.RequestError
	if !errors.As(err, &refused) || len(f.shards) == 0 || f.login.passwordFile+f.login.passwordEnv != "" {
		return err
	}
	if refused.Answer.Hint == "" && slices.ContainsFunc(refused.Answer.Findings, func(found api.Finding) bool { return found.Code == "unreachable" }) {
		refused.Answer.Hint = "--user, --password-file and their like say how to log in; a local cluster keeps its password in the file 'password' of its folder."
	}
	return err
}

// request makes a request of the flags.
func (f *rebuildFlags) request(cmd *cobra.Command) (api.RebuildMap, error) {
	request := api.RebuildMap{Apply: f.apply, AllowOlder: f.allowOlder}
	if len(f.shards) == 0 {
		for _, name := range loginNames {
			if cmd.Flags().Changed(name) {
				return request, wrongInputf("--%s is for shards that are named with --shard", name)
			}
		}
	}
	for _, address := range f.shards {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return request, wrongInputf("--shard %q: write host:port", address)
		}
		spec := topology.ShardSpec{Primary: topology.InstanceSpec{Address: address}}
		if err := f.login.apply(&spec); err != nil {
			return request, err
		}
		request.Shards = append(request.Shards, spec)
	}
	return request, nil
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
Says what was found, and 'ok' if none of it is wrong. Exit code 1 means that something is; warnings
do not count.`,
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
	verdict := "ok"
	if len(findings) > 0 {
		verdict += ", with " + counted(len(findings), "warning")
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), verdict)
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
