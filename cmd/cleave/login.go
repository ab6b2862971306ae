package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/secret"
	"github.com/cleavedb/cleave/internal/topology"
)

// loginFlags say how the cluster's processes log in to a server. What is left out comes from their configuration.
type loginFlags struct {
	database, user            string
	passwordFile, passwordEnv string
	sslMode, sslRootCert      string
}

// loginNames are the names of the flags.
var loginNames = []string{"database", "user", "password-file", "password-env", "sslmode", "sslrootcert"}

func (l *loginFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&l.database, "database", "", "database on the server")
	flags.StringVar(&l.user, "user", "", "role to log in as")
	flags.StringVar(&l.passwordFile, "password-file", "", "absolute path of the file with the password, where the cluster runs")
	flags.StringVar(&l.passwordEnv, "password-env", "", "environment variable with the password, where the cluster runs")
	flags.StringVar(&l.sslMode, "sslmode", "", "what is asked of connections: "+strings.Join(topology.SSLModes(), ", "))
	flags.StringVar(&l.sslRootCert, "sslrootcert", "", "certificates that the server's must be signed by, where the cluster runs")
	complete(cmd, "sslmode", topology.SSLModes())
}

// apply writes what the flags say into a shard's description.
func (l *loginFlags) apply(spec *topology.ShardSpec) error {
	if l.sslMode != "" && !slices.Contains(topology.SSLModes(), l.sslMode) {
		return wrongInputf("--sslmode %q is none of %s", l.sslMode, strings.Join(topology.SSLModes(), ", "))
	}
	password := secret.Reference{File: l.passwordFile, Env: l.passwordEnv}
	if err := password.Check(); err != nil {
		return wrongInput(err)
	}
	spec.Database, spec.User, spec.Password = l.database, l.user, password
	spec.SSLMode, spec.SSLRootCert = l.sslMode, l.sslRootCert
	return nil
}
