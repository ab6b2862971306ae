package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/bench/rig"
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
	port, err := rig.FreePort()
	if err != nil {
		return err
	}
	t.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	filled := strings.NewReplacer("{listen}", t.address, "{server}", server).Replace(command)
	router, err := rig.Start(exec.Command("/bin/sh", "-c", "exec "+filled))
	if err != nil {
		return err
	}
	l.closers = append(l.closers, router.Stop)
	t.pid = router.PID()
	return nil
}

// serveRouter makes a cluster of one shard: what the router uses is then its own, and the server behind it that of all the others.
func (l *lab) serveRouter(ctx context.Context, t *target, server string) error {
	binary, err := rig.BuildRouter(ctx, l.folder, false)
	if err != nil {
		return err
	}
	config := rig.RouterConfig{Folder: filepath.Join(l.folder, strings.ReplaceAll(t.name, "@", "-")), Binary: binary, Role: role, Database: t.database, Shards: []string{server}}
	if l.options.routerConfig != "" {
		further, err := os.ReadFile(l.options.routerConfig)
		if err != nil {
			return fmt.Errorf("read the router's further configuration: %w", err)
		}
		config.Further = string(further)
	}
	router, err := rig.ServeRouter(ctx, config)
	if err != nil {
		return err
	}
	l.closers = append(l.closers, router.Close)
	t.address, t.pid = router.Address, router.PID()
	return nil
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
