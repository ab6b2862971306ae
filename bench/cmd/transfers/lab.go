package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/bench/rig"
	"github.com/cleavedb/cleave/internal/localpg"
)

const (
	role     = "postgres"
	database = "postgres"
	// unguardedDatabase has the shard's accounts once more, in a table that belongs to no cluster.
	unguardedDatabase = "unguarded"
	// asRouter lets a client past the router change rows of a shard.
	asRouter = "-c cleave.router=bench"
)

// makeAccounts leaves room on the pages: else updates get cheaper once each page has been written to.
const makeAccounts = "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 70)"

const tidyUp = "VACUUM (ANALYZE, FREEZE) accounts"

// relay is one that copies bytes to a server.
type relay struct {
	process *rig.Process
	address string
}

// lab is all that runs during a measurement.
type lab struct {
	options options
	folder  string

	plain       *localpg.Server
	shards      []*localpg.Server
	plainRelay  relay
	shardRelays []relay
	router      *rig.Router
	other       *rig.Router // of another build; nil if none is given
	// accounts are the keys on each shard.
	accounts [][]int64
	// watchers are connections that ask the servers what they have done.
	watchers map[*localpg.Server]*pgx.Conn

	closers rig.Closers
}

// openLab starts what is to be measured, and makes the accounts.
func openLab(ctx context.Context, o options) (_ *lab, err error) {
	l := &lab{options: o, watchers: map[*localpg.Server]*pgx.Conn{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.closers.Close())
		}
	}()
	if l.folder, err = os.MkdirTemp(o.folder, "cleave-transfers-"); err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	l.closers = append(l.closers, func() error { return os.RemoveAll(l.folder) })
	if err := os.Chmod(l.folder, 0o711); err != nil { // the servers' user passes through
		return nil, fmt.Errorf("open the folder to the servers: %w", err)
	}
	for _, step := range []func(context.Context) error{l.startServers, l.startRelays, l.startRouter, l.fill, l.findAccounts, l.copyAccounts, l.watch} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// startServers makes the servers, all alike, as 'cleave dev' makes them.
func (l *lab) startServers(ctx context.Context) (err error) {
	if rig.InMemory(l.folder) {
		fmt.Fprintf(os.Stderr, "warning: %s is in memory, where a flush costs nothing: name a folder on a disk with -folder\n", l.options.folder)
	}
	if l.plain, err = l.startServer(ctx, "plain"); err != nil {
		return err
	}
	for i := range l.options.shards {
		shard, err := l.startServer(ctx, fmt.Sprintf("shard%d", i+1))
		if err != nil {
			return err
		}
		l.shards = append(l.shards, shard)
	}
	return nil
}

func (l *lab) startServer(ctx context.Context, name string) (*localpg.Server, error) {
	settings := map[string]string{}
	if l.options.flush > 0 {
		// Whoever flushes waits as long before, while others may join: as with a disk that takes its time.
		settings["commit_delay"], settings["commit_siblings"] = strconv.FormatInt(l.options.flush.Microseconds(), 10), "0"
	}
	server, err := localpg.Start(ctx, localpg.Config{Dir: filepath.Join(l.folder, name), Template: true, Whole: true, Settings: settings})
	if err != nil {
		return nil, err
	}
	l.closers = append(l.closers, server.StopImmediately)
	return server, nil
}

func (l *lab) startRelays(context.Context) (err error) {
	if l.plainRelay, err = l.startRelay(l.plain); err != nil {
		return err
	}
	for _, shard := range l.shards {
		relay, err := l.startRelay(shard)
		if err != nil {
			return err
		}
		l.shardRelays = append(l.shardRelays, relay)
	}
	return nil
}

func (l *lab) startRelay(server *localpg.Server) (relay, error) {
	process, address, err := rig.StartChild("relay", server.Addr())
	if err != nil {
		return relay{}, err
	}
	l.closers = append(l.closers, process.Stop)
	return relay{process, address}, nil
}

func (l *lab) startRouter(ctx context.Context) error {
	binary, err := rig.BuildRouter(ctx, l.folder, l.options.profiles != "")
	if err != nil {
		return err
	}
	config := rig.RouterConfig{Folder: filepath.Join(l.folder, "router"), Binary: binary, Role: role, Database: database}
	for _, shard := range l.shards {
		config.Shards = append(config.Shards, shard.Addr())
	}
	if l.router, err = rig.ServeRouter(ctx, config); err != nil {
		return err
	}
	l.closers = append(l.closers, l.router.Close)
	if l.options.other == "" {
		return nil
	}
	config.Folder, config.Binary, config.Join = filepath.Join(l.folder, "other"), l.options.other, l.router
	if l.other, err = rig.ServeRouter(ctx, config); err != nil {
		return fmt.Errorf("start the other router: %w", err)
	}
	l.closers = append(l.closers, l.other.Close)
	return nil
}

