package shard

import (
	"bufio"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// carryBuffer is how much is handed over at a time. It is what the driver sends in one message.
const carryBuffer = 64 << 10

// Carry streams what one server reads into another, as it comes, and returns how many rows that were. Both statements are a COPY. Whoever wants to know how many bytes are on their way, or to
// slow them down, is asked to pass each piece; nil: nobody does.
func Carry(ctx context.Context, from *pgx.Conn, read string, to *pgx.Conn, write string, pass func(bytes int)) (int64, error) {
	reader, writer := io.Pipe()
	var reading sync.WaitGroup
	var readError error
	reading.Go(func() {
		buffer := bufio.NewWriterSize(&passing{writer, pass}, carryBuffer) // rows come one by one, and each would wait for its reader
		if _, readError = from.PgConn().CopyTo(ctx, buffer, read); readError == nil {
			readError = buffer.Flush()
		}
		_ = writer.CloseWithError(readError) // never fails
	})
	tag, err := to.PgConn().CopyFrom(ctx, reader, write)
	_ = reader.CloseWithError(errors.New("the other shard takes no more")) // never fails
	reading.Wait()
	var refused *pgconn.PgError
	if readError != nil && (err == nil || errors.As(readError, &refused)) {
		return 0, readError // what the writing side says then only follows from it
	}
	return tag.RowsAffected(), err
}

// passing tells how much is written.
type passing struct {
	to   io.Writer
	pass func(int)
}

func (p *passing) Write(data []byte) (int, error) {
	if p.pass != nil {
		p.pass(len(data))
	}
	return p.to.Write(data)
}
