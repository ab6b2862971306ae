package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/auth"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// usersOf says where users' verifiers come from.
func (r *router) usersOf() (auth.Users, error) {
	n, c := r.node, r.node.config
	if c.Auth.UsersFile != "" {
		users, err := auth.NewFile(c.Auth.UsersFile, func(err error) {
			n.logger.Warn("auth.users_file could not be read again; what was read before counts", "error", err)
		})
		if err != nil {
			return nil, fmt.Errorf("auth.users_file: %w", err)
		}
		return users, nil
	}
	r.directory = newDirectory(accessOf(c), n.follower.Map, n.logger)
	return auth.NewCached(r.directory.find, 0, n.logger), nil
}

// How many connections the directory has, which is how many questions [auth.Cached] asks at once, and how long one is kept without
// being used.
const (
	directoryConnections = 2
	directoryIdle        = 30 * time.Second
)

// directory reads users' verifiers from the home shard. Anybody who knows the router's address can have users looked up, so
// it does not log in for each.
type directory struct {
	connections *shard.Connections
	shardMap    func() *topology.Map
	logger      *slog.Logger
}

func newDirectory(access shard.Access, shardMap func() *topology.Map, logger *slog.Logger) *directory {
	return &directory{connections: access.Keep(directoryConnections, directoryIdle), shardMap: shardMap, logger: logger}
}

// find is an [auth.Source].
func (d *directory) find(ctx context.Context, user string) (found *auth.User, err error) {
	m := d.shardMap()
	if m == nil || m.Home() == nil {
		return nil, errors.New("there is no shard to look users up on")
	}
	err = d.connections.Use(ctx, m.Home(), func(conn *pgx.Conn) (err error) {
		found, err = d.read(ctx, conn, m.Home().Name(), user)
		return err
	})
	return found, err
}

const userQuery = `SELECT coalesce(rolpassword, ''), rolcanlogin, coalesce(nullif(rolvaliduntil, 'infinity'), 'epoch') FROM pg_catalog.pg_authid WHERE rolname = $1`

// read reads a role's verifier.
func (d *directory) read(ctx context.Context, conn *pgx.Conn, home, user string) (*auth.User, error) {
	var password string
	var until time.Time
	found := &auth.User{Name: user}
	err := conn.QueryRow(ctx, userQuery, user).Scan(&password, &found.CanLogin, &until)
	if errors.Is(err, pgx.ErrNoRows) || cannotBeWritten(err) {
		return nil, auth.ErrNoUser
	}
	if err != nil {
		return nil, fmt.Errorf("read pg_authid on shard %q (the role %q needs GRANT SELECT ON pg_authid, or use auth.users_file): %w", home, conn.Config().User, err)
	}
	if until.Unix() != 0 {
		found.ValidUntil = until
	}
	if strings.HasPrefix(password, "SCRAM-SHA-256$") {
		found.Verifier, err = auth.ParseVerifier(password)
	} else if password != "" {
		d.logger.Warn("a role has a password that is not a SCRAM verifier, so it cannot log in", "user", user)
	}
	return found, err
}

// cannotBeWritten says whether the server refused a name over characters that its encoding does not have, so that no role can be
// called that.
func cannotBeWritten(err error) bool {
	const notInRepertoire, untranslatable = "22021", "22P05"
	var refused *pgconn.PgError
	return errors.As(err, &refused) && slices.Contains([]string{notInRepertoire, untranslatable}, refused.Code)
}
