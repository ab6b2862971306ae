package main

import (
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func newServe() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a process of a cluster: the router, the HTTP API and the controller",
		Long: `Run one process of a cluster, against an etcd cluster and PostgreSQL servers that are there already.
Any number of such processes may run; they hold nothing that would be lost with them. One of
them leads. It runs until SIGINT or SIGTERM; then nobody new is let in, open transactions may end
for limits.drain_timeout, and it stops in order.

To replace a running process without a refused connection, set handover_socket and start the new
one with the same file beside it. It takes the listening sockets over once it is ready; if it does
not get ready, the old one goes on. Sessions of the old process go on there, for
limits.drain_timeout; after that idle ones are closed with SQLSTATE 57P01, so that clients connect
anew, those in a transaction when it ends, and the old process ends. To cancel a statement is
possible only while the process that runs it accepts connections.

A new cluster has no shard map: make one with 'cleave map create', then add shards with
'cleave shard add'. It is never made by itself, so that an etcd that lost its data is noticed.`,
		Example: `  cleave init
  cleave serve --config cleave.yaml
  CLEAVE_LOG_LEVEL=debug cleave serve --config /etc/cleave/cleave.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serve(cmd, path) },
	}
	configFlag(cmd, &path)
	return cmd
}

func serve(cmd *cobra.Command, path string) error {
	c, err := loadConfig(cmd, path)
	if err != nil {
		return err
	}
	logger, err := newLogger(c.Log)
	if err != nil {
		return wrongInput(err)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer secondSignalEnds(ctx, stop, cmd.OutOrStdout())()
	s, err := openSockets(ctx, c)
	if err != nil {
		return err
	}
	defer s.close()
	n, err := newNode(c, nil, s, logger)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "cleave: serving cluster %q, PostgreSQL clients at %s, HTTP API at %s://%s\n",
		c.Cluster, s.door.Addr(), scheme(c.HTTP.TLS.CertFile), s.http.Addr())
	return n.run(ctx)
}

func scheme(certFile string) string {
	if certFile == "" {
		return "http"
	}
	return "https"
}
