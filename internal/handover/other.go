//go:build !unix || aix

package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// Serve fails: this system cannot pass sockets on.
func Serve(context.Context, string, []*net.TCPListener, func()) error {
	return fmt.Errorf("offer sockets: %w", errors.ErrUnsupported)
}

// Take fails: this system cannot pass sockets on.
func Take(context.Context, string) (listeners []net.Listener, confirm func() error, err error) {
	return nil, nil, fmt.Errorf("take sockets over: %w", errors.ErrUnsupported)
}
