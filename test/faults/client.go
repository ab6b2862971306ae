package faults

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/test/faults/history"
)

// Client has a connection to a router, and gets another one when it is lost. Not safe for concurrent use.
type Client struct {
	number     int
	routers    []*Router
	random     *rand.Rand
	consistent bool // asks for consistent reads

	conn *pgx.Conn
	at   *Router

	mu       sync.Mutex
	warnings []string
}

// NewClient connects to one of the routers when it first needs to, and to any other later.
func NewClient(seed uint64, routers ...*Router) *Client {
	return &Client{routers: routers, random: rand.New(rand.NewPCG(seed, 0))}
}

// lockPatience is how long a client waits for rows that a transaction in doubt has locked.
const lockPatience = "2s"

// Connection is the one that is there, or a new one.
func (c *Client) Connection(ctx context.Context) (*pgx.Conn, error) {
	if c.conn != nil && !c.conn.IsClosed() {
		return c.conn, nil
	}
	c.at = c.routers[c.random.IntN(len(c.routers))]
	config, err := pgx.ParseConfig("postgres://postgres@" + c.at.Listen + "/postgres?sslmode=disable&application_name=faults&connect_timeout=10")
	if err != nil {
		return nil, err
	}
	config.OnNotice = c.hear
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	for _, sql := range c.greeting() {
		if _, err := conn.Exec(ctx, sql); err != nil {
			c.close(conn)
			return nil, err
		}
	}
	c.conn = conn
	return conn, nil
}

func (c *Client) greeting() []string {
	greeting := []string{"SET lock_timeout = '" + lockPatience + "'"}
	if c.consistent {
		greeting = append(greeting, "SET cleave.consistent_reads = on")
	}
	return greeting
}

func (c *Client) hear(_ *pgconn.PgConn, notice *pgconn.Notice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if notice.Severity == "WARNING" {
		c.warnings = append(c.warnings, notice.Code+" "+notice.Message)
	}
}

// heard are the warnings since it was last asked.
func (c *Client) heard() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	heard := c.warnings
	c.warnings = nil
	return heard
}

// Drop closes the connection.
func (c *Client) Drop() {
	if c.conn != nil {
		c.close(c.conn)
		c.conn = nil
	}
}

// close says goodbye, but does not wait for a router that may be stopped.
func (c *Client) close(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = conn.Close(ctx)
}

// Transact runs a transaction, and notes in the head how it went.
func (c *Client) Transact(ctx context.Context, head *history.Head, begin string, work func(ctx context.Context, conn *pgx.Conn) error) {
	c.heard()
	outcome, err := c.transact(ctx, begin, work)
	head.Outcome, head.Warnings = outcome, c.heard()
	c.conclude(head, err)
}

// transact returns failed for all that goes wrong before COMMIT is sent: nobody has asked for it to be committed.
func (c *Client) transact(ctx context.Context, begin string, work func(ctx context.Context, conn *pgx.Conn) error) (history.Outcome, error) {
	conn, err := c.Connection(ctx)
	if err != nil {
		return history.Failed, err
	}
	if _, err := conn.Exec(ctx, begin); err != nil {
		return history.Failed, err
	}
	if err := work(ctx, conn); err != nil {
		return history.Failed, err
	}
	tag, err := conn.Exec(ctx, "COMMIT")
	return history.OfCommit(tag.String(), err), err
}

// Single runs a statement that is its own transaction.
func (c *Client) Single(ctx context.Context, head *history.Head, work func(ctx context.Context, conn *pgx.Conn) error) {
	c.heard()
	conn, err := c.Connection(ctx)
	if err != nil {
		head.Outcome = history.Failed
	} else {
		err = work(ctx, conn)
		head.Outcome = history.OfCommit("", err)
	}
	head.Warnings = c.heard()
	c.conclude(head, err)
}

// conclude notes the error, and makes the connection fit for what comes next.
func (c *Client) conclude(head *history.Head, err error) {
	head.Router = c.at.Name
	if err == nil {
		return
	}
	head.Error = err.Error()
	if c.conn == nil || c.conn.IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := c.conn.Exec(ctx, "ROLLBACK"); err != nil || c.random.IntN(10) == 0 { // and sometimes another router
		c.Drop()
	}
}

// Commit says COMMIT to a transaction that is open, and notes in the head how it went.
func (c *Client) Commit(ctx context.Context, head *history.Head, failure *error) {
	c.heard()
	tag, err := c.conn.Exec(ctx, "COMMIT")
	head.Outcome, head.Warnings, head.Router = history.OfCommit(tag.String(), err), c.heard(), c.at.Name
	if *failure = err; err != nil {
		head.Error = err.Error()
	}
}
