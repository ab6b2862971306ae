package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/dev"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// devOptions are the flags of 'cleave dev'.
type devOptions struct {
	shards, replicas   int
	listen, http, data string
	verbose            bool
}

func newDev() *cobra.Command {
	var o devOptions
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole cluster on this machine, until Ctrl-C",
		Long: `Start an etcd in this process and PostgreSQL servers as its children, make a sharded cluster of
them, or open the one that is in the folder, and run until Ctrl-C. Everything is kept: run it again
with the same folder and the same data is there, also after a crash.

PostgreSQL 15 or newer must be installed; nothing else. Started by root, the servers run as the
user postgres or nobody.`,
		Example: `  cleave dev
  cleave dev --shards 8 --replicas 1 --data /srv/cleave
  cleave shard add shard5        # in another terminal: one more server, one more shard`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDev(cmd, o) },
	}
	flags := cmd.Flags()
	flags.IntVar(&o.shards, "shards", 4, "how many shards a new cluster has; one that is there keeps its own")
	flags.IntVar(&o.replicas, "replicas", 0, "how many streaming replicas each shard of a new cluster has")
	flags.StringVar(&o.listen, "listen", "127.0.0.1:6432", "where PostgreSQL clients connect")
	flags.StringVar(&o.http, "http", "127.0.0.1:8432", "where the HTTP API answers")
	flags.StringVar(&o.data, "data", defaultDevFolder(), "folder that everything is kept in")
	flags.BoolVarP(&o.verbose, "verbose", "v", false, "log more")
	return cmd
}

// defaultDevFolder is a folder that the servers can reach: root's home is closed to the user that they run as.
func defaultDevFolder() string {
	if os.Geteuid() == 0 {
		return "/var/lib/cleave/dev"
	}
	if data := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, "cleave", "dev")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return filepath.Join(os.TempDir(), "cleave-dev")
	}
	return filepath.Join(home, ".local", "share", "cleave", "dev")
}

func runDev(cmd *cobra.Command, o devOptions) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	out := cmd.OutOrStdout()
	defer secondSignalEnds(ctx, stop, out)()
	// Both addresses are taken before anything is started, so that a port in use starts nothing.
	door, err := listen("--listen", o.listen)
	if err != nil {
		return err
	}
	defer door.Close()
	http, err := listen("--http", o.http)
	if err != nil {
		return err
	}
	defer http.Close()

	logger := devLogger(cmd.ErrOrStderr(), o.verbose)
	machine, err := dev.Open(ctx, dev.Config{
		Dir: o.data, Shards: o.shards, Replicas: o.replicas, Logger: logger,
		Progress: func(step string) { fmt.Fprintf(out, "cleave: %s\n", step) },
	})
	if err != nil {
		return interrupted(ctx, err)
	}
	defer func() {
		fmt.Fprintln(out, "cleave: stopping the servers")
		err = errors.Join(err, machine.Close())
	}()
	if shards := len(machine.Specs()); machine.Existed() && cmd.Flags().Changed("shards") && shards != o.shards {
		fmt.Fprintf(out, "cleave: the folder has %d shards; --shards counts for a new one\n", shards)
	}
	n, err := newNode(devConfig(machine, o), machine, sockets{door: door, http: http}, logger)
	if err != nil {
		return err
	}
	return runDevNode(ctx, n, machine, out)
}

// secondSignalEnds says, once a signal has come, what is waited for, and lets another signal end the process at once.
func secondSignalEnds(ctx context.Context, stop context.CancelFunc, out io.Writer) (detach func() bool) {
	return context.AfterFunc(ctx, func() {
		stop()
		fmt.Fprintln(out, "cleave: stopping; open transactions may go on for a while, Ctrl-C again ends it at once")
	})
}

