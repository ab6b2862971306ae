package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/rebalance"
)

func newRebalanceAuto(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "auto",
		Short: "Let moves, splits and merges be made by themselves, within limits",
		Long: `Off unless it is switched on. Then the leader measures the shards every few minutes. When one is off by
more than the tolerance, it moves rows until all are within half of it: one move of a keyspace at a time,
one of a shard, so many bytes a day, at the hours that are named. It plans nothing while a shard does not
answer or is slow, and leaves a keyspace alone while somebody else's move or a roll-out is under way.

A move of its own that stops, fails again and again or is taken back is the last one in its keyspace until
somebody has looked: 'cleave rebalance auto resume'. 'cleave rebalance auto show' and 'cleave status' tell.`,
		Example: "  cleave rebalance auto on --max-bytes 200GB --hours 22:00-06:00\n  cleave rebalance auto show\n  cleave rebalance auto off",
		Args:    cobra.ArbitraryArgs,
		RunE:    helpOrUnknown,
	}
	cmd.AddCommand(newAutoOn(c), newAutoOff(c), newAutoResume(c), newAutoShow(c))
	return cmd
}

func newAutoOn(c *connection) *cobra.Command {
	var moves, splits, merges, measure, hours, maxBytes, splitBytes string
	var keyspaces, rules []string
	var tolerance, splitLoad float64
	var maxMoves int
	cmd := &cobra.Command{
		Use:   "on",
		Short: "Switch it on, or change what it may do",
		Long: `Switch it on, or change what it may do. What is not named stays as it was. Moves, splits and merges are
off, propose or do: proposals are shown by 'cleave rebalance auto show', with the commands that do them.
Splits and merges change the shard map alone; no row moves by them. Name the rules that bind keyspaces to
shards with a label here too: without them rows are placed by size and weight alone.`,
		Example: `  cleave rebalance auto on
  cleave rebalance auto on --max-bytes 200GB --hours 22:00-06:00 --splits do
  cleave rebalance auto on --moves propose --keyspace main`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			on := true
			request := api.UpdateAutomation{On: &on}
			given := cmd.Flags().Changed
			named(&request.Moves, &moves, given("moves"))
			named(&request.Splits, &splits, given("splits"))
			named(&request.Merges, &merges, given("merges"))
			named(&request.Measure, &measure, given("measure"))
			named(&request.Hours, &hours, given("hours"))
			named(&request.Keyspaces, &keyspaces, given("keyspace"))
			named(&request.Tolerance, &tolerance, given("tolerance"))
			named(&request.SplitLoad, &splitLoad, given("split-load"))
			named(&request.MaxMoves, &maxMoves, given("max-moves"))
			for _, size := range []struct {
				flag, text string
				wanted     **int64
			}{{"max-bytes", maxBytes, &request.MaxBytes}, {"split-bytes", splitBytes, &request.SplitBytes}} {
				if !given(size.flag) {
					continue
				}
				n, err := parseBytes(size.text)
				if err != nil {
					return wrongInputf("--%s %q: %v", size.flag, size.text, err)
				}
				*size.wanted = &n
			}
			if given("rule") {
				parsed, err := parseRebalanceRules(rules)
				if err != nil {
					return err
				}
				request.Rules = &parsed
			}
			return updateAutomation(cmd, c, request)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&moves, "moves", "", "off, propose or do (at first do)")
	flags.StringVar(&splits, "splits", "", "of ranges that are too large: off, propose or do (at first propose)")
	flags.StringVar(&merges, "merges", "", "of small ranges beside each other: off, propose or do (at first off)")
	flags.StringSliceVar(&keyspaces, "keyspace", nil, "only in these keyspaces (at first all; '' for all again)")
	flags.StringVar(&measure, "measure", "", "what is to be even: bytes, rows or load (at first bytes)")
	flags.Float64Var(&tolerance, "tolerance", 0, "how far a shard may be from its share before something moves (at first 0.1)")
	flags.StringVar(&maxBytes, "max-bytes", "", "move so many bytes in any 24 hours at most, such as 200GB (at first 107.4GB)")
	flags.IntVar(&maxMoves, "max-moves", 0, "let so many moves be under way at once at most (at first 1)")
	flags.StringVar(&hours, "hours", "", "when moves may begin, such as 22:00-06:00, in UTC ('' for always)")
	flags.StringVar(&splitBytes, "split-bytes", "", "from which size on a range is too large (at first 10.7GB)")
	flags.Float64Var(&splitLoad, "split-load", 0, "from how many statements a second on a range is too busy (0: that does not count)")
	flags.StringArrayVar(&rules, "rule", nil, "bind a keyspace, a range or a pinned key to shards with a label: KEYSPACE[@LO:HI|#KEY]=LABEL:VALUE")
	acts := make([]string, 0, len(rebalance.Acts()))
	for _, act := range rebalance.Acts() {
		acts = append(acts, string(act))
	}
	for _, flag := range []string{"moves", "splits", "merges"} {
		complete(cmd, flag, acts)
	}
	return cmd
}

// named lets a request name a value that was given.
func named[T any](wanted **T, value *T, given bool) {
	if given {
		*wanted = value
	}
}

// parseBytes reads a size such as 200GB; units are powers of 1000, as they are printed.
func parseBytes(text string) (int64, error) {
	number, unit := strings.TrimSpace(text), int64(1)
	for suffix, factor := range map[string]int64{"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12} {
		if before, found := strings.CutSuffix(number, suffix); found {
			number, unit = strings.TrimSpace(before), factor
			break
		}
	}
	value, err := strconv.ParseFloat(number, 64)
	if err != nil || !(value > 0) || value*float64(unit) >= 1<<60 {
		return 0, errors.New("write a number of bytes above 0, or one with kB, MB, GB or TB")
	}
	return int64(value * float64(unit)), nil
}

