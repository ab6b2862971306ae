// Package stub stands before a PostgreSQL server and answers the benchmark's statements itself, at once and always alike,
// so that what limits a measurement is the proxy in front and not the database behind.
//
// Everything else goes to the server: a connection's start, which must need no password, settings, transactions,
// whatever a pool or a router asks of a fresh connection. So the stub can take a shard's place without knowing what is
// expected of one. The statements that it answers are a SELECT and an UPDATE of one row of pgbench_accounts, with results
// as text, in the simple protocol and in the extended one; see canned.go. It does not look at values, nor change
// any row.
//
// [Serve] may be called several times at once, with a listener each. Start reading there.
package stub

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// bufferSize is that of every connection, in each direction.
const bufferSize = 16 << 10

// messageLimit keeps a length that is not one from being allocated.
const messageLimit = 64 << 20

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
		clients.Go(func() { serve(ctx, client, server) })
	}
}

func serve(ctx context.Context, client net.Conn, address string) {
	defer client.Close()
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return // the client sees its connection end
	}
	hangUp := func() { _, _ = client.Close(), server.Close() }
	stop := context.AfterFunc(ctx, hangUp)
	defer stop()
	defer hangUp()
	c := &conversation{
		client: client, server: server,
		fromClient: bufio.NewReaderSize(client, bufferSize), fromServer: bufio.NewReaderSize(server, bufferSize),
		canned: map[string]*statement{},
	}
	if err := c.startUp(); err != nil {
		return
	}
	var answers sync.WaitGroup
	defer answers.Wait()
	defer hangUp()
	answers.Go(func() {
		defer hangUp()
		c.relayAnswers()
	})
	c.converse()
}

// conversation is one client's connection.
type conversation struct {
	client, server         net.Conn
	fromClient, fromServer *bufio.Reader

	canned map[string]*statement // those that the client has prepared and that are answered here, by name

	mu          sync.Mutex // guards what follows, and writing to the client
	outstanding int        // units at the server that it has not answered
	status      byte       // of the transaction, as the server told last
}

// The codes that a client may begin with instead of a version.
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssRequest    = 80877104
)

// startUp brings the client's start to the server, and the server's answers back, until it is ready.
func (c *conversation) startUp() error {
	for {
		packet, err := readPacket(c.fromClient)
		if err != nil {
			return err
		}
		if _, err := c.server.Write(packet); err != nil {
			return err
		}
		switch code := binary.BigEndian.Uint32(packet[4:]); code {
		case cancelRequest:
			return io.EOF
		case sslRequest, gssRequest:
			if _, err := io.CopyN(c.client, c.fromServer, 1); err != nil {
				return err
			}
		default:
			return c.awaitReady()
		}
	}
}

// readPacket reads a message that has no type.
func readPacket(from *bufio.Reader) ([]byte, error) {
	head, err := from.Peek(4)
	if err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head)
	if length < 8 || length > 10_000 {
		return nil, errors.New("this is not the start of a client")
	}
	packet := make([]byte, length)
	_, err = io.ReadFull(from, packet)
	return packet, err
}

// awaitReady relays the server's messages up to ReadyForQuery.
func (c *conversation) awaitReady() error {
	var m message
	for {
		if err := m.read(c.fromServer); err != nil {
			return err
		}
		if _, err := c.client.Write(m.bytes); err != nil {
			return err
		}
		if m.kind() == 'Z' {
			c.status = m.body()[0]
			return nil
		}
	}
}

// relayAnswers relays what the server says until it hangs up, many messages at a time when there are many.
func (c *conversation) relayAnswers() {
	var m message
	var batch []byte
	ready := 0
	for {
		if err := m.read(c.fromServer); err != nil {
			return
		}
		batch = append(batch, m.bytes...)
		var status byte
		if m.kind() == 'Z' {
			ready, status = ready+1, m.body()[0]
		}
		if status == 0 && c.fromServer.Buffered() > 0 && len(batch) < bufferSize {
			continue
		}
		if err := c.deliver(batch, ready, status); err != nil {
			return
		}
		batch, ready = batch[:0], 0
	}
}

func (c *conversation) deliver(batch []byte, ready int, status byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outstanding -= ready
	if status != 0 {
		c.status = status
	}
	_, err := c.client.Write(batch)
	return err
}

// converse takes one unit of the client's messages after the other until it hangs up.
func (c *conversation) converse() {
	var m message
	u := unit{}
	for {
		if err := m.read(c.fromClient); err != nil {
			return
		}
		u.add(&m, c.canned)
		ends := m.kind() == 'Q' || m.kind() == 'S'
		if !ends && !u.foreign {
			continue // who answers is known at its end
		}
		if err := c.settle(&u, ends); err != nil {
			return
		}
	}
}

// settle answers the unit, or sends what has come of it to the server.
func (c *conversation) settle(u *unit, ends bool) error {
	c.mu.Lock()
	answerHere := ends && !u.foreign && c.outstanding == 0 && c.status != 'E'
	if answerHere {
		_, err := c.client.Write(u.answer(c.status))
		c.mu.Unlock()
		u.reset()
		return err
	}
	if ends {
		c.outstanding++
	}
	c.mu.Unlock()
	_, err := c.server.Write(u.bytes)
	u.bytes = u.bytes[:0]
	if ends {
		u.reset()
	}
	return err
}

// message is one with its type and length. Its bytes are overwritten by the next read.
type message struct{ bytes []byte }

const headLength = 5

func (m *message) kind() byte { return m.bytes[0] }

func (m *message) body() []byte { return m.bytes[headLength:] }

func (m *message) read(from *bufio.Reader) error {
	head, err := from.Peek(headLength)
	if err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(head[1:])
	if length < 4 || length > messageLimit {
		return fmt.Errorf("a message of %d bytes", length)
	}
	if head[0] == 'Z' && length != 5 {
		return errors.New("the server is ready in an unknown way")
	}
	size := int(length) + 1
	if cap(m.bytes) < size {
		m.bytes = make([]byte, size)
	}
	m.bytes = m.bytes[:size]
	_, err = io.ReadFull(from, m.bytes)
	return err
}