func (o devOptions) check() error {
	switch {
	case o.shards < 1 || o.shards > 64:
		return wrongInputf("--shards %d: on one machine use 1 to 64", o.shards)
	case o.replicas < 0 || o.replicas > 3:
		return wrongInputf("--replicas %d: on one machine use 0 to 3", o.replicas)
	case o.data == "":
		return wrongInputf("--data is empty: name a folder")
	}
	if o.listen == o.http && !strings.HasSuffix(o.http, ":0") {
		return wrongInputf("--listen and --http are both %s: give each its own", o.http)
	}
	for flag, address := range map[string]string{"--listen": o.listen, "--http": o.http} {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return wrongInputf("%s %s: write host:port", flag, address)
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return wrongInputf("%s %s: a local cluster asks for no password, so it answers on this machine only; use 127.0.0.1", flag, address)
		}
	}
	return nil
}

// interrupted is silent about what Ctrl-C made fail.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted before the cluster was ready")
	}
	return err
}

func devLogger(w io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

func devConfig(machine *dev.Machine, o devOptions) config.Config {
	c := config.Default()
	c.Cluster, c.RouterName = "dev", "dev"
	c.Etcd.Endpoints = machine.Endpoints()
	c.Etcd.LeaseTTL = 2 * time.Second // etcd is in this process: who was killed is not missed for long
	c.Listen, c.HTTP.Listen = o.listen, o.http
	c.Auth.Rules = []string{"host all " + dev.Role + " loopback trust", "host all all loopback scram-sha-256"} // the servers ask other roles for theirs
	c.Shards.SSLMode = config.SSLDisable                                                                       // on loopback, and a shard's own description says the rest
	return c
}

// runDevNode makes the cluster while the node runs, then waits for the end of either.
func runDevNode(ctx context.Context, n *node, machine *dev.Machine, out io.Writer) error {
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan error, 1)
	go func() { ended <- n.run(running) }()
	err := populate(running, n, machine, out)
	if err == nil {
		greet(n, machine, out)
		select {
		case <-running.Done():
		case <-machine.Failed():
			err = errors.New("etcd has stopped by itself: see etcd.log in the folder")
		case err = <-ended:
			return err
		}
	} else {
		err = interrupted(ctx, err)
	}
	stop(nil)
	return errors.Join(err, <-ended)
}

// populate makes the map what the folder holds: all of it for a new cluster, what a start that was cut short left out, or
// ports that had to change. It removes nothing that may be somebody's.
func populate(ctx context.Context, n *node, machine *dev.Machine, out io.Writer) error {
	m, err := firstMap(ctx, n, machine, out)
	if err != nil {
		return err
	}
	for _, spec := range machine.Specs() {
		known := m.Shard(spec.Name)
		switch {
		case known != nil:
			err = moveShard(ctx, n.store, known, spec)
		case machine.Unfinished():
			fmt.Fprintf(out, "cleave: adding %s\n", spec.Name)
			_, err = n.cluster.AddShard(ctx, api.AddShard{ShardSpec: spec})
		default:
			err = leftOver(ctx, machine, spec.Name, out)
		}
		if err != nil {
			return err
		}
	}
	if err := machine.Finished(); err != nil {
		return err
	}
	return settle(ctx, n, out)
}

// firstMap returns the map in force. A new cluster gets its first one; a cluster that has lost it with its etcd gets it back from
// the shards.
func firstMap(ctx context.Context, n *node, machine *dev.Machine, out io.Writer) (*topology.Map, error) {
	m, err := n.store.Map(ctx)
	if !errors.Is(err, store.ErrNoMap) {
		return m, err
	}
	if machine.Unfinished() {
		_, err = n.cluster.Create(ctx)
	} else {
		fmt.Fprintln(out, "cleave: etcd has no shard map; making it anew from what the shards have recorded")
		_, err = n.cluster.Rebuild(ctx, api.RebuildMap{Shards: machine.Specs(), Apply: true})
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", machine.Dir(), err)
	}
	return n.store.Map(ctx)
}

