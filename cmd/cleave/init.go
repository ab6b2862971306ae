package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/config"
)

func newInit() *cobra.Command {
	var out output
	var force bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a first configuration file, with every field explained",
		Long: `Write a configuration file for 'cleave serve' in which every field stands with its meaning, its
default and its environment variable, commented out: as written it changes nothing.
A file that exists is left alone unless --force is given.`,
		Example: `  cleave init
  cleave init --output /etc/cleave/cleave.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkInit(&out, force); err != nil {
				return err
			}
			return runInit(cmd, &out)
		},
	}
	out.format, out.allowed = formatYAML, []string{formatYAML}
	cmd.Flags().StringVarP(&out.file, "output", "o", defaultConfigFile, "the file to write")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite a file that exists")
	_ = cmd.MarkFlagFilename("output", "yaml", "yml")
	return cmd
}

// formatYAML is the one form of a configuration file.
const formatYAML = "yaml"

// checkInit refuses what cannot be written, and what must not be overwritten.
func checkInit(out *output, force bool) error {
	if out.file == "" {
		return wrongInputf("--output names no file: give it one, such as %s", defaultConfigFile)
	}
	if err := out.check(); err != nil {
		return err
	}
	if _, err := os.Lstat(out.file); err == nil && !force {
		return wrongInputf("%s exists and is left as it is: --force overwrites it, --output names another", out.file)
	}
	return nil
}

func runInit(cmd *cobra.Command, out *output) error {
	err := out.write(cmd, func(w io.Writer) error {
		_, err := w.Write(config.Template())
		return err
	})
	if err != nil {
		return err
	}
	named := ""
	if out.file != defaultConfigFile {
		named = " --config " + out.file
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), `Wrote %[1]s: every field, commented out, so that as it is it means the defaults.

Next:
  1. edit %[1]s: etcd.endpoints, shards.password and shards.root_ca_file are what most clusters need
  2. cleave config check%[2]s
  3. cleave config show%[2]s
`, out.file, named)
	return err
}
