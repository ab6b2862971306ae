package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/reshard"
	"github.com/cleavedb/cleave/internal/topology"
)

func newMove() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:   "move",
		Short: "Move rows from one shard to another while the application writes",
		Long: `A move carries ranges of a keyspace, or single keys, from one shard to another, all tables of the
keyspace together; or whole tables that are on one shard alone. Reads and writes go on; when both sides are equal, statements are held for some
milliseconds while the owner changes. Until it is cleaned up, a move can be rolled back.

The leader carries moves out, one at a time for each keyspace; whatever dies, it goes on.`,
		Example: `  cleave move start --keyspace main --from s1 --to s2 --range 0000000000000000:4000000000000000
  cleave move start --keyspace main --to s3 --key 4711
  cleave move watch k3vq2m7a
  cleave move rollback k3vq2m7a`,
		Args: cobra.ArbitraryArgs,
		RunE: helpOrUnknown,
	}
	c.flags(cmd)
	cmd.AddCommand(newMoveStart(&c), newMoveList(&c), newMoveShow(&c), newMoveWatch(&c), newMoveThrottle(&c))
	for _, w := range moveWishes {
		cmd.AddCommand(newMoveWish(&c, w))
	}
	return cmd
}

// moveWish is a command that says what is to become of a move.
type moveWish struct {
	name        string
	wish        reshard.Wish
	short, long string
}

var moveWishes = []moveWish{
	{"pause", reshard.Pause, "Let a move go no further for now", "A copy waits, and goes on where it was when the move is resumed within ten minutes; after that, or when\nthe source has to keep too much WAL for it, it is given up and begins anew. Later on, changes are still\ncarried over, and the move does not switch."},
	{"resume", reshard.Resume, "Go on with a move that was paused, or that has stopped", "A move stops by itself where it cannot get better by itself: 'cleave move show' says why."},
	{"cancel", reshard.Cancel, "Take a move back that has not switched", "The copy is deleted, and slots, subscriptions and publications are removed."},
	{"switch", reshard.Switch, "Let a move that was started with --manual switch", "It switches as soon as it is ready."},
	{"rollback", reshard.RollBack, "Give rows back to the shard they came from", "It switches in the other direction, with all that was written since. A move can be rolled back after\nits switch for as long as --keep said."},
	{"finish", reshard.Finish, "Clean up a move that has switched, before its time", "After that it cannot be rolled back."},
}

func newMoveWish(c *connection, w moveWish) *cobra.Command {
	return &cobra.Command{
		Use: w.name + " ID", Short: w.short, Long: w.short + ".\n\n" + w.long, Example: "  cleave move " + w.name + " k3vq2m7a", Args: moveID,
		RunE: func(cmd *cobra.Command, args []string) error {
			move, err := ask(cmd, c, "telling the leader", func(ctx context.Context, client *api.Client) (api.Move, error) {
				return client.WishMove(ctx, args[0], string(w.wish))
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "The leader has been told to %s move %s, which is %s. 'cleave move watch %s' shows what becomes of it.\n", w.wish, move.ID, move.Phase, move.ID)
			return nil
		},
	}
}

// moveID takes exactly the ID of a move.
func moveID(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return wrongInputf("write '%s ID': 'cleave move list' shows the moves", cmd.CommandPath())
	}
	return nil
}

