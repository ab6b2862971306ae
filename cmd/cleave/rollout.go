package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
)

func newRollout(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Change the schema shard by shard",
		Long: `A roll-out applies a change of the schema to one shard after the other: look at each, and go on or
take it back. Only changes under which every statement stays right while shards differ can go that
way, such as indexes, statistics, storage parameters and check constraints; others are refused with
the reason, and are made on all shards at once by the ordinary statement.

The same as cleave.rollout_begin, rollout_next, rollout_finish and rollout_undo in SQL; what is
applied from here acts as the role that began the roll-out, or as the owner of its tables.`,
		Example: `  cleave schema rollout begin note-index 'CREATE INDEX CONCURRENTLY orders_note ON orders (note)'
  cleave schema rollout next note-index
  cleave schema rollout finish note-index`,
		Args: cobra.ArbitraryArgs,
		RunE: helpOrUnknown,
	}
	cmd.AddCommand(newRolloutBegin(c), newRolloutNext(c), newRolloutFinish(c), newRolloutUndo(c), newRolloutStatus(c))
	return cmd
}

func newRolloutBegin(c *connection) *cobra.Command {
	var request api.BeginRollout
	var file, undo string
	cmd := &cobra.Command{
		Use:   "begin NAME [CHANGE]",
		Short: "Open a roll-out; no shard is changed yet",
		Long: `Open a roll-out of a change, which is one SQL statement or several. What takes it back follows from
the change where it can (an index is dropped again, a dropped one is made again); otherwise say it with
--undo, or --undo '' if there is nothing to take back.

Until it is finished or taken back, other changes of the same tables are refused.`,
		Example: `  cleave schema rollout begin note-index 'CREATE INDEX CONCURRENTLY orders_note ON orders (note)'
  cleave schema rollout begin vacuum 'ALTER TABLE orders SET (autovacuum_vacuum_scale_factor = 0.01)' --undo 'ALTER TABLE orders RESET (autovacuum_vacuum_scale_factor)'
  cleave schema rollout begin checks --file checks.sql --shards s3,s1`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 || (len(args) == 2) == (file != "") {
				return wrongInputf("write '%s NAME CHANGE', or NAME and --file", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			request.Name = args[0]
			if file != "" {
				content, err := os.ReadFile(file)
				if err != nil {
					return fmt.Errorf("read the change: %w", err)
				}
				request.Change = string(content)
			} else {
				request.Change = args[1]
			}
			if cmd.Flags().Changed("undo") {
				request.Undo = &undo
			}
			return stepRollout(cmd, c, "looking at the change", func(ctx context.Context, client *api.Client) (api.RolloutChanged, error) {
				return client.BeginRollout(ctx, request)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&file, "file", "", "a file with the change")
	flags.StringVar(&undo, "undo", "", "the statements that take the change back (default: what follows from it)")
	flags.StringSliceVar(&request.Shards, "shards", nil, "shards that come first, in this order (default: in the order of their numbers)")
	flags.StringVar(&request.SearchPath, "search-path", "", "where names without a schema are looked up (default public)")
	return cmd
}

// rolloutName takes exactly the name of a roll-out.
func rolloutName(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return wrongInputf("write '%s NAME'", cmd.CommandPath())
	}
	return nil
}

func newRolloutNext(c *connection) *cobra.Command {
	var request api.StepRollout
	cmd := &cobra.Command{
		Use:     "next NAME",
		Short:   "Apply a roll-out to one more shard",
		Example: "  cleave schema rollout next note-index\n  cleave schema rollout next note-index --shard s3",
		Args:    rolloutName,
		RunE: func(cmd *cobra.Command, args []string) error {
			return stepRollout(cmd, c, "changing a shard", func(ctx context.Context, client *api.Client) (api.RolloutChanged, error) {
				return client.NextRollout(ctx, args[0], request)
			})
		},
	}
	cmd.Flags().StringVar(&request.Shard, "shard", "", "the shard to go on with (default: the next one)")
	return cmd
}

func newRolloutFinish(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:     "finish NAME",
		Short:   "Apply a roll-out to all shards that are left, and end it",
		Example: "  cleave schema rollout finish note-index",
		Args:    rolloutName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := applyEach(cmd, c, args[0]); err != nil {
				return err
			}
			return stepRollout(cmd, c, "ending the roll-out", func(ctx context.Context, client *api.Client) (api.RolloutChanged, error) {
				return client.FinishRollout(ctx, args[0])
			})
		},
	}
}

// applyEach goes on shard by shard, and tells after each.
func applyEach(cmd *cobra.Command, c *connection, name string) error {
	for {
		changed, err := ask(cmd, c, "changing a shard", func(ctx context.Context, client *api.Client) (api.RolloutChanged, error) {
			return client.NextRollout(ctx, name, api.StepRollout{})
		})
		if err != nil {
			return err
		}
		if len(changed.Shards) == 0 {
			return nil
		}
		fmt.Fprintln(cmd.OutOrStdout(), changed.Message)
	}
}

func newRolloutUndo(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:     "undo NAME",
		Short:   "Take a roll-out back where it was applied, and end it",
		Example: "  cleave schema rollout undo note-index",
		Args:    rolloutName,
		RunE: func(cmd *cobra.Command, args []string) error {
			return stepRollout(cmd, c, "taking the change back", func(ctx context.Context, client *api.Client) (api.RolloutChanged, error) {
				return client.UndoRollout(ctx, args[0])
			})
		},
	}
}

