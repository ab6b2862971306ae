// Package relay copies bytes between PostgreSQL clients and a server, and does nothing else: the least that a proxy
// written in Go with a goroutine per connection can cost. What the router costs on top of it is the router's own doing.
//
// Every client has two goroutines and a connection of its own to the server. It does not pool, does not look at a single
// message, and leaves authentication to the two ends; pgbouncer and the router do those things, and are measured beside
// it by command wire.
//
// [Serve] may be called several times at once, with a listener each. It is all there is to read.
package relay

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// bufferSize is what one read may bring. It holds the answers of short statements many times over.
const bufferSize = 16 << 10

// Serve accepts clients and connects each to the server at the address. It ends with the context, when every client has
// been let go; it closes the listener.
func Serve(ctx context.Context, listener net.Listener, server string) error {
	ctx, cancel := context.WithCancel(ctx)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		client, err := listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = client.Close()
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept a client: %w", err)
		}
		clients.Go(func() { relay(ctx, client, server) })
	}
}

// relay serves one client until either end hangs up.
func relay(ctx context.Context, client net.Conn, address string) {
	defer client.Close()
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return // the client sees its connection end, which is all a relay can say
	}
	hangUp := func() { _, _ = client.Close(), server.Close() }
	stop := context.AfterFunc(ctx, hangUp)
	defer stop()
	var answers sync.WaitGroup
	answers.Go(func() {
		defer hangUp()
		forward(client, server)
	})
	forward(server, client)
	hangUp()
	answers.Wait()
}

// forward copies until either end fails. io.Copy would let the kernel splice the two sockets, which nobody who has to
// look at the bytes can do.
func forward(to, from net.Conn) {
	buffer := make([]byte, bufferSize)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
