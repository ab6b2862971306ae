package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/shard"
)

func newSagas() *cobra.Command {
	var c connection
	var out output
	var state, kind string
	var limit int
	cmd := &cobra.Command{
		Use:   "sagas",
		Short: "List the sagas of applications, such as those that are stuck",
		Long: `The sagas that programs keep with package saga, of all shards, the oldest first: those that have not
ended, or those of one state. One that is stuck waits for a person: docs/sagas.md says what to do.

Exit code 1 means that a shard could not be asked; the others' sagas are listed.`,
		Example: "  cleave sagas\n  cleave sagas --state stuck\n  cleave sagas --type order --limit 1000 --format json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			if state != "" && !slices.Contains(shard.SagaStates(), state) {
				return wrongInputf("unknown state %q: use %s", state, strings.Join(shard.SagaStates(), ", "))
			}
			if limit < 1 {
				return wrongInputf("--limit %d: list one at least", limit)
			}
			list, err := ask(cmd, &c, "asking the shards", func(ctx context.Context, client *api.Client) (api.SagaList, error) {
				return client.Sagas(ctx, state, kind, limit)
			})
			if err != nil {
				return err
			}
			if err := out.write(cmd, func(w io.Writer) error {
				if out.format == formatJSON {
					return printJSON(w, list)
				}
				return printSagas(w, list)
			}); err != nil {
				return err
			}
			return reportUnasked(cmd, list.Findings)
		},
	}
	c.flags(cmd)
	out.flags(cmd, formatTable, formatJSON)
	cmd.Flags().StringVar(&state, "state", "", "only sagas of this state: "+strings.Join(shard.SagaStates(), ", ")+" (default: those that have not ended)")
	cmd.Flags().StringVar(&kind, "type", "", "only sagas of this type")
	cmd.Flags().IntVar(&limit, "limit", 100, "how many at most")
	complete(cmd, "state", shard.SagaStates())
	return cmd
}

func printSagas(w io.Writer, list api.SagaList) error {
	if len(list.Sagas) == 0 {
		_, err := fmt.Fprintln(w, "There are no such sagas.")
		return err
	}
	rows := make([][]any, len(list.Sagas))
	for i, s := range list.Sagas {
		age := time.Duration(s.AgeSeconds * float64(time.Second)).Round(time.Second)
		rows[i] = []any{s.Type, s.Key, s.ID, s.State, s.Step, s.Attempts, age, s.Shard, firstLine(cmp.Or(s.LastError, s.Failure))}
	}
	if err := printTable(w, []string{"type", "key", "id", "state", "step", "attempts", "age", "shard", "error"}, rows); err != nil || !list.More {
		return err
	}
	_, err := fmt.Fprintln(w, "There are more: --limit shows more of them, --state and --type fewer.")
	return err
}

// firstLine is what of a long text fits into a table.
func firstLine(text string) string {
	const most = 80
	line, _, more := strings.Cut(text, "\n")
	if runes := []rune(line); len(runes) > most {
		line, more = string(runes[:most]), true
	}
	if more {
		line += " …"
	}
	return line
}

// reportUnasked says which shards could not be asked, and fails if there are any.
func reportUnasked(cmd *cobra.Command, findings []api.Finding) error {
	for _, f := range findings {
		fmt.Fprintln(cmd.ErrOrStderr(), "cleave:"+strings.TrimPrefix(findingLine(f), " "))
	}
	if len(findings) > 0 {
		return fmt.Errorf("the list is not complete: shards that could not be asked: %d", len(findings))
	}
	return nil
}
