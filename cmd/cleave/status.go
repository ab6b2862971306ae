package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
)

func newStatus() *cobra.Command {
	var c connection
	var out output
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the cluster is",
		Long: `Show how the cluster is, as the process that answers sees it: the map's version, etcd, the
processes, the shards, and what is wrong or worth knowing. Of a shard's connections it shows how
many routers there are × how many each may use, of the server's max_connections.

Exit code 1 means that something is wrong; warnings do not count.`,
		Example: `  cleave status
  cleave status --format json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			status, err := ask(cmd, &c, "asking for the status", func(ctx context.Context, client *api.Client) (api.Status, error) { return client.Status(ctx) })
			if err != nil {
				return err
			}
			err = out.write(cmd, func(w io.Writer) error {
				if out.format == formatJSON {
					return printJSON(w, status)
				}
				return printStatus(w, status)
			})
			if problems := countProblems(status.Findings); err == nil && problems > 0 {
				err = fmt.Errorf("the cluster has %s", counted(problems, "problem"))
			}
			return err
		},
	}
	c.flags(cmd)
	out.flags(cmd, formatTable, formatJSON)
	return cmd
}

func printStatus(w io.Writer, s api.Status) error {
	fmt.Fprintf(w, "Cluster %s, map version %d: %s, %s, %s\n", orNone(s.Cluster), s.MapVersion, counted(len(s.Shards), "shard"), counted(s.Keyspaces, "keyspace"), counted(s.Tables, "table"))
	fmt.Fprintf(w, "etcd at %s: %s since %s; leader: %s\n", strings.Join(s.Store.Endpoints, ", "), connectedText(s.Store), s.Store.Since.UTC().Format(time.DateTime), orNone(s.Leader))
	if s.Automation != "" && s.Automation != "off" {
		fmt.Fprintf(w, "Automation is %s\n", s.Automation)
	}
	if len(s.Routers) > 0 {
		rows := make([][]any, len(s.Routers))
		for i, r := range s.Routers {
			rows[i] = []any{r.Name, r.HTTP, r.Applied, r.Version, r.Started.UTC().Format(time.DateTime)}
		}
		if err := printTable(w, []string{"process", "HTTP API", "map version", "program", "started (UTC)"}, rows); err != nil {
			return err
		}
	}
	if err := printShards(w, s.Shards); err != nil {
		return err
	}
	return printFindings(w, s.Findings)
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func connectedText(s api.StoreStatus) string {
	if s.Connected {
		return "connected"
	}
	return "away"
}

func printFindings(w io.Writer, findings []api.Finding) error {
	if len(findings) == 0 {
		_, err := fmt.Fprintln(w, "All is well.")
		return err
	}
	fmt.Fprintf(w, "Findings (%d):\n", len(findings))
	for _, f := range findings {
		if _, err := fmt.Fprintln(w, findingLine(f)); err != nil {
			return err
		}
	}
	return nil
}
