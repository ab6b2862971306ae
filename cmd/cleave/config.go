package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/auth"
	"github.com/cleavedb/cleave/internal/config"
)

// defaultConfigFile is what 'cleave init' writes and the other commands read, unless told otherwise.
const defaultConfigFile = "cleave.yaml"

func newConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check the configuration file, show what is in effect",
		Long: `The configuration of 'cleave serve': a YAML file, overridden by environment variables.
'cleave init' writes a first one. Nothing here touches etcd or a shard.`,
		Args: cobra.ArbitraryArgs,
		RunE: helpOrUnknown,
	}
	cmd.AddCommand(newConfigCheck(), newConfigShow())
	return cmd
}

func newConfigCheck() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say 'ok', or everything that is wrong and what to do about it",
		Long: `Read the file and the environment as 'cleave serve' would, and say 'ok' or all problems, each
with its file and line or its variable. Exit code 2 means that there are some. Warnings, about
what is unsafe or cannot be found on this machine, do not change the exit code.`,
		Example: `  cleave config check
  cleave config check --config /etc/cleave/cleave.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := loadConfig(cmd, path); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "ok")
			return err
		},
	}
	configFlag(cmd, &path)
	return cmd
}

func newConfigShow() *cobra.Command {
	var path string
	var out output
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the configuration in effect, and where each value came from",
		Long: `Print every field with its value and whether that is the default, stands in the file or was set
by an environment variable. Of a secret only the reference is shown.`,
		Example: `  cleave config show
  CLEAVE_LOG_LEVEL=debug cleave config show --config '' --format csv`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			c, err := loadConfig(cmd, path)
			if err != nil {
				return err
			}
			return out.write(cmd, func(w io.Writer) error { return printSettings(w, out.format, settingsOf(c)) })
		},
	}
	configFlag(cmd, &path)
	out.flags(cmd, formatTable, formatCSV, formatJSON)
	return cmd
}

// configFlag adds --config.
func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "config", defaultConfigFile, "the configuration file; '' for none, only the environment")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
}

// loadConfig reads the file and the environment, and says what it warns of. Several problems are a line each, before the
// one line that every wrong input ends with.
func loadConfig(cmd *cobra.Command, path string) (config.Config, error) {
	c, err := config.Load(path, os.Environ())
	var problems config.Problems
	switch {
	case errors.As(err, &problems) && len(problems) > 1:
		for _, p := range problems {
			fmt.Fprintln(cmd.ErrOrStderr(), p)
		}
		return c, wrongInputf("the configuration has %d problems", len(problems))
	case errors.Is(err, fs.ErrNotExist) && path == defaultConfigFile:
		return c, wrongInputf("there is no %s here: 'cleave init' writes one, --config names another", path)
	case err != nil:
		return c, wrongInput(err)
	}
	if err := checkAuth(cmd, c); err != nil {
		return c, wrongInput(err)
	}
	for _, warning := range c.Warnings() {
		fmt.Fprintln(cmd.ErrOrStderr(), "cleave: warning:", warning)
	}
	return c, nil
}

// checkAuth looks at what the configuration's own checks leave to those who let clients in.
func checkAuth(cmd *cobra.Command, c config.Config) error {
	place := c.Origin("auth.rules").Place
	if place != "" {
		place += ": "
	}
	rules, err := parseRules(c.Auth.Rules)
	if err != nil {
		return fmt.Errorf("%sauth.rules: %w", place, err)
	}
	for i, rule := range rules {
		if rule.Method == auth.Certificate && c.TLS.ClientCAFile == "" {
			return fmt.Errorf("%sauth.rules: rule %d asks for a certificate, and tls.client_ca_file does not say whose are good", place, i+1)
		}
		if rule.Method == auth.Trust && !onlyLoopback(rule.Addresses) {
			fmt.Fprintf(cmd.ErrOrStderr(), "cleave: warning: %sauth.rules: rule %d lets clients on other machines in without asking who they are\n", place, i+1)
		}
	}
	return nil
}

func onlyLoopback(prefixes []netip.Prefix) bool {
	return len(prefixes) > 0 && !slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return !p.Addr().IsLoopback() })
}

// setting is a field in effect.
type setting struct {
	Field string        `json:"field"`
	Value string        `json:"value"`
	From  config.Source `json:"from"`
	Place string        `json:"place,omitempty"`
}

func settingsOf(c config.Config) []setting {
	var settings []setting
	for _, f := range config.Fields() {
		origin := c.Origin(f.Path)
		settings = append(settings, setting{f.Path, c.Value(f.Path), origin.Source, origin.Place})
	}
	return settings
}

func printSettings(w io.Writer, format string, settings []setting) error {
	header := []string{"field", "value", "from", "place"}
	switch format {
	case formatJSON:
		return printJSON(w, settings)
	case formatCSV:
		rows := make([][]string, len(settings))
		for i, s := range settings {
			rows[i] = []string{s.Field, s.Value, string(s.From), s.Place}
		}
		return printCSV(w, header, rows)
	default:
		rows := make([][]any, len(settings))
		for i, s := range settings {
			rows[i] = []any{s.Field, s.Value, s.From, s.Place}
		}
		return printTable(w, header, rows)
	}
}
