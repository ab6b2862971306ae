package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
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
	r.directory = &directory{access: accessOf(c), shardMap: n.follower.Map, logger: n.logger}
	return auth.NewCached(r.directory.find, 0, n.logger), nil
}

// How long a connection of the directory is kept without being used, how long a failure to connect is believed, and how long
// closing may take.
const (
	directoryIdle    = 30 * time.Second
	directoryRetry   = time.Second
	directoryGoodbye = 2 * time.Second
)

// directory reads users' verifiers from the home shard. Anybody who knows the router's address can have users looked up, so
// it does not log in for each: it keeps its connections, of which it has as many as it is asked questions at once. That is
// two, as [auth.Cached] asks.
type directory struct {
	access   shard.Access
	shardMap func() *topology.Map
	logger   *slog.Logger

	mu     sync.Mutex // guards what follows
	kept   []keptConnection
	idling *time.Timer // closes what is kept; nil before there was anything
	closed bool
	// failure is what connecting to an address ended with just now: those who wait for an answer need not each find out.
	failure   error
	failedAt  time.Time
	failedFor string
}

// keptConnection is one that nobody uses at the moment.
type keptConnection struct {
	conn    *pgx.Conn
	address string
}

// find is an [auth.Source]. It asks once more if a connection that was kept turns out to be dead.
func (d *directory) find(ctx context.Context, user string) (*auth.User, error) {
	m := d.shardMap()
	if m == nil || m.Home() == nil {
		return nil, errors.New("there is no shard to look users up on")
	}
	home := m.Home()
	for {
		conn, wasKept, err := d.take(ctx, home)
		if err != nil {
			return nil, err
		}
		found, err := d.read(ctx, conn, home, user)
		d.give(conn, home.Primary())
		if !wasKept || !conn.IsClosed() || ctx.Err() != nil {
			return found, err
		}
	}
}

// take returns a connection to the home shard that nobody else uses.
func (d *directory) take(ctx context.Context, home *topology.Shard) (conn *pgx.Conn, wasKept bool, err error) {
	if conn, err = d.takeKept(home.Primary()); conn != nil || err != nil {
		return conn, true, err
	}
	conn, err = d.access.Connect(ctx, home.Spec())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failure = nil
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		d.failure, d.failedAt, d.failedFor = err, time.Now(), home.Primary()
	}
	return conn, false, err
}

// takeKept returns a connection that was kept, nil if there is none, or the error that connecting ended with just now.
func (d *directory) takeKept(address string) (*pgx.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errors.New("the router is shutting down")
	}
	for i, k := range slices.Backward(d.kept) {
		if k.address == address { // else the home shard has moved, and the connection is closed when it has idled
			d.kept = slices.Delete(d.kept, i, i+1)
			return k.conn, nil
		}
	}
	if d.failure != nil && d.failedFor == address && time.Since(d.failedAt) < directoryRetry {
		return nil, d.failure
	}
	return nil, nil
}

// give keeps a connection for the next question, unless it is of no use any more.
func (d *directory) give(conn *pgx.Conn, address string) {
	if !d.keep(conn, address) {
		sayGoodbye(conn)
	}
}

func (d *directory) keep(conn *pgx.Conn, address string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || conn.IsClosed() {
		return false
	}
	d.kept = append(d.kept, keptConnection{conn, address})
	if d.idling == nil {
		d.idling = time.AfterFunc(directoryIdle, d.closeKept)
	} else {
		d.idling.Reset(directoryIdle)
	}
	return true
}

// closeKept closes what nobody uses.
func (d *directory) closeKept() {
	d.mu.Lock()
	kept := d.kept
	d.kept = nil
	d.mu.Unlock()
	for _, k := range kept {
		sayGoodbye(k.conn)
	}
}

// close closes what is kept, and what is in use when it is given back.
func (d *directory) close() {
	d.mu.Lock()
	d.closed = true
	if d.idling != nil {
		d.idling.Stop()
	}
	d.mu.Unlock()
	d.closeKept()
}

func sayGoodbye(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), directoryGoodbye)
	defer cancel()
	_ = conn.Close(ctx)
	select { // the driver ends a connection that a context cut short in the background
	case <-conn.PgConn().CleanupDone():
	case <-ctx.Done():
	}
}

const userQuery = `SELECT coalesce(rolpassword, ''), rolcanlogin, coalesce(nullif(rolvaliduntil, 'infinity'), 'epoch') FROM pg_catalog.pg_authid WHERE rolname = $1`

// read reads a role's verifier.
func (d *directory) read(ctx context.Context, conn *pgx.Conn, home *topology.Shard, user string) (*auth.User, error) {
	var password string
	var until time.Time
	found := &auth.User{Name: user}
	err := conn.QueryRow(ctx, userQuery, user).Scan(&password, &found.CanLogin, &until)
	if errors.Is(err, pgx.ErrNoRows) || cannotBeWritten(err) {
		return nil, auth.ErrNoUser
	}
	if err != nil {
		return nil, fmt.Errorf("read pg_authid on shard %q (the role %q needs GRANT SELECT ON pg_authid, or use auth.users_file): %w", home.Name(), d.access.User, err)
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
