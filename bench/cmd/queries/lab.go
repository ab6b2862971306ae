package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/bench/rig"
	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg"
)

const (
	role     = "postgres"
	database = "postgres"
	// seed of what is made up, and of the keyspaces: rows are on the same shards in every run.
	seed = 19
)

// lab is all that runs during a measurement.
type lab struct {
	options options
	out     io.Writer
	folder  string

	plain  *localpg.Server
	shards []*localpg.Server
	config rig.RouterConfig
	router *rig.Router

	hasEvents bool

	closers rig.Closers
}

// openLab starts what is to be measured.
func openLab(ctx context.Context, o options) (_ *lab, err error) {
	l := &lab{options: o, out: os.Stdout}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.closers.Close())
		}
	}()
	if l.folder, err = os.MkdirTemp(o.folder, "cleave-queries-"); err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	l.closers = append(l.closers, func() error { return os.RemoveAll(l.folder) })
	if err := os.Chmod(l.folder, 0o711); err != nil { // the servers' user passes through
		return nil, fmt.Errorf("open the folder to the servers: %w", err)
	}
	if err := l.startServers(ctx); err != nil {
		return nil, err
	}
	binary, err := rig.BuildRouter(ctx, l.folder, false)
	if err != nil {
		return nil, err
	}
	l.config = rig.RouterConfig{Binary: binary, Role: role, Database: database}
	for _, shard := range l.shards {
		l.config.Shards = append(l.config.Shards, shard.Addr())
	}
	l.router, err = l.startRouter(ctx, "router")
	return l, err
}

// startServers makes the servers, all alike, as 'cleave dev' makes them.
func (l *lab) startServers(ctx context.Context) error {
	configs := []localpg.Config{{Dir: filepath.Join(l.folder, "plain"), Template: true}}
	for i := range l.options.shards {
		configs = append(configs, localpg.Config{Dir: filepath.Join(l.folder, fmt.Sprintf("shard%d", i+1)), Template: true})
	}
	servers, err := localpg.StartAll(ctx, configs)
	if err != nil {
		return err
	}
	for _, server := range servers {
		l.closers = append(l.closers, server.StopImmediately)
	}
	l.plain, l.shards = servers[0], servers[1:]
	return nil
}

// startRouter starts a router: the first makes the cluster, others join it.
func (l *lab) startRouter(ctx context.Context, name string) (*rig.Router, error) {
	config := l.config
	config.Folder, config.Join = filepath.Join(l.folder, name), l.router
	router, err := rig.ServeRouter(ctx, config)
	if err == nil {
		l.closers = append(l.closers, router.Close)
	}
	return router, err
}

func url(address string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", role, address, database)
}

// urls are those of both sides.
func (l *lab) urls() [2]string { return [2]string{url(l.router.Address), url(l.plain.Addr())} }

// keyspace makes one.
func (l *lab) keyspace(ctx context.Context, name, key string) error {
	_, err := l.router.API.CreateKeyspace(ctx, api.CreateKeyspace{Name: name, Key: []string{key}, Seed: strconv.Itoa(seed)})
	return err
}

// table is one that both sides get, with its rows in the text format of COPY.
type table struct {
	name string
	rows []byte
}

// fill makes tables on both sides, declares them to the router, and copies their rows.
func (l *lab) fill(ctx context.Context, create string, declare []string, tables ...table) error {
	for i, place := range l.urls() {
		statements := []string{create}
		if i == ours {
			statements = append(statements, declare...)
		}
		err := rig.With(ctx, place, func(conn *pgx.Conn) error {
			for _, sql := range statements {
				if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
					return fmt.Errorf("%s: %w", sql, err)
				}
			}
			for _, t := range tables {
				if _, err := conn.PgConn().CopyFrom(ctx, bytes.NewReader(t.rows), "COPY "+t.name+" FROM STDIN"); err != nil {
					return fmt.Errorf("%s: %w", t.name, err)
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("make the tables: %w", err)
		}
	}
	return l.tidyUp(ctx)
}

// tidyUp leaves no work to be done in the background, on all servers.
func (l *lab) tidyUp(ctx context.Context) error {
	for _, server := range append([]*localpg.Server{l.plain}, l.shards...) {
		err := rig.With(ctx, server.DSN(database), func(conn *pgx.Conn) error {
			for _, sql := range []string{"VACUUM (ANALYZE, FREEZE)", "CHECKPOINT"} {
				if _, err := conn.Exec(ctx, sql); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("tidy the tables up: %w", err)
		}
	}
	return nil
}
