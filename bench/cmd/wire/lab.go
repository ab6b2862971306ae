package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/bench/rig"
	"github.com/cleavedb/cleave/internal/localpg"
)

// The databases, all on one server. The router's are its own, because a shard that a cluster owns refuses whoever comes
// around the router.
const (
	database           = "bench"
	routerDatabase     = "bench_router"
	stubRouterDatabase = "bench_router_stub"
)

const (
	role       = "postgres"
	maxClients = 500
	// serverConnections leaves room for what proxies keep open while another one is measured.
	serverConnections = 3 * maxClients
)

// target is what a client can connect to.
type target struct {
	name     string
	address  string
	database string
	// session is the database to use with prepared statements, where the usual one does not keep them.
	session string
	// settings are startup parameters that sessions need, as PGOPTIONS has them.
	settings string
	// pid is the process to be held responsible; 0 if there is none, or if it is not known.
	pid int
}

// base is the target that another one is compared with: the same server without the proxy.
func base(name string) string {
	if name == "stub" || strings.HasSuffix(name, "@stub") {
		return "stub"
	}
	return "direct"
}

// kind is the target's name without what stands behind.
func kind(name string) string {
	proxy, _, _ := strings.Cut(name, "@")
	return proxy
}

func (t *target) config(mode string) (*pgconn.Config, error) {
	name := t.database
	if mode == "prepared" && t.session != "" {
		name = t.session
	}
	config, err := pgconn.ParseConfig(fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", role, t.address, name))
	if err == nil && t.settings != "" {
		config.RuntimeParams["options"] = t.settings
	}
	return config, err
}

// lab is all that runs during a measurement.
type lab struct {
	options options
	folder  string
	server  *localpg.Server
	pgbench string
	stub    string // the stub's address, once it runs
	targets []*target
	closers rig.Closers
	results results
}

// openLab starts what is to be measured. A target that cannot be started is left out with a word about it.
func openLab(ctx context.Context, o options) (_ *lab, err error) {
	l := &lab{options: o, results: results{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.closers.Close())
		}
	}()
	if l.folder, err = os.MkdirTemp("", "cleave-wire-"); err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	l.closers = append(l.closers, func() error { return os.RemoveAll(l.folder) })
	if err := os.Chmod(l.folder, 0o711); err != nil { // the servers' user passes through
		return nil, fmt.Errorf("open the folder to the servers: %w", err)
	}
	if err := l.startServer(ctx); err != nil {
		return nil, err
	}
	for _, name := range o.targets {
		t, err := l.start(ctx, name)
		if err == nil {
			err = answers(ctx, t)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s is left out: %v\n", name, err)
			continue
		}
		l.targets = append(l.targets, t)
	}
	if len(l.targets) == 0 {
		return nil, errors.New("nothing is left to be measured")
	}
	return l, nil
}

func (l *lab) startServer(ctx context.Context) (err error) {
	l.server, err = localpg.Start(ctx, localpg.Config{
		Dir: filepath.Join(l.folder, "server"), Fast: true, Template: true, Whole: true,
		Settings: map[string]string{
			"max_connections": strconv.Itoa(serverConnections),
			"shared_buffers":  "512MB",
			// What happens now and then would hit one target and spare the next.
			"autovacuum": "off", "checkpoint_timeout": "1h", "max_wal_size": "8GB",
		},
	})
	if err != nil {
		return err
	}
	l.closers = append(l.closers, l.server.StopImmediately)
	if l.pgbench, err = findPgbench(l.server.Installation().Bin); err != nil {
		return err
	}
	return l.fill(ctx)
}

// findPgbench prefers the one that came with the server.
func findPgbench(bin string) (string, error) {
	if path := filepath.Join(bin, "pgbench"); isProgram(path) {
		return path, nil
	}
	path, err := exec.LookPath("pgbench")
	if err != nil {
		return "", fmt.Errorf("pgbench is missing: run scripts/install-bench.sh: %w", err)
	}
	return path, nil
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// fill makes the databases, alike.
func (l *lab) fill(ctx context.Context) error {
	if err := l.administer(ctx, "postgres", "CREATE DATABASE "+database); err != nil {
		return err
	}
	direct := target{address: l.server.Addr(), database: database}
	// Pages with room: else updates get cheaper once each page has been written to, and the target with a table of its own is the last to gain.
	if _, err := l.runPgbench(ctx, &direct, "simple", "-i", "-q", "-F", "70", "-s", strconv.Itoa(l.options.scale)); err != nil {
		return fmt.Errorf("fill the tables: %w", err)
	}
	for _, name := range []string{routerDatabase, stubRouterDatabase} {
		if err := l.administer(ctx, "postgres", "CREATE DATABASE "+name+" TEMPLATE "+database); err != nil {
			return err
		}
	}
	return nil
}

// administer runs statements on the server itself.
func (l *lab) administer(ctx context.Context, database string, statements ...string) error {
	conn, err := pgx.Connect(ctx, l.server.DSN(database))
	if err != nil {
		return fmt.Errorf("connect to the server: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// start starts the target of the name.
func (l *lab) start(ctx context.Context, name string) (*target, error) {
	behind := l.server.Addr()
	if base(name) == "stub" {
		if err := l.startStub(); err != nil {
			return nil, err
		}
		behind = l.stub
	}
	switch kind(name) {
	case "pgbouncer":
		return l.startPgbouncer(name, behind)
	case "relay":
		return l.startRelay(&target{name: name, database: database}, behind)
	case "guarded":
		return l.startRelay(&target{name: name, database: routerDatabase, settings: "-c cleave.router=bench"}, behind)
	case "router":
		return l.startRouter(ctx, name, behind)
	default:
		return &target{name: name, address: behind, database: database}, nil
	}
}

// startRelay starts a relay for the target.
func (l *lab) startRelay(t *target, behind string) (*target, error) {
	child, address, err := rig.StartChild("relay", behind)
	if err != nil {
		return nil, err
	}
	l.closers = append(l.closers, child.Stop)
	t.address, t.pid = address, child.PID()
	return t, nil
}

// startStub starts the stub, which all that are measured before it share.
func (l *lab) startStub() error {
	if l.stub != "" {
		return nil
	}
	child, address, err := rig.StartChild("stub", l.server.Addr())
	if err != nil {
		return err
	}
	l.closers = append(l.closers, child.Stop)
	l.stub = address
	return nil
}

// answers waits until a client of the target gets an answer.
func answers(ctx context.Context, t *target) error {
	ctx, cancel := context.WithTimeout(ctx, rig.Patience)
	defer cancel()
	if err := rig.Eventually(ctx, func() error { return askOnce(ctx, t) }); err != nil {
		return fmt.Errorf("it does not answer: %w", err)
	}
	return nil
}

func askOnce(ctx context.Context, t *target) error {
	config, err := t.config("simple")
	if err != nil {
		return err
	}
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return conn.Exec(ctx, "SELECT abalance FROM pgbench_accounts WHERE aid = 1").Close()
}
