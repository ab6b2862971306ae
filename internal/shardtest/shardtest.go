// Package shardtest gives tests the servers that are to become shards, with the schema cleave already in them: to install it takes longer than most
// tests do. Whoever tests the installing takes empty servers from package pgtest.
//
// [NewModel] has the schema; [NewBareModel] is for servers that shards are compared with. Models are safe for concurrent use.
package shardtest

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/shard"
)

// NewModel returns a model whose copies have the schema in the database postgres. TestMain is to remove it.
func NewModel() *pgtest.Model { return &pgtest.Model{Furnish: install} }

// NewBareModel returns a model whose copies have no schema, and give what is created in them the same OIDs as those of [NewModel] do.
func NewBareModel() *pgtest.Model { return &pgtest.Model{Furnish: installAndDrop} }

func install(ctx context.Context, server *localpg.Server) error {
	conn, err := pgx.Connect(ctx, server.DSN("postgres"))
	if err != nil {
		return err
	}
	_, _, err = shard.Install(ctx, conn)
	return errors.Join(err, conn.Close(ctx))
}

func installAndDrop(ctx context.Context, server *localpg.Server) error {
	if err := install(ctx, server); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, server.DSN("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "DROP SCHEMA cleave CASCADE")
	return errors.Join(err, conn.Close(ctx))
}
