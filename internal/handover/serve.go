//go:build unix && !aix

package handover

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long the old process gives a new one, which may have work to do before it accepts. Others that ask wait
// as long.
const patience = time.Minute

// Serve offers the listeners to whoever asks at the path, until a new process has said that it accepts from them. Then it calls
// taken, in which the caller stops accepting, and returns. It also returns, without an error and without a hand-over, when
// the context ends. It fails if it cannot listen at the path. The listeners stay the caller's, to use and to close.
func Serve(ctx context.Context, path string, listeners []*net.TCPListener, taken func()) error {
	return serve(ctx, path, listeners, taken, patience)
}

func serve(ctx context.Context, path string, listeners []*net.TCPListener, taken func(), patience time.Duration) error {
	if len(listeners) == 0 || len(listeners) > maxSockets {
		return fmt.Errorf("hand over %d sockets: from 1 to %d can be", len(listeners), maxSockets)
	}
	for ctx.Err() == nil {
		newcomer, err := offerUntilAccepted(ctx, path, listeners, patience)
		if err != nil {
			return err
		}
		if newcomer == nil {
			return nil // the context has ended
		}
		err = send(newcomer, progress{released})
		_ = newcomer.Close()
		if err == nil {
			taken()
			return nil
		}
	}
	return nil
}

// offerUntilAccepted listens at the path until a newcomer has said that it accepts, and returns its connection; nil if the
// context ended first. Either way the path is free again.
func offerUntilAccepted(ctx context.Context, path string, listeners []*net.TCPListener, patience time.Duration) (*net.UnixConn, error) {
	d, err := openDoor(path)
	if err != nil {
		return nil, fmt.Errorf("listen for a hand-over at %s: %w", path, err)
	}
	defer d.close()
	defer context.AfterFunc(ctx, func() { _ = d.listener.Close() })()
	for {
		conn, err := d.listener.AcceptUnix()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("accept at %s: %w", path, err)
		}
		if offerTo(ctx, conn, listeners, patience) == nil {
			return conn, nil
		}
		_ = conn.Close() // one that gave up, or is no newcomer at all: the next may do better
	}
}

// offerTo returns nil once the newcomer has said that it accepts.
func offerTo(ctx context.Context, conn *net.UnixConn, listeners []*net.TCPListener, patience time.Duration) error {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	var r request
	if err := expect(conn, &r); err != nil {
		return err
	}
	// A newcomer of another version decides for itself whether it understands ours.
	if err := sendListeners(conn, listeners); err != nil {
		return err
	}
	return expectState(conn, accepting)
}

func sendListeners(conn *net.UnixConn, listeners []*net.TCPListener) error {
	o := offer{Version: version}
	var descriptors []int
	defer func() { closeAll(descriptors) }()
	for _, l := range listeners {
		d, err := duplicate(l)
		if err != nil {
			return fmt.Errorf("duplicate the socket of %s: %w", l.Addr(), err)
		}
		descriptors = append(descriptors, d)
		o.Addresses = append(o.Addresses, l.Addr().String())
	}
	return send(conn, o, descriptors...)
}

// duplicate leaves the socket's mode alone: it is shared, and the listener needs it to be non-blocking.
func duplicate(l *net.TCPListener) (descriptor int, err error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return -1, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		descriptor, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	})
	return descriptor, errors.Join(controlErr, err)
}

// door is a socket at a path.
type door struct {
	listener *net.UnixListener
	path     string
	file     fs.FileInfo // what the path was when it was opened
}

// openDoor makes the socket in a folder that nobody else can enter and gives it its mode there; renaming it to its place
// replaces, in one step, what a dead process left.
func openDoor(path string) (*door, error) {
	if err := checkVacant(path); err != nil {
		return nil, err
	}
	private, err := os.MkdirTemp(filepath.Dir(path), ".h")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(private) }()
	inside := filepath.Join(private, "s")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: inside, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // it will have another name
	file, err := place(inside, path)
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	return &door{listener, path, file}, nil
}

func place(inside, path string) (fs.FileInfo, error) {
	if err := os.Chmod(inside, 0o600); err != nil {
		return nil, err
	}
	file, err := os.Lstat(inside)
	if err != nil {
		return nil, err
	}
	return file, os.Rename(inside, path)
}

// checkVacant fails if the path is taken by anything but the socket of a process that is gone.
func checkVacant(path string) error {
	file, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if file.Mode().Type() != fs.ModeSocket {
		return errors.New("there is a file that is not a socket")
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
		return errors.New("another process listens there")
	}
	if !isNobody(err) {
		return err
	}
	return nil
}

// close frees the path, unless it is another's by now.
func (d *door) close() {
	if file, err := os.Lstat(d.path); err == nil && os.SameFile(file, d.file) {
		_ = os.Remove(d.path)
	}
	_ = d.listener.Close()
}
