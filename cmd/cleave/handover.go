package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/internal/handover"
)

// A process takes over from an older one in this order: it gets the sockets, becomes ready while the older one still serves,
// begins to accept, and says so. The older one then accepts no more and ends when its sessions have. If the new one does not
// get as far, nothing has happened. Both have a record in etcd meanwhile, as two routers of one name: whoever waits for
// routers waits for both, and the shards' connections are shared between them.

// takeOverTime is how long a new process may take to become ready: less than the older one's patience.
const takeOverTime = 50 * time.Second

// sockets are where a process listens.
type sockets struct {
	door, http *net.TCPListener
	// older is the process that handed them over; nil if there was none.
	older *olderProcess
}

// olderProcess serves until the new one has confirmed that it does.
type olderProcess struct {
	waits   context.Context //nolint:containedctx // ends when the older process need not be counted on to wait any longer
	confirm func() error
	forget  context.CancelFunc
}

// openSockets takes over what an older process offers, and listens where it offers nothing.
func openSockets(ctx context.Context, c config.Config) (s sockets, err error) {
	var offered []net.Listener
	if c.HandoverSocket != "" {
		if offered, s.older, err = askOlder(ctx, c.HandoverSocket); err != nil {
			return s, fmt.Errorf("handover_socket: %w", err)
		}
	}
	defer func() {
		for _, l := range offered { // at addresses that are wanted no more
			_ = l.Close()
		}
		if err != nil {
			s.close()
		}
	}()
	if s.door, offered, err = socketAt("listen", c.Listen, offered); err != nil {
		return s, err
	}
	s.http, offered, err = socketAt("http.listen", c.HTTP.Listen, offered)
	return s, err
}

// close gives the sockets back, and an older process up that has not been told that this one accepts.
func (s sockets) close() {
	for _, l := range []*net.TCPListener{s.door, s.http} {
		if l != nil {
			_ = l.Close()
		}
	}
	if s.older != nil {
		s.older.forget()
	}
}

// askOlder returns what an older process offers; nothing if there is none.
func askOlder(ctx context.Context, path string) ([]net.Listener, *olderProcess, error) {
	ctx, forget := context.WithTimeout(ctx, takeOverTime)
	offered, confirm, err := handover.Take(ctx, path)
	if err != nil {
		forget()
		if errors.Is(err, handover.ErrNobody) {
			err = nil
		}
		return nil, nil, err
	}
	return offered, &olderProcess{waits: ctx, confirm: confirm, forget: forget}, nil
}

// socketAt returns the one of the offered sockets that listens at the address, or a new one, and the rest of the offered.
func socketAt(field, address string, offered []net.Listener) (socket *net.TCPListener, rest []net.Listener, err error) {
	at := slices.IndexFunc(offered, func(l net.Listener) bool { return listensAt(l, address) })
	if at < 0 {
		socket, err = listen(field, address)
		return socket, offered, err
	}
	socket = offered[at].(*net.TCPListener) // as listensAt has seen
	return socket, slices.Delete(offered, at, at+1), nil
}

func listensAt(l net.Listener, address string) bool {
	has, isTCP := l.Addr().(*net.TCPAddr)
	wanted, err := net.ResolveTCPAddr("tcp", address)
	if !isTCP || err != nil || wanted.Port != 0 && wanted.Port != has.Port {
		return false
	}
	return wanted.IP.Equal(has.IP) || isEverywhere(wanted.IP) && isEverywhere(has.IP)
}

func isEverywhere(ip net.IP) bool { return len(ip) == 0 || ip.IsUnspecified() }

// awaitTurn returns when this process may accept: at once, unless an older one serves until this one is ready.
func (n *node) awaitTurn() error {
	if n.older == nil {
		return nil
	}
	for {
		err := n.ready()
		if err == nil || !wait(n.older.waits, 20*time.Millisecond) {
			return notReady(err)
		}
	}
}

func notReady(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("this process does not take over and the older one goes on, for it is not ready: %w", err)
}

// confirm tells the older process that this one accepts.
func (n *node) confirm() {
	if n.older == nil {
		return
	}
	if err := n.older.confirm(); err != nil {
		n.logger.Warn("the older process did not answer; it is gone, or accepts clients as this one does", "error", err)
		return
	}
	n.logger.Info("took over from an older process")
}

// offer hands the sockets to the next process, whenever it asks, and calls taken when it accepts.
func (n *node) offer(ctx context.Context, taken func()) error {
	for {
		err := handover.Serve(ctx, n.config.HandoverSocket, []*net.TCPListener{n.door, n.http}, taken)
		if err == nil {
			return nil
		}
		if n.older == nil {
			return fmt.Errorf("handover_socket: %w", err)
		}
		// Clients are served already, and the older process may still be in the way.
		n.logger.Warn("nobody could take over from this process now; trying on", "error", err)
		if !wait(ctx, 5*time.Second) {
			return nil
		}
	}
}
