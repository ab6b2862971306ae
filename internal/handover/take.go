//go:build unix && !aix

package handover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Take asks for the sockets that are offered at the path; [ErrNobody] if none are. The caller starts to accept from the
// listeners and then calls confirm, which returns when the old process has let go and the path is free for a [Serve] of
// the caller's own. If confirm fails, the old process is gone or may still be accepting; the listeners are good all the same.
// Whoever does not get as far as confirm ends the context, which gives the hand-over up, and closes the listeners.
func Take(ctx context.Context, path string) (listeners []net.Listener, confirm func() error, err error) {
	conn, err := dial(ctx, path)
	if err != nil {
		return nil, nil, fmt.Errorf("take sockets over at %s: %w", path, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	listeners, err = ask(conn)
	if err != nil {
		stop()
		_ = conn.Close()
		return nil, nil, fmt.Errorf("take sockets over at %s: %w", path, errors.Join(ctx.Err(), err))
	}
	confirm = sync.OnceValue(func() error {
		defer func() {
			stop()
			_ = conn.Close()
		}()
		if err := confirmOn(conn); err != nil {
			return fmt.Errorf("confirm the hand-over at %s: %w", path, errors.Join(ctx.Err(), err))
		}
		return nil
	})
	return listeners, confirm, nil
}

func dial(ctx context.Context, path string) (*net.UnixConn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		if isNobody(err) {
			return nil, ErrNobody
		}
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// isNobody tells whether a connection failed for want of anybody who listens.
func isNobody(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED)
}

func ask(conn *net.UnixConn) ([]net.Listener, error) {
	if err := send(conn, request{version}); err != nil {
		return nil, leftAlone(err)
	}
	var o offer
	descriptors, err := receive(conn, &o)
	if err != nil {
		closeAll(descriptors)
		return nil, leftAlone(err)
	}
	if o.Version != version {
		closeAll(descriptors)
		return nil, fmt.Errorf("the other process speaks version %d, this one %d", o.Version, version)
	}
	if len(descriptors) == 0 || len(descriptors) != len(o.Addresses) {
		closeAll(descriptors)
		return nil, fmt.Errorf("%d sockets came for %d addresses", len(descriptors), len(o.Addresses))
	}
	return listen(descriptors, o.Addresses)
}

// leftAlone turns the end of a connection before any answer into ErrNobody: the other process was just leaving.
func leftAlone(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return ErrNobody
	}
	return err
}

// listen makes listeners of the descriptors, which are closed whatever happens.
func listen(descriptors []int, addresses []string) (listeners []net.Listener, err error) {
	defer func() {
		if err != nil {
			for _, l := range listeners {
				_ = l.Close()
			}
			listeners = nil
		}
	}()
	for i, d := range descriptors {
		file := os.NewFile(uintptr(d), addresses[i])
		l, listenErr := net.FileListener(file)
		_ = file.Close()
		if listenErr != nil {
			closeAll(descriptors[i+1:])
			return listeners, fmt.Errorf("listen at %s: %w", addresses[i], listenErr)
		}
		listeners = append(listeners, l)
		if l.Addr().String() != addresses[i] {
			closeAll(descriptors[i+1:])
			return listeners, fmt.Errorf("the socket for %s listens at %s", addresses[i], l.Addr())
		}
	}
	return listeners, nil
}

func confirmOn(conn *net.UnixConn) error {
	if err := send(conn, progress{accepting}); err != nil {
		return err
	}
	return expectState(conn, released)
}
