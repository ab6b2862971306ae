package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
)

func newTransactions() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:   "transactions",
		Short: "Look at transactions over several shards that are not over, and resolve those in doubt",
		Long: `Transactions over several shards are prepared on their shards, decided on one of them, and then committed on the others. Those that
are not over are listed here: most are gone a moment later. What a process that died has left is ended by the control plane within
seconds. A person is needed only if a shard has lost a decision, because it was promoted from a replica that did not have it, or restored.`,
		Example: "  cleave transactions list\n  cleave transactions resolve TRANSACTION --rollback --yes",
		Args:    cobra.ArbitraryArgs,
		RunE:    helpOrUnknown,
	}
	c.flags(cmd)
	cmd.AddCommand(newTransactionList(&c), newTransactionResolve(&c))
	return cmd
}

func newTransactionList(c *connection) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List transactions over several shards that are not over, the oldest first",
		Example: "  cleave transactions list\n  cleave transactions list --format json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			list, err := ask(cmd, c, "asking all shards", func(ctx context.Context, client *api.Client) (api.Transactions, error) {
				return client.Transactions(ctx)
			})
			if err != nil {
				return err
			}
			return out.write(cmd, func(w io.Writer) error {
				if out.format == formatJSON {
					return printJSON(w, list)
				}
				return printTransactions(w, list)
			})
		},
	}
	out.flags(cmd, formatTable, formatJSON)
	return cmd
}

func printTransactions(w io.Writer, list api.Transactions) error {
	for _, f := range list.Findings {
		fmt.Fprintln(w, strings.TrimSpace(findingLine(f)))
	}
	if len(list.Transactions) == 0 {
		_, err := fmt.Fprintln(w, "No transaction over several shards is under way or in doubt.")
		return err
	}
	var rows [][]any
	for _, t := range list.Transactions {
		age := time.Duration(t.AgeSeconds * float64(time.Second)).Round(time.Millisecond)
		rows = append(rows, []any{t.ID, age, t.Phase, strings.Join(t.Participants, ", "), strings.Join(t.PreparedOn, ", "), t.Router, t.Detail})
	}
	return printTable(w, []string{"transaction", "age", "phase", "participants", "prepared on", "router", "detail"}, rows)
}

func newTransactionResolve(c *connection) *cobra.Command {
	var commit, rollback, forget, yes bool
	cmd := &cobra.Command{
		Use:   "resolve TRANSACTION",
		Short: "Commit or roll back what is prepared of a transaction in doubt, or forget one of which something was lost",
		Long: `Ends what is prepared of a transaction, on all shards. This is for transactions in doubt, which nobody else may end: the shard that
decided was promoted or restored, and may have lost the decision. Look at the data first. If another shard has committed its
part, commit; if none has, roll back. Choosing wrongly leaves half of the transaction for good.

--forget is for transactions that are shown as lost, once you have looked at the rows and mended them.`,
		Example: "  cleave transactions resolve cleave/0b5b6f3e/1/4711/1794808073143909/1/abcdefghij/0123456789abcdef --rollback --yes",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			how, err := wayToResolve(commit, rollback, forget)
			if err != nil {
				return err
			}
			if !yes {
				return errors.New("this decides for good, and nothing is asked again: if a part of it has ended otherwise elsewhere, half of the transaction stays; if you have looked, add --yes")
			}
			done, err := ask(cmd, c, "resolving the transaction", func(ctx context.Context, client *api.Client) (api.TransactionResolved, error) {
				return client.ResolveTransaction(ctx, api.ResolveTransaction{ID: args[0], How: how})
			})
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), done.Message)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&commit, "commit", false, "commit what is prepared")
	cmd.Flags().BoolVar(&rollback, "rollback", false, "roll back what is prepared")
	cmd.Flags().BoolVar(&forget, "forget", false, "forget what was lost")
	cmd.Flags().BoolVar(&yes, "yes", false, "you have looked at the data, and know what stays if this is wrong")
	return cmd
}

func wayToResolve(commit, rollback, forget bool) (string, error) {
	switch {
	case commit && !rollback && !forget:
		return "commit", nil
	case rollback && !commit && !forget:
		return "rollback", nil
	case forget && !commit && !rollback:
		return "forget", nil
	}
	return "", errors.New("say one of --commit, --rollback and --forget")
}