// stepRollout makes a step and tells what has become of it.
func stepRollout(cmd *cobra.Command, c *connection, doing string, step func(context.Context, *api.Client) (api.RolloutChanged, error)) error {
	changed, err := ask(cmd, c, doing, step)
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), changed.Message)
	for _, f := range changed.Findings {
		fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(findingLine(f)))
	}
	return nil
}

func newRolloutStatus(c *connection) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "status [NAME]",
		Short:   "Show the roll-outs that are open, and the last ones that are not, shard by shard",
		Example: "  cleave schema rollout status\n  cleave schema rollout status note-index --format json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			all, err := ask(cmd, c, "asking for the roll-outs", func(ctx context.Context, client *api.Client) ([]api.Rollout, error) { return client.Rollouts(ctx) })
			if err != nil {
				return err
			}
			if all, err = rolloutsNamed(all, args); err != nil {
				return err
			}
			return out.write(cmd, func(w io.Writer) error {
				if out.format == formatJSON {
					return printJSON(w, api.RolloutList{Rollouts: all})
				}
				return printRollouts(w, all)
			})
		},
	}
	out.flags(cmd, formatTable, formatJSON)
	return cmd
}

// rolloutsNamed are those of a name, or all if none is given.
func rolloutsNamed(all []api.Rollout, names []string) ([]api.Rollout, error) {
	if len(names) == 0 {
		return all, nil
	}
	found := []api.Rollout{}
	for _, r := range all {
		if r.Name == names[0] {
			found = append(found, r)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("there is no roll-out " + names[0])
	}
	return found, nil
}

func printRollouts(w io.Writer, rollouts []api.Rollout) error {
	if len(rollouts) == 0 {
		_, err := fmt.Fprintln(w, "There is no roll-out: 'cleave schema rollout begin NAME CHANGE' opens one.")
		return err
	}
	var rows [][]any
	for _, r := range rollouts {
		for _, s := range r.Shards {
			since := ""
			if s.State != topology.ShardPending {
				since = s.At.Local().Format(time.DateTime)
			}
			rows = append(rows, []any{r.Name, r.State, strings.Join(r.Tables, ", "), s.Shard, s.State, since})
		}
	}
	return printTable(w, []string{"roll-out", "state", "tables", "shard", "on the shard", "since"}, rows)
}
