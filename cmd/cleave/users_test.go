package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/auth"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// countingRelay passes connections on to the server, and counts them. It listens where nobody else connects to: another test's
// client may still be looking for a server whose port is free again.
func countingRelay(t *testing.T, server *localpg.Server) (address string, accepted *atomic.Int32) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil { // not every system has it
		listener, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	accepted = new(atomic.Int32)
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			running.Go(func() { passOn(client, server.Addr()) })
		}
	})
	return listener.Addr().String(), accepted
}

// passOn connects both ways until one side hangs up.
func passOn(client net.Conn, address string) {
	defer client.Close()
	upstream, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer upstream.Close()
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(upstream, client)
		_ = upstream.Close()
	})
	_, _ = io.Copy(client, upstream)
	_ = client.Close()
	up.Wait()
}

// testDirectory looks users up in this database of a server, and tells how often it has logged in.
func testDirectory(t *testing.T, server *localpg.Server, database string) (*directory, *atomic.Int32) {
	t.Helper()
	address, logins := countingRelay(t, server)
	m, err := topology.New("0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11")
	if err == nil {
		m, err = m.Next(topology.AddShard(topology.ShardSpec{Name: "s1", Primary: topology.InstanceSpec{Address: address}, Database: database, User: "postgres", SSLMode: "disable"}))
	}
	if err != nil {
		t.Fatal(err)
	}
	d := newDirectory(shard.Access{}, func() *topology.Map { return m }, slog.New(slog.DiscardHandler))
	t.Cleanup(d.connections.Close)
	return d, logins
}

// onServer runs statements as the superuser.
func onServer(t *testing.T, server *localpg.Server, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// TestStrangersCostTwoConnections: anybody can send names, so the number of names must not be the number of logins.
func TestStrangersCostTwoConnections(t *testing.T) {
	server := pgtest.Start(t)
	onServer(t, server, "CREATE ROLE alice LOGIN PASSWORD 'wonderland'")
	d, logins := testDirectory(t, server, "postgres")
	users := auth.NewCached(d.find, 0, nil)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			if _, err := users.Lookup(t.Context(), fmt.Sprintf("stranger %d", i)); !errors.Is(err, auth.ErrNoUser) {
				t.Error(err)
			}
			if alice, err := users.Lookup(t.Context(), "alice"); err != nil || alice.Verifier == nil || !alice.CanLogin {
				t.Errorf("alice is %+v, %v", alice, err)
			}
		})
	}
	all.Wait()
	if n := logins.Load(); n == 0 || n > 2 {
		t.Errorf("they cost %d logins", n)
	}
}

// TestANameThatTheServerCannotWrite is nobody's, and costs no connection.
func TestANameThatTheServerCannotWrite(t *testing.T) {
	server := pgtest.StartWhole(t)
	onServer(t, server, "CREATE DATABASE narrow ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
	d, logins := testDirectory(t, server, "narrow")
	for range 3 {
		if _, err := d.find(t.Context(), "€"); !errors.Is(err, auth.ErrNoUser) {
			t.Errorf("it is %v", err)
		}
	}
	if n := logins.Load(); n != 1 {
		t.Errorf("there were %d logins", n)
	}
}
