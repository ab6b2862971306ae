package rig

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Closers end what was started, in the order of starting.
type Closers []func() error

// Close ends everything, the last first. It may be called twice.
func (c *Closers) Close() error {
	var failures []error
	for _, closer := range slices.Backward(*c) {
		failures = append(failures, closer())
	}
	*c = nil
	return errors.Join(failures...)
}

// With does something with a connection.
func With(ctx context.Context, place string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, place)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return do(conn)
}
