package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
)

func newVerify() *cobra.Command {
	var c connection
	var request api.Verify
	var out output
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Look whether every row is where it belongs, and repair what is not",
		Long: `Read the sharded tables on all shards and list rows on a shard that neither owns their key nor has a
copy of it for a move, with what the owner has of them. Both sides of moves that keep a copy up to date
are compared, and the copies of reference tables. Reads and writes go on meanwhile.

With --repair, a row that its owner lacks is brought there, and one that the owner has too is deleted
where it does not belong. Where the owner has the row with other values, nothing is done: look at both,
then say with --prefer which count. Foreign keys are looked at: a row is not brought to where a row is
missing that it refers to. A repair is refused while rows of the keyspace move, or a table is changed.

Exit code 1 means that something is not as it should be, or could not be looked at.`,
		Example: `  cleave verify
  cleave verify --keyspace main --shard shard3
  cleave verify --table orders --repair
  cleave verify --repair --prefer owner --format json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			found, err := askVerify(cmd, &c, request)
			if err != nil {
				return err
			}
			return reportVerified(cmd, out, found)
		},
	}
	c.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&request.Keyspace, "keyspace", "", "look at the tables of this keyspace alone (default: all, and reference tables)")
	flags.StringArrayVar(&request.Tables, "table", nil, "look at this table alone; may be given several times")
	flags.StringArrayVar(&request.Shards, "shard", nil, "look for rows on this shard alone; may be given several times")
	flags.BoolVar(&request.Repair, "repair", false, "mend what is found")
	flags.StringVar(&request.Prefer, "prefer", "", "which row counts if the owner has it with other values: owner or stray (default: neither is touched)")
	flags.IntVar(&request.Limit, "limit", 0, "list so many rows at most; all are counted (default 100)")
	flags.Int64Var(&request.MaxRate, "max-rate", 0, "read so many bytes in a second on each shard at most (default: no limit, with pauses)")
	complete(cmd, "prefer", []string{api.PreferOwner, api.PreferStray})
	out.flags(cmd, formatTable, formatJSON)
	return cmd
}

// askVerify shows how far it is.
func askVerify(cmd *cobra.Command, c *connection, request api.Verify) (api.Verified, error) {
	client, err := c.client()
	if err != nil {
		return api.Verified{}, err
	}
	shown := newProgress(cmd)
	defer shown.done()
	found, err := client.Verify(cmd.Context(), request, func(p api.VerifyProgress) {
		shown.step("%s … %s rows, %s of them do not belong there", p.Doing, grouped(float64(p.Rows)), grouped(float64(p.Strays)))
	})
	return found, callFailed(err)
}

// reportVerified prints what was found, and fails if something is wrong.
func reportVerified(cmd *cobra.Command, out output, found api.Verified) error {
	warn(cmd, found.Findings)
	warn(cmd, found.References.Findings)
	err := out.write(cmd, func(w io.Writer) error {
		if out.format == formatJSON {
			return printJSON(w, found)
		}
		return printVerified(w, found)
	})
	if wrong := found.Wrong(); err == nil && wrong > 0 {
		return fmt.Errorf("rows that are not as they should be, or what could not be looked at: %s", grouped(float64(wrong)))
	}
	return err
}

func printVerified(w io.Writer, found api.Verified) error {
	var rows int64
	tables, shards := map[string]bool{}, map[string]bool{}
	for _, t := range found.Tables {
		rows += t.Rows
		tables[t.Table], shards[t.Shard] = true, true
	}
	for _, s := range found.Strays {
		fmt.Fprintln(w, s)
	}
	if left := found.StraysFound - int64(len(found.Strays)); left > 0 {
		fmt.Fprintf(w, "… and %s more.\n", grouped(float64(left)))
	}
	for _, m := range found.Moves {
		fmt.Fprintf(w, "Move %s, table %s: %s rows, %s differ between shard %s and its copy on shard %s.\n", m.Move, m.Table, grouped(float64(m.Rows)), grouped(float64(m.Differing)), m.Owner, m.Copy)
		for _, key := range m.Keys {
			fmt.Fprintln(w, "  key", key)
		}
	}
	for _, d := range found.References.Differences {
		fmt.Fprintln(w, d)
	}
	fmt.Fprintf(w, "Rows looked at: %s, in %s on %s, by map version %d. Reference tables compared: %d.\n",
		grouped(float64(rows)), counted(len(tables), "table"), counted(len(shards), "shard"), found.MapVersion, len(found.References.Tables))
	if found.StraysFound > 0 {
		fmt.Fprintf(w, "On a shard that they do not belong to: %s, of which %s are repaired.\n", grouped(float64(found.StraysFound)), grouped(float64(found.StraysRepaired)))
	}
	if found.Wrong() == 0 {
		fmt.Fprintln(w, "Everything is where it belongs.")
	}
	return nil
}
