package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/test/faults/proxy"
)

// Shard is a server, perhaps with a replica, behind a proxy. All methods but those that take a test are safe for concurrent use.
type Shard struct {
	Name  string
	Proxy *proxy.Proxy

	mu      sync.Mutex
	primary *localpg.Server
	replica *localpg.Server // nil if it has none
}

// Primary is the server that the proxy leads to.
func (s *Shard) Primary() *localpg.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.primary
}

// Replica follows the primary; nil if there is none.
func (s *Shard) Replica() *localpg.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replica
}

// Connect goes to the primary, past the proxy.
func (s *Shard) Connect(ctx context.Context) (*pgx.Conn, error) {
	return pgx.Connect(ctx, s.Primary().DSN("postgres")+"&application_name=oracle")
}

// Crash kills the whole server, or the postmaster alone, whose children have to notice by themselves.
func (s *Shard) Crash(postmasterAlone bool) error {
	server := s.Primary()
	if !postmasterAlone {
		return server.Crash()
	}
	if err := syscall.Kill(server.PID(), syscall.SIGKILL); err != nil {
		return err
	}
	<-server.Exited()
	return nil
}

// Restart brings back the primary after a crash.
func (s *Shard) Restart(ctx context.Context) error { return restart(ctx, s.Primary()) }

// restart starts a server that has crashed. Somebody may have its port for a moment.
func restart(ctx context.Context, server *localpg.Server) error {
	return eventually(ctx, "the server is back", func(ctx context.Context) error {
		select {
		case <-server.Exited():
			return server.Restart(ctx)
		default:
			return nil
		}
	})
}

// CatchUp waits until the replica has everything that the primary has now.
func (s *Shard) CatchUp(ctx context.Context) error {
	var now string
	if err := askOnce(ctx, s.Primary(), &now, "SELECT pg_current_wal_flush_lsn()::text"); err != nil {
		return err
	}
	return eventually(ctx, "the replica has caught up", func(ctx context.Context) error {
		var there bool
		if err := askOnce(ctx, s.Replica(), &there, "SELECT coalesce(pg_last_wal_replay_lsn() >= $1::pg_lsn, false)", now); err != nil {
			return err
		}
		if !there {
			return errors.New("it lags")
		}
		return nil
	})
}

// Synchronise lets the primary acknowledge nothing that the replica does not have, so that nothing of it is lost when that is promoted.
func (s *Shard) Synchronise(ctx context.Context) error {
	conn, err := s.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return eventually(ctx, "the replica is waited for", func(ctx context.Context) error {
		var waits bool
		err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')").Scan(&waits)
		if err == nil && !waits {
			err = errors.New("it is not")
		}
		return err
	})
}

// Promote lets the replica take the primary's place, which must have crashed. What the replica does not have is lost. There is no replica then.
func (s *Shard) Promote(ctx context.Context) error {
	replica := s.Replica()
	if err := restart(ctx, replica); err != nil {
		return err
	}
	if err := replica.Promote(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	s.primary, s.replica = replica, nil
	s.mu.Unlock()
	s.Proxy.SetTarget(replica.Addr())
	s.Proxy.Cut()
	return nil
}

// AddReplica makes one, which goes with the test: that has to be the one that the cluster belongs to.
func (s *Shard) AddReplica(t testing.TB) {
	t.Helper()
	replica := pgtest.StartReplica(t, s.Primary())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replica = replica
}

// askOnce asks a server for one value, over a connection of its own.
func askOnce(ctx context.Context, server *localpg.Server, value any, sql string, arguments ...any) error {
	conn, err := pgx.Connect(ctx, server.DSN("postgres")+"&application_name=oracle")
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return conn.QueryRow(ctx, sql, arguments...).Scan(value)
}

// patience is how long anything may take that is sure to come, on a machine that has much to do.
const patience = time.Minute

// eventually tries until there is no error, and returns the last one when it has taken too long.
func eventually(ctx context.Context, what string, try func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // the last one is of the time limit
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it did not come to pass that %s: %w", what, last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
