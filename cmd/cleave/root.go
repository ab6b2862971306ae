package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "cleave",
		Short: "Many PostgreSQL servers as one database",
		Long: `cleave, v.: to split apart; to hold together.

Cleave turns many PostgreSQL servers into one database. This binary has all of it:

  dev                          a whole cluster on this machine, for trying things out
  init, config, serve          a process of a cluster on real servers
  status                       how a running cluster is
  shard, keyspace, table, map  what it consists of, and changes to that
  adopt                        a database that is in use becomes its first shard
  sagas                        what applications have under way in steps
  auth                         what a router keeps of its users' passwords
  placement                    which key would live where, and what a change would move;
                               arithmetic only, it touches no server

PostgreSQL clients connect to any process of a cluster, by default at 127.0.0.1:6432.`,
		Example: `  cleave dev
  cleave status
  cleave keyspace create users --key bigint
  cleave shard add eu-1 --address 10.0.0.11:5432
  cleave placement plan --shards 1000 --add 50`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          helpOrUnknown,
	}
	root.SetVersionTemplate("cleave {{.Version}}\n")
	root.SetFlagErrorFunc(wrongFlag)
	root.AddCommand(newDev(), newServe(), newPlacement())
	root.AddCommand(newConfig(), newInit())
	root.AddCommand(newShard(), newKeyspace(), newTable(), newSchema(), newMap(), newTransactions(), newSagas(), newMove(), newSplit(), newMerge(), newTenant(), newRebalance(), newVerify(), newStatus(), newAuth(), newAdopt())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	strict(root)
	return root
}

// strict makes the commands that the framework adds refuse what they do not know, as ours do.
func strict(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			cmd.Args, cmd.RunE = cobra.ArbitraryArgs, helpOrUnknown
			for _, shell := range cmd.Commands() {
				shell.Args = noArgs
			}
		case "help":
			cmd.Run, cmd.RunE = nil, func(_ *cobra.Command, args []string) error { return helpFor(root, args) }
		}
	}
}

func helpFor(root *cobra.Command, args []string) error {
	cmd, rest, err := root.Find(args)
	if err != nil || len(rest) > 0 {
		return wrongInputf("there is no command %q to help with: 'cleave --help' lists the commands", strings.Join(args, " "))
	}
	return cmd.Help()
}

// helpOrUnknown is what a command with subcommands does when none was named: help, or a clear word about one that does
// not exist.
func helpOrUnknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	cmd.SuggestionsMinimumDistance = 2
	hint := fmt.Sprintf("'%s --help' lists the commands", cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("did you mean %q?", near[0])
	}
	return wrongInputf("unknown command %q for %q: %s", args[0], cmd.CommandPath(), hint)
}

// noArgs refuses arguments that are not flags.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return wrongInputf("%s takes no arguments, but got %q", cmd.CommandPath(), args[0])
	}
	return nil
}
