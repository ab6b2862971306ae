package shard

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/topology"
)

// ErrClosed says that [Connections] were closed.
var ErrClosed = errors.New("the connections are closed")

// How long a failure to connect is believed, and how long closing a connection may take.
const (
	retryAfter = time.Second
	goodbye    = 2 * time.Second
)

// Connections are a few connections for questions that are asked now and then. They are made when they are needed, kept for the
// next question, and closed when there was none for some time. They need to be closed.
type Connections struct {
	access  Access
	idleFor time.Duration
	slots   chan struct{} // one taken for each that is in use

	mu     sync.Mutex // guards what follows
	idle   []idle     // the last used at the end
	idling *time.Timer
	ending sync.WaitGroup // who closes what has idled; added to under mu
	closed bool
	// failure is what the last attempt to connect to an address ended with. Until shortly after it nobody tries again, or
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

// Keep returns connections of which there are never more than this, and which are closed after that long without use.
func (a Access) Keep(count int, idleFor time.Duration) *Connections {
	return &Connections{access: a, idleFor: idleFor, slots: make(chan struct{}, count)}
}

// Use runs the work with a connection to the shard's primary, once more with a new one if one that had been idle turns out
// to be dead: the work must only read.
func (c *Connections) Use(ctx context.Context, to *topology.Shard, work func(*pgx.Conn) error) error {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.slots }()
	for {
		conn, reused, err := c.take(ctx, to)
		if err != nil {
			return err
		}
		err = work(conn)
		broken := conn.IsClosed()
		c.give(conn, to.Primary())
		if err == nil || !broken || !reused || ctx.Err() != nil {
			return err
		}
	}
}

// questionSettings: the questions are long, and the same again and again, for a few names each. To plan one anew for its parameters takes longer than to answer it.
var questionSettings = map[string]string{"plan_cache_mode": "force_generic_plan"}

// take returns an idle connection to the shard's present address, or a new one.
func (c *Connections) take(ctx context.Context, to *topology.Shard) (conn *pgx.Conn, reused bool, err error) {
	address := to.Primary()
	conn, err = c.takeIdle(address)
	if conn != nil || err != nil {
		return conn, true, err
	}
	conn, err = c.access.connect(ctx, to.Spec(), to.Primary(), questionSettings)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = nil
	if err != nil && ctx.Err() == nil { // else it says nothing of the shard: who asks had no more time
		c.failure, c.failedAt, c.failedFor = err, time.Now(), address
	}
	return conn, false, err
}

// takeIdle returns an idle connection, nil if there is none, or the error that connecting ended with just now. Those to an
// address that is not the shard's any more idle until they are closed.
func (c *Connections) takeIdle(address string) (*pgx.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	for i, last := range slices.Backward(c.idle) {
		if last.address == address {
			c.idle = slices.Delete(c.idle, i, i+1)
			return last.conn, nil
		}
	}
	if c.failure != nil && c.failedFor == address && time.Since(c.failedAt) < retryAfter {
		return nil, c.failure
	}
	return nil, nil
}

// give takes the connection back, and closes it if it is of no use any more.
func (c *Connections) give(conn *pgx.Conn, address string) {
	if !c.keep(conn, address) {
		hangUp(conn)
	}
}

func (c *Connections) keep(conn *pgx.Conn, address string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || conn.IsClosed() {
		return false
	}
	c.idle = append(c.idle, idle{conn, address, time.Now()})
	if c.idling == nil {
		c.idling = time.AfterFunc(c.idleFor, c.closeIdle)
	}
	return true
}

// closeIdle closes what has idled, and comes back when the next one has.
func (c *Connections) closeIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idling = nil
	if c.closed {
		return
	}
	for len(c.idle) > 0 {
		if left := c.idleFor - time.Since(c.idle[0].since); left > 0 {
			c.idling = time.AfterFunc(left, c.closeIdle)
			return
		}
		conn := c.idle[0].conn
		c.idle = c.idle[1:]
		c.ending.Go(func() { hangUp(conn) })
	}
}

// Close closes what is idle, and what is in use when it is given back, and waits for that. It may be called twice.
func (c *Connections) Close() {
	c.mu.Lock()
	c.closed = true
	if c.idling != nil {
		c.idling.Stop()
	}
	for _, i := range c.idle {
		c.ending.Go(func() { hangUp(i.conn) })
	}
	c.idle = nil
	c.mu.Unlock()
	c.ending.Wait()
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
