package pool

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// Row is one row of an answer, its values as text; nil is NULL.
type Row [][]byte

// Exec runs control statements, such as settings, by the simple protocol, and returns the rows of all of them. An error of
// the server is a [pgerr.Error] and leaves the backend usable; any other one, a context's end included, means that it must be
// retired. It is for what is done now and then: it reads small answers in small pieces.
func (b *Backend) Exec(ctx context.Context, sql string) ([]Row, error) {
	var answer answer
	err := within(ctx, b.conn, func() error {
		b.frontend.SendQuery(&pgproto3.Query{String: sql})
		if err := b.frontend.Flush(); err != nil {
			return err
		}
		return answer.read(b.frontend)
	})
	if err != nil {
		b.markDead()
		return nil, fmt.Errorf("run a control statement on shard %q: %w", b.shardName, err)
	}
	if answer.failure != nil {
		return nil, answer.failure
	}
	return answer.rows, nil
}

// answer is what came back.
type answer struct {
	rows    []Row
	failure *pgerr.Error
}

// read reads until the server is ready for the next statement.
func (a *answer) read(frontend *pgproto3.Frontend) error {
	for {
		message, err := frontend.Receive()
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case *pgproto3.ReadyForQuery:
			return nil
		case *pgproto3.DataRow:
			a.rows = append(a.rows, copyRow(m.Values))
		case *pgproto3.ErrorResponse:
			if a.failure = errorOf(m); a.failure.Severity == pgerr.SeverityFatal {
				return a.failure // nothing comes after it
			}
		case *pgproto3.CopyInResponse, *pgproto3.CopyOutResponse, *pgproto3.CopyBothResponse:
			return errors.New("COPY is no control statement")
		}
	}
}

// copyRow keeps values that the reader will overwrite.
func copyRow(values [][]byte) Row {
	row := make(Row, len(values))
	for i, value := range values {
		row[i] = bytes.Clone(value)
	}
	return row
}