func newMoveStart(c *connection) *cobra.Command {
	var request api.StartMove
	var ranges, keys []string
	var keep, pauseLimit time.Duration
	var limits moveLimits
	var wait bool
	var out output
	cmd := &cobra.Command{
		Use:   "start --to SHARD (--range LO:HI | --key VALUE | --table NAME | --from SHARD)",
		Short: "Start a move",
		Long: `Start a move of ranges (--range, as often as needed), of single keys (--key), or of all that a shard
owns (--from alone). A range is written as its first point, a colon, and the first point behind it; either
may be left out: in a keyspace by hash 16 hexadecimal digits, in one by range the key itself. Points and
keys of several columns are JSON lists: --key '["eu", 17]'. A single key becomes pinned to the shard.

In a keyspace that places schemas a key is the name of one, and it moves with all its tables.

Tables that are on one shard alone, because nobody has declared them or they were moved before, move as
a whole (--table, as often as needed): all that refer to each other together.

Where ranges belong to several shards, there is one move for each. More than 2,000 keys, or ranges that do
not follow each other, are several moves too.`,
		Example: `  cleave move start --keyspace main --to s2 --range 0000000000000000:4000000000000000
  cleave move start --keyspace events --to s3 --range 2026-01-01:2026-07-01
  cleave move start --keyspace main --to s3 --key 4711 --wait
  cleave move start --keyspace tenants --to s3 --key acme
  cleave move start --to s3 --table audit_log --table audit_details
  cleave move start --from s1 --to s2 --keep 24h --manual`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			var err error
			if request.Ranges, err = parseRanges(ranges); err != nil {
				return err
			}
			if request.Keys, err = parseKeys(keys); err != nil {
				return err
			}
			if request.MoveLimits, err = limits.read(cmd); err != nil {
				return err
			}
			request.KeepSeconds, request.PauseLimitMS = keep.Seconds(), pauseLimit.Milliseconds()
			list, err := ask(cmd, c, "asking for the move", func(ctx context.Context, client *api.Client) (api.MoveList, error) {
				return client.StartMoves(ctx, request)
			})
			if err != nil {
				return err
			}
			if err := out.write(cmd, func(w io.Writer) error {
				if out.format == formatJSON {
					return printJSON(w, list)
				}
				return printStarted(w, list, request.DryRun)
			}); err != nil || !wait || request.DryRun {
				return err
			}
			return watchMoves(cmd, c, list.Moves, func(m api.Move) bool { // it goes no further by itself for now
				return request.Manual && reshard.Phase(m.Phase) == reshard.Ready || keep > 0 && m.CanRollBack
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&request.Keyspace, "keyspace", "", "the keyspace (with --from alone: all of them)")
	flags.StringVar(&request.To, "to", "", "the shard that gets the rows")
	flags.StringVar(&request.From, "from", "", "the shard that has them; with neither --range nor --key, all that it owns moves")
	flags.StringArrayVar(&ranges, "range", nil, "a range, LO:HI")
	flags.StringArrayVar(&keys, "key", nil, "a single key")
	flags.StringArrayVar(&request.Tables, "table", nil, "a table that is on one shard alone")
	flags.IntVar(&request.Streams, "streams", 0, "how many copies run at once, up to 64 (default 2)")
	flags.DurationVar(&keep, "keep", 0, "how long the move can be rolled back after it has switched, such as 24h")
	flags.DurationVar(&pauseLimit, "pause-limit", 0, "how long statements may be held before the switch is taken back and tried again (default 1s)")
	flags.BoolVar(&request.Manual, "manual", false, "do not switch before 'cleave move switch' says so")
	limits.flags(cmd)
	flags.BoolVar(&request.SkipVerify, "skip-verify", false, "do not compare both sides before the switch")
	flags.StringVar(&request.Why, "why", "", "a note for others")
	flags.BoolVar(&request.DryRun, "dry-run", false, "only say what would move")
	flags.BoolVar(&wait, "wait", false, "show how far it is, and return when it has ended, is ready to be switched (--manual), or can be rolled back (--keep)")
	out.flags(cmd, formatTable, formatJSON)
	return cmd
}

// parseRanges reads LO:HI.
func parseRanges(texts []string) ([]api.MoveRange, error) {
	var ranges []api.MoveRange
	for _, text := range texts {
		r, err := api.ParseRange(text)
		if err != nil {
			return nil, wrongInputf("--range %q: %v", text, err)
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

func parseKeys(texts []string) ([][]string, error) {
	var keys [][]string
	for _, text := range texts {
		key, err := parseMovePoint(text)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// parseMovePoint reads a value, or a JSON list of values.
func parseMovePoint(text string) ([]string, error) {
	point, err := api.ParsePoint(text)
	if err != nil {
		return nil, wrongInputf("%v", err)
	}
	return point, nil
}

func printStarted(w io.Writer, list api.MoveList, dryRun bool) error {
	printWarnings(w, list.Warnings)
	for _, m := range list.Moves {
		what := m.What()
		if dryRun {
			fmt.Fprintf(w, "Would move %s from shard %s to shard %s.\n", what, m.From, m.To)
			continue
		}
		fmt.Fprintf(w, "Move %s: %s, from shard %s to shard %s. 'cleave move watch %s' shows how far it is.\n", m.ID, what, m.From, m.To, m.ID)
	}
	return nil
}

func newMoveList(c *connection) *cobra.Command {
	var out output
	var all bool
	cmd := &cobra.Command{
		Use: "list", Short: "List moves: those under way, and the last ones that have ended", Example: "  cleave move list\n  cleave move list --all --format json", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			list, err := ask(cmd, c, "asking for the moves", func(ctx context.Context, client *api.Client) (api.MoveList, error) { return client.Moves(ctx) })
			if err != nil {
				return err
			}
			return out.write(cmd, func(w io.Writer) error {
				if out.format == formatJSON {
					return printJSON(w, list)
				}
				return printMoves(w, list.Moves, all)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all that have ended, too")
	out.flags(cmd, formatTable, formatJSON)
	return cmd
}

// endedShown is how many moves that have ended are listed unless all are asked for.
const endedShown = 5

func printMoves(w io.Writer, moves []api.Move, all bool) error {
	var rows [][]any
	ended := 0
	for _, m := range moves {
		if reshard.Phase(m.Phase).HasEnded() {
			if ended++; ended > endedShown && !all {
				continue
			}
		}
		rows = append(rows, []any{m.ID, m.Keyspace, m.From, m.To, m.Parts(), m.Phase, howFar(m), firstLine(stateOf(m))})
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "There are no moves: 'cleave move start' starts one.")
		return err
	}
	return printTable(w, []string{"id", "keyspace", "from", "to", "what", "phase", "progress", "state"}, rows)
}

// progressOf is how far the copy is.
func progressOf(m api.Move) string {
	if m.Share == 0 && m.Rows == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%, %s rows, %s", m.Share*100, grouped(float64(m.Rows)), bytesOf(m.Bytes))
}

// howFar is how far a move is in its phase.
func howFar(m api.Move) string {
	switch phase := reshard.Phase(m.Phase); {
	case phase == reshard.Copying:
		const width = 24
		full := int(m.Share * width)
		text := fmt.Sprintf("[%s%s] %s", strings.Repeat("#", full), strings.Repeat(".", width-full), progressOf(m))
		if m.SecondsLeft >= 1 {
			text += fmt.Sprintf(", about %s left", (time.Duration(m.SecondsLeft) * time.Second).String())
		}
		return text
	case slices.Contains([]reshard.Phase{reshard.CatchingUp, reshard.Verifying, reshard.Ready, reshard.Switching, reshard.Switched, reshard.RollingBack}, phase):
		return bytesOf(m.LagBytes) + " behind"
	case phase == reshard.Cleaning:
		return grouped(float64(m.Cleaned)) + " rows deleted"
	default:
		return progressOf(m)
	}
}

// stateOf is what there is to be said of a move.
func stateOf(m api.Move) string {
	switch {
	case m.Stopped != "":
		return "stopped: " + m.Stopped
	case m.Paused && m.Waiting != "":
		return "paused: " + m.Waiting
	case m.Paused:
		return "paused"
	case m.Error != "" && m.Waiting != "":
		return m.Waiting + "; the last error: " + m.Error
	case m.Error != "":
		return m.Error
	default:
		return m.Waiting
	}
}

// bytesOf prints a size for people.
func bytesOf(n int64) string {
	value, units := float64(n), []string{"B", "kB", "MB", "GB", "TB"}
	unit := 0
	for value >= 1000 && unit < len(units)-1 {
		value /= 1000
		unit++
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}

func newMoveShow(c *connection) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show all about a move", Example: "  cleave move show k3vq2m7a", Args: moveID,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			move, err := ask(cmd, c, "asking for the move", func(ctx context.Context, client *api.Client) (api.Move, error) { return client.Move(ctx, args[0]) })
			if err != nil {
				return err
			}
			return out.write(cmd, func(w io.Writer) error {
				if out.format == formatJSON {
					return printJSON(w, move)
				}
				return printMove(w, move)
			})
		},
	}
	out.flags(cmd, formatTable, formatJSON)
	return cmd
}

func printMove(w io.Writer, m api.Move) error {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("move", "%s: %s, from shard %s to shard %s", m.ID, m.What(), m.From, m.To)
	if len(m.Whole) > 1 {
		line("", "%s", strings.Join(m.Whole, ", "))
	}
	for _, r := range m.Ranges {
		line("", "from %s to %s", pointText(r.From, "the beginning"), pointText(r.To, "the end"))
	}
	for _, k := range m.Keys {
		line("", "key %s", pointText(k, ""))
	}
	line("phase", "%s since %s", m.Phase, m.Since.Local().Format(time.DateTime))
	if state := stateOf(m); state != "" {
		line("state", "%s", state)
	}
	if far := howFar(m); far != "" {
		line("progress", "%s", far)
	}
	if copied := progressOf(m); copied != "" && reshard.Phase(m.Phase) != reshard.Copying {
		line("copied", "%s", copied)
	}
	for _, t := range m.Tables {
		line("", "%s: %s rows, %s, %.0f %%", t.Name, grouped(float64(t.Rows)), bytesOf(t.Bytes), t.Share*100)
	}
	line("lag", "%s", bytesOf(m.LagBytes))
	line("throttle", "%s", limitsText(m.Limits))
	if m.Verified != "" {
		line("verified", "%s", m.Verified)
	}
	for _, s := range m.Switches {
		result := "switched"
		if s.Failed != "" {
			result = "taken back: " + s.Failed
		}
		line("switch", "%s: statements were held for %.1f ms; %s", s.At.Local().Format(time.DateTime), s.HeldMS, result)
		var steps []string
		for _, step := range s.Steps {
			steps = append(steps, fmt.Sprintf("%s %.1f", step.Name, step.TookMS))
		}
		line("", "%s ms", strings.Join(steps, ", "))
	}
	if m.CanRollBack {
		line("back", "'cleave move rollback %s' gives the rows back", m.ID)
	}
	if m.Cleaned > 0 {
		line("cleaned", "%s rows were deleted where they are not owned any more", grouped(float64(m.Cleaned)))
	}
	return nil
}

func pointText(p []string, none string) string {
	if len(p) == 0 {
		return none
	}
	return topology.Point(p).String()
}

func newMoveWatch(c *connection) *cobra.Command {
	return &cobra.Command{
		Use: "watch ID", Short: "Show how far a move is until it has ended", Example: "  cleave move watch k3vq2m7a", Args: moveID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return watchMoves(cmd, c, []api.Move{{ID: args[0]}}, toTheEnd)
		},
	}
}

// watchEvery is how often somebody who watches sees something new, and watchPatience how long there may be no answer: a process is started anew, or another one leads.
const (
	watchEvery    = 500 * time.Millisecond
	watchPatience = 30 * time.Second
)

// watchMoves shows moves, one after the other, until each has ended, has stopped or is paused, or it has come far enough.
func watchMoves(cmd *cobra.Command, c *connection, moves []api.Move, isEnough func(api.Move) bool) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	for _, m := range moves {
		if err := watchMove(cmd, client, m.ID, isEnough); err != nil {
			return err
		}
	}
	return nil
}

func watchMove(cmd *cobra.Command, client *api.Client, id string, isEnough func(api.Move) bool) error {
	shown := newProgress(cmd)
	defer shown.done()
	last := ""
	for heard := (time.Time{}); ; {
		m, err := client.Move(cmd.Context(), id)
		switch {
		case err == nil:
			heard = time.Now()
		case !mayPass(err) || time.Since(heard) > watchPatience:
			return callFailed(err)
		default:
			shown.step("no answer: %s", firstLine(err.Error()))
			if err := untilNextLook(cmd.Context()); err != nil {
				return err
			}
			continue
		}
		if m.Phase != last {
			shown.done()
			fmt.Fprintf(cmd.OutOrStdout(), "%s  %s\n", time.Now().Format(time.TimeOnly), watchLine(m))
			last = m.Phase
		} else {
			shown.step("%s", watchLine(m))
		}
		switch {
		case reshard.Phase(m.Phase).HasEnded(), isEnough(m):
			return nil
		case m.Stopped != "":
			return fmt.Errorf("move %s has stopped: %s", m.ID, m.Stopped)
		case m.Paused:
			return fmt.Errorf("move %s is paused: 'cleave move resume %s' lets it go on", m.ID, m.ID)
		}
		if err := untilNextLook(cmd.Context()); err != nil {
			return err
		}
	}
}

// toTheEnd is for whom only the end of a move is enough.
func toTheEnd(api.Move) bool { return false }

func untilNextLook(ctx context.Context) error {
	select {
	case <-time.After(watchEvery):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// mayPass says whether a call that failed may well succeed in a moment.
func mayPass(err error) bool {
	var network net.Error
	var refused *api.RequestError
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.As(err, &refused) && (refused.Answer.Code == api.CodeUnavailable || refused.Answer.Code == api.CodeTimeout)
}

// watchLine is one line about a move.
func watchLine(m api.Move) string {
	text := fmt.Sprintf("move %s: %s", m.ID, m.Phase)
	if far := howFar(m); reshard.Phase(m.Phase) == reshard.Copying {
		text += " " + far
	} else if far != "" && !reshard.Phase(m.Phase).HasEnded() {
		text += ", " + far
	}
	if n := len(m.Switches); n > 0 && m.Switches[n-1].Failed == "" {
		text += fmt.Sprintf(", statements were held for %.1f ms", m.Switches[n-1].HeldMS)
	}
	if state := stateOf(m); state != "" {
		text += " (" + firstLine(state) + ")"
	}
	return text
}
