package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/topology"
)

func newTable() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:   "table",
		Short: "List tables, shard them, and make reference tables",
		Long: `The tables of a running cluster. A table is created as in PostgreSQL, and is then on the home shard
alone. It can be sharded by a key, or made a reference table, which every shard has a copy of; its
rows go along. 'cleave table undistribute' is the way back.`,
		Example: `  cleave table list
  cleave table shard orders user_id
  cleave table reference countries
  cleave table check-copies
  cleave table undistribute orders`,
		Args: cobra.ArbitraryArgs,
		RunE: helpOrUnknown,
	}
	c.flags(cmd)
	cmd.AddCommand(newTableList(&c), newTableShard(&c), newTableReference(&c), newTableUndistribute(&c), newTableCheckCopies(&c))
	return cmd
}

func newTableList(c *connection) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the tables that are sharded, reference tables, or placed on a shard",
		Example: "  cleave table list\n  cleave table list --format json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			list, err := ask(cmd, c, "asking for the tables", func(ctx context.Context, client *api.Client) (api.TableList, error) { return client.Tables(ctx) })
			if err != nil {
				return err
			}
			return out.write(cmd, func(w io.Writer) error {
				if out.format == formatJSON {
					return printJSON(w, list)
				}
				return printDeclared(w, list.Tables)
			})
		},
	}
	out.flags(cmd, formatTable, formatJSON)
	return cmd
}

func printDeclared(w io.Writer, tables []api.Table) error {
	if len(tables) == 0 {
		_, err := fmt.Fprintln(w, "No table is sharded yet: 'cleave table shard NAME COLUMN' does it. All tables are on the home shard.")
		return err
	}
	rows := make([][]any, len(tables))
	for i, t := range tables {
		rows[i] = []any{t.Name, t.Kind, strings.Join(t.Key, ", "), t.Keyspace, t.Shard}
	}
	return printTable(w, []string{"table", "kind", "key", "keyspace", "shard"}, rows)
}

func newTableShard(c *connection) *cobra.Command {
	var request api.DeclareTables
	var strategy string
	var splitAt []string
	cmd := &cobra.Command{
		Use:   "shard NAME COLUMN[,COLUMN…] | NAME(COLUMN[,COLUMN…])…",
		Short: "Shard tables by the columns of their keys",
		Long: `Shard tables that are on the home shard: every shard gets them, with the rows whose keys it owns.
Tables that refer to each other by foreign keys are sharded together, each as NAME(COLUMN).

Tables with keys of the same types share a keyspace unless you name one, so that rows with equal
keys live together and can be joined on one shard. Names are taken as SQL takes them.`,
		Example: `  cleave table shard orders user_id
  cleave table shard 'users(id)' 'orders(user_id)' 'items(user_id)'
  cleave table shard app.events tenant_id,day --keyspace events
  cleave table shard order_lines user_id --colocate-with orders`,
		Args: atLeast("NAME"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			request.Kind, request.Strategy = topology.Sharded, topology.Strategy(strategy)
			if request.Tables, err = parseTableKeys(args); err != nil {
				return err
			}
			for _, point := range splitAt {
				request.SplitAt = append(request.SplitAt, strings.Split(point, ","))
			}
			return declareTables(cmd, c, request)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&request.Keyspace, "keyspace", "", "the keyspace to put them in (default: one for all keys of these types, made when first needed)")
	flags.StringVar(&request.ColocateWith, "colocate-with", "", "a sharded table whose keyspace they are to share")
	flags.StringVar(&strategy, "strategy", "", "what the keyspace must have: hash or range (default any)")
	flags.StringArrayVar(&splitAt, "split-at", nil, "a key at which a new keyspace by range is split; may be given several times")
	flags.BoolVar(&request.UniquePerShard, "unique-per-shard", false, "accept unique constraints that do not contain the key, which then hold on each shard alone")
	flags.StringVar(&request.IDs, "ids", "", "what numbers bigint serial and identity columns get: keyed, so that a row is found by its id, or counted (default keyed)")
	complete(cmd, "ids", []string{control.KeyedIDs, control.CountedIDs})
	complete(cmd, "strategy", []string{string(topology.ByHash), string(topology.ByRange)})
	return cmd
}

// atLeast asks for one argument or more.
func atLeast(word string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return wrongInputf("write '%s %s…', not without one", cmd.CommandPath(), word)
		}
		return nil
	}
}

// parseTableKeys reads one table and its columns as two arguments, or any number of tables each as NAME(COLUMN).
func parseTableKeys(args []string) ([]api.TableKey, error) {
	if len(args) == 2 && !strings.HasSuffix(args[0], ")") {
		key, err := parseColumns(args[1])
		return []api.TableKey{{Name: args[0], Key: key}}, err
	}
	tables := make([]api.TableKey, len(args))
	for i, arg := range args {
		at := strings.LastIndex(arg, "(")
		columns, closed := strings.CutSuffix(arg, ")")
		if at <= 0 || !closed {
			return nil, wrongInputf("%q does not say by which columns to shard: write NAME(COLUMN), or one NAME and its COLUMN", arg)
		}
		key, err := parseColumns(columns[at+1:])
		if err != nil {
			return nil, err
		}
		tables[i] = api.TableKey{Name: strings.TrimSpace(arg[:at]), Key: key}
	}
	return tables, nil
}

