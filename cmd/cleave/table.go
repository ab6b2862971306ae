package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
)

func newTable() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:   "table",
		Short: "List tables, shard them, and make reference tables",
		Long: `The tables of a running cluster. A table is created as in PostgreSQL, and is then on the home shard
alone. While it is empty it can be sharded by a key, or made a reference table, which every shard
has a copy of.`,
		Example: `  cleave table list
  cleave table shard orders user_id
  cleave table reference countries`,
		Args: cobra.ArbitraryArgs,
		RunE: helpOrUnknown,
	}
	c.flags(cmd)
	cmd.AddCommand(newTableList(&c), newTableShard(&c), newTableReference(&c))
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
	var request api.DeclareTable
	var strategy string
	cmd := &cobra.Command{
		Use:   "shard NAME COLUMN[,COLUMN…]",
		Short: "Shard an empty table by the columns of its key",
		Long: `Shard a table that is on the home shard and empty: every shard gets it, and takes the rows whose
keys it owns.

Tables with keys of the same types share a keyspace unless you name one, so that rows with equal
keys live together and can be joined on one shard. Names are taken as SQL takes them.`,
		Example: `  cleave table shard orders user_id
  cleave table shard app.events tenant_id,day --keyspace events
  cleave table shard order_lines user_id --colocate-with orders`,
		Args: needs("NAME", "COLUMN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request.Name, request.Kind, request.Strategy = args[0], topology.Sharded, topology.Strategy(strategy)
			var err error
			if request.Key, err = parseColumns(args[1]); err != nil {
				return err
			}
			return declareTable(cmd, c, request)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&request.Keyspace, "keyspace", "", "the keyspace to put it in (default: one for all keys of these types, made when first needed)")
	flags.StringVar(&request.ColocateWith, "colocate-with", "", "a sharded table whose keyspace it is to share")
	flags.StringVar(&strategy, "strategy", "", "what the keyspace must have: hash or range (default any)")
	flags.BoolVar(&request.UniquePerShard, "unique-per-shard", false, "accept unique constraints that do not contain the key, which then hold on each shard alone")
	complete(cmd, "strategy", []string{string(topology.ByHash), string(topology.ByRange)})
	return cmd
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
		Use:     "reference NAME",
		Short:   "Make an empty table a reference table, which every shard has a copy of",
		Example: "  cleave table reference countries",
		Args:    needs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return declareTable(cmd, c, api.DeclareTable{Name: args[0], Kind: topology.Reference})
		},
	}
}

func declareTable(cmd *cobra.Command, c *connection, request api.DeclareTable) error {
	table, err := ask(cmd, c, "declaring table "+request.Name, func(ctx context.Context, client *api.Client) (api.Table, error) {
		return client.DeclareTable(ctx, request)
	})
	if err != nil {
		return err
	}
	warn(cmd, table.Findings)
	_, err = fmt.Fprintln(cmd.OutOrStdout(), describeTable(table))
	return err
}

func describeTable(t api.Table) string {
	if t.Kind == topology.Reference {
		return fmt.Sprintf("Table %s is a reference table: every shard has it. Map version %d.", t.Name, t.MapVersion)
	}
	text := fmt.Sprintf("Table %s is sharded by %s in keyspace %s", t.Name, strings.Join(t.Key, ", "), t.Keyspace)
	switch {
	case t.KeyspaceCreated:
		text += ", which was made for it"
	case len(t.ColocatedWith) > 0:
		text += ", together with " + strings.Join(t.ColocatedWith, ", ")
	}
	return fmt.Sprintf("%s. Map version %d.", text, t.MapVersion)
}
