package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/rebalance"
	"github.com/cleavedb/cleave/internal/topology"
)

func newRebalance() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:   "rebalance",
		Short: "Make shards even: plan moves, look at them, and start them",
		Long: `'cleave rebalance plan' measures the shards and proposes moves; nothing happens before 'cleave rebalance
apply ID'. A shard that does not answer neither gives nor gets anything. 'cleave rebalance auto' lets the
leader do it by itself, within limits.`,
		Example: "  cleave rebalance plan\n  cleave rebalance apply 3f2a9c0d11e4b7a8 --wait",
		Args:    cobra.ArbitraryArgs,
		RunE:    helpOrUnknown,
	}
	c.flags(cmd)
	cmd.AddCommand(newRebalancePlan(&c), newRebalanceApply(&c), newRebalanceAuto(&c))
	return cmd
}

func newRebalancePlan(c *connection) *cobra.Command {
	var request api.PlanRebalance
	var out output
	var rules []string
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Propose moves that make shards even",
		Long: `Propose moves that bring every shard near its share of all bytes, by the shards' weights, with as little
movement as that takes. Draining shards give all that they have. With --algorithm ranges go where that one
wants them, and when all have moved the keyspace names it. --rule binds a keyspace to shards with a
label: 'events=region:eu' sends its ranges to shards that have region=eu, and moves those first that are
elsewhere. 'events@2026-01-01:2026-07-01=region:eu' does so with what lies in a range, and
'main#4711=region:eu' with a pinned key; a rule may also be a JSON object, as the API has it.`,
		Example: `  cleave rebalance plan
  cleave rebalance plan --keyspace main --split --max-bytes 100000000000
  cleave rebalance plan --split --rule events@2026-01-01:=region:eu
  cleave rebalance plan --algorithm doubling --format json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			var err error
			if request.Rules, err = parseRebalanceRules(rules); err != nil {
				return err
			}
			plan, err := ask(cmd, c, "measuring the shards", func(ctx context.Context, client *api.Client) (api.RebalancePlan, error) {
				return client.PlanRebalance(ctx, request)
			})
			if err != nil {
				return err
			}
			return out.write(cmd, func(w io.Writer) error {
				if out.format == formatJSON {
					return printJSON(w, plan)
				}
				return printPlan(w, plan)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&request.Keyspaces, "keyspace", nil, "only these keyspaces (default: all)")
	flags.StringVar(&request.Algorithm, "algorithm", "", "how ranges are assigned: "+strings.Join(rebalance.Algorithms(), ", ")+" (default greedy, which moves least)")
	flags.StringVar(&request.Measure, "measure", "", "what is to be even: bytes, rows, load or width (default bytes)")
	flags.Float64Var(&request.Tolerance, "tolerance", 0, "how far a shard may be from its share (default 0.05)")
	flags.Int64Var(&request.MaxBytes, "max-bytes", 0, "move so many bytes at most")
	flags.IntVar(&request.MaxMoves, "max-moves", 0, "make so many moves at most")
	flags.BoolVar(&request.Split, "split", false, "ranges may be divided")
	bindings(cmd, &rules, &request.Excluded)
	flags.Int64Var(&request.BytesPerSecond, "rate", api.DefaultMoveRate, "bytes that a move carries in a second, to estimate the time")
	out.flags(cmd, formatTable, formatJSON)
	complete(cmd, "algorithm", rebalance.Algorithms())
	return cmd
}

// bindings are flags for what may go where.
func bindings(cmd *cobra.Command, rules, excluded *[]string) {
	cmd.Flags().StringArrayVar(rules, "rule", nil, "bind a keyspace, a range or a pinned key to shards with a label: KEYSPACE[@LO:HI|#KEY]=LABEL:VALUE (default: the rules of 'cleave rebalance auto')")
	cmd.Flags().StringSliceVar(excluded, "exclude", nil, "shards that neither give nor get anything")
}

// parseRebalanceRules reads rules as people write them.
func parseRebalanceRules(texts []string) ([]api.RebalanceRule, error) {
	var rules []api.RebalanceRule
	for _, text := range texts {
		rule, err := api.ParseRule(text)
		if err != nil {
			return nil, wrongInputf("--rule: %v", err)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

func printPlan(w io.Writer, p api.RebalancePlan) error {
	printWarnings(w, p.Warnings)
	if len(p.Moves) == 0 && len(p.Assignments) > 0 {
		fmt.Fprintf(w, "There is nothing to move. 'cleave rebalance apply %s' has %s name algorithm %s.\n", p.ID, keyspacesOf(p.Assignments), p.Algorithm)
		return nil
	}
	if len(p.Moves) == 0 {
		fmt.Fprintf(w, "The shards are even enough: the fullest has %.2f of its share. There is nothing to move.\n", p.SkewBefore)
		return nil
	}
	return printPlannedMoves(w, p)
}

func printWarnings(w io.Writer, warnings []string) {
	for _, warning := range warnings {
		fmt.Fprintln(w, "warning:", warning)
	}
}

// printPlannedMoves prints the moves of a plan that has some.
func printPlannedMoves(w io.Writer, p api.RebalancePlan) error {
	rows := make([][]any, len(p.Moves))
	for i, m := range p.Moves {
		rows[i] = []any{m.Keyspace, m.From, m.To, len(m.Ranges), len(m.Keys), strings.Join(m.Tables, ", "), bytesOf(m.Bytes), perSecond(m.Load), m.Reason}
	}
	if err := printTable(w, []string{"keyspace", "from", "to", "ranges", "keys", "tables", "size", "load/s", "why"}, rows); err != nil {
		return err
	}
	shards := make([][]any, len(p.Shards))
	for i, s := range p.Shards {
		shards[i] = []any{s.Name, s.Weight, s.Ranges, s.RangesAfter, bytesOf(s.BytesBefore), bytesOf(s.BytesAfter), perSecond(s.LoadBefore), perSecond(s.LoadAfter)}
	}
	if err := printTable(w, []string{"shard", "weight", "ranges", "after", "size", "after", "load/s", "after"}, shards); err != nil {
		return err
	}
	fmt.Fprintf(w, "Plan %s: %s in %s, %.1f %% of all. The fullest shard has %.2f of its share, and %.2f afterwards.\n", p.ID, bytesOf(p.Bytes), counted(len(p.Moves), "move"), p.MovementShare*100, p.SkewBefore, p.SkewAfter)
	if p.EstimatedSeconds > 0 {
		fmt.Fprintf(w, "It takes about %s.\n", (time.Duration(p.EstimatedSeconds) * time.Second).Round(time.Second))
	}
	if len(p.Assignments) > 0 {
		fmt.Fprintf(w, "When all has moved, %s will name algorithm %s.\n", keyspacesOf(p.Assignments), p.Algorithm)
	}
	fmt.Fprintf(w, "'cleave rebalance apply %s' starts it.\n", p.ID)
	return nil
}

// keyspacesOf names keyspaces, which all get the same algorithm.
func keyspacesOf(assignments []api.RebalanceAssignment) string {
	names := make([]string, len(assignments))
	for i, a := range assignments {
		names[i] = a.Keyspace
	}
	if len(names) == 1 {
		return "keyspace " + names[0]
	}
	return "keyspaces " + strings.Join(names, ", ")
}

func newRebalanceApply(c *connection) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "apply ID",
		Short: "Start the moves of a plan",
		Long: `Start the moves of a plan, one after the other for each keyspace. If the shard map has changed since it
was made, plan again. A plan is applied once: who does so again hears of the same moves.`,
		Example: "  cleave rebalance apply 3f2a9c0d11e4b7a8 --wait",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return wrongInputf("write '%s ID': 'cleave rebalance plan' makes a plan", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := ask(cmd, c, "starting the moves", func(ctx context.Context, client *api.Client) (api.MoveList, error) {
				return client.ApplyRebalance(ctx, args[0])
			})
			if err != nil {
				return err
			}
			if len(list.Moves) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "Nothing has to move.")
			}
			if err := printStarted(cmd.OutOrStdout(), list, false); err != nil || !wait {
				return err
			}
			return watchMoves(cmd, c, list.Moves, toTheEnd)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "show how far it is, and return when all have ended")
	return cmd
}

func newShardDrain(c *connection) *cobra.Command {
	var wait, dryRun bool
	var rules, excluded []string
	cmd := &cobra.Command{
		Use:   "drain NAME",
		Short: "Move all that a shard has to the others",
		Long: `Let a shard get nothing new, and move all that it has to the other shards, each as much as it has room for
by its weight, for which ranges are divided, and the tables that it alone has. What a rule binds to shards
with a label goes to one of those, or stays. Reads and writes go on. When it is empty, 'cleave shard remove'
removes it.

The home shard cannot be emptied: tables that nobody has declared stay there, unless they are moved by name
('cleave move start --table'), and so does the catalogue by which routers plan. What stays is said.`,
		Example: "  cleave shard drain eu-1 --wait\n  cleave shard drain eu-1 --dry-run\n  cleave shard drain eu-1 --rule main=region:eu",
		Args:    needsName("shard", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			bound, err := parseRebalanceRules(rules)
			if err != nil {
				return err
			}
			if !dryRun {
				draining := topology.Draining
				if err := updateShard(cmd, c, args[0], api.UpdateShard{State: &draining}); err != nil {
					return err
				}
			}
			plan, err := ask(cmd, c, "measuring the shards", func(ctx context.Context, client *api.Client) (api.RebalancePlan, error) {
				return client.PlanRebalance(ctx, api.PlanRebalance{Drain: args[0], Split: true, Rules: bound, Excluded: excluded, BytesPerSecond: api.DefaultMoveRate})
			})
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			printWarnings(w, plan.Warnings)
			if len(plan.Moves) == 0 {
				_, err := fmt.Fprintf(w, "There is nothing to move away from shard %s.\n", args[0])
				return err
			}
			if dryRun {
				return printPlannedMoves(w, plan)
			}
			list, err := ask(cmd, c, "starting the moves", func(ctx context.Context, client *api.Client) (api.MoveList, error) {
				return client.ApplyRebalance(ctx, plan.ID)
			})
			if err != nil {
				return err
			}
			if err := printStarted(w, list, false); err != nil || !wait {
				return err
			}
			return watchMoves(cmd, c, list.Moves, toTheEnd)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "show how far it is, and return when all have ended")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would move")
	bindings(cmd, &rules, &excluded)
	return cmd
}