// parseColumns reads names of columns as SQL would, with commas between them.
func parseColumns(text string) ([]string, error) {
	var columns []string
	for _, part := range strings.Split(text, ",") {
		name, err := topology.ParseTableName(strings.TrimSpace(part))
		if err != nil || strings.Contains(part, ".") && !strings.HasPrefix(strings.TrimSpace(part), `"`) {
			return nil, wrongInputf("%q is not a list of columns: write them with commas between them", text)
		}
		columns = append(columns, name.Name)
	}
	return columns, nil
}

func newTableReference(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:     "reference NAME…",
		Short:   "Make tables reference tables, which every shard has a copy of",
		Example: "  cleave table reference countries\n  cleave table reference countries currencies",
		Args:    atLeast("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := api.DeclareTables{Kind: topology.Reference}
			for _, name := range args {
				request.Tables = append(request.Tables, api.TableKey{Name: name})
			}
			return declareTables(cmd, c, request)
		},
	}
}

func newTableUndistribute(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "undistribute NAME…",
		Short: "Bring tables back to the home shard, with all of their rows",
		Long: `Let tables that are sharded, or reference tables, be on the home shard alone again, with all of their
rows. Tables that refer to each other by foreign keys go back together.`,
		Example: "  cleave table undistribute orders\n  cleave table undistribute orders items",
		Args:    atLeast("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeTables(cmd, c, "bringing tables back: "+strings.Join(args, ", "), func(ctx context.Context, client *api.Client) (api.TablesChanged, error) {
				return client.UndistributeTables(ctx, api.UndistributeTables{Tables: args})
			})
		},
	}
}

func newTableCheckCopies(c *connection) *cobra.Command {
	var request api.CheckCopies
	var out output
	cmd := &cobra.Command{
		Use:   "check-copies [NAME…]",
		Short: "Compare the copies of reference tables on all shards, and repair them",
		Long: `Compare the copies of reference tables, of all or of those named, with the home shard's. Writes go on
meanwhile; statements on a table wait only if its copies seem to differ, for as long as it takes to be
certain. Exit code 1 means that a copy differs, or could not be compared.

With --repair, rows that differ are made equal to the home shard's, one transaction on each shard. That is
refused while the home shard may have lost something itself: it has lost transactions, or was promoted or
restored since the copies were last found equal. Look at the rows on both; --force repairs all the same.

The leader does this by itself every ten minutes, and when a shard was away.`,
		Example: "  cleave table check-copies\n  cleave table check-copies countries --repair",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			if request.Force && !request.Repair {
				return wrongInputf("--force is for a repair: write --repair too")
			}
			request.Tables = args
			checked, err := ask(cmd, c, "comparing the copies", func(ctx context.Context, client *api.Client) (api.CopiesChecked, error) {
				return client.CheckCopies(ctx, request)
			})
			if err != nil {
				return err
			}
			return reportCopies(cmd, out, checked)
		},
	}
	out.flags(cmd, formatTable, formatJSON)
	cmd.Flags().BoolVar(&request.Repair, "repair", false, "make copies that differ equal to the home shard's")
	cmd.Flags().BoolVar(&request.Force, "force", false, "repair even if the home shard may have lost something itself")
	return cmd
}

// reportCopies prints what differs, and fails if something still does.
func reportCopies(cmd *cobra.Command, out output, checked api.CopiesChecked) error {
	warn(cmd, checked.Findings)
	err := out.write(cmd, func(w io.Writer) error {
		if out.format == formatJSON {
			return printJSON(w, checked)
		}
		for _, d := range checked.Differences {
			if _, err := fmt.Fprintln(w, d); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintf(w, "Reference tables compared: %d.\n", len(checked.Tables))
		return err
	})
	wrong := len(checked.Findings)
	for _, d := range checked.Differences {
		if !d.Repaired {
			wrong++
		}
	}
	if err == nil && wrong > 0 {
		return fmt.Errorf("copies that differ or could not be compared: %d", wrong)
	}
	return err
}

func declareTables(cmd *cobra.Command, c *connection, request api.DeclareTables) error {
	names := make([]string, len(request.Tables))
	for i, t := range request.Tables {
		names[i] = t.Name
	}
	return changeTables(cmd, c, "declaring tables: "+strings.Join(names, ", "), func(ctx context.Context, client *api.Client) (api.TablesChanged, error) {
		return client.DeclareTables(ctx, request)
	})
}

func changeTables(cmd *cobra.Command, c *connection, what string, change func(context.Context, *api.Client) (api.TablesChanged, error)) error {
	changed, err := ask(cmd, c, what, change)
	if err != nil {
		return err
	}
	warn(cmd, changed.Findings)
	for _, t := range changed.Tables {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), describeTable(t, changed)); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d rows moved from shard to shard. Map version %d.\n", changed.RowsMoved, changed.MapVersion)
	return err
}

func describeTable(t api.Table, changed api.TablesChanged) string {
	switch t.Kind {
	case topology.Reference:
		return fmt.Sprintf("Table %s is a reference table: every shard has it.", t.Name)
	case topology.Single:
		return fmt.Sprintf("Table %s is on shard %s alone.", t.Name, t.Shard)
	default:
	}
	text := fmt.Sprintf("Table %s is sharded by %s in keyspace %s", t.Name, strings.Join(t.Key, ", "), t.Keyspace)
	switch {
	case slices.Contains(changed.KeyspacesCreated, t.Keyspace):
		text += ", which was made for it"
	case len(t.ColocatedWith) > 0:
		text += ", together with " + strings.Join(t.ColocatedWith, ", ")
	}
	return text + "."
}
