package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
)

// moveLimits are the flags that say what slows a move down.
type moveLimits struct {
	throttle        string
	maxRate, maxWAL int64
	maxLag          time.Duration
	maxLoad         float64
}

func (l *moveLimits) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&l.throttle, "throttle", "on", "on: give way to standbys, slots and load; off: to nothing but --max-rate")
	flags.Int64Var(&l.maxRate, "max-rate", 0, "copy so many bytes in a second at most (0: no limit)")
	flags.DurationVar(&l.maxLag, "max-lag", 10*time.Second, "stop while a standby of either shard is so far behind, and be slower from half of it on (0: no limit)")
	flags.Float64Var(&l.maxLoad, "max-load", 2, "be slower while a small statement takes so many times longer than at best on a shard that others use (0: no limit)")
	flags.Int64Var(&l.maxWAL, "max-wal", 32<<30, "let a shard keep so many bytes of WAL for a slot at most")
}

// read returns what was said.
func (l *moveLimits) read(cmd *cobra.Command) (limits api.MoveLimits, err error) {
	changed := cmd.Flags().Changed
	if changed("throttle") {
		on := l.throttle == "on"
		if !on && l.throttle != "off" {
			return limits, wrongInputf("--throttle %q: write on or off", l.throttle)
		}
		limits.Throttle = &on
	}
	if changed("max-rate") {
		limits.MaxRate = &l.maxRate
	}
	if changed("max-lag") {
		seconds := l.maxLag.Seconds()
		limits.MaxLagSeconds = &seconds
	}
	if changed("max-load") {
		limits.MaxLoad = &l.maxLoad
	}
	if changed("max-wal") {
		limits.MaxWAL = &l.maxWAL
	}
	return limits, nil
}

func newMoveThrottle(c *connection) *cobra.Command {
	var limits moveLimits
	cmd := &cobra.Command{
		Use:   "throttle ID",
		Short: "Change what slows a move down",
		Long: `Change what slows a move down while it is under way. What is not said stays as it is.

Copying and cleaning up give way to standbys that fall behind, to slots that keep much WAL, and to
statements of others that have to wait. 'cleave move show' says what a move waits for, and its limits.`,
		Example: "  cleave move throttle k3vq2m7a --max-rate 20000000\n  cleave move throttle k3vq2m7a --throttle off",
		Args:    moveID,
		RunE: func(cmd *cobra.Command, args []string) error {
			changed, err := limits.read(cmd)
			if err != nil {
				return err
			}
			if changed == (api.MoveLimits{}) {
				return wrongInputf("say what is to change: --throttle, --max-rate, --max-lag, --max-load or --max-wal")
			}
			move, err := ask(cmd, c, "telling the leader", func(ctx context.Context, client *api.Client) (api.Move, error) {
				return client.ThrottleMove(ctx, args[0], changed)
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "The leader has been told what slows move %s down, which is %s. 'cleave move show %s' has it all.\n", move.ID, move.Phase, move.ID)
			return nil
		},
	}
	limits.flags(cmd)
	return cmd
}

// limitsText says in one line what slows a move down.
func limitsText(l api.MoveLimits) string {
	var parts []string
	if l.MaxRate != nil && *l.MaxRate > 0 {
		parts = append(parts, bytesOf(*l.MaxRate)+" a second at most")
	}
	if l.Throttle == nil || !*l.Throttle {
		return strings.Join(append(parts, "off"), ", ")
	}
	if l.MaxLagSeconds != nil && *l.MaxLagSeconds > 0 {
		parts = append(parts, fmt.Sprintf("standbys %s behind", time.Duration(*l.MaxLagSeconds*float64(time.Second))))
	}
	if l.MaxLoad != nil && *l.MaxLoad > 0 {
		parts = append(parts, fmt.Sprintf("small statements %g times as long", *l.MaxLoad))
	}
	if l.MaxWAL != nil {
		parts = append(parts, bytesOf(*l.MaxWAL)+" of WAL for a slot")
	}
	return strings.Join(parts, ", ")
}
