package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Statements of a transfer, prepared under these names.
const (
	debit     = "debit"
	credit    = "credit"
	debitSQL  = "UPDATE accounts SET balance = balance - $1 WHERE id = $2"
	creditSQL = "UPDATE accounts SET balance = balance + $1 WHERE id = $2"
)

// session is a client's connection: as little as can be between the benchmark and the socket, since clients share the machine's processors with
// what they measure. What is to be sent is collected, and goes out with exchange.
type session struct {
	conn     net.Conn
	reader   *bufio.Reader
	out      []byte
	prepared bool
}

// connect opens a session. In the mode prepared it has the two statements.
func connect(ctx context.Context, url, mode string) (*session, error) {
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	if mode == "prepared" {
		for name, sql := range map[string]string{debit: debitSQL, credit: creditSQL} {
			if _, err := conn.Prepare(ctx, name, sql, nil); err != nil {
				return nil, errors.Join(fmt.Errorf("prepare %s: %w", sql, err), conn.Close(context.WithoutCancel(ctx)))
			}
		}
	}
	hijacked, err := conn.Hijack()
	if err != nil {
		return nil, err
	}
	return &session{conn: hijacked.Conn, reader: bufio.NewReader(hijacked.Conn), prepared: mode == "prepared"}, nil
}

// close ends the session at once; whoever waits for an answer gets an error.
func (s *session) close() { _ = s.conn.Close() }

// query is a statement in the simple protocol.
func (s *session) query(sql string) {
	s.out = append(s.out, 'Q')
	s.out = binary.BigEndian.AppendUint32(s.out, uint32(4+len(sql)+1)) //nolint:gosec // statements are short
	s.out = append(append(s.out, sql...), 0)
}

// change is one of the two updates.
func (s *session) change(which string, amount, id int64) {
	if !s.prepared {
		sign := map[string]byte{debit: '-', credit: '+'}[which]
		sql := append([]byte("UPDATE accounts SET balance = balance "), sign, ' ')
		sql = strconv.AppendInt(sql, amount, 10)
		sql = strconv.AppendInt(append(sql, " WHERE id = "...), id, 10)
		s.query(string(sql))
		return
	}
	var values [16]byte
	binary.BigEndian.PutUint64(values[:], uint64(amount)) //nolint:gosec // the same bits
	binary.BigEndian.PutUint64(values[8:], uint64(id))    //nolint:gosec // the same bits
	bind := pgproto3.Bind{PreparedStatement: which, ParameterFormatCodes: []int16{1}, Parameters: [][]byte{values[:8], values[8:]}}
	for _, message := range []pgproto3.FrontendMessage{&bind, &pgproto3.Describe{ObjectType: 'P'}, &pgproto3.Execute{}, &pgproto3.Sync{}} {
		s.out, _ = message.Encode(s.out) // which fails for values that are too long
	}
}

// exchange sends what was collected and reads until as many units as it is made of are answered. An error of the server's is returned when all are.
func (s *session) exchange(units int) error {
	_, err := s.conn.Write(s.out)
	s.out = s.out[:0]
	if err != nil {
		return err
	}
	var refused error
	for units > 0 {
		header, err := s.reader.Peek(5)
		if err != nil {
			return err
		}
		kind, size := header[0], int(binary.BigEndian.Uint32(header[1:]))-4
		_, _ = s.reader.Discard(5)
		switch kind {
		case 'Z':
			units--
		case 'E':
			if refused, err = s.readError(size); err != nil {
				return err
			}
			continue
		}
		if _, err := s.reader.Discard(size); err != nil {
			return err
		}
	}
	return refused
}

func (s *session) readError(size int) (refused, err error) {
	body := make([]byte, size)
	if _, err := io.ReadFull(s.reader, body); err != nil {
		return nil, err
	}
	var message pgproto3.ErrorResponse
	if err := message.Decode(body); err != nil {
		return nil, err
	}
	return pgconn.ErrorResponseToPgError(&message), nil
}

// run is a statement and its answer.
func (s *session) run(sql string) error {
	s.query(sql)
	return s.exchange(1)
}
