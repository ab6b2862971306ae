package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
)

func newSplit() *cobra.Command {
	var c connection
	var keyspace, key, of, bySize string
	var at []string
	var middle bool
	cmd := &cobra.Command{
		Use:   "split --keyspace NAME (--at POINT | --key VALUE | --middle [--of POINT] | --by-size SIZE)",
		Short: "Divide ranges of a keyspace; no row moves",
		Long: `Divide ranges of a keyspace, so that their parts can be moved apart. Nothing but the shard map changes.

A point is written with 16 hexadecimal digits in a keyspace by hash, and as the key in one by range; of
several columns as a JSON list. --key gives a key a range of its own, in a keyspace by hash with all keys
of the same hash. --middle divides the range in which --of lies, or the first one: in the middle of its
hashes, or of its rows in a keyspace by range. --by-size divides every range that has more bytes, into parts
that have fewer. Where rows are is told by keys that the shards sample, so sizes are estimates.`,
		Example: `  cleave split --keyspace main --at 8000000000000000
  cleave split --keyspace events --at 2026-01-01 --at 2026-07-01
  cleave split --keyspace main --key 4711
  cleave split --keyspace events --by-size 10GB`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			request := api.SplitRanges{Middle: middle}
			var err error
			if request.At, err = parseKeys(at); err != nil {
				return err
			}
			if request.Key, err = parseMovePoint(key); err != nil {
				return err
			}
			if request.Of, err = parseMovePoint(of); err != nil {
				return err
			}
			if bySize != "" {
				if request.BySize, err = parseBytes(bySize); err != nil {
					return wrongInputf("--by-size %q: %v", bySize, err)
				}
			}
			if keyspace == "" {
				return wrongInputf("name the keyspace: --keyspace NAME")
			}
			return changeRanges(cmd, &c, func(ctx context.Context, client *api.Client) (api.KeyspaceChanged, error) {
				return client.SplitRanges(ctx, keyspace, request)
			})
		},
	}
	c.flags(cmd)
	cmd.Flags().StringVar(&keyspace, "keyspace", "", "the keyspace")
	cmd.Flags().StringArrayVar(&at, "at", nil, "a point to divide at")
	cmd.Flags().StringVar(&key, "key", "", "a key that gets a range of its own")
	cmd.Flags().BoolVar(&middle, "middle", false, "divide a range in two equal parts")
	cmd.Flags().StringVar(&of, "of", "", "a point in the range that --middle divides (default: the beginning)")
	cmd.Flags().StringVar(&bySize, "by-size", "", "divide every range that has more bytes, such as 10GB")
	return cmd
}

func newMerge() *cobra.Command {
	var c connection
	var keyspace, within string
	cmd := &cobra.Command{
		Use:   "merge --keyspace NAME [--range LO:HI]",
		Short: "Put ranges together that follow each other and are the same shard's",
		Long: `Put ranges of a keyspace together that follow each other and belong to the same shard: all of them, or
those inside of a range. Nothing but the shard map changes. Ranges of different shards have to be moved
to one of them first.`,
		Example: "  cleave merge --keyspace main\n  cleave merge --keyspace main --range 0000000000000000:4000000000000000",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if keyspace == "" {
				return wrongInputf("name the keyspace: --keyspace NAME")
			}
			request := api.MergeRanges{}
			if within != "" {
				ranges, err := parseRanges([]string{within})
				if err != nil {
					return err
				}
				request.From, request.To = ranges[0].From, ranges[0].To
			}
			return changeRanges(cmd, &c, func(ctx context.Context, client *api.Client) (api.KeyspaceChanged, error) {
				return client.MergeRanges(ctx, keyspace, request)
			})
		},
	}
	c.flags(cmd)
	cmd.Flags().StringVar(&keyspace, "keyspace", "", "the keyspace")
	cmd.Flags().StringVar(&within, "range", "", "only ranges inside of this one, LO:HI")
	return cmd
}

func changeRanges(cmd *cobra.Command, c *connection, change func(context.Context, *api.Client) (api.KeyspaceChanged, error)) error {
	changed, err := ask(cmd, c, "changing the shard map", change)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Keyspace %s has %s. Map version %d.\n", changed.Keyspace.Name, counted(changed.Keyspace.RangeCount, "range"), changed.MapVersion)
	return nil
}

func newTenant() *cobra.Command {
	cmd := &cobra.Command{
		Use: "tenant", Short: "Give a tenant a shard of its own", Args: cobra.ArbitraryArgs, RunE: helpOrUnknown,
	}
	cmd.AddCommand(newTenantIsolate())
	return cmd
}

func newTenantIsolate() *cobra.Command {
	var c connection
	var request api.StartMove
	var wait bool
	cmd := &cobra.Command{
		Use:   "isolate KEY --keyspace NAME --to SHARD",
		Short: "Move all rows of one key to a shard, and pin the key there",
		Long: `Move all rows of one key, in all tables of its keyspace, to a shard, and pin the key there: it stays when
ranges move. In a keyspace that places schemas the key is the name of one. The same as
'cleave move start --key KEY'. A key of several columns is a JSON list.`,
		Example: "  cleave tenant isolate 4711 --keyspace main --to s4 --wait",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return wrongInputf("write '%s KEY --keyspace NAME --to SHARD'", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := parseMovePoint(args[0])
			if err != nil {
				return err
			}
			request.Keys = [][]string{key}
			list, err := ask(cmd, &c, "asking for the move", func(ctx context.Context, client *api.Client) (api.MoveList, error) {
				return client.StartMoves(ctx, request)
			})
			if err != nil {
				return err
			}
			if err := printStarted(cmd.OutOrStdout(), list, false); err != nil || !wait {
				return err
			}
			return watchMoves(cmd, &c, list.Moves, toTheEnd)
		},
	}
	c.flags(cmd)
	cmd.Flags().StringVar(&request.Keyspace, "keyspace", "", "the keyspace")
	cmd.Flags().StringVar(&request.To, "to", "", "the shard that the tenant gets")
	cmd.Flags().BoolVar(&wait, "wait", false, "show how far it is, and return when it has ended")
	return cmd
}
