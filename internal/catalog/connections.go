package catalog

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// connections are a few connections to the home shard, made when they are needed.
type connections struct {
	access shard.Access
	slots  chan struct{} // one taken for each that is in use

	mu     sync.Mutex // guards what follows
	idle   []idle     // the last used at the end
	closed bool
	// failure is what the last attempt to connect to an address ended with; until shortly after it nobody tries again, or
	// all who wait for a shard that does not answer would wait one after the other.
	failure   error
	failedAt  time.Time
	failedFor string
}

// idle is a connection that nobody uses.
type idle struct {
	conn    *pgx.Conn
	address string
	since   time.Time
}

// retryAfter is how long a failure to connect is believed.
const retryAfter = time.Second

// goodbye is how long closing a connection may take.
const goodbye = 2 * time.Second

func newConnections(access shard.Access, count int) *connections {
	return &connections{access: access, slots: make(chan struct{}, count)}
}

// use runs the work with a connection to the shard's primary, once more with a new one if one that had been idle turns out
// to be dead: the work must only read.
func (c *connections) use(ctx context.Context, home *topology.Shard, work func(*pgx.Conn) error) error {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.slots }()
	for {
		conn, reused, err := c.take(ctx, home)
		if err != nil {
			return err
		}
		err = work(conn)
		broken := conn.IsClosed()
		c.give(conn, home.Primary())
		if err == nil || !broken || !reused || ctx.Err() != nil {
			return err
		}
	}
}

// take returns an idle connection to the shard's present address, or a new one.
func (c *connections) take(ctx context.Context, home *topology.Shard) (conn *pgx.Conn, reused bool, err error) {
	address := home.Primary()
	conn, err = c.takeIdle(address)
	if conn != nil || err != nil {
		return conn, true, err
	}
	conn, err = c.access.Connect(ctx, home.Spec())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = nil
	if err != nil && ctx.Err() == nil {
		c.failure, c.failedAt, c.failedFor = err, time.Now(), address
	}
	return conn, false, err
}

// takeIdle returns an idle connection, nil if there is none, or the error that connecting ended with just now. Those to an
// address that is not the shard's any more are closed.
func (c *connections) takeIdle(address string) (*pgx.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	for len(c.idle) > 0 {
		last := c.idle[len(c.idle)-1]
		c.idle = c.idle[:len(c.idle)-1]
		if last.address == address {
			return last.conn, nil
		}
		hangUp(last.conn)
	}
	if c.failure != nil && c.failedFor == address && time.Since(c.failedAt) < retryAfter {
		return nil, c.failure
	}
	return nil, nil
}

// give takes the connection back.
func (c *connections) give(conn *pgx.Conn, address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn.IsClosed() || c.closed {
		hangUp(conn)
		return
	}
	c.idle = append(c.idle, idle{conn, address, time.Now()})
}

// closeIdle closes connections that nobody has used for that long.
func (c *connections) closeIdle(longerThan time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.idle) > 0 && time.Since(c.idle[0].since) > longerThan {
		hangUp(c.idle[0].conn)
		c.idle = c.idle[1:]
	}
}

// close closes what is idle, and what is in use when it is given back, and waits for that.
func (c *connections) close() {
	c.mu.Lock()
	c.closed = true
	for _, i := range c.idle {
		hangUp(i.conn)
	}
	c.idle = nil
	c.mu.Unlock()
	for range cap(c.slots) {
		c.slots <- struct{}{}
	}
	for range cap(c.slots) {
		<-c.slots
	}
}

func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	_ = conn.Close(ctx)
	select { // the driver ends a connection that a context cut short in the background
	case <-conn.PgConn().CleanupDone():
	case <-ctx.Done():
	}
}