func newAutoOff(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "off",
		Short: "Switch it off; moves that are under way go on",
		Long: `Switch it off. Its settings are kept for the next time. A move that is under way goes on: 'cleave move
cancel ID' takes it back.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			off := false
			return updateAutomation(cmd, c, api.UpdateAutomation{On: &off})
		},
	}
}

func newAutoResume(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "resume [KEYSPACE…]",
		Short: "Go on in keyspaces in which it has stopped",
		Long: `Go on in keyspaces in which a move did not do well, in all of them if none is named. Look at the move first:
'cleave rebalance auto show' names it. If it has not ended, resume or cancel it before: 'cleave move resume',
'cleave move cancel'.`,
		Example: "  cleave rebalance auto resume main",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, keyspaces []string) error {
			if len(keyspaces) == 0 {
				now, err := ask(cmd, c, "asking what has stopped", func(ctx context.Context, client *api.Client) (api.Automation, error) { return client.Automation(ctx) })
				if err != nil {
					return err
				}
				for _, h := range now.Halts {
					keyspaces = append(keyspaces, h.Keyspace)
				}
				if len(keyspaces) == 0 {
					return wrongInputf("it has stopped in no keyspace")
				}
			}
			return updateAutomation(cmd, c, api.UpdateAutomation{Resume: keyspaces})
		},
	}
}

func updateAutomation(cmd *cobra.Command, c *connection, request api.UpdateAutomation) error {
	now, err := ask(cmd, c, "changing the settings", func(ctx context.Context, client *api.Client) (api.Automation, error) {
		return client.UpdateAutomation(ctx, request)
	})
	if err != nil {
		return err
	}
	return printAutoSettings(cmd.OutOrStdout(), now)
}

func newAutoShow(c *connection) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Show what it may do, what it proposes, what it waits for, and what it did",
		Example: "  cleave rebalance auto show\n  cleave rebalance auto show --format json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			now, err := ask(cmd, c, "asking what is done by itself", func(ctx context.Context, client *api.Client) (api.Automation, error) { return client.Automation(ctx) })
			if err != nil {
				return err
			}
			return out.write(cmd, func(w io.Writer) error {
				if out.format == formatJSON {
					return printJSON(w, now)
				}
				return printAutomation(w, now)
			})
		},
	}
	out.flags(cmd, formatTable, formatJSON)
	return cmd
}

func printAutoSettings(w io.Writer, a api.Automation) error {
	s := a.Settings
	if !s.On {
		_, err := fmt.Fprintln(w, "Automation is off.")
		return err
	}
	where, when := "all keyspaces", "at any time"
	if len(s.Keyspaces) > 0 {
		where = "only in " + strings.Join(s.Keyspaces, ", ")
	}
	if s.Hours != "" {
		when = "beginning at " + s.Hours + " UTC"
	}
	splits := fmt.Sprintf("from %s on", bytesOf(s.SplitBytes))
	if s.SplitLoad > 0 {
		splits += fmt.Sprintf(", or %g statements a second", s.SplitLoad)
	}
	fmt.Fprintf(w, "Automation is on: %s.\n", where)
	fmt.Fprintf(w, "Moves:  %s, when %s are off by more than %g %%; %s, %s in 24 hours (%s so far), %d at once.\n", s.Moves, s.Measure, s.Tolerance*100, when, bytesOf(s.MaxBytes), bytesOf(a.SpentBytes), s.MaxMoves)
	_, err := fmt.Fprintf(w, "Splits: %s, %s. Merges: %s.\n", s.Splits, splits, s.Merges)
	for _, r := range s.Rules {
		fmt.Fprintf(w, "Rule:   %s\n", r)
	}
	return err
}

func printAutomation(w io.Writer, a api.Automation) error {
	if err := printAutoSettings(w, a); err != nil {
		return err
	}
	for _, h := range a.Halts {
		fmt.Fprintf(w, "Keyspace %s has been left alone since %s: %s. Look at move %s, then 'cleave rebalance auto resume %s'.\n", h.Keyspace, h.At.UTC().Format(time.DateTime), h.Why, orNone(h.Move), h.Keyspace)
	}
	if !a.Looked.IsZero() {
		fmt.Fprintf(w, "The shards were looked at last at %s UTC.\n", a.Looked.UTC().Format(time.DateTime))
	}
	for _, m := range a.Moves {
		fmt.Fprintf(w, "Under way: move %s of keyspace %s from %s to %s, %s.\n", m.ID, m.Keyspace, m.From, m.To, bytesOf(m.Bytes))
	}
	for _, why := range a.Waiting {
		fmt.Fprintln(w, "Waiting:", why)
	}
	for _, p := range a.Proposals {
		fmt.Fprintf(w, "Proposed: %s in keyspace %s, %s: %s\n  %s\n", p.What, p.Keyspace, bytesOf(p.Bytes), p.Why, p.Command)
	}
	if len(a.Events) == 0 {
		return nil
	}
	rows := make([][]any, len(a.Events))
	for i, e := range a.Events {
		size := ""
		if e.Bytes > 0 {
			size = bytesOf(e.Bytes)
		}
		rows[i] = []any{e.At.UTC().Format(time.DateTime), e.What, e.Keyspace, e.Move, size, e.Why}
	}
	return printTable(w, []string{"when (UTC)", "what", "keyspace", "move", "size", "why"}, rows)
}
