package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
)

func newShard() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:   "shard",
		Short: "List, add, change and remove shards",
		Long: `The shards of a running cluster. A shard is one PostgreSQL database: a primary and its replicas.
A new one owns nothing until ranges are assigned to it, and only one that owns nothing can be removed.`,
		Example: `  cleave shard list
  cleave shard add eu-1 --address 10.0.0.11:5432
  cleave shard set-state eu-1 draining`,
		Args: cobra.ArbitraryArgs,
		RunE: helpOrUnknown,
	}
	c.flags(cmd)
	cmd.AddCommand(newShardList(&c), newShardShow(&c), newShardAdd(&c), newShardRemove(&c), newShardSetWeight(&c), newShardLabel(&c), newShardSetState(&c), newShardReadOnly(&c), newShardDrain(&c))
	return cmd
}

func newShardList(c *connection) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the shards, what they have and how they are",
		Example: "  cleave shard list\n  cleave shard list --format json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			shards, err := ask(cmd, c, "asking for the shards", func(ctx context.Context, client *api.Client) ([]api.ShardStatus, error) { return client.Shards(ctx) })
			if err != nil {
				return err
			}
			return out.write(cmd, func(w io.Writer) error {
				if out.format == formatJSON {
					return printJSON(w, api.ShardList{Shards: shards})
				}
				return printShards(w, shards)
			})
		},
	}
	out.flags(cmd, formatTable, formatJSON)
	return cmd
}

func printShards(w io.Writer, shards []api.ShardStatus) error {
	if len(shards) == 0 {
		_, err := fmt.Fprintln(w, "There are no shards yet: 'cleave shard add NAME --address host:port' adds one.")
		return err
	}
	rows := make([][]any, len(shards))
	for i, s := range shards {
		server, _, _ := strings.Cut(s.ServerVersion, " ") // without the name of its packager
		rows[i] = []any{s.Name, s.State, s.Weight, s.Primary.Address, s.Ranges, s.Pins, s.Tables, server, connectionsCell(s.Connections), healthOf(s)}
	}
	return printTable(w, []string{"shard", "state", "weight", "address", "ranges", "pins", "tables", "PostgreSQL", "connections", "health"}, rows)
}

// connectionsCell is what all routers may use, of what the server has.
func connectionsCell(c *api.Connections) string {
	if c == nil || c.Routers == 0 {
		return ""
	}
	return fmt.Sprintf("%d × %d of %d", c.Routers, c.Limit, c.Max)
}

// connectionsText is the arithmetic behind it.
func connectionsText(c *api.Connections) string {
	if c == nil || c.Routers == 0 {
		return ""
	}
	text := fmt.Sprintf("max_connections %d, %d reserved, %d for routers; %s, each up to %d", c.Max, c.Reserved, c.ForRouters, counted(c.Routers, "router"), c.Limit)
	if c.Limit < c.PerShard {
		text += fmt.Sprintf(" instead of pool.per_shard %d", c.PerShard)
	}
	return text
}

// healthOf says in a few words how a shard is.
func healthOf(s api.ShardStatus) string {
	if !s.Up {
		return "down"
	}
	health := "up"
	if len(s.ReplicaStatus) > 0 {
		up := 0
		for _, r := range s.ReplicaStatus {
			if r.Up {
				up++
			}
		}
		health += fmt.Sprintf(", %d of %d replicas", up, len(s.ReplicaStatus))
	}
	return health
}

func newShardShow(c *connection) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show all that is known of a shard",
		Example: "  cleave shard show eu-1",
		Args:    needsName("shard", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			s, err := ask(cmd, c, "asking for the shard", func(ctx context.Context, client *api.Client) (api.ShardStatus, error) {
				return client.Shard(ctx, args[0])
			})
			if err != nil {
				return err
			}
			return out.write(cmd, func(w io.Writer) error {
				if out.format == formatJSON {
					return printJSON(w, s)
				}
				return printShard(w, s)
			})
		},
	}
	out.flags(cmd, formatTable, formatJSON)
	return cmd
}

func printShard(w io.Writer, s api.ShardStatus) error {
	rows := [][]any{
		{"shard", s.Name}, {"number", s.Number}, {"state", s.State}, {"weight", s.Weight}, {"labels", labelText(s.Labels)},
		{"address", s.Primary.Address}, {"login", loginText(s.ShardSpec)},
		{"has", holdings(s)},
		{"health", healthOf(s)}, {"error", s.Error},
		{"latency", time.Duration(s.LatencySeconds * float64(time.Second)).Round(10 * time.Microsecond)},
		{"PostgreSQL", s.ServerVersion}, {"connections", connectionsText(s.Connections)}, {"recorded map version", s.RecordedVersion},
	}
	for _, r := range s.ReplicaStatus {
		rows = append(rows, []any{"replica " + r.Address, replicaText(r)})
	}
	rows = slices.DeleteFunc(rows, func(row []any) bool { return row[1] == "" })
	return printTable(w, []string{"property", "value"}, rows)
}

