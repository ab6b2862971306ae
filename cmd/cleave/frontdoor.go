package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/store"
)

// refuseClients answers PostgreSQL clients at the front door until the router does: with an error that says so, and where the
// shards are. It ends with the context, when all clients have been answered.
func refuseClients(ctx context.Context, listener net.Listener, follower *store.Follower) {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var clients sync.WaitGroup
	defer clients.Wait()
	places := make(chan struct{}, 100) // enough to be polite, too few to be a burden
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if !wait(ctx, 100*time.Millisecond) { // out of file descriptors, perhaps: it passes
				return
			}
			continue
		}
		select {
		case places <- struct{}{}:
			clients.Go(func() {
				defer func() { <-places }()
				refuse(conn, follower)
			})
		default:
			_ = conn.Close()
		}
	}
}

// refuse reads a client's start-up and answers it with an error.
func refuse(conn net.Conn, follower *store.Follower) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	backend := pgproto3.NewBackend(conn, conn)
	for range 3 { // requests for encryption come before the start-up, at most one of each kind
		message, err := backend.ReceiveStartupMessage()
		if err != nil {
			return
		}
		switch message.(type) {
		case *pgproto3.SSLRequest, *pgproto3.GSSEncRequest:
			if _, err := conn.Write([]byte{'N'}); err != nil {
				return
			}
		case *pgproto3.StartupMessage:
			backend.Send(refusal(follower))
			_ = backend.Flush()
			return
		default: // a request to cancel needs no answer
			return
		}
	}
}

func refusal(follower *store.Follower) *pgproto3.ErrorResponse {
	answer := &pgproto3.ErrorResponse{
		Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P03", Message: "the router is not built yet",
		Detail: "This address is reserved for it. The shards are running, and can be reached one by one.",
	}
	if m := follower.Map(); m != nil {
		for s := range m.Shards() {
			if host, port, err := net.SplitHostPort(s.Primary()); err == nil {
				answer.Hint = fmt.Sprintf("Connect to a shard itself, such as %s: psql -h %s -p %s", s.Name(), host, port)
			}
			break
		}
	}
	return answer
}
