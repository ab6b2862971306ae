//go:build unix

package pool

import "golang.org/x/sys/unix"

// HasInput says, without waiting, whether the server has sent something that was not read yet, or has closed. With TLS it
// may be a part of a message only.
func (b *Backend) HasInput() bool {
	raw, err := b.socket.SyscallConn()
	if err != nil {
		return true
	}
	has := false
	err = raw.Control(func(descriptor uintptr) {
		var one [1]byte
		_, _, err := unix.Recvfrom(int(descriptor), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		has = err != unix.EAGAIN && err != unix.EINTR
	})
	return has || err != nil
}
