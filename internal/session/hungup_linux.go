package session

import (
	"crypto/tls"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// hungUp says, without waiting, whether a client has closed its side of the connection, whatever it has sent before.
func hungUp(conn net.Conn) bool {
	if secured, is := conn.(*tls.Conn); is {
		conn = secured.NetConn()
	}
	socket, is := conn.(syscall.Conn)
	if !is {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(descriptor uintptr) {
		look := []unix.PollFd{{Fd: int32(descriptor), Events: unix.POLLRDHUP}} //nolint:gosec // a descriptor
		n, err := unix.Poll(look, 0)
		gone = err == nil && n > 0 && look[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	})
	return gone || err != nil
}
