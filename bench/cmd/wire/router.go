package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/store"
)

// startRouter starts the router, or takes the one that is given, and prepares it.
func (l *lab) startRouter(ctx context.Context, name, server string) (*target, error) {
	t := &target{name: name, database: routerDatabase}
	if base(name) == "stub" {
		t.database = stubRouterDatabase
	}
	var err error
	switch given := l.options.router; {
	case given == "":
		if err = l.serveRouter(ctx, t, server); err == nil && l.options.sharded {
			err = l.shard(ctx, t)
		}
	case isAddress(given):
		if base(name) == "stub" {
			return nil, errors.New("a router that is given by its address has its own server behind it")
		}
		t.address, t.pid = given, l.options.routerPID
	default:
		err = l.commandRouter(t, given, server)
	}
	if err != nil {
		return nil, err
	}
	return t, l.prepareRouter(ctx, t)
}

func isAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	_, notNumber := strconv.Atoi(port)
	return err == nil && notNumber == nil && !strings.ContainsAny(text, " {")
}

// commandRouter runs the command, which has to become the router: its process is what is measured.
func (l *lab) commandRouter(t *target, command, server string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	t.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	filled := strings.NewReplacer("{listen}", t.address, "{server}", server).Replace(command)
	router, err := startProcess(exec.Command("/bin/sh", "-c", "exec "+filled))
	if err != nil {
		return err
	}
	l.closers = append(l.closers, router.stop)
	t.pid = router.pid()
	return nil
}

// serveRouter makes a cluster of one shard, with an etcd in this process and a 'cleave serve' of its own: what the
// router uses is then its own, and the server behind it that of all the others.
func (l *lab) serveRouter(ctx context.Context, t *target, server string) error {
	folder := filepath.Join(l.folder, strings.ReplaceAll(t.name, "@", "-"))
	if err := os.Mkdir(folder, 0o755); err != nil {
		return fmt.Errorf("make the router's folder: %w", err)
	}
	binary, err := l.buildRouter(ctx)
	if err != nil {
		return err
	}
	etcd, err := store.StartEmbedded(ctx, store.EmbeddedConfig{Dir: filepath.Join(folder, "etcd"), LogFile: filepath.Join(folder, "etcd.log"), Fast: true})
	if err != nil {
		return err
	}
	l.closers = append(l.closers, func() error { etcd.Close(); return nil })
	config, httpAddress, err := l.configureRouter(folder, t, etcd.Endpoints())
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(folder, "router.log"))
	if err != nil {
		return fmt.Errorf("make the router's log: %w", err)
	}
	defer log.Close()
	command := exec.Command(binary, "serve", "--config", config)
	command.Stderr = log
	router, err := startProcess(command)
	if err != nil {
		return err
	}
	l.closers = append(l.closers, router.stop)
	t.pid = router.pid()
	if err := makeCluster(ctx, "http://"+httpAddress, server); err != nil {
		said, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%w\n%s", err, said)
	}
	return nil
}

// buildRouter builds the binary of this tree, once.
func (l *lab) buildRouter(ctx context.Context) (string, error) {
	binary := filepath.Join(l.folder, "cleave")
	if isProgram(binary) {
		return binary, nil
	}
	output, err := exec.CommandContext(ctx, "go", "build", "-C", "..", "-trimpath", "-o", binary, "./cmd/cleave").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build cleave: %w: %s", err, output)
	}
	return binary, nil
}

func (l *lab) configureRouter(folder string, t *target, endpoints []string) (path, httpAddress string, err error) {
	var ports [2]int
	for i := range ports {
		if ports[i], err = freePort(); err != nil {
			return "", "", err
		}
	}
	t.address, httpAddress = fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])
	urls := make([]string, len(endpoints))
	for i, endpoint := range endpoints {
		urls[i] = "http://" + strings.TrimPrefix(endpoint, "http://")
	}
	text := fmt.Sprintf("router_name: bench\nlisten: %s\netcd:\n  endpoints: [%s]\nhttp:\n  listen: %s\nshards:\n  user: %s\n  database: %s\n  sslmode: disable\nauth:\n  rules: [host all all loopback trust]\n",
		t.address, strings.Join(urls, ", "), httpAddress, role, t.database)
	if l.options.routerConfig != "" {
		more, err := os.ReadFile(l.options.routerConfig)
		if err != nil {
			return "", "", fmt.Errorf("read the router's further configuration: %w", err)
		}
		text += string(more)
	}
	path = filepath.Join(folder, "cleave.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", "", fmt.Errorf("write the router's configuration: %w", err)
	}
	return path, httpAddress, nil
}

// makeCluster makes the first map, with the server as its only shard, and waits until the process is ready.
func makeCluster(ctx context.Context, base, server string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client := &api.Client{BaseURL: base}
	if err := eventually(ctx, func() error { _, err := client.CreateMap(ctx); return err }); err != nil {
		return fmt.Errorf("make the shard map: %w", err)
	}
	shard := api.AddShard{}
	shard.Name, shard.Primary.Address = "shard1", server
	if _, err := client.AddShard(ctx, shard); err != nil {
		return fmt.Errorf("add the shard: %w", err)
	}
	return eventually(ctx, func() error { return ready(ctx, base) })
}

func ready(ctx context.Context, base string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("the router is not ready: %s", why)
	}
	return nil
}

// eventually tries until it succeeds or the context ends.
func eventually(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// prepareRouter runs what is to be run through the router first.
func (l *lab) prepareRouter(ctx context.Context, t *target) error {
	if l.options.routerSetup == "" {
		return nil
	}
	return askRouter(ctx, t, l.options.routerSetup)
}

// shard declares the table as sharded, so that a statement's key has to be found and hashed, and a changed row is
// checked by the shard. A table must be empty for that; it is filled again behind the router's back.
func (l *lab) shard(ctx context.Context, t *target) error {
	if err := l.administer(ctx, t.database, "TRUNCATE pgbench_accounts"); err != nil {
		return err
	}
	if err := askRouter(ctx, t, "SELECT cleave.shard_table('public.pgbench_accounts', 'aid')"); err != nil {
		return err
	}
	return l.administer(ctx, t.database,
		"SET session_replication_role = replica", // the shard takes rows from a router alone, unless they are replicated
		fmt.Sprintf("INSERT INTO pgbench_accounts SELECT n, 1 + (n - 1) / 100000, 0, '' FROM generate_series(1, %d) n", 100_000*l.options.scale),
		"VACUUM ANALYZE pgbench_accounts",
	)
}

// askRouter runs SQL through the router, once it answers.
func askRouter(ctx context.Context, t *target, sql string) error {
	if err := answers(ctx, t); err != nil {
		return err
	}
	config, err := t.config("simple")
	if err != nil {
		return err
	}
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect to the router: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := conn.Exec(ctx, sql).Close(); err != nil {
		return fmt.Errorf("prepare the router: %s: %w", sql, err)
	}
	return nil
}