// leftOver deals with a server that the map does not know. One that never was a shard and holds nothing is what a killed
// 'shard add' left; any other is somebody's data.
func leftOver(ctx context.Context, machine *dev.Machine, name string, out io.Writer) error {
	untouched, err := machine.Untouched(ctx, name)
	if err != nil {
		return err
	}
	if untouched {
		_, err := machine.Retire(ctx, name)
		return err
	}
	fmt.Fprintf(out, "cleave: warning: server %s runs but is no shard of the map, perhaps because an older map was imported; its data are kept\n", name)
	return nil
}

// moveShard tells the map the addresses at which a shard's servers listen now.
func moveShard(ctx context.Context, s *store.Store, known *topology.Shard, now topology.ShardSpec) error {
	same := func(a, b topology.InstanceSpec) bool { return a.Address == b.Address }
	before := known.Spec()
	if before.Primary.Address == now.Primary.Address && slices.EqualFunc(before.Replicas, now.Replicas, same) && before.Password == now.Password {
		return nil
	}
	_, err := s.Update(ctx, func(m *topology.Map) (*topology.Map, error) {
		return m.Next(topology.UpdateShard(now.Name, func(spec *topology.ShardSpec) {
			spec.Primary.Address, spec.Password = now.Primary.Address, now.Password
			replicas := slices.Clone(now.Replicas)
			for i := range min(len(replicas), len(spec.Replicas)) {
				replicas[i].Labels = spec.Replicas[i].Labels
			}
			spec.Replicas = replicas
		}))
	})
	return err
}

// settleTime is how long a new process waits for its shards.
const settleTime = 20 * time.Second

// settle waits until every shard answers and has recorded what it owns. What is not settled after a while is said.
func settle(ctx context.Context, n *node, out io.Writer) error {
	for deadline := time.Now().Add(settleTime); time.Now().Before(deadline); {
		if err := n.ready(); err == nil && len(n.cluster.Snapshot().Findings) == 0 {
			return nil
		}
		if !wait(ctx, 50*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	for _, f := range n.cluster.Snapshot().Findings {
		fmt.Fprintf(out, "cleave: %s: %s\n", f.Severity, f.Message)
	}
	return n.ready()
}

// greet says how to connect. Its last line begins with "cleave: ready".
func greet(n *node, machine *dev.Machine, out io.Writer) {
	status := n.cluster.Snapshot()
	verb := "made"
	if machine.Existed() {
		verb = "opened" // with its own number of shards, whatever --shards says
	}
	fmt.Fprintf(out, "\nCluster %s %s: %d shards, map version %d.\n\n", status.Cluster, verb, len(status.Shards), status.MapVersion)
	host, port, _ := net.SplitHostPort(n.door.Addr().String())
	fmt.Fprintf(out, "  The database   psql -h %s -p %s -U %s %s    (no password)\n", host, port, dev.Role, dev.Database)
	for i, s := range status.Shards {
		label := ""
		if i == 0 {
			label = "The shards"
		}
		host, port, _ := net.SplitHostPort(s.Primary.Address)
		fmt.Fprintf(out, "  %-14s PGPASSFILE=%s psql -h %s -p %s -U %s %s    (%s)\n", label, machine.PasswordFile(), host, port, dev.Role, dev.Database, s.Name)
		if i == 3 && len(status.Shards) > 4 {
			fmt.Fprintf(out, "  %-14s … and %d more: cleave shard list\n", "", len(status.Shards)-4)
			break
		}
	}
	base := "http://" + n.http.Addr().String()
	flag := ""
	if base != api.DefaultAddress {
		flag = " --api " + base
	}
	fmt.Fprintf(out, "  Look at it     cleave status%s\n  HTTP API       %s/v1/status\n  Everything is kept in %s\n\n", flag, base, machine.Dir())
	fmt.Fprintln(out, "cleave: ready; Ctrl-C stops it")
}

var _ control.Provisioner = (*dev.Machine)(nil)
