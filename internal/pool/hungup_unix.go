//go:build unix

package pool

import (
	"net"

	"golang.org/x/sys/unix"
)

// hungUp looks at a socket without waiting and without taking anything from it, and says whether the other side has closed.
func hungUp(socket *net.TCPConn) bool {
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(descriptor uintptr) {
		var one [1]byte
		n, _, err := unix.Recvfrom(int(descriptor), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		gone = err == nil && n == 0 || err != nil && err != unix.EAGAIN && err != unix.EINTR
	})
	return gone || err != nil
}