// address is how a client connects.
func address(hostPort, database, settings string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable&options=%s", role, hostPort, database, strings.ReplaceAll(url.QueryEscape(settings), "+", "%20"))
}

func (l *lab) routerURL() string { return address(l.router.Address, database, "") }

// fill makes the same accounts on the plain server and through the router.
func (l *lab) fill(ctx context.Context) error {
	var rows bytes.Buffer
	for id := range l.options.accounts {
		fmt.Fprintf(&rows, "%d\t0\n", id+1)
	}
	for place, statements := range map[string][]string{
		l.plain.DSN(database): {makeAccounts},
		l.routerURL():         {makeAccounts, "SELECT cleave.shard_table('accounts', 'id')"},
	} {
		err := rig.With(ctx, place, func(conn *pgx.Conn) error {
			for _, sql := range statements {
				if _, err := conn.Exec(ctx, sql); err != nil {
					return err
				}
			}
			_, err := conn.PgConn().CopyFrom(ctx, bytes.NewReader(rows.Bytes()), "COPY accounts FROM STDIN")
			return err
		})
		if err != nil {
			return fmt.Errorf("make the accounts: %w", err)
		}
	}
	for _, server := range append([]*localpg.Server{l.plain}, l.shards...) {
		err := rig.With(ctx, server.DSN(database), func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, tidyUp)
			return err
		})
		if err != nil {
			return fmt.Errorf("tidy the accounts up: %w", err)
		}
	}
	return nil
}

// findAccounts asks the shards which accounts they have.
func (l *lab) findAccounts(ctx context.Context) error {
	for _, shard := range l.shards {
		err := rig.With(ctx, shard.DSN(database), func(conn *pgx.Conn) error {
			rows, err := conn.Query(ctx, "SELECT id FROM accounts ORDER BY id")
			if err != nil {
				return err
			}
			ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			l.accounts = append(l.accounts, ids)
			return err
		})
		if err != nil {
			return fmt.Errorf("ask a shard for its accounts: %w", err)
		}
	}
	for i, ids := range l.accounts {
		if len(ids) < 2 {
			return fmt.Errorf("shard %d has %d accounts", i+1, len(ids))
		}
	}
	return nil
}

// copyAccounts makes the accounts of each shard once more, unguarded.
func (l *lab) copyAccounts(ctx context.Context) error {
	for i, shard := range l.shards {
		err := rig.With(ctx, shard.DSN(database), func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "CREATE DATABASE "+unguardedDatabase)
			return err
		})
		if err == nil {
			err = rig.With(ctx, shard.DSN(unguardedDatabase), func(conn *pgx.Conn) error {
				for _, sql := range []string{makeAccounts, "INSERT INTO accounts SELECT unnest($1::bigint[]), 0", tidyUp} {
					var arguments []any
					if strings.Contains(sql, "$1") {
						arguments = append(arguments, l.accounts[i])
					}
					if _, err := conn.Exec(ctx, sql, arguments...); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err != nil {
			return fmt.Errorf("copy the accounts of a shard: %w", err)
		}
	}
	return nil
}

// watch connects the watchers.
func (l *lab) watch(ctx context.Context) error {
	for _, server := range append([]*localpg.Server{l.plain}, l.shards...) {
		conn, err := pgx.Connect(ctx, server.DSN(database))
		if err != nil {
			return fmt.Errorf("watch a server: %w", err)
		}
		l.watchers[server] = conn
		l.closers = append(l.closers, func() error { return conn.Close(context.WithoutCancel(ctx)) })
	}
	return nil
}

// count looks whether money is missing, and whether a prepared transaction was left.
func (l *lab) count(ctx context.Context) error {
	var all int64
	for _, server := range append([]*localpg.Server{l.plain}, l.shards...) {
		var balance, prepared int64
		err := rig.With(ctx, server.DSN(database), func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, "SELECT (SELECT sum(balance)::bigint FROM accounts), (SELECT count(*) FROM pg_prepared_xacts)").Scan(&balance, &prepared)
		})
		switch {
		case err != nil:
			return fmt.Errorf("count the money: %w", err)
		case prepared != 0:
			return fmt.Errorf("%d prepared transactions are left on the server at %s", prepared, server.Addr())
		case server == l.plain && balance != 0:
			return fmt.Errorf("the plain server has %d too much", balance)
		case server != l.plain:
			all += balance
		}
	}
	if all != 0 {
		return fmt.Errorf("the shards have %d too much", all)
	}
	return nil
}

// wait lets time pass.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
