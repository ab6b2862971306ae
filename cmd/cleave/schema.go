package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
)

func newSchema() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Compare the tables of the shards, and change them shard by shard",
		Long: `The definitions of the tables of a running cluster. Statements that change them go through the router,
which sees to it that every shard has the same; what somebody did past it shows here. A roll-out
changes one shard, lets you look, and goes on or goes back.`,
		Example: "  cleave schema diff\n  cleave schema rollout status",
		Args:    cobra.ArbitraryArgs,
		RunE:    helpOrUnknown,
	}
	c.flags(cmd)
	cmd.AddCommand(newSchemaDiff(&c), newRollout(&c))
	return cmd
}

func newSchemaDiff(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "diff",
		Short: "Find tables that are missing, differ between shards, or are where nobody looks for them",
		Long: `Ask every shard for its tables and compare them: sharded and reference tables with those of the home
shard, all with the map. Says what differs, and 'ok' if nothing does. Exit code 1 means that
something differs, or that a shard could not be asked.

A change of the schema that runs at the same time may be seen on one shard and not on another: look
again. What differs because of an open roll-out is told as such and is no failure. Views, functions and types
are not compared.`,
		Example: "  cleave schema diff",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings, err := ask(cmd, c, "asking the shards", func(ctx context.Context, client *api.Client) ([]api.Finding, error) { return client.DiffSchema(ctx) })
			if err != nil {
				return err
			}
			return reportDiff(cmd, findings)
		},
	}
}

// reportDiff prints what differs, and fails if anything does.
func reportDiff(cmd *cobra.Command, findings []api.Finding) error {
	wrong := 0
	for _, f := range findings {
		fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(findingLine(f)))
		if f.Code != api.RolloutOpenFinding {
			wrong++
		}
	}
	if wrong > 0 {
		return fmt.Errorf("the tables are not as they should be: differences found: %d", wrong)
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), "ok")
	return err
}