func holdings(s api.ShardStatus) string {
	parts := []string{counted(s.Ranges, "range"), counted(s.Pins, "pin"), counted(s.Tables, "single table")}
	if s.Copies == 1 {
		return strings.Join(append(parts, "1 copy"), ", ")
	}
	return strings.Join(append(parts, fmt.Sprintf("%d copies", s.Copies)), ", ")
}

func replicaText(r api.ReplicaStatus) string {
	if !r.Up {
		return "down: " + r.Error
	}
	return fmt.Sprintf("up, %.1f s behind", r.LagSeconds)
}

func labelText(labels map[string]string) string {
	parts := make([]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, name+"="+labels[name])
	}
	return strings.Join(parts, ", ")
}

// loginText lists what the shard says about logging in; the rest comes from the configuration.
func loginText(s topology.ShardSpec) string {
	var parts []string
	for _, part := range []struct{ name, value string }{
		{"database", s.Database}, {"user", s.User}, {"password from", s.Password.String()}, {"sslmode", s.SSLMode}, {"sslrootcert", s.SSLRootCert},
	} {
		if part.value != "" {
			parts = append(parts, part.name+" "+part.value)
		}
	}
	return strings.Join(parts, ", ")
}

// shardFlags are the flags of 'shard add'.
type shardFlags struct {
	spec     topology.ShardSpec
	login    loginFlags
	replicas []string
	labels   []string
}

func newShardAdd(c *connection) *cobra.Command {
	var f shardFlags
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Check a server and make it a shard",
		Long: `Look at a server, compare it with the shards that are there, install the schema 'cleave' in its
database and add it to the map. If something stands in the way, everything that does is listed and
nothing is changed. The new shard owns nothing yet.

What says how to log in and is left out comes from the configuration of the processes of the
cluster. Passwords are named, never given: the file or variable is read by those processes.
A local cluster ('cleave dev') starts a server by itself if no address is given.`,
		Example: `  cleave shard add eu-1 --address 10.0.0.11:5432 --replica 10.0.0.12:5432 --label region=eu
  cleave shard add eu-2 --address db.internal:5432 --user app --password-env EU_2_PASSWORD --weight 2
  cleave shard add extra`,
		Args: needsName("shard", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := f.request(args[0])
			if err != nil {
				return err
			}
			added, err := ask(cmd, c, "adding shard "+args[0], func(ctx context.Context, client *api.Client) (api.ShardChanged, error) {
				return client.AddShard(ctx, request)
			})
			if err != nil {
				return err
			}
			return printAdded(cmd, added)
		},
	}
	f.flags(cmd)
	return cmd
}

func (f *shardFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.spec.Primary.Address, "address", "", "host:port of the server that takes writes")
	flags.StringArrayVar(&f.replicas, "replica", nil, "host:port of a replica; may be repeated")
	f.login.flags(cmd)
	flags.Float64Var(&f.spec.Weight, "weight", 1, "share of data the shard should get, beside the other shards' weights")
	flags.StringArrayVar(&f.labels, "label", nil, "a label such as region=eu; may be repeated")
}

// request makes a request of the flags.
func (f *shardFlags) request(name string) (api.AddShard, error) {
	spec := f.spec
	spec.Name = name
	if !isWeight(spec.Weight) {
		return api.AddShard{}, wrongInputf("--weight %v is not a number above 0", spec.Weight)
	}
	for _, address := range f.replicas {
		spec.Replicas = append(spec.Replicas, topology.InstanceSpec{Address: address})
	}
	if err := f.login.apply(&spec); err != nil {
		return api.AddShard{}, err
	}
	changes, err := parseLabels(f.labels)
	if err != nil {
		return api.AddShard{}, err
	}
	for label, value := range changes {
		if value == nil {
			return api.AddShard{}, wrongInputf("--label %s-: a new shard has no labels to remove", label)
		}
		if spec.Labels == nil {
			spec.Labels = map[string]string{}
		}
		spec.Labels[label] = *value
	}
	return api.AddShard{ShardSpec: spec}, nil
}

func printAdded(cmd *cobra.Command, added api.ShardChanged) error {
	warn(cmd, added.Findings)
	if len(added.Checked) > 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "Checked: %s.\n", strings.Join(added.Checked, ", "))
	}
	s := added.Shard
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "Shard %s (number %d) at %s is in the map, version %d. It owns nothing yet.\n", s.Name, s.Number, s.Primary.Address, added.MapVersion)
	return err
}

// parseLabels reads labels to set, as in region=eu, and to remove, as in region-.
func parseLabels(words []string) (map[string]*string, error) {
	labels := map[string]*string{}
	for _, word := range words {
		name, value, sets := strings.Cut(word, "=")
		if !sets {
			var removes bool
			if name, removes = strings.CutSuffix(word, "-"); !removes {
				return nil, wrongInputf("label %q: write name=value to set it, name- to remove it", word)
			}
		}
		if name == "" {
			return nil, wrongInputf("label %q has no name: write name=value to set it, name- to remove it", word)
		}
		if _, twice := labels[name]; twice {
			return nil, wrongInputf("label %q: name each label once", word)
		}
		labels[name] = nil
		if sets {
			labels[name] = &value
		}
	}
	return labels, nil
}

