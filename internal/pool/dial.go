package pool

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// dial connects to the address, by TLS if it is configured.
func dial(ctx context.Context, address string, secured *tls.Config) (net.Conn, *net.TCPConn, error) {
	dialler := net.Dialer{KeepAlive: 15 * time.Second} // the library sets TCP_NODELAY
	conn, err := dialler.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, nil, err
	}
	socket := conn.(*net.TCPConn)
	if secured == nil {
		return conn, socket, nil
	}
	var encrypted net.Conn
	err = within(ctx, conn, func() (err error) {
		encrypted, err = secure(ctx, conn, secured)
		return err
	})
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return encrypted, socket, nil
}

// secure asks for TLS and does the handshake.
func secure(ctx context.Context, conn net.Conn, secured *tls.Config) (net.Conn, error) {
	request, _ := (&pgproto3.SSLRequest{}).Encode(nil)
	if _, err := conn.Write(request); err != nil {
		return nil, fmt.Errorf("ask for TLS: %w", err)
	}
	// One byte and not more: what came with it in the clear would be taken for something that came by TLS.
	var answer [1]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return nil, fmt.Errorf("ask for TLS: %w", err)
	}
	if answer[0] != 'S' {
		return nil, errors.New("the server does not speak TLS; set ssl = on there, or sslmode to disable here if the network is trusted")
	}
	encrypted := tls.Client(conn, secured)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("speak TLS: %w", err)
	}
	return encrypted, nil
}

// within holds a conversation that ends with the context. The connection has no deadline before, nor after one that ended well.
func within(ctx context.Context, conn net.Conn, converse func() error) error {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Unix(1, 0)) // long ago: whoever reads or writes stops
		close(interrupted)
	})
	err := converse()
	if stop() {
		return err
	}
	<-interrupted
	if err != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return conn.SetDeadline(time.Time{}) // it was done all the same
}

// requestCancel sends a CancelRequest and waits until the server has hung up, which it does when it has acted.
func requestCancel(ctx context.Context, address string, secured *tls.Config, pid uint32, key []byte) error {
	conn, _, err := dial(ctx, address, secured)
	if err != nil {
		return fmt.Errorf("cancel the statement of process %d: %w", pid, err)
	}
	defer conn.Close()
	request, err := (&pgproto3.CancelRequest{ProcessID: pid, SecretKey: key}).Encode(nil)
	if err != nil {
		return fmt.Errorf("cancel the statement of process %d: %w", pid, err)
	}
	err = within(ctx, conn, func() error {
		if _, err := conn.Write(request); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, conn)
		return err
	})
	if err != nil && !isReset(err) {
		return fmt.Errorf("cancel the statement of process %d: %w", pid, err)
	}
	return nil
}

// messageReader reads from a connection in pieces that end where messages end, so that a buffer above it never holds
// anything of what comes after the last message that was asked for.
type messageReader struct {
	source io.Reader
	header [5]byte
	unread []byte // of the header
	body   int    // bytes of the message that are still to come
}

// Read reads the header of a message, or some of its body.
func (m *messageReader) Read(p []byte) (int, error) {
	if len(m.unread) == 0 && m.body == 0 {
		if _, err := io.ReadFull(m.source, m.header[:]); err != nil {
			return 0, err
		}
		length := binary.BigEndian.Uint32(m.header[1:])
		if length < 4 {
			return 0, fmt.Errorf("a message says that it is %d bytes long", length)
		}
		m.unread, m.body = m.header[:], int(length)-4
	}
	if len(m.unread) > 0 {
		n := copy(p, m.unread)
		m.unread = m.unread[n:]
		return n, nil
	}
	n, err := m.source.Read(p[:min(len(p), m.body)])
	m.body -= n
	return n, err
}
