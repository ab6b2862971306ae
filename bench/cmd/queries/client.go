package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/bench/rig"
)

// client is a connection that reads answers and forgets them: as little as can be between the benchmark and the socket, since it shares the
// machine's processors with what it measures.
type client struct {
	conn   net.Conn
	reader *bufio.Reader
	out    []byte
}

// statement is one that a client has prepared, by its name.
type statement struct{ name, sql string }

// connect opens a connection that runs statements first, and has others prepared. It ends with the context.
func connect(ctx context.Context, place string, first []string, prepared ...statement) (_ *client, err error) {
	conn, err := pgconn.Connect(ctx, place)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}()
	for _, sql := range first {
		if _, err := conn.Exec(ctx, sql).ReadAll(); err != nil {
			return nil, fmt.Errorf("%s: %w", sql, err)
		}
	}
	for _, s := range prepared {
		if _, err := conn.Prepare(ctx, s.name, s.sql, nil); err != nil {
			return nil, fmt.Errorf("prepare %s: %w", s.sql, err)
		}
	}
	hijacked, err := conn.Hijack()
	if err != nil {
		return nil, err
	}
	const buffer = 64 << 10
	return &client{conn: hijacked.Conn, reader: bufio.NewReaderSize(hijacked.Conn, buffer)}, nil
}

func (c *client) close() { _ = c.conn.Close() }

// query runs a statement in the simple protocol, and returns how many rows it gave.
func (c *client) query(sql string) (int, error) {
	c.add(&pgproto3.Query{String: sql})
	return c.exchange()
}

// execute runs a statement that was prepared, with values as texts.
func (c *client) execute(name string, values ...string) (int, error) {
	bind := &pgproto3.Bind{PreparedStatement: name}
	for _, v := range values {
		bind.Parameters = append(bind.Parameters, []byte(v))
	}
	c.add(bind)
	c.add(&pgproto3.Describe{ObjectType: 'P'})
	c.add(&pgproto3.Execute{})
	c.add(&pgproto3.Sync{})
	return c.exchange()
}

func (c *client) add(message pgproto3.FrontendMessage) {
	c.out, _ = message.Encode(c.out) // which fails for messages that are too long
}

// exchange sends what was collected and reads the answer.
func (c *client) exchange() (rows int, err error) {
	_, err = c.conn.Write(c.out)
	c.out = c.out[:0]
	if err != nil {
		return 0, err
	}
	var refused error
	for {
		header, err := c.reader.Peek(5)
		if err != nil {
			return rows, err
		}
		kind, size := header[0], int(binary.BigEndian.Uint32(header[1:]))-4
		_, _ = c.reader.Discard(5)
		switch kind {
		case 'D':
			rows++
		case 'E':
			if refused, err = c.readError(size); err != nil {
				return rows, err
			}
			continue
		}
		if _, err := c.reader.Discard(size); err != nil {
			return rows, err
		}
		if kind == 'Z' {
			return rows, refused
		}
	}
}

func (c *client) readError(size int) (refused, err error) {
	body := make([]byte, size)
	if _, err := io.ReadFull(c.reader, body); err != nil {
		return nil, err
	}
	var message pgproto3.ErrorResponse
	if err := message.Decode(body); err != nil {
		return nil, err
	}
	return pgconn.ErrorResponseToPgError(&message), nil
}

// sameAnswer makes sure that both sides answer a query alike, whatever the order of rows.
func (l *lab) sameAnswer(ctx context.Context, first []string, sql string) error {
	var answers [2][]string
	for i, place := range l.urls() {
		err := rig.With(ctx, place, func(conn *pgx.Conn) error {
			results, err := conn.PgConn().Exec(ctx, strings.Join(append(slices.Clone(first), sql), "; ")).ReadAll()
			if err != nil {
				return err
			}
			for _, row := range results[len(results)-1].Rows {
				answers[i] = append(answers[i], fmt.Sprintf("%q", row))
			}
			slices.Sort(answers[i])
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	if len(answers[theirs]) == 0 || !slices.Equal(answers[ours], answers[theirs]) {
		return fmt.Errorf("%s: the router gives %d rows and PostgreSQL %d, and they are not equal", sql, len(answers[ours]), len(answers[theirs]))
	}
	return nil
}