func newShardRemove(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a shard that owns nothing",
		Long: `Take a shard out of the map and drop the schema 'cleave' in its database. Refused while it has
ranges, pinned keys, single tables or copies, so no row can be lost by it: 'cleave shard drain' moves them
away. The home shard, which is the first one, goes last.`,
		Example: "  cleave shard remove eu-1",
		Args:    needsName("shard", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			removed, err := ask(cmd, c, "removing shard "+args[0], func(ctx context.Context, client *api.Client) (api.ShardChanged, error) {
				return client.RemoveShard(ctx, args[0])
			})
			if err != nil {
				return err
			}
			warn(cmd, removed.Findings)
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Shard %s is out of the map, version %d.\n", args[0], removed.MapVersion)
			return err
		},
	}
}

func newShardSetWeight(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set-weight NAME WEIGHT",
		Short: "Change the share of data that a shard should get",
		Long: `Change a shard's weight beside the other shards' weights. It counts when ranges are next
assigned; nothing moves by itself.`,
		Example: "  cleave shard set-weight eu-1 2.5",
		Args:    needsName("shard", "NAME", "WEIGHT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			weight, err := parseWeight(args[1])
			if err != nil {
				return err
			}
			return updateShard(cmd, c, args[0], api.UpdateShard{Weight: &weight})
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if weight, is := negative(err); is {
			return wrongWeight(weight)
		}
		return wrongFlag(cmd, err)
	})
	return cmd
}

func parseWeight(text string) (float64, error) {
	weight, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, wrongInputf("weight %q is not a number", text)
	}
	if !isWeight(weight) {
		return 0, wrongWeight(text)
	}
	return weight, nil
}

func isWeight(weight float64) bool { return weight > 0 && !math.IsInf(weight, 0) }

func wrongWeight(text string) error {
	return wrongInputf("weight %s is not a number above 0. To give a shard nothing more, set its state to draining.", text)
}

func newShardLabel(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:     "label NAME LABEL=VALUE... LABEL-...",
		Short:   "Set and remove a shard's labels",
		Example: "  cleave shard label eu-1 region=eu rack=7 old-",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return wrongInputf("write '%s NAME LABEL=VALUE' or '… LABEL-'", cmd.CommandPath())
			}
			return checkName("shard", args[0])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			labels, err := parseLabels(args[1:])
			if err != nil {
				return err
			}
			return updateShard(cmd, c, args[0], api.UpdateShard{Labels: labels})
		},
	}
}

func newShardSetState(c *connection) *cobra.Command {
	var words []string
	for _, state := range topology.States() {
		words = append(words, string(state))
	}
	return &cobra.Command{
		Use:   "set-state NAME STATE",
		Short: "Say what a shard may be used for",
		Long: `Set a shard's state:
  active       it serves, and new ranges may be assigned to it
  draining     it serves, and gets nothing new
  read-only    it answers reads and refuses writes
  maintenance  it is not used: routers refuse statements for it`,
		Example:   "  cleave shard set-state eu-1 draining",
		Args:      needsName("shard", "NAME", "STATE"),
		ValidArgs: words,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(words, args[1]) {
				return wrongInputf("state %q is none of %s", args[1], strings.Join(words, ", "))
			}
			return setState(cmd, c, args[0], topology.State(args[1]))
		},
	}
}

func newShardReadOnly(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "read-only NAME",
		Short: "Refuse writes on a shard, and go on reading",
		Long: `Set a shard's state to read-only: statements that would change something there are refused, and say
so (25006), reads go on. It ends with 'cleave shard set-state NAME active'.`,
		Example: `  cleave shard read-only eu-1
  cleave shard set-state eu-1 active    # it takes writes again`,
		Args: needsName("shard", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return setState(cmd, c, args[0], topology.ReadOnly)
		},
	}
}

func setState(cmd *cobra.Command, c *connection, name string, state topology.State) error {
	return updateShard(cmd, c, name, api.UpdateShard{State: &state})
}

// updateShard changes a shard and prints what it is now.
func updateShard(cmd *cobra.Command, c *connection, name string, request api.UpdateShard) error {
	changed, err := ask(cmd, c, "changing shard "+name, func(ctx context.Context, client *api.Client) (api.ShardChanged, error) {
		return client.UpdateShard(ctx, name, request)
	})
	if err != nil {
		return err
	}
	warn(cmd, changed.Findings)
	s := changed.Shard
	text := fmt.Sprintf("Shard %s: %s, weight %v", s.Name, s.State, s.Weight)
	if len(s.Labels) > 0 {
		text += ", " + labelText(s.Labels)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s. Map version %d.\n", text, changed.MapVersion)
	return err
}
